"""The event loop: sign changes are detected, located to rounding, and applied in order.

In come a problem with events and what takes smooth steps (``runner``); out comes the log of a run
in pieces, cut and joined by jumps.  ``event_surface`` and ``detection`` see that a step crosses a
surface, ``location`` finds where, ``simultaneous`` allows two events at a time where their order
makes no difference, ``zeno`` ends runs whose events accumulate.

Read first: ``event_loop``, ``location``.
"""
