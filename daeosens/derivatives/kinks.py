"""Kinks and jumps of equations and costs between two steps, which derivatives do not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from daeosens.costs.cost import Cost, Scalar
from daeosens.derivatives.looks import Looks, is_due
from daeosens.errors import DaeosensError, KinkWarning, warn
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.branches import Decisions
from daeosens.problem.problem import Problem
from daeosens.problem.problem_cache import ProblemCache
from daeosens.timestepping.trajectory.trajectory import Trajectory

_AT_EQUATIONS = Looks()


@dataclass
class _Seen:
    """What looks at runs of a problem have seen."""

    equations_jump: bool = False
    branches_change: bool = False


_SEEN = ProblemCache(_Seen)


def equations_jump(problem: Problem) -> bool:
    """Whether a run of the problem has met a jump of its equations."""
    return _SEEN.of(problem).equations_jump


ON_THE_KINK = 1e-12
"""What a branch compares is zero where it is this small beside its largest value in the run."""

OFTEN = 8
"""A comparison that changes its sign more often is looked at ever more rarely."""

NOTHING = 1e-12
"""Part of a run that steps between two roundings of one time are shorter than."""

SIDE = 1e-5
"""Distance from a kink, as a part of the step, at which slopes on its sides are taken."""

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

LOST = 0.02
"""Part of a gradient that the quadrature of kinks may lose without a word."""

_LOOKS: WeakKeyDictionary[object, int] = WeakKeyDictionary()
"""How often the costs of a function were looked at."""


def warn_of_kinks(trajectory: Trajectory, cost: Cost | None = None) -> None:
    """Warn where f, a running cost or their derivatives jump inside a step.

    A product with the Hessian differentiates the steps that were taken, each on its branch of f.
    Where f_u jumps between two states, the exact second derivative has a term from the moving time
    of the crossing that no step contains; an event there brings it in.  Not collective: problems
    whose branches are known are on one rank.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    cost : Cost, optional
        That whose Hessian is multiplied.
    """
    _warn_of_passed_jumps(trajectory)
    for place in _places(trajectory, _equations(trajectory)):
        what, then = "a kink or jump", "lack what the moving time of that change contributes"
        if not place.kink and not place.jump:
            what, then = "no bounded second derivative", "may be far off"
        _warn(
            f"the equations have {what} near t = {place.time:.6g}, where a branch, abs, maximum or "
            f"the like changes sides between two steps: products with the Hessian {then}\n"
            "  try: an event there, events=[daeosens.Event(lambda t, u, p: <what changes its "
            "sign>)], or a smooth function in its place"
        )
        return
    for scalar, _ in _known(trajectory, () if cost is None else cost.densities):
        for place in _places(trajectory, _density(trajectory, scalar)):
            _warn(
                f"the running cost has a kink or jump near t = {place.time:.6g}, where a branch, "
                "abs, maximum or the like changes sides between two steps: products with the "
                "Hessian lack what the moving time of that change contributes\n"
                "  try: an event of the problem there, events=[daeosens.Event(lambda t, u, p: "
                "<what changes its sign>)], or a smooth cost"
            )
            return
    if cost is not None:
        _warn_on_kinks(trajectory, cost, second=True)


def warn_of_jumps(trajectory: Trajectory, costs: Sequence[Cost] = ()) -> None:
    """Warn where f or a running cost jumps inside a step, where gradients lack a term.

    It looks at the first run of a problem and the first gradient of a cost, then ever more rarely:
    runs of one problem resemble each other, and a look costs an evaluation at each state.
    """
    seen = _SEEN.of(trajectory.problem)
    if _known_equations(trajectory.problem):
        count = _AT_EQUATIONS.count(trajectory.problem)
        # where branches change sides, later runs may meet others: the 2nd, the 4th, ... as well
        if is_due(count) or (seen.branches_change and not count & (count - 1)):
            for place in _places(trajectory, _equations(trajectory)):
                if place.jump:
                    seen.equations_jump = True  # no error of steps is known there
                    _warn(
                        f"the equations jump near t = {place.time:.6g}, where a branch changes "
                        "sides between two steps: derivatives lack what the time of that change "
                        "contributes where it moves\n"
                        "  try: an event there that changes the mode, daeosens.hybrid; "
                        "breakpoints= for a jump at a time that is known; a smooth function"
                    )
                    break
            else:
                _warn_of_passed_jumps(trajectory)
    for cost in costs:
        if cost.densities:
            _warn_of_densities(trajectory, cost)
        _warn_on_kinks(trajectory, cost, second=False)


def _warn_of_passed_jumps(trajectory: Trajectory) -> None:
    """Warn where f jumps in t alone inside a step that moves with the time of an event.

    Where steps stay where they are such a jump does too, and derivatives lack nothing.  Times that
    follow an event pass it, and as much of the run is on its other side.
    """
    problem = trajectory.problem
    moving = [record.timed for record in trajectory.records]
    if not any(moving) or not _known_equations(problem) or problem.comm.size > 1:
        return
    fixed = {n for n, moves in enumerate(moving) if not moves}
    for place in _places(trajectory, _equations(trajectory, in_time=True), fixed):
        if place.jump:
            _SEEN.of(problem).equations_jump = True
            _warn(
                f"the equations jump near t = {place.time:.6g} inside a step that follows an event "
                "and moves with its time: gradients lack what passes from one side of that jump "
                "to the other\n"
                "  try: breakpoints= at the times at which the equations jump: a table read by "
                "int(t), a switch"
            )
            return


def _warn(message: str) -> None:
    warn(message, KinkWarning)


def _looked(function: object) -> bool:
    """Count a look at a cost, and return whether it is due."""
    try:
        count = _LOOKS[function] = _LOOKS.get(function, 0) + 1
    except TypeError:  # what cannot be referred to weakly
        return True
    return is_due(count)


def _known(
    trajectory: Trajectory, weighted: Sequence[tuple[float, Scalar]]
) -> list[tuple[Any, float]]:
    """Return the scalars whose branches are known, with their weights."""
    if trajectory.problem.comm.size > 1:
        return []
    pairs = [(scalar, weight) for weight, scalar in weighted]
    return [pair for pair in pairs if getattr(pair[0], "branches", None) is not None]


def _warn_of_densities(trajectory: Trajectory, cost: Cost) -> None:
    """Warn where a running cost jumps inside a step, or where its kinks are too much for it."""
    for scalar, _ in _known(trajectory, cost.densities):
        if not _looked(scalar.branches.function):
            continue
        density = _density(trajectory, scalar, in_time=True)
        lost, last = 0.0, 0.0
        for place in _places(trajectory, density):
            if place.jump:
                _warn(
                    f"the running cost jumps near t = {place.time:.6g}, where a branch changes "
                    "sides between two steps: its integral is off by as much as that step counts, "
                    "and derivatives lack what the time of that change contributes where it moves\n"
                    "  try: breakpoints= for a time that is known; else an unknown of its own for "
                    "the integral, whose rate depends on the mode, daeosens.hybrid"
                )
                return
            lost, last = lost + 0.5 * place.kink, place.time
        for time in _jumps_at_states(trajectory, density):
            _warn(
                f"the running cost jumps at t = {time:.6g}, where a step ends: there it is taken "
                "from either side by chance, and its integral is off by as much as an end of a "
                "step counts\n"
                "  try: breakpoints= for a time that is known; else an unknown of its own for the "
                "integral, whose rate depends on the mode, daeosens.hybrid"
            )
            return
        if not lost:
            continue
        values = [density.value(*_point(trajectory, n, 0.0)) for n in range(trajectory.n_steps)]
        part = lost / (float(np.sum(np.abs(np.diff(values, axis=0)))) + lost)
        if part > LOST:
            _warn(
                f"the running cost has a kink inside a step near t = {last:.6g}, where a branch, "
                f"abs, maximum or the like changes sides: its gradient may be off by "
                f"{100 * part:.0f} %, because the quadrature of the step is for smooth functions\n"
                "  try: an event of the problem there, events=[daeosens.Event(lambda t, u, p: "
                "<what changes its sign>)]; breakpoints= for a time that is known, or smaller "
                "vectors"
            )


# -- kinks inside of steps


@dataclass(frozen=True)
class _Piecewise:
    """A function of (t, u) in step n of a run, and what decides in it."""

    decide: Callable[[int, float, Array], Decisions]
    value: Callable[[int, float, Array], Array]


@dataclass(frozen=True)
class _Place:
    """Where a slope jumps or is sharp, by how much in a step, and whether the function jumps."""

    time: float
    kink: float
    jump: bool
    sharp: bool


def _known_equations(problem: Problem) -> bool:
    """Whether anything is known of branches of the equations, in one of their modes at least."""
    return any(mode.branches is not None for mode in (problem.modes or {"": problem}).values())


def _equations(trajectory: Trajectory, in_time: bool = False) -> _Piecewise | None:
    """Return f, or F at the rate of each step; None where nothing is known of its branches."""
    if not _known_equations(trajectory.problem):
        return None
    modes, parameters = trajectory.problem.modes, trajectory.parameters
    create = trajectory.problem.create_state
    state, out, moved = create(), create(), create()

    def equations(n: int) -> Problem:
        mode = trajectory.records[n].mode if trajectory.records else trajectory.first_mode
        return modes.get(mode, trajectory.problem)

    def rate_of(n: int) -> Array:
        h = float(trajectory.step_sizes[n]) or 1.0
        return (read(trajectory.stored[n + 1]) - read(trajectory.stored[n])) / h

    def decide(n: int, t: float, u: Array) -> Decisions:
        problem, p = equations(n), np.asarray(parameters(n))
        if problem.branches is None:
            return Decisions.none()
        rates = [rate_of(n)] * (problem.form == "residual")
        return problem.branches(t, u, p, *rates, in_time=in_time)

    def value(n: int, t: float, u: Array) -> Array:
        problem = equations(n)
        write(state, u)
        if problem.form == "residual":
            write(moved, rate_of(n))
            problem.residual(t, state, moved, parameters(n), out)
        else:
            problem.rhs(t, state, parameters(n), out)
        return read(out).copy()

    return _Piecewise(decide, value)


def _density(trajectory: Trajectory, scalar: Any, in_time: bool = False) -> _Piecewise:
    """Return a running cost."""
    state, parameters = trajectory.problem.create_state(), trajectory.parameters

    def value(n: int, t: float, u: Array) -> Array:
        write(state, u)
        return np.array([scalar.value(t, state, parameters(n))])

    def decide(n: int, t: float, u: Array) -> Decisions:
        return scalar.branches(t, u, np.asarray(parameters(n)), in_time=in_time)

    return _Piecewise(decide, value)


def _places(
    trajectory: Trajectory, function: _Piecewise | None, elsewhere: Set[int] = frozenset()
) -> Iterator[_Place]:
    """Yield where a function or its slope jumps inside of steps, but for those ``elsewhere``."""
    if function is None:
        return
    left_out = set(elsewhere) | {crossing.step for crossing in trajectory.crossings}
    short = NOTHING * float(trajectory.times[-1] - trajectory.times[0])
    left_out |= set(np.flatnonzero(trajectory.step_sizes <= short).tolist())
    for n, place in _crossings(trajectory, function, left_out):
        _SEEN.of(trajectory.problem).branches_change = True
        sides = _sides(lambda x, n=n: function.value(*_point(trajectory, n, x)), place)
        if any(sides):
            time = float(trajectory.times[n] + place * trajectory.step_sizes[n])
            yield _Place(time, *sides)


def _crossings(
    trajectory: Trajectory, function: _Piecewise, left_out: set[int]
) -> Iterator[tuple[int, float]]:
    """Yield the steps inside of which a branch changes, with the place in the step in [0, 1]."""
    looks: dict[int, int] = {}
    ends, largest = _decisions(trajectory, function)
    for n, (before, after) in enumerate(ends):
        if n in left_out:
            continue
        # after a branch that changed, others are compared: that one stands among the common ones
        count = min(before.values.size, after.values.size)
        small = ON_THE_KINK * largest[:count]
        x, y = before.values[:count], after.values[:count]
        change = (x * y < 0.0) & (np.abs(x) > small) & (np.abs(y) > small)
        for k in np.flatnonzero(np.where(before.whole[:count], x != y, change)).tolist():
            looks[k] = looks.get(k, 0) + 1
            if looks[k] > OFTEN and looks[k] & (looks[k] - 1):
                continue

            def changed(place: float, n: int = n, k: int = k, x: float = float(x[k])) -> bool:
                here = function.decide(*_point(trajectory, n, place))
                if k >= here.values.size:
                    return True
                number = float(here.values[k])
                return number != x if here.whole[k] else (number > 0.0) != (x > 0.0)

            yield n, _bisected(changed)


def _decisions(
    trajectory: Trajectory, function: _Piecewise
) -> tuple[list[tuple[Decisions, Decisions]], Array]:
    """Return what decides at both ends of each step, and the largest values of the run.

    Nothing of what has no branches.
    """
    steps = range(trajectory.n_steps)
    if not steps:
        return [], np.empty(0)
    first = [function.decide(*_point(trajectory, 0, 0.0))]
    # after an event, or on the other side of a breakpoint, other equations decide
    renewed = {crossing.step + 1 for crossing in trajectory.crossings}
    if trajectory.problem.breakpoints:
        renewed |= set(steps)
    if not first[0].values.size and not renewed:
        return [], np.empty(0)
    last: list[Decisions] = []
    for n in steps:
        last.append(function.decide(*_point(trajectory, n, 1.0)))
        if n + 1 < trajectory.n_steps:
            begins = function.decide(*_point(trajectory, n + 1, 0.0)) if n + 1 in renewed else None
            first.append(begins or last[-1])
    largest = np.zeros(max(end.values.size for end in (*first, *last)))
    for end in (first[0], *last):
        size = end.values.size
        largest[:size] = np.fmax(largest[:size], np.abs(end.values))
    return list(zip(first, last, strict=True)), largest


def _jumps_at_states(trajectory: Trajectory, function: _Piecewise) -> Iterator[float]:
    """Yield the times of states at which a branch changes and the function jumps.

    An event, or a step that happens to end there, has it evaluated on either side by chance.
    Breakpoints are evaluated on the side of the step.
    """
    ends, largest = _decisions(trajectory, function)
    decided = [ends[0][0], *(end for _, end in ends)] if ends else []
    common = min((end.values.size for end in decided), default=0)
    differences = [k for k in range(common) if not decided[0].whole[k]]
    if not differences:
        return
    table, largest = np.array([end.values[differences] for end in decided]), largest[differences]
    signs = np.where(np.abs(table) <= ON_THE_KINK * largest, 0.0, np.sign(table))
    on = np.flatnonzero((signs == 0.0).any(axis=1))
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
        if not np.any(signs[before] * signs[after + 1] < 0.0):
            continue
        if any(abs(t - jump) <= 1e-9 * abs(t) for jump in trajectory.problem.breakpoints):
            continue
        if not np.array_equal(read(trajectory.stored[before + 1]), read(trajectory.stored[after])):
            continue  # a reset, which jumps itself
        ends = [(before, 1 - 2 * SIDE), (before, 1 - SIDE), (after, SIDE), (after, 2 * SIDE)]
        at = [function.value(*_point(trajectory, *end)) for end in ends]
        bent = np.abs(at[1] - at[0]) + np.abs(at[3] - at[2])
        rounding = 1e-9 * max(np.max(np.abs(state)) for state in at)
        if np.any(np.abs(at[2] - at[1]) > 10.0 * bent + rounding):
            yield t


def _bisected(changed: Callable[[float], bool]) -> float:
    """Return where on the chord of a step what decides has changed."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if changed(middle):
            high = middle
        else:
            low = middle
    return high


def _sides(function: Callable[[float], Array], place: float) -> tuple[float, bool, bool]:
    """Return by how much the slope in [0, 1] jumps at a place, and whether the function does.

    The last one tells whether the slope of the slope has no bound there, as that of |x|^1.5.
    """
    if not 3 * SIDE < place < 1 - 3 * SIDE:
        return 0.0, False, False
    kinks, jumps, bends = [], [], []
    changed = np.abs(function(1.0) - function(0.0))
    for side in (SIDE, SIDE / NEARER):
        at = [function(place + k * side) for k in (-2, -1, 1, 2)]
        left, right = (at[1] - at[0]) / side, (at[3] - at[2]) / side
        rounding = 1e-13 * max(np.max(np.abs(state)) for state in at) / side
        size = JUMP * (np.abs(left) + np.abs(right) + changed) + rounding
        bends.append(np.where(np.abs(right - left) > BEND * size, np.abs(right - left), 0.0))
        kinks.append(np.where(np.abs(right - left) > size, np.abs(right - left), 0.0))
        jumps.append(
            np.where(np.abs(at[2] - at[1]) > 1e4 * side * size, np.abs(at[2] - at[1]), 0.0)
        )
    kink = np.where(kinks[1] > LASTS * kinks[0], kinks[1], 0.0)
    jump = bool(np.any((jumps[1] > LASTS * jumps[0]) & (jumps[1] > 0.0)))
    sharp = bool(np.any((bends[1] > SHARP * bends[0]) & (bends[1] > 0.0)))
    return float(np.max(kink)), jump, sharp


def _point(trajectory: Trajectory, n: int, place: float) -> tuple[int, float, Array]:
    """Return the number of a step, and time and state on its chord."""
    before, after = read(trajectory.stored[n]), read(trajectory.stored[n + 1])
    start, h = float(trajectory.times[n]), float(trajectory.step_sizes[n])
    t = trajectory.problem.inside(start + place * h, start, h) if h else start
    return n, t, (1.0 - place) * before + place * after


# -- states that are on a kink themselves


def _warn_on_kinks(trajectory: Trajectory, cost: Cost, second: bool) -> None:
    """Warn where a cost at a point is on a kink exactly: its derivative is that of one side."""
    looks: dict[int, bool] = {}
    for when, _, scalar in cost.points:
        branches = getattr(scalar, "branches", None)
        if branches is None or trajectory.problem.comm.size > 1:
            continue
        function = id(branches.function)
        if function not in looks:
            looks[function] = second or _looked(branches.function)
        if not looks[function]:
            continue
        t, state, p = trajectory.point(when)
        u, numbers = read(state), np.asarray(p)
        decided = branches(t, u, numbers)
        compared = decided.values[~decided.whole]
        if not decided.values.size:  # most likely it has no branches at all
            looks[function] = False
            continue
        sizes = np.concatenate([np.abs(u), np.abs(numbers), [0.0]])
        if np.any(np.abs(compared) <= ON_THE_KINK * np.max(sizes)) and _bent(
            trajectory.problem, scalar, (t, u, p), second
        ):
            order = "second derivatives are those" if second else "its gradient is that"
            _warn(
                f"a cost at t = {t:.6g} is evaluated exactly where a branch, abs, maximum or the "
                f"like changes sides: {order} of one side\n"
                "  try: another point, or a cost that is smooth there"
            )
            return


def _bent(problem: Problem, scalar: Scalar, point: tuple[float, Array, Any], second: bool) -> bool:
    """Return whether the gradient (or the second derivative) of a scalar jumps at a point."""
    t, u, p = point
    rng = np.random.default_rng(1)
    numbers = np.asarray(p, dtype=float)
    along_u = rng.uniform(0.5, 1.0, u.size) * _scale(u)
    along_p = rng.uniform(0.5, 1.0, numbers.shape) * _scale(numbers)
    state = problem.create_state()

    def at(x: float) -> float:
        write(state, u + x * along_u)
        return scalar.value(t, state, numbers + x * along_p)

    kinks = []
    for side in (1e-3, 1e-3 / NEARER):
        try:
            left = [at(-k * side) for k in (1, 2, 3)]
            right = [at(k * side) for k in (1, 2, 3)]
        except DaeosensError:  # a logarithm, say: nothing can be said
            return False
        slopes = [(values[1] - values[0]) / side for values in (left, right)]
        size, rounding = max(map(abs, left + right)), 1e-14
        if second:
            bends = [(values[2] - 2 * values[1] + values[0]) / side**2 for values in (left, right)]
            difference, noise = abs(bends[1] - bends[0]), rounding * size / side**2
        else:
            difference, noise = abs(slopes[1] + slopes[0]), rounding * size / side
        kinks.append(difference if difference > noise else 0.0)
    return bool(kinks[1] > LASTS * kinks[0] and kinks[1] > 0.0)


def _scale(values: Array) -> float:
    largest = float(np.max(np.abs(values))) if values.size else 0.0
    return largest or 1.0
