"""Where branches of a function change sides inside the steps of a run, and what jumps there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from daeosens.derivatives.looks.seen import Seen
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.branches import Branches, Decisions
from daeosens.problem.delays import Delays
from daeosens.timestepping.delayed_run import delayed_states
from daeosens.timestepping.trajectory.trajectory import Trajectory

ON_THE_KINK = 1e-12
"""What a branch compares is zero where it is this small beside its largest value in the run."""

OFTEN = 8
"""A comparison that changes its sign more often is looked at ever more rarely."""

NOTHING = 1e-14
"""Part of the times that steps between two roundings of one time are shorter than."""

LOCAL = 1e-6
"""Part of the time: what steps shorter than it do at a jump is looked at along a longer chord."""

SIDE = 1e-5
"""Distance from a kink, as a part of the step, at which slopes on its sides are taken."""

INSIDE = 3 * SIDE
"""Distance from the ends of a step, in steps, of a kink both of whose sides are in it."""

NEARER = 8.0
"""Slopes are taken a second time so many times nearer: what a kink makes of them is as large there,
that of a function which is only bent is not."""

LASTS = 0.7
"""Part of a difference that lasts nearer to a kink; of one like |x|^a only 8^-a does."""

SHARP = 0.2
"""Part of a difference of slopes that lasts where they have no bounded slope themselves.

Of |x|^1.5 it is 0.35, of smooth functions 0.125."""

BEND = 0.1
"""Such differences are told from this part of those that count as a kink."""

JUMP = 1e-3
"""Slopes that differ by a larger part of themselves, or of the change in a step, are a kink's."""


@dataclass(frozen=True)
class Piecewise:
    """A function of (n, t, u) in step n of a run, and what decides in it.

    F takes the rate as well, that of ``rate_in`` where it is not given.
    """

    decide: Callable[..., Decisions]
    value: Callable[..., Array]
    along: Callable[[Array, Array], Sequence[Decisions]] | None = None
    """What decides at times t [K] and states u [K, n], where that is the same in all steps."""


@dataclass(frozen=True)
class BranchChange:
    """Where a slope jumps or is sharp, by how much in a step, and whether the function jumps.

    ``timed`` tells that the time of the change is one of the parameters' alone, not of the state.
    """

    time: float
    kink: float
    jump: bool
    sharp: bool
    timed: bool


def equations_of(trajectory: Trajectory, in_time: bool = False) -> Piecewise | None:
    """Return f, or F at the rates along the run; None where nothing is known of its branches."""
    if not trajectory.problem.branches_known:
        return None
    if trajectory.problem.delays is not None:
        return _delayed_equations(trajectory, trajectory.problem.delays, in_time)
    parameters = trajectory.parameters
    create = trajectory.problem.create_state
    state, out, moved = create(), create(), create()

    def decide(n: int, t: float, u: Array, rate: Array | None = None) -> Decisions:
        (problem, _), p = trajectory.equations(n), np.asarray(parameters(n))
        if problem.branches is None:
            return Decisions.none()
        if problem.form != "residual":
            return problem.branches(t, u, p, in_time=in_time)
        rate = rate_in(trajectory, n, t) if rate is None else rate
        return problem.branches(t, u, p, rate, in_time=in_time)

    def value(n: int, t: float, u: Array, rate: Array | None = None) -> Array:
        problem, _ = trajectory.equations(n)
        write(state, u)
        if problem.form == "residual":
            write(moved, rate_in(trajectory, n, t) if rate is None else rate)
            problem.residual(t, state, moved, parameters(n), out)
        else:
            problem.rhs(t, state, parameters(n), out)
        return read(out).copy()

    alike = (
        not (trajectory.problem.modes or trajectory.records)
        and trajectory.problem.form != "residual"
    )
    branches = trajectory.problem.branches
    if not alike or not isinstance(branches, Branches):
        return Piecewise(decide, value)

    def along(t: Array, u: Array) -> Sequence[Decisions]:
        return branches.along(t, u, np.asarray(trajectory.p), in_time=in_time)

    return Piecewise(decide, value, along)


def rate_in(trajectory: Trajectory, n: int, t: float) -> Array:
    """Return u' [n] at a time in step n: linear between the middles of that step and the nearest.

    Chords have the rates of their middles.  From one chord to the next the rate would jump, and
    what depends on it would change sides between two steps and in none of them.
    """
    times, sizes, stored = trajectory.times, trajectory.step_sizes, trajectory.stored

    def chord(k: int) -> Array:
        return (read(stored[k + 1]) - read(stored[k])) / sizes[k]

    if sizes[n] <= 0.0:
        return np.zeros(trajectory.problem.size)
    middle = times[n] + 0.5 * sizes[n]
    beside = [n - 1, n + 1] if t < middle else [n + 1, n - 1]
    apart = set(trajectory.problem.breakpoints)  # where rates may jump, as they may at events
    for k in beside:
        if not 0 <= k < trajectory.n_steps or sizes[k] <= 0.0:
            continue
        if apart and float(times[max(n, k)]) in apart:
            continue
        here, there = chord(n), chord(k)
        return here + (t - middle) / (times[k] + 0.5 * sizes[k] - middle) * (there - here)
    return chord(n)


def _delayed_equations(trajectory: Trajectory, delays: Delays, in_time: bool) -> Piecewise:
    """Return f(t, u, z) of a delay equation, with what is delayed at the time."""
    p, of_f = np.asarray(trajectory.p), delays.branches
    assert of_f is not None

    def decide(n: int, t: float, u: Array, _rate: Array | None = None) -> Decisions:
        point = np.concatenate([u, delayed_states(trajectory, n, t)])
        return of_f(t, point, p, in_time=in_time)

    def value(n: int, t: float, u: Array, _rate: Array | None = None) -> Array:
        return delays.rate(np.concatenate([[t], u, delayed_states(trajectory, n, t)]), p)

    return Piecewise(decide, value)


def history_of(
    trajectory: Trajectory, delays: Delays, number: int, *, in_time: bool
) -> Piecewise | None:
    """Return the history that a delay sees at the times of the run, and its end from there on."""
    p, of_past = np.asarray(trajectory.p), delays.branches_of_past
    tau, end = float(trajectory.report.tau[number]), float(trajectory.times[0])
    if of_past is None:
        return None

    def decide(_n: int, t: float, u: Array) -> Decisions:
        return of_past(min(t - tau, end), u, p, in_time=in_time)

    def value(_n: int, t: float, _u: Array) -> Array:
        return delays.history(min(t - tau, end), p)

    return Piecewise(decide, value)


def density_of(trajectory: Trajectory, scalar: Any, in_time: bool = False) -> Piecewise:
    """Return a running cost."""
    state, parameters = trajectory.problem.create_state(), trajectory.parameters

    def value(n: int, t: float, u: Array) -> Array:
        write(state, u)
        return np.array([scalar.value(t, state, parameters(n))])

    def decide(n: int, t: float, u: Array) -> Decisions:
        return scalar.branches(t, u, np.asarray(parameters(n)), in_time=in_time)

    return Piecewise(decide, value)


def branch_changes(
    trajectory: Trajectory,
    function: Piecewise | None,
    seen: Seen,
    elsewhere: Set[int] = frozenset(),
    at_ends: Literal["too", "never", "alone"] = "too",
) -> Iterator[BranchChange]:
    """Yield where a function or its slope jumps inside of steps, but for those ``elsewhere``.

    ``at_ends`` says whether where a step ends just there is meant.
    """
    if function is None:
        return
    left_out = set(elsewhere) | {crossing.step for crossing in trajectory.crossings}
    short = NOTHING * float(np.max(np.abs(trajectory.times[[0, -1]])))
    left_out |= set(np.flatnonzero(trajectory.step_sizes <= short).tolist())
    for n, place, rank, k in _crossings(trajectory, function, left_out, at_ends):
        seen.branches_change = True
        if at_ends == "never" and not INSIDE < place < 1.0 - INSIDE:
            continue
        stretch = _stretch(trajectory, function, n, place)
        sides = (0.0, False, False) if stretch is None else _slope_jump(*stretch)
        comm = trajectory.problem.comm.tompi4py()
        if comm.size > 1:
            # slopes are those of a rank's own rows
            kink, *flags = zip(*comm.allgather(sides), strict=True)
            sides = max(kink), any(flags[0]), any(flags[1])
        if any(sides):
            time = float(trajectory.times[n] + place * trajectory.step_sizes[n])
            alone = _of_rank(comm, rank, _in_time_alone(trajectory, function, n, k))
            yield BranchChange(time, *sides, alone)


def _of_rank(comm: Any, rank: int, value: bool) -> bool:
    """Return what is true on a rank.  Collective."""
    return value if comm.size == 1 else comm.bcast(value, rank)


def _in_time_alone(trajectory: Trajectory, function: Piecewise, n: int, k: int) -> bool:
    """Return whether what decides as number k of this rank in step n has no part in the state."""
    n, t, u = point_on_chord(trajectory, n, 0.5)
    elsewhere = u + 1e-3 * (np.abs(u) + np.abs(u).max(initial=0.0))
    values = [function.decide(n, t, state).values for state in (u, elsewhere)]
    return all(k < decided.size for decided in values) and bool(values[0][k] == values[1][k])


def _stretch(
    trajectory: Trajectory, function: Piecewise, n: int, place: float
) -> tuple[Callable[[float], Array], float] | None:
    """Return a function on the chord of a step, and the place in [0, 1] where it may have a kink.

    Adaptive steps become so short at a jump that rounding leaves no room for slopes on its sides,
    and one may end there, as may one of fixed size: the chord is then continued beyond the step.
    None at breakpoints.
    """
    t, h = float(trajectory.times[n]), float(trajectory.step_sizes[n])
    long = max(h, LOCAL * abs(t))
    low, high = t + place * h - 0.5 * long, t + place * h + 0.5 * long
    if long == h and INSIDE < place < 1.0 - INSIDE:
        return lambda x: function.value(*point_on_chord(trajectory, n, x)), place
    if any(low <= known <= high for known in trajectory.problem.breakpoints):
        return None  # a step between two numbers of one breakpoint
    before, after = read(trajectory.stored[n]), read(trajectory.stored[n + 1])

    def value(x: float) -> Array:
        ahead = place + (x - 0.5) * long / h  # in steps
        return function.value(n, t + ahead * h, before + ahead * (after - before))

    return value, 0.5


def _crossings(
    trajectory: Trajectory, function: Piecewise, left_out: set[int], at_ends: str
) -> Iterator[tuple[int, float, int, int]]:
    """Yield the steps inside of which a branch changes, the place, the rank that has it, and which.

    The place is in [0, 1], or a little before where the step begins on the kink.  Collective.
    """
    comm, times, sizes = (
        trajectory.problem.comm.tompi4py(),
        trajectory.times,
        trajectory.step_sizes,
    )
    own = _changes(trajectory, function, left_out, at_ends)
    everyone: Iterator[tuple[_Change, int]] = ((change, 0) for change in own)
    if comm.size > 1:
        parts = comm.allgather(list(own))
        together = [(change, rank) for rank, part in enumerate(parts) for change in part]
        everyone = iter(sorted(together, key=lambda pair: pair[0].step))
    changes: dict[int, int] = {}
    for change, rank in everyone:
        n, k, x = change.step, change.number, change.before
        changes[change.kind] = changes.get(change.kind, 0) + 1
        if changes[change.kind] > OFTEN and changes[change.kind] & (changes[change.kind] - 1):
            continue
        if change.landed:
            yield n, 0.0, rank, k
            continue

        def changed(place: float, n: int = n, k: int = k, x: float = x, rank: int = rank) -> bool:
            here = function.decide(*point_on_chord(trajectory, n, place))
            if k >= here.values.size:
                return _of_rank(comm, rank, value=True)
            number = float(here.values[k])
            other = number != x if here.whole[k] else (number > 0.0) != (x > 0.0)
            return _of_rank(comm, rank, other)

        low = (change.off - float(times[n])) / float(sizes[n])
        yield n, _bisected(changed, low), rank, k


class _Change(NamedTuple):
    """What changes inside of a step: its number and kind, what it was before, and when that was.

    ``landed`` tells that the step begins on the kink.
    """

    step: int
    number: int
    kind: int
    before: float
    off: float
    landed: bool


def _changes(
    trajectory: Trajectory, function: Piecewise, left_out: set[int], at_ends: str
) -> Iterator[_Change]:
    """Yield what changes of this rank's inside of steps."""
    ends, largest = _decisions(trajectory, function)
    off, when = np.empty(0), np.empty(0)  # the last values that were off the kink, and their times
    for n, (before, after) in enumerate(ends):
        t = float(trajectory.times[n])
        # after a branch that changed, others are compared: that one stands among the common ones
        count = min(before.values.size, after.values.size)
        small = ON_THE_KINK * largest[:count]
        x, y = before.values[:count], after.values[:count]
        # adaptive steps come so near to a jump that one of them may end on it
        if off.size != x.size:
            off, when = x.copy(), np.full(x.size, t)
        lies_off = np.abs(x) > small
        off, when = np.where(lies_off, x, off), np.where(lies_off, t, when)
        recent = t - when <= LOCAL * abs(t)
        # a step of fixed size may end on it as well, and the next one go on to the other side
        landed = ~lies_off & ~recent & (off * y < 0.0) & (np.abs(y) > small)
        landed &= ~before.whole[:count] & (at_ends != "never")
        x = np.where(recent, off, x)
        if n in left_out:
            off = np.empty(0)  # what jumps there is no branch
            continue
        change = (x * y < 0.0) & (np.abs(x) > small) & (np.abs(y) > small)
        change = np.where(before.whole[:count], x != y, change) & (at_ends != "alone") | landed
        if before.moves is not None:
            change &= before.moves[:count]
        for k in np.flatnonzero(change).tolist():
            kind = k if before.kinds is None else int(before.kinds[k])
            begin = float(when[k]) if recent[k] else t
            yield _Change(n, k, kind, float(x[k]), begin, bool(landed[k]))


def _decisions(
    trajectory: Trajectory, function: Piecewise
) -> tuple[list[tuple[Decisions, Decisions]], Array]:
    """Return what decides at both ends of each step, and the largest values of the run.

    Nothing of what has no branches.
    """
    steps = range(trajectory.n_steps)
    if not steps:
        return [], np.empty(0)
    first = [function.decide(*point_on_chord(trajectory, 0, 0.0))]
    # after an event, or on the other side of a breakpoint, other equations decide
    renewed = {crossing.step + 1 for crossing in trajectory.crossings}
    if trajectory.problem.breakpoints:
        renewed |= set(steps)
    if not _most(trajectory, first[0].values.size) and not renewed:
        return [], np.empty(0)
    last: list[Decisions] = []
    if function.along is not None and not renewed and not trajectory.thinned:
        last = list(function.along(trajectory.times[1:], trajectory.u[1:]))
        first += last[:-1]
    else:
        for n in steps:
            last.append(function.decide(*point_on_chord(trajectory, n, 1.0)))
            if n + 1 < trajectory.n_steps:
                begins = (
                    function.decide(*point_on_chord(trajectory, n + 1, 0.0))
                    if n + 1 in renewed
                    else None
                )
                first.append(begins or last[-1])
    return list(zip(first, last, strict=True)), largest_values([first[0], *last])


def _most(trajectory: Trajectory, count: int) -> int:
    """Return the largest of the ranks' numbers.  Collective."""
    comm = trajectory.problem.comm.tompi4py()
    return count if comm.size == 1 else max(comm.allgather(count))


def largest_values(decided: Sequence[Decisions]) -> Array:
    """Return the largest size of each of what decides at several points."""
    largest = np.zeros(max(decisions.values.size for decisions in decided))
    for decisions in decided:
        size = decisions.values.size
        largest[:size] = np.fmax(largest[:size], np.abs(decisions.values))
    return largest


def signs_of(values: Array, largest: Array) -> Array:
    """Return -1, 0 or 1 for each of ``values`` [..., B]: 0 where it is but rounding."""
    return np.where(np.abs(values) <= ON_THE_KINK * largest, 0.0, np.sign(values))


def jumps_at_states(trajectory: Trajectory, function: Piecewise) -> Iterator[float]:
    """Yield the times of states at which a branch changes and the function jumps.

    An event, or a step that happens to end there, has it evaluated on either side by chance.
    Breakpoints are evaluated on the side of the step.
    """
    ends, largest = _decisions(trajectory, function)
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
        rounding = 1e-9 * max(np.max(np.abs(state)) for state in at)
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


def _bisected(changed: Callable[[float], bool], low: float) -> float:
    """Return where on the chord of a step, from ``low`` on, what decides has changed."""
    high = 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if changed(middle):
            high = middle
        else:
            low = middle
    return high


def _slope_jump(function: Callable[[float], Array], place: float) -> tuple[float, bool, bool]:
    """Return by how much the slope in [0, 1] jumps at a place, and whether the function does.

    The last one tells whether the slope of the slope has no bound there, as that of |x|^1.5.
    """
    jumps, bends, slopes = [], [], []
    changed = np.abs(function(1.0) - function(0.0))
    for side in (SIDE, SIDE / NEARER, SIDE / NEARER**2):
        # a slope on each side of the place, which itself is left out
        at = [function(place + k * side) for k in (-2, -1, 1, 2)]
        left, right = (at[1] - at[0]) / side, (at[3] - at[2]) / side
        # differences of numbers of this size leave so much, divided by the distance
        rounding = 1e-13 * max(np.abs(state).max(initial=0.0) for state in at) / side
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


def point_on_chord(trajectory: Trajectory, n: int, place: float) -> tuple[int, float, Array]:
    """Return the number of a step, and time and state on its chord."""
    before, after = read(trajectory.stored[n]), read(trajectory.stored[n + 1])
    start, h = float(trajectory.times[n]), float(trajectory.step_sizes[n])
    t = trajectory.problem.inside(start + place * h, start, h) if h else start
    return n, t, (1.0 - place) * before + place * after
