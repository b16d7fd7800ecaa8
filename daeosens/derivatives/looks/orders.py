"""Where events of a delay equation, and what comes back of them, meet, and their order matters.

Derivatives there are those of one order, that of later times and longer delays.  On the other side
they are the same where jumps of the state and of what is delayed do not know of each other: doses
that add up, seen by linear rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Cost
from daeosens.derivatives.engines.delays.program import DelayedProgram, program_of
from daeosens.derivatives.looks.seen import Seen
from daeosens.errors import KinkWarning, warn
from daeosens.petsc.vectors import Array, read, write
from daeosens.timestepping.trajectory.trajectory import Trajectory

ALIKE = 1e-8
"""Part of the largest term up to which derivatives by both orders have to agree."""


@dataclass(frozen=True, eq=False)
class _Seen:
    """The time and what is delayed [d, n], as equations see them, and the steps that it is from."""

    time: float
    late: Array
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


def warn_of_orders(trajectory: Trajectory, _costs: Sequence[Cost], _seen: Seen) -> None:
    """Warn where cuts at one time would have other derivatives in the reverse order."""
    program = program_of(trajectory)
    for number, parts in _meetings(program):
        together: dict[bytes, list[_Part]] = {}  # what moves together keeps its order
        for part in parts:
            together.setdefault(part.moves.tobytes(), []).append(part)
        reverse = [part for alike in reversed(together.values()) for part in alike]
        ends = [_passed(program, number, parts, order) for order in (parts, reverse)]
        if np.abs(ends[0] - ends[1]).max() <= ALIKE * max(np.abs(end).max() for end in ends):
            continue
        moving = np.any([part.moves for part in parts], axis=0)
        names = trajectory.problem.parameter_names
        told = ", ".join(f'"{names[k]}"' for k in np.flatnonzero(moving))
        warn(
            f"events, or what comes back of them, meet at t = {trajectory.times[number]:.6g}, and "
            "their order matters: derivatives are those on one side, of longer delays and later "
            "events\n"
            f"  try: other values of {told}; one event whose reset does both",
            KinkWarning,
        )
        return


def _meetings(program: DelayedProgram) -> Iterator[tuple[int, list[_Part]]]:
    """Yield where several cuts are at one time inside the run: the number of the first state there.

    All but the last of them are followed by a step of size 0.
    """
    steps, empty = program.steps, program.h == 0.0
    moves = steps.time_slopes @ program.clock_p
    points = program.points.reshape(program.n_steps, program.n_stages, -1)
    located = list(steps.located.values())

    def seen(n: int, stage: int) -> _Seen:
        late = points[n, stage, program.n + 1 :].reshape(program.d, program.n)
        return _Seen(float(points[n, stage, 0]), late, steps.looked[n, stage])

    for begin in np.flatnonzero(empty & ~np.append(False, empty[:-1])).tolist():
        end = begin + int(np.argmin(np.append(empty[begin:], False)))
        inside = begin > 0 and end < program.n_steps
        apart = np.ptp(moves[begin : end + 1], axis=0).any()
        # of events at states the time depends on what is before
        if not (apart and inside) or steps.time_slopes[begin : end + 1, located].any():
            continue
        parts, before, jumps = list[_Part](), seen(begin - 1, steps.tableau.end), list[int]()
        for n in range(begin, end + 1):
            if n in program.jumps:
                jumps.append(n)
            elif n not in steps.restarts:
                after = seen(n, 0)
                parts.append(_Part(moves[n], before, after, jumps))
                before, jumps = after, []
        yield begin, parts


def _passed(
    program: DelayedProgram, number: int, parts: Sequence[_Part], order: Sequence[_Part]
) -> Array:
    """Return the state after all parts in an order, and its derivatives along directions [3, n].

    At a time that stays, so that only what parts do to the state and its rates counts.
    """
    problem, p, n = program.problem, program.p, program.n
    state, after = problem.create_state(), problem.create_state()
    write(state, program.u[number])
    rows = [np.cos(seed + seed * np.arange(n + len(p))) for seed in (1, 2)]
    slopes = np.array([row[:n] for row in rows])
    directions = [np.where(p == 0.0, 1.0, np.abs(p)) * row[n:] for row in rows]
    for count, part in enumerate(order):
        dts = [float(part.moves @ dp) for dp in directions]
        slopes += np.multiply.outer(dts, _rate(program, state, parts, order[:count]))
        for jump_number in part.jumps:
            jump, step = program.jumps[jump_number]
            here = step._replace(u=state, u_next=after)
            for slope, dp, dt in zip(slopes, directions, dts, strict=True):
                du, by_p = problem.create_state(), problem.create_parameters()
                write(du, slope)
                write(by_p, dp)
                jump.tangent(here, du, by_p, dt)
                slope[:] = read(du)
            jump.apply(step.t, state, step.p, after)
            after.copy(state)
        slopes -= np.multiply.outer(dts, _rate(program, state, parts, order[: count + 1]))
    return np.array([read(state), *slopes])


def _rate(
    program: DelayedProgram, state: PETSc.Vec, parts: Sequence[_Part], passed: Sequence[_Part]
) -> Array:
    """Return the rate [n] after some of the parts, as they have been passed."""
    # a breakpoint of the equations stays
    at_breakpoint = any(not part.moves.any() for part in passed)
    time = parts[-1].after.time if at_breakpoint else parts[0].before.time
    late = parts[0].before.late.copy()
    for delay in range(program.d):
        changing = [part for part in parts if _changed(part, delay)]
        done = [part for part in passed if _changed(part, delay)]
        if done == changing[: len(done)]:
            if done:
                late[delay] = done[-1].after.late[delay]
            continue
        for part in done:
            late[delay] = _come_back(program, part, delay, late[delay])
    y = np.concatenate([[time], read(state), late.ravel()])
    return program.delays.rate(y, program.p)


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
