"""Algebraic equations: which there are, their index, consistent states and resets.

In comes a problem with a singular F_udot; ``structure`` tells algebraic equations and variables
from the others (``null_space`` where that takes sums of them), ``index`` refuses those of an index
above one, ``consistent_state`` solves for the algebraic variables, with derivatives: for users by
``timestepping/consistent_start.py``, after events by ``methods/events/consistent_reset.py``, and
at each p by ``functional/consistent_initial_state.py``.

Read first: ``structure``, ``consistent_state``; docs/mathematics.md, section 4.
"""
