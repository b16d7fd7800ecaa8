"""Lowered costs: scalar functions of (t, u, p) with their partial derivatives, on PETSc vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from petsc4py import PETSc

from daeosens.arrays import Array, check_output, dot, guarded, norm, read, scatter
from daeosens.derivatives import ComplexStep
from daeosens.errors import InputError, UnsupportedError
from daeosens.problem import AUTONOMOUS, Problem

INDEPENDENT = "independent"
"""Said in place of a gradient: the cost does not depend on that argument."""


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


Densities: TypeAlias = "Sequence[tuple[float, Scalar]]"
"""Running costs with their weights."""


@dataclass(frozen=True, eq=False)
class Cost:
    """A lowered objective: scalars at fixed times, and densities integrated over time."""

    points: tuple[tuple[float, float, Scalar], ...] = ()
    densities: tuple[tuple[float, Scalar], ...] = ()


def points_by_step(
    index: Callable[[float], int], costs: Sequence[Cost]
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
    ) -> None:
        self._problem = problem
        self._name = name
        self._numpy = problem.style == "numpy"
        self._value = guarded(value, name, problem.comm)
        self._u = self._derivative(value, gradient_u, 1, f"{name} gradient_u", "gradient_u")
        self._p = self._derivative(value, gradient_p, 2, f"{name} gradient_p", "gradient_p")
        self._t = self._derivative(value, value_t, 0, f"{name} density_t", "density_t")
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


class ArrayMisfit:
    """The misfit at one observation time of a serial problem."""

    def __init__(
        self,
        problem: Problem,
        observe: Callable[..., Any],
        observe_u: Callable[..., Any],
        observe_p: Callable[..., Any],
        data: Array,
        sigma: Array,
    ) -> None:
        self._shape_u = (data.size, problem.size)
        self._shape_p = (data.size, problem.n_parameters)
        self._observe, self._u, self._p = observe, observe_u, observe_p
        self._data, self._sigma = data, sigma

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return 1/2 |residual|^2."""
        residual = self._residual(t, u, p)
        return 0.5 * float(residual @ residual)

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` observe_u^T residual / sigma."""
        matrix = check_output(self._u(t, read(u), p), "observe_u", self._shape_u, t)
        out.getArray()[...] += weight * (self._residual(t, u, p) / self._sigma) @ matrix

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` observe_p^T residual / sigma."""
        if out.size:
            matrix = check_output(self._p(t, read(u), p), "observe_p", self._shape_p, t)
            out.getArray()[...] += weight * (self._residual(t, u, p) / self._sigma) @ matrix

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return 0: observation times are pinned."""
        return 0.0

    def _residual(self, t: float, u: PETSc.Vec, p: Any) -> Array:
        return (self._observe(t, read(u), p) - self._data) / self._sigma


class VectorMisfit:
    """The misfit at one observation time of a distributed problem: linear observation."""

    def __init__(self, data: PETSc.Vec, sigma: float, matrix: PETSc.Mat | None) -> None:
        self._data, self._sigma, self._matrix = data, sigma, matrix

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return 1/2 |residual|^2 / sigma^2."""
        residual = self._residual(u)
        result = 0.5 * (norm(residual) / self._sigma) ** 2
        residual.destroy()
        return result

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` H^T residual / sigma^2."""
        residual = self._residual(u)
        residual.scale(weight / self._sigma**2)
        if self._matrix is None:
            out.axpy(1.0, residual)
        else:
            self._matrix.multTransposeAdd(residual, out, out)
        residual.destroy()

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add nothing: the observation does not depend on the parameters."""

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return 0: observation times are pinned."""
        return 0.0

    def _residual(self, u: PETSc.Vec) -> PETSc.Vec:
        residual = self._data.duplicate()
        if self._matrix is None:
            u.copy(residual)
        else:
            self._matrix.mult(u, residual)
        residual.axpy(-1.0, self._data)
        return residual


class FieldPrior:
    """1/2 |p - mean|^2 / sigma^2 of a distributed parameter."""

    def __init__(self, mean: PETSc.Vec, sigma: float) -> None:
        self._mean, self._sigma = mean, sigma

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the value."""
        difference = p.copy()
        difference.axpy(-1.0, self._mean)
        result = 0.5 * (norm(difference) / self._sigma) ** 2
        difference.destroy()
        return result

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add nothing: the prior does not depend on the state."""

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` (p - mean) / sigma^2."""
        out.axpy(weight / self._sigma**2, p)
        out.axpy(-weight / self._sigma**2, self._mean)

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return 0."""
        return 0.0
