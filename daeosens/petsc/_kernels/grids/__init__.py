"""Loops over the points of distributed grids, and solvers that use them.

In come vectors of a DMDA and generated functions of a point; out come values of f, products with
its derivatives, steps of explicit methods in one pass (``stencil_chain.h``), and coarse operators
(``upwind``).  Read first: ``stencil.h``, ``stencils``.
"""
