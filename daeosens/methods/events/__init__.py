"""Steps that end at an event, and resets: derivatives of the located time and of the jump.

In comes what a run has noted of a step (``StepRecord``): ended at an event, smooth, or a jump; out
come its derivatives, with those of the time at which the event happened.  ``event_function`` has
the event as sweeps see it, ``reset`` the map from before to after, ``consistent_reset`` what
follows it in a DAE.  Read first: ``event_step``, ``reset``; docs/mathematics.md, section 5.
"""
