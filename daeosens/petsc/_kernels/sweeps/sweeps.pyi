"""Types of sweeps.pyx, whose docstrings tell the rest."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

Function: TypeAlias = tuple[int, int]
Tableau: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
Theta: TypeAlias = tuple[float, bool, NDArray[np.float64] | None]
RunningCosts: TypeAlias = tuple[
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.uintp],
    NDArray[np.float64],
    NDArray[np.float64],
]

def carry_back(
    functions: dict[str, Function],
    method: Tableau | Theta,
    breakpoints: NDArray[np.float64],
    p: NDArray[np.float64],
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
def add_point(
    functions: tuple[Function, Function, Function],
    weight: float,
    p: NDArray[np.float64],
    times: NDArray[np.float64],
    states: NDArray[np.float64],
    number: int,
    lam: PETSc.Vec,
    mu: PETSc.Vec,
) -> float | None: ...
