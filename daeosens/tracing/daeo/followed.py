"""Local optimisers along a path of (t, x): by Newton's method at many points at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daeosens.petsc._kernels import call_points
from daeosens.petsc.c_function import Native
from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.intervals import Along

ROUNDS = 4
"""So often, at most, the compiled function with its steps of Newton's method is called."""

CONVERGED = 1e-11
"""Newton's method has arrived where its last step is smaller, relative to the size of the box."""

SMOOTH = 0.25
"""A step of an optimiser may differ from the trapezoidal rule by this part of itself: a step to
another one differs by all of it."""

NARROW = 2.0**-30
"""An optimiser that cannot be followed over this part of a step has vanished."""


@dataclass(frozen=True, eq=False)
class Optimisers:
    """What is known of optimisers at points, the last axis of ``values`` as ``inner.followed``."""

    values: Array
    n_x: int
    n_y: int

    @property
    def y(self) -> Array:
        """Where they are [..., n_y]."""
        return self.values[..., : self.n_y]

    @property
    def last_step(self) -> Array:
        """The largest component of the last step of Newton's method."""
        return self.values[..., self.n_y]

    @property
    def pivot(self) -> Array:
        """The smallest pivot of h_yy: positive at a minimum."""
        return self.values[..., self.n_y + 1]

    @property
    def value(self) -> Array:
        """H."""
        return self.values[..., self.n_y + 2]

    @property
    def value_t(self) -> Array:
        """h_t, the derivative of the value in t."""
        return self.values[..., self.n_y + 3]

    @property
    def value_x(self) -> Array:
        """h_x, that in x [..., n_x]."""
        return self.values[..., self.n_y + 4 : self.n_y + 4 + self.n_x]

    @property
    def y_t(self) -> Array:
        """Derivative of the optimiser in t [..., n_y]."""
        start = self.n_y + 4 + self.n_x
        return self.values[..., start : start + self.n_y]

    @property
    def y_x(self) -> Array:
        """That in x [..., n_y, n_x]."""
        start = 2 * self.n_y + 4 + self.n_x
        flat = self.values[..., start:]
        return flat.reshape(*flat.shape[:-1], self.n_y, self.n_x)

    def __getitem__(self, key: Any) -> Optimisers:
        """Return those at some of the points."""
        return Optimisers(self.values[key], self.n_x, self.n_y)

    def change(self, dt: Array, dx: Array) -> Array:
        """Return the linear change of the optimisers with t and x."""
        return self.y_t * dt[..., None] + np.einsum("...yx,...x->...y", self.y_x, dx)

    def slope(self, rate: Array) -> Array:
        """Return the derivative of the values along x' = rate [..., n_x]."""
        return self.value_t + np.einsum("...x,...x->...", self.value_x, rate)


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
class Follower:
    """Follows optimisers from points where they are known.

    Attributes
    ----------
    n_x, n_y : int
        Sizes.
    box : array [n_y, 2]
        Where optimisers may lie.
    ready : mapping
        The compiled functions "followed" and "rhs".
    """

    n_x: int
    n_y: int
    box: Array
    ready: Mapping[str, Any]

    @property
    def width(self) -> int:
        """How many numbers are known of each optimiser."""
        return 2 * self.n_y + 4 + self.n_x + self.n_x * self.n_y

    def near(self, t: Array, x: Array, y: Array, p: Array) -> Optimisers:
        """Return the optimisers [..., M] near y [..., n_y] at t, x of the same leading shape."""
        shape = y.shape[:-1]
        t = np.broadcast_to(t, shape).ravel()
        x = np.broadcast_to(x, (*shape, self.n_x)).reshape(-1, self.n_x)
        y = y.reshape(-1, self.n_y)
        out = self._call("followed", t, np.concatenate([x, y], axis=1), p)
        scale = CONVERGED * float((self.box[:, 1] - self.box[:, 0]).max())
        left = np.arange(len(t))
        for _ in range(ROUNDS - 1):
            with np.errstate(invalid="ignore"):
                left = left[out[left, self.n_y] > scale]
            if not left.size:
                break
            states = np.concatenate([x[left], out[left, : self.n_y]], axis=1)
            out[left] = self._call("followed", t[left], states, p)
        return Optimisers(out.reshape(*shape, -1), self.n_x, self.n_y)

    def sound(self, found: Optimisers) -> Any:
        """Return which are minima inside the box."""
        low, high = self.box.T
        scale = CONVERGED * float((high - low).max())
        with np.errstate(invalid="ignore"):
            inside = ((found.y >= low) & (found.y <= high)).all(axis=-1)
            return inside & (found.last_step <= scale) & (found.pivot > 0.0)

    def rates(self, t: Array, states: Array, p: Array) -> Array:
        """Return x' [K, n_x] at states (x, y) [K, n]."""
        return self._call("rhs", t, states, p)[:, : self.n_x]

    def along(
        self, t: Array, x: Array, start: Optimisers, p: Array, rates: Array | None = None
    ) -> tuple[Optimisers, Array, Optimisers]:
        """Follow optimisers [K] over points [N+1] from the first, where they are known.

        Returns those at all points [K, N+1], and the numbers [K] of the last points they reach,
        with the part of the step after it that they reach: 3.25 is within the fourth step; and how
        they are there [K].
        """
        count, last = len(start.values), len(t) - 1
        values = np.full((count, last + 1, start.values.shape[-1]), np.nan)
        values[:, 0] = start.values
        at, going = np.zeros(count, dtype=int), np.ones(count, dtype=bool)
        reached, ends = np.full(count, float(last)), np.full_like(values[:, 0], np.nan)
        while (going & (at < last)).any():
            begin = int(at[going & (at < last)].min())
            now = np.flatnonzero(going & (at == begin))
            base = Optimisers(values[now, begin], self.n_x, self.n_y)
            shape = len(now), last - begin
            guess = base.y[:, None] + base[:, None].change(
                np.broadcast_to(t[begin + 1 :] - t[begin], shape),
                np.broadcast_to(x[begin + 1 :] - x[begin], (*shape, self.n_x)),
            )
            found = self.near(t[begin + 1 :], x[begin + 1 :], guess, p)
            steps = Optimisers(
                np.concatenate([base.values[:, None], found.values], axis=1), self.n_x, self.n_y
            )
            good = self.sound(found) & self._smooth(t[begin:], x[begin:], steps)
            # so many points of each are right, up to the first that is not
            length: list[int] = np.logical_and.accumulate(good, axis=1).sum(axis=1).tolist()
            for row, k in enumerate(now.tolist()):
                n = length[row]
                values[k, begin + 1 : begin + 1 + n] = found.values[row, :n]
                at[k] = begin + n
                if n:
                    continue
                step = slice(begin, begin + 2)
                path = Path(t[step], x[step], None if rates is None else rates[step])
                part, end = self.with_care(path, base[row], p)
                if part < 1.0:
                    reached[k], going[k], ends[k] = begin + part, False, end.values
                else:
                    values[k, begin + 1], at[k] = end.values, begin + 1
        ends[going] = values[going, -1]
        return Optimisers(values, self.n_x, self.n_y), reached, Optimisers(ends, self.n_x, self.n_y)

    def _smooth(self, t: Array, x: Array, steps: Optimisers) -> Any:
        """Return for each step whether the optimisers go as their derivatives say."""
        dt, dx = np.diff(t), np.diff(x, axis=0)
        shape = (*steps.values.shape[:1], len(dt))
        dt, dx = np.broadcast_to(dt, shape), np.broadcast_to(dx, (*shape, self.n_x))
        with np.errstate(invalid="ignore"):
            expected = 0.5 * (steps[:, :-1].change(dt, dx) + steps[:, 1:].change(dt, dx))
            wrong = np.abs(np.diff(steps.y, axis=1) - expected).max(axis=-1)
            way = np.abs(expected).max(axis=-1)
            noise = 1e-9 * float((self.box[:, 1] - self.box[:, 0]).max())
            return wrong <= SMOOTH * way + noise

    def with_care(
        self, path: Path, start: Optimisers, p: Array, first: float = 0.0, last: float = 1.0
    ) -> tuple[float, Optimisers]:
        """Follow one optimiser from one part of a step to another, by ever smaller parts.

        Returns the part it reaches, and how it is there.
        """
        done, way, growth = first, 0.5 * (last - first), 2.0
        while done != last:
            if abs(way) >= abs(last - done):
                way = last - done
            there = last if way == last - done else done + way
            times = np.array([path.time(done), path.time(there)])
            places = np.stack([path.place(done), path.place(there)])
            guess = start.y + start.change(np.array(times[1] - times[0]), places[1] - places[0])
            found = self.near(times[1:], places[1:], guess[None], p)
            steps = Optimisers(np.stack([start.values, found.values[0]])[None], self.n_x, self.n_y)
            if self.sound(found)[0] and self._smooth(times, places, steps)[0, 0]:
                done, start, way, growth = there, found[0], growth * way, 2.0
            else:
                way, growth = 0.5 * way, 1.0  # towards the fold where it vanishes, by halves
                if abs(way) < NARROW:
                    break
        return done, start

    def _call(self, name: str, t: Array, states: Array, p: Array) -> Array:
        function: Callable[..., Any] | Native = self.ready[name]
        if isinstance(function, Native):
            out = np.empty((len(t), self.width if name == "followed" else self.n_x + self.n_y))
            inputs = np.ascontiguousarray(states), np.ascontiguousarray(p)
            times = np.ascontiguousarray(t, dtype=float)
            call_points(function.address, function.user_data, times, inputs, (out,))
            return out
        return np.array([function(*point, p) for point in zip(t, states, strict=True)])
