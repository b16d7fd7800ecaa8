"""Types of esdirk.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

ESDIRK: str

class EsdirkSteps:
    def __init__(
        self,
        tableau: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None],
        order: int,
        mass: PETSc.Mat | None,
        null: PETSc.Mat | None,
        additive: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
        | None = None,
    ) -> None: ...
    def attach(self, ts: PETSc.TS) -> None: ...
