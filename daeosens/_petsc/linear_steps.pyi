"""Types of linear_steps.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray

from daeosens._petsc.dense import DenseSteps

class LinearSteps:
    def __init__(
        self,
        steps: DenseSteps,
        times: NDArray[np.float64],
        sizes: NDArray[np.float64],
        states: NDArray[np.float64],
        kept: NDArray[np.float64],
        keep: bool,
    ) -> None: ...
    @property
    def n_stages(self) -> int: ...
    def push(
        self,
        last: int,
        dp: NDArray[np.float64],
        along: NDArray[np.float64],
        moved: NDArray[np.float64],
    ) -> bool: ...
    def bend(
        self,
        first: int,
        last: int,
        dp: NDArray[np.float64],
        along: NDArray[np.float64],
        moved: NDArray[np.float64],
        weights: NDArray[np.float64],
        known: bool,
        lam: NDArray[np.float64],
        mu: NDArray[np.float64],
        lam_dot: NDArray[np.float64],
        mu_dot: NDArray[np.float64],
    ) -> bool: ...
