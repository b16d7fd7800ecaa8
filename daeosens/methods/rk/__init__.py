"""Explicit Runge-Kutta methods: tableaux from PETSc, stages, the step's derivatives.

In comes a step t, u, h of u' = f(t, u, p); out come its tangent, adjoint and second order in u, p,
t and h.  ``step`` does it on vectors, ``block`` for many steps at once on arrays, ``grid_steps`` by
passes over the points of a grid; ``continuous`` has the states between two steps.

Read first: ``method`` (the family), ``step`` (the formulas), ``tableau``.
"""
