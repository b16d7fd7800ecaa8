"""Where events of a delay equation, and what comes back of them, meet, and their order matters.

Derivatives there are those of one order, that of later times and longer delays.  On the other side
they are the same where jumps of the state and of what is delayed do not know of each other: doses
that add up, seen by linear rates.  The end of a run is such a time too: what comes back just there
comes back after it where delays are longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from daeosens.costs.cost import Cost
from daeosens.derivatives.engines.delays.program import DelayedProgram, program_of
from daeosens.errors import KinkWarning, warn
from daeosens.petsc.vectors import Array, read, write
from daeosens.timestepping.delayed_steps import LATER_HISTORY, DelayedSteps, time_in_history
from daeosens.timestepping.step_times import span_rounding
from daeosens.timestepping.trajectory.trajectory import Trajectory

ALIKE = 1e-4
"""Part of what steps change up to which both orders have to agree."""

LENGTH = 1e-3
"""Part of the steps on both sides by which cuts are moved apart."""

ROUNDING = 1e-14
"""Part of the state up to which differences are rounding."""


@dataclass(frozen=True, eq=False)
class _Seen:
    """The time, what is delayed, and its slopes [d, n], and the steps [d] that it is from."""

    time: float
    late: Array
    slopes: Array
    looked: Array


@dataclass(eq=False)
class _Part:
    """What happens at one of several cuts at one time.

    Attributes
    ----------
    moves : array [m]
        The derivatives of its time in the parameters.
    before, after : _Seen
    jumps : list of int
        The steps that are jumps of the state.
    """

    moves: Array
    before: _Seen
    after: _Seen
    jumps: list[int] = field(default_factory=list[int])


def warn_of_orders(
    trajectory: Trajectory, costs: Sequence[Cost] = (), *, second: bool = False
) -> None:
    """Warn where cuts at one time would have other derivatives in the reverse order.

    ``second`` derivatives too.  What happens is taken with cuts moved apart, one way and the other;
    differences of both orders are compared.  Costs see the state at a cut that does not move.
    """
    program = program_of(trajectory)
    p, last = program.p, trajectory.n_steps
    # some direction, not special, in which all parameters change by their own sizes
    along = np.where(p == 0.0, 1.0, np.abs(p)) * np.cos(np.arange(1, len(p) + 1))
    observed = {trajectory.index(time) for cost in costs for time, _, _ in cost.points}
    # at the end there is no later state, nor what comes back of one
    of_end = [2] * (not costs or last in observed)
    of_end += [3] * (second and any(cost.densities for cost in costs))
    meetings = [*_meetings(program), *(_end_of(trajectory, program) if of_end else ())]
    for number, end, parts in meetings:
        around = slice(max(number - 1, 0), end + 1)
        step = float(program.h[around].max())
        together: dict[bytes, list[_Part]] = {}  # what moves together keeps its order
        for part in parts:
            together.setdefault(part.moves.tobytes(), []).append(part)
        reverse = [part for alike in reversed(together.values()) for part in alike]
        if number == 0:  # what comes back before the start does not at all
            reverse = [part for part in parts if not part.moves.any()]
        dp = LENGTH * step / max(abs(float(part.moves @ along)) for part in parts) * along
        forward, here, back = (
            np.subtract(
                *(_passed(program, number, parts, order, way) for order in (parts, reverse))
            )
            for way in (dp, 0.0 * dp, -dp)
        )
        state = np.abs(program.u[number : end + 1]).max()
        change = step * np.abs(program.steps.rates[around]).max()
        # of the state, of its integral, and of what is observed of both
        rows = [0, 1, 2] if observed & {*range(number, end + 1)} else [0, 1]
        if end == last:
            rows = of_end
        forward, here, back = forward[rows], here[rows], back[rows]
        units = np.array([1.0, step, 1.0, step])[rows]
        rounding = ROUNDING * state * units
        slopes = LENGTH * ALIKE * np.array([change, step * state, change, step * state])[rows]
        slopes += rounding
        bends = LENGTH**2 * ALIKE * change * units + rounding
        if np.abs(here[0]).max() > ALIKE * state or _beyond(forward - back, slopes):
            what = "derivatives"
        elif second and _beyond(forward - 2.0 * here + back, bends):
            what = "second derivatives"
        else:
            continue
        moving = np.any([part.moves for part in parts], axis=0)
        names = trajectory.problem.parameter_names
        told = ", ".join(f'"{names[k]}"' for k in np.flatnonzero(moving))
        where = "meet the end of the run," if end == last else "meet at"
        warn(
            f"events, or what comes back of them, {where} t = {trajectory.times[number]:.6g}, and "
            f"their order matters: {what} are those on one side, of longer delays and later "
            "events\n"
            f"  try: other values of {told}; one event whose reset does both; if a cost sees the "
            "state at that time, another time",
            KinkWarning,
        )
        return


def _beyond(apart: Array, least: Array) -> bool:
    """Return whether what is between both orders [k, n] is more than least [k]."""
    return bool((np.abs(apart).max(axis=1) > least).any())


def _meetings(program: DelayedProgram) -> Iterator[tuple[int, int, list[_Part]]]:
    """Yield where several cuts are at one time inside the run, each followed by a step.

    The numbers of the first and of the last state there.
    """
    steps, empty = program.steps, program.h == 0.0
    moves = steps.time_slopes @ program.clock_p
    located = list(steps.located.values())
    for begin in np.flatnonzero(empty & ~np.append(False, empty[:-1])).tolist():
        end = begin + int(np.argmin(np.append(empty[begin:], False)))
        inside = end < program.n_steps and not (begin == 0 and program.jumps.keys() & {*range(end)})
        apart = np.ptp(moves[begin : end + 1], axis=0).any()
        # of events at states the time depends on what is before
        if not (apart and inside) or steps.time_slopes[begin : end + 1, located].any():
            continue
        last = steps.tableau.end
        before = _seen(program, begin - 1, last) if begin else _seen(program, 0, 0)
        parts, jumps = list[_Part](), list[int]()
        for n in range(begin, end + 1):
            if n in program.jumps:
                jumps.append(n)
            elif n not in steps.restarts:
                after = _seen(program, n, 0)
                parts.append(_Part(moves[n], before, after, jumps))
                before, jumps = after, []
        yield begin, end, parts


def meets_end(trajectory: Trajectory) -> bool:
    """Return whether what may have a jump or a kink comes back just where a run ends.

    Of a run to the end of its span.
    """
    return bool(_backs_at_end(trajectory))


def _backs_at_end(trajectory: Trajectory) -> list[tuple[int, int]]:
    """Return the delays after which something comes back at the end, and the last states there.

    -1 for a breakpoint of the history.
    """
    steps: DelayedSteps = trajectory.report
    times, sizes, span = trajectory.times, trajectory.step_sizes, trajectory.stepping.t_span
    if not len(sizes) or not sizes[-1] or times[-1] != span[1]:
        return []
    near, backs = 2.0 * span_rounding(span), list[tuple[int, int]]()
    for delay, tau in enumerate(steps.tau.tolist()):
        at = span[1] - tau
        first, end = np.searchsorted(times, [at - near, at + near]).tolist()
        if (
            first < end
            and (
                first == 0
                or not sizes[max(first - 1, 0) : end].all()
                or not {*range(first, end)}.isdisjoint(steps.breaking)
            )
        ) or any(abs(at - time) <= near for time in trajectory.problem.breakpoints):
            backs.append((delay, end - 1))
    return backs


def _end_of(
    trajectory: Trajectory, program: DelayedProgram
) -> Iterator[tuple[int, int, list[_Part]]]:
    """Yield the end of the run, if it is where something comes back, as a meeting of both.

    The end itself does not move.
    """
    backs, count, steps = _backs_at_end(trajectory), program.n_steps, program.steps
    if not backs or steps.time_slopes[-1].any():
        return
    before = _seen(program, count - 1, steps.tableau.end)
    parts = [_Part(np.zeros(len(program.p)), before, before)]
    moves = steps.time_slopes @ program.clock_p
    for delay, k in backs:
        late, slopes, looked = before.late.copy(), before.slopes.copy(), before.looked.copy()
        if k < 0:
            tau, rounding = float(steps.tau[delay]), span_rounding(trajectory.stepping.t_span)
            at = float(trajectory.times[-1]) - tau
            time = time_in_history(program.problem, at, at, 0.0, rounding, LATER_HISTORY)
            late[delay] = program.delays.seen(delay, tau, time, program.p)
            moved = np.zeros(len(program.p))
        else:
            late[delay], slopes[delay], looked[delay] = program.u[k], steps.rates[k, 0], k
            moved = moves[k]
        moved = moved + program.tau_p[delay]
        # what does not move has one side
        if moved.any():
            parts.append(_Part(moved, parts[-1].after, _Seen(before.time, late, slopes, looked)))
            before = parts[-1].after
    if len(parts) > 1:
        yield count, count, parts


def _seen(program: DelayedProgram, n: int, stage: int) -> _Seen:
    """Return what a stage sees."""
    points = program.points.reshape(program.n_steps, program.n_stages, -1)
    late = points[n, stage, program.n + 1 :].reshape(program.d, program.n)
    looked = program.steps.looked[n, stage]
    return _Seen(float(points[n, stage, 0]), late, program.z_t[n, stage], looked)


def _passed(
    program: DelayedProgram,
    number: int,
    parts: Sequence[_Part],
    order: Sequence[_Part],
    dp: Array,
) -> Array:
    """Return the state after all parts, which dp moves, at the time where they are without.

    And its integral, which what is delayed sees of it, and both as they are seen there [4, n].
    """
    problem, p = program.problem, program.p + dp
    state, after = problem.create_state(), problem.create_state()
    u, time = program.u[number].copy(), 0.0
    integral, seen = np.zeros_like(u), (u, 0.0 * u)

    def flow(passed: Sequence[_Part], to: float) -> Array:
        dt = to - time
        middle = u + 0.5 * dt * _rate(program, time, u, dp, parts, passed)
        integral[:] += dt * middle
        return u + dt * _rate(program, time + 0.5 * dt, middle, dp, parts, passed)

    for count, part in enumerate(order):
        moved = float(part.moves @ dp)
        u, time = flow(order[:count], moved), moved
        if not part.moves.any():
            seen = u, integral.copy()
        for jump_number in part.jumps:
            jump, step = program.jumps[jump_number]
            write(state, u)
            jump.apply(step.t + moved, state, p, after)
            u = read(after).copy()
    u = flow(order, 0.0)
    return np.array([u, integral, *seen])


def _rate(
    program: DelayedProgram,
    since: float,
    u: Array,
    dp: Array,
    parts: Sequence[_Part],
    passed: Sequence[_Part],
) -> Array:
    """Return the rate [n] after some of the parts, as they have been passed."""
    # a breakpoint of the equations stays
    at_breakpoint = any(not part.moves.any() for part in passed)
    time = parts[-1].after.time if at_breakpoint else parts[0].before.time
    late = parts[0].before.late.copy()
    bent = since * parts[0].before.slopes
    for part in passed:
        bent += (since - float(part.moves @ dp)) * (part.after.slopes - part.before.slopes)
    for delay in range(program.d):
        changing = [part for part in parts if _changed(part, delay)]
        done = [part for part in passed if _changed(part, delay)]
        if done == changing[: len(done)]:
            if done:
                late[delay] = done[-1].after.late[delay]
            continue
        for part in done:
            late[delay] = _come_back(program, part, delay, late[delay])
    return program.delays.rate(np.concatenate([[time], u, (late + bent).ravel()]), program.p + dp)


def _changed(part: _Part, delay: int) -> bool:
    return not np.array_equal(part.after.late[delay], part.before.late[delay])


def _come_back(program: DelayedProgram, part: _Part, delay: int, late: Array) -> Array:
    """Return what a delayed state [n] is after a part, in another order than that of the run."""
    seen = part.before.looked[delay], part.after.looked[delay]
    jumps = [n for n in program.jumps if seen[0] < n < seen[1]]
    if not jumps:
        return late + part.after.late[delay] - part.before.late[delay]
    state, after = program.problem.create_state(), program.problem.create_state()
    write(state, late)
    for n in jumps:
        jump, step = program.jumps[n]
        jump.apply(step.t, state, step.p, after)
        after.copy(state)
    return read(state).copy()
