"""What is known of local optimisers along a path of (t, x)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.intervals import Along


@dataclass(frozen=True)
class Layout:
    """Where everything is in what ``inner.followed`` returns.

    Attributes
    ----------
    n_x, n_y, n_c : int
        Numbers of states, of variables of the inner problem, and of its constraints.
    """

    n_x: int
    n_y: int
    n_c: int

    @cached_property
    def places(self) -> dict[str, slice]:
        """Places by name, in order."""
        n_x, n_y, n_c = self.n_x, self.n_y, self.n_c
        sizes = {"place": n_y + 1, "last_step": 1, "pivot": 1, "value": 1, "value_t": 1}
        sizes |= {"value_x": n_x, "y_t": n_y, "y_x": n_y * n_x}
        sizes |= {"distance": n_c, "distance_t": n_c, "distance_x": n_c * n_x}
        ends = np.cumsum(list(sizes.values())).tolist()
        return {
            name: slice(end - size, end)
            for (name, size), end in zip(sizes.items(), ends, strict=True)
        }

    @property
    def width(self) -> int:
        """How many numbers are known of each optimiser."""
        return self.places["distance_x"].stop


@dataclass(frozen=True, eq=False)
class Optimisers:
    """What is known of optimisers at points, along the last axis of ``values``."""

    values: Array
    layout: Layout

    def _part(self, name: str) -> Array:
        return self.values[..., self.layout.places[name]]

    def _matrix(self, name: str) -> Array:
        flat = self._part(name)
        return flat.reshape(*flat.shape[:-1], -1, self.layout.n_x)

    @property
    def place(self) -> Array:
        """Where they are, and the number of their active set [..., n_y + 1]."""
        return self._part("place")

    @property
    def y(self) -> Array:
        """Where they are [..., n_y]."""
        return self.values[..., : self.layout.n_y]

    @property
    def active(self) -> Array:
        """The number of their active set, see ``active_set``."""
        return self.values[..., self.layout.n_y]

    @property
    def last_step(self) -> Array:
        """The largest component of the last step of Newton's method."""
        return self._part("last_step")[..., 0]

    @property
    def pivot(self) -> Array:
        """The smallest pivot of h_yy among the free variables: positive at a minimum."""
        return self._part("pivot")[..., 0]

    @property
    def value(self) -> Array:
        """H."""
        return self._part("value")[..., 0]

    @property
    def value_t(self) -> Array:
        """h_t, the derivative of the value in t."""
        return self._part("value_t")[..., 0]

    @property
    def value_x(self) -> Array:
        """h_x, that in x [..., n_x]."""
        return self._part("value_x")

    @property
    def y_t(self) -> Array:
        """Derivative of the optimiser in t [..., n_y]."""
        return self._part("y_t")

    @property
    def y_x(self) -> Array:
        """That in x [..., n_y, n_x]."""
        return self._matrix("y_x")

    @property
    def distance(self) -> Array:
        """Multipliers of active constraints, slacks of the others [..., n_c]: none is negative."""
        return self._part("distance")

    def __getitem__(self, key: Any) -> Optimisers:
        """Return those at some of the points."""
        return Optimisers(self.values[key], self.layout)

    def of(self, rows: Sequence[Array]) -> Optimisers:
        """Return others, by what is known of them."""
        return Optimisers(np.array(rows), self.layout)

    def joined(self, others: Optimisers) -> Optimisers:
        """Return these, and others after them."""
        return Optimisers(np.concatenate([self.values, others.values]), self.layout)

    def change(self, dt: Array, dx: Array) -> Array:
        """Return the linear change of the optimisers with t and x."""
        return self.y_t * dt[..., None] + np.einsum("...yx,...x->...y", self.y_x, dx)

    def moved(self, dt: Array, dx: Array) -> Array:
        """Return places, changed linearly with t and x [..., n_y + 1]."""
        y = self.y + self.change(dt, dx)
        active = np.broadcast_to(self.active, y.shape[:-1])
        return np.concatenate([y, active[..., None]], axis=-1)

    def slope(self, rate: Array) -> Array:
        """Return the derivative of the values along x' = rate [..., n_x]."""
        return self.value_t + np.einsum("...x,...x->...", self.value_x, rate)

    def distance_slope(self, rate: Array, clock: float = 1.0) -> Array:
        """Return the derivatives of the distances along x' = rate, t' = clock [..., n_c]."""
        along = np.einsum("...cx,...x->...c", self._matrix("distance_x"), rate)
        return clock * self._part("distance_t") + along


@dataclass(frozen=True, eq=False)
class Path:
    """One step of a run: t, and x as a cubic of its part s, from its ends and rates there.

    Without rates x goes straight.
    """

    times: Array
    x: Array
    rates: Array | None = None

    def time(self, s: float) -> float:
        """Return t."""
        return float(self.times[1]) if s == 1.0 else float(self.times[0] + s * self.length)

    @property
    def length(self) -> float:
        """How long the step takes."""
        return float(self.times[1] - self.times[0])

    def place(self, s: float) -> Array:
        """Return x [n_x]."""
        # Cubic Hermite: the chord, and what the rates at both ends add to it; that part vanishes
        # at both ends.
        straight = self.x[0] + s * (self.x[1] - self.x[0])
        if s == 1.0 or self.rates is None:
            return self.x[1] if s == 1.0 else straight
        left, right = (self.length * rate - (self.x[1] - self.x[0]) for rate in self.rates)
        return straight + s * (1.0 - s) * ((1.0 - s) * left - s * right)

    def slope(self, s: float) -> Array:
        """Return dx/ds [n_x]."""
        way = self.x[1] - self.x[0]
        if self.rates is None:
            return way
        left, right = (self.length * rate - way for rate in self.rates)
        return way + (1.0 - s) * (1.0 - 3.0 * s) * left - s * (2.0 - 3.0 * s) * right

    def hull(self, start: float, end: float) -> tuple[Array, Array, Along]:
        """Return intervals [2], [n_x, 2] that hold t and x between two parts, and those of x'."""
        # Bezier points of the part: the cubic lies in their hull, and its derivative in that of
        # their differences.
        third = (end - start) / 3.0
        first, last = self.place(start), self.place(end)
        inner = first + third * self.slope(start), last - third * self.slope(end)
        points, middle = np.stack([first, *inner, last]), 0.5 * (start + end)
        rates = np.diff(points, axis=0) / (third * self.length)
        along = Along(self.time(middle), self.place(middle), hull_of(rates))
        return np.array([self.time(start), self.time(end)]), hull_of(points), along


def hull_of(points: Array) -> Array:
    """Return intervals [n, 2] that hold all of some points [..., n]."""
    return np.stack([points.min(axis=0), points.max(axis=0)], axis=1)


@dataclass(frozen=True, eq=False)
class Turn:
    """Another active set inside a step: the part, and the optimiser before and after it."""

    part: float
    before: Optimisers
    after: Optimisers


@dataclass(frozen=True, eq=False)
class Courses:
    """Optimisers along a run.

    Attributes
    ----------
    optimisers : Optimisers
        At all points [K, N+1].
    reached : array [K]
        The numbers of the last points they reach, with the part of the step after it that they
        reach: 3.25 is within the fourth step.
    ends : Optimisers
        How they are there [K].
    changes : dict
        Where their active sets change, by the numbers of optimiser and step.
    """

    optimisers: Optimisers
    reached: Array
    ends: Optimisers
    changes: dict[tuple[int, int], list[Turn]]
