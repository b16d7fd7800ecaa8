"""Theta methods, endpoint and one-stage form: the step equation and its derivatives.

In comes a step of u' = f, M u' = f or F(t, u, u', p) = 0; its one equation, linearised, gives
tangent, adjoint and second order.  ``block`` takes many steps as arrays, ``methods.grid_steps`` has
those of grids.  Read first: ``method``, ``step_equation`` (where f is evaluated, and in which
weights), ``step``.
"""
