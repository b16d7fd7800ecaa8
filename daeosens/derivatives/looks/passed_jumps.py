"""Jumps and kinks in t alone, which steps pass that move with events or delays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from daeosens.derivatives.branches.branch_changes import (
    SIDE,
    equations_of,
    history_of,
    point_on_chord,
)
from daeosens.derivatives.looks.seen import Seen
from daeosens.derivatives.looks.slope_jumps import (
    SlopeJump,
    Stretch,
    jumps_at_states,
    rounding_along,
    slope_jumps,
)
from daeosens.errors import KinkWarning, warn
from daeosens.petsc.vectors import Array, read
from daeosens.problem.delays import Delays
from daeosens.timestepping.delayed_steps import DelayedSteps, delayed_states
from daeosens.timestepping.trajectory.trajectory import Trajectory

AT_A_STATE = 1e-9
"""Part of a time that it may be beside that of a state."""

MOVED, TOGETHER = 1e-6, 1e-4
"""Part of a parameter that it moves by, and of what the time changes that may be left then."""

PASSED = 1e-3
"""Part of a gradient in delays that kinks inside of steps may cost without a word."""


def warn_of_passed_jumps(trajectory: Trajectory, seen: Seen) -> None:
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
        if moves_with_its_step(trajectory, time):
            continue
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
        seen.equations_jump = True  # steps of half the size tell of it too, and not why
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
            seen.equations_jump = True
            _warn(
                f"the history jumps near t = {at:.6g}, as delay {delays.names[number]} sees it: "
                "gradients lack what passes from one side to the other where they move\n"
                f"  try: breakpoints=[{at:.6g}, ...], the times at which the history jumps"
            )
            return
        changes = [change for change in changes if not _is_breakpoint(trajectory, change.time, tau)]
        for time in _kinks_passed_by_delays(trajectory, delays, changes, of_history=True):
            at = time - tau
            seen.equations_jump = True
            _warn(
                f"the history has a kink near t = {at:.6g}, as delay {delays.names[number]} sees "
                "it: gradients in the delays lack what passes from one side to the other\n"
                f"  try: breakpoints=[{at:.6g}, ...], the times of the kinks"
            )
            return


def moves_with_its_step(trajectory: Trajectory, time: float) -> bool:
    """Return whether all that changes at a time moves as the end of a step there does.

    That is a breaking point behind a breakpoint, t - tau = 4, at which f jumps by ``t - tau >= 4``
    as well: nothing passes from one side of the jump to the other.  Whichever side the stages at
    the end take, an error estimate has made their steps short; steps of fixed size have none.
    """
    problem = trajectory.problem
    delays, branches = problem.delays, problem.delays and problem.delays.branches
    if delays is None or branches is None or not trajectory.stepping.adaptive:
        return False
    steps: DelayedSteps = trajectory.report
    numbers = np.array(steps.breaking, dtype=int)
    near = numbers[np.abs(trajectory.times[numbers] - time) <= AT_A_STATE * abs(time)]
    if not near.size or not 0 < near[0] < trajectory.n_steps:
        return False
    n, p, d = int(near[0]), np.asarray(trajectory.p), delays.count
    at, u = float(trajectory.times[n]), read(trajectory.stored[n])
    point = np.concatenate([u, delayed_states(trajectory, n, at)])
    by_p: Any = steps.time_slopes[n, :d] @ delays.lags.pull_parameters(
        np.zeros(1), steps.tau[None], p, np.eye(d)[:, None]
    )

    def decided(t: float, p: Array) -> Array:
        return branches(t, point, p, in_time=True).values

    beside = MOVED * abs(at)
    values, before, after = decided(at, p), decided(at - beside, p), decided(at + beside, p)
    if not values.size == before.size == after.size:
        return False
    changed = np.flatnonzero(before * after < 0.0)
    late = np.abs(after - before)[changed] / (2.0 * beside)
    for number, slope in enumerate(by_p.tolist()):
        along = MOVED * np.where(p == 0.0, abs(at), np.abs(p)) * (np.arange(p.size) == number)
        step = slope * float(along[number])
        together = decided(at + step, p + along)
        if together.size != values.size:
            return False
        # by as much as the time alone changes it where it moves as far
        left = np.abs(together - values)[changed]
        if np.any(left > TOGETHER * late * max(abs(step), float(along[number]))):
            return False
    return changed.size > 0


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


def _warn(message: str) -> None:
    warn(message, KinkWarning)
