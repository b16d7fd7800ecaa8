"""Runs of delay equations by the method of steps, with explicit Runge-Kutta methods.

TS has no part in them: its stages know nothing of the steps before, and what derivatives need is
the continuous extension of every step, with the delayed times that each stage has looked at.  The
discrete program is this.

- The run is cut at the times that steps have to hit and at breaking points t_0 + sum m_l tau_l,
  where derivatives of the solution jump: at t_0 the first one, or the state itself where it is not
  the history's, and at each further sum one order higher.  Sums of as many delays as the method's
  order are cut at.  Breaking points move with the delays, the other times do not.
- A piece between two cuts is divided into parts.  Fixed steps: equal ones, none longer than dt.
  Adaptive steps: as the error estimate has it; their shares of the piece are what is held fixed
  when the run is differentiated, so that steps move with the ends of their piece.
- Breakpoints, where f or the history jumps in t, are cuts as well, and so are their sums with
  delays; f and the history are seen from the inside of a step.
- No step is longer than the smallest delay: what stages look at is over when they look.
- A run may be restarted from other states at some of its times, for multiple shooting: a step of
  size 0 whose end is that state.  What comes later looks at what was before, jump and all, so that
  kinks come back after delays as at the start.
- Events are such steps as well, at times of their own: known ones, parameters, or those at which a
  function of the state is zero, where the step that crosses it is cut (``delayed_events``).  The
  times of the latter two are clocks, as the delays are: times of steps are linear in all of them.

Source
------
docs/delays.md; docs/mathematics.md, section 7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import NotFiniteError, SolveError, UnsupportedError
from daeosens.methods.events.event_function import Switch
from daeosens.methods.rk.method import ExplicitMethod
from daeosens.petsc._kernels import starting_step
from daeosens.petsc.vectors import Array, read
from daeosens.problem.delay_equations import refuse_modes
from daeosens.problem.problem import Problem
from daeosens.timestepping.delayed_cuts import Cut, kinks_after, widened
from daeosens.timestepping.delayed_events import DelayedEvents
from daeosens.timestepping.delayed_stages import StepsSoFar
from daeosens.timestepping.delayed_steps import DelayedSteps, interpolated
from daeosens.timestepping.step_times import span_rounding
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.states import States
from daeosens.timestepping.trajectory.trajectory import Effort, Recording, Trajectory
from daeosens.timestepping.ts_defaults import estimates_below

MARGIN = 0.9
"""Part of the smallest delay that adaptive steps are no longer than.

The steps of a run are taken again with other delays, in their shares of pieces."""

SAFETY, SHRINK, GROW = 0.9, 0.1, 5.0
"""What step sizes are multiplied by beside the root of the error, and the limits of that."""

LEAST_FIRST = 100.0
"""The first step that is tried is no shorter than so many times the rounding of times."""

EQUAL = 1e-9
"""Part of a step by which a piece may be longer than its steps without one more of them."""


def run_delayed(
    problem: Problem,
    state: PETSc.Vec,
    p: Array,
    stepping: Stepping,
    pinned: Array,
    recording: Recording,
    restarts: Mapping[float, Array] | None = None,
) -> Trajectory:
    """Return the run of a delay equation from ``state`` [n].

    Parameters
    ----------
    problem, stepping, recording
        As for ``solve``.
    state, p : Vec [n], array [m]
        Admitted.
    pinned : array [K]
        Times that steps hit.
    restarts : mapping of float to array [n]
        Some of these times, inside the span, and the states from which the run goes on there.

    Raises
    ------
    UnsupportedError
        Another method than an explicit Runge-Kutta method, PETSc options, events.
    SolveError
        A delay that is not positive, too many steps, values that are not finite.
    """
    method = refuse_unsound(problem, stepping, recording)
    delays = problem.delays
    assert delays is not None
    steps = StepsSoFar(problem, method, stepping, delays.values(p), read(state).copy(), p)
    run = _Run(problem, stepping, p, steps)
    try:
        run.take(pinned, restarts or {})
    except SolveError as error:
        if problem.events:
            error.run = _logged(run, problem, p, stepping, state, pinned)
        raise
    return _logged(run, problem, p, stepping, state, pinned)


def _logged(
    run: _Run, problem: Problem, p: Array, stepping: Stepping, state: PETSc.Vec, pinned: Array
) -> Trajectory:
    """Return the steps so far as a run."""
    steps, events = run.steps, run.events
    rows, rates, looked, time_slopes, size_slopes = steps.arrays()
    times, sizes = np.array(steps.times), np.array(steps.sizes)
    times.setflags(write=False)
    sizes.setflags(write=False)
    record = DelayedSteps(
        steps.tableau,
        steps.tau,
        rates,
        looked,
        time_slopes,
        size_slopes,
        tuple(run.breaking),
        tuple(map(np.array, run.shares)),
        pinned,
        tuple(run.restarts),
        dict(events.moving),
        dict(events.located),
    )
    taken = np.count_nonzero(sizes) if problem.events else len(sizes)
    return Trajectory(
        problem,
        p,
        stepping,
        times,
        sizes,
        States(rows, state),
        Effort(int(taken), run.rejected, 0, 0),
        "states",
        crossings=tuple(events.crossings),
        records=tuple(steps.records) if events.crossings else (),
        report=record,
        inside=interpolated,
    )


def refuse_unsound(
    problem: Problem, stepping: Stepping, record: Recording = "states"
) -> ExplicitMethod:
    """Return the method of a run of a delay equation.

    Raises
    ------
    UnsupportedError
        What cannot be, with the alternative.
    """
    method = stepping.resolved_method
    if not isinstance(method, ExplicitMethod):
        raise UnsupportedError(
            f'method = "{stepping.method}" for a delay equation',
            expected="an explicit Runge-Kutta method",
            remedy='"rk5ts" with rtol, or "rk4" with dt',
        )
    refuse_modes(problem)
    if stepping.options:
        raise UnsupportedError(
            f"PETSc options for a delay equation: {', '.join(stepping.options)}",
            expected="no options: TS does not take these steps",
            remedy="dt, rtol, atol, max_step and max_steps of Stepping",
        )
    if stepping.control != "states":
        raise UnsupportedError(
            f"control = {stepping.control!r} for a delay equation",
            expected='control = "states"',
            remedy="a smaller rtol; derivatives.derivative_error tells what is reached",
        )
    if record in ("memory", "disk"):
        raise UnsupportedError(
            f'petsc_trajectory = "{record}" for a delay equation',
            expected='"states"',
            remedy='adjoint(..., engine="auto")',
        )
    return method


class _Run:
    """A run under way: pieces between cuts, and the steps of each."""

    def __init__(self, problem: Problem, stepping: Stepping, p: Array, steps: StepsSoFar) -> None:
        self._problem, self._stepping, self._p = problem, stepping, p
        self.steps, self.events = steps, DelayedEvents(problem, stepping, p, steps)
        self._order = stepping.resolved_method.order
        self._first, self._last = stepping.t_span
        self._rounding = span_rounding(stepping.t_span)
        self.breaking: list[int] = []
        self.shares: list[list[float]] = []
        self.restarts: list[int] = []
        self.rejected = 0
        self._last_rate: Array | None = None  # where the next step may take it over

    def take(self, pinned: Array, restarts: Mapping[float, Array]) -> None:
        """Take all steps, which hit times and go on from other states at some of them."""
        cuts, events, clocks = self._cuts(pinned, restarts), self.events, self.steps.clocks
        known = self._stepping.shares
        # an event may end the run before, and steps that are known are as long as they are
        if not (self._stepping.adaptive and (known or self._problem.events)):
            self._refuse_many((cuts[-1].time - cuts[0].time) / self._longest())
        choosing = self._stepping.adaptive and self._stepping.dt is None and not known
        self._size = self._first_size(cuts) if choosing else self._stepping.first_step
        now, cuts = cuts[0], cuts[1:]
        while cuts:
            cut = cuts[0]
            length, moves = cut.time - now.time, cut.slope - now.slope
            self._last_rate = None
            # of several cuts at one time the one that does not move comes first
            if now.time in restarts and not now.slope.any():
                self.restarts.append(len(self.steps.sizes))
                self.steps.jump(restarts[now.time])
            reached = events.begin(cuts) if length > 0.0 else None
            if reached is not None:
                self.steps.stay(now.slope)
            elif length > 0.0 or moves.any():
                # a piece that begins where delays say has a moving start
                if now.slope.any():
                    self.breaking.append(len(self.steps.sizes))
                reached = self._piece((now.time, length, now.slope, moves))
            if reached is not None:
                # the event is a clock of its own
                at = self.steps.times[-1]
                before = now.slope if at - now.time <= self._rounding else None
                after = cut.slope if cut.time - at <= self._rounding else None
                events.located[len(self.steps.sizes) - 1] = clocks.add_between(before, after)
                width = len(clocks)
                cuts = [later._replace(slope=widened(later.slope, width)) for later in cuts]
                now = Cut(self.steps.times[-1], np.eye(width)[-1])
                self.steps.end_at(now.slope, reached)
            else:
                now = cuts.pop(0)
                if now.event < 0:
                    continue
                reached = events.timed[now.event][1]
                if now.slope.any():
                    self.steps.end_at(None, reached)
            if events.happen(reached):
                return
            after = kinks_after(now, self.steps.tau, self._order, self._last, self._rounding)
            cuts = clocks.in_order([*cuts, *after], self._rounding)
            # what is left of rounding is no step
            close = now.time + self._rounding
            cuts = [cut._replace(time=now.time) if cut.time <= close else cut for cut in cuts]
        if known and len(known) != len(self.shares):
            raise self._other_pieces()

    def _cuts(self, pinned: Array, restarts: Mapping[float, Array]) -> list[Cut]:
        """Return where the run is cut, but for events that are not known before it."""
        first, last, rounding = self._first, self._last, self._rounding
        still = np.zeros(len(self.steps.clocks))
        cuts = [Cut(time, still) for time in np.unique([first, *pinned.tolist(), last]).tolist()]
        cuts += self.events.cuts()
        for kink in (first, *self._problem.breakpoints, *restarts):
            after = kinks_after(Cut(kink, still), self.steps.tau, self._order, last, rounding)
            # of one in the history: longer delays bring it back after the start
            cuts += [cut for cut in after if cut.time >= first - rounding]
        return self.steps.clocks.in_order(cuts, self._rounding)

    def _other_pieces(self) -> SolveError:
        return SolveError(
            f"a run of {len(self._stepping.shares)} pieces between breaking points and events has "
            "another number of them with other parameters",
            expected="the same number: nearby delays",
        )

    def _piece(self, piece: tuple[Any, ...]) -> Switch | None:
        """Take the steps of a piece; return the event at the state that ends it before, if any."""
        _, length, _, _ = piece
        known, number = self._stepping.shares, len(self.shares)
        if known and number >= len(known):
            raise self._other_pieces()
        self.shares.append([])
        if known or length == 0.0:
            ends = known[number].tolist() if known and length else [1.0]
            for part, to in itertools.pairwise([0.0, *ends]):
                self._take((to - part) * length, part, to, piece)
                if self.events.reached is not None:
                    break
            else:
                if ends[-1] != 1.0:
                    raise self._other_pieces()
        elif self._stepping.adaptive:
            self._size = self._adaptive(self._size, piece)
        else:
            parts = max(1, int(np.ceil(length / self._longest() - EQUAL)))
            for i in range(parts):
                self._take(length / parts, i / parts, (i + 1) / parts, piece)
                if self.events.reached is not None:
                    break
        return self.events.reached

    def _first_size(self, cuts: Sequence[Cut]) -> float:
        """Return the size of the first step to try, over which all that is delayed is history."""
        stepping, delays, start = self._stepping, self._problem.delays, self.steps.state.copy()
        assert delays is not None
        n = len(start)
        least = stepping.first_step
        room = min(cut.time for cut in cuts if cut.time > self._first) - self._first
        longest = max(
            least, min(stepping.longest_first_step, room, MARGIN * float(self.steps.tau.min()))
        )
        y = np.empty(1 + n * (1 + len(self.steps.tau)))

        def rate(t: float, u: Array, out: Array) -> None:
            y[0], y[1 : 1 + n] = t, u
            try:
                # the kernel looks no further than the least delay
                late = [delays.history(t - float(tau), self._p) for tau in self.steps.tau]
                y[1 + n :] = np.ravel(late)
                out[:] = delays.rate(y.copy(), self._p)
            except NotFiniteError:
                out.fill(np.nan)

        tolerances = estimates_below(stepping, self._problem)
        known = (least, longest, self._order, *tolerances)
        size = starting_step(rate, self._first, start, None, *known)
        # an unknown in a large unit that starts at zero asks for less than times can tell
        return min(max(size, LEAST_FIRST * self._rounding), longest)

    def _longest(self) -> float:
        """Return how long a step is at most: what a stage asks for is behind the step."""
        shortest, stepping = float(self.steps.tau.min()), self._stepping
        if not stepping.adaptive:
            assert stepping.dt is not None
            return min(stepping.dt, shortest)
        return min(MARGIN * shortest, stepping.max_step or np.inf)

    def _adaptive(self, size: float, piece: tuple[Any, ...]) -> float:
        """Take the steps of a piece by their errors; return the size for the next one."""
        stepping, (begin, length, _, _) = self._stepping, piece
        rtol, atol = estimates_below(stepping, self._problem)
        longest = self._longest()
        done = 0.0
        while done < length:
            left = length - done
            h = min(size, longest)
            if left <= h * (1.0 + EQUAL):
                h = left
            elif left < 2.0 * h:  # two of the same size, and not one that is short
                h = 0.5 * left
            if h <= self._rounding:
                raise SolveError(
                    f"steps of a delay equation shrank to {h:.2g} at t = {begin + done:.9g}",
                    expected=f"errors below the tolerance, rtol = {rtol:g}, atol = {atol:g}",
                    remedy="bounds on the parameters, another starting point, or another rtol",
                )
            self._refuse_many(len(self.steps.sizes) + 1)
            to = 1.0 if h == left else (done + h) / length
            try:
                error = self._take(h, done / length, to, piece, (rtol, atol))
            except NotFiniteError:
                if 0.25 * h <= 4.0 * self._rounding:
                    raise
                error = np.inf
            factor = SAFETY * error ** (-1.0 / self._order) if error > 0.0 else GROW
            if error > 1.0:
                self.rejected += 1
                # a rejected step never grows, and shrinks by ten at most
                size = h * max(min(factor, 1.0), SHRINK)
                continue
            # a step that was cut says little of how long the next one may be
            size = max(h * min(max(factor, SHRINK), GROW), size if h < min(size, longest) else 0.0)
            if self.events.reached is not None:
                break
            done = length if h == left else done + h
        return size

    def _take(
        self,
        h: float,
        part: float,
        to: float,
        piece: tuple[Any, ...],
        tolerances: tuple[float, float] | None = None,
    ) -> float:
        """Take one step between two shares of a piece; return its error in units of tolerances."""
        begin, length, slope, moves = piece
        k, looked, after = self.steps.stages(h, repeat=self._last_rate)
        if tolerances is not None and self.steps.tableau.b_error is not None and h:
            rtol, atol = tolerances
            u = self.steps.state
            scale = atol + rtol * np.maximum(np.abs(u), np.abs(after))
            missing = h * (self.steps.tableau.b_error @ k) / scale
            error = math.sqrt(missing @ missing / missing.size)
            if not error <= 1.0:
                return error
        else:
            error = 0.0
        self.shares[-1].append(to)
        end = float(begin + length if to == 1.0 else begin + to * length)
        # ends of steps are shares of a piece whose both ends move with the clocks
        slope = slope + to * moves
        cut = self.events.crossed(h, end, after) if h else None
        if cut is not None:  # the step ends there, and moves with the event
            h, end = cut, self.steps.times[-1] + cut
            k, looked, after = self.steps.stages(h)
        self._last_rate = k[self.steps.tableau.end] if h else None
        self.steps.note(after, k, looked, end, h, slope)
        return error

    def _refuse_many(self, count: float) -> None:
        if count > self._stepping.max_steps:
            raise SolveError(
                f"a delay equation needs more than max_steps = {self._stepping.max_steps} steps; "
                f"none is longer than the smallest delay, {self.steps.tau.min():.3g}",
                expected=f"the end of the run, t = {self._stepping.t_span[1]:g}",
                remedy="a larger max_steps, bounds of the delays",
            )
