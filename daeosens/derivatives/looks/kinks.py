"""Kinks and jumps of the equations, which derivatives miss where branches change inside steps."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from daeosens.costs.cost import Cost
from daeosens.derivatives.branches.branch_changes import (
    LOCAL,
    SIDE,
    Piecewise,
    equations_of,
    point_on_chord,
    rate_in,
)
from daeosens.derivatives.branches.switch_times import (
    made_of_time,
    switch_times,
    times_of_change,
)
from daeosens.derivatives.looks.passed_jumps import (
    AT_A_STATE,
    moves_with_its_step,
    warn_of_passed_jumps,
)
from daeosens.derivatives.looks.seen import Seen, unseen_run
from daeosens.derivatives.looks.slope_jumps import (
    SlopeJump,
    Stretch,
    jumps_across,
    jumps_in_time_alone,
    slope_jumps,
)
from daeosens.derivatives.sweeps.kink_terms import (
    LONGER,
    KinkTerm,
    admits_terms,
    jump_of_derivatives,
    kink_term,
    short_step,
)
from daeosens.errors import KinkWarning, warn
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.branches import Decisions
from daeosens.timestepping.trajectory.trajectory import Trajectory

AT_ONCE = 1e-6
"""Part of a step by which changes are apart that are at one time."""

DIRECTIONS = 3
"""So many random ones leave a run to tell whether kinks beside it cancel as they do along it."""

NEARBY = 1e-6
"""Part of a parameter that it moves by, to tell whether it is the time of a change."""

TOGETHER = 1e-6
"""Part of what a time changes by in a decision that is left where a parameter moves as far."""

MOVES = 1e-4
"""Part of a parameter's size, at least, that moves a time which depends on it by as much."""

FAR, LITTLE, WIDE = 1e-3, 1e-6, 10.0
"""Lengths of these: parts of the numbers, at least, and multiples of what changes in the step."""


def warn_of_jumps(trajectory: Trajectory, _costs: Sequence[Cost], seen: Seen) -> None:
    """Warn where f jumps inside a step: gradients lack a term there."""
    seen.kink_left = None
    short = short_step(trajectory)
    function = equations_of(trajectory)
    if function is None:
        return
    for change in _that_may_move(trajectory, function, slope_jumps(trajectory, function, seen)):
        n = int(np.searchsorted(trajectory.times, change.time)) - 1
        size = trajectory.step_sizes[min(max(n, 0), trajectory.n_steps - 1)]
        # adaptive steps end at other kinks; those of delay equations at max(x, 0)^0.75 too, whose
        # slopes have no bound: the steps beside it do not resolve derivatives
        if size > short or trajectory.problem.delays is not None:
            seen.kink_left = change.time
        # where f jumps at a moving time t*, the exact derivative has a term (f+ - f-) dt*, which no
        # step that crosses t* contains; of a kink only the second derivative has one
        if change.jump:
            seen.equations_jump = True  # no error of steps is known there
            _warn(
                trajectory,
                f"the equations jump near t = {change.time:.6g}, where a branch changes "
                "sides between two steps: derivatives lack what the time of that change "
                "contributes where it moves\n"
                f"  try: {_remedy_of_jump(trajectory, change)}; a smooth function",
            )
            return
    for change in _at_breakpoints_that_stay(trajectory, function):
        if change.jump:
            seen.equations_jump = True
            _warn_of_breakpoint(trajectory, change, "jump", "derivatives")
            return
    warn_of_passed_jumps(trajectory, seen)


def _at_breakpoints_that_stay(trajectory: Trajectory, function: Piecewise) -> Iterator[SlopeJump]:
    """Yield what jumps at breakpoints, which are numbers, and at times that parameters move.

    Steps end there, and stay there where the jump moves: that of ``t < p[0]`` is in none of them.
    """
    known = trajectory.problem.breakpoints
    if not known:
        return
    still = {switch.key for switch in made_of_time(trajectory, fixed=True).switches}
    moved = [switch for switch in made_of_time(trajectory).switches if switch.key not in still]
    times, last = times_of_change(trajectory, moved), trajectory.n_steps - 1
    for time in known:
        if not np.any(np.abs(times - time) <= AT_A_STATE * abs(time)):
            continue
        before_it = time - AT_A_STATE * abs(time)
        step = min(max(int(np.searchsorted(trajectory.times, before_it)) - 1, 0), last)
        (n, _, u), h = point_on_chord(trajectory, step, 1.0), float(trajectory.step_sizes[step])

        def point(x: float, time: float = time, n: int = n, u: Array = u, h: float = h) -> Any:
            return n, time + (x - 0.5) * h, u

        before, after = (function.decide(*point(x)).values for x in (0.5 - SIDE, 0.5 + SIDE))
        common = min(before.size, after.size)
        changed = before[:common] * after[:common] < 0.0
        slopes = np.abs(after[:common] - before[:common]) / (2.0 * SIDE * h)
        least = MOVES * abs(time) * slopes
        changed &= _moved_by(trajectory, step, time, u, common) > least
        if changed.any():
            sides = jumps_across(function, Stretch(point, 0.5))
            number = int(np.argmax(changed))
            yield SlopeJump(time, *sides, timed=True, step=step, number=number)


def _moved_by(trajectory: Trajectory, step: int, time: float, u: Array, count: int) -> Array:
    """Return how much parameters move each of what decides at a time, by their own size."""
    (equations, p), none = trajectory.equations(step), np.zeros(count)
    branches = equations.branches
    if branches is None or not isinstance(p, np.ndarray) or trajectory.problem.delays is not None:
        return none + np.inf  # it is taken for granted
    sizes, value = np.where(p == 0.0, abs(time), np.abs(p)), branches(time, u, p).values
    moved = none
    for k, size in enumerate(sizes):
        dp = NEARBY * size * (np.arange(p.size) == k)
        beside = branches(time, u, p + dp).values
        if min(beside.size, value.size) >= count:
            moved = np.fmax(moved, np.abs(beside - value)[:count] / NEARBY)
    return moved


def _warn_of_breakpoint(trajectory: Trajectory, change: SlopeJump, does: str, lack: str) -> None:
    if trajectory.problem.delays is None:
        remedy = _remedy_of_jump(trajectory, change).partition(";")[0]
    else:
        remedy = "breakpoints= without it where it is another plus a delay: steps end there anyway"
    _warn(
        trajectory,
        f"the equations {does} at t = {change.time:.6g}, where a breakpoint is a number, and move "
        f"this time with their parameters: {lack} lack what it contributes\n  try: {remedy}",
    )


def _that_may_move(
    trajectory: Trajectory, function: Piecewise, changes: Iterable[SlopeJump]
) -> Iterator[SlopeJump]:
    """Yield changes but for jumps of f at times that nothing moves, or that move with steps."""
    stay = not (trajectory.records or trajectory.problem.delays)
    fixed: Array | None = None
    for change in changes:
        if change.jump and stay:
            fixed = switch_times(trajectory, fixed=True) if fixed is None else fixed
            if jumps_in_time_alone(trajectory, function, change, fixed):
                continue
        if change.jump and moves_with_its_step(trajectory, change.time):
            continue
        yield change


def _remedy_of_jump(trajectory: Trajectory, change: SlopeJump) -> str:
    known = "breakpoints= for a jump at a time that is known"
    if trajectory.problem.delays is not None:  # which have no events
        return known
    # an event alone would end a step there, some of whose stages see the other side
    return (
        "a mode for each side, of equations without the branch, "
        'daeosens.hybrid({"before": ..., "after": ...}, "before", '
        f'[daeosens.Event({_when(trajectory, change)}, mode="after")]); {known}'
    )


def _when(trajectory: Trajectory, change: SlopeJump) -> str:
    """Return what an event at a change of sides looks at, as users write it."""
    if not change.timed:
        return "lambda t, u, p: <what changes its sign>"
    name = _time_parameter(trajectory, change)
    return "lambda t, u, p: t - <its time>" if name is None else f'"{name}"'


def _time_parameter(trajectory: Trajectory, change: SlopeJump) -> str | None:
    """Return the name of the parameter that the time of a change is; None if it is no single one.

    What decides is then the same where the time and the parameter move together.  Of several ranks
    and of fields it is not looked for.
    """
    (equations, _), problem = trajectory.equations(change.step), trajectory.problem
    branches, p = equations.branches, trajectory.parameters(change.step)
    if branches is None or problem.comm.size > 1 or not isinstance(p, np.ndarray):
        return None
    _, t, u = point_on_chord(trajectory, change.step, 0.5)

    def decided(dt: float, dp: Array) -> float:
        values = branches(t + dt, u, p + dp).values
        return float(values[change.number]) if change.number < values.size else np.nan

    value, sizes = decided(0.0, 0.0 * p), NEARBY * np.where(p == 0.0, t, np.abs(p))
    moves = np.diag(sizes)
    # a part that is not in it leaves all of its digits
    numbers = np.flatnonzero([decided(0.0, move) != value for move in moves])
    if numbers.size != 1:
        return None
    (k,) = numbers.tolist()
    late, together = (decided(float(sizes[k]), dp) - value for dp in (0.0 * p, moves[k]))
    if not abs(together) <= TOGETHER * abs(late):
        return None
    return problem.parameter_names[k]


def warn_of_kinks(trajectory: Trajectory, seen: Seen) -> tuple[list[KinkTerm], bool]:
    """Warn where f or its derivatives jump inside a step.

    A product with the Hessian differentiates the steps that were taken, each on its branch of f.
    Where f_u jumps between two states, the exact second derivative has a term from the moving time
    of the crossing that no step contains.  It is returned where it can be had; otherwise an event
    there brings it in, which is told: that is returned as well.  Collective.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    seen : Seen
        What is known of runs of the problem.
    """
    warn_of_passed_jumps(trajectory, seen)
    known, change = _kink_terms(trajectory, seen)
    function = equations_of(trajectory) if change is None else None
    if function is not None:
        for stays in _at_breakpoints_that_stay(trajectory, function):
            if stays.jump or stays.kink:
                does = "jump" if stays.jump else "have a kink"
                _warn_of_breakpoint(trajectory, stays, does, "products with the Hessian")
                return known, True
    if change is None:
        return known, False
    if not (change.kink or change.jump or change.sharp):
        _warn(
            trajectory,
            f"two branches of the equations change sides at once near t = {change.time:.6g}: "
            "along this run their kinks cancel, and beside it they do not, so products with "
            "the Hessian lack what the moving times of these changes contribute\n"
            "  try: other parameters, or one smooth function in the place of both",
        )
        return known, True
    # a kink of f is a jump of f_u: first derivatives are right, second ones lack its term
    what = "a jump" if change.jump else "a kink"
    then = "lack what the moving time of that change contributes"
    if not change.kink and not change.jump:
        what, then = "no bounded second derivative", "may be far off"
    remedy = f"an event there, events=[daeosens.Event({_when(trajectory, change)})]"
    if change.jump:
        remedy = _remedy_of_jump(trajectory, change)
    _warn(
        trajectory,
        f"the equations have {what} near t = {change.time:.6g}, where a branch, abs, maximum "
        f"or the like changes sides between two steps: products with the Hessian {then}\n"
        f"  try: {remedy}; or a smooth function in its place",
    )
    return known, True


def _kink_terms(trajectory: Trajectory, seen: Seen) -> tuple[list[KinkTerm], SlopeJump | None]:
    """Return what kinks of f add to second derivatives, and the first of those without a term."""
    function, every = equations_of(trajectory), admits_terms(trajectory)
    if function is None:
        return [], None
    jumps = slope_jumps(trajectory, function, seen, every=every, silent=True)
    changes, hidden = _those_that_cancel(trajectory, _that_may_move(trajectory, function, jumps))
    if not every:
        return [], next(iter([*changes, *hidden]), None)
    by_step: dict[int, list[SlopeJump]] = {}
    for change in changes:
        by_step.setdefault(change.step, []).append(change)
    known: list[KinkTerm] = []
    missing: list[SlopeJump] = []
    for n, together in by_step.items():
        plain = all(change.kink > 0.0 and not change.jump for change in together)
        # surfaces that are crossed at one time look like one, with another term
        plain = plain and _one_surface(trajectory, together)
        term = kink_term(trajectory, _where_it_jumps(trajectory, n, by_step)) if plain else None
        if term is None:
            missing.append(together[0])
        else:
            known.append(term)
    return known, next(iter([*missing, *hidden]), None)


def _where_it_jumps(trajectory: Trajectory, n: int, taken: Container[int]) -> int:
    """Return the step, n or one beside it that is not taken, in which derivatives jump.

    A kink that lies on an end of a step, to rounding, is in either of two.
    """
    if jump_of_derivatives(trajectory, n):
        return n
    beside = [k for k in (n - 1, n + 1) if 0 <= k < trajectory.n_steps and k not in taken]
    jumps = {k: jump_of_derivatives(trajectory, k) for k in beside}
    return max(jumps, key=jumps.__getitem__) if any(jumps.values()) else n


def _in_short_steps(
    trajectory: Trajectory, jumping: Iterable[SlopeJump], silent: Iterable[SlopeJump]
) -> Iterator[SlopeJump]:
    """Yield changes where something jumps, of short steps as derivatives on both sides tell it.

    Where a run begins just before a kink, all steps around it are short, and rounding hides it from
    differences of f.  What decides may be zero to rounding behind a short step, and seems to change
    in the next one.
    """
    short = LONGER * short_step(trajectory)
    for change in jumping:
        n, behind = change.step, change.time - float(trajectory.times[change.step])
        landed = n > 0 and trajectory.step_sizes[n] > short and behind <= short
        before = landed and not change.jump and jump_of_derivatives(trajectory, n - 1) > 0.0
        yield replace(change, step=n - 1) if before else change
    for change in silent:
        kink = jump_of_derivatives(trajectory, change.step)
        if kink:
            yield replace(change, kink=kink)


def _those_that_cancel(
    trajectory: Trajectory, changes: Iterable[SlopeJump]
) -> tuple[list[SlopeJump], list[SlopeJump]]:
    """Return changes where something jumps, and the first of others that cancel along the run.

    Two branches that change sides at once, by surfaces that are different ones beside the run:
    ``max(u - a, 0) - max(b - u, 0)`` is a straight line where a = b.
    """
    jumping: list[SlopeJump] = []
    silent: list[SlopeJump] = []
    for change in changes:
        jumps = change.kink > 0.0 or change.jump or change.sharp
        (jumping if jumps else silent).append(change)
    loud = {change.step for change in jumping}
    for change, following in itertools.pairwise(silent):
        h = max(float(trajectory.step_sizes[change.step]), LOCAL * abs(change.time))
        at_once = change.step == following.step and abs(change.time - following.time) <= AT_ONCE * h
        if (
            at_once
            and change.step not in loud
            and not _one_surface(trajectory, [change, following])
            and _bends_beside(trajectory, change)
        ):
            return jumping, [change]
    if admits_terms(trajectory):
        jumping = list(_in_short_steps(trajectory, jumping, silent))
    return jumping, []


def _one_surface(trajectory: Trajectory, together: Sequence[SlopeJump]) -> bool:
    """Return whether changes in one step are of one surface, as a - b and b - a of ``minimum``."""
    equations, _ = trajectory.equations(together[0].step)
    branches, numbers = equations.branches, [change.number for change in together]
    if len(numbers) == 1 or branches is None:
        return len(numbers) == 1
    # beside the run, where different surfaces differ
    n, t, u = point_on_chord(trajectory, together[0].step, 0.5)
    u, p = (
        x * (1.0 + 1e-3 * np.cos(np.arange(x.size))) + 1e-6 * np.arange(1, x.size + 1)
        for x in (u, np.asarray(trajectory.parameters(n)))
    )
    values = branches(t, u, p).values
    return values.size > max(numbers) and bool(np.ptp(np.abs(values[numbers])) == 0.0)


def _bends_beside(trajectory: Trajectory, change: SlopeJump) -> bool:
    """Return whether slopes jump where a change is, in directions that leave the run.

    Beside a run, surfaces of kinks that cancel along it are apart.  How often a loop goes on to a
    limit of its own, as that of Newton's method in an equation of Kepler, leaves no kink anywhere.
    Of several ranks, and of delay equations, it is not known, and so taken for granted.
    """
    (problem, _), comm = trajectory.equations(change.step), trajectory.problem.comm
    if comm.size > 1 or problem.field_parameter or trajectory.problem.delays is not None:
        return True
    step, size = change.step, float(trajectory.step_sizes[change.step])
    (n, t, u), (*_, before), (*_, after) = (
        point_on_chord(trajectory, step, place)
        for place in ((change.time - float(trajectory.times[step])) / size, 0.0, 1.0)
    )
    p, state, out = (
        np.asarray(trajectory.parameters(n)),
        problem.create_state(),
        problem.create_state(),
    )
    rate = problem.create_state()
    if problem.form == "residual":
        write(rate, rate_in(trajectory, n, t))

    def value(_n: int, time: float, beside: Array) -> Array:
        write(state, beside[: u.size])
        if problem.form == "residual":
            problem.residual(time, state, rate, beside[u.size :], out)
        else:
            problem.rhs(time, state, beside[u.size :], out)
        return read(out).copy()

    function = Piecewise(lambda *_: Decisions.none(), value)
    point = np.concatenate([u, p])
    # far beside what is apart along the run that counts as at one time
    sizes = FAR * np.abs(point) + LITTLE
    sizes[: u.size] += WIDE * np.abs(after - before)
    rng = np.random.default_rng(1)
    for _ in range(DIRECTIONS):
        along = sizes * rng.uniform(0.3, 1.0, point.size) * rng.choice([-1.0, 1.0], point.size)
        chord = Stretch(lambda x, along=along: (n, t, point + (x - 0.5) * along), 0.5)
        bends = True  # where there is no value beside the run, the kinks are as they were found
        with unseen_run():
            bends = any(jumps_across(function, chord))
        if bends:
            return True
    return False


def _warn(trajectory: Trajectory, message: str) -> None:
    warn(message, KinkWarning, trajectory.problem.comm)
