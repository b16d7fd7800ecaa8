"""What a second-order sweep carries: one adjoint, and its derivative along each direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from petsc4py import PETSc


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The adjoints lam [n] and mu [m] of one cost."""

    lam: PETSc.Vec
    mu: PETSc.Vec


@dataclass(frozen=True, eq=False)
class SecondOrder:
    """One direction on one step.

    Attributes
    ----------
    du, du_next : Vec [n]
        The tangent before and after the step.
    dp : array or Vec [m]
        Direction in the parameters, as callbacks see them.
    dp_vec : Vec [m]
        The same as a vector.
    lam_dot, mu_dot : Vec [n], Vec [m]
        Derivatives of the adjoints along the direction.
    """

    du: PETSc.Vec
    du_next: PETSc.Vec
    dp: Any
    dp_vec: PETSc.Vec
    lam_dot: PETSc.Vec
    mu_dot: PETSc.Vec
