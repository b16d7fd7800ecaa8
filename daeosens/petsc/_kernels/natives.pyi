"""Types of natives.pyx, whose docstrings tell the rest."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

Values: TypeAlias = NDArray[np.float64] | PETSc.Vec

def call_into(
    address: int,
    user_data: int,
    t: float,
    inputs: tuple[Values, ...],
    outputs: tuple[Values, ...],
) -> bool: ...
def call_number(
    address: int,
    user_data: int,
    t: float,
    inputs: tuple[Values, ...],
    outputs: tuple[Values, ...],
) -> float: ...
def call_points(
    address: int,
    user_data: int,
    t: NDArray[np.float64],
    inputs: tuple[NDArray[np.float64], ...],
    outputs: tuple[NDArray[np.float64], ...],
) -> bool: ...
def fill_matrix(
    address: int,
    user_data: int,
    t: float,
    inputs: tuple[Values, ...],
    scratch: NDArray[np.float64],
    places: NDArray[np.int32] | None,
    matrix: PETSc.Mat,
) -> bool: ...
