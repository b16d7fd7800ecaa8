"""A step, and what a second-order sweep carries over it: one adjoint, and its derivatives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from petsc4py import PETSc


class Step(NamedTuple):
    """From the state u [n] at time t to u_next [n] at t + h, with parameters p; a jump has h = 0.

    The parameters are as callbacks see them.
    """

    t: float
    h: float
    u: PETSc.Vec
    u_next: PETSc.Vec
    p: Any


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The adjoints lam [n] and mu [m] of one cost.

    Attributes
    ----------
    weights : mapping or None
        The adjoints of each step's stages by (handle of the state before it, step size), kept for
        later sweeps of the same cost.
    multipliers : mapping
        Those of event functions, by the handle of the state before the step; kept with the weights.
    known : bool
        They are all there: lam and mu need not be carried.
    """

    lam: PETSc.Vec
    mu: PETSc.Vec
    weights: dict[tuple[int, float], list[PETSc.Vec]] | None = None
    multipliers: dict[int, float] = field(default_factory=dict[int, float])
    known: bool = False

    def keep(self, u: PETSc.Vec, h: float, weight: PETSc.Vec) -> None:
        """Keep the adjoint of one more stage of a step."""
        if self.weights is not None:
            self.weights.setdefault((u.handle, h), []).append(weight.copy())


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
    dt, dh : float
        Derivatives of the time before the step and of its size.
    """

    du: PETSc.Vec
    du_next: PETSc.Vec
    dp: Any
    dp_vec: PETSc.Vec
    lam_dot: PETSc.Vec
    mu_dot: PETSc.Vec
    dt: float = 0.0
    dh: float = 0.0
