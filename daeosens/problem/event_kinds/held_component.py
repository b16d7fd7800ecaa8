"""Equations in which one component is held, and the rate that it would have if it were free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from petsc4py import PETSc

from daeosens.petsc.vectors import Array, gather, read, write
from daeosens.problem.event_kinds.affine import Keywords, entry, owned, set_unit
from daeosens.problem.hessian_products import residual_hessian, residual_time_hessian
from daeosens.problem.matrices import Derivative, negative, shell
from daeosens.problem.problem import Problem

_MAT: Any = PETSc.Mat  # the stubs of petsc4py 3.26 give enumerations the wrong type


def held(problem: Problem, index: int) -> Problem:
    """Return u' = f(t, u, p) with the rate of one component replaced by 0.

    Parameters
    ----------
    problem : Problem
        Of the form u' = f, without events.
    index : int
        The number of the component.
    """

    def clear(vec: PETSc.Vec) -> None:
        values: Any = vec.getArray()
        for _, k in owned(vec, [index]):
            # on the rank that owns it
            values[k] = 0.0

    def cleared(fill: Callable[..., Any]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            fill(*arguments)
            clear(arguments[-1])

        return call

    def residual_t(t: float, u: PETSc.Vec, _udot: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        rhs_t(t, u, p, out)
        out.scale(-1.0)

    def hessian(
        t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, du: PETSc.Vec, dp: Any, *out: PETSc.Vec
    ) -> None:
        weights = w.copy()
        # f_i = 0 adds nothing to w^T f: with w_i = 0 the Hessian of the rest
        clear(weights)
        problem.rhs_hessian_function(t, u, p, weights, du, dp, *out)
        weights.destroy()

    def time_hessian(t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, *out: PETSc.Vec) -> float:
        assert problem.rhs_time_hessian_function is not None
        weights = w.copy()
        clear(weights)
        result = problem.rhs_time_hessian_function(t, u, p, weights, *out)
        weights.destroy()
        return result

    of_time = None if problem.rhs_time_hessian_function is None else time_hessian
    rhs_t = cleared(problem.rhs_t)
    rhs_u = _without_row(problem.rhs_u, index, clear)
    rhs_p = _without_row(problem.rhs_p, index, clear)
    parts = problem.parts
    if parts is not None:
        parts = (held(parts[0], index), held(parts[1], index))
    return replace(
        problem,
        rhs_function=cleared(problem.rhs),
        rhs_u=rhs_u,
        rhs_p=rhs_p,
        rhs_t_function=rhs_t,
        residual_u=negative(rhs_u),
        residual_p=negative(rhs_p),
        residual_t_function=residual_t,
        rhs_hessian_function=hessian,
        residual_hessian_function=residual_hessian(hessian, None),
        rhs_time_hessian_function=of_time,
        residual_time_hessian_function=residual_time_hessian(of_time),
        native={},
        batch=None,
        parts=parts,
    )


class _Cleared:
    """Context of a shell matrix: the products of another one, without one row."""

    def __init__(self, inner: PETSc.Mat, clear: Callable[[PETSc.Vec], None]) -> None:
        self.inner = inner
        self._clear = clear

    def mult(self, _matrix: PETSc.Mat, x: PETSc.Vec, out: PETSc.Vec) -> None:
        self.inner.mult(x, out)
        self._clear(out)

    def multTranspose(self, _matrix: PETSc.Mat, x: PETSc.Vec, out: PETSc.Vec) -> None:  # noqa: N802
        # row i cleared: A^T w with w_i = 0
        weights = x.copy()
        self._clear(weights)
        self.inner.multTranspose(weights, out)
        weights.destroy()

    def scale(self, _matrix: PETSc.Mat, factor: float) -> None:
        self.inner.scale(factor)


def _without_row(
    derivative: Derivative, index: int, clear: Callable[[PETSc.Vec], None]
) -> Derivative:
    def create(*point: Any) -> PETSc.Mat:
        matrix = derivative.create(*point)
        if derivative.assembled:
            # zeroRows would take the entries out of the pattern, and the next filling needs them
            matrix.setOption(_MAT.Option.KEEP_NONZERO_PATTERN, True)
            return matrix
        vecs: Any = matrix.createVecs()
        columns, rows = vecs
        return shell(rows, columns, _Cleared(matrix, clear))

    def fill(*point_and_out: Any) -> None:
        *point, out = point_and_out
        if derivative.assembled:
            derivative.fill(*point, out)
            # collective: one rank names the row, whichever owns it
            out.zeroRows([index] if out.comm.rank == 0 else [], diag=0.0)
            return
        derivative.fill(*point, out.getPythonContext().inner)
        out.stateIncrease()

    return Derivative(create, fill, derivative.assembled)


class Rate:
    """The rate f_i(t, u, p) of one component, and its derivatives, on vectors.

    Parameters
    ----------
    problem : Problem
        Of the form u' = f.
    index : int
        The number i of the component.
    """

    def __init__(self, problem: Problem, index: int) -> None:
        self._problem = problem
        self._index = index
        self._work = problem.create_state()
        self._unit = problem.create_state()
        set_unit(self._unit, index)
        self._matrices: dict[str, PETSc.Mat] = {}

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the rate, on every rank."""
        self._problem.rhs(t, u, p, self._work)
        return entry(self._work, self._index)

    def by_u(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [n] with the gradient in u."""
        self._row("u", self._problem.rhs_u, (t, u, p), out)

    def by_p(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` [m] with the gradient in p."""
        if out.size:
            self._row("p", self._problem.rhs_p, (t, u, p), out)

    def by_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the partial derivative in t."""
        self._problem.rhs_t(t, u, p, self._work)
        return entry(self._work, self._index)

    def _row(
        self, name: str, derivative: Derivative, point: tuple[Any, ...], out: PETSc.Vec
    ) -> None:
        if name not in self._matrices:
            self._matrices[name] = derivative.create(*point)
        derivative.fill(*point, self._matrices[name])
        # row i of f_u is f_u^T e_i
        self._matrices[name].multTranspose(self._unit, out)

    def surface(self) -> Keywords:
        """Return the surface where the rate is zero, as callbacks in the style of the problem.

        Returns
        -------
        dict
            ``when`` and its derivatives.
        """
        problem = self._problem
        if problem.style == "numpy":
            return self._numpy_surface()
        by_p_vec = problem.create_parameters()

        def by_p(t: float, u: PETSc.Vec, p: Any) -> Array:
            self.by_p(t, u, p, by_p_vec)
            return gather(by_p_vec)

        def hessian(
            t: float, u: PETSc.Vec, p: Any, du: PETSc.Vec, dp: Any, out: PETSc.Vec
        ) -> Array:
            problem.rhs_hessian((t, u, p), self._unit, (du, dp), (out, by_p_vec))
            return gather(by_p_vec)

        def hessian_t(t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> tuple[Array, float]:
            by_t = problem.rhs_time_hessian((t, u, p), self._unit, (out, by_p_vec))
            return gather(by_p_vec), by_t

        def field_hessian(t: float, u: Any, p: Any, du: Any, dp: Any, *out: PETSc.Vec) -> None:
            problem.rhs_hessian((t, u, p), self._unit, (du, dp), (out[0], out[1]))

        def field_hessian_t(t: float, u: PETSc.Vec, p: Any, *out: PETSc.Vec) -> float:
            return problem.rhs_time_hessian((t, u, p), self._unit, (out[0], out[1]))

        field = problem.field_parameter
        return {
            "when": self.value,
            "when_u": self.by_u,
            "when_p": self.by_p if field else by_p,
            "when_t": self.by_t,
            "when_hessian": field_hessian if field else hessian,
            "when_hessian_t": field_hessian_t if field else hessian_t,
        }

    def _numpy_surface(self) -> Keywords:
        problem = self._problem
        vec, row, direction = (problem.create_state() for _ in range(3))
        row_p = problem.create_parameters()

        def at(u: Array, out: PETSc.Vec = vec) -> PETSc.Vec:
            write(out, u)
            return out

        def by_u(t: float, u: Array, p: Array) -> Array:
            self.by_u(t, at(u), p, row)
            return read(row).copy()

        def by_p(t: float, u: Array, p: Array) -> Array:
            self.by_p(t, at(u), p, row_p)
            return read(row_p).copy()

        def hessian(t: float, u: Array, p: Array, du: Array, dp: Array) -> tuple[Array, Array]:
            along = (at(du, direction), dp)
            problem.rhs_hessian((t, at(u), p), self._unit, along, (row, row_p))
            return read(row).copy(), read(row_p).copy()

        def hessian_t(t: float, u: Array, p: Array) -> tuple[Array, Array, float]:
            by_t = problem.rhs_time_hessian((t, at(u), p), self._unit, (row, row_p))
            return read(row).copy(), read(row_p).copy(), by_t

        return {
            "when": lambda t, u, p: self.value(t, at(u), p),
            "when_u": by_u,
            "when_p": by_p,
            "when_t": lambda t, u, p: self.by_t(t, at(u), p),
            "when_hessian": hessian,
            "when_hessian_t": hessian_t,
        }
