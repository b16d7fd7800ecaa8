"""Types of blocks.pyx, whose docstrings tell the rest."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

class Pulls:
    count: int
    n: int
    rows: int

class MatrixPulls(Pulls):
    def __init__(self, matrices: Array) -> None: ...

class FactorPulls(Pulls):
    def __init__(
        self,
        n: int,
        matrices: tuple[Array, ...],
        products: NDArray[np.int32],
        runs: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], int],
        values: tuple[Array, Array, Array],
        v: Array,
        only_u: bool,
    ) -> None: ...
    @property
    def local(self) -> Array: ...
    def pull_all(self, w: Array) -> None: ...
    def adjoints(self, a: int) -> Array: ...

def fill_stages(
    rhs: tuple[int, int], a: Array, t: Array, sizes: Array, p: Array, stages: Array
) -> bool: ...
def add_outer(
    adjoints: Array, v: Array, transposed: bool, mu: Array, start: int, fresh: bool
) -> None: ...
def carry(
    pulls: Pulls,
    coefficients: Array,
    lam: Array,
    weights: Array | None,
    running: Array | None,
    observed: NDArray[np.uint8],
    seed: Callable[[int], None],
) -> None: ...
