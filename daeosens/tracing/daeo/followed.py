"""Local optimisers along a path of (t, x): by Newton's method at many points at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daeosens.petsc._kernels import call_points
from daeosens.petsc.c_function import Native
from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.active_set import turned, turns
from daeosens.tracing.daeo.courses import Courses, Layout, Optimisers, Path, Turn

ROUNDS = 4
"""So often, at most, the compiled function with its steps of Newton's method is called."""

CONVERGED = 1e-11
"""Newton's method has arrived where its last step is smaller, relative to the size of the box."""

SMOOTH = 0.25
"""A step of an optimiser may differ from the trapezoidal rule by this part of itself: a step to
another one differs by all of it."""


ALIKE = 0.5
"""Derivatives at both ends of a step are alike if they differ by this part of the larger one."""

NARROW = 2.0**-30
"""An optimiser that cannot be followed over this part of a step has vanished."""

NEAR = 2.0**-20
"""A constraint ends an active set if its distance would fall to zero within this part of a step."""


@dataclass(frozen=True, eq=False)
class Follower:
    """Follows optimisers from points where they are known.

    Attributes
    ----------
    layout : Layout
        With the sizes.
    box : array [n_y, 2]
        Where optimisers may lie.
    ready : mapping
        The compiled functions "followed" and "rhs".
    """

    layout: Layout
    box: Array
    ready: Mapping[str, Any]

    @property
    def none(self) -> Optimisers:
        """No optimiser."""
        return Optimisers(np.empty((0, self.layout.width)), self.layout)

    @property
    def size(self) -> float:
        """How wide the box is."""
        return float((self.box[:, 1] - self.box[:, 0]).max())

    def near(self, t: Array, x: Array, place: Array, p: Array) -> Optimisers:
        """Return the optimisers [...] near places [..., n_y + 1] at t, x of the same shape."""
        shape, n_x = place.shape[:-1], self.layout.n_x
        t = np.broadcast_to(t, shape).ravel()
        x = np.broadcast_to(x, (*shape, n_x)).reshape(-1, n_x)
        place = place.reshape(len(x), -1)
        out = self._call("followed", t, np.concatenate([x, place], axis=1), p)
        optimisers, left = Optimisers(out, self.layout), np.arange(len(t))
        for _ in range(ROUNDS - 1):
            with np.errstate(invalid="ignore"):
                # only those go on for which Newton's method has not arrived
                left = left[optimisers.last_step[left] > CONVERGED * self.size]
            if not left.size:
                break
            states = np.concatenate([x[left], optimisers.place[left]], axis=1)
            out[left] = self._call("followed", t[left], states, p)
        return Optimisers(out.reshape(*shape, -1), self.layout)

    def sound(self, optimisers: Optimisers) -> Any:
        """Return which are minima of what their active set leaves free."""
        with np.errstate(invalid="ignore"):
            return (optimisers.last_step <= CONVERGED * self.size) & (optimisers.pivot > 0.0)

    def optimal(self, optimisers: Optimisers) -> Any:
        """Return which are minima over the box."""
        with np.errstate(invalid="ignore"):
            return self.sound(optimisers) & (optimisers.distance >= 0.0).all(axis=-1)

    def rates(self, t: Array, states: Array, p: Array) -> Array:
        """Return x' [K, n_x] at states [K, n]."""
        return self._call("rhs", t, states, p)[:, : self.layout.n_x]

    def along(
        self,
        t: Array,
        x: Array,
        start: Optimisers,
        p: Array,
        rates: Array | None = None,
        held: int | None = None,
    ) -> Courses:
        """Follow optimisers [K] over points [N+1] from the first, where they are known.

        That of number ``held`` keeps its active set also where it should change: that is an event
        of the run.
        """
        count, last = len(start.values), len(t) - 1
        values = np.full((count, last + 1, start.values.shape[-1]), np.nan)
        values[:, 0] = start.values
        at, going = np.zeros(count, dtype=int), np.ones(count, dtype=bool)
        reached, ends = np.full(count, float(last)), np.full_like(values[:, 0], np.nan)
        changes: dict[tuple[int, int], list[Turn]] = {}
        while (going & (at < last)).any():
            # All that stand at the earliest point are followed together, over all points that are
            # left: a guess by y_t, y_x from there, Newton's method at each point.
            begin = int(at[going & (at < last)].min())
            now = np.flatnonzero(going & (at == begin))
            base = Optimisers(values[now, begin], self.layout)
            shape = len(now), last - begin
            guess = base[:, None].moved(
                np.broadcast_to(t[begin + 1 :] - t[begin], shape),
                np.broadcast_to(x[begin + 1 :] - x[begin], (*shape, self.layout.n_x)),
            )
            nearby = self.near(t[begin + 1 :], x[begin + 1 :], guess, p)
            steps = Optimisers(
                np.concatenate([base.values[:, None], nearby.values], axis=1), self.layout
            )
            # one Newton step may land at another optimiser: only smooth courses count
            good = self.optimal(nearby) | ((now == held)[:, None] & self.sound(nearby))
            good &= self._smooth(t[begin:], x[begin:], steps)[0]
            # so many points of each are right, up to the first that is not
            length: list[int] = np.logical_and.accumulate(good, axis=1).sum(axis=1).tolist()
            for row, k in enumerate(now.tolist()):
                n = length[row]
                values[k, begin + 1 : begin + 1 + n] = nearby.values[row, :n]
                at[k] = begin + n
                if n:
                    continue
                # not even one step: with care, by parts of it
                step = slice(begin, begin + 2)
                path = Path(t[step], x[step], None if rates is None else rates[step])
                if k == held:
                    part, end = self.with_care(path, base[row], p, valid=self.sound)
                else:
                    changed, part, end = self.onward(path, base[row], p)
                    if changed:
                        changes[k, begin] = changed
                if part < 1.0:
                    reached[k], going[k], ends[k] = begin + part, False, end.values
                else:
                    values[k, begin + 1], at[k] = end.values, begin + 1
        ends[going] = values[going, -1]
        optimisers, ended = (Optimisers(numbers, self.layout) for numbers in (values, ends))
        return Courses(optimisers, reached, ended, changes)

    def _smooth(self, t: Array, x: Array, steps: Optimisers) -> tuple[Any, Any]:
        """Return for each step whether the optimisers go as their derivatives say.

        For certain, and perhaps: if the derivatives at both ends are not alike, as towards a fold,
        half of a large one may happen to lead to another optimiser.
        """
        dt, dx = np.diff(t), np.diff(x, axis=0)
        shape = (*steps.values.shape[:1], len(dt))
        dt, dx = np.broadcast_to(dt, shape), np.broadcast_to(dx, (*shape, self.layout.n_x))
        with np.errstate(invalid="ignore"):
            left, right = steps[:, :-1].change(dt, dx), steps[:, 1:].change(dt, dx)
            # trapezoidal rule with the derivatives y_t + y_x x' at both ends
            expected, noise = 0.5 * (left + right), 1e-9 * self.size
            wrong = np.abs(np.diff(steps.y, axis=1) - expected).max(axis=-1)
            perhaps = wrong <= SMOOTH * np.abs(expected).max(axis=-1) + noise
            larger = np.maximum(np.abs(left), np.abs(right)).max(axis=-1)
            return perhaps & (np.abs(left - right).max(axis=-1) <= ALIKE * larger + noise), perhaps

    def with_care(
        self,
        path: Path,
        start: Optimisers,
        p: Array,
        first: float = 0.0,
        last: float = 1.0,
        valid: Callable[[Optimisers], Any] | None = None,
    ) -> tuple[float, Optimisers]:
        """Follow one optimiser from one part of a step to another, by ever smaller parts.

        As long as it is ``valid``, which means optimal where left out.  Returns the part it
        reaches, and how it is there.
        """
        valid = valid or self.optimal
        # Parts double while all goes well, and halve after a failure; the first one after a
        # failure does not double at once.
        done, way, growth = first, 0.5 * (last - first), 2.0
        while done != last:
            if abs(way) >= abs(last - done):
                way = last - done
            there = last if way == last - done else done + way
            times = np.array([path.time(done), path.time(there)])
            places = np.stack([path.place(done), path.place(there)])
            guess = start.moved(np.array(times[1] - times[0]), places[1] - places[0])
            nearby = self.near(times[1:], places[1:], guess[None], p)
            steps = Optimisers(np.stack([start.values, nearby.values[0]])[None], self.layout)
            smooth, perhaps = self._smooth(times, places, steps)
            if valid(nearby)[0] and (
                smooth[0, 0] or (perhaps[0, 0] and self._leads_back(times, places, steps, p))
            ):
                done, start, way, growth = there, nearby[0], growth * way, 2.0
            else:
                way, growth = 0.5 * way, 1.0  # towards the fold where it vanishes, by halves
                if abs(way) < NARROW:
                    break
        return done, start

    def _leads_back(self, times: Array, places: Array, steps: Optimisers, p: Array) -> bool:
        """Whether one comes back by a step [1, 2] from its end."""
        start, end = steps[0, 0], steps[0, 1]
        guess = end.moved(np.array(times[0] - times[1]), places[0] - places[1])
        back = self.near(times[:1], places[:1], guess[None], p)
        return bool(self.sound(back)[0] and np.abs(back.y[0] - start.y).max() <= 1e-6 * self.size)

    def onward(
        self, path: Path, start: Optimisers, p: Array, first: float = 0.0, last: float = 1.0
    ) -> tuple[list[Turn], float, Optimisers]:
        """Follow one optimiser as ``with_care``, through changes of its active set."""
        changes: list[Turn] = []
        while True:
            first, start = self.with_care(path, start, p, first, last)
            if first == last or len(changes) > 4 * self.layout.n_c:
                return changes, first, start
            after = self._changed(path, start, p, first, last)
            if after is None:
                return changes, first, start
            changes.append(Turn(first, start, after[1]))
            first, start = after

    def _changed(
        self, path: Path, end: Optimisers, p: Array, part: float, last: float
    ) -> tuple[float, Optimisers] | None:
        """Return the optimiser just behind the change of its active set, if that is what ends it.

        It vanishes where it would be no minimum with another active set.
        """
        way = float(np.sign(last - part))
        with np.errstate(divide="ignore", invalid="ignore"):
            # how fast each distance (a multiplier or a slack) falls; the one to reach zero first
            # ends the active set
            falls = -way * end.distance_slope(path.slope(part), path.length)
            left = np.where(falls > 0.0, end.distance / falls, np.inf)
        k = int(np.argmin(left))
        if not left[k] <= NEAR:
            return None
        # a little behind the change, where the sign of the new distance is clear
        beyond = part + way * min(2.0 * NARROW, abs(last - part))
        beyond = last if abs(last - beyond) < NARROW else beyond
        choices = turns(float(end.active), k, self.layout.n_y)
        for turning in choices:
            place = end.place.copy()
            place[-1] = turned(place[-1], turning)
            t, x = np.array([path.time(beyond)]), path.place(beyond)[None]
            after = self.near(t, x, place[None], p)[0]
            slope = way * after.distance_slope(path.slope(beyond), path.length)
            with np.errstate(invalid="ignore"):
                # zero up to what the distance changes over the little way
                kept = (after.distance >= -4.0 * NARROW * np.abs(slope)).all()
            if self.sound(after) and kept and slope[turning[-1]] > 0.0:
                return beyond, after
        return None

    def _call(self, name: str, t: Array, states: Array, p: Array) -> Array:
        function: Callable[..., Any] | Native = self.ready[name]
        if isinstance(function, Native):
            width = self.layout.width if name == "followed" else states.shape[1]
            out = np.empty((len(t), width))
            inputs = np.ascontiguousarray(states), np.ascontiguousarray(p)
            times = np.ascontiguousarray(t, dtype=float)
            call_points(*function.where, times, inputs, (out,))
            return out
        return np.array([function(*point, p) for point in zip(t, states, strict=True)])
