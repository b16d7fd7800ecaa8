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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import NotFiniteError, SolveError, UnsupportedError
from daeosens.methods.events.event_function import Switch
from daeosens.methods.events.event_step import StepRecord
from daeosens.methods.rk.continuous import ContinuousTableau, continuous
from daeosens.methods.rk.method import ExplicitMethod
from daeosens.petsc._kernels import look_back, starting_step, take_stages
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.delay_equations import refuse_modes
from daeosens.problem.problem import Problem
from daeosens.timestepping.delayed_events import Cut, DelayedEvents
from daeosens.timestepping.step_times import span_rounding
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.states import States
from daeosens.timestepping.trajectory.trajectory import Effort, Recording, Trajectory

MARGIN = 0.9
"""Part of the smallest delay that adaptive steps are no longer than.

The steps of a run are taken again with other delays, in their shares of pieces."""

INWARDS = 1e-6
"""Part of the way to the middle of its step by which a delayed time is moved to tell its side."""

SAFETY, SHRINK, GROW = 0.9, 0.1, 5.0
"""What step sizes are multiplied by beside the root of the error, and the limits of that."""

HISTORY, LATER_HISTORY = -1, -2
"""What stands for a step that is looked at: the history, and after a breakpoint at that time."""

ECHOES = 3
"""Sums of so many delays, at most, after which steps end at what kinks inside of the run make."""

EQUAL = 1e-9
"""Part of a step by which a piece may be longer than its steps without one more of them."""


@dataclass(frozen=True, eq=False, repr=False)
class DelayedSteps:
    """What a run of a delay equation is made of beside its states: N steps of S stages.

    Attributes
    ----------
    tableau : ContinuousTableau
        The method, with the stages of its continuous extension.
    tau : array [d]
        The delays.
    rates : array [N, S, n]
        f at the stages.
    looked : array [N, S, d] of int
        The step in which the delayed time of a stage lies; negative in the history.
    time_slopes, size_slopes : array [N+1, c], [N, c]
        Derivatives of the times of the states, and of the sizes of the steps, in the clocks: the
        delays, and the times of events that move.
    breaking : tuple of int
        Numbers of the states at breaking points.
    shares : tuple of array
        Where the steps of each piece end, as parts of it.
    restarts : tuple of int
        Numbers of those steps, of size 0, that end at a state that was given.
    moving : mapping of int to int
        Of the events at times that are parameters: the clock, and the number of the parameter.
    located : mapping of int to int
        Of the events at states: the step that ends there, and the clock.
    """

    tableau: ContinuousTableau
    tau: Array
    rates: Array
    looked: Any
    time_slopes: Array
    size_slopes: Array
    breaking: tuple[int, ...]
    shares: tuple[Array, ...]
    restarts: tuple[int, ...] = ()
    moving: Mapping[int, int] = field(default_factory=dict[int, int])
    located: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def clocks(self) -> int:
        """Number c of the clocks."""
        return self.time_slopes.shape[1]

    def __repr__(self) -> str:
        """Return how many steps there are between which breaking points."""
        count, stages, n = self.rates.shape
        delays = ", ".join(f"{tau:.6g}" for tau in np.atleast_1d(self.tau).tolist())
        return (
            f"DelayedSteps({count} steps of {stages} stages, {n} unknowns, "
            f"{len(self.breaking)} breaking points; delays {delays})"
        )


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
    tau = delays.values(p)
    steps = _Steps(problem, method, stepping, tau, read(state).copy(), p)
    restarts = restarts or {}
    try:
        steps.take(pinned, restarts)
    except SolveError as error:
        if problem.events:
            error.run = _logged(steps, problem, p, stepping, state)
        raise
    return _logged(steps, problem, p, stepping, state)


def _logged(
    steps: _Steps, problem: Problem, p: Array, stepping: Stepping, state: PETSc.Vec
) -> Trajectory:
    """Return the steps so far as a run."""
    rows, times, sizes = steps.states(), np.array(steps.times), np.array(steps.sizes)
    times.setflags(write=False)
    sizes.setflags(write=False)
    count, events = len(sizes), steps.events
    record = DelayedSteps(
        steps.tableau,
        steps.tau,
        steps.rates[:count],
        steps.looked[:count],
        steps.padded(steps.time_slopes),
        steps.padded(steps.size_slopes),
        tuple(steps.breaking),
        tuple(map(np.array, steps.shares)),
        tuple(steps.restarts),
        dict(events.moving),
        dict(events.located),
    )
    return Trajectory(
        problem,
        p,
        stepping,
        times,
        sizes,
        States(rows, state),
        Effort(int(np.count_nonzero(sizes)), steps.rejected, 0, 0)
        if problem.events
        else Effort(count, steps.rejected, 0, 0),
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


def _kinks_after(cut: Cut, tau: Array, order: int, last: float, rounding: float) -> list[Cut]:
    """Return where a kink, or a jump of the state, comes back after delays.

    A kink comes back after each, one order smoother.  Beyond the order of the method steps do not
    feel it.  The sums move with the delays: d time / d tau_l is how often tau_l is in the sum.
    """
    cuts: list[Cut] = []
    for multiples in _sums(len(tau), order, tau, last - cut.time - rounding):
        slope = cut.slope.copy()
        slope[: len(tau)] += multiples
        cuts.append(Cut(cut.time + float(np.dot(multiples, tau)), slope))
    return cuts


def _widened(slope: Array, width: int) -> Array:
    """Return slopes in the clocks that there were in as many as there are now."""
    return slope if len(slope) == width else np.pad(slope, (0, width - len(slope)))


def echoes(run: Trajectory, kinks: Sequence[float]) -> Array:
    """Return the times at which kinks of the rates come back after delays, smoother each time.

    Rates are continuous at a kink, so that nothing is lost where these times stay as delays move.
    """
    tau, last = run.report.tau, float(run.times[-1])
    rounding, order = span_rounding(run.stepping.t_span), run.stepping.resolved_method.order
    times = [
        kink + np.dot(multiples, tau)
        for kink in kinks
        for multiples in _sums(len(tau), min(order, ECHOES), tau, last - kink - rounding)
    ]
    return np.unique(np.array(times, dtype=float))


def _sums(count: int, order: int, tau: Array, length: float) -> Iterator[tuple[int, ...]]:
    """Yield how often each delay enters the sums of up to ``order`` of them within the run."""
    for level in range(1, order + 1):
        for chosen in itertools.combinations_with_replacement(range(count), level):
            multiples = tuple(chosen.count(number) for number in range(count))
            if float(np.dot(multiples, tau)) < length:
                yield multiples


class _Steps:
    """The steps so far, in arrays that grow."""

    def __init__(
        self,
        problem: Problem,
        method: ExplicitMethod,
        stepping: Stepping,
        tau: Array,
        start: Array,
        p: Array,
    ) -> None:
        self.tableau = continuous(method.kind, method.order, estimated=stepping.adaptive)
        assert problem.delays is not None
        self._problem, self._delays = problem, problem.delays
        self._stepping, self.tau, self._p = stepping, tau, p
        self._order = method.order
        self._first, self._last = stepping.t_span
        self._rounding = span_rounding(stepping.t_span)
        n, d, s = len(start), len(tau), len(self.tableau.b)
        self._u, self.rates = np.empty((65, n)), np.empty((64, s, n))
        self.looked = np.empty((64, s, d), dtype=np.int64)
        self._u[0] = start
        self.times: list[float] = [self._first]
        self.sizes: list[float] = []
        # times and sizes again, to be searched
        self._ends, self._lengths = np.empty(65), np.empty(64)
        self._ends[0] = self._first
        self._in_c = problem.delays.rates.rhs_in_c
        self._work = np.empty((2, 1 + n + d * n))
        self.time_slopes: list[Array] = [np.zeros(d)]
        self.size_slopes: list[Array] = []
        self.breaking: list[int] = []
        self.shares: list[list[float]] = []
        self.restarts: list[int] = []
        self.records: list[StepRecord] = []
        self.rejected = 0
        self._last_rate: Array | None = None  # where the next step may take it over
        self.events = DelayedEvents(problem, stepping, p, tau, self)

    def states(self) -> Array:
        """Return the states [N+1, n]."""
        return self._u[: len(self.times)].copy()

    def padded(self, slopes: Sequence[Array]) -> Array:
        """Return rows of slopes in the clocks that there were as an array [K, c] in all of them."""
        rows = np.zeros((len(slopes), self.events.clocks))
        for row, slope in zip(rows, slopes, strict=True):
            row[: len(slope)] = slope
        return rows

    def take(self, pinned: Array, restarts: Mapping[float, Array]) -> None:
        """Take all steps, which hit times and go on from other states at some of them."""
        cuts, events = self._cuts(pinned, restarts), self.events
        shortest = float(self.tau.min())
        if not self._stepping.adaptive:
            assert self._stepping.dt is not None
            self._refuse_many((cuts[-1].time - cuts[0].time) / min(self._stepping.dt, shortest))
        known = self._stepping.shares
        choosing = self._stepping.adaptive and self._stepping.dt is None and not known
        self._size = self._first_size(cuts) if choosing else self._stepping.first_step
        now, cuts = cuts[0], cuts[1:]
        while cuts:
            cut = cuts[0]
            length, moves = cut.time - now.time, cut.slope - now.slope
            self._last_rate = None
            # of several cuts at one time the one that does not move comes first
            if now.time in restarts and not now.slope.any():
                self._restart(restarts[now.time])
            reached = events.begin(cuts) if length > 0.0 else None
            if reached is not None:
                self._record_zero(now.slope)
            elif length > 0.0 or moves.any():
                # a piece that begins where delays say has a moving start
                if now.slope.any():
                    self.breaking.append(len(self.sizes))
                reached = self._piece((now.time, length, now.slope, moves))
            if reached is not None:
                # the event is a clock of its own
                at = self.times[-1]
                before = now.slope if at - now.time <= self._rounding else None
                after = cut.slope if cut.time - at <= self._rounding else None
                width = events.add_clock(len(self.sizes) - 1, (before, after))
                cuts = [later._replace(slope=_widened(later.slope, width)) for later in cuts]
                now = Cut(self.times[-1], np.eye(width)[-1])
                self._end_at(now.slope, reached)
            else:
                now = cuts.pop(0)
                if now.event < 0:
                    continue
                reached = events.timed[now.event][1]
                if now.slope.any():
                    self._end_at(None, reached)
            if events.happen(reached):
                return
            after = _kinks_after(now, self.tau, self._order, self._last, self._rounding)
            cuts = self._in_order([*cuts, *after])
            # what is left of rounding is no step
            close = now.time + self._rounding
            cuts = [cut._replace(time=now.time) if cut.time <= close else cut for cut in cuts]
        if known and len(known) != len(self.shares):
            raise self._other_pieces()

    def _cuts(self, pinned: Array, restarts: Mapping[float, Array]) -> list[Cut]:
        """Return where the run is cut, but for events that are not known before it."""
        first, last, rounding = self._first, self._last, self._rounding
        still = np.zeros(self.events.clocks)
        cuts = [Cut(time, still) for time in np.unique([first, *pinned.tolist(), last]).tolist()]
        cuts += self.events.cuts()
        for kink in (first, *self._problem.breakpoints, *restarts):
            after = _kinks_after(Cut(kink, still), self.tau, self._order, last, rounding)
            # of one in the history
            cuts += [cut for cut in after if cut.time > first + rounding]
        return self._in_order(cuts)

    def _in_order(self, cuts: Sequence[Cut]) -> list[Cut]:
        """Return cuts in order; all of those that are the same up to rounding are at one time.

        With pieces of length 0 between them, and in the order of small changes of the clocks.
        After events that move a time that does not comes once more: the state there is seen before
        the event and after it.
        """
        by_time = sorted(cuts, key=lambda cut: cut.time)
        times = np.array([cut.time for cut in by_time])
        ordered: list[Cut] = []
        # groups of one time
        begins = np.flatnonzero(np.diff(times, prepend=-np.inf) > self._rounding)
        for k, end in itertools.pairwise([*begins.tolist(), len(times)]):
            group = sorted(
                by_time[k:end],
                key=lambda cut: (self.events.rank(cut.slope), cut.event >= 0, cut.event),
            )
            still = [cut for cut in group if not cut.slope.any() and cut.event < 0]
            fixed = [cut.time for cut in group if not cut.slope.any()]
            time = fixed[0] if fixed else by_time[k].time
            if any(cut.event >= 0 and cut.slope.any() for cut in group):
                group += still[:1]
            ordered += [cut._replace(time=time) for cut in [*still[:1], *group[len(still) :]]]
        return ordered

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
            assert self._stepping.dt is not None
            # no step is longer than the least delay, so that what a stage asks for is behind it
            longest = min(self._stepping.dt, float(self.tau.min()))
            parts = max(1, int(np.ceil(length / longest - EQUAL)))
            for i in range(parts):
                self._take(length / parts, i / parts, (i + 1) / parts, piece)
                if self.events.reached is not None:
                    break
        return self.events.reached

    def _restart(self, state: Array) -> None:
        """Go on from another state: a step of size 0."""
        self.restarts.append(len(self.sizes))
        self.jump(state)

    def jump(self, state: Array, record: StepRecord | None = None) -> None:
        """Go on from another state: a step of size 0."""
        n, t = len(self.sizes), self.times[-1]
        self._grow(n)
        looked = self._delayed(n, t, 0.0, self.tableau.c)[1]
        self._note(state, np.zeros_like(self.rates[n]), looked, t, 0.0, self.time_slopes[-1])
        if record is not None:
            self.records[-1] = record

    def _record_zero(self, slope: Array) -> None:
        """Take a step of size 0, which ends where it begins, but may move otherwise."""
        n, t = len(self.sizes), self.times[-1]
        rates, looked, after = self.stages(0.0)
        self._grow(n)
        self._note(after, rates, looked, t, 0.0, slope)

    def _note(
        self, state: Array, rates: Array, looked: Any, time: float, size: float, slope: Array
    ) -> None:
        """Append a step."""
        n = len(self.sizes)
        self._grow(n)
        self._u[n + 1], self.rates[n], self.looked[n] = state, rates, looked
        self._ends[n + 1], self._lengths[n] = time, size
        self.times.append(time)
        self.sizes.append(size)
        before = self.time_slopes[-1]
        self.time_slopes.append(slope)
        self.size_slopes.append(slope - _widened(before, len(slope)))
        self.records.append(StepRecord("", self._p, timed=bool(slope[len(self.tau) :].any())))

    def _end_at(self, slope: Array | None, switch: Switch) -> None:
        """Note that the last step ends at an event, and that its end moves with it."""
        if slope is not None:
            self.time_slopes[-1] = slope
            self.size_slopes[-1] = slope - _widened(self.time_slopes[-2], len(slope))
        if self.records[-1].jump is None:
            self.records[-1] = self.records[-1]._replace(timed=True, ends_at=switch)

    def _first_size(self, cuts: Sequence[Cut]) -> float:
        """Return the size of the first step to try, over which all that is delayed is history."""
        stepping, n = self._stepping, self._u.shape[1]
        least = stepping.first_step
        room = min(cut.time for cut in cuts if cut.time > self._first) - self._first
        longest = max(least, min(stepping.longest_first_step, room, MARGIN * float(self.tau.min())))
        y = np.empty(1 + n * (1 + len(self.tau)))

        def rate(t: float, u: Array, out: Array) -> None:
            y[0], y[1 : 1 + n] = t, u
            try:
                # the kernel looks no further than the least delay
                late = [self._delays.history(t - float(tau), self._p) for tau in self.tau]
                y[1 + n :] = np.ravel(late)
                out[:] = self._delays.rate(y.copy(), self._p)
            except NotFiniteError:
                out.fill(np.nan)

        known = (least, longest, self._order, *stepping.tolerances)
        return starting_step(rate, self._first, self._u[0], None, *known)

    def _adaptive(self, size: float, piece: tuple[Any, ...]) -> float:
        """Take the steps of a piece by their errors; return the size for the next one."""
        stepping, (begin, length, _, _) = self._stepping, piece
        rtol, atol = stepping.tolerances
        longest = MARGIN * float(self.tau.min())
        longest = min(longest, stepping.max_step or longest)
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
            self._refuse_many(len(self.sizes) + 1)
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
        k, looked, after = self.stages(h, repeat=self._last_rate)
        if tolerances is not None and self.tableau.b_error is not None and h:
            rtol, atol = tolerances
            u = self.state
            scale = atol + rtol * np.maximum(np.abs(u), np.abs(after))
            missing = h * (self.tableau.b_error @ k) / scale
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
            h, end = cut, self.times[-1] + cut
            k, looked, after = self.stages(h)
        self._last_rate = k[self.tableau.end] if h else None
        self._note(after, k, looked, end, h, slope)
        return error

    @property
    def state(self) -> Array:
        """The state [n] that the run has come to."""
        return self._u[len(self.sizes)]

    def stages(self, h: float, repeat: Array | None = None) -> tuple[Array, Any, Array]:
        """Return the rates of a step from here [S, n], the steps that they look at, and its end.

        ``repeat`` is the first rate, where it is known.
        """
        n, tableau, t = len(self.sizes), self.tableau, self.times[-1]
        u = self._u[n]
        z, looked = self._delayed(n, t, h, tableau.c)
        k = np.empty((len(tableau.b), u.size))
        times = t + h * tableau.c
        if self._problem.breakpoints:
            times[:] = [self._problem.inside(time, t, h) for time in times.tolist()]
        if repeat is not None:
            k[0] = repeat
        known = repeat is not None
        if self._in_c is None or not take_stages(
            *self._in_c, times, h, tableau.a, u, z, self._p, k, self._work, known
        ):  # or some rate is not finite, whose time is named then
            y = self._work[0]
            for i in range(known, len(k)):
                y[0] = times[i]
                y[1 : 1 + u.size] = u + h * (tableau.a[i, :i] @ k[:i])
                y[1 + u.size :] = z[i].ravel()
                k[i] = self._delays.rate(y.copy(), self._p)
        after = u + h * (tableau.b @ k)
        if not np.isfinite(after).all():
            raise NotFiniteError(
                f"the state is not finite at t = {t + h:.9g}", expected="finite values"
            )
        return k, looked, after

    def rate(self, t: float, u: Array, beside: float) -> Array:
        """Return f [n] at a state and a time of the next step; ``beside`` is a short time.

        What is delayed is seen from the inside of that step: after the time where it begins.
        """
        n, ahead = len(self.sizes), t <= self.times[-1] + self._rounding
        begin, at = (t, 0.0) if ahead else (t - beside, 1.0)
        z, _ = self._delayed(n, begin, beside, np.array([at]))
        return self._delays.rate(np.concatenate([[t], u, z.ravel()]), self._p)

    def _delayed(self, n: int, t: float, h: float, c: Array) -> tuple[Array, Any]:
        """Return what is delayed at parts of step n [S, d, n], and the steps it is from."""
        z = np.empty((len(c), len(self.tau), self._u.shape[1]))
        looked = np.empty(z.shape[:2], dtype=np.int64)
        if not h:
            self._look_from_instant(n, t, z, looked)
            return z, looked
        steps = (self._ends, self._lengths, self._u, self.rates, self.tableau.weights)
        margins = (self._first, self._rounding, _inwards(h, self._rounding))
        if look_back(steps, n, t, h, c, self.tau, margins, z, looked):
            for i, delay in np.argwhere(looked < 0).tolist():
                begin = t - float(self.tau[delay])
                at = begin + h * float(c[i])
                time = time_in_history(self._problem, at, begin, h, self._rounding, HISTORY)
                z[i, delay] = self._delays.seen(delay, float(self.tau[delay]), time, self._p)
        return z, looked

    def _look_from_instant(self, n: int, t: float, z: Array, looked: Any) -> None:
        """Fill what is delayed in a step of size 0, which is one between cuts at one time.

        What has come back by then ranks tell, of the step's begin and of the states a delay before.
        """
        begin = self._at_one_time(t, n + 1)[1][-1]
        for delay, tau in enumerate(self.tau.tolist()):
            at, rank = t - tau, begin - self.events.later[delay]
            first, ranks = self._at_one_time(at, n + 1)
            k = first - 1 + int(np.searchsorted(ranks, rank, side="right"))
            if k < 0:
                k = HISTORY if rank < 0.0 else LATER_HISTORY
                time = time_in_history(self._problem, at, at, 0.0, self._rounding, k)
                z[:, delay] = self._delays.seen(delay, tau, time, self._p)
            else:
                size = float(self._lengths[k])
                weights = size * self.tableau.at(np.array((at - self._ends[k]) / (size or 1.0)))
                z[:, delay] = self._u[k] + weights @ self.rates[k]
            looked[:, delay] = k

    def _at_one_time(self, t: float, count: int) -> tuple[int, Array]:
        """Return the number of the first state at a time or after it, and the ranks of those at it.

        Of ``count`` states, whose ranks do not decrease.
        """
        near = 2.0 * self._rounding
        first, last = np.searchsorted(self._ends[:count], [t - near, t + near]).tolist()
        ranks = [self.events.rank(slope) for slope in self.time_slopes[first:last]]
        # a time that does not move comes once more after events that do
        return first, np.maximum.accumulate(np.array(ranks, dtype=float))

    def _grow(self, n: int) -> None:
        """Make room for one more step."""
        if n < len(self.rates):
            return
        for name in ("_u", "_ends", "_lengths", "rates", "looked"):
            old = getattr(self, name)
            new = np.empty((2 * n + (name in ("_u", "_ends")), *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def _refuse_many(self, count: float) -> None:
        if count > self._stepping.max_steps:
            raise SolveError(
                f"a delay equation needs more than max_steps = {self._stepping.max_steps} steps; "
                f"none is longer than the smallest delay, {self.tau.min():.3g}",
                expected=f"the end of the run, t = {self._stepping.t_span[1]:g}",
                remedy="a larger max_steps, bounds of the delays",
            )


def _inwards(h: float, rounding: float) -> float:
    """Return ``INWARDS``, or so much more that in a short step it is more than rounding."""
    return max(INWARDS, 8.0 * rounding / max(abs(h), 8.0 * rounding))


def time_in_history(
    problem: Problem, time: float, begin: float, size: float, rounding: float, looked: int
) -> float:
    """Return a delayed time as the history is to see it: off the breakpoints, inside of its step.

    ``looked`` says on which side of a breakpoint a step of size 0 is.
    """
    if not size:
        begin += rounding if looked == LATER_HISTORY else -rounding
    return problem.inside(time, begin, size)


def delayed_states(trajectory: Trajectory, n: int, t: float) -> Array:
    """Return the delayed states [d n] at a time of step n, as its inside sees them."""
    problem, steps, times = trajectory.problem, trajectory.report, trajectory.times
    assert problem.delays is not None
    start, h = float(times[n]), float(trajectory.step_sizes[n])
    rounding = span_rounding(trajectory.stepping.t_span)
    states: list[Array] = []
    for delay, tau in enumerate(steps.tau.tolist()):
        begin, at = start - tau, t - tau
        inwards = at + _inwards(h, rounding) * (begin + 0.5 * h - at)
        k = min(int(np.searchsorted(times, inwards, side="right")) - 1, len(steps.rates) - 1)
        if not h:  # what an instant looks at is known
            k = int(steps.looked[n, 0, delay])
        elif inwards <= times[0]:
            k = HISTORY
        if k < 0:
            time = time_in_history(problem, at, begin, h, rounding, k)
            states.append(problem.delays.history(time, np.asarray(trajectory.p)))
            continue
        size = float(trajectory.step_sizes[k])
        weights = size * steps.tableau.at(np.array((at - float(times[k])) / (size or 1.0)))
        states.append(trajectory.u[k] + weights @ steps.rates[k])
    return np.concatenate(states)


def rate_at(trajectory: Trajectory, n: int) -> Array:
    """Return the rate [n] at state number n: of the step that ends there, or after a jump."""
    steps: DelayedSteps = trajectory.report
    jumps = {crossing.step for crossing in trajectory.crossings}
    if n and n - 1 not in jumps:
        return steps.rates[n - 1, steps.tableau.end]
    if n < trajectory.n_steps and n not in jumps:
        return steps.rates[n, 0]
    delays, t = trajectory.problem.delays, float(trajectory.times[n])
    assert delays is not None
    z = delayed_states(trajectory, n - 1, t)
    return delays.rate(np.concatenate([[t], trajectory.u[n], z]), np.asarray(trajectory.p))


def interpolated(trajectory: Trajectory, places: Sequence[tuple[int, float]]) -> list[PETSc.Vec]:
    """Return the states [n] at times t inside steps n, given as (n, t), by interpolation."""
    steps: DelayedSteps = trajectory.report
    states: list[PETSc.Vec] = []
    for n, t in places:
        h = float(trajectory.step_sizes[n])
        weights = h * steps.tableau.at(np.array((t - float(trajectory.times[n])) / h))
        states.append(trajectory.stored[n].copy())
        write(states[-1], trajectory.u[n] + weights @ steps.rates[n])
    return states
