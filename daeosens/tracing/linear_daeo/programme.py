"""Linear programmes whose bounds move, and their bases.

    maximise c_1 . v, then c_2 . v among those, ...;  A v = b,  lower <= v <= upper

With r = A v, b <= r <= b, there are as many unknowns (v, r) as columns of (A, -I).  The bounds are
affine in numbers z, which are functions of time, state and parameters.  So are the flows of a
basis, and their distances to bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import splu

from daeosens.petsc.vectors import Array

LOWER, BASIC, UPPER, FREE = -1, 0, 1, 2
"""What holds an unknown: a bound; equations; or nothing, then it is 0 while it is not basic."""

ROUNDING = 1e-9
"""Reduced costs, pivots and distances below it, relative to what they are made of, are zero."""

NOISE = 1e-13
"""Flows below it, relative to the largest, are what rounding has left."""

Sides = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Programme:
    """A linear programme.

    Attributes
    ----------
    matrix : csc_array [m, n + m]
        (A, -I).
    costs : array [k, n + m]
        The objectives in the order of their rank, to be minimised.
    low, high : array [n + m, 1 + n_z]
        Bounds, as products with (1, z).
    flows : sequence of str
        Names of v.
    """

    matrix: Any
    costs: Array
    low: Array
    high: Array
    flows: Sequence[str]

    @cached_property
    def fixed(self) -> npt.NDArray[np.bool_]:
        """Whether both bounds of an unknown are the same."""
        return np.asarray((self.low == self.high).all(axis=1))

    @cached_property
    def shut(self) -> npt.NDArray[np.intp]:
        """Unknowns whose bounds may meet: both finite, and one of them moves."""
        moves = (self.low[:, 1:] != 0.0).any(axis=1) | (self.high[:, 1:] != 0.0).any(axis=1)
        finite = np.isfinite(self.low[:, 0]) & np.isfinite(self.high[:, 0])
        return np.flatnonzero(moves & finite & ~self.fixed)

    def name(self, number: int) -> str:
        """Return how messages call an unknown."""
        n = len(self.flows)
        return self.flows[number] if number < n else f"row {number - n} of A v"


class Basis:
    """A basis of a linear programme, with its flows as affine functions of z.

    Parameters
    ----------
    programme : Programme
    side : array of int8 [n + m]
        What holds each unknown.

    Attributes
    ----------
    values : array [n + m, 1 + n_z]
        All unknowns, as products with (1, z).
    reduced : array [k, n + m]
        Reduced costs.
    places : list of (int, int)
        Unknowns and their bounds that they may come to, or BASIC where both bounds may meet.
    distances : array [P, 1 + n_z]
        How far they are from them, as products with (1, z).
    watched : list of int
        Numbers of distances that change, one of those that are proportional.

    Raises
    ------
    RuntimeError
        The matrix is singular.
    """

    def __init__(self, programme: Programme, side: Sides) -> None:
        self.programme, self.side = programme, side
        self._afters: dict[tuple[int, int], Sides | None] = {}
        self.basic = np.flatnonzero(side == BASIC)
        matrix, costs = programme.matrix, programme.costs
        self._factors: Any = splu(matrix[:, self.basic])
        held = np.where((side == UPPER)[:, None], programme.high, programme.low)
        # Nonbasic unknowns are at their bounds, which are affine in z, free ones at 0.
        held[(side == BASIC) | (side == FREE)] = 0.0
        right: Any = matrix @ held
        # B v_B = -N v_N, for all columns of (1, z) at once
        of_basic = -self._solved(right)
        noise = NOISE * np.maximum(np.abs(of_basic).max(axis=0), np.abs(held).max(axis=0))
        of_basic[np.abs(of_basic) < noise] = 0.0
        self.values = held
        self.values[self.basic] = of_basic
        # d = c - A^T B^-T c_B: reduced costs, for each objective
        prices = self._solved(costs[:, self.basic].T, transposed=True)
        self.reduced: Array = costs - np.asarray(matrix.T @ prices).T
        # what they are sums of, to tell zero from rounding
        parts = np.abs(costs) + np.asarray(abs(matrix).T @ np.abs(prices)).T
        self.reduced[np.abs(self.reduced) <= ROUNDING * parts] = 0.0
        self.reduced[:, self.basic] = 0.0
        self._watch(noise)

    def _solved(self, right: Any, *, transposed: bool = False) -> Array:
        """Return B^-1 or B^-T times columns."""
        columns = np.ascontiguousarray(right, dtype=float)
        solution = self._factors.solve(columns, trans="T" if transposed else "N")
        return np.asarray(solution, dtype=float)

    def _watch(self, noise: Array) -> None:
        low, high = self.programme.low, self.programme.high
        values, basic, shut = self.values, self.basic, self.programme.shut
        lower = basic[np.isfinite(low[basic, 0])]
        upper = basic[np.isfinite(high[basic, 0])]
        self.places = [
            (k, bound)
            for of, bound in ((lower, LOWER), (upper, UPPER), (shut, BASIC))
            for k in of.tolist()
        ]
        # each distance is >= 0 while the basis is feasible
        rows = values[lower] - low[lower], high[upper] - values[upper], high[shut] - low[shut]
        self.distances = np.concatenate(rows)
        self.distances[np.abs(self.distances) < noise] = 0.0
        self.watched = _distinct(self.distances)

    @cached_property
    def rank_sign(self) -> npt.NDArray[np.int_]:
        """Sign of the first reduced cost that is not zero [n + m]; 0 where all are."""
        signs = np.zeros(self.reduced.shape[1], dtype=int)
        for row in self.reduced:
            # the objective of higher rank decides; the next one where it is indifferent
            signs = np.where(signs == 0, np.sign(row).astype(int), signs)
        return signs

    @property
    def optimal(self) -> bool:
        """Whether its flows are the optimum wherever they keep within their bounds."""
        side, signs = self.side, self.rank_sign
        wrong = ((side == LOWER) & (signs < 0)) | ((side == UPPER) & (signs > 0))
        return not (wrong & ~self.programme.fixed).any() and not signs[side == FREE].any()

    @property
    def indifferent(self) -> list[int]:
        """Unknowns that no objective holds at their bounds, or at zero."""
        loose = (self.side != BASIC) & ~self.programme.fixed & (self.rank_sign == 0)
        return np.flatnonzero(loose).tolist()

    def column(self, number: int) -> Array:
        """Return how all unknowns [n + m] change with one that is not basic."""
        change = np.zeros(len(self.side))
        column = self.programme.matrix[:, [number]].toarray()[:, 0]
        change[self.basic] = -self._solved(column)
        change[number] = 1.0
        return change

    def row(self, number: int) -> Array:
        """Return minus how a basic unknown changes with each of the others [n + m]."""
        unit = np.zeros(len(self.basic))
        unit[np.searchsorted(self.basic, number)] = 1.0
        row: Array = np.asarray(self.programme.matrix.T @ self._solved(unit, transposed=True))
        row[np.abs(row) <= ROUNDING * np.abs(row).max(initial=0.0)] = 0.0
        row[self.basic] = 0.0
        return row

    def after(self, number: int, bound: int) -> Sides | None:
        """Return ``left_by``, found once; None also where both bounds of an unknown meet."""
        key = number, bound
        if key not in self._afters:
            self._afters[key] = None if bound == BASIC else self.left_by(*key)
        return self._afters[key]

    def left_by(self, number: int, bound: int) -> Sides | None:
        """Return the sides of the basis that follows where a basic unknown comes to a bound.

        A step of the dual simplex method: the unknown that becomes basic is the one whose reduced
        costs, over what it does to the first, are the smallest, compared by the objectives in their
        order; then the one of the lowest number.  None if there is none: from here on the programme
        is infeasible.
        """
        # how the leaving unknown gets back to its bound with each of the others
        effect = self.row(number) * (-1.0 if bound == LOWER else 1.0)
        side = self.side
        # what helps: to rise from a lower bound, to fall from an upper one
        helps = ((side == LOWER) & (effect > 0.0)) | ((side == UPPER) & (effect < 0.0))
        helps = (helps & ~self.programme.fixed) | ((side == FREE) & (effect != 0.0))
        candidates = np.flatnonzero(helps)
        for costs in self.reduced:
            if len(candidates) < 2:
                break
            # ratio test of the dual simplex method: the smallest keeps all reduced costs of their
            # sign
            ratios = costs[candidates] / effect[candidates]
            least = ratios.min()
            candidates = candidates[ratios <= least + ROUNDING * (1.0 + abs(least))]
        if not len(candidates):
            return None
        sides = side.copy()
        sides[number], sides[candidates[0]] = bound, BASIC
        return sides


def _distinct(rows: Array) -> list[int]:
    """Return the numbers of rows that are not constant, one of those that are proportional."""
    sizes = np.abs(rows[:, 1:]).max(axis=1, initial=0.0)
    moving = np.flatnonzero(sizes > 0.0)
    # proportional rows are zero at the same time: one of them is enough to watch
    shapes = rows[moving] / sizes[moving, None]
    marks = shapes @ np.sqrt(np.arange(2.0, 2.0 + rows.shape[1]))  # one number for each shape
    order = np.argsort(marks, kind="stable")
    scale = np.abs(shapes).max(axis=1, initial=1.0)[order]
    steps: Array = np.diff(marks[order], prepend=-np.inf)
    groups = np.split(moving[order], np.flatnonzero(steps > 1e-10 * scale)[1:])
    return sorted(int(group.min()) for group in groups if len(group))
