"""Semi-discretised partial differential equations on structured grids, each a ``Problem``.

In come a ``Grid`` (a distributed DMDA with coordinates) and rates; out come problems on PETSc
vectors.  ``stencil_matrix`` makes sparse matrices of stencils, ``multigrid`` what coarser grids
need.  ``finite_elements`` has spaces over unstructured meshes.  Read first: ``structured``, then
``heat``, the shortest problem.
"""

from daeosens.problem.grids.finite_elements import FiniteElements
from daeosens.problem.grids.gray_scott import RATES, gray_scott, spots
from daeosens.problem.grids.heat import first_mode, heat
from daeosens.problem.grids.stencil_matrix import fill_stencil_matrix, stencil_matrix
from daeosens.problem.grids.structured import (
    NEIGHBOURS,
    FivePoint,
    Grid,
    laplacian_weights,
)

__all__ = [
    "NEIGHBOURS",
    "RATES",
    "FiniteElements",
    "FivePoint",
    "Grid",
    "fill_stencil_matrix",
    "first_mode",
    "gray_scott",
    "heat",
    "laplacian_weights",
    "spots",
    "stencil_matrix",
]
