"""Runs through events: smooth pieces by TS, cut where an event function crosses zero."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from petsc4py import PETSc
from scipy.optimize import brentq

from daeosens.arrays import Array
from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.events import Event
from daeosens.integrate import integrate
from daeosens.problem import Problem
from daeosens.stepping import Stepping
from daeosens.steps import RungeKuttaStep, tableau
from daeosens.steps.completed import Consistency
from daeosens.steps.hybrid import Record
from daeosens.steps.jumps import Jump
from daeosens.steps.switches import Switch, lower_event
from daeosens.trajectory import HIT, Checkpoint, Crossing, Effort, Stages, Trajectory

SOON = 1e-6
"""Part of a step after which the side of a surface is judged, where the run begins on it."""

CROWD, MOMENT = 30, 1e-8
"""So many events within such a part of the span are an accumulation."""


@dataclass
class _Parts:
    """What the pieces of a run have given so far."""

    times: list[float] = field(default_factory=list[float])
    sizes: list[float] = field(default_factory=list[float])
    states: list[PETSc.Vec] = field(default_factory=list[PETSc.Vec])
    stages: Stages = field(default_factory=dict[tuple[int, float], list[PETSc.Vec]])
    efforts: list[Effort] = field(default_factory=list[Effort])
    crossings: list[Crossing] = field(default_factory=list[Crossing])
    records: dict[int, Record] = field(default_factory=dict[int, Record])
    targets: list[float] = field(default_factory=list[float])
    timed: bool = False
    changed: bool = False


class _Surface:
    """One implicit event along a run: on which side of its surface the state is."""

    def __init__(self, event: Event, switch: Switch, p: Any) -> None:
        self.event, self.switch = event, switch
        self.p = p
        self.side = 0.0

    def value(self, t: float, u: PETSc.Vec) -> float:
        assert self.switch.when is not None
        return self.switch.when.value(t, u, self.p)

    def crossed(self, t: float, u: PETSc.Vec) -> bool:
        """Whether the state is on the other side, by a crossing that counts."""
        value = self.value(t, u)
        if value * self.side > 0.0:
            return False
        rising = self.side < 0.0
        if self.event.direction == 0 or rising == (self.event.direction > 0):
            return True
        self.side = math.copysign(1.0, value) if value else self.side
        return False


def run_through_events(
    problem: Problem,
    state: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    pinned: Array,
    checkpoint: Checkpoint,
) -> Trajectory:
    """Run a problem with events from ``state`` [n], which is overwritten.

    After an event fixed steps go on to the end of the step that it cut: the times of all later ones
    do not depend on that of the event.

    Parameters, result and errors as for ``solve``.

    Raises
    ------
    SolveError
        Events accumulate.
    UnsupportedError
        Two events at one instant.
    """
    switches = [lower_event(problem, event) for event in problem.events]
    pairs = list(zip(problem.events, switches, strict=True))
    surfaces = [_Surface(event, switch, p) for event, switch in pairs if not event.explicit]
    first, last = stepping.t_span
    timed: list[tuple[float, Event, Switch]] = sorted(
        ((float(event.when), event, switch) for event, switch in pairs if event.explicit),  # type: ignore[arg-type]
        key=lambda each: each[0],
    )
    _check_times(timed, first, last)
    modes = problem.modes or {"": problem}
    smooth_modes = {name: replace(each, events=(), modes={}) for name, each in modes.items()}
    mode = problem.entered_mode(problem.mode, first, state, p)
    parts, start = _Parts(), p
    consistency = Consistency(smooth_modes, stepping.options)
    t, ends = first, [*(time for time, _, _ in timed), last]
    for surface in surfaces:
        surface.side, _ = _side(smooth_modes[mode], surface, t, state, p, stepping)
    while True:
        smooth = smooth_modes[mode]
        active = [surface for surface in surfaces if surface.event.active(mode)]
        end = next(time for time in ends if time > t) if t < last else last
        wanted = {*pinned.tolist(), *([] if stepping.adaptive else parts.targets)}
        soonest = t + HIT * stepping.first_step
        hits = np.array(sorted(time for time in wanted if soonest < time < end))
        dt = None if stepping.dt is None else min(stepping.dt, end - t)
        cut = replace(stepping, t_span=(t, end), dt=dt)
        began, surface = _piece(smooth, state, p, cut, hits, checkpoint, active, parts, mode)
        _note_slopes(parts, began, [*hits.tolist(), end])
        t, state = parts.times[-1], parts.states[-1]
        fired: list[tuple[Event, Switch]] = []
        if surface is not None:
            fired = [(surface.event, surface.switch)]
            parts.timed = True
        else:
            fired = [
                (event, switch)
                for time, event, switch in timed
                if time == end and event.active(mode)
            ]
        for k, (event, switch) in enumerate(fired, start=1):
            final = consistency if k == len(fired) or event.terminal else None
            state, p, mode = _jump(parts, problem, event, switch, t, state, p, mode, final)
            if event.terminal:
                return _finished(problem, start, stepping, checkpoint, parts)
        if t >= last:
            return _finished(problem, start, stepping, checkpoint, parts)
        _check_crowd(parts, last - first)
        state = state.copy()
        for each in surfaces:
            each.p = p
            each.side, touching = _side(smooth_modes[mode], each, t, state, p, stepping)
            if each is surface and touching and each.event.reset is not None:
                _check_side(each, t)


def _piece(
    problem: Problem,
    state: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    pinned: Array,
    checkpoint: Checkpoint,
    surfaces: list[_Surface],
    parts: _Parts,
    mode: str,
) -> tuple[int, _Surface | None]:
    """Run to the end of the span or to the first event; return the first step and that event."""
    found: list[_Surface] = []

    def stop(t: float, u: PETSc.Vec) -> bool:
        found.extend(surface for surface in surfaces if surface.crossed(t, u))
        return bool(found)

    run = integrate(problem, state, p, stepping, pinned, checkpoint, stop if surfaces else None)
    start = len(parts.sizes)
    if parts.states:  # the piece begins with a copy of the state after the jump
        copy, run.states[0] = run.states[0], parts.states.pop()
        first = (copy.handle, run.sizes[0])
        if first in run.stages:  # a handle that is free may come back for another state
            run.stages[run.states[0].handle, run.sizes[0]] = run.stages.pop(first)
        copy.destroy()
        parts.times.pop()
    parts.efforts.append(run.effort)
    surface: _Surface | None = None
    if found:
        t, h, u = run.times[-2], run.sizes[-1], run.states[-2]
        fresh = len(run.sizes) == 1
        roots = [_locate(problem, each, t, h, u, p, stepping, fresh=fresh) for each in found]
        order = np.argsort([root for root, _ in roots])
        surface = found[int(order[0])]
        root, end = roots[int(order[0])]
        if len(order) > 1 and roots[int(order[1])][0] - root <= 1e-9 * h:
            names = " and ".join(f'"{found[int(k)].event.name}"' for k in order[:2])
            raise UnsupportedError(
                f"events {names} at one instant, t = {t + root:.9g}",
                expected="one event at a time: their order would decide the derivative",
                remedy="one event whose reset does both",
            )
        parts.targets.append(run.times[-1])
        run.times[-1], run.sizes[-1], run.states[-1] = t + root, root, end
    parts.times += run.times
    parts.sizes += run.sizes
    parts.states += run.states
    for (handle, h), kept in run.stages.items():
        parts.stages[handle, h] = kept
    for vec in run.states[:-1]:
        parts.records[vec.handle] = Record(mode, p, timed=parts.timed, changed=parts.changed)
    if surface is not None:
        handle = run.states[-2].handle
        parts.records[handle] = replace(parts.records[handle], ends_at=surface.switch)
    return start, surface


def _note_slopes(parts: _Parts, start: int, ends: list[float]) -> None:
    """Say which steps after an implicit event have a size that follows from a pinned time."""
    if not parts.timed:
        return
    for n in range(start, len(parts.sizes)):
        t, h, record = parts.times[n], parts.sizes[n], parts.records[parts.states[n].handle]
        if record.ends_at is not None:
            continue
        rest = next((end for end in ends if end > t), math.inf) - t
        slope = 0.0
        if abs(h - rest) <= 1e-12 * rest:
            slope = -1.0
        elif abs(2.0 * h - rest) <= 1e-12 * rest:
            slope = -0.5
        parts.records[parts.states[n].handle] = replace(record, slope=slope)


def _step(
    problem: Problem, t: float, h: float, u: PETSc.Vec, p: Any, like: Stepping
) -> tuple[float, PETSc.Vec]:
    """Return the size taken (h to rounding of t + h) and the state after one step."""
    method = like.resolved_method
    if method.explicit:
        state = u.duplicate()
        RungeKuttaStep(problem, tableau(method.runge_kutta)).advance(t, h, u, p, state)
        return h, state
    span, size = (t, t + h), t + h - t
    one = replace(like, t_span=span, dt=size, rtol=None, atol=None, max_step=None)
    run = integrate(problem, u.copy(), p, one, np.empty(0), "states")
    return run.sizes[-1], run.states[-1]


def _side(
    problem: Problem, surface: _Surface, t: float, u: PETSc.Vec, p: Any, stepping: Stepping
) -> tuple[float, bool]:
    """Return the sign of the event function just after t, and whether it is zero at t."""
    value = surface.value(t, u)
    h = SOON * stepping.first_step
    soon = surface.value(t + h, _step(problem, t, h, u, p, stepping)[1])
    on_surface = abs(value) <= 1e3 * abs(soon - value)
    return math.copysign(1.0, soon if on_surface else value), on_surface


def _locate(
    problem: Problem,
    surface: _Surface,
    t: float,
    h: float,
    u: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    *,
    fresh: bool,
) -> tuple[float, PETSc.Vec]:
    """Return the size of the step that ends on the surface, to rounding, and the state there."""

    def value(size: float) -> float:
        if t + size <= t:
            return surface.value(t, u)
        return surface.value(t + size, _step(problem, t, size, u, p, stepping)[1])

    low = SOON * min(h, stepping.first_step) if fresh else 0.0
    at_low = value(low) if low else surface.value(t, u)
    if at_low * surface.side <= 0.0 and fresh:
        low = 0.0
    root: Any = brentq(value, low, h, xtol=4e-16 * max(abs(t), h), rtol=1e-15)
    return _step(problem, t, float(root), u, p, stepping)


def _jump(
    parts: _Parts,
    problem: Problem,
    event: Event,
    switch: Switch,
    t: float,
    state: PETSc.Vec,
    p: Any,
    mode: str,
    consistency: Consistency | None,
) -> tuple[PETSc.Vec, Any, str]:
    """Add a jump as a step of size 0; return the state, the parameters and the mode after it.

    Where it is the last one of an instant, algebraic variables are made consistent.
    """
    after = state.duplicate()
    p_after = switch.jump.apply(t, state, p, after)
    if event.mode is not None:
        mode = problem.entered_mode(event.mode, t, after, p_after)
    jump: Jump = switch.jump
    only_ends = event.terminal and event.reset is None and event.mode is None and not event.changes
    if consistency is not None and not only_ends:
        jump = consistency.complete(jump, mode, t, after, p_after, changes=switch.changes)
    parts.records[state.handle] = Record(
        mode, p, timed=parts.timed, changed=parts.changed, jump=jump
    )
    parts.changed = parts.changed or switch.changes
    parts.crossings.append(Crossing(switch.name, t, len(parts.sizes), state, after, mode, p_after))
    parts.times.append(t)
    parts.sizes.append(0.0)
    parts.states.append(after)
    return after, p_after, mode


def _finished(
    problem: Problem, p: Any, stepping: Stepping, checkpoint: Checkpoint, parts: _Parts
) -> Trajectory:
    totals = np.array(
        [
            (each.steps, each.rejected, each.newton_iterations, each.linear_iterations)
            for each in parts.efforts
        ]
    ).sum(axis=0)
    return Trajectory(
        problem,
        p,
        stepping,
        np.array(parts.times),
        np.array(parts.sizes),
        tuple(parts.states),
        Effort(*totals.tolist()),
        checkpoint,
        parts.stages,
        tuple(parts.crossings),
        parts.records,
    )


def _check_times(timed: list[tuple[float, Event, Switch]], first: float, last: float) -> None:
    for time, event, _ in timed:
        if not first < time <= last:
            raise InputError(
                f'event "{event.name}" at t = {time:g} lies outside the time span',
                expected=f"a time in ({first:g}, {last:g}]",
            )


def _check_crowd(parts: _Parts, span: float) -> None:
    if len(parts.crossings) < CROWD:
        return
    recent = parts.crossings[-CROWD:]
    if recent[-1].t - recent[0].t <= MOMENT * span:
        raise SolveError(
            f"events accumulate: {CROWD} within {recent[-1].t - recent[0].t:.3g} "
            f"before t = {recent[-1].t:.9g}",
            expected="finitely many events",
            remedy="an event that ends the motion (terminal=True, or a reset to rest)",
        )


def _check_side(surface: _Surface, t: float) -> None:
    """Refuse a reset after which the state goes on through the surface that it has crossed."""
    direction = surface.event.direction
    if direction and surface.side == direction:
        raise SolveError(
            f'after event "{surface.event.name}" at t = {t:.9g} the state goes on through the '
            "surface, or comes back within a millionth of a step: events accumulate",
            expected="a reset that turns the state back",
            remedy="an event that ends the motion (terminal=True, or a reset to rest)",
        )
