"""Where in the steps of a run branches of the equations change sides, and what that costs.

What decides, the arguments of branches, of abs and of maximum, is compared at both ends of each
step.  Where it has another sign the place is located by steps of the same method that are shorter,
and derivatives on both sides of it are compared: only those that jump, or bend, are kinks.

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

from daeosens.derivatives.looks.branch_changes import (
    Piecewise,
    equations_of,
    largest_values,
    rate_in,
    signs_of,
)
from daeosens.derivatives.looks.slope_jumps import JUMP, LASTS, NEARER, SIDE
from daeosens.derivatives.looks.switch_times import made_of_time, times_of_change
from daeosens.errors import InputError, NotFiniteError
from daeosens.petsc.vectors import Array, read
from daeosens.problem.branches import Decisions, DecisionTable
from daeosens.problem.problem import Problem
from daeosens.problem.time_formulas import bends
from daeosens.timestepping.runner import Runner, repeating
from daeosens.timestepping.trajectory.trajectory import Trajectory

USUAL = 8
"""So many steps before a kink the largest one is a usual one: at the kink some were refused."""

MOST = 64
"""Unknowns up to which derivatives are compared as dense matrices; more have a cut at each kink."""

SEVERAL, OFTEN = 100, 0.5
"""Changes of branches in this part of the steps, and in so many more, are too many to end steps at:
f may jump to and fro at each step."""

TURNS = 6
"""Points at which a function that may touch zero inside a step is looked at."""

NEXT_TO_NOTHING = 1e-5
"""Part of a step that has the rate of its start."""

INSIDE, NO_JUMP = 1e-8, 1e-6
"""Part of a step that is as good as its end, and what derivatives change in it without a jump."""

AT_EVENT = 1e-6
"""Part of a step from an event that is nothing."""


@dataclass(frozen=True)
class Kink:
    """A branch that changes sides inside a step.

    Attributes
    ----------
    step, time : int, float
        Number of the step, and when.
    rate : float
        By how much f_u and f_p jump, as relative changes of states for relative changes of states
        and parameters [1 / time unit].
    """

    step: int
    time: float
    rate: float


def equations_with_kinks(run: Trajectory) -> Piecewise:
    """Return f with what decides in it; by t alone as well, if steps follow the time of an event.

    As they do if they follow delays.  Where steps stay where they are a kink in t does too.  Those
    that move pass it, and a step of size h misses a derivative by h [f_t].
    """
    moving = run.problem.delays is not None or any(record.timed for record in run.records)
    function = equations_of(run, in_time=moving)
    assert function is not None
    return function


def kinks_inside(run: Trajectory, least: float, near: Sequence[Array] = ()) -> list[Kink]:
    """Return the kinks inside of steps that cost derivatives more than a part of themselves.

    All of them, or those ``near`` the times [..., 4] at which steps were cut.
    """
    function = equations_with_kinks(run)
    left_out = {crossing.step for crossing in run.crossings}
    steps = np.flatnonzero(run.step_sizes > 0.0)
    if near:
        # the step on each side of what was cut as well
        first = np.searchsorted(run.times, [marks[0] for marks in near], "right") - 2
        last = np.searchsorted(run.times, [marks[-1] for marks in near], "left") + 1
        covered = np.zeros(run.n_steps + 2, dtype=int)
        np.add.at(covered, np.maximum(first, 0), 1)
        np.add.at(covered, np.minimum(last, run.n_steps), -1)
        steps = steps[np.cumsum(covered)[steps] > 0]
    steps = steps[~np.isin(steps, list(left_out))]
    if not steps.size:
        return []
    ends = _ends(run, function, steps)
    changes = [(*ends.of(place), k) for place, k in ends.changes()]
    if len(changes) > SEVERAL + OFTEN * run.n_steps:
        return []
    kinks: list[Kink] = []
    sizes = np.abs(run.u).max(axis=0)
    with ExitStack() as runners:
        inside = _Inside(run, runners)
        parts = [(n, k, _Part(0.0, 1.0, before, after)) for n, before, after, k in changes]
        for place, k in ends.suspects(run.step_sizes[steps]):
            n, before, after = ends.of(place)
            turns = _there_and_back(inside, function, n, k, before, after)
            parts += [(n, k, part) for part in turns]
        for n, k, part in parts:
            kink = _kink(inside, function, n, k, part, sizes, least)
            if kink is not None:
                kinks.append(kink)
    return kinks


_Point: TypeAlias = "tuple[int, float, Array, Array | None]"
"""Number of a step, time, state and, for F, rate."""


@dataclass(frozen=True, eq=False)
class _Ends:
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


def _ends(run: Trajectory, function: Piecewise, steps: npt.NDArray[np.int_]) -> _Ends:
    """Return what decides at both ends of steps."""
    # a state between two steps is one to both, but for events and breakpoints
    shared = not (run.records or run.problem.breakpoints)
    known: dict[tuple[int, float], Decisions] = {}
    if function.along is not None and shared:
        numbers = np.union1d(steps, steps + 1)
        there = function.along(run.times[numbers], run.u[numbers])
        if isinstance(there, DecisionTable):
            rows = np.searchsorted(numbers, steps), np.searchsorted(numbers, steps + 1)
            sides = _beside_bends(run, function, steps, there, rows)
            table = sides[0].values, sides[1].values, there.whole

            def of(place: int) -> tuple[int, Decisions, Decisions]:
                before, after = (side[place] for side in sides)
                return int(steps[place]), before, after

            return _Ends(steps, of, table)
        known = {(n, 0.0): decisions for n, decisions in zip(numbers.tolist(), there, strict=True)}

    def decided(n: int, place: float) -> Decisions:
        key = (n + int(place), 0.0) if shared else (n, place)
        if key not in known:
            known[key] = function.decide(n, *state_at(run, n, place))
        return known[key]

    pairs = [(n, decided(n, 0.0), decided(n, 1.0)) for n in steps.tolist()]
    counts = {end.values.size for _, *ends in pairs for end in ends}
    if len(counts) != 1:
        return _Ends(steps, pairs.__getitem__, None)
    first, last = (np.array([pair[k].values for pair in pairs]) for k in (1, 2))
    table = first, last, pairs[0][1].whole
    return _Ends(steps, pairs.__getitem__, table)


def _beside_bends(
    run: Trajectory,
    function: Piecewise,
    steps: npt.NDArray[np.int_],
    there: DecisionTable,
    rows: Sequence[npt.NDArray[np.intp]],
) -> list[DecisionTable]:
    """Return what decides at the first and the last ends of steps [K], whose rows in ``there`` are.

    A row of a table of times that steps end at is passed by none of them, and is no kink where
    derivatives are the same on both sides: just inside of a step nothing has changed.
    """
    assert function.along is not None
    bent = _bends_without_kinks(run)
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


def _bends_without_kinks(run: Trajectory) -> Array:
    """Return the times [K] of steps at which f bends by the time alone, but no derivative jumps."""
    times = times_of_change(run, bends(made_of_time(run, fixed=True).formulas))
    ends = np.flatnonzero(np.isin(run.times[:-1], times))
    if not ends.size:
        return np.empty(0)
    shifts = INSIDE * run.step_sizes[ends]
    points = [
        (int(n), float(run.times[n] + side * shift), run.u[n], None)
        for side in (-1.0, 1.0)
        for n, shift in zip(ends, shifts, strict=True)
    ]
    try:
        derivatives = _derivatives(run, int(ends[0]), points, np.abs(run.u).max(axis=0))
    except (InputError, NotFiniteError):
        return np.empty(0)
    if derivatives is None:
        return np.empty(0)
    before, after = np.split(derivatives, 2)
    jumps = np.abs(after - before).max(axis=(1, 2))
    return run.times[ends[jumps <= NO_JUMP * np.abs(before).max(axis=(1, 2))]]


def _there_and_back(
    inside: _Inside, function: Piecewise, n: int, k: int, before: Decisions, after: Decisions
) -> list[_Part]:
    """Return both parts of a step in which something changes sides and back, or nothing.

    The function that decides is followed to where it turns by parabolas.
    """
    start, h = float(inside.run.times[n]), float(inside.run.step_sizes[n])
    x, values = [0.0, 1.0], [float(before.values[k]), float(after.values[k])]
    side, place = np.sign(values[0]), 0.5
    for _ in range(TURNS):
        t = start + place * h
        here = function.decide(n, t, *inside(n, t))
        if here.values.size != before.values.size:
            return []
        value = float(here.values[k])
        if value * side < 0.0:
            return [_Part(0.0, place, before, here), _Part(place, 1.0, here, after)]
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


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of a step, from a place in it to another one, and what decides at both."""

    low: float
    high: float
    before: Decisions
    after: Decisions


class _Inside:
    """States inside the steps of a run, as ``states_inside`` returns them, and rates.

    The rates [n] of F(t, u, u', p) = 0 are those of a step from there that is next to nothing; of
    other equations they are None.
    """

    def __init__(self, run: Trajectory, runners: ExitStack) -> None:
        self.run, self._runners = run, runners
        self._runner: Runner | None = None
        self._differentiated: dict[tuple[int, float], bool] = {}

    def __call__(self, n: int, t: float) -> tuple[Array, Array | None]:
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

    def differentiated(self, n: int, place: float, at: Callable[[float], _Point]) -> bool:
        """Return whether a place is an end of step n, and ``_differentiated_inside``."""
        if place not in (0.0, 1.0):
            return False
        if (n, place) not in self._differentiated:
            inwards = 1.0 - 2.0 * place
            self._differentiated[n, place] = _differentiated_inside(self.run, at, inwards)
        return self._differentiated[n, place]

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


def state_at(run: Trajectory, n: int, place: float) -> tuple[float, Array]:
    """Return time and state at an end of a step, on the step's side of what happens there."""
    start, h = float(run.times[n]), float(run.step_sizes[n])
    t = run.problem.inside(start + place * h, start, h) if h else start
    return t, read(run.stored[n + 1 if place else n])


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


def _kink(
    inside: _Inside,
    function: Piecewise,
    n: int,
    k: int,
    part: _Part,
    sizes: Array,
    least: float,
) -> Kink | None:
    """Return the kink of what decides as number k in step n, unless it costs less."""
    run = inside.run
    start, h = float(run.times[n]), float(run.step_sizes[n])
    place, state, rate = _located(inside, function, n, k, part, least)
    events = {crossing.step for crossing in run.crossings}
    if (n + 1 in events and place > 1.0 - AT_EVENT) or (n - 1 in events and place < AT_EVENT):
        return None  # an event at the kink: the step ends there, and moves with it
    slope = (read(run.stored[n + 1]) - read(run.stored[n])) / h
    t = start + place * h
    moved = 0.0 if rate is None else rate - rate_in(run, n, t)

    def at(offset: float) -> _Point:
        there = t + offset * h
        rates = None if rate is None else rate_in(run, n, there) + moved
        return n, there, state + offset * h * slope, rates

    offsets = SIDE / NEARER ** np.arange(3)
    shorter_than_rounding = offsets[-1] * h <= 8.0 * np.spacing(abs(t))
    if shorter_than_rounding or inside.differentiated(n, place, at):
        return None
    points = [at(side * offset) for offset in offsets.tolist() for side in (-1.0, 1.0)]
    f = np.array([function.value(*point) for point in points])
    wide, narrow = np.abs(f[1] - f[0]), np.abs(f[3] - f[2])
    rounding = 1e-12 * np.maximum(np.abs(f[0]), np.abs(f[1]))
    if np.any(narrow > 0.5 * wide + rounding):
        return None  # a jump, which no step can end at without a term of its moving time
    try:
        derivatives = _derivatives(run, n, points, sizes)
    except (InputError, NotFiniteError):
        return None  # there are none: sweeps tell it where they need them
    usual = usual_step(run, n)
    moves = bool(run.records) and run.records[n].timed
    if derivatives is None or moves:
        # f has a kink along the step: derivatives are taken to change by themselves in a usual one
        bend, slopes = f[0] + f[1] - f[2] - f[3], np.abs(f[0] - f[2]) + np.abs(f[1] - f[3])
        bent = bool(np.any(np.abs(bend) > JUMP * slopes + rounding))
        if bent or derivatives is None:
            return Kink(n, t, 1.0 / usual) if bent and h > least * usual else None
    before, after = derivatives[::2], derivatives[1::2]
    size = _lasting([_largest_row(jump) for jump in after - before])
    # Of max(x, 0)^2 the slopes of derivatives jump: across a step a derivative misses as much as at
    # a kink by which derivatives jump as much as they change there in a step.
    bends = np.diff(before + after, axis=0) / np.diff(h * offsets)[:, None, None]
    size = max(size, usual * _lasting([_largest_row(bend) for bend in bends]))
    return Kink(n, t, size) if h * size > least else None


def _differentiated_inside(run: Trajectory, at: Callable[[float], _Point], inwards: float) -> bool:
    """Return whether f_u and f_p at an end of a step are those of its side of a kink at this end.

    Then all of its stages are, as those of a start at zero that np.maximum(u, 0) keeps from going
    below it.
    """
    problem = run.problem
    known = problem.form != "residual" and problem.delays is None and not problem.modes
    if not known or problem.batch is None:
        return False
    points = [at(inwards * offset) for offset in (0.0, SIDE, 2.0 * SIDE)]
    t, u = np.array([time for _, time, *_ in points]), np.array([u for *_, u, _ in points])
    p = np.asarray(run.p)
    try:
        derivatives = problem.batch.jacobian(t, u, p)
        if problem.n_parameters and not problem.field_parameter:
            by_p = problem.batch.push_parameters(t, u, p, np.eye(p.size))
            derivatives = np.concatenate([derivatives, np.moveaxis(by_p, 0, 2)], axis=2)
    except (InputError, NotFiniteError):
        return False
    step, bend = np.abs(np.diff(derivatives, axis=0))
    return bool(np.all(step <= 2.0 * bend + 1e-12 * np.abs(derivatives[0])))


def usual_step(run: Trajectory, n: int) -> float:
    """Return the largest of the steps up to number n, of which some were refused at a kink."""
    return float(run.step_sizes[max(n - USUAL, 0) : n + 1].max())


def _lasting(sizes: Sequence[float]) -> float:
    """Return the second of sizes ever nearer to a kink, if it is as large as the first; else 0.

    What vanishes there is no kink, and what grows, as the slope of |x|^0.5, or as that of the
    slope of |x|^1.5, has no bound that steps could resolve.
    """
    first, second = sizes[:2]
    return second if LASTS * first < second < first / LASTS else 0.0


def _largest_row(relative: Array) -> float:
    return float(np.abs(relative).sum(axis=1).max())


def _located(
    inside: _Inside,
    function: Piecewise,
    n: int,
    k: int,
    part: _Part,
    least: float,
) -> tuple[float, Array, Array | None]:
    """Return the place in a step at which something decides differently; state and rate there.

    They are those of ``_Inside``.
    """
    run = inside.run
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
    resolution = max(min(1e-2 * least, 1e-3 * SIDE), 32.0 * float(np.spacing(abs(start) + h)) / h)
    place, state, rate = high, states[1], rates[1]
    while high - low > resolution:
        place = (low * y - high * x) / (y - x) if smooth else 0.5 * (low + high)
        place = min(max(place, low + 0.25 * resolution), high - 0.25 * resolution)
        state, rate = inside(n, start + place * h)
        here = function.decide(n, start + place * h, state, rate)
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


def _derivatives(run: Trajectory, n: int, points: Sequence[_Point], sizes: Array) -> Array | None:
    """Return relative derivatives [K, n, n + m] at points, of rates in states and parameters.

    By changes of states by parts of their ``sizes`` [n], and of parameters by parts of themselves,
    or of 1 where they are 0.
    None where they are not to be had as arrays.
    """
    problem: Problem = run.problem
    batch = problem.batch
    known = problem.form == "rhs" and problem.delays is None and not problem.modes
    if not known or batch is None or problem.size > MOST:
        return None
    t, u = np.array([time for _, time, *_ in points]), np.array([u for *_, u, _ in points])
    p = np.asarray(run.parameters(n))
    relative = batch.jacobian(t, u, p) * sizes
    if problem.n_parameters and not problem.field_parameter:
        by_p = batch.push_parameters(t, u, p, np.diag(np.where(p == 0.0, 1.0, np.abs(p))))
        relative = np.concatenate([relative, np.moveaxis(by_p, 0, 2)], axis=2)
    positive = np.where(sizes > 0.0, sizes, sizes.max() or 1.0)
    return relative / positive[:, None]
