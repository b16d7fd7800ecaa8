"""Types of registered.pyx, whose docstrings tell the rest."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

from daeosens.petsc._kernels.python_functions import PythonFunctions

def take_point(matrix: PETSc.Mat) -> None: ...

class Registered:
    python: PythonFunctions | None
    def __init__(
        self,
        n: int,
        rhs: tuple[int, int],
        p: NDArray[np.float64],
        breakpoints: NDArray[np.float64],
        python: PythonFunctions | None = None,
    ) -> None: ...
    def hold(self, p: NDArray[np.float64]) -> None: ...
    def set_rhs(self, ts: PETSc.TS, work: PETSc.Vec) -> None: ...
    def set_residual(
        self,
        ts: PETSc.TS,
        residual: PETSc.Vec,
        jacobian: tuple[int, int],
        entries: NDArray[np.float64],
        places: NDArray[np.int32] | None,
        part: PETSc.Mat,
        mass: PETSc.Mat | None,
        matrix: PETSc.Mat,
        work: PETSc.Vec,
    ) -> None: ...
    def fault(
        self,
    ) -> tuple[Literal["rhs", "jacobian"], float, NDArray[np.float64]] | None: ...
