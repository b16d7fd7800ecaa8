"""Sweeps on PETSc vectors, one step after the other: for every method, form, event and rank.

In come a window of steps and rows; each step is transposed by the step map of its method
(``methods``).  The reference of all other engines, and what carries rows over events for them.
Read first: ``adjoint``, then ``hessian``.
"""
