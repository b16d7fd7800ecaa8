"""Types of pulls.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

class Pulls:
    count: int
    n: int
    rows: int

class MatrixPulls(Pulls):
    def __init__(self, matrices: Array) -> None: ...

class Sums:
    def __init__(
        self,
        starts: NDArray[np.intp],
        used: NDArray[np.intp],
        outside: NDArray[np.intp],
        alone: bool,
    ) -> None: ...

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
        sums: Sums | None,
    ) -> None: ...
    def twin(self) -> FactorPulls: ...
    def pull_all(self, w: Array) -> None: ...
    def add_to(self, mu: Array, fresh: bool) -> None: ...
