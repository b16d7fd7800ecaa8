"""Sweeps over a run: tangents, adjoints, sensitivities, products with Hessians.

In come a ``Trajectory`` and costs or directions; out come gradients, tangents and products that are
exact for the steps that were taken.  ``engines`` are the ways to sweep over a smooth piece: vector
by vector, arrays over all points, compiled loops, PETSc's own adjoint.

Read first: ``solve`` (a run), ``adjoint``, ``hessian``; which engine runs: ``engines/choice``.
"""
