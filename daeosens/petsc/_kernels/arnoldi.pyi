"""Types of arnoldi.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray

def skew_norm(matrix: NDArray[np.float64]) -> float: ...
def projected(
    matrix: NDArray[np.float64], start: NDArray[np.float64], steps: int, rounding: float
) -> NDArray[np.float64]: ...
