"""Sums of squares, 1/2 |r(t, u, p)|^2, and the misfits that they are sums of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.cost import Direction, Point
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.automatic_hessian import AutomaticHessian
from daeosens.problem.branches import Branches
from daeosens.problem.callback_guard import check_output

Out = tuple[PETSc.Vec | None, PETSc.Vec | None]
"""Where products [n] and [m] are added; None where they are not wanted."""


class Residual(Protocol):
    """r(t, u, p), each rank holding some of its rows, and its derivatives."""

    def value(self, point: Point) -> Array:
        """Return the rank's rows of r [q_local]."""
        ...

    def tangent(self, point: Point, direction: Direction) -> Array:
        """Return the derivative of r along the direction [q_local]."""
        ...

    def add_adjoint(self, weight: float, point: Point, w: Array, out: Out) -> None:
        """Add ``weight`` times r_u^T w and r_p^T w; w [q_local]."""
        ...

    def add_curvature(
        self, weight: float, point: Point, w: Array, direction: Direction, out: Out
    ) -> None:
        """Add ``weight`` times the derivatives of r_u^T w and r_p^T w along the direction."""
        ...


class Timed(Protocol):
    """A residual at a time that moves with state and parameters, that of an event."""

    def slope(self, point: Point) -> Array:
        """Return r_t [q_local]."""
        ...

    def add_slope_adjoint(self, point: Point, w: Array, out: Out) -> float:
        """Add the derivatives of r_t^T w in u and p; return that in t, of the rank's own rows."""
        ...


class SumOfSquares:
    """1/2 |r|^2 as a scalar of a cost: what ``Scalar`` and ``Squares`` ask for.

    ``timed`` is the residual again where its time may move; None where it is pinned.  ``branches``
    is what an observation compares, where that is known.
    """

    def __init__(
        self,
        residual: Residual,
        comm: PETSc.Comm,
        timed: Timed | None = None,
        branches: Branches | None = None,
    ) -> None:
        self._residual = residual
        self.branches = branches
        self._comm = comm
        self._timed = timed

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return 1/2 |r|^2."""
        rows = self._residual.value((t, u, p))
        # Ranks hold different rows, so their squares add up.
        return self._total(0.5 * float(rows @ rows))

    def add_u(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` r_u^T r."""
        rows = self._residual.value((t, u, p))
        self._residual.add_adjoint(weight, (t, u, p), rows, (out, None))

    def add_p(self, weight: float, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Add ``weight`` r_p^T r."""
        if out.size:
            rows = self._residual.value((t, u, p))
            self._residual.add_adjoint(weight, (t, u, p), rows, (None, out))

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return r_t^T r."""
        if self._timed is None:
            return 0.0
        return self.time_adjoint((t, u, p), self._residual.value((t, u, p)))

    def add_hessian(
        self,
        weight: float,
        point: Point,
        direction: Direction,
        out: tuple[PETSc.Vec, PETSc.Vec],
    ) -> None:
        """Add ``weight`` times r_x^T r_x d + (r^T r_xx) d."""
        # The Gauss-Newton part first, by a tangent and its adjoint; the curvature of r, weighted
        # with r itself, is the rest.
        change = self._residual.tangent(point, direction)
        self._residual.add_adjoint(weight, point, change, out)
        rows = self._residual.value(point)
        self._residual.add_curvature(weight, point, rows, direction, out)

    def time_hessian(self, point: Point, out: tuple[PETSc.Vec, PETSc.Vec]) -> float:
        """Fill ``out`` with the derivatives of r_t^T r in u and p; return that in t."""
        for vec in out:
            vec.zeroEntries()
        if self._timed is None:
            return 0.0
        # (r_t^T r)_u = r_u^T r_t + (r_t^T w)_u at w = r, and (r_t^T r)_t = r_t^T r_t + r^T r_tt.
        rows, slope = self._residual.value(point), self._timed.slope(point)
        self._residual.add_adjoint(1.0, point, slope, out)
        return self._total(float(slope @ slope) + self._timed.add_slope_adjoint(point, rows, out))

    def residual(self, point: Point) -> Array:
        """Return r, the rank's own rows [q_local]."""
        return self._residual.value(point)

    def residual_tangent(self, point: Point, direction: Direction, dt: float = 0.0) -> Array:
        """Return the derivative of r along a direction and dt [q_local]."""
        change = self._residual.tangent(point, direction)
        if dt and self._timed is not None:
            change = change + dt * self._timed.slope(point)
        return change

    def residual_tangents(self, point: Point, du: Array, dp: Array) -> Array:
        """Return the derivative of r along directions [D, n] and [D, m] of a pinned point [D, q].

        As ``residual_tangent`` of each, to rounding; one Jacobian does for all where r is of
        arrays.
        """
        if isinstance(self._residual, ArrayResidual):
            return self._residual.tangents(point, du, dp)
        along = point[1].duplicate()
        rows: list[Array] = []
        for by_u, by_p in zip(du, dp, strict=True):
            write(along, by_u)
            rows.append(self._residual.tangent(point, (along, by_p)))
        return np.array(rows)

    def add_residual_adjoint(
        self, weight: float, point: Point, w: Array, out: tuple[PETSc.Vec, PETSc.Vec]
    ) -> None:
        """Add ``weight`` times the products r_u^T w and r_p^T w to ``out``."""
        self._residual.add_adjoint(weight, point, w, out)

    def time_adjoint(self, point: Point, w: Array) -> float:
        """Return r_t^T w, the same on every rank."""
        return 0.0 if self._timed is None else self._total(float(self._timed.slope(point) @ w))

    def _total(self, own: float) -> float:
        return own if self._comm.size == 1 else self._comm.tompi4py().allreduce(own)


class ArrayResidual:
    """(observe(t, u, p) - data) / sigma of a serial problem.

    ``observe_p`` and ``curvature`` are None where they are zero.  Where the time moves,
    ``observe_t`` and the second derivatives with the time are there too.
    """

    def __init__(
        self,
        size: int,
        n_parameters: int,
        observe: Callable[..., Any],
        observe_u: Callable[..., Any],
        observe_p: Callable[..., Any] | None,
        curvature: AutomaticHessian | None,
        data: Array,
        sigma: Array,
        observe_t: Callable[..., Any] | None = None,
        curvature_t: AutomaticHessian | None = None,
    ) -> None:
        self._t, self._curvature_t = observe_t, curvature_t
        self._shapes = ((data.size, size), (data.size, n_parameters))
        self._observe, self._u, self._p = observe, observe_u, observe_p
        self._curvature = curvature
        self._data, self._sigma = data, sigma

    def value(self, point: Point) -> Array:
        """Return r [q]."""
        t, u, p = point
        return (self._observe(t, read(u), p) - self._data) / self._sigma

    def tangent(self, point: Point, direction: Direction) -> Array:
        """Return the derivative of r along the direction [q]."""
        return self.tangents(point, read(direction[0]), direction[1])

    def tangents(self, point: Point, du: Array, dp: Array) -> Array:
        """Return the derivative of r along directions [..., n] and [..., m]: [..., q]."""
        change = du @ self._matrix(point, 0).T
        if self._p is not None:
            change = change + dp @ self._matrix(point, 1).T
        return change / self._sigma

    def add_adjoint(self, weight: float, point: Point, w: Array, out: Out) -> None:
        """Add ``weight`` times r_u^T w and r_p^T w."""
        for k, vec in enumerate(out):
            if vec is not None and vec.size and (k == 0 or self._p is not None):
                # r_x^T w = observe_x^T (w / sigma), written as a row times a matrix.
                vec.getArray()[...] += weight * (w / self._sigma) @ self._matrix(point, k)

    def add_curvature(
        self, weight: float, point: Point, w: Array, direction: Direction, out: Out
    ) -> None:
        """Add ``weight`` times the derivatives of r_u^T w and r_p^T w along the direction."""
        if self._curvature is None:
            return
        t, u, p = point
        du, dp = direction
        # sum_i (w_i / sigma_i) (observe_i)_xx d; the data drop out.
        products = self._curvature((t, read(u), p), w / self._sigma, {1: read(du), 2: dp})
        for k, vec in enumerate(out, start=1):
            if vec is not None and vec.size:
                vec.getArray()[...] += weight * products[k]

    def slope(self, point: Point) -> Array:
        """Return r_t [q]."""
        assert self._t is not None
        t, u, p = point
        rate = check_output(self._t(t, read(u), p), "observe_t", self._data.shape, t)
        return rate / self._sigma

    def add_slope_adjoint(self, point: Point, w: Array, out: Out) -> float:
        """Add the derivatives of r_t^T w in u and p; return that in t."""
        assert self._curvature_t is not None
        t, u, p = point
        # Along t alone: the derivatives of observe_t^T (w / sigma) in t, u and p.
        products = self._curvature_t((t, read(u), p), w / self._sigma, {0: np.ones(1)})
        for k, vec in enumerate(out, start=1):
            if vec is not None and vec.size:
                vec.getArray()[...] += products[k]
        return float(products[0][0])

    def _matrix(self, point: Point, k: int) -> Any:
        t, u, p = point
        observe: Any = (self._u, self._p)[k]
        matrix = observe(t, read(u), p)
        return check_output(matrix, ("observe_u", "observe_p")[k], self._shapes[k], t)


class TimeResidual:
    """(t - data) / sigma, t the time of an event; the first rank holds the row."""

    def __init__(self, data: float, sigma: float, comm: PETSc.Comm) -> None:
        self._data, self._sigma = data, sigma
        # One row must be on one rank only, or it would be counted on each.
        self._count = 1 if comm.rank == 0 else 0

    def value(self, point: Point) -> Array:
        """Return r: [1] on the first rank, [0] on the others."""
        return np.full(self._count, (point[0] - self._data) / self._sigma)

    def tangent(self, point: Point, direction: Direction) -> Array:
        """Return zero: only the time counts."""
        return np.zeros(self._count)

    def add_adjoint(self, weight: float, point: Point, w: Array, out: Out) -> None:
        """Add nothing."""

    def add_curvature(
        self, weight: float, point: Point, w: Array, direction: Direction, out: Out
    ) -> None:
        """Add nothing."""

    def slope(self, point: Point) -> Array:
        """Return 1 / sigma."""
        return np.full(self._count, 1.0 / self._sigma)

    def add_slope_adjoint(self, point: Point, w: Array, out: Out) -> float:
        """Add nothing: r is linear."""
        return 0.0


class VectorResidual:
    """(H u - data) / sigma of a distributed problem; H is None for the whole state.

    ``rows`` are those of the rank's entries that were observed; None where all of them were.
    """

    def __init__(
        self,
        data: PETSc.Vec,
        sigma: float,
        matrix: PETSc.Mat | None,
        rows: npt.NDArray[np.intp] | None,
    ) -> None:
        self._data, self._sigma, self._matrix = data, sigma, matrix
        self._observed: Any = ... if rows is None else rows

    def value(self, point: Point) -> Array:
        """Return r [q_local]."""
        return (self._apply(point[1]) - read(self._data))[self._observed] / self._sigma

    def tangent(self, point: Point, direction: Direction) -> Array:
        """Return H du / sigma [q_local]."""
        return self._apply(direction[0])[self._observed] / self._sigma

    def add_adjoint(self, weight: float, point: Point, w: Array, out: Out) -> None:
        """Add ``weight`` H^T w / sigma."""
        if out[0] is None:
            return
        if self._matrix is None:
            out[0].getArray()[self._observed] += weight / self._sigma * w
            return
        # Rows that were not observed stay zero, so that H^T does not see them.
        rows = self._data.duplicate()
        rows.getArray()[self._observed] = weight / self._sigma * w
        self._matrix.multTransposeAdd(rows, out[0], out[0])
        rows.destroy()

    def add_curvature(
        self, weight: float, point: Point, w: Array, direction: Direction, out: Out
    ) -> None:
        """Add nothing: the observation is linear."""

    def _apply(self, u: PETSc.Vec) -> Array:
        if self._matrix is None:
            return read(u)
        rows = self._data.duplicate()
        self._matrix.mult(u, rows)
        result = read(rows).copy()
        rows.destroy()
        return result
