"""Runs through events: smooth pieces by TS, cut where an event function crosses zero."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array
from daeosens.cost import Callback
from daeosens.crossing_times import locate
from daeosens.equations import ODE
from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.events import Event
from daeosens.integrate import Run, made_runner
from daeosens.problem import Problem
from daeosens.stepping import Stepping
from daeosens.steps.hybrid import Record, Switch
from daeosens.surfaces import ROUNDING, Flow, Hit, Surface
from daeosens.trajectory import Checkpoint, Crossing, Effort, Stages, Trajectory

CROWD, MOMENT = 30, 1e-8
"""So many events within such a part of the span are an accumulation."""


def lower_event(problem: Problem, event: Event) -> Switch:
    """Return an event on PETSc vectors.

    Raises
    ------
    InputError, UnsupportedError
        Derivatives that are none, or cannot be had.
    """
    when: Callback | None = None
    if not event.explicit:
        name = f'when of event "{event.name}"'
        call: Any = event.when
        when = Callback(problem, name, call, event.when_u, event.when_p, event.when_t)
    reset: Problem | None = None
    if event.reset is not None:
        numbers: Any = problem.parameter_names
        parameters: Any = problem.parameter if problem.field_parameter else numbers
        state: Any = {"size": problem.size}
        if problem.style == "petsc":
            state = {"state": problem.state if problem.dm is None else problem.dm}
        reset = ODE(
            event.reset,
            parameters=parameters,
            jacobian=event.reset_u,
            jacobian_p=event.reset_p,
            rhs_t=event.reset_t,
            **state,
        )
    return Switch(event.name, when, reset)


@dataclass
class _Parts:
    """What the pieces of a run have given so far."""

    times: list[float]
    states: list[PETSc.Vec]
    sizes: list[float] = field(default_factory=list[float])
    stages: Stages = field(default_factory=dict[tuple[int, float], list[PETSc.Vec]])
    efforts: list[Effort] = field(default_factory=list[Effort])
    crossings: list[Crossing] = field(default_factory=list[Crossing])
    records: dict[int, Record] = field(default_factory=dict[int, Record])
    moving: bool = False
    """Whether the last time depends on that of an implicit event."""

    @property
    def last(self) -> tuple[float, PETSc.Vec]:
        return self.times[-1], self.states[-1]

    @property
    def steps(self) -> int:
        return sum(effort.steps for effort in self.efforts)

    def add(self, run: Run, mode: str, ends: Sequence[float]) -> None:
        """Append a piece whose steps ended at ``ends`` where they came by.

        After an implicit event the size of a step follows the moving time if it ends at one of
        them, or halfway to it; from there on times are fixed again.
        """
        fixed = Record(mode)
        for t, h, state in zip(run.times[:-1], run.sizes, run.states[:-1], strict=True):
            if not self.moving:
                self.records[state.handle] = fixed
                continue
            k = bisect_right(ends, t)
            rest = ends[k] - t if k < len(ends) else math.inf
            slope = 0.0
            if abs(h - rest) <= 1e-12 * rest:
                slope = -1.0
            elif abs(2.0 * h - rest) <= 1e-12 * rest:
                slope = -0.5
            self.records[state.handle] = Record(mode, slope, timed=True)
            self.moving = slope != -1.0
        self.times += run.times[1:]
        self.sizes += run.sizes
        self.states += run.states[1:]
        self.stages |= run.stages
        self.efforts.append(run.effort)

    def end_at(self, switch: Switch, mode: str, h: float, state: PETSc.Vec) -> None:
        """Cut the last step: it has the size ``h``, and ends on the surface of an event."""
        before = self.states[-2]
        timed = self.records[before.handle].timed
        self.sizes[-1], self.times[-1], self.states[-1] = h, self.times[-2] + h, state
        self.records[before.handle] = Record(mode, timed=timed, ends_at=switch)
        self.moving = True

    def jump(self, switch: Switch, p: Any, modes: tuple[str, str]) -> None:
        """Append a jump as a step of size 0; the modes are those before and after it."""
        t, before = self.last
        after = before.duplicate()
        if switch.reset is None:
            before.copy(after)
        else:
            switch.reset.rhs(t, before, p, after)
        self.records[before.handle] = Record(modes[1], timed=self.moving, jump=switch)
        crossing = Crossing(switch.name, t, len(self.sizes), before, after, modes[1], modes[0])
        self.crossings.append(crossing)
        self.times.append(t)
        self.sizes.append(0.0)
        self.states.append(after)


class _Passage:
    """One run through its events: modes, TS for each of them, and what is still to come."""

    def __init__(
        self,
        problem: Problem,
        state: PETSc.Vec,
        p: Any,
        stepping: Stepping,
        pinned: Array,
        checkpoint: Checkpoint,
        runners: ExitStack,
    ) -> None:
        self.problem, self.p, self.stepping = problem, p, stepping
        self.first, self.last = stepping.t_span
        self._checkpoint: Checkpoint = checkpoint
        self._runners = runners
        switches = [lower_event(problem, event) for event in problem.events]
        pairs = list(zip(problem.events, switches, strict=True))
        self._surfaces = [Surface(event, switch) for event, switch in pairs if not event.explicit]
        timed: list[tuple[float, Event, Switch]] = [
            (float(event.when), event, switch)  # type: ignore[arg-type]
            for event, switch in pairs
            if event.explicit
        ]
        self._due = deque(sorted(timed, key=lambda each: each[0]))
        _check_times(timed, self.first, self.last)
        self._rounding = 4.0 * ROUNDING * max(abs(self.first), abs(self.last))
        self._pinned = [
            time
            for time in pinned.tolist()
            if all(abs(time - each) > self._rounding for each, _, _ in timed)
        ]
        modes = problem.modes or {problem.mode: problem}
        self._smooth = {name: replace(each, events=(), modes={}) for name, each in modes.items()}
        self._flows: dict[str, Flow] = {}
        self._grid_end: float | None = None
        self._size: float | None = None
        self.mode = problem.mode
        self.parts = _Parts([self.first], [state])
        self.finished = False

    def go(self) -> None:
        """Run to the end of the span or to an event that ends the run."""
        fired: Surface | None = None
        while not self.finished:
            t, _ = self.parts.last
            jumped = fired is not None
            while self._due and self._due[0][0] <= t + self._rounding and not self.finished:
                if fired is not None:
                    raise _at_one_instant(t, fired.event.name, self._due[0][1].name)
                _, event, switch = self._due.popleft()
                if event.active(self.mode):
                    self._happen(event, switch)
                    jumped = True
            if self.finished or t >= self.last:
                return
            entered = self._flow().settle(*self.parts.last, fired)
            if fired is not None and fired.on and fired.event.reset is not None:
                self._check_side(fired)
            if entered:
                fired = self._enter(entered, t, jumped=jumped)
                continue
            fired = self._piece()
            if fired is not None:
                self._happen(fired.event, fired.switch)
                self._check_crowd()

    def _flow(self) -> Flow:
        """Return the equations of the mode, with a TS that is made when they first hold."""
        if self.mode not in self._flows:
            problem = self._smooth[self.mode]
            maker = made_runner(
                problem, self.parts.states[-1], self.p, self.stepping, self._checkpoint
            )
            runner = self._runners.enter_context(maker)
            active = [each for each in self._surfaces if each.event.active(self.mode)]
            explicit = self.stepping.resolved_method.explicit
            self._flows[self.mode] = Flow(problem, self.p, runner, active, explicit)
        return self._flows[self.mode]

    def _piece(self) -> Surface | None:
        """Run to the next event or to the end; return the surface that was crossed."""
        flow, parts = self._flow(), self.parts
        t, state = parts.last
        end = self._due[0][0] if self._due else self.last
        hits = [time for time in self._pinned if t < time < end]
        grid = self._next_of_grid(t, flow)
        if grid is not None and grid < end:
            insort(hits, grid)
        flow.hits.clear()
        run = flow.runner.run(
            state,
            (t, end),
            hits,
            self._size,
            flow.watch if flow.surfaces else None,
            taken=parts.steps,
        )
        parts.add(run, self.mode, [*hits, end])
        if flow.explicit and self.stepping.adaptive:  # a first step that is checked may be bold
            self._size = max(run.sizes[-2:])
        if not flow.hits:
            return None
        hit, h, after = self._first_hit(flow)
        if self.stepping.dt is not None and not self.stepping.adaptive:
            self._grid_end = parts.times[-1]
        parts.end_at(hit.surface.switch, self.mode, h, after)
        return hit.surface

    def _next_of_grid(self, t: float, flow: Flow) -> float | None:
        """Return where the step that an event has cut would have ended, or the one after it.

        Later times then do not depend on that of the event; tiny steps are not taken.
        """
        if self._grid_end is None or self._grid_end <= t:
            return None
        if self._grid_end - t < 0.01 * flow.runner.first_step:
            return self._grid_end + flow.runner.first_step
        return self._grid_end

    def _first_hit(self, flow: Flow) -> tuple[Hit, float, PETSc.Vec]:
        """Return the first crossing in the last step, the size of that step, and its end."""
        parts = self.parts
        t, h, u = parts.times[-2], parts.sizes[-1], parts.states[-2]
        found: list[tuple[float, PETSc.Vec, Hit]] = []
        for hit in flow.hits:
            at_end = hit.low == 1.0
            size, end = (h, parts.states[-1]) if at_end else locate(flow, hit, t, h, u)
            found.append((size, end, hit))
        found.sort(key=lambda each: each[0])
        if len(found) > 1 and found[1][0] - found[0][0] <= 1e-9 * h:
            names = [hit.surface.event.name for _, _, hit in found[:2]]
            raise _at_one_instant(t + found[0][0], *names)
        size, end, hit = found[0]
        return hit, size, end

    def _enter(self, entered: list[Surface], t: float, *, jumped: bool) -> Surface:
        """Let the event happen on whose surface the run begins."""
        if jumped or len(entered) > 1:
            others = [self.parts.crossings[-1].name] if jumped else []
            raise _at_one_instant(t, *others, *(each.event.name for each in entered))
        surface = entered[0]
        self._happen(surface.event, without_derivatives(surface.switch))
        return surface

    def _happen(self, event: Event, switch: Switch) -> None:
        mode = event.mode or self.mode
        self.parts.jump(switch, self.p, (self.mode, mode))
        self.mode = mode
        self.finished = event.terminal

    def _check_crowd(self) -> None:
        crossings = self.parts.crossings
        if len(crossings) < CROWD:
            return
        recent = crossings[-CROWD:]
        if recent[-1].t - recent[0].t <= MOMENT * (self.last - self.first):
            raise _accumulation(crossings, "they follow each other ever faster")

    def _check_side(self, surface: Surface) -> None:
        """Refuse a reset after which the state goes on through the surface that it has crossed."""
        direction = surface.event.direction
        if direction and surface.side == direction:
            name = surface.event.name
            why = f'after "{name}" the state goes on through its surface, or rests on it'
            raise _accumulation(self.parts.crossings, why)


def run_through_events(
    problem: Problem,
    state: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    pinned: Array,
    checkpoint: Checkpoint,
) -> Trajectory:
    """Run a problem with events from ``state`` [n], which becomes the first of the trajectory.

    After an event fixed steps go on to the end of the step that it cut, or, where that is near, of
    the next one: the times of all later ones do not depend on that of the event.  An event with a
    direction happens at the start if the run begins on its surface and moves that way.

    Parameters, result and errors as for ``solve``.

    Raises
    ------
    SolveError
        Events accumulate, or a surface is crossed twice where that is to be refused.
    UnsupportedError
        Two events at one instant, one of them implicit.
    """
    with ExitStack() as runners:
        passage = _Passage(problem, state, p, stepping, pinned, checkpoint, runners)
        passage.go()
    parts = passage.parts
    totals = np.array([astuple(effort) for effort in parts.efforts], dtype=int)
    return Trajectory(
        problem,
        p,
        stepping,
        np.array(parts.times),
        np.array(parts.sizes),
        tuple(parts.states),
        Effort(*totals.reshape(-1, 4).sum(axis=0).tolist()),
        checkpoint,
        parts.stages,
        tuple(parts.crossings),
        parts.records,
    )


def without_derivatives(switch: Switch) -> Switch:
    """Return an event at the start of a run, for which the equation of its time has no step.

    A start on the other side of the surface would not meet the event: there is no derivative.
    """
    return switch


def _check_times(timed: list[tuple[float, Event, Switch]], first: float, last: float) -> None:
    for time, event, _ in timed:
        if not first <= time <= last:
            raise InputError(
                f'event "{event.name}" at t = {time:g} lies outside the time span',
                expected=f"a time in [{first:g}, {last:g}]",
            )


def _at_one_instant(t: float, *names: str) -> UnsupportedError:
    listed = " and ".join(f'"{name}"' for name in names)
    return UnsupportedError(
        f"events {listed} at one instant, t = {t:.9g}",
        expected="one event at a time: their order would decide the derivative",
        remedy="one event whose reset does both",
    )


def _accumulation(crossings: Sequence[Crossing], why: str) -> SolveError:
    recent = crossings[-CROWD:]
    last = recent[-1].t
    return SolveError(
        f"events accumulate: {len(recent)} within {last - recent[0].t:.3g} before "
        f"t = {last:.9g} ({why})",
        expected="finitely many events",
        remedy="an event that ends the motion (terminal=True, or a reset to rest)",
    )
