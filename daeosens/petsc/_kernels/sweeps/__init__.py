"""Derivative sweeps over the steps of a run, in C.

In come times, states and stages of a run as arrays, and C functions of the model or derivatives at
all points; adjoint rows and tangents go out.  ``linear_steps`` goes forward, ``factor_steps`` back
by products of large matrices, ``blocks`` back with many rows, ``theta_steps`` back on grids,
``point_costs`` adds what costs observe.  Read first: ``linear_steps``.
"""
