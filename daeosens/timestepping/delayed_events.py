"""The events along a run of a delay equation: which are known before it, and which its steps find.

What sees a crossing in a step, and where it is, are those of other runs (``timestepping/events``):
they ask for steps of any size from the state that the run has come to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import NotFiniteError
from daeosens.methods.events.event_function import Switch, lower_events
from daeosens.methods.events.event_step import StepRecord
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.event import Event
from daeosens.problem.problem import Problem
from daeosens.timestepping.delayed_cuts import Cut
from daeosens.timestepping.delayed_stages import StepsSoFar
from daeosens.timestepping.events.detection import EventDetector
from daeosens.timestepping.events.event_surface import Surface
from daeosens.timestepping.events.jumps import warn_of_jump
from daeosens.timestepping.events.location import located, refuse_jump_from_rest
from daeosens.timestepping.events.simultaneous import TO_AND_FRO, at_one_instant, names_apart
from daeosens.timestepping.events.zeno import refuse_chatter, refuse_crowd, refuse_passing
from daeosens.timestepping.step_times import inside_span, span_rounding
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.crossing import Crossing
from daeosens.timestepping.trajectory.states import view_of

TOGETHER = 1e-9
"""Crossings that are nearer than this part of a step happen at one instant."""

ASIDE = 1e-4
"""Part of a step by which an event is before its end, for its equations to be looked at there."""

BESIDE = 1e-3
"""Part of a short step whose inside tells on which side of its ends delayed times are."""


class _Trial:
    """Steps of any size from the state that a run has come to, as events are located by."""

    def __init__(self, steps: StepsSoFar, p: Array, short_step: float) -> None:
        self._steps, self.p, self.short_step = steps, p, short_step

    def step(
        self, _t: float, h: float, _u: PETSc.Vec, state: PETSc.Vec, *, again: bool = False
    ) -> None:
        """Fill ``state`` [n] with the end of a step."""
        write(state, self._steps.stages(h)[2])


class DelayedEvents:
    """The events of one run: those at known times, and those that its steps find.

    Attributes
    ----------
    timed : list of (float, Switch, Event)
        The events whose times are known before the run.
    moving : dict of int to int
        The clocks of those whose times are parameters, and the numbers of these.
    located : dict of int to int
        Of the events at states the step that ends there, and the clock.
    crossings : list of Crossing
        What has happened.
    reached : Switch or None
        The event at whose surface the last step was cut.
    """

    def __init__(self, problem: Problem, stepping: Stepping, p: Array, steps: StepsSoFar) -> None:
        self._problem, self._p, self._steps, self._stepping = problem, p, steps, stepping
        self._shortest = float(steps.tau.min())
        self.timed: list[tuple[float, Switch, Event]] = []
        self.moving: dict[int, int] = {}
        self.located: dict[int, int] = {}
        self.crossings: list[Crossing] = []
        self.reached: Switch | None = None
        self._fired: list[Surface] = []
        self._settled = False
        self._clock_of: dict[int, int] = {}
        self._looks: dict[str, int] = {}
        surfaces = list[Surface]()
        if problem.events:
            surfaces = self._sorted_out()
        self._detector = self._watching(surfaces) if surfaces else None

    def _sorted_out(self) -> list[Surface]:
        """Note the events at known times; return the others."""
        first, last = self._stepping.t_span
        rounding, surfaces = span_rounding(self._stepping.t_span), list[Surface]()
        names = self._problem.parameter_names
        for event, switch in zip(self._problem.events, lower_events(self._problem), strict=True):
            if event.delay is not None:
                begin, name = event.delay
                time = begin + float(self._p[names.index(name)])
                # outside of the span it does not happen, and nothing depends on its time
                if not first - rounding <= time <= last + rounding:
                    continue
                number = names.index(name)
                movers = list(dict.fromkeys([*self.moving.values(), number]))
                clock = self._steps.clocks.add_parameter(movers.index(number))
                self._clock_of[len(self.timed)], self.moving[clock] = clock, number
                self.timed.append((min(max(time, first), last), switch, event))
            elif event.explicit:
                time = float(event.when)  # type: ignore[arg-type]
                if event.late == "ignore" and time > last:
                    continue
                inside_span((first, last), np.array([time]), f'event "{event.name}" at t =')
                self.timed.append((time, switch, event))
            else:
                surfaces.append(Surface(event, switch))
        return surfaces

    def _watching(self, surfaces: Sequence[Surface]) -> EventDetector:
        """Return what watches surfaces along steps."""
        stepping, steps = self._stepping, self._steps
        trial = _Trial(steps, self._p, min(stepping.short_step, 0.5 * self._shortest))
        beside = BESIDE * trial.short_step

        def rate(t: float, u: PETSc.Vec, _p: Any, out: PETSc.Vec) -> None:
            write(out, steps.rate(t, read(u), beside))

        # as an equation without delays: its rate is that of the run where it is
        problem = replace(self._problem, events=(), delays=None, rhs_function=rate)
        self._before, self._after = problem.create_state(), problem.create_state()
        runner: Any = trial
        return EventDetector(problem, runner, surfaces, stepping.adaptive, checked=False)

    def cuts(self) -> list[Cut]:
        """Return the times that are known before the run, as cuts of it."""
        units = np.eye(len(self._steps.clocks))
        none = np.zeros(len(units))
        return [
            Cut(time, units[self._clock_of[k]] if k in self._clock_of else none, k)
            for k, (time, _, _) in enumerate(self.timed)
        ]

    def begin(self, cuts: Sequence[Cut]) -> Switch | None:
        """Find the sides of surfaces where a piece begins; return one that is crossed there."""
        self.reached, detector = None, self._detector
        if detector is None:
            return None
        detector.end = next((cut.time for cut in cuts if cut.event >= 0), cuts[-1].time)
        if self._settled:
            return None
        t = self._steps.times[-1]
        write(self._before, self._steps.state)
        entered = detector.settle(t, self._before, self._fired)
        refuse_passing(self._fired, self.crossings)
        if entered and (self._fired or len(entered) > 1):
            events = [surface.event for surface in (*self._fired, *entered)]
            raise at_one_instant(
                t, names_apart(events, self._problem), TO_AND_FRO * bool(self._fired)
            )
        for surface in entered:
            surface.towards = float(surface.direction)
        self._fired, self._settled = entered, not entered
        self.reached = entered[0].switch if entered else None
        return self.reached

    def crossed(self, h: float, end: float, after: Array) -> float | None:
        """Return the size of the step that ends at the first event in a step, if there is one.

        Raises
        ------
        NotFiniteError
            An event function has no value where the step ends.
        """
        detector = self._detector
        if detector is None:
            return None
        t = self._steps.times[-1]
        write(self._before, self._steps.state)
        write(self._after, after)
        detector.hits.clear()
        seen = detector.watch(t, self._before, end, self._after)
        while detector.left:
            refuse_jump_from_rest(detector, *detector.left.pop())
        if detector.fault is not None:
            fault, detector.fault = detector.fault, None
            detector.settle(t, self._before, [])
            raise NotFiniteError(str(fault))
        if not seen:
            return None
        roots = located(detector, t, h, self._before, self._after)
        size, state, bracketed = roots[0]
        together = [root.surface for length, _, root in roots if length - size <= TOGETHER * h]
        if len(together) > 1:
            events = [surface.event for surface in together]
            raise at_one_instant(t + size, names_apart(events, self._problem))
        # where the step ends anyway what is delayed may jump as well
        if 0.0 < size < (1.0 - ASIDE) * h:
            name = bracketed.surface.event.name
            count = self._looks[name] = self._looks.get(name, 0) + 1
            if not count & (count - 1):  # each look takes callbacks
                step = Step(t, size, self._before, state, self._p)
                warn_of_jump(detector.problem, step, name)
        bracketed.surface.towards = -bracketed.side
        self._fired, self.reached = together, bracketed.surface.switch
        return size

    def happen(self, switch: Switch) -> bool:
        """Let an event happen to the state that the run has come to; return whether it ends it."""
        steps, problem = self._steps, self._problem
        n, t = len(steps.sizes), steps.times[-1]
        if self._fired and self.reached is None:  # a known one after that of a surface
            event = next(event for _, known, event in self.timed if known is switch)
            events = [*(surface.event for surface in self._fired), event]
            raise at_one_instant(t, names_apart(events, problem))
        before, after = problem.create_state(), problem.create_state()
        write(before, steps.state)
        switch.jump.apply(t, before, self._p, after)
        moves = bool(steps.time_slopes[-1][len(steps.tau) :].any())
        steps.jump(read(after).copy(), StepRecord("", self._p, timed=moves, jump=switch.jump))
        self.crossings.append(
            Crossing(switch.name, t, n, view_of(before), view_of(after), "", self._p, "")
        )
        first, last = self._stepping.t_span
        refuse_crowd(self.crossings, last - first)
        refuse_chatter(self.crossings, len(steps.sizes), self._stepping.max_steps)
        self.reached, self._settled = None, False
        events = zip(problem.events, lower_events(problem), strict=True)
        return next(event.terminal for event, lowered in events if lowered is switch)
