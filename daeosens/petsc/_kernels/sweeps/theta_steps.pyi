"""Types of theta_steps.pyx, whose docstrings tell the rest."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

def pull_theta_steps(
    solver: PETSc.KSP,
    times: Sequence[float],
    sizes: Sequence[float],
    states: Sequence[PETSc.Vec],
    p: NDArray[np.float64],
    theta: float,
    endpoint: bool,
    lam: PETSc.Vec,
    nu: PETSc.Vec,
    sums: NDArray[np.float64],
) -> bool: ...
