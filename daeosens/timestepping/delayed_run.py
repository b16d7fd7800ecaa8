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

Source
------
docs/delays.md; docs/mathematics.md, section 7.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import NotFiniteError, SolveError, UnsupportedError
from daeosens.methods.rk.continuous import ContinuousTableau, continuous
from daeosens.methods.rk.method import ExplicitMethod
from daeosens.petsc._kernels import starting_step
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem
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
        The step in which the delayed time of a stage lies; -1 in the history.
    time_slopes, size_slopes : array [N+1, d], [N, d]
        Derivatives of the times of the states, and of the sizes of the steps, in the delays.
    breaking : tuple of int
        Numbers of the states at breaking points.
    shares : tuple of array
        Where the steps of each piece end, as parts of it.
    restarts : tuple of int
        Numbers of those steps, of size 0, that end at a state that was given.
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
    kinks = (*problem.breakpoints, *restarts)
    steps.take(*_cuts(stepping, tau, pinned, method.order, kinks), restarts)
    rows, times, sizes = steps.states(), np.array(steps.times), np.array(steps.sizes)
    times.setflags(write=False)
    sizes.setflags(write=False)
    count = len(sizes)
    record = DelayedSteps(
        steps.tableau,
        tau,
        steps.rates[:count],
        steps.looked[:count],
        np.array(steps.time_slopes),
        np.array(steps.size_slopes).reshape(count, len(tau)),
        tuple(steps.breaking),
        tuple(map(np.array, steps.shares)),
        tuple(steps.restarts),
    )
    return Trajectory(
        problem,
        p,
        stepping,
        times,
        sizes,
        States(rows, state),
        Effort(count, steps.rejected, 0, 0),
        "states",
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
    if problem.events or problem.modes:
        raise UnsupportedError(
            "events of a delay equation: each would be a breaking point of its own",
            expected="a problem without events and modes",
            remedy="a smooth function of the state, or t_eval= at times that are known",
        )
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


def _cuts(
    stepping: Stepping, tau: Array, pinned: Array, order: int, breakpoints: Sequence[float]
) -> tuple[Array, Array]:
    """Return the times [C] at which the run is cut, and their derivatives [C, d] in the delays.

    Where several are the same up to rounding all are kept, with pieces of length 0 between them:
    those that do not move first.
    """
    first, last = stepping.t_span
    rounding = span_rounding(stepping.t_span)
    # Breaking points are at sums of delays: a kink at t0 comes back after each, one order
    # smoother. Beyond the order of the method steps do not feel it.
    starts, counted = [], []
    for kink in (first, *breakpoints):
        sums = list(_sums(len(tau), order, tau, last - kink - rounding))
        counts = np.array(sums, dtype=float).reshape(-1, len(tau))
        counts = counts[kink + counts @ tau > first + rounding]  # of one in the history
        starts.append(kink + counts @ tau)
        counted.append(counts)
    fixed = np.unique(np.concatenate([[first], pinned, [last]]))
    # They move with the delays, d time / d tau_k being how often tau_k is in the sum; times of
    # the user do not.
    times = np.concatenate([fixed, *starts])
    slopes = np.concatenate([np.zeros((len(fixed), len(tau))), *counted])
    order_of = np.argsort(times, kind="stable")
    times, slopes = times[order_of], slopes[order_of]
    moves: Any = slopes.any(axis=1)
    k = 0
    while k < len(times):  # groups of one time
        end = k + 1
        while end < len(times) and times[end] - times[end - 1] <= rounding:
            end += 1
        inside = k + np.argsort(moves[k:end], kind="stable")
        still = times[k:end][~moves[k:end]]
        times[k:end], slopes[k:end] = still[0] if still.size else times[k], slopes[inside]
        moves[k:end] = moves[inside]
        k = end
    return times, slopes


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
        self._stepping, self._tau, self._p = stepping, tau, p
        self._order = method.order
        self._first = stepping.t_span[0]
        self._rounding = span_rounding(stepping.t_span)
        n, d, s = len(start), len(tau), len(self.tableau.b)
        self._u, self.rates = np.empty((65, n)), np.empty((64, s, n))
        self.looked = np.empty((64, s, d), dtype=np.int64)
        self._u[0] = start
        self.times: list[float] = [self._first]
        self.sizes: list[float] = []
        self._ends = np.empty(65)  # the times again, to be searched
        self._ends[0] = self._first
        self.time_slopes: list[Array] = [np.zeros(d)]
        self.size_slopes: list[Array] = []
        self.breaking: list[int] = []
        self.shares: list[list[float]] = []
        self.restarts: list[int] = []
        self.rejected = 0
        self._last_rate: Array | None = None  # where the next step may take it over

    def states(self) -> Array:
        """Return the states [N+1, n]."""
        return self._u[: len(self.times)].copy()

    def take(self, cuts: Array, slopes: Array, restarts: Mapping[float, Array]) -> None:
        """Take all steps from the first cut to the last."""
        shortest = float(self._tau.min())
        if not self._stepping.adaptive:
            assert self._stepping.dt is not None
            self._refuse_many((cuts[-1] - cuts[0]) / min(self._stepping.dt, shortest))
        known = self._stepping.shares
        choosing = self._stepping.adaptive and self._stepping.dt is None and not known
        size = self._first_size(cuts) if choosing else self._stepping.first_step
        if known and len(known) != len(cuts) - 1:
            raise SolveError(
                f"a run of {len(known)} pieces between breaking points has {len(cuts) - 1} of them "
                "with other delays",
                expected="the same number: nearby delays",
            )
        for k in range(len(cuts) - 1):
            length, moves = cuts[k + 1] - cuts[k], slopes[k + 1] - slopes[k]
            self._last_rate = None
            # of several cuts at one time the one that does not move comes first
            if cuts[k] in restarts and not slopes[k].any():
                self._restart(restarts[cuts[k]])
            self.shares.append([])
            # a piece that begins where delays say has a moving start
            if slopes[k].any():
                self.breaking.append(len(self.sizes))
            piece = (cuts[k], length, slopes[k], moves)
            if known or length == 0.0:
                ends = known[k].tolist() if known and length else [1.0]
                for part, to in itertools.pairwise([0.0, *ends]):
                    self._take((to - part) * length, part, to, piece)
            elif self._stepping.adaptive:
                size = self._adaptive(size, piece)
            else:
                assert self._stepping.dt is not None
                # no step is longer than the least delay, so that what a stage asks for is behind
                # it
                longest = min(self._stepping.dt, shortest)
                parts = max(1, int(np.ceil(length / longest - EQUAL)))
                for i in range(parts):
                    self._take(length / parts, i / parts, (i + 1) / parts, piece)

    def _restart(self, state: Array) -> None:
        """Go on from another state: a step of size 0."""
        n, t, d = len(self.sizes), self.times[-1], len(self._tau)
        self._grow(n)
        self._u[n + 1], self.rates[n] = state, 0.0
        self.looked[n] = self._delayed(n, t, 0.0)[1]
        self._ends[n + 1] = t
        self.times.append(t)
        self.sizes.append(0.0)
        self.time_slopes.append(np.zeros(d))
        self.size_slopes.append(np.zeros(d))
        self.restarts.append(n)

    def _first_size(self, cuts: Array) -> float:
        """Return the size of the first step to try, over which all that is delayed is history."""
        stepping, n = self._stepping, self._u.shape[1]
        least = stepping.first_step
        room = float((cuts[cuts > cuts[0]] - cuts[0]).min())
        longest = max(
            least, min(stepping.longest_first_step, room, MARGIN * float(self._tau.min()))
        )
        y = np.empty(1 + n * (1 + len(self._tau)))

        def rate(t: float, u: Array, out: Array) -> None:
            y[0], y[1 : 1 + n] = t, u
            # the kernel looks no further than the least delay
            late = [self._delays.history(t - float(tau), self._p) for tau in self._tau]
            y[1 + n :] = np.ravel(late)
            try:
                out[:] = self._delays.rate(y.copy(), self._p)
            except NotFiniteError:
                out.fill(np.nan)

        known = (least, longest, self._order, *stepping.tolerances)
        return starting_step(rate, self._first, self._u[0], None, *known)

    def _adaptive(self, size: float, piece: tuple[Any, ...]) -> float:
        """Take the steps of a piece by their errors; return the size for the next one."""
        stepping, (begin, length, _, _) = self._stepping, piece
        rtol, atol = stepping.tolerances
        longest = MARGIN * float(self._tau.min())
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
        n, tableau = len(self.sizes), self.tableau
        self._grow(n)
        t, u = self.times[-1], self._u[n]
        z, looked = self._delayed(n, t, h)
        k = self.rates[n]
        y = np.empty(1 + u.size + z[0].size)
        for i, (row, c) in enumerate(zip(tableau.a, tableau.c.tolist(), strict=True)):
            if i == 0 and self._last_rate is not None:
                k[0] = self._last_rate
                continue
            y[0] = self._problem.inside(t + c * h, t, h)
            y[1 : 1 + u.size] = u + h * (row[:i] @ k[:i])
            y[1 + u.size :] = z[i].ravel()
            k[i] = self._delays.rate(y.copy(), self._p)
        after = u + h * (tableau.b @ k)
        if not np.isfinite(after).all():
            raise NotFiniteError(
                f"the state is not finite at t = {t + h:.9g}", expected="finite values"
            )
        if tolerances is not None and tableau.b_error is not None and h:
            rtol, atol = tolerances
            scale = atol + rtol * np.maximum(np.abs(u), np.abs(after))
            error = float(np.sqrt(np.mean((h * (tableau.b_error @ k) / scale) ** 2)))
            if not error <= 1.0:
                return error
        else:
            error = 0.0
        self._last_rate = k[tableau.end].copy() if h else None
        self.shares[-1].append(to)
        self._u[n + 1] = after
        self.looked[n] = looked
        end = begin + length if to == 1.0 else begin + to * length
        self.times.append(float(end))
        self._ends[n + 1] = end
        self.sizes.append(h)
        # ends of steps are shares of a piece whose both ends move with the delays
        self.time_slopes.append(slope + to * moves)
        self.size_slopes.append((to - part) * moves)
        return error

    def _delayed(self, n: int, t: float, h: float) -> tuple[Array, Any]:
        """Return what is delayed at the stages of a step [S, d, n], and the steps it is from."""
        at = (t + h * self.tableau.c)[:, None] - self._tau
        middle = t + 0.5 * h - self._tau
        inwards = at + INWARDS * (middle - at) if h else at - self._rounding
        # a step ends where a piece does: which side of it is meant shows in the middle
        looked = np.searchsorted(self._ends[: n + 1], inwards, side="right") - 1
        looked[inwards <= self._first + (0.0 if h else self._rounding)] = -1
        np.minimum(looked, n - 1, out=looked)
        z = np.empty((*at.shape, self._u.shape[1]))
        inside = looked >= 0
        if inside.any():
            k = looked[inside]
            sizes = np.array(self.sizes)[k]
            # dense output: u_k + h_k sum_j w_j(s) f_j, s the share of step k that has passed
            weights = sizes[:, None] * self.tableau.at((at[inside] - self._ends[k]) / sizes)
            z[inside] = self._u[k] + (weights[:, None, :] @ self.rates[k])[:, 0]
        for i, delay in np.argwhere(~inside).tolist():
            begin = t - float(self._tau[delay])
            time = time_in_history(self._problem, float(at[i, delay]), begin, h, self._rounding)
            z[i, delay] = self._delays.history(time, self._p)
        return z, looked

    def _grow(self, n: int) -> None:
        """Make room for one more step."""
        if n < len(self.rates):
            return
        for name in ("_u", "_ends", "rates", "looked"):
            old = getattr(self, name)
            new = np.empty((2 * n + (name in ("_u", "_ends")), *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def _refuse_many(self, count: float) -> None:
        if count > self._stepping.max_steps:
            raise SolveError(
                f"a delay equation needs more than max_steps = {self._stepping.max_steps} steps; "
                f"none is longer than the smallest delay, {self._tau.min():.3g}",
                expected=f"the end of the run, t = {self._stepping.t_span[1]:g}",
                remedy="a larger max_steps, bounds of the delays",
            )


def time_in_history(
    problem: Problem, time: float, begin: float, size: float, rounding: float
) -> float:
    """Return a delayed time as the history is to see it: off the breakpoints, inside of its step.

    Steps of size 0 stand for what longer delays would put there, and look further back.
    """
    return problem.inside(time, begin if size else begin - rounding, size)


def delayed_states(trajectory: Trajectory, n: int, t: float) -> Array:
    """Return the delayed states [d n] at a time of step n, as its inside sees them."""
    problem, steps, times = trajectory.problem, trajectory.report, trajectory.times
    assert problem.delays is not None
    start, h = float(times[n]), float(trajectory.step_sizes[n])
    rounding = span_rounding(trajectory.stepping.t_span)
    states: list[Array] = []
    for tau in steps.tau.tolist():
        begin, at = start - tau, t - tau
        inwards = at + INWARDS * (begin + 0.5 * h - at)
        if inwards <= times[0]:
            time = time_in_history(problem, at, begin, h, rounding)
            states.append(problem.delays.history(time, np.asarray(trajectory.p)))
            continue
        k = min(int(np.searchsorted(times, inwards, side="right")) - 1, len(steps.rates) - 1)
        size = float(trajectory.step_sizes[k])
        weights = size * steps.tableau.at(np.array((at - float(times[k])) / (size or 1.0)))
        states.append(trajectory.u[k] + weights @ steps.rates[k])
    return np.concatenate(states)


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
