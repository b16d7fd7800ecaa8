"""Problems on finite elements from one function of a point: traced, differentiated, compiled.

With Phi the values and derivatives of all basis functions at the quadrature points, W the weights
and g the traced function, f(u) = Phi^T W g(Phi u): linear, point by point, linear.  Its derivatives
are those of g between the same matrices.  All points are evaluated in one call.

``problem`` is what users call; ``point`` is what their functions see and return, ``term`` evaluates
one of them at its points, ``parameters`` are numbers or fields, and ``callbacks`` add up terms.

In come a function, ``FiniteElements`` and parameters; out comes a ``Problem``.  Read first:
``problem``, ``term``.
"""
