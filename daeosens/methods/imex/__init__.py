"""IMEX methods: additive Runge-Kutta steps of u' = f + g, implicit for f and explicit for g.

In comes a step t, u, h of a problem with two parts (``problem/parts``); each stage is the solution
of one equation of f, in which the rates of g at the stages before are known.  Steps and their
derivatives are those of ``esdirk``, with a second part.  Read first: ``tableau``, ``method``.
"""
