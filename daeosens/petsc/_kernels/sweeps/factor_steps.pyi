"""Types of factor_steps.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

from daeosens.petsc._kernels.sweeps.point_costs import RunningCosts
from daeosens.petsc._kernels.ts_types.dense import DenseSteps

class FactorSteps:
    def __init__(
        self,
        n: int,
        inner: list[tuple[int, int]],
        slopes: tuple[int, int],
        entries: tuple[int, int, int],
        table: NDArray[np.int32],
        matrices: list[int | NDArray[np.float64]],
        runs: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
        used: NDArray[np.intp],
    ) -> None: ...
    def carry_back(
        self,
        steps: DenseSteps,
        times: NDArray[np.float64],
        sizes: NDArray[np.float64],
        states: NDArray[np.float64],
        stages: NDArray[np.float64],
        first: int,
        last: int,
        lam: list[PETSc.Vec],
        mu: list[PETSc.Vec],
        costs: RunningCosts | None,
    ) -> bool: ...
