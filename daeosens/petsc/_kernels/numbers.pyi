"""Types of numbers.pyx, whose docstrings tell the rest."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

def finite_numbers(values: NDArray[np.float64]) -> bool: ...
def numbers_of(vec: PETSc.Vec) -> NDArray[np.float64]: ...
def put_numbers(vec: PETSc.Vec, values: NDArray[Any]) -> bool: ...
