"""Minimisation under constraints: interior points where matrices fit, augmented Lagrangians.

In come a functional and constraints (``constraints``: on functions of x, of parameters, of runs);
out comes a result whose multipliers are checked (``kkt``, ``optimality``).  ``ipopt`` is serial and
takes second derivatives, ``augmented_lagrangian`` is for distributed unknowns.

Read first: ``minimize`` (which of both), ``constraints``, ``lagrangian``.
"""
