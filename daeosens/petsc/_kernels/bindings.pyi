"""Types of bindings.pyx, whose docstrings tell the rest."""

import numpy as np
from numpy.typing import NDArray
from petsc4py import PETSc

def no_options() -> bool: ...
def register_rk(
    name: str,
    order: int,
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    b_embedded: NDArray[np.float64],
) -> None: ...
def rk_tableau(
    ts: PETSc.TS,
) -> tuple[
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64] | None,
    int,
    bool,
]: ...
def end_at_last_stage(ts: PETSc.TS) -> None: ...
def stages(ts: PETSc.TS) -> list[PETSc.Vec]: ...
def lock_onto(view: PETSc.Vec, vec: PETSc.Vec) -> None: ...
def has_transpose(pc: PETSc.PC) -> bool: ...
