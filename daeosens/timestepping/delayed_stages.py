"""The steps so far of a run of a delay equation, and the next one: its stages look back at them."""

from __future__ import annotations

from typing import Any

import numpy as np

from daeosens.errors import NotFiniteError
from daeosens.methods.events.event_function import Switch
from daeosens.methods.events.event_step import StepRecord
from daeosens.methods.rk.continuous import continuous
from daeosens.methods.rk.method import ExplicitMethod
from daeosens.petsc._kernels import look_back, take_stages
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem
from daeosens.timestepping.delayed_cuts import Clocks, widened
from daeosens.timestepping.delayed_steps import (
    HISTORY,
    LATER_HISTORY,
    inwards_in,
    time_in_history,
)
from daeosens.timestepping.step_times import span_rounding
from daeosens.timestepping.stepping import Stepping


class StepsSoFar:
    """The steps so far, in arrays that grow.

    Attributes
    ----------
    tau : array [d]
        The delays.
    times, sizes : list of float
        Of the states, and of the steps.
    clocks : Clocks
    time_slopes, size_slopes : list of array
        Derivatives of times and sizes in the clocks that there were.
    records : list of StepRecord
    """

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
        self.tau, self._p, self._first = tau, p, stepping.t_span[0]
        self._rounding = span_rounding(stepping.t_span)
        n, d, s = len(start), len(tau), len(self.tableau.b)
        self._u, self._rates = np.empty((65, n)), np.empty((64, s, n))
        self._looked = np.empty((64, s, d), dtype=np.int64)
        self._u[0] = start
        self.times: list[float] = [self._first]
        self.sizes: list[float] = []
        # times and sizes again, to be searched
        self._ends, self._lengths = np.empty(65), np.empty(64)
        self._ends[0] = self._first
        self._in_c = problem.delays.rates.rhs_in_c
        self._work = np.empty((2, 1 + n + d * n))
        self.clocks = Clocks(d, method.order)
        self.time_slopes: list[Array] = [np.zeros(d)]
        self.size_slopes: list[Array] = []
        self.records: list[StepRecord] = []

    def arrays(self) -> tuple[Array, Array, Any, Array, Array]:
        """Return states [N+1, n], rates [N, S, n], the steps that they look at, and slopes."""
        count = len(self.sizes)
        slopes = self._padded(self.time_slopes), self._padded(self.size_slopes)
        return self._u[: count + 1].copy(), self._rates[:count], self._looked[:count], *slopes

    def _padded(self, slopes: list[Array]) -> Array:
        """Return rows of slopes in the clocks that there were as an array [K, c] in all of them."""
        width = len(self.clocks)
        return np.array([widened(slope, width) for slope in slopes]).reshape(-1, width)

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
        # a short step that begins or ends at t looks at what is delayed from inside of the next one
        begin, at = (t, 0.0) if ahead else (t - beside, 1.0)
        z, _ = self._delayed(n, begin, beside, np.array([at]))
        return self._delays.rate(np.concatenate([[t], u, z.ravel()]), self._p)

    def jump(self, state: Array, record: StepRecord | None = None) -> None:
        """Go on from another state: a step of size 0."""
        n, t = len(self.sizes), self.times[-1]
        looked = self._delayed(n, t, 0.0, self.tableau.c)[1]
        self.note(state, np.zeros_like(self._rates[0]), looked, t, 0.0, self.time_slopes[-1])
        if record is not None:
            self.records[-1] = record

    def stay(self, slope: Array) -> None:
        """Take a step of size 0, which ends where it begins, but may move otherwise."""
        rates, looked, after = self.stages(0.0)
        self.note(after, rates, looked, self.times[-1], 0.0, slope)

    def note(
        self, state: Array, rates: Array, looked: Any, time: float, size: float, slope: Array
    ) -> None:
        """Append a step."""
        n = len(self.sizes)
        self._grow(n)
        self._u[n + 1], self._rates[n], self._looked[n] = state, rates, looked
        self._ends[n + 1], self._lengths[n] = time, size
        self.times.append(time)
        self.sizes.append(size)
        before = self.time_slopes[-1]
        self.time_slopes.append(slope)
        self.size_slopes.append(slope - widened(before, len(slope)))
        self.records.append(StepRecord("", self._p, timed=bool(slope[len(self.tau) :].any())))

    def end_at(self, slope: Array | None, switch: Switch) -> None:
        """Note that the last step ends at an event, and that its end moves with it."""
        if slope is not None:
            self.time_slopes[-1] = slope
            self.size_slopes[-1] = slope - widened(self.time_slopes[-2], len(slope))
        if self.records[-1].jump is None:
            self.records[-1] = self.records[-1]._replace(timed=True, ends_at=switch)

    def _delayed(self, n: int, t: float, h: float, c: Array) -> tuple[Array, Any]:
        """Return what is delayed at parts of step n [S, d, n], and the steps it is from."""
        z = np.empty((len(c), len(self.tau), self._u.shape[1]))
        looked = np.empty(z.shape[:2], dtype=np.int64)
        if not h:
            self._look_from_instant(n, t, z, looked)
            return z, looked
        steps = (self._ends, self._lengths, self._u, self._rates, self.tableau.weights)
        margins = (self._first, self._rounding, inwards_in(h, self._rounding))
        # C evaluates the continuous extension of the step that each stage looks back at; what lies
        # before the run, where ``looked`` is negative, is the history, which is Python's
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
            at, rank = t - tau, self.clocks.rank_before(begin, delay)
            first, ranks = self._at_one_time(at, n + 1)
            k = first - 1 + int(np.searchsorted(ranks, rank, side="right"))
            if k < 0:
                k = HISTORY if rank < 0.0 else LATER_HISTORY
                time = time_in_history(self._problem, at, at, 0.0, self._rounding, k)
                z[:, delay] = self._delays.seen(delay, tau, time, self._p)
            else:
                size = float(self._lengths[k])
                weights = size * self.tableau.at(np.array((at - self._ends[k]) / (size or 1.0)))
                z[:, delay] = self._u[k] + weights @ self._rates[k]
            looked[:, delay] = k

    def _at_one_time(self, t: float, count: int) -> tuple[int, Array]:
        """Return the number of the first state at a time or after it, and the ranks of those at it.

        Of ``count`` states, whose ranks do not decrease.
        """
        near = 2.0 * self._rounding
        first, last = np.searchsorted(self._ends[:count], [t - near, t + near]).tolist()
        ranks = [self.clocks.rank(slope) for slope in self.time_slopes[first:last]]
        # a time that does not move comes once more after events that do
        return first, np.maximum.accumulate(np.array(ranks, dtype=float))

    def _grow(self, n: int) -> None:
        """Make room for one more step."""
        if n < len(self._rates):
            return
        for name in ("_u", "_ends", "_lengths", "_rates", "_looked"):
            old = getattr(self, name)
            new = np.empty((2 * n + (name in ("_u", "_ends")), *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
