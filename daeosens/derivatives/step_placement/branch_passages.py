"""Where in the steps of a run branches of the equations change sides.

What decides, the arguments of branches, of abs and of maximum, is compared at both ends of each
step.  Where it has another sign, or may have had one in between, the place is located by steps of
the same method that are shorter.

Source
------
Enright, Jackson, Norsett, Thomsen, Applied Mathematics and Computation 27(4), 1988.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from daeosens.derivatives.branches.branch_changes import (
    SIDE,
    Piecewise,
    equations_of,
    largest_values,
    rate_in,
    signs_of,
)
from daeosens.petsc.vectors import Array, read
from daeosens.problem.branches import Decisions, DecisionTable
from daeosens.problem.problem import Problem
from daeosens.timestepping.runner import Runner, repeating
from daeosens.timestepping.trajectory.trajectory import Trajectory

TURNS = 6
"""Points at which a function that may touch zero inside a step is looked at."""

SEVERAL, OFTEN = 100, 0.5
"""Changes of branches in this part of the steps, and in so many more, are too many to end steps at:
f may jump to and fro at each step."""

NEXT_TO_NOTHING = 1e-5
"""Part of a step that has the rate of its start."""

INSIDE = 1e-8
"""Part of a step that is as good as its end."""

Point: TypeAlias = "tuple[int, float, Array, Array | None]"
"""Number of a step, time, state and, for F, rate."""


def equations_with_kinks(run: Trajectory) -> Piecewise:
    """Return f with what decides in it; by t alone as well, if steps follow the time of an event.

    As they do if they follow delays.  Where steps stay where they are a kink in t does too.  Those
    that move pass it, and a step of size h misses a derivative by h [f_t].
    """
    moving = run.problem.delays is not None or any(record.timed for record in run.records)
    function = equations_of(run, in_time=moving)
    assert function is not None
    return function


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a step, from a place in it to another one, and what decides at both."""

    low: float
    high: float
    before: Decisions
    after: Decisions


@dataclass(frozen=True, eq=False)
class Ends:
    """What decides at both ends of steps, whose numbers are ``steps`` [K].

    Attributes
    ----------
    of : callable
        ``of(place)``: the number of a step, and what decides at its ends.
    table : (array [K, B], array [K, B], array [B]) or None
        All of it, and which are whole numbers, if that is the same everywhere.
    """

    steps: npt.NDArray[np.int_]
    of: Callable[[int], tuple[int, Decisions, Decisions]]
    table: tuple[Array, Array, npt.NDArray[np.bool_]] | None

    def changes(self) -> list[tuple[int, int]]:
        """Return places in ``steps``, and the numbers of what decides differently at both ends."""
        if self.table is not None:
            first, last, whole = self.table
            largest = np.fmax(np.fmax.reduce(np.abs(first)), np.fmax.reduce(np.abs(last)))
            before, after = (_sides(values, whole, largest) for values in (first, last))
            return [(int(place), int(k)) for place, k in np.argwhere(before != after)]
        pairs = [self.of(place)[1:] for place in range(len(self.steps))]
        largest = largest_values([end for pair in pairs for end in pair])
        return [
            (place, k)
            for place, (before, after) in enumerate(pairs)
            for k in _changed(before, after, largest)
        ]

    def suspects(self, sizes: Array) -> list[tuple[int, int]]:
        """Return the same of what may change sides and back in steps of these sizes [K].

        Secants of the steps beside a step, continued into it, lie on the side of zero of a function
        that turns in it: one that turns before these reach zero does not change sides.
        """
        if self.table is None or len(self.steps) < 2:
            return []
        first, last, whole = self.table
        h = sizes[:, None]
        slopes = (last - first) / h
        follows = (np.diff(self.steps) == 1)[:, None]
        from_before, from_after = first.copy(), last.copy()
        from_before[1:] += np.where(follows, slopes[:-1] * h[1:], 0.0)
        from_after[:-1] -= np.where(follows, slopes[1:] * h[:-1], 0.0)
        turns = (first * from_before < 0.0) & (last * from_after < 0.0) & (first * last > 0.0)
        return [(int(place), int(k)) for place, k in np.argwhere(turns & ~whole)]


def ends_of(
    run: Trajectory,
    function: Piecewise,
    steps: npt.NDArray[np.int_],
    bends_without_kinks: Callable[[Trajectory], Array],
) -> Ends:
    """Return what decides at both ends of steps.

    ``bends_without_kinks`` returns the times at which f bends, but derivatives are those before.
    """
    # a state between two steps is one to both, but for events and breakpoints
    shared = not (run.records or run.problem.breakpoints)
    known: dict[tuple[int, float], Decisions] = {}
    if function.along is not None and shared:
        numbers = np.union1d(steps, steps + 1)
        there = function.along(run.times[numbers], run.u[numbers])
        if isinstance(there, DecisionTable):
            rows = np.searchsorted(numbers, steps), np.searchsorted(numbers, steps + 1)
            sides = _beside_bends(run, function, steps, there, rows, bends_without_kinks(run))
            table = sides[0].values, sides[1].values, there.whole

            def of(place: int) -> tuple[int, Decisions, Decisions]:
                before, after = (side[place] for side in sides)
                return int(steps[place]), before, after

            return Ends(steps, of, table)
        known = {(n, 0.0): decisions for n, decisions in zip(numbers.tolist(), there, strict=True)}

    def decided(n: int, place: float) -> Decisions:
        key = (n + int(place), 0.0) if shared else (n, place)
        if key not in known:
            known[key] = function.decide(n, *state_at(run, n, place))
        return known[key]

    pairs = [(n, decided(n, 0.0), decided(n, 1.0)) for n in steps.tolist()]
    counts = {end.values.size for _, *ends in pairs for end in ends}
    if len(counts) != 1:
        return Ends(steps, pairs.__getitem__, None)
    first, last = (np.array([pair[k].values for pair in pairs]) for k in (1, 2))
    table = first, last, pairs[0][1].whole
    return Ends(steps, pairs.__getitem__, table)


def _beside_bends(
    run: Trajectory,
    function: Piecewise,
    steps: npt.NDArray[np.int_],
    there: DecisionTable,
    rows: Sequence[npt.NDArray[np.intp]],
    bent: Array,
) -> list[DecisionTable]:
    """Return what decides at the first and the last ends of steps [K], whose rows in ``there`` are.

    A row of a table of times that steps end at is passed by none of them, and is no kink where
    derivatives are the same on both sides: just inside of a step nothing has changed.
    """
    assert function.along is not None
    sides: list[DecisionTable] = []
    for end, row in enumerate(rows):
        values, times = there.values[row], run.times[steps + end]
        at = np.flatnonzero(np.isin(times, bent))
        if at.size:
            inwards = (1 - 2 * end) * INSIDE * run.step_sizes[steps[at]]
            inside = function.along(times[at] + inwards, run.u[steps[at] + end])
            for k, decisions in zip(at.tolist(), inside, strict=True):
                if decisions.values.size == values.shape[1]:
                    values[k] = decisions.values
        sides.append(DecisionTable(values, there.whole, there.moves))
    return sides


def _sides(values: Array, whole: npt.NDArray[np.bool_], largest: Array) -> Array:
    """Return -1, 0 or 1 for each of ``values`` [..., B], and whole numbers as they are."""
    return np.where(whole, values, signs_of(values, largest))


def _changed(before: Decisions, after: Decisions, largest: Array) -> list[int]:
    """Return the numbers of what decides differently at both ends of a step."""
    count = min(before.values.size, after.values.size)
    if not count:
        return []
    first, last = (
        _sides(end.values[:count], end.whole[:count], largest[:count]) for end in (before, after)
    )
    numbers = np.flatnonzero(first != last).tolist()
    # after a branch that changed others are compared
    return numbers if before.values.size == after.values.size else numbers[:1]


def state_at(run: Trajectory, n: int, place: float) -> tuple[float, Array]:
    """Return time and state at an end of a step, on the step's side of what happens there."""
    start, h = float(run.times[n]), float(run.step_sizes[n])
    t = run.problem.inside(start + place * h, start, h) if h else start
    return t, read(run.stored[n + 1 if place else n])


class Inside:
    """States inside the steps of a run, as ``states_inside`` returns them, and rates.

    The rates [n] of F(t, u, u', p) = 0 are those of a step from there that is next to nothing; of
    other equations they are None.
    """

    def __init__(self, run: Trajectory, function: Piecewise, runners: ExitStack) -> None:
        self.run, self.function, self._runners = run, function, runners
        self._runner: Runner | None = None

    def __call__(self, n: int, t: float) -> tuple[Array, Array | None]:
        """Return the state [n] at a time in step n, and the rate."""
        run, equations = self.run, self.run.equations(n)
        if run.problem.delays is not None:  # whose steps are polynomials
            assert run.inside is not None
            return read(run.inside(run, [(n, t)])[0]).copy(), None
        if run.records:  # each piece has a runner of its own
            with repeating(*equations, run.stepping, run.stored[n]) as runner:
                return self._taken(runner, n, t, equations[0])
        if self._runner is None:
            opened = repeating(*equations, run.stepping, run.stored[n])
            self._runner = self._runners.enter_context(opened)
        return self._taken(self._runner, n, t, equations[0])

    def _taken(
        self, runner: Runner, n: int, t: float, problem: Problem
    ) -> tuple[Array, Array | None]:
        begin, start = float(self.run.times[n]), self.run.stored[n].copy()
        if problem.form != "residual":
            times = np.array([begin, t])
            return read(runner.again(start, times, np.diff(times))[-1]).copy(), None
        times = np.array([begin, t, t + NEXT_TO_NOTHING * float(self.run.step_sizes[n])])
        *_, here, beyond = runner.again(start, times, np.diff(times))
        state = read(here).copy()
        return state, (read(beyond) - state) / (times[2] - times[1])

    def passages(
        self, ends: Ends, changes: Sequence[tuple[int, int]], suspects: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, Part]]:
        """Return steps, what decides otherwise in them, and the parts of steps with that passage.

        Whole steps where it is otherwise at the end, and parts where it went there and back.
        """
        parts: list[tuple[int, int, Part]] = []
        for place, k in changes:
            n, before, after = ends.of(place)
            parts.append((n, k, Part(0.0, 1.0, before, after)))
        for place, k in suspects:
            n, before, after = ends.of(place)
            parts += [(n, k, part) for part in self.there_and_back(n, k, before, after)]
        return parts

    def there_and_back(self, n: int, k: int, before: Decisions, after: Decisions) -> list[Part]:
        """Return both parts of a step in which something changes sides and back, or nothing.

        The function that decides is followed to where it turns by parabolas.
        """
        run = self.run
        start, h = float(run.times[n]), float(run.step_sizes[n])
        x, values = [0.0, 1.0], [float(before.values[k]), float(after.values[k])]
        side, place = np.sign(values[0]), 0.5
        for _ in range(TURNS):
            t = start + place * h
            here = self.function.decide(n, t, *self(n, t))
            if here.values.size != before.values.size:
                return []
            value = float(here.values[k])
            if value * side < 0.0:
                return [Part(0.0, place, before, here), Part(place, 1.0, here, after)]
            x.append(place)
            values.append(value)
            nearest = sorted(zip(np.abs(values), x, strict=True))[:3]
            curve = np.polyfit([at for _, at in nearest], [size for size, _ in nearest], 2)
            if curve[0] <= 0.0:
                return []
            turn = float(-0.5 * curve[1] / curve[0])
            if not 0.0 < turn < 1.0 or min(abs(turn - at) for at in x) < 1e-3:
                return []
            place = turn
        return []

    def located(
        self, n: int, k: int, part: Part, least: float
    ) -> tuple[float, Array, Array | None]:
        """Return the place in a step at which something decides differently; state and rate there.

        These are those of a call.
        """
        run = self.run
        start, h = float(run.times[n]), float(run.step_sizes[n])
        before, after, low, high = part.before, part.after, part.low, part.high
        x, y = float(before.values[k]), float(after.values[k])
        states = read(run.stored[n]), read(run.stored[n + 1])
        smooth, kept = not before.whole[k] and x * y < 0.0, 0
        residual = run.equations(n)[0].form == "residual"
        rates = [rate_in(run, n, start + place * h) if residual else None for place in (0.0, 1.0)]
        if not before.whole[k] and not smooth:  # an end lies on the kink
            return (0.0, states[0], rates[0]) if abs(x) <= abs(y) else (1.0, states[1], rates[1])
        # of times no more can be told apart than their rounding
        resolution = max(
            min(1e-2 * least, 1e-3 * SIDE), 32.0 * float(np.spacing(abs(start) + h)) / h
        )
        place, state, rate = high, states[1], rates[1]
        while high - low > resolution:
            place = (low * y - high * x) / (y - x) if smooth else 0.5 * (low + high)
            place = min(max(place, low + 0.25 * resolution), high - 0.25 * resolution)
            state, rate = self(n, start + place * h)
            here = self.function.decide(n, start + place * h, state, rate)
            if k >= here.values.size:
                high, smooth = place, False
                continue
            value = float(here.values[k])
            if before.whole[k]:
                low, high = (place, high) if value == before.values[k] else (low, place)
            elif value == 0.0:
                break
            elif value * before.values[k] > 0.0:  # regula falsi, Illinois
                low, x = place, value
                y, kept = (0.5 * y, 1) if kept == 1 else (y, 1)
            else:
                high, y = place, value
                x, kept = (0.5 * x, -1) if kept == -1 else (x, -1)
        return place, state, rate
