"""What a run evaluates, and where branches of it change sides inside the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.branches import Branches, Decisions
from daeosens.problem.delays import Delays
from daeosens.timestepping.delayed_steps import delayed_states
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

NEARER = 8.0
"""Slopes are taken a second time so many times nearer: what a kink makes of them is as large there,
that of a function which is only bent is not."""

LASTS = 0.7
"""Part of a difference that lasts nearer to a kink; of one like |x|^a only 8^-a does."""

JUMP = 1e-3
"""Slopes that differ by a larger part of themselves, or of the change in a step, are a kink's."""

MARGIN = 30.0
"""How many times what moves by rounding change is taken for rounding."""


@dataclass(frozen=True)
class Piecewise:
    """A function of (n, t, u) in step n of a run, and what decides in it.

    F takes the rate as well, that of ``rate_in`` where it is not given.
    """

    decide: Callable[..., Decisions]
    value: Callable[..., Array]
    along: Callable[[Array, Array], Sequence[Decisions]] | None = None
    """What decides at times t [K] and states u [K, n], where that is the same in all steps."""


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

    branches = trajectory.problem.branches
    if not isinstance(branches, Branches) or trajectory.problem.form == "residual":
        return Piecewise(decide, value)
    # events may change the equations: those of a mode, or the parameters
    if trajectory.problem.modes or _events_change_parameters(trajectory):
        return Piecewise(decide, value)

    def along(t: Array, u: Array) -> Sequence[Decisions]:
        return branches.along(t, u, np.asarray(trajectory.p), in_time=in_time)

    return Piecewise(decide, value, along)


def changed_by_rounding(
    function: Piecewise, rng: np.random.Generator, n: int, t: float, u: Array, side: float
) -> Array:
    """Return what rounding may leave in each component [n] of a function.

    Components have units of their own, and what is left of terms that cancel has the rounding of
    these: it shows where time, to a ``side``, and state are moved by some units in the last place.
    The state is moved in opposite directions: what one of them makes may cancel what the time does.
    """
    unit = 4.0 * np.finfo(float).eps
    signs, here = rng.choice([-1.0, 1.0], u.size), function.value(n, t, u)
    left: Array = np.zeros(here.size)
    for direction in (signs, -signs):
        beside = function.value(n, t * (1.0 + side * unit), u * (1.0 + unit * direction))
        left = np.maximum(left, MARGIN * np.abs(beside - here))
    return left


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

    def decide(n: int, t: float, u: Array, _rate: Array | None = None) -> Decisions:
        return scalar.branches(t, u, np.asarray(parameters(n)), in_time=in_time)

    branches = scalar.branches
    if not isinstance(branches, Branches) or _events_change_parameters(trajectory):
        return Piecewise(decide, value)

    def along(t: Array, u: Array) -> Sequence[Decisions]:
        return branches.along(t, u, np.asarray(trajectory.p), in_time=in_time)

    return Piecewise(decide, value, along)


def _events_change_parameters(trajectory: Trajectory) -> bool:
    return any(not np.array_equal(crossing.p, trajectory.p) for crossing in trajectory.crossings)


class BranchChange(NamedTuple):
    """The step in which a branch changes, where in it, the rank that has it, and its number there.

    The place is in [0, 1], or a little before where the step begins on the kink.
    """

    step: int
    place: float
    rank: int
    number: int


def branch_changes(
    trajectory: Trajectory,
    function: Piecewise,
    elsewhere: Set[int] = frozenset(),
    at_ends: str = "too",
    *,
    every: bool = False,
) -> Iterator[BranchChange]:
    """Yield where branches change inside of steps, but for steps of events and those ``elsewhere``.

    ``at_ends`` says whether changes where a step ends just on a kink are meant ``"too"``,
    ``"never"``, or ``"alone"``; ``every`` that of many changes none is left out.  Collective.
    """
    comm, times, sizes = (
        trajectory.problem.comm.tompi4py(),
        trajectory.times,
        trajectory.step_sizes,
    )
    left_out = set(elsewhere) | {crossing.step for crossing in trajectory.crossings}
    # times are no larger than what they were made of, the first one and those before: shortly after
    # a start at zero, steps of 1e-15 are steps
    short = NOTHING * np.maximum(np.abs(times[1:]), abs(float(times[0])))
    left_out |= set(np.flatnonzero(sizes <= short).tolist())
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
        often = changes[change.kind] > OFTEN and not every
        if often and changes[change.kind] & (changes[change.kind] - 1):
            continue
        if change.landed:
            yield BranchChange(n, 0.0, rank, k)
            continue

        def changed(place: float, n: int = n, k: int = k, x: float = x, rank: int = rank) -> bool:
            here = function.decide(*point_on_chord(trajectory, n, place))
            if k >= here.values.size:
                return of_rank(comm, rank, value=True)
            number = float(here.values[k])
            other = number != x if here.whole[k] else (number > 0.0) != (x > 0.0)
            return of_rank(comm, rank, other)

        low = (change.off - float(times[n])) / float(sizes[n])
        yield BranchChange(n, _bisected(changed, low), rank, k)


def of_rank(comm: Any, rank: int, value: bool) -> bool:
    """Return what is true on a rank.  Collective."""
    return value if comm.size == 1 else comm.bcast(value, rank)


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
    ends, largest = decisions_at_ends(trajectory, function)
    if not largest.size:  # nothing decides in the equations
        return
    jumped = _where_delayed_states_jump(trajectory)
    off, when = np.empty(0), np.empty(0)  # the last values that were off the kink, and their times
    for n, (before, after) in enumerate(ends):
        t = float(trajectory.times[n])
        # after a branch that changed, others are compared: that one stands among the common ones
        count = min(before.values.size, after.values.size)
        small = ON_THE_KINK * largest[:count]
        x, y = before.values[:count], after.values[:count]
        if n in jumped:
            off, when = np.empty(0), np.empty(0)
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
            off, when = np.empty(0), np.empty(0)  # what jumps there is no branch
            continue
        change = (x * y < 0.0) & (np.abs(x) > small) & (np.abs(y) > small)
        change = np.where(before.whole[:count], x != y, change) & (at_ends != "alone") | landed
        if before.moves is not None:
            change &= before.moves[:count]
        for k in np.flatnonzero(change).tolist():
            kind = k if before.kinds is None else int(before.kinds[k])
            begin = float(when[k]) if recent[k] else t
            yield _Change(n, k, kind, float(x[k]), begin, bool(landed[k]))


def decisions_at_ends(
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
    renewed |= _where_delayed_states_jump(trajectory)
    if trajectory.problem.breakpoints:
        renewed |= set(steps)
    if not _most(trajectory, first[0].values.size) and not renewed:
        return [], np.empty(0)
    last: list[Decisions] = []
    if function.along is not None and not trajectory.thinned:
        times, states = trajectory.times[1:], trajectory.u[1:]
        again = [n for n in steps[1:] if n in renewed]
        if again:
            # both ends of steps, and the beginnings of those that begin with other states
            points = [point_on_chord(trajectory, n, 1.0) for n in steps]
            points += [point_on_chord(trajectory, n, 0.0) for n in again]
            times, states = np.array([t for _, t, _ in points]), np.array([u for *_, u in points])
        decided = list(function.along(times, states))
        last = decided[: len(steps)]
        first += last[:-1]
        for n, begins in zip(again, decided[len(steps) :], strict=True):
            first[n] = begins
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


def _where_delayed_states_jump(trajectory: Trajectory) -> set[int]:
    """Return the numbers of the states at which what is delayed may see that of an event.

    Steps end there and move with it: what decides may change its side without a loss.
    """
    if trajectory.problem.delays is None or not trajectory.crossings:
        return set()
    return set(trajectory.report.breaking)


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


def point_on_chord(trajectory: Trajectory, n: int, place: float) -> tuple[int, float, Array]:
    """Return the number of a step, and time and state on its chord."""
    before, after = read(trajectory.stored[n]), read(trajectory.stored[n + 1])
    start, h = float(trajectory.times[n]), float(trajectory.step_sizes[n])
    t = trajectory.problem.inside(start + place * h, start, h) if h else start
    return n, t, (1.0 - place) * before + place * after
