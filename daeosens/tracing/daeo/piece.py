"""Steps of a run that are looked at together, and the optimisers along them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.courses import Optimisers, Path, hull_of
from daeosens.tracing.daeo.followed import Follower
from daeosens.tracing.daeo.intervals import Along

DOUBT = 0.5
"""A difference of two values may differ from its cubic interpolation by this part of what that
differs from a straight line."""


LOOKS = 8
"""At so many parts of a step, at least, an optimiser that emerges or vanishes in it is compared."""

HALVINGS = 20
"""So often parts are halved as long as a doubt is left."""


@dataclass(frozen=True, eq=False)
class Emerged:
    """An optimiser that emerges within a step.

    Attributes
    ----------
    born, part, died : float
        The parts of the step at which it is born, was seen, and is gone; infinite if it stays.
    first, seen, last : Optimisers
        How it is there; ``last`` at the end of the step where it stays.
    """

    born: float
    first: Optimisers
    part: float
    seen: Optimisers
    died: float
    last: Optimisers


class Bracket(NamedTuple):
    """Between which parts of a step an optimiser becomes the lowest.

    Attributes
    ----------
    first, last : float
        The parts.
    end : Optimisers
        How it is at the last one.
    ahead : ((float, float), (float, float))
        How much lower it is at both, and the derivative of that by the part.
    """

    first: float
    last: float
    end: Optimisers
    ahead: tuple[tuple[float, float], tuple[float, float]]


class Piece:
    """Steps of a run and the optimisers along them.

    Parameters
    ----------
    follower : Follower
        Follows optimisers.
    start : Optimisers
        All of them [K] where the steps begin.
    times, x : array [N+1], [N+1, n_x]
        The run.
    p : array [m]
        Parameters.
    rates : array [N+1, n_x], optional
        x'.
    held : int, optional
        Number of the optimiser that the run is on: its active set changes by events only.

    Attributes
    ----------
    p : array [m]
        Parameters.
    found : Optimisers
        Along the steps [K, N+1].
    reached : array [K]
        Up to which point, and part of the step after it, they are there.
    ends : Optimisers
        How they are there [K].
    changes : dict
        Where active sets change, by the numbers of optimiser and step.
    """

    def __init__(
        self,
        follower: Follower,
        start: Optimisers,
        times: Array,
        x: Array,
        p: Array,
        rates: Array | None = None,
        held: int | None = None,
    ) -> None:
        self.times, self.x, self.p, self._rates = times, x, p, rates
        self._follower = follower
        courses = follower.along(times, x, start, p, rates, held)
        self.optimisers, self.reached, self.ends = courses.optimisers, courses.reached, courses.ends
        self.changes = courses.changes

    def path(self, n: int) -> Path:
        """Return step number n."""
        step = slice(n, n + 2)
        rates = None if self._rates is None else self._rates[step]
        return Path(self.times[step], self.x[step], rates)

    def hull(self, start: int, end: int) -> tuple[Array, Array, Along | None]:
        """Return intervals [2], [n_x, 2] that hold t and x between two points, and those of x'."""
        if end == start + 1:
            return self.path(start).hull(0.0, 1.0)
        times, x = self.times[start : end + 1], self.x[start : end + 1]
        t, middle = times[[0, -1]], len(times) // 2
        if self._rates is None:
            return t, hull_of(x), None
        left, right = self._rates[start:end], self._rates[start + 1 : end + 1]
        # control points of the cubics through states and rates: x stays in their hull, and x' in
        # that of three times their differences
        third = np.diff(times)[:, None] / 3.0
        inner = x[:-1] + third * left, x[1:] - third * right
        rates = np.concatenate([left, right, (inner[1] - inner[0]) / third])
        along = Along(float(times[middle]), x[middle], hull_of(rates))
        return t, hull_of(np.concatenate([x, *inner])), along

    def cubics(self, start: int, end: int) -> tuple[Array, Array, Array, Array]:
        """Return of some steps [N] the intervals of t [N, 2] and of x [N, n_x, 2].

        And how x would go by its rate at the start, and at the end [N, n_x].
        """
        assert self._rates is not None
        times, x = self.times[start : end + 1], self.x[start : end + 1]
        left, right = (
            np.diff(times)[:, None] * rates
            for rates in (self._rates[start:end], self._rates[start + 1 : end + 1])
        )
        points = np.stack([x[:-1], x[:-1] + left / 3.0, x[1:] - right / 3.0, x[1:]])
        t = np.stack([times[:-1], times[1:]], axis=1)
        return t, np.stack([points.min(axis=0), points.max(axis=0)], axis=2), left, right

    def inside(self, k: int, n: int, part: float) -> Optimisers:
        """Return how an optimiser is inside a step, or where it vanishes before."""
        first, start = 0.0, self.optimisers[k, n]
        # inside a step active sets may change: followed from the last change before the part
        for change in self.changes.get((k, n), []):
            if change.part < part:
                first, start = change.part, change.after
        follower, path = self._follower, self.path(n)
        return follower.with_care(path, start, self.p, first, part, follower.sound)[1]

    def there(self, n: int, part: float = 0.0) -> list[int]:
        """Return the numbers of those that are there inside a step."""
        return np.flatnonzero(self.reached >= n + part).tolist()

    def when_gone(self, k: int) -> float:
        """Return when an optimiser vanishes."""
        whole = int(self.reached[k])
        return self.path(whole).time(float(self.reached[k]) - whole)

    # ---- against the one that the run is on ------------------------------------------------------

    def compare(self, active: int, left: int | None, changed: Sequence[int]) -> None:
        """Compare values with those of the lowest one, and look for changes of its active set.

        ``left`` is as low at the first point, and constraints ``changed`` are as near.
        """
        assert self._rates is not None
        self.active, optimisers, rates = active, self.optimisers, self._rates
        self.ahead = optimisers.value[active] - optimisers.value
        same = np.broadcast_to(rates, (*self.ahead.shape, rates.shape[1]))
        self.slopes = optimisers[active].slope(rates) - optimisers.slope(same)
        if left is not None:
            self.ahead[left, 0] = 0.0
        self.ahead[active], self.slopes[active] = -1.0, 0.0
        h = np.diff(self.times)
        self.doubt = rising(h, self.ahead.T, self.slopes.T).T
        self.brackets: dict[tuple[int, int], Bracket] = {}
        self._where_some_vanish()
        self._where_active_sets_change()
        self.apart, self.parting = (
            -optimisers.distance[active],
            -optimisers[active].distance_slope(rates),
        )
        self.apart[0, list(changed)] = 0.0
        self.closing = rising(h, self.apart, self.parting)
        if self.reached[active] < len(h):  # what ends it may be that it should have changed
            self.closing[int(self.reached[active])] = self.ends[active].distance < 0.0
        every: npt.NDArray[np.bool_] = np.concatenate([self.doubt.T, self.closing], axis=1)
        every = np.any(every, axis=1, keepdims=True)[:, 0]
        self.first_doubt = int(np.argmax(every)) if every.any() else len(every)

    def _where_some_vanish(self) -> None:
        """See whether optimisers that vanish within a step are lower there.

        Or others than the active one, where that one vanishes.
        """
        last, active = len(self.times) - 1, self.active
        for k in np.flatnonzero(self.reached < last).tolist():
            n = int(self.reached[k])
            part = float(self.reached[k]) - n
            if k != active:
                self.bracket(k, n, 0.0, min(part, float(self.reached[active]) - n))
                continue
            for other in self.there(n, part):
                if other != active:
                    self.bracket(other, n, 0.0, part)

    def _where_active_sets_change(self) -> None:
        """See between which changes of its active set an optimiser becomes the lowest."""
        for k, n in self.changes:
            if k == self.active or not self.doubt[k, n]:
                continue
            end = self.brackets[k, n].last if (k, n) in self.brackets else 1.0
            first = 0.0
            for part in (*(change.part for change in self.changes[k, n]), end):
                if self.bracket(k, n, first, part):
                    break
                first = part

    def bracket(self, k: int, n: int, first: float, last: float) -> bool:
        """Note whether an optimiser becomes the lowest between two parts of a step."""
        bracket = self.first_lower(n, first, last, (first, self.inside(k, n, first)))
        self.doubt[k, n] = bracket is not None
        if bracket is not None:
            self.brackets[k, n] = bracket
        return bracket is not None

    def first_lower(
        self, n: int, first: float, last: float, known: tuple[float, Optimisers]
    ) -> Bracket | None:
        """Return between which parts of a step another optimiser becomes lower than the active one.

        It may be higher again at the last: both are compared at some parts, and between those where
        their values and slopes leave a doubt.  The other one is ``known`` at a part.
        """
        path, follower = self.path(n), self._follower
        seen = [known, (0.0, self.optimisers[self.active, n])]

        def compared(part: float) -> tuple[float, float, float, Optimisers]:
            from_other, from_active = seen
            _, _, there = follower.onward(path, from_other[1], self.p, from_other[0], part)
            _, active = follower.with_care(
                path, from_active[1], self.p, from_active[0], part, follower.sound
            )
            seen[:] = (part, there), (part, active)
            rate = path.slope(part) / path.length
            ahead, slope = active.value - there.value, active.slope(rate) - there.slope(rate)
            return part, float(ahead), path.length * float(slope), there

        def between(
            start: tuple[float, float, float, Optimisers],
            end: tuple[float, float, float, Optimisers],
            halvings: int,
        ) -> Bracket | None:
            # the other one is lower at the end, or as low and getting lower
            if end[1] > 0.0 or (end[1] == 0.0 and end[2] > 0.0):
                return Bracket(start[0], end[0], end[3], (start[1:3], end[1:3]))
            values, slopes = (np.array([[start[k]], [end[k]]]) for k in (1, 2))
            if not halvings or not rising(np.array([end[0] - start[0]]), values, slopes)[0, 0]:
                return None
            # bisected where values and slopes at both ends leave room for a rise above zero
            middle = compared(0.5 * (start[0] + end[0]))
            halves = between(start, middle, halvings - 1)
            return between(middle, end, halvings - 1) if halves is None else halves

        parts = np.linspace(first, last, LOOKS + 1).tolist()
        later = [compared(part) for part in parts if part >= known[0]]
        seen[0] = known
        points = [*(compared(part) for part in parts[::-1] if part < known[0])][::-1] + later
        for start, end in pairwise(points):
            bracket = between(start, end, HALVINGS)
            if bracket is not None:
                return bracket
        return None

    def ahead_of(self, n: int, part: float, other: Optimisers) -> float:
        """Return how much lower another optimiser is than the active one inside a step."""
        return float(self.inside(self.active, n, part).value - other.value)

    def distance(self, n: int, y: Array) -> float:
        """Return half the distance from y to the next optimiser at a point."""
        apart = np.abs(self.optimisers[:, n].y - y).max(axis=1)
        return 0.5 * float(np.nanmin(apart[apart > 0.0], initial=np.inf))


def rising(h: Array, values: Array, slopes: Array) -> npt.NDArray[np.bool_]:
    """Return where values [N+1, K] of given slopes may rise above 0 within steps h [N]."""
    first, last, h = values[:-1], values[1:], h[:, None]
    # Bezier points of the cubic through values and slopes: it lies below the largest of them.
    left, right = first + h * slopes[:-1] / 3.0, last - h * slopes[1:] / 3.0
    # how far the cubic is from a straight line, a measure of what it does not know
    bend = np.maximum(
        np.abs(left - (2.0 * first + last) / 3.0), np.abs(right - (first + 2.0 * last) / 3.0)
    )
    highest: Array = np.maximum(np.maximum(left, right), last)
    highest = np.where(first < 0.0, np.maximum(highest, first), highest)
    with np.errstate(invalid="ignore"):
        return np.asarray(highest + DOUBT * bend > 0.0)
