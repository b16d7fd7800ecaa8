"""Kinks and jumps of equations and running costs, which derivatives miss; costs on a kink."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from daeosens.costs.cost import Cost, Scalar
from daeosens.derivatives.branches.branch_changes import (
    LASTS,
    LOCAL,
    NEARER,
    ON_THE_KINK,
    SIDE,
    Piecewise,
    density_of,
    equations_of,
    history_of,
    point_on_chord,
)
from daeosens.derivatives.branches.switch_times import switch_times, times_of_change
from daeosens.derivatives.looks.seen import Seen
from daeosens.derivatives.looks.slope_jumps import (
    SlopeJump,
    Stretch,
    jumps_at_states,
    rounding_along,
    slope_jumps,
)
from daeosens.derivatives.sweeps.kink_terms import KinkTerm, admits_terms, kink_term, short_step
from daeosens.errors import DaeosensError, KinkWarning, warn
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.branches import Branches
from daeosens.problem.delays import Delays
from daeosens.problem.problem import Problem
from daeosens.timestepping.delayed_steps import DelayedSteps, delayed_states
from daeosens.timestepping.trajectory.trajectory import Trajectory

AT_ONCE = 1e-6
"""Part of a step by which changes are apart that are at one time."""

PASSED = 1e-3
"""Part of a gradient in delays that kinks inside of steps may cost without a word."""

OFF = 100.0
"""Multiples of rtol by which an integral may be off, as a part of its size, where it jumps."""

LOST = 0.02
"""Part of a gradient that the quadrature of kinks may lose without a word."""


def warn_of_jumps(trajectory: Trajectory, _costs: Sequence[Cost], seen: Seen) -> None:
    """Warn where f jumps inside a step: gradients lack a term there."""
    seen.kink_left = None
    short = short_step(trajectory)
    function, fixed = equations_of(trajectory), None
    if function is None:
        return
    for change in slope_jumps(trajectory, function, seen):
        if change.jump and not (trajectory.records or trajectory.problem.delays):
            fixed = switch_times(trajectory, fixed=True) if fixed is None else fixed
            if _jumps_in_time_alone(trajectory, function, change, fixed):
                continue
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
                f"the equations jump near t = {change.time:.6g}, where a branch changes "
                "sides between two steps: derivatives lack what the time of that change "
                "contributes where it moves\n"
                f"  try: {_remedy_of_jump(trajectory, change.timed)}; a smooth function"
            )
            return
    _warn_of_passed_jumps(trajectory, seen)


def _jumps_in_time_alone(
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


def _remedy_of_jump(trajectory: Trajectory, timed: bool) -> str:
    known = "breakpoints= for a jump at a time that is known"
    if trajectory.problem.delays is not None:  # which have no events
        return known
    if timed:
        return (
            'an event at that time that changes the mode, daeosens.Event("<parameter>", mode=...) '
            f"in daeosens.hybrid; {known}"
        )
    return f"an event there that changes the mode, daeosens.hybrid; {known}"


def warn_of_kinks(trajectory: Trajectory, costs: Sequence[Cost], seen: Seen) -> list[KinkTerm]:
    """Warn where f, a running cost or their derivatives jump inside a step.

    A product with the Hessian differentiates the steps that were taken, each on its branch of f.
    Where f_u jumps between two states, the exact second derivative has a term from the moving time
    of the crossing that no step contains.  It is returned where it can be had; otherwise an event
    there brings it in.  Collective.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    costs : sequence of Cost
        Those whose Hessians are multiplied.
    seen : Seen
        What is known of runs of the problem.
    """
    _warn_of_passed_jumps(trajectory, seen)
    known, missing = _kink_terms(trajectory, seen)
    for change in missing:
        # a kink of f is a jump of f_u: first derivatives are right, second ones lack its term
        what = "a jump" if change.jump else "a kink"
        then = "lack what the moving time of that change contributes"
        if not (change.kink or change.jump or change.sharp):
            _warn(
                f"two branches of the equations change sides at once near t = {change.time:.6g}: "
                "along this run their kinks cancel, and beside it they do not, so products with "
                "the Hessian lack what the moving times of these changes contribute\n"
                "  try: other parameters, or one smooth function in the place of both"
            )
            return known
        if not change.kink and not change.jump:
            what, then = "no bounded second derivative", "may be far off"
        when = '"<parameter>"' if change.timed else "lambda t, u, p: <what changes its sign>"
        _warn(
            f"the equations have {what} near t = {change.time:.6g}, where a branch, abs, maximum "
            f"or the like changes sides between two steps: products with the Hessian {then}\n"
            f"  try: an event there, events=[daeosens.Event({when})], or a smooth function in its "
            "place"
        )
        return known
    for scalar in _densities(trajectory, costs):
        for change in slope_jumps(trajectory, density_of(trajectory, scalar), seen):
            _warn(
                f"the running cost has a kink or jump near t = {change.time:.6g}, where a branch, "
                "abs, maximum or the like changes sides between two steps: products with the "
                "Hessian lack what the moving time of that change contributes\n"
                "  try: an event of the problem there, events=[daeosens.Event(lambda t, u, p: "
                "<what changes its sign>)], or a smooth cost"
            )
            return known
    # costs at single states may stand exactly on a kink as well
    warn_on_kinks(trajectory, costs, second=True)
    return known


def _kink_terms(trajectory: Trajectory, seen: Seen) -> tuple[list[KinkTerm], list[SlopeJump]]:
    """Return what kinks of f contribute to second derivatives, and those of which it is not known.

    Of the latter the first one.
    """
    every = admits_terms(trajectory)
    changes, hidden = _those_that_cancel(
        trajectory,
        slope_jumps(trajectory, equations_of(trajectory), seen, every=every, silent=True),
    )
    if not every:
        return [], [*changes, *hidden][:1]
    by_step: dict[int, list[SlopeJump]] = {}
    for change in changes:
        by_step.setdefault(change.step, []).append(change)
    known: list[KinkTerm] = []
    missing: list[SlopeJump] = []
    for n, together in by_step.items():
        plain = all(change.kink > 0.0 and not change.jump for change in together)
        # surfaces that are crossed at one time look like one, with another term
        plain = plain and _one_surface(trajectory, together)
        term = kink_term(trajectory, n) if plain else None
        if term is None:
            missing.append(together[0])
        else:
            known.append(term)
    return known, [*missing, *hidden][:1]


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
        ):
            return jumping, [change]
    return jumping, []


def _one_surface(trajectory: Trajectory, together: Sequence[SlopeJump]) -> bool:
    """Return whether changes in one step are of one surface, as a - b and b - a of ``minimum``."""
    branches, numbers = trajectory.problem.branches, [change.number for change in together]
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


def warn_of_running_kinks(trajectory: Trajectory, costs: Sequence[Cost], seen: Seen) -> None:
    """Warn where a running cost jumps inside a step, or where its kinks are too much for it."""
    for cost in costs:
        _warn_of_densities(trajectory, cost, seen)


def _warn_of_densities(trajectory: Trajectory, cost: Cost, seen: Seen) -> None:
    for scalar in _densities(trajectory, [cost]):
        density = density_of(trajectory, scalar, in_time=True)
        lost, last, harmless = 0.0, 0.0, _HarmlessJumps(trajectory, scalar, density)
        # where a step ends on a jump the integral is right, and its derivative if the jump stays
        moving = slope_jumps(trajectory, density_of(trajectory, scalar), seen, at_ends="alone")
        inside = slope_jumps(trajectory, density, seen, at_ends="never")
        for change in chain(inside, (change for change in moving if change.jump)):
            if change.jump and harmless(change.time):
                continue
            if change.jump:
                _warn(
                    f"the running cost jumps near t = {change.time:.6g}, where a branch changes "
                    "sides between two steps: its integral is off by as much as that step counts, "
                    "and derivatives lack what the time of that change contributes where it moves\n"
                    "  try: breakpoints= for a time that is known; else an unknown of its own for "
                    "the integral, whose rate depends on the mode, daeosens.hybrid"
                )
                return
            lost, last = lost + 0.5 * change.kink, change.time
        # a jump at the end of a step lies between no two states: both sides of each end are
        # compared
        for time in jumps_at_states(trajectory, density):
            if harmless(time):
                continue
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
        steps = range(trajectory.n_steps)
        values = [density.value(*point_on_chord(trajectory, n, 0.0)) for n in steps]
        # what kinks lose, as a part of all that the density changes along the run
        part = lost / (float(np.sum(np.abs(np.diff(values, axis=0)))) + lost)
        moves = trajectory.problem.delays is not None
        if moves or any(record.timed for record in trajectory.records):
            _warn(
                f"the running cost has a kink near t = {last:.6g}, which steps may pass that move "
                "with delays or the times of events: gradients in these lack what the quadrature "
                "of a step makes of the kink\n"
                "  try: breakpoints= for a time that is known; an event of the problem there, or "
                "smaller steps"
            )
        elif part > LOST:
            _warn(
                f"the running cost has a kink inside a step near t = {last:.6g}, where a branch, "
                f"abs, maximum or the like changes sides: its gradient may be off by "
                f"{100 * part:.0f} %, because the quadrature of the step is for smooth functions\n"
                "  try: an event of the problem there, events=[daeosens.Event(lambda t, u, p: "
                "<what changes its sign>)]; breakpoints= for a time that is known, or smaller "
                "vectors"
            )


class _HarmlessJumps:
    """Jumps of a running cost at times that nothing moves, where steps are short.

    Those of adaptive runs are where the equations jump as well: the integral is right then, and so
    is its derivative, since the jump stays where it is.
    """

    def __init__(self, trajectory: Trajectory, scalar: Any, density: Piecewise) -> None:
        self._trajectory, self._density, self._branches = trajectory, density, scalar.branches

    def __call__(self, time: float) -> bool:
        """Return whether a jump of the running cost at a time is one of these."""
        run, density = self._trajectory, self._density
        if not run.stepping.adaptive or any(record.timed for record in run.records):
            return False
        still, moved = self._times
        if np.any(np.abs(moved - time) <= LOCAL * abs(time)):
            return False
        n = min(max(int(np.searchsorted(run.times, time)) - 1, 0), run.n_steps - 1)
        at = [density.value(*point_on_chord(run, n, place)) for place in (0.0, 1.0)]
        rtol, _ = run.stepping.tolerances
        off = float(run.step_sizes[n] * np.abs(at[1] - at[0]).max())
        if off > OFF * rtol * self._size:
            return False
        jump = SlopeJump(time, 0.0, jump=True, sharp=False, timed=True, step=n, number=0)
        return _jumps_in_time_alone(run, density, jump, still)

    @cached_property
    def _times(self) -> tuple[Array, Array]:
        """The times at which the cost may jump, those that parameters do not move and the others.

        None of a function with an ``if``: what it compares elsewhere is not known.
        """
        run, branches = self._trajectory, self._branches
        if not isinstance(branches, Branches) or branches.forks:
            return np.empty(0), np.empty(0)
        point = float(run.times[0]), run.u[0], np.asarray(run.p)
        still, every = (branches.of_time(*point, fixed=fixed).switches for fixed in (True, False))
        keys = {switch.key for switch in still}
        moved = [switch for switch in every if switch.key not in keys]
        return times_of_change(run, still), times_of_change(run, moved)

    @cached_property
    def _size(self) -> float:
        """Of the integral, without regard to signs."""
        run, density = self._trajectory, self._density
        values = [
            float(h * np.abs(density.value(*point_on_chord(run, n, 0.5))).max())
            for n, h in enumerate(run.step_sizes.tolist())
            if h
        ]
        return sum(values)


def _warn_of_passed_jumps(trajectory: Trajectory, seen: Seen) -> None:
    """Warn where f jumps in t alone inside a step that moves with the time of an event.

    Where steps stay where they are such a jump does too, and derivatives lack nothing.  Times that
    follow an event pass it, and as much of the run is on its other side.
    """
    problem = trajectory.problem
    if problem.delays is not None:
        if problem.branches_known:
            _warn_of_jumps_passed_by_delays(trajectory, problem.delays, seen)
        return
    moving = [record.timed for record in trajectory.records]
    if not any(moving) or not problem.branches_known or problem.comm.size > 1:
        return
    # those of steps that do not move are left out: the jump stays at the same place in the step
    fixed = {n for n, moves in enumerate(moving) if not moves}
    changes = slope_jumps(trajectory, equations_of(trajectory, in_time=True), seen, fixed)
    for change in changes:
        if change.jump:
            seen.equations_jump = True
            _warn(
                f"the equations jump near t = {change.time:.6g} inside a step that follows an "
                "event and moves with its time: gradients lack what passes from one side of that "
                "jump to the other\n"
                "  try: breakpoints= at the times at which the equations jump: a table read by "
                "int(t), a switch"
            )
            return


def _warn_of_jumps_passed_by_delays(trajectory: Trajectory, delays: Delays, seen: Seen) -> None:
    """Warn where f or the history jumps in t alone, and steps or delayed times move past it.

    The ends of steps follow the delays that are differentiated, the jump does not.
    """
    steps: DelayedSteps = trajectory.report
    tau_p = delays.lags.pull_parameters(
        np.zeros(1), steps.tau[None], np.asarray(trajectory.p), np.eye(delays.count)[:, None]
    )
    slopes, d = steps.time_slopes, delays.count  # in the delays, and in times of events
    moved: Any = (slopes[:, :d] @ tau_p).any(axis=1) | slopes[:, d:].any(axis=1)
    still = set(np.flatnonzero(~(moved[:-1] | moved[1:])).tolist())
    function = equations_of(trajectory, in_time=True)
    assert function is not None
    changes = list(slope_jumps(trajectory, function, seen, still))
    end = float(trajectory.times[-1] - 1e-6 * (trajectory.times[-1] - trajectory.times[0]))
    # of a jump at the last time nothing is on the other side
    jumps = (change.time for change in changes if change.jump and change.time < end)
    known = set(trajectory.times[moved].tolist())
    # a breaking point may be at the same time by chance
    at_ends = (time for time in jumps_at_states(trajectory, function) if time in known)
    for time in itertools.chain(jumps, at_ends):
        seen.equations_jump = True
        _warn(
            f"the equations jump near t = {time:.6g}, where steps move with the delays: gradients "
            "in the delays lack what passes from one side of that jump to the other\n"
            f"  try: breakpoints=[{time:.6g}, ...], the times at which the equations jump"
        )
        return
    kinks = _kinks_passed_by_delays(trajectory, delays, changes, of_history=False)
    if kinks:
        times = ", ".join(f"{time:.6g}" for time in kinks[:4])
        _warn(
            f"the equations have a kink near t = {kinks[0]:.6g}, inside a step that moves with the "
            "delays: gradients in the delays lack what passes from one side of that kink to the "
            f"other\n  try: breakpoints=[{times}, ...], the times of the kinks"
        )
    for number in range(delays.count):
        # a jump at a known time moves past the delayed times that move, one by p past all
        past = history_of(trajectory, delays, number, in_time=bool(tau_p[number].any()))
        if past is None:
            continue
        changes = list(slope_jumps(trajectory, past, seen))
        inside = (change.time for change in changes if change.jump)
        tau = float(steps.tau[number])
        for time in itertools.chain(inside, jumps_at_states(trajectory, past)):
            if _is_breakpoint(trajectory, time, tau):
                continue
            at = time - tau
            _warn(
                f"the history jumps near t = {at:.6g}, as delay {delays.names[number]} sees it: "
                "gradients lack what passes from one side to the other where they move\n"
                f"  try: breakpoints=[{at:.6g}, ...], the times at which the history jumps"
            )
            return
        changes = [change for change in changes if not _is_breakpoint(trajectory, change.time, tau)]
        for time in _kinks_passed_by_delays(trajectory, delays, changes, of_history=True):
            at = time - tau
            _warn(
                f"the history has a kink near t = {at:.6g}, as delay {delays.names[number]} sees "
                "it: gradients in the delays lack what passes from one side to the other\n"
                f"  try: breakpoints=[{at:.6g}, ...], the times of the kinks"
            )
            return


def _is_breakpoint(trajectory: Trajectory, time: float, tau: float) -> bool:
    """Return whether what a delay sees at a time is the history at a breakpoint."""
    known = trajectory.problem.breakpoints
    return any(abs(time - tau - jump) <= 1e-9 * abs(time) for jump in known)


def _kinks_passed_by_delays(
    trajectory: Trajectory, delays: Delays, changes: Sequence[SlopeJump], *, of_history: bool
) -> list[float]:
    """Return the times of kinks of f in t, or of a history, inside of steps that move with delays.

    None where they are negligible.  A step that moves by dt changes by the rates at its ends, times
    dt.  Its derivative adds up f_t at its stages, which are on both sides of the kink by their
    weights and not by the times spent there: half of what f_t jumps by in a step is missing at
    worst.
    """
    p, sizes = np.asarray(trajectory.p), trajectory.step_sizes
    kinks = [change.time for change in changes if change.kink > 0.0]
    if not kinks:
        return []

    def rate(n: int, place: float, x: float = 0.0) -> Array:
        """Return f beside a place in a step, by x steps in t or in what is delayed alone."""
        _, t, u = point_on_chord(trajectory, n, place)
        beside = t + x * float(sizes[n])
        z = delayed_states(trajectory, n, beside if of_history else t)
        return delays.rate(np.concatenate([[t if of_history else beside], u, z]), p)

    steps = np.flatnonzero(sizes > 0.0).tolist()
    # components have units of their own
    largest = np.abs([rate(n, 0.0) for n in steps]).max(axis=0)
    missing, function = np.zeros_like(largest), equations_of(trajectory)
    assert function is not None
    for time in kinks:
        n = max(int(np.searchsorted(trajectory.times, time)) - 1, 0)
        place = (time - float(trajectory.times[n])) / float(sizes[n])
        at = [rate(n, place, k * SIDE) for k in (-2, -1, 1, 2)]
        bend = np.abs(at[3] - at[2] - at[1] + at[0])
        chord = Stretch(lambda x, n=n: point_on_chord(trajectory, n, x), place)
        missing += np.where(bend > rounding_along(function, chord), 0.5 * bend / SIDE, 0.0)
    return kinks if np.any(missing > PASSED * largest) else []


def _densities(trajectory: Trajectory, costs: Sequence[Cost]) -> list[Any]:
    """Return the densities whose branches are known."""
    if trajectory.problem.comm.size > 1:
        return []
    scalars = [scalar for cost in costs for _, scalar in cost.densities]
    return [scalar for scalar in scalars if getattr(scalar, "branches", None) is not None]


def _warn(message: str) -> None:
    warn(message, KinkWarning)


def warn_on_kinks(trajectory: Trajectory, costs: Sequence[Cost], *, second: bool) -> None:
    """Warn where a cost at a point is on a kink exactly: its derivative is that of one side."""
    if trajectory.problem.comm.size > 1:
        return
    for cost in costs:
        _warn_of_points(trajectory, cost, second=second)


def _warn_of_points(trajectory: Trajectory, cost: Cost, *, second: bool) -> None:
    # what one point shows to have no branches is not asked again at others
    smooth: set[int] = set()
    for when, _, scalar in cost.points:
        branches = getattr(scalar, "branches", None)
        if branches is None or id(branches.function) in smooth:
            continue
        t, state, p = trajectory.point(when)
        u, numbers = read(state), np.asarray(p)
        decided = branches(t, u, numbers)
        # whole numbers, of floor and the like, are where they jump and have no distance to a kink
        compared = decided.values[~decided.whole]
        if not decided.values.size:
            smooth.add(id(branches.function))
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
    # a direction in which every unknown grows, so that a kink in any of them is crossed
    along_u = rng.uniform(0.5, 1.0, u.size) * _scale(u)
    along_p = rng.uniform(0.5, 1.0, numbers.shape) * _scale(numbers)
    state = problem.create_state()

    def at(x: float) -> float:
        write(state, u + x * along_u)
        return scalar.value(t, state, numbers + x * along_p)

    kinks = []
    # one-sided differences at two distances: those of a smooth cost come together as the distance
    # shrinks, those at a kink keep their gap
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
