"""Lowered costs: scalar functions of (t, u, p) with their partial derivatives, on PETSc vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from petsc4py import PETSc

from daeosens.petsc.vectors import Array, dot
from daeosens.problem.problem import Problem

Point: TypeAlias = "tuple[float, PETSc.Vec, Any]"
"""(t, u [n], p [m]), the parameters as callbacks see them."""

Direction: TypeAlias = "tuple[PETSc.Vec, Any]"
"""(du [n], dp [m]), the latter as callbacks see parameters."""


class Scalar(Protocol):
    """A scalar function of (t, u, p) and its partial derivatives, on PETSc vectors."""

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the value, the same on every rank."""
        ...

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in u to ``out`` [n]."""
        ...

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in p to ``out`` [m]."""
        ...

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the partial derivative in t."""
        ...

    def add_hessian(
        self,
        weight: float,
        point: Point,
        direction: Direction,
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Add ``weight`` times the derivative of the gradient along a direction to ``out``."""
        ...

    def time_hessian(self, point: Point, out: tuple[PETSc.Vec, PETSc.Vec]) -> float:
        """Fill ``out`` with the derivatives of ``value_t`` in u and p; return that in t."""
        ...


@runtime_checkable
class Squares(Scalar, Protocol):
    """A scalar of the form 1/2 |r(t, u, p)|^2; each rank holds some rows of r."""

    def residual(self, point: Point) -> Array:
        """Return r, the rank's own rows [q_local]."""
        ...

    def residual_tangent(self, point: Point, direction: Direction, dt: float = 0.0) -> Array:
        """Return the derivative of r along a direction and dt [q_local]."""
        ...

    def add_residual_adjoint(
        self, weight: float, point: Point, w: Array, out: tuple[PETSc.Vec, PETSc.Vec]
    ) -> None:
        """Add ``weight`` times the products r_u^T w and r_p^T w to ``out``; w [q_local]."""
        ...

    def time_adjoint(self, point: Point, w: Array) -> float:
        """Return r_t^T w, the same on every rank; w [q_local].  For points whose time moves."""
        ...


class ManyPoints(Protocol):
    """Derivatives of a scalar at many points at once.

    Where they have to be evaluated one after the other, results are None.
    """

    def gradients(self, t: Array, u: Array, p: Any) -> tuple[Array, Array] | None:
        """Return the gradients in u [K, n] and p [K, m] at K points, t [K] and u [K, n]."""
        ...

    def hessian_products(
        self, t: Array, u: Array, p: Any, du: Array, dp: Array
    ) -> tuple[Array, Array] | None:
        """Return the derivatives of the gradients in u [D, K, n] and p [D, K, m].

        Along D directions, du [D, K, n] and dp [D, m].
        """
        ...


def at_many_points(scalar: Scalar) -> ManyPoints | None:
    """Return the derivatives of a scalar at many points; None where it has them at one only."""
    return getattr(scalar, "at_points", None)


Densities: TypeAlias = "Sequence[tuple[float, Scalar]]"
"""Running costs with their weights."""


@dataclass(frozen=True)
class At:
    """The state before or after the k-th event of a name, in place of a time."""

    event: str
    number: int = 0
    after: bool = False


@dataclass(frozen=True)
class Instant:
    """A time, and which state is meant if an event happens then."""

    t: float
    side: Literal["before", "after"]


@dataclass(frozen=True)
class Start:
    """The first state, in place of a time: for scalars of the parameters as they were given."""


START = Start()


@dataclass(frozen=True)
class Numbered:
    """The state of a number, in place of a time: for scalars that are made for a run."""

    number: int


When: TypeAlias = "float | At | Instant | Start | Numbered"
"""Where along a run a scalar is evaluated."""


@dataclass(frozen=True, eq=False)
class Cost:
    """A lowered objective: scalars at times or events, and densities integrated over time."""

    points: tuple[tuple[When, float, Scalar], ...] = ()
    densities: tuple[tuple[float, Scalar], ...] = ()


class Observation(NamedTuple):
    """What one row of a sweep takes from a state: the weighted gradient of a scalar there.

    Attributes
    ----------
    row : int
        Number of the cost.
    weight : float
        Its factor.
    scalar : Scalar
        The function of (t, u, p).
    residual_weights : array [q_local] or None
        w, where the row takes r_u^T w in place of the gradient: ``scalar`` is a sum of squares.
    """

    row: int
    weight: float
    scalar: Any
    residual_weights: Array | None = None

    @property
    def sees_parameters(self) -> bool:
        """Whether its gradient in p may be other than zero."""
        return bool(getattr(self.scalar, "sees_parameters", True))

    def add(self, point: Point, out: tuple[PETSc.Vec, PETSc.Vec]) -> None:
        """Add the gradients in u and p to ``out`` = (lam [n], mu [m])."""
        if self.residual_weights is not None:
            # A row of the Jacobian of residuals, where a cost would have w = r.
            self.scalar.add_residual_adjoint(self.weight, point, self.residual_weights, out)
            return
        self.scalar.add_u(self.weight, *point, out[0])
        self.scalar.add_p(self.weight, *point, out[1])

    def slope(self, point: Point) -> float:
        """Return the derivative in the time of the state."""
        if self.residual_weights is not None:
            return self.weight * self.scalar.time_adjoint(point, self.residual_weights)
        return self.weight * self.scalar.value_t(*point)


def value_at_points(cost: Cost, point: Callable[[When], Point]) -> float:
    """Return the value of a cost without its densities; added up from the end, as sweeps do."""
    # Floating-point sums depend on the order; the value of a cost is the same digit for digit
    # with and without its gradient.
    value = 0.0
    for time, weight, scalar in reversed(cost.points):
        value += weight * scalar.value(*point(time))
    return value


def change(
    scalar: Scalar,
    problem: Problem,
    point: tuple[float, PETSc.Vec, Any],
    du: PETSc.Vec,
    dp: PETSc.Vec | None,
    dt: float = 0.0,
) -> float:
    """Return the directional derivative of a scalar at ``point`` = (t, u, p)."""
    gradient = problem.create_state()
    scalar.add_u(1.0, *point, gradient)
    result = dot(gradient, du)
    gradient.destroy()
    if dp is not None and problem.n_parameters:
        gradient = problem.create_parameters()
        scalar.add_p(1.0, *point, gradient)
        result += dot(gradient, dp)
        gradient.destroy()
    if dt:
        result += dt * scalar.value_t(*point)
    return result


def add_curvature(
    scalar: Scalar,
    weight: float,
    point: Point,
    direction: tuple[PETSc.Vec, Any, PETSc.Vec, float],
    out: tuple[PETSc.Vec, PETSc.Vec],
) -> float:
    """Add ``weight`` times the Hessian in (t, u, p) along a direction; return the part of t.

    The direction is (du [n], dp as callbacks see it, dp [m], dt).
    """
    du, dp, dp_vec, dt = direction
    scalar.add_hessian(weight, point, (du, dp), out)
    by_u, by_p = (vec.duplicate() for vec in out)
    by_t = scalar.time_hessian(point, (by_u, by_p))
    for vec, by in zip(out, (by_u, by_p), strict=True):
        # (psi_ut, psi_pt) dt joins the parts of u and p; the part of t is psi_tu du + psi_tp dp +
        # psi_tt dt.
        vec.axpy(weight * dt, by)
    result = weight * (dot(by_u, du) + dot(by_p, dp_vec) + by_t * dt)
    by_u.destroy()
    by_p.destroy()
    return result
