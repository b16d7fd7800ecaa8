"""What jumps where branches change: slopes on both sides of the place, or the function itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from daeosens.derivatives.branches.branch_changes import (
    JUMP,
    LASTS,
    LOCAL,
    NEARER,
    SIDE,
    Piecewise,
    branch_changes,
    changed_by_rounding,
    decisions_at_ends,
    of_rank,
    point_on_chord,
    signs_of,
)
from daeosens.derivatives.looks.seen import Seen, unseen_run
from daeosens.petsc.vectors import Array, read
from daeosens.timestepping.trajectory.trajectory import Trajectory

INSIDE = 3 * SIDE
"""Distance from the ends of a step, in steps, of a kink both of whose sides are in it."""

SHARP = 0.2
"""Part of a difference of slopes that lasts where they have no bounded slope themselves.

Of |x|^1.5 it is 0.35, of smooth functions 0.125."""

BEND = 0.1
"""Such differences are told from this part of those that count as a kink."""

NEAR_AN_END = 0.1
"""Part of a chord between its end and a kink below which the end says nothing of rounding."""


@dataclass(frozen=True)
class SlopeJump:
    """Where a slope jumps or is sharp, by how much in a step, and whether the function jumps.

    ``timed`` tells that the time of the change is one of the parameters' alone, not of the state;
    ``step`` is the number of the step, ``number`` that of what decides there.
    """

    time: float
    kink: float
    jump: bool
    sharp: bool
    timed: bool
    step: int
    number: int


def slope_jumps(
    trajectory: Trajectory,
    function: Piecewise | None,
    seen: Seen,
    elsewhere: Set[int] = frozenset(),
    at_ends: Literal["too", "never", "alone"] = "too",
    *,
    every: bool = False,
    silent: bool = False,
) -> Iterator[SlopeJump]:
    """Yield where a function or its slope jumps inside of steps, but for those ``elsewhere``.

    ``at_ends`` says whether where a step ends just there is meant, ``every`` that of many changes
    none is left out, ``silent`` that changes are meant too where neither jumps.
    """
    if function is None:
        return
    comm = trajectory.problem.comm.tompi4py()
    for n, place, rank, k in branch_changes(trajectory, function, elsewhere, at_ends, every=every):
        seen.branches_change = True
        if at_ends == "never" and not INSIDE < place < 1.0 - INSIDE:
            continue
        stretch = _stretch(trajectory, n, place)
        sides = (0.0, False, False) if stretch is None else jumps_across(function, stretch)
        if comm.size > 1:
            # slopes are those of a rank's own rows
            kink, *flags = zip(*comm.allgather(sides), strict=True)
            sides = max(kink), any(flags[0]), any(flags[1])
        if any(sides) or silent:
            time = float(trajectory.times[n] + place * trajectory.step_sizes[n])
            timed = of_rank(comm, rank, _in_time_alone(trajectory, function, n, k))
            yield SlopeJump(time, *sides, timed, n, k)


def _in_time_alone(trajectory: Trajectory, function: Piecewise, n: int, k: int) -> bool:
    """Return whether what decides as number k of this rank in step n has no part in the state."""
    n, t, u = point_on_chord(trajectory, n, 0.5)
    elsewhere = u + 1e-3 * (np.abs(u) + np.abs(u).max(initial=0.0))
    values = [function.decide(n, t, state).values for state in (u, elsewhere)]
    return all(k < decided.size for decided in values) and bool(values[0][k] == values[1][k])


@dataclass(frozen=True)
class Stretch:
    """Points (n, t, u) of the chord of a step, or beyond it, and the place of what may be a kink.

    ``point(x)`` is that at x, from 0 to 1.
    """

    point: Callable[[float], tuple[int, float, Array]]
    place: float


def _stretch(trajectory: Trajectory, n: int, place: float) -> Stretch | None:
    """Return the chord of a step with a place in [0, 1] where a function may have a kink.

    Adaptive steps become so short at a jump that rounding leaves no room for slopes on its sides,
    and one may end there, as may one of fixed size: the chord is then continued beyond the step.
    None at breakpoints.
    """
    t, h = float(trajectory.times[n]), float(trajectory.step_sizes[n])
    long = max(h, LOCAL * abs(t))
    low, high = t + place * h - 0.5 * long, t + place * h + 0.5 * long
    if long == h and INSIDE < place < 1.0 - INSIDE:
        return Stretch(lambda x: point_on_chord(trajectory, n, x), place)
    if any(low <= known <= high for known in trajectory.problem.breakpoints):
        return None  # a step between two numbers of one breakpoint
    before, after = read(trajectory.stored[n]), read(trajectory.stored[n + 1])

    def point(x: float) -> tuple[int, float, Array]:
        ahead = place + (x - 0.5) * long / h  # in steps
        return n, t + ahead * h, before + ahead * (after - before)

    return Stretch(point, 0.5)


def jumps_across(function: Piecewise, stretch: Stretch) -> tuple[float, bool, bool]:
    """Return by how much the slope along a chord jumps at a place, and whether the function does.

    The last one tells whether the slope of the slope has no bound there, as that of |x|^1.5.
    """

    def value(x: float) -> Array:
        return function.value(*stretch.point(x))

    place, jumps, bends, slopes = stretch.place, [], [], []
    changed = np.abs(value(1.0) - value(0.0))
    left_by_rounding = rounding_along(function, stretch)
    for side in (SIDE, SIDE / NEARER, SIDE / NEARER**2):
        # a slope on each side of the place, which itself is left out
        at = [value(place + k * side) for k in (-2, -1, 1, 2)]
        left, right = (at[1] - at[0]) / side, (at[3] - at[2]) / side
        # differences leave so much, divided by the distance
        rounding = (left_by_rounding + 1e-13 * np.abs(at).max(axis=0)) / side
        size = JUMP * (np.abs(left) + np.abs(right) + changed) + rounding
        bends.append(np.where(np.abs(right - left) > BEND * size, np.abs(right - left), 0.0))
        slopes.append((left, right, BEND * size))
        jumps.append(
            np.where(np.abs(at[2] - at[1]) > 1e4 * side * size, np.abs(at[2] - at[1]), 0.0)
        )
    kink = np.where(bends[1] > LASTS * bends[0], bends[1], 0.0)
    jump = bool(np.any((jumps[1] > LASTS * jumps[0]) & (jumps[1] > 0.0)))
    sharp = bool(np.any((bends[1] > SHARP * bends[0]) & (bends[1] > 0.0)))
    # what is odd about the place, sign(x) |x|^a, has the same slopes on both sides of it, but
    # they change as fast as |x|^(a - 1) towards it
    for k in (0, 1):
        far = np.abs(slopes[1][k] - slopes[0][k])
        near = np.abs(slopes[2][k] - slopes[1][k])
        sharp |= bool(np.any((near > SHARP * far) & (near > slopes[2][2])))
    return float(kink.max(initial=0.0)), jump, sharp


def rounding_along(function: Piecewise, stretch: Stretch) -> Array:
    """Return what rounding may leave in each component of a function along a chord."""
    rng = np.random.default_rng(1)
    left: Array = np.zeros(1)
    for end in (0.0, 1.0):
        if abs(end - stretch.place) < NEAR_AN_END:
            continue  # so near to a jump that rounding may pass it
        for side in (-1.0, 1.0):
            with unseen_run():  # the edge of its domain
                changed = changed_by_rounding(function, rng, *stretch.point(end), side)
                left = np.maximum(left, changed)
    return left


def jumps_at_states(trajectory: Trajectory, function: Piecewise) -> Iterator[float]:
    """Yield the times of states at which a branch changes and the function jumps.

    An event, or a step that happens to end there, has it evaluated on either side by chance.
    Breakpoints are evaluated on the side of the step.
    """
    ends, largest = decisions_at_ends(trajectory, function)
    decided = [ends[0][0], *(end for _, end in ends)] if ends else []
    common = min((end.values.size for end in decided), default=0)
    differences = [k for k in range(common) if not decided[0].whole[k]]
    places = [k for k in range(common) if decided[0].whole[k]]
    if not common:
        return
    # a place in a table, int(t), is that of one side: it changes from or to the next state
    changed = np.diff([end.values[places] for end in decided], axis=0).any(axis=1)
    beside = np.append(changed, False) | np.insert(changed, 0, False)
    tableau = trajectory.stepping.resolved_method.tableau
    stages = (0.0, 1.0) if tableau is None else tableau.c
    table, largest = np.array([end.values[differences] for end in decided]), largest[differences]
    signs = signs_of(table, largest)
    on = np.flatnonzero((signs == 0.0).any(axis=1) | beside)
    moved = trajectory.step_sizes > 0.0
    for n in on.tolist():
        t = float(trajectory.times[n])
        before = n - 1
        while before >= 0 and not moved[before]:
            before -= 1
        after = n
        while after < trajectory.n_steps and not moved[after]:
            after += 1
        if before < 0 or after >= trajectory.n_steps:
            continue
        if not (beside[n] or np.any(signs[before] * signs[after + 1] < 0.0)):
            continue
        if any(abs(t - jump) <= 1e-9 * abs(t) for jump in trajectory.problem.breakpoints):
            continue
        if not np.array_equal(read(trajectory.stored[before + 1]), read(trajectory.stored[after])):
            continue  # a reset, which jumps itself
        ends = [(before, 1 - 2 * SIDE), (before, 1 - SIDE), (after, SIDE), (after, 2 * SIDE)]
        at = [function.value(*point_on_chord(trajectory, *end)) for end in ends]
        bent = np.abs(at[1] - at[0]) + np.abs(at[3] - at[2])
        rounding = 1e-9 * np.abs(at).max(axis=0)
        if not np.any(np.abs(at[2] - at[1]) > 10.0 * bent + rounding):
            continue
        if beside[n]:
            # only a step with a stage there is on the wrong side: the one that ends at a jump if
            # the place is that behind it, the one that begins there if it is that before it
            here = function.value(*point_on_chord(trajectory, after, 0.0))
            behind = np.abs(here - at[2]).max() <= np.abs(here - at[1]).max()
            if (1.0 if behind else 0.0) not in stages:
                continue
        yield t


def jumps_in_time_alone(
    trajectory: Trajectory, function: Piecewise, change: SlopeJump, fixed: Array
) -> bool:
    """Return whether f jumps at one of the times [S] that are ``fixed``, by the time alone.

    What decides with a part in the state, ``np.maximum(target(t) - u, 0)``, changes sides there too
    if t does, and f has no jump where the state passes alone.  Steps stay where they are, and so
    does such a jump.
    """
    if not fixed.size:
        return False
    time = float(fixed[np.argmin(np.abs(fixed - change.time))])
    if abs(time - change.time) > LOCAL * max(abs(time), 1e-3 * float(np.ptp(trajectory.times))):
        return False
    n = min(max(int(np.searchsorted(trajectory.times, time)) - 1, 0), trajectory.n_steps - 1)
    h = float(trajectory.step_sizes[n])
    near = SIDE * max(h, LOCAL * abs(time))
    (*_, u), (*_, before), (*_, after) = (
        point_on_chord(trajectory, n, place) for place in (0.5, 0.0, 1.0)
    )
    moved = near / h * (after - before)
    f = np.array(
        [
            [function.value(n, time + beside * near, u + x * moved) for x in (-2, -1, 1, 2)]
            for beside in (-1, 1)
        ]
    )
    # each component in its own unit, without the part that grows with the distance
    in_time = np.abs(f[1, 1] - f[0, 1])
    in_state = np.abs(2.0 * (f[:, 2] - f[:, 1]) - (f[:, 3] - f[:, 0])).max(axis=0)
    rounding = 1e-9 * np.abs(f).max(axis=(0, 1))
    return bool(np.all(in_state <= 1e-2 * in_time + rounding))
