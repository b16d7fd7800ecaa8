"""Types of chained.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

from daeosens.petsc._kernels.grids.stencil_ts import RegisteredStencil

CHAINED: str

def set_chained(
    ts: PETSc.TS,
    registered: RegisteredStencil,
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    c: NDArray[np.float64],
) -> None: ...
