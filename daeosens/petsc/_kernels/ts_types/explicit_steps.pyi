"""Types of explicit_steps.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

from daeosens.petsc._kernels.registered import Registered

EXPLICIT: str

class ExplicitSteps:
    def __init__(
        self,
        registered: Registered,
        tableau: tuple[
            NDArray[np.float64],
            NDArray[np.float64],
            NDArray[np.float64],
            NDArray[np.float64] | None,
            int,
            bool,
        ],
    ) -> None: ...
    def attach(self, ts: PETSc.TS) -> None: ...
