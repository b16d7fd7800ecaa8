"""Types of dense.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

class DenseSteps:
    def __init__(
        self,
        n: int,
        a: NDArray[np.float64],
        c: NDArray[np.float64],
        b_embedded: NDArray[np.float64] | None,
        order: int,
        rhs: tuple[int, int],
        jacobian: tuple[int, int],
        places: NDArray[np.int32] | None,
        p: NDArray[np.float64],
    ) -> None: ...
    def hold(self, p: NDArray[np.float64]) -> None: ...
    def attach(self, ts: PETSc.TS) -> None: ...
