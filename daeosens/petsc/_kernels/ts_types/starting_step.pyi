"""Types of starting_step.pyx, whose docstrings tell the rest."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

def starting_step(
    rate: tuple[int, int] | Callable[[float, NDArray[np.float64], NDArray[np.float64]], None],
    t: float,
    u: NDArray[np.float64],
    p: NDArray[np.float64] | None,
    least: float,
    longest: float,
    order: int,
    rtol: float,
    atol: float,
    first_number: int = 0,
    agree: Callable[[float], float] | None = None,
) -> float: ...
