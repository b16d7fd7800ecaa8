"""Types of dense.pyx, whose docstrings tell the rest."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

from daeosens.petsc._kernels.python_functions import PythonFunctions
from daeosens.petsc._kernels.sweeps.point_costs import RunningCosts

DENSE: str

class DenseSteps:
    python: PythonFunctions | None
    def __init__(
        self,
        size: int,
        tableau: tuple[
            NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]
        ],
        order: int,
        functions: dict[str, tuple[int, int]],
        places: NDArray[np.int32] | None,
        breakpoints: NDArray[np.float64],
        p: NDArray[np.float64],
        mass: NDArray[np.float64] | None = None,
        python: PythonFunctions | None = None,
        guess: NDArray[np.float64] | None = None,
    ) -> None: ...
    def hold(self, p: NDArray[np.float64]) -> None: ...
    def attach(self, ts: PETSc.TS) -> None: ...
    def carry_back(
        self,
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
    def fill_stages(
        self,
        times: NDArray[np.float64],
        sizes: NDArray[np.float64],
        stages: NDArray[np.float64],
    ) -> bool: ...
    @property
    def transposes(self) -> bool: ...
    def fault(
        self,
    ) -> tuple[Literal["rhs", "jacobian"], float, NDArray[np.float64]] | None: ...
