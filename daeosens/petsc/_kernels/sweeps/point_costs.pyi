"""Types of point_costs.pyx, whose docstrings tell the rest."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

Function: TypeAlias = tuple[int, int]
RunningCosts: TypeAlias = tuple[
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.uintp],
    NDArray[np.float64],
    NDArray[np.float64],
]

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
