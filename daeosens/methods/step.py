"""A step, and what a second-order sweep carries over it: one adjoint, and its derivatives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from petsc4py import PETSc

Weights: TypeAlias = "dict[tuple[int, str], list[PETSc.Vec]]"
"""Adjoints of stages by the number of the step and the name of a part."""


class Step(NamedTuple):
    """From the state u [n] at time t to u_next [n] at t + h, with parameters p; a jump has h = 0.

    The parameters are as callbacks see them; ``number`` is that of the step in its run.
    """

    t: float
    h: float
    u: PETSc.Vec
    u_next: PETSc.Vec
    p: Any
    number: int = 0


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The adjoints lam [n] and mu [m] of one cost.

    Attributes
    ----------
    weights : mapping or None
        The adjoints of each step's stages by the number of the step, and what else a part of a
        jump needs by its name; kept for later sweeps of the same cost.
    multipliers : mapping
        Those of event functions, by the number of the step; kept with the weights.
    known : bool
        They are all there: lam and mu need not be carried.
    """

    lam: PETSc.Vec
    mu: PETSc.Vec
    weights: Weights | None = None
    multipliers: dict[int, float] = field(default_factory=dict[int, float])
    known: bool = False

    def keep(self, step: Step, weight: PETSc.Vec, part: str = "") -> None:
        """Keep the adjoint of one more stage of a step, or of a part of a jump."""
        if self.weights is not None:
            self.weights.setdefault((step.number, part), []).append(weight.copy())

    def kept(self, step: Step, part: str = "") -> list[PETSc.Vec] | None:
        """Return what was kept of a step where the adjoint is known, in the order of keeping."""
        return self.weights[step.number, part] if self.known and self.weights else None


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
