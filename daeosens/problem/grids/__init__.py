"""Grids and finite elements: where the unknowns of partial differential equations are.

In come a box or a mesh, out come layouts of vectors: a ``Grid`` is a distributed DMDA with
coordinates.  ``stencil_matrix`` makes sparse matrices of stencils, ``multigrid`` what coarser grids
need.  ``finite_elements`` has spaces over unstructured meshes.  Equations on them are made by
``daeosens.tracing``; its ``pdes`` has well-known ones.  Read first: ``structured``.
"""

from daeosens.problem.grids.finite_elements import FiniteElements
from daeosens.problem.grids.stencil_matrix import fill_stencil_matrix, stencil_matrix
from daeosens.problem.grids.structured import Grid

__all__ = ["FiniteElements", "Grid", "fill_stencil_matrix", "stencil_matrix"]
