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
def fill_dense(
    address: int,
    user_data: int,
    t: float,
    inputs: tuple[Values, ...],
    scratch: NDArray[np.float64],
    matrix: PETSc.Mat,
) -> bool: ...
def fill_sparse(
    address: int,
    user_data: int,
    t: float,
    inputs: tuple[Values, ...],
    scratch: NDArray[np.float64],
    places: NDArray[np.int32],
    matrix: PETSc.Mat,
) -> bool: ...
