"""Semi-discretised partial differential equations on structured grids, each a ``Problem``."""

from daeosens.grids.gray_scott import RATES, gray_scott, spots
from daeosens.grids.heat import first_mode, heat
from daeosens.grids.structured import (
    NEIGHBOURS,
    FivePoint,
    Grid,
    fill_stencil_matrix,
    laplacian_weights,
    stencil_matrix,
)

__all__ = [
    "NEIGHBOURS",
    "RATES",
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
