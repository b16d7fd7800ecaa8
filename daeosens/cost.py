"""Lowered costs: scalar functions of (t, u, p) with their partial derivatives, on PETSc vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array, check_output, dot, guarded, read, scatter, write
from daeosens.derivatives import ComplexStep
from daeosens.errors import InputError, UnsupportedError
from daeosens.problem import AUTONOMOUS, Problem
from daeosens.second_derivatives import HessianByComplexStep

INDEPENDENT = "independent"
"""Said in place of a gradient: the cost does not depend on that argument."""

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


Densities: TypeAlias = "Sequence[tuple[float, Scalar]]"
"""Running costs with their weights."""


@dataclass(frozen=True)
class At:
    """The state before or after the k-th event of a name, in place of a time."""

    event: str
    number: int = 0
    after: bool = False


@dataclass(frozen=True, eq=False)
class Cost:
    """A lowered objective: scalars at times or events, and densities integrated over time."""

    points: tuple[tuple[float | At, float, Scalar], ...] = ()
    densities: tuple[tuple[float, Scalar], ...] = ()


def points_by_step(
    index: Callable[[float | At], int], costs: Sequence[Cost]
) -> dict[int, list[tuple[int, float, Scalar]]]:
    """Sort the point costs by the step they belong to: {step: [(cost, weight, scalar)]}."""
    points: dict[int, list[tuple[int, float, Scalar]]] = {}
    for k, cost in enumerate(costs):
        for time, weight, scalar in cost.points:
            points.setdefault(index(time), []).append((k, weight, scalar))
    return points


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


class Callback:
    """A scalar given by user callbacks of either style; complex step fills what is missing."""

    def __init__(
        self,
        problem: Problem,
        name: str,
        value: Callable[..., Any],
        gradient_u: Callable[..., Any] | str | None,
        gradient_p: Callable[..., Any] | str | None,
        value_t: Callable[..., Any] | str | None,
        hessian_product: Callable[..., Any] | None = None,
    ) -> None:
        self._problem = problem
        self._name = name
        self._numpy = problem.style == "numpy"
        self._value = guarded(value, name, problem.comm)
        self._u = self._derivative(value, gradient_u, 1, f"{name} gradient_u", "gradient_u")
        self._p = self._derivative(value, gradient_p, 2, f"{name} gradient_p", "gradient_p")
        self._t = self._derivative(value, value_t, 0, f"{name} density_t", "density_t")
        self._hessian = self._second(value, gradient_u, gradient_p, hessian_product)
        self._work: PETSc.Vec | None = None

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the value."""
        return float(check_output(self._value(t, self._see(u), p), self._name, (), t, "cost"))

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in u."""
        if self._u is None:
            return
        if self._numpy:
            values = self._u(t, self._see(u), p)
            name = f"{self._name} gradient_u"
            out.getArray()[...] += weight * check_output(values, name, (out.size,), t)
            return
        if self._work is None:
            self._work = self._problem.create_state()
        self._u(t, u, p, self._work)
        out.axpy(weight, self._work)

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` times the gradient in p."""
        if self._p is None or out.size == 0:
            return
        work = out.duplicate()
        if self._problem.field_parameter:
            self._p(t, self._see(u), p, work)
        else:
            values = self._p(t, self._see(u), p)
            scatter(check_output(values, f"{self._name} gradient_p", (out.size,), t), work)
        out.axpy(weight, work)
        work.destroy()

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the partial derivative in t."""
        return 0.0 if self._t is None else float(self._t(t, self._see(u), p))

    def add_hessian(
        self,
        weight: float,
        point: Point,
        direction: Direction,
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Add ``weight`` times the derivative of the gradient along a direction."""
        if self._hessian is None:
            return
        name = f"{self._name} hessian_product"
        t, u, p = point
        du, dp = direction
        out_u, out_p = out
        work_u, work_p = out_u.duplicate(), out_p.duplicate()
        m = out_p.size
        if self._numpy:
            by_u, by_p = self._hessian(t, read(u), p, read(du), dp)
            write(work_u, check_output(by_u, name, (out_u.size,), t))
            if m:
                write(work_p, check_output(by_p, name, (m,), t))
        elif self._problem.field_parameter:
            self._hessian(t, u, p, du, dp, work_u, work_p)
        else:
            by_p = self._hessian(t, u, p, du, dp, work_u)
            if m:
                scatter(check_output(by_p, name, (m,), t), work_p)
        out_u.axpy(weight, work_u)
        if m:
            out_p.axpy(weight, work_p)
        work_u.destroy()
        work_p.destroy()

    def _see(self, u: PETSc.Vec) -> Any:
        return read(u) if self._numpy else u

    def _derivative(
        self,
        value: Callable[..., Any],
        given: Callable[..., Any] | str | None,
        position: int,
        name: str,
        keyword: str,
    ) -> Callable[..., Any] | None:
        if given in (INDEPENDENT, AUTONOMOUS):
            return None
        if callable(given):
            return guarded(given, name, self._problem.comm)
        if given is not None:
            raise InputError(f"{name} = {given!r}", expected=f'a callback or "{INDEPENDENT}"')
        if self._numpy:
            step = ComplexStep(value, position, self._name, f"{keyword}=callback")
            if position:
                return lambda *point: step(*point)[0]
            return lambda *point: step(*point)[0, 0]

        def refuse(*_point: Any) -> Any:
            raise UnsupportedError(
                f"'{name}' is needed and was not supplied",
                expected=f'{keyword}=callback, or "{AUTONOMOUS if not position else INDEPENDENT}"',
            )

        return refuse

    def _second(
        self,
        value: Callable[..., Any],
        gradient_u: Callable[..., Any] | str | None,
        gradient_p: Callable[..., Any] | str | None,
        given: Callable[..., Any] | None,
    ) -> Callable[..., Any] | None:
        """Return the user's second derivatives, those by complex step, or their refusal."""
        if given is not None:
            return guarded(given, f"{self._name} hessian_product", self._problem.comm)
        gradients = {1: gradient_u, 2: gradient_p}
        wanted = {k: each for k, each in gradients.items() if each != INDEPENDENT}
        if not wanted:
            return None
        if not self._numpy:
            return _refusing(self._name)
        first = {k: _row(each) if callable(each) else None for k, each in wanted.items()}
        remedy = "hessian_product=callback"
        product = HessianByComplexStep(self._value, first, self._name, remedy)
        nothing = (np.zeros(self._problem.size), np.zeros(self._problem.n_parameters))

        def call(t: float, u: Array, p: Any, du: Array, dp: Any) -> tuple[Array, Array]:
            directions = {1: du, 2: dp}
            result = product((t, u, p), np.ones(1), {k: directions[k] for k in wanted})
            return result.get(1, nothing[0]), result.get(2, nothing[1])

        return call


def _row(gradient: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *point: np.asarray(gradient(*point))[None, :]


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_arguments: Any) -> Any:
        raise UnsupportedError(
            f"'{name} hessian_product' is needed and was not supplied",
            expected="hessian_product=callback: second derivatives of PETSc-style callbacks "
            "cannot be found by complex step",
            remedy="a method that needs gradients only",
        )

    return refuse
