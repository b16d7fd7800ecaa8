"""What branches of the equations that change sides inside of steps cost derivatives.

Derivatives on both sides of such a place are compared: only those that jump, or bend, are kinks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from daeosens.derivatives.branches.branch_changes import (
    JUMP,
    LASTS,
    NEARER,
    SIDE,
    Piecewise,
    changed_by_rounding,
    rate_in,
)
from daeosens.derivatives.branches.switch_times import made_of_time, times_of_change
from daeosens.derivatives.step_placement.branch_passages import (
    INSIDE,
    OFTEN,
    SEVERAL,
    Inside,
    Part,
    Point,
    ends_of,
    equations_with_kinks,
)
from daeosens.errors import InputError, NotFiniteError
from daeosens.petsc.vectors import Array, read
from daeosens.problem.problem import Problem
from daeosens.problem.time_formulas import bends
from daeosens.timestepping.trajectory.trajectory import Trajectory

USUAL = 8
"""So many steps before a kink the largest one is a usual one: at the kink some were refused."""

MOST = 64
"""Unknowns up to which derivatives are compared as dense matrices; more have a cut at each kink."""

NO_JUMP = 1e-6
"""What derivatives change, beside themselves, in next to nothing of a step without a jump."""

FAR = 0.05
"""Distance from a place, in steps, at which nothing of it is seen by moves of rounding."""

BOUNDED = 0.95
"""Powers of the distance to a kink beyond which what changes so has a bounded slope."""

BESIDE: Array = np.array([2e-2 / NEARER**k for k in range(5)])
"""Distances from a kink, in steps, at which slopes of slopes of derivatives are compared."""

ALIKE = 1.2
"""What grows as a power does so by the same factor ever nearer, but for so much."""

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
    sides : tuple of int
        The sides, -1 before and 1 behind, on which slopes of derivatives have no bound, or slopes
        of these.
    power : float
        That of the length of a step across it with which what derivatives miss of it falls.
    """

    step: int
    time: float
    rate: float
    sides: tuple[int, ...] = ()
    power: float = 1.0


def kinks_inside(run: Trajectory, least: float, near: Sequence[Array] = ()) -> list[Kink]:
    """Return the kinks inside of steps that cost derivatives more than a part of themselves.

    All of them, or those ``near`` the times [..., K] at which steps were cut.
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
    ends = ends_of(run, function, steps, _bends_without_kinks)
    changes = ends.changes()
    if len(changes) > SEVERAL + OFTEN * run.n_steps:
        return []
    with ExitStack() as runners:
        inside = Inside(run, function, runners)
        parts = inside.passages(ends, changes, ends.suspects(run.step_sizes[steps]))
        judge = _Judge(inside, least)
        kinks = [judge.kink(*part) for part in parts]
    return [kink for kink in kinks if kink is not None]


def _value_there(function: Piecewise, point: Point, size: int) -> Array:
    """Return f [n] at a point, NaN beyond its domain: u**0.5 where a run leaves 0."""
    try:
        return function.value(*point)
    except (InputError, NotFiniteError):
        return np.full(size, np.nan)


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


class _Judge:
    """Tells what a place at which a branch changes sides costs derivatives of a run."""

    def __init__(self, inside: Inside, least: float) -> None:
        self._inside, self._least = inside, least
        self._sizes = np.abs(inside.run.u).max(axis=0)
        self._differentiated: dict[tuple[int, float], bool] = {}

    def kink(self, n: int, k: int, part: Part) -> Kink | None:
        """Return the kink of what decides as number k in step n, unless it costs less."""
        run, function, least = self._inside.run, self._inside.function, self._least
        start, h = float(run.times[n]), float(run.step_sizes[n])
        place, state, rate = self._inside.located(n, k, part, least)
        events = {crossing.step for crossing in run.crossings}
        if (n + 1 in events and place > 1.0 - AT_EVENT) or (n - 1 in events and place < AT_EVENT):
            return None  # an event at the kink: the step ends there, and moves with it
        slope = (read(run.stored[n + 1]) - read(run.stored[n])) / h
        t = start + place * h
        moved = 0.0 if rate is None else rate - rate_in(run, n, t)

        def at(offset: float) -> Point:
            there = t + offset * h
            rates = None if rate is None else rate_in(run, n, there) + moved
            return n, there, state + offset * h * slope, rates

        offsets: Array = np.array([SIDE, SIDE / NEARER, SIDE / NEARER**2])
        shorter_than_rounding = offsets[-1] * h <= 8.0 * np.spacing(abs(t))
        if shorter_than_rounding or self._differentiated_at(n, place, at):
            return None
        points = [at(side * offset) for offset in offsets.tolist() for side in (-1.0, 1.0)]
        rounded = _rounded([at(side * BESIDE[0]) for side in (-1.0, 1.0)])
        f = np.array([_value_there(function, point, state.size) for point in points])
        wide, narrow = np.abs(f[1] - f[0]), np.abs(f[3] - f[2])
        rounding = 1e-12 * np.maximum(np.abs(f[0]), np.abs(f[1]))
        if np.any(narrow > 0.5 * wide + rounding):
            rounding = rounding + self._left_by_rounding(n, place, at)
        if np.any(narrow > 0.5 * wide + rounding):
            return None  # a jump, which no step can end at without a term of its moving time
        try:
            derivatives = _derivatives(run, n, [*points, *rounded], self._sizes)
        except (InputError, NotFiniteError):
            return None  # there are none: sweeps tell it where they need them
        usual = usual_step(run, n)
        moves = bool(run.records) and run.records[n].timed
        if derivatives is None or moves:
            # f has a kink along the step: derivatives are taken to change by themselves in a usual
            # one
            bend, slopes = f[0] + f[1] - f[2] - f[3], np.abs(f[0] - f[2]) + np.abs(f[1] - f[3])
            bent = bool(np.any(np.abs(bend) > JUMP * slopes + rounding))
            if bent or derivatives is None:
                return Kink(n, t, 1.0 / usual) if bent and h > least * usual else None
        derivatives, moved_by_rounding = np.split(derivatives, [len(points)])
        before, after, left = derivatives[::2], derivatives[1::2], _left(moved_by_rounding)
        size, sides, power = _size(before, after, h, usual, left)
        missed = h * size if power == 1.0 else usual * size * (0.5 * h / usual) ** power
        kink = Kink(n, t, size, sides, power)
        return kink if missed > least else self._kink_in_slopes(n, t, at)

    def _kink_in_slopes(self, n: int, t: float, at: Callable[[float], Point]) -> Kink | None:
        """Return the kink of step n at which slopes of slopes of derivatives have no bound.

        Of max(x, 0)^2.5 first derivatives miss little, and second ones as much as a kink costs by
        which derivatives jump by what they change there in a usual step.
        """
        run = self._inside.run
        h, usual = float(run.step_sizes[n]), usual_step(run, n)
        points = [at(side * offset) for side in (-1.0, 1.0) for offset in BESIDE.tolist()]
        try:
            derivatives = _derivatives(run, n, points, self._sizes)
        except (InputError, NotFiniteError):
            return None
        assert derivatives is not None
        size, sides, power = _size_in_slopes(derivatives, h * BESIDE, usual)
        missed = usual * size * (0.5 * h / usual) ** power
        return Kink(n, t, size, sides, power) if missed > self._least else None

    def _left_by_rounding(self, n: int, place: float, at: Callable[[float], Point]) -> Array:
        """Return what rounding may leave of f [n], by points half way to the ends of step n."""
        rng = np.random.default_rng(1)
        left: Array = np.zeros(1)
        for offset in (-0.5 * place, 0.5 * (1.0 - place)):
            if abs(offset) < FAR:
                continue  # so near that rounding may pass a jump
            _, t, u, _ = at(offset)
            for side in (-1.0, 1.0):
                try:
                    changed = changed_by_rounding(self._inside.function, rng, n, t, u, side)
                except (InputError, NotFiniteError):
                    continue  # the edge of its domain
                left = np.maximum(left, changed)
        return left

    def _differentiated_at(self, n: int, place: float, at: Callable[[float], Point]) -> bool:
        """Return whether a place is an end of step n, and ``_differentiated_inside``."""
        if place not in (0.0, 1.0):
            return False
        if (n, place) not in self._differentiated:
            inwards = 1.0 - 2.0 * place
            differentiated = _differentiated_inside(self._inside.run, at, inwards)
            self._differentiated[n, place] = differentiated
        return self._differentiated[n, place]


def _differentiated_inside(run: Trajectory, at: Callable[[float], Point], inwards: float) -> bool:
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


def _rounded(points: Sequence[Point]) -> list[Point]:
    """Return points, each followed by the same with time and states moved by rounding."""
    up = 1.0 + 4.0 * np.finfo(float).eps
    pairs = ((point, (point[0], point[1] * up, point[2] * up, point[3])) for point in points)
    return [point for pair in pairs for point in pair]


def _left(rounded: Array) -> float:
    """Return what rounding leaves of rows of derivatives, by those at points of ``_rounded``."""
    return max(_largest_row(change) for change in rounded[1::2] - rounded[::2])


def usual_step(run: Trajectory, n: int) -> float:
    """Return the largest of the steps up to number n, of which some were refused at a kink."""
    return float(run.step_sizes[max(n - USUAL, 0) : n + 1].max())


def _size(
    before: Array, after: Array, h: float, usual: float, left: float
) -> tuple[float, tuple[int, ...], float]:
    """Return the rate of a kink, its sides and its power, as ``Kink`` has them.

    From derivatives [3, n, n + m] before and behind it in a step of size ``h``, of which rounding
    leaves ``left``.
    """
    distances = h * SIDE / NEARER ** np.arange(3)
    jumps = [_largest_row(jump) for jump in after - before]
    # Of max(x, 0)^2 the slopes of derivatives jump: across a step a derivative misses as much as at
    # a kink by which derivatives jump as much as they change there in a step.
    bends = np.diff(before + after, axis=0) / np.diff(distances)[:, None, None]
    bent = _lasting([_largest_row(bend) for bend in bends])
    if bent * (distances[1] - distances[2]) <= 4.0 * left:
        bent = 0.0
    sizes = [_lasting(jumps), usual * bent]
    roots = [_without_bound(side, left) for side in (before, after)]
    rates = [rate * (usual / h) ** power for rate, power in roots]
    size = max(*sizes, *rates)
    sides = [n for n, rate in zip((-1, 1), rates, strict=True) if rate > NO_JUMP * size]
    return size, tuple(sides), min(roots[n > 0][1] for n in sides) if sides else 1.0


def _without_bound(derivatives: Array, left: float) -> tuple[float, float]:
    """Return by how much derivatives [3, n, n + m] change where their slopes grow without bound.

    By more than ``left`` of rounding.

    In a step, by those ever nearer to a kink; 0 elsewhere.  And as which power of the distance:
    derivatives of max(x, 0)^1.5, the flow across a weir, change as its root.
    """
    first, second = (_largest_row(change) for change in np.diff(derivatives, axis=0))
    if not NEARER**-BOUNDED * first + 2.0 * left < second < LASTS * first:
        return 0.0, 1.0
    power = float(np.log(first / second) / np.log(NEARER))
    return float(first * SIDE**-power), power


def _size_in_slopes(
    derivatives: Array, distances: Array, usual: float
) -> tuple[float, tuple[int, ...], float]:
    """Return the rate, the sides and the power of a kink at which slopes of slopes have no bound.

    From derivatives [2 K, n, n + m] before it and behind it, at ``distances`` [K] that fall.
    """
    kinks: list[tuple[float, int, float]] = []
    for side, values in zip((-1, 1), np.split(derivatives, 2), strict=True):
        sizes = [_largest_row(bend) for bend in _second_differences(values, distances)]
        if min(sizes) <= 0.0:
            continue
        growth = np.array(sizes[1:]) / sizes[:-1]
        powers = 2.0 - np.log(growth) / np.log(NEARER)
        power = float(powers[-1])
        # all of them: by rounding alone the last of sizes that do not grow may be a bit larger
        if power <= 2.0 - BOUNDED or powers.max() >= 1.0 + BOUNDED:
            continue
        if np.ptp(np.log(growth)) > np.log(ALIKE):
            continue
        scale = distances[:3, None, None] / usual
        (of_power,) = _second_differences(scale**power, distances[:3])
        kinks.append((sizes[0] / abs(float(of_power[0, 0])), side, power))
    if not kinks:
        return 0.0, (), 1.0
    return max(size for size, *_ in kinks), tuple(n for _, n, _ in kinks), min(p for *_, p in kinks)


def _second_differences(values: Array, places: Array) -> Array:
    """Return the divided differences [K-2, ...] of second order of values [K, ...] at places."""
    first = np.diff(values, axis=0) / np.diff(places)[:, None, None]
    second: Array = np.diff(first, axis=0) / (places[2:] - places[:-2])[:, None, None]
    return second


def _lasting(sizes: Sequence[float]) -> float:
    """Return the second of sizes ever nearer to a kink, if it is as large as the first; else 0.

    What vanishes there is no kink, and what grows, as the slope of |x|^0.5, has no bound that steps
    could resolve.
    """
    first, second = sizes[:2]
    return second if LASTS * first < second < first / LASTS else 0.0


def _largest_row(relative: Array) -> float:
    return float(np.abs(relative).sum(axis=1).max())


def _derivatives(run: Trajectory, n: int, points: Sequence[Point], sizes: Array) -> Array | None:
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
