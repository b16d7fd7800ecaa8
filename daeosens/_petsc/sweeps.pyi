"""Types of sweeps.pyx, whose docstrings tell the rest."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

def carry_back(
    functions: tuple[tuple[int, int], ...],
    products: bool,
    tableau: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    p: NDArray[np.float64],
    times: NDArray[np.float64],
    sizes: NDArray[np.float64],
    states: Sequence[PETSc.Vec],
    stages: dict[tuple[int, float], list[PETSc.Vec]],
    first: int,
    last: int,
    lam: list[PETSc.Vec],
    mu: list[PETSc.Vec],
) -> bool: ...
