"""Types of blocks.pyx, whose docstrings tell the rest."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from daeosens.petsc._kernels.sweeps.pulls import FactorPulls, Pulls

Array = NDArray[np.float64]

def carry(
    pulls: Pulls,
    coefficients: Array,
    lam: Array,
    weights: Array | None,
    running: Array | None,
    observed: NDArray[np.uint8],
    seed: Callable[[int], None],
) -> None: ...
def carry_together(
    pulls: list[FactorPulls],
    coefficients: Array,
    lam: Array,
    mu: Array,
    at_once: int,
    fresh: bool,
) -> int: ...
def wake(threads: int) -> None: ...
