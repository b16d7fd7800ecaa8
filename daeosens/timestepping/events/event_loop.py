"""Runs through events: smooth pieces by TS, cut where an event function crosses zero."""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import ChatterError, NotFiniteError, SolveError
from daeosens.methods.events.consistent_reset import ConsistentReset
from daeosens.methods.events.event_function import Switch, lower_event, lower_events
from daeosens.methods.step import Step
from daeosens.petsc._kernels import interpolate
from daeosens.petsc.vectors import Array, read
from daeosens.problem.event import Event
from daeosens.problem.modes import entered_mode
from daeosens.problem.monitor import Monitor, Suspect
from daeosens.problem.problem import Problem
from daeosens.timestepping.events.detection import EventBracket, EventDetector
from daeosens.timestepping.events.event_surface import Surface
from daeosens.timestepping.events.jumps import warn_of_jump
from daeosens.timestepping.events.location import located, refuse_jump_from_rest
from daeosens.timestepping.events.log import HybridLog
from daeosens.timestepping.events.simultaneous import (
    TO_AND_FRO,
    FiredEvent,
    HybridState,
    SimultaneousEvents,
    at_one_instant,
    check_order,
    names_apart,
)
from daeosens.timestepping.events.zeno import (
    passing,
    refuse_chatter,
    refuse_crowd,
    refuse_passing,
    refuse_slow_passing,
)
from daeosens.timestepping.runner import Run, Runner, made_runner
from daeosens.timestepping.smooth_run import smooth_run
from daeosens.timestepping.step_times import inside_span, span_rounding
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.states import rows_of
from daeosens.timestepping.trajectory.stay import Stay
from daeosens.timestepping.trajectory.trajectory import HIT, Recording, Trajectory

FEWEST, MOST = 32, 4096
"""So many steps, at first and at most, are taken before a monitor looks at them."""

TOGETHER = 1e-9
"""Crossings that are nearer than this part of a step happen at one instant."""

REJECTIONS = 100
"""So often in a row a step is tried again where an event function has no value, as by TS."""


TOUCHED = 1e-3
"""A smaller part of its value where a piece of a run began is near the surface of an event."""


class _Smooth(dict[str, Problem]):
    """The equations of each mode without events; there may be more modes as the run goes on."""

    def __init__(self, modes: Mapping[str, Problem]) -> None:
        super().__init__()
        self._modes = modes

    def __missing__(self, name: str) -> Problem:
        self[name] = replace(self._modes[name], events=(), modes={}, monitor=None)
        return self[name]


class _EventLoop:
    """One run through its events: modes, TS for each of them, and what is still to come."""

    def __init__(
        self,
        problem: Problem,
        state: PETSc.Vec,
        p: Any,
        stepping: Stepping,
        pinned: Array,
        record: Recording,
        runners: ExitStack,
        stay: Stay | None,
    ) -> None:
        self.problem, self.p, self.stepping = problem, p, stepping
        self.first, self.last = stepping.t_span
        self._record: Recording = record
        self._runners = runners
        pairs = list(zip(problem.events, lower_events(problem), strict=True))
        self._surfaces = [Surface(event, switch) for event, switch in pairs if not event.explicit]
        timed: list[tuple[float, Event, Switch]] = [
            (float(event.when), event, switch)  # type: ignore[arg-type]
            for event, switch in pairs
            if event.explicit
        ]
        timed = [entry for entry in timed if entry[1].late == "refuse" or entry[0] <= self.last]
        self._due = deque(sorted(timed, key=lambda entry: entry[0]))
        self._rounding = span_rounding(stepping.t_span)
        for time, event, _ in timed:
            inside_span(stepping.t_span, np.array([time]), f'event "{event.name}" at t =')
        self._pinned = [
            time
            for time in pinned.tolist()
            if all(abs(time - instant) > self._rounding for instant, _, _ in timed)
        ]
        method = stepping.resolved_method
        # the midpoint rule carries algebraic variables over that miss their equations: no rate
        apart = problem.form == "rhs" or method.holds_at_end
        self._observed = {
            time for time in self._pinned if apart and time not in problem.breakpoints
        } - {self.first, self.last}
        modes = problem.modes or {"": problem}
        self._smooth = _Smooth(modes)
        self._consistency = ConsistentReset(self._smooth, stepping.options)
        self._detectors: dict[str, EventDetector] = {}
        self._grid_end: float | None = None
        self._size: float | None = None
        # the first steps after events: as bold as was not refused lately (``_next_start``)
        self._largest_start = math.inf
        self._faults = 0
        self.monitor = None if problem.monitor is None else problem.monitor()
        self._most = FEWEST
        self.mode = entered_mode(problem, problem.mode, self.first, state, p)
        self.log = HybridLog([self.first], [state], staying=stay)
        self._looks: dict[str, int] = {}
        self.finished = False

    def go(self) -> None:
        """Run to the end of the span or to an event that ends the run."""
        fired: list[Surface] = []
        if self.monitor is not None and self.monitor.at_once:
            self._complete(*self.log.last)
        while not self.finished:
            # The order at one instant: events at known times first, then what the monitor wants,
            # then surfaces on which the piece begins; only then steps.
            self._explicit_events(fired)
            t, state = self.log.last
            if self.finished:
                return
            if t >= self.last or t in self._observed:
                self.log.settle(self.mode, self.p)
            if t >= self.last:
                return
            detector = self._detector()
            if self._complete(t, state):
                continue
            entered = detector.settle(t, state, fired)
            # a surface that has fired and is crossed again at once: the run would not move on
            refuse_passing(fired, self.log.crossings)
            self._refuse_false_crossing(fired, detector)
            # the piece begins on surfaces and moves their way: they fire before any step
            if entered:
                if fired:
                    events = [surface.event for surface in (*fired, *entered)]
                    raise at_one_instant(t, names_apart(events, self.problem), TO_AND_FRO)
                self._keep_grid(t)
                self._reach(entered[0])
                self._check_order(entered, [detector.change(surface) for surface in entered])
                self._all_happen(entered)
                for surface in entered:
                    surface.towards = float(surface.direction)
                fired = entered
                continue
            fired = self._piece(detector, fired)
            refuse_crowd(self.log.crossings, self.last - self.first)

    def touched(self, error: ChatterError) -> ChatterError:
        """Return the error of a run that chatters at a jump, with events that are 0 on it.

        A length, |v|, is: it turns there, and an event is where a function changes its sign.
        """
        t, state = self.log.last
        near = [
            f'event "{surface.event.name}" has come to {surface.value:.2g} there, from {before:.2g}'
            for surface in self._detectors[self.mode].surfaces
            for before in [surface.at(t, state, self.p)]
            if 0.0 < surface.value / before < TOUCHED
        ]
        if not near:
            return error
        told = error.with_detail(
            f"{'; '.join(near)}, and does not happen as long as it does not change its sign: a "
            "length turns at 0, a length less a small level passes it, hypot(...) - 1e-6"
        )
        told.ahead = error.ahead
        return told

    def _refuse_false_crossing(self, fired: Sequence[Surface], detector: EventDetector) -> None:
        """Refuse a surface that only a step has crossed: the rate there does not point that way.

        A flight that is shorter than a step of the backward Euler method ends at rest, to rounding.
        A reset that turns the speed back would send what rounding left of it through the surface.

        Raises
        ------
        SolveError
            Names the event.
        """
        if not (fired and self.log.crossings):
            return
        last = self.log.crossings[-1]
        for surface in fired:
            event = surface.event
            passes = surface.on and surface.side == surface.towards and event.reset is not None
            # the rate before is that of other equations where these change
            if passes and not event.changes and last.mode == last.mode_before:
                rate = detector.rate_of(surface, last.t, last.before)
                if rate * surface.towards <= 0.0:
                    raise passing(surface, self.log.crossings)

    def _complete(self, t: float, state: PETSc.Vec) -> bool:
        """Let happen what the monitor wants where a piece begins; return whether it does."""
        if self.monitor is None:
            return False
        event = self.monitor.begins(t, read(state), self.p, self.mode)
        if event is None:
            return False
        self._happen(event, lower_event(self.problem, event))
        return True

    def _explicit_events(self, fired: Sequence[Surface]) -> None:
        """Let the events happen whose time has come, in the order of the list."""
        t, _ = self.log.last
        while self._due and self._due[0][0] <= t + self._rounding:
            _, event, switch = self._due.popleft()
            if not event.active(self.mode):
                continue
            if fired:
                events = [*(surface.event for surface in fired), event]
                raise at_one_instant(t, names_apart(events, self.problem))
            stays = isinstance(event.when, float) and self.stepping.adaptive
            self._look_for_jump(event.name, resolved=stays)
            self._happen(event, switch)
            if self.finished:
                return

    def _detector(self) -> EventDetector:
        """Return the equations of the mode, with a TS that is made when they first hold."""
        if self.mode not in self._detectors:
            runner = self._runner()
            active = [surface for surface in self._surfaces if surface.event.active(self.mode)]
            method = self.stepping.resolved_method
            adaptive = self.stepping.adaptive
            checked = adaptive and method.tableau is not None
            problem = self._smooth[self.mode]
            self._detectors[self.mode] = EventDetector(problem, runner, active, adaptive, checked)
        detector = self._detectors[self.mode]
        detector.runner.p = self.p
        return detector

    def _runner(self) -> Runner:
        """Make a TS for the equations of the mode."""
        maker = made_runner(
            self._smooth[self.mode],
            self.log.states[-1],
            self.p,
            self.stepping,
            self._record,
        )
        runner = self._runners.enter_context(maker)
        runner.p = self.p
        return runner

    def _piece(self, detector: EventDetector, fired: Sequence[Surface]) -> list[Surface]:
        """Run to the next event or to the end; return the surfaces that were crossed there.

        ``fired`` are those that have just been.
        """
        log = self.log
        t, state = log.last
        end = self._due[0][0] if self._due else self.last
        hits = [time for time in self._pinned if t < time < end]
        grid = self._next_of_grid(t, detector)
        if grid is not None and grid < end:
            insort(hits, grid)
        detector.hits.clear()
        detector.end = end
        refuse_chatter(log.crossings, log.effort.steps, self.stepping.max_steps)
        # the steps themselves; ``detector.watch`` ends them at the first with a crossing inside
        run = self._taken(detector, state, (t, end), hits)
        while detector.left:
            left, begin, h, u = detector.left.pop()
            part = refuse_jump_from_rest(detector, left, begin, h, u)
            rest = (begin + part * h - t) / (self.last - self.first)
            refuse_slow_passing(fired, left.surface, rest, log.crossings)
        again = 0.25 * float(run.sizes[-1]) if detector.fault is not None else None
        if detector.fault is not None:
            run = self._before_fault(detector, detector.fault, run)
        grid_end = float(run.times[-1])
        if self.monitor is not None and len(run.sizes):
            try:
                run, grid_end = self._looked_at(self.monitor, detector, run)
            except SolveError:
                count = int(np.searchsorted(run.times, self.monitor.reached, "right")) - 1
                log.add(run.first_steps(count), self.mode, self.p, [*hits, end])
                raise
        log.add(run, self.mode, self.p, [*hits, end])
        if again is not None and not detector.hits:
            self._size = again  # as TS does where rates are not finite
        elif detector.checked:  # and may therefore be bold
            self._size = self._next_start(run)
        elif self.monitor is not None and self.stepping.adaptive:
            self._size = None if detector.hits else float(run.sizes[-1])
        if not detector.hits:
            return []
        self._keep_grid(grid_end)
        crossed = self._first_hits(detector)
        self._look_for_jump(crossed[0].event.name)
        self._all_happen(crossed)
        return crossed

    def _before_fault(self, detector: EventDetector, fault: NotFiniteError, run: Run) -> Run:
        """Return a run without its last step, at whose end an event function has no value.

        Raises
        ------
        NotFiniteError
            It has been tried again so often that no size will do.
        """
        detector.fault = None
        detector.hits.clear()
        self._faults = 1 if len(run.sizes) > 1 else self._faults + 1
        if self._faults > REJECTIONS:
            raise fault
        return run.first_steps(len(run.sizes) - 1)

    def _taken(
        self,
        detector: EventDetector,
        state: PETSc.Vec,
        span: tuple[float, float],
        hits: Sequence[float],
    ) -> Run:
        """Take steps from a state; with a monitor some, at which it looks."""
        while True:
            try:
                return detector.runner.run(
                    state,
                    span,
                    hits,
                    self._size,
                    detector.watch if detector.surfaces else None,
                    taken=self.log.effort.steps,
                    most=None if self.monitor is None else self._most,
                    stay=self.log.staying if self.monitor is None else None,
                    offset=len(self.log.sizes),
                )
            except SolveError as error:
                # steps may fail beyond an event that the monitor has not seen yet
                if self.monitor is None:
                    raise
                if self._most == 1:
                    h = self._size or detector.runner.short_step
                    named = self.monitor.explained(span[0], read(state), self.p, h)
                    if named is None:
                        raise
                    raise named from error
                self._most = max(1, self._most // 8)
                detector.hits.clear()
                detector.runner = self._runner()  # a TS that failed inside a step may be locked

    def _looked_at(self, monitor: Monitor, detector: EventDetector, run: Run) -> tuple[Run, float]:
        """Return the steps up to the first in which the monitor sees an event happen.

        And where the last of them would have ended without an event.
        """
        count, end = len(run.sizes), float(run.times[-1])
        self._most = min(2 * max(self._most, count), MOST)
        if detector.hits:
            # the monitor must not see states beyond a crossing, where other equations hold
            run = self._cut(detector, run)
        states = rows_of(run.states)
        for n, suspects in monitor.look(run.times, states, self.p):
            hits = self._hits_of(suspects, detector, run, n)
            if hits:
                self._most = FEWEST
                if n + 1 < count:  # what was seen in the last step comes later
                    detector.hits.clear()
                detector.hits += hits
                shorter = run.first_steps(n + 1)
                return shorter, float(run.times[n + 1]) if n + 1 < count else end
        return run, end

    def _cut(self, detector: EventDetector, run: Run) -> Run:
        """End the last step at the first crossing seen in it: nothing is beyond that to look at."""
        t, h = float(run.times[-2]), float(run.sizes[-1])
        hits = located(detector, t, h, run.states[-2], run.states[-1])
        size, state, _ = hits[0]
        if not 0.0 < size < h - self._rounding:
            return run
        detector.hits[:] = [
            bracketed._replace(low=1.0, high=1.0)
            for each_size, _, bracketed in hits
            if each_size - size <= TOGETHER * h
        ]
        times, sizes = run.times.copy(), run.sizes.copy()
        times[-1], sizes[-1] = t + size, size
        return run._replace(times=times, sizes=sizes, states=[*run.states[:-1], state])

    def _hits_of(
        self, suspects: Sequence[Suspect], detector: EventDetector, run: Run, n: int
    ) -> list[EventBracket]:
        """Return the crossings of suspected events within a step."""
        t, t_next, h = float(run.times[n]), float(run.times[n + 1]), float(run.sizes[n])
        u, u_next, hits = run.states[n], run.states[n + 1], list[EventBracket]()
        detector.forget()
        for event, (value, slope), bracket, ends in suspects:
            surface = Surface(event, lower_event(self.problem, event))
            surface.value, surface.slope, surface.on = value, slope, value == 0.0
            surface.side = math.copysign(1.0, value or slope)
            if bracket is not None:
                parts = bracket if bracket[0] < bracket[1] else (0.0, 1.0)
                # the monitor knows a bracket and no values: a straight line whose zero is the
                # middle
                points = [(part, part - sum(bracket) / 2, None) for part in parts]
                if ends is not None and ends[0][0] < 0.0 <= ends[1][0]:
                    points = [(part, *end) for part, end in zip(parts, ends, strict=True)]
                curve = interpolate(points)
                hits.append(EventBracket(surface, *bracket, -1.0, curve))
                continue
            end = surface.at(t_next, u_next, self.p)
            bracketed = (
                None
                if surface.far(end, h)
                else detector.examine(surface, t, u, t_next, u_next, end)
            )
            if bracketed is not None:  # monitors know themselves what may jump
                hits.append(bracketed._replace(size=math.inf))
        return hits

    def _look_for_jump(self, name: str, *, resolved: bool = False) -> None:
        """Warn if the equations jump at an event that is about to happen, for the 1st, 2nd, 4th ...

        time.
        """
        log = self.log
        if not log.sizes or not log.sizes[-1]:
            return
        before: Any = log.states[-2]
        if before is None:  # of a run that keeps some of its states, not this one
            return
        count = self._looks[name] = self._looks.get(name, 0) + 1
        # at powers of two: each look takes callbacks, and a run may have thousands of events
        if count & (count - 1):
            return
        step = Step(log.times[-2], log.sizes[-1], before, log.states[-1], self.p)
        warn_of_jump(self._smooth[self.mode], step, name, resolved=resolved)

    def _next_start(self, run: Run) -> float:
        """Return the size of the first step to try after an event.

        That of the last steps, as far as the first step of a piece was not refused lately.
        """
        first = float(run.sizes[0])
        refused = run.effort.rejected > 0 and self._size is not None and first < self._size
        self._largest_start = first if refused else 1.05 * self._largest_start
        return min(float(run.sizes[-2:].max()), self._largest_start)

    def _keep_grid(self, t: float) -> None:
        """Note where the step that an event cuts, or begins, would have ended."""
        if self.stepping.dt is not None and not self.stepping.adaptive:
            self._grid_end = t

    def _next_of_grid(self, t: float, detector: EventDetector) -> float | None:
        """Return where the step that an event has cut would have ended.

        Later times then do not depend on that of the event.  It is the end of the next step where
        the rest is tiny: a larger part left out would show as a jump of costs, as the event moves.
        """
        if self._grid_end is None or self._grid_end < t:
            return None
        # fixed steps go on along the grid that they would have had without the event
        dt = detector.runner.first_step
        return self._grid_end + dt if self._grid_end - t < HIT * dt else self._grid_end

    def _first_hits(self, detector: EventDetector) -> list[Surface]:
        """End the last step at the first crossing; return its surface, or two that are one."""
        log = self.log
        t, h, u = log.times[-2], log.sizes[-1], log.states[-2]
        roots = located(detector, t, h, u, log.states[-1])
        size, end, bracketed = roots[0]
        # roots closer than rounding can order are one instant, whose order is looked at below
        crossed = [root for length, _, root in roots if length - size <= TOGETHER * h]
        for root in crossed:
            root.surface.towards = -root.side
        together = [root.surface for root in crossed]
        if log.times[-1] in self._observed and h - size <= self._rounding:
            log.stay(self.mode, self.p)  # what is observed before the event is so at a fixed time
            size, end = 0.0, log.states[-1]
        log.end_at(bracketed.surface.switch, size, end)
        # the scale of each function: what it is at both ends of the step
        ways = [abs(root.curve.at(0.0)[0]) + abs(root.curve.at(1.0)[0]) for _, _, root in roots]
        self._check_order(together, ways)
        return together

    def _check_order(self, surfaces: Sequence[Surface], ways: Sequence[float]) -> None:
        """Refuse events at one instant unless their order makes no difference.

        ``ways`` say how far their functions go in a step.
        """
        if len(surfaces) == 1:
            return
        log = self.log
        names = names_apart([surface.event for surface in surfaces], self.problem)
        t, h, u, end = log.times[-2], log.sizes[-1], log.states[-2], log.states[-1]
        if len(surfaces) > 2:
            raise at_one_instant(log.times[-1], names)
        now = HybridState(log.times[-1], end, self.p, self.mode)
        # the first event is applied; the other function must still be zero, or its event is lost
        for first, other, way in zip(surfaces, surfaces[::-1], ways[1::-1], strict=True):
            _, after = _happening(first).apply(self.problem, now, self._consistency)
            left = abs(other.at(now.t, after.state, after.p))
            if left > 1e-8 * way:  # afterwards the other one does not happen
                raise at_one_instant(log.times[-1], names)
        # both orders have to give the same state, mode, parameters and derivatives
        step = Step(t, h, u, end, self.p)
        known = self.problem, self._smooth, self.stepping, self._consistency
        check_order(
            SimultaneousEvents(*known, step, self.mode), *map(_happening, surfaces), names=names
        )

    def _reach(self, surface: Surface) -> None:
        """Note that the state is on the surface of an event already."""
        self.log.stay(self.mode, self.p)
        self.log.end_at(surface.switch, 0.0, self.log.states[-1])

    def _all_happen(self, surfaces: Sequence[Surface]) -> None:
        """Let the events of one instant happen, of which the first one's surface is reached."""
        for number, surface in enumerate(surfaces):
            if number:
                self._reach(surface)
            self._happen(surface.event, surface.switch)
            if self.finished:
                return

    def _happen(self, event: Event, switch: Switch) -> None:
        """Jump; afterwards algebraic variables are made consistent."""
        before = HybridState(*self.log.last, self.p, self.mode)
        if self.monitor is not None:
            self.monitor.ends(before.t, read(before.state))
        only_ends = (
            event.terminal and event.reset is None and event.mode is None and not event.changes
        )
        jump, after = FiredEvent(switch, event.mode).apply(
            self.problem, before, None if only_ends else self._consistency
        )
        self.p, self.mode = after.p, after.mode
        self.log.jump(switch, jump, after.state, (before.p, after.p), before.mode, after.mode)
        if event.terminal and not only_ends:
            self._complete(*self.log.last)
        self.finished = event.terminal


def _happening(surface: Surface) -> FiredEvent:
    return FiredEvent(surface.switch, surface.event.mode)


def run_through_events(
    problem: Problem,
    state: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    pinned: Array,
    record: Recording,
    stay: Stay | None = None,
) -> Trajectory:
    """Run a problem with events from ``state`` [n], which becomes the first of the trajectory.

    After an event fixed steps go on to the end of the step that it cut: the times of all later ones
    do not depend on that of the event.  An event with a direction happens at the start if the run
    begins on its surface and moves that way.

    Parameters, result and errors as for ``solve``; ``stay`` says which states stay.

    Raises
    ------
    SolveError
        Events accumulate, or a surface is crossed twice where that is to be refused.  Two events at
        one instant whose order matters, one of them implicit.
    """
    with ExitStack() as runners:
        passage = _EventLoop(problem, state, p, stepping, pinned, record, runners, stay)
        try:
            passage.go()
        except SolveError as error:
            if isinstance(error, ChatterError):
                error = passage.touched(error)
            error.run = passage.log.trajectory(problem, p, stepping, record)
            raise error from None
    trajectory = passage.log.trajectory(problem, p, stepping, record)
    return (
        trajectory
        if passage.monitor is None
        else replace(trajectory, report=passage.monitor.report)
    )


def run_of(problem: Problem) -> Callable[..., Trajectory]:
    """Return what runs a problem without delays: through events if it has some."""
    return smooth_run if problem.smooth else run_through_events
