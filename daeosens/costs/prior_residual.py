"""Residuals of priors: how far parameters are from what was known of them before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Direction, Point
from daeosens.costs.sum_of_squares import Out
from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array, add_to, read


class FieldPriorResidual:
    """(p - mean) / sigma of a distributed parameter."""

    def __init__(self, mean: PETSc.Vec, sigma: float) -> None:
        self._mean, self._sigma = mean, sigma

    def value(self, point: Point) -> Array:
        """Return r [m_local]."""
        return (read(point[2]) - read(self._mean)) / self._sigma

    def tangent(self, point: Point, direction: Direction) -> Array:
        """Return dp / sigma [m_local]."""
        return read(direction[1]) / self._sigma

    def add_adjoint(self, weight: float, point: Point, w: Array, out: Out) -> None:
        """Add ``weight`` w / sigma to the part of the parameters."""
        if out[1] is not None:
            out[1].getArray()[...] += weight / self._sigma * w

    def add_curvature(
        self, weight: float, point: Point, w: Array, direction: Direction, out: Out
    ) -> None:
        """Add nothing: r is linear."""


class NumbersPriorResidual:
    """(s(p_i) - mean_i) / sigma_i of chosen parameters; the first rank holds all rows.

    s is the logarithm or the identity.
    """

    def __init__(
        self,
        names: Sequence[str],
        chosen: list[int],
        mean: Array,
        sigma: Array,
        comm: PETSc.Comm,
        *,
        logarithmic: bool,
    ) -> None:
        self._names = names
        self._chosen, self._mean, self._sigma = chosen, mean, sigma
        self._logarithmic = logarithmic
        self._comm = comm

    def value(self, point: Point) -> Array:
        """Return r: all rows [q] on the first rank, none on the others."""
        p = np.asarray(point[2])[self._chosen]
        if self._logarithmic and not (p > 0).all():
            i = int(np.argmin(p))
            raise SolveError(
                f'parameter "{self._names[i]}" = {p[i]:g} with a log-normal prior',
                expected="a positive number",
                remedy='a positive start and lower bound, or Parameter(..., scale="log")',
            )
        s = np.log(p) if self._logarithmic else p
        return self._own((s - self._mean) / self._sigma)

    def tangent(self, point: Point, direction: Direction) -> Array:
        """Return the derivative of r along the direction, in the same rows."""
        return self._own(self._slope(point) * direction[1][self._chosen])

    def add_adjoint(self, weight: float, point: Point, w: Array, out: Out) -> None:
        """Add ``weight`` r_p^T w."""
        self._add(weight * self._slope(point) * self._everywhere(w), out)

    def add_curvature(
        self, weight: float, point: Point, w: Array, direction: Direction, out: Out
    ) -> None:
        """Add ``weight`` times the derivative of r_p^T w along the direction."""
        if self._logarithmic:
            slope, p = self._slope(point), np.asarray(point[2])[self._chosen]
            # (log p)_pp = -1 / p^2, divided by sigma.
            bend = -slope / p * direction[1][self._chosen]
            self._add(weight * bend * self._everywhere(w), out)

    def _slope(self, point: Point) -> Array:
        if self._logarithmic:
            return 1.0 / (np.asarray(point[2])[self._chosen] * self._sigma)
        return 1.0 / self._sigma

    def _own(self, rows: Array) -> Array:
        # Every rank knows all parameters; the squares are summed over ranks, so one of them holds
        # the rows.
        return rows if self._comm.rank == 0 else rows[:0]

    def _everywhere(self, rows: Array) -> Array:
        return rows if self._comm.size == 1 else self._comm.tompi4py().bcast(rows)

    def _add(self, values: Array, out: Out) -> None:
        if out[1] is None:
            return
        by_p = np.zeros(out[1].size)
        np.add.at(by_p, self._chosen, values)  # a parameter may be named twice
        add_to(out[1], 1.0, by_p)
