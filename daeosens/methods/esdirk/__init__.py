"""ESDIRK methods: own tableaux, stage equations, the step's derivatives.

In comes a step t, u, h of M u' = f(t, u, p), M singular or not; each stage is the solution of one
equation, whose transposed linearisation carries rows back.  Out come tangent, adjoint and second
order.  Read first: ``method``, ``tableau`` (why these methods), ``step``, ``stage_equations``.
"""
