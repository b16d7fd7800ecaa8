"""Types of linear_steps.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

from daeosens.petsc._kernels.ts_types.dense import DenseSteps

class LinearSteps:
    def __init__(
        self,
        steps: DenseSteps,
        p: NDArray[np.float64],
        times: NDArray[np.float64],
        sizes: NDArray[np.float64],
        states: NDArray[np.float64],
        kept: NDArray[np.float64],
        keep: bool,
    ) -> None: ...
    @property
    def n_stages(self) -> int: ...
    def push(
        self,
        last: int,
        dp: NDArray[np.float64],
        along: NDArray[np.float64],
        first: int = 0,
    ) -> int: ...

class SecondSweep:
    along: NDArray[np.float64]
    by_u: NDArray[np.float64]
    by_p: NDArray[np.float64]
    def __init__(
        self,
        steps: LinearSteps,
        du: NDArray[np.float64],
        dp: NDArray[np.float64],
        weights: NDArray[np.float64],
        known: bool,
        keep: bool,
    ) -> None: ...
    def push(self) -> bool: ...
    def bend(self, first: int) -> bool: ...
    def add(self, weight: float, functions: tuple[tuple[int, int], ...]) -> None: ...
    def vectors(self, k: int, u: PETSc.Vec, p: PETSc.Vec) -> tuple[PETSc.Vec, PETSc.Vec]: ...
    @property
    def finite(self) -> bool: ...
