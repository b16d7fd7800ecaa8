"""The steps of a run with events: smooth steps and jumps, with the times of events differentiated.

A sweep calls one step after the other and knows nothing of events; here the derivative of the time
(forward: dt, backward: omega) is carried beside it, and the parameters that events change.  The
size of a smooth step is held fixed, but for those that end at a pinned time (slope -1: h = end - t)
or halfway to it (slope -1/2).  The last step before an implicit event has the size that solves
g(t + h, Phi(u, p, t, h), p) = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities, Point, add_curvature, change
from daeosens.costs.scalar import Callback
from daeosens.errors import GrazingError, SolveError
from daeosens.methods.dae.structure import earlier_side
from daeosens.methods.events.event_function import Switch
from daeosens.methods.events.reset import Jump
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.petsc.vectors import Array, dot, read, summed
from daeosens.problem.problem import Problem

GRAZING = 1e-10
"""A crossing is grazing where |dg/dt| is below this part of its terms, |g_t| and |g_u du/dt|,"""

TOUCHING = 1e-6
"""or h |dg/dt| below this part of |g| at the start of the step,"""

RESTING = 1e-13
"""or, of a step that starts on the surface, |dg/dt| times the span below this part of |g_u u|.

All of these are ratios of one unit: that of no unknown, of the time or of g has a part in them.
"""


class StepRecord(NamedTuple):
    """What a smooth step, or a jump, of a run with events was.

    Attributes
    ----------
    mode : str
        Of the equations.
    p : array or Vec [m]
        Parameters, as callbacks see them.
    slope : float
        dh/dt: 0, -1 or -1/2.
    timed : bool
        Some implicit event came before, so the time of the step depends on state and parameters.
    changed : bool
        Some event before it has changed parameters.
    ends_at : Switch or None
        The implicit event that ends the step.
    jump : Jump or None
        It is a jump.
    """

    mode: str = ""
    p: Any = None
    slope: float = 0.0
    timed: bool = False
    changed: bool = False
    ends_at: Switch | None = None
    jump: Jump | None = None

    @property
    def plain(self) -> bool:
        """Whether it is a step as of a run without events: its time is fixed, and its end."""
        return not (self.timed or self.ends_at or self.jump)


class HybridStep:
    """The step map of a run with events: smooth steps, and jumps.

    Parameters
    ----------
    problem : Problem
        For layouts.
    records : sequence of StepRecord
        Of each step and jump, by its number.
    maps : mapping of str to StepMap
        Of the smooth steps in each mode.
    instants : callable
        From the mode to the StepMap of steps of size 0: between events at one instant, or from one
        to a fixed time.
    speeds : callable
        How fast unknowns, those of this rank, would be that go their whole way in the span.
    refined : mapping of int to callable
        What makes, of the map of a step with this number, one with better running costs.

    Source
    ------
    docs/mathematics.md, section 4.
    """

    def __init__(
        self,
        problem: Problem,
        records: Sequence[StepRecord],
        maps: Mapping[str, Any],
        instants: Callable[[str], Any],
        speeds: Callable[[], Array],
        refined: Mapping[int, Callable[[Any], Any]],
    ) -> None:
        self._refined = refined
        self._problem = problem
        self._records = records
        self._maps = maps
        self._instants = instants
        self._speeds = speeds
        self._dt = 0.0
        self._dp: PETSc.Vec | None = None
        self._omega: list[float] = []

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return the step's part of the running costs."""
        record, step = self._recorded(step)
        if record.jump is not None or step.h == 0.0:
            return 0.0
        return self._map(record, step).quadrature(step, densities)

    def tangent(
        self,
        step: Step,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float = 0.0,
        dh: float = 0.0,
        densities: Densities = (),
    ) -> float:
        """Overwrite ``du`` [n] before the step with the one after it; carry dt and dp along."""
        record, step = self._recorded(step)
        # before the first implicit event no time depends on the state
        if not record.timed:
            self._dt = 0.0
        dp = self._dp if record.changed else dp
        self._dp = dp
        if record.jump is not None:
            self._dp = record.jump.tangent(step, du, dp, self._dt)
            return 0.0
        smooth = self._map(record, step)
        # A step to a fixed time gets shorter by as much as its start is late, dh = -dt; of two
        # steps that share the way to it each by half of that.
        dt, dh = self._dt, record.slope * self._dt
        self._dt += dh
        running = smooth.tangent(step, du, dp, dt, dh, densities)
        if record.ends_at is None:
            return running
        when = _when(record)
        # phi = dPhi/dh, the state's change with the length of the step: a tangent with dh = 1.
        rate = self._problem.create_state()
        faster = smooth.tangent(step, rate, None, 0.0, 1.0, densities)
        by_u = self._problem.create_state()
        point = _end(step)
        when.add_u(1.0, *point, by_u)
        # d = g_t + g_u . phi, of the step that was taken and not of the solution: with f in the
        # place of phi it would be wrong by the error of the step.
        by_t = when.value_t(*point)
        slope = by_t + dot(by_u, rate)
        self._check_grazing(record, step, slope, by_t, by_u, rate)
        # g stays zero: 0 = g_u . dPhi + g_p . dp + g_t dt + d dtau. The state at the event moves
        # with it along phi.
        dtau = -change(when, self._problem, point, du, dp, dt) / slope
        du.axpy(dtau, rate)
        self._dt += dtau
        for vec in (rate, by_u):
            vec.destroy()
        return running + dtau * faster

    def adjoint(
        self,
        step: Step,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry the adjoints of several costs, and of the time, back over one step or jump."""
        record, step = self._recorded(step)
        if record.plain:
            self._omega = [0.0] * len(lam)
            self._maps[record.mode].adjoint(step, lam, mu, densities)
            return []
        # omega is dJ/dt of the state that the sweep is at, for each cost.
        self._omega += [0.0] * (len(lam) - len(self._omega))
        if record.jump is not None:
            slopes = record.jump.adjoint(step, lam, mu)
            self._omega = [a + b for a, b in zip(self._omega, slopes, strict=True)]
            return []
        smooth = self._map(record, step)
        if record.ends_at is not None:
            surface = self._surface(record, step, lam, mu, densities)
            for k, (by_t, by_h) in enumerate(surface.slopes):
                # beta = (phi . alpha + omega) / d. By_h is phi . alpha, with the running cost of
                # a longer step. As the sweep is linear, lam - beta g_u is not swept itself: the
                # swept g is subtracted.
                beta = (by_h + self._omega[k]) / surface.slope
                lam[k].axpy(-beta, surface.lam)
                mu[k].axpy(-beta, surface.mu)
                # the start of the step is at a time of its own: a later start is a later event
                self._omega[k] += by_t - beta * surface.by_t
        elif record.timed and not self._time_invariant(record, densities):
            slopes = smooth.adjoint(step, lam, mu, densities, times=True)
            self._carry_time(record.slope, slopes)
        else:
            smooth.adjoint(step, lam, mu, densities)
        return []

    def _carry_time(self, slope: float, slopes: Sequence[tuple[float, float]]) -> None:
        """Carry the adjoints of the time back over a step with dh/dt; slopes in t and h."""
        self._omega = [
            # t_{n+1} = t_n + h and h = h(t_n): dt_{n+1} = (1 + dh/dt) dt_n. At a fixed end dh/dt
            # is -1 and omega of later times ends there.
            (1.0 + slope) * omega + by_t + slope * by_h
            for omega, (by_t, by_h) in zip(self._omega, slopes, strict=True)
        ]

    def add_time(self, k: int, slope: float) -> None:
        """Add to the adjoint of the time of the event that the sweep has reached.

        In a second-order sweep number 0 is the adjoint, the others its derivatives.
        """
        while len(self._omega) <= k:
            self._omega.append(0.0)
        self._omega[k] += slope

    def smooth(self, number: int, h: float, densities: Sequence[Densities]) -> StepRecord | None:
        """Return the record of a step if its adjoint is that of a run without events.

        Then its size is fixed, and so is its time, or else nothing depends on that.
        """
        record = self._records[number]
        if h == 0.0 or record.jump is not None or record.ends_at is not None:
            return None
        return record if not record.timed or self._time_invariant(record, densities) else None

    def pass_by(self, number: int) -> None:
        """Note that others carry the smooth steps of one record, from a step on.

        They leave the adjoint of the time as it is, or it begins anew.
        """
        if not self._records[number].timed:
            self._omega = [0.0] * len(self._omega)

    def pass_forward(self, number: int, dp: PETSc.Vec | None) -> PETSc.Vec | None:
        """Note that others carry a tangent over the smooth steps of one record, from a step on.

        Returns the direction in the parameters there; ``dp`` is that of the start.  The direction
        of the time stays as it is, or begins anew.
        """
        record = self._records[number]
        if not record.timed:
            self._dt = 0.0
        self._dp = self._dp if record.changed else dp
        return self._dp

    def go_on(self, dt: float, dp: PETSc.Vec | None) -> None:
        """Begin a tangent at a state inside of the run, with its derivatives of time and p."""
        self._dt, self._dp = dt, dp

    @property
    def dt(self) -> float:
        """The derivative of the time of the state that a tangent has reached."""
        return self._dt

    @property
    def dp(self) -> PETSc.Vec | None:
        """The derivative of the parameters at the state that a tangent has reached."""
        return self._dp

    def second_order(
        self,
        step: Step,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry one adjoint and its derivatives, and those of the time, back over one step.

        The step before an event g = 0 is swept with the adjoint lam - beta g_u, where beta makes
        the derivative in h vanish; differentiated, so that beta_dot does it for the derivatives.
        """
        record, step = self._recorded(step)
        self._omega += [0.0] * (1 + len(directions) - len(self._omega))
        if record.plain:
            self._omega = [0.0] * (1 + len(directions))
        if record.jump is not None:
            slopes = record.jump.second_order(step, first, directions)
            self._omega = [a + b for a, b in zip(self._omega, slopes, strict=True)]
            return []
        smooth = self._map(record, step)
        if record.ends_at is not None:
            self._second_order_before_event(record, step, first, directions, densities)
        elif record.timed and not self._time_invariant(record, [densities]):
            slopes = smooth.second_order(step, first, directions, densities, times=True)
            self._carry_time(record.slope, slopes)
        else:
            smooth.second_order(step, first, directions, densities)
        return []

    def _second_order_before_event(
        self,
        record: StepRecord,
        step: Step,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
    ) -> None:
        when, smooth, point = _when(record), self._map(record, step), _end(step)
        if first.known:
            # Beta is known from an earlier product with this Hessian; the swept g is needed for
            # beta_dot.
            surface = self._surface(record, step, [], [], [])
            beta = first.multipliers[step.number]
        else:
            # Beta needs by_h of a sweep that is not the one that counts: that goes with lam -
            # beta g_u.
            trial = (first.lam.copy(), first.mu.copy())
            surface = self._surface(record, step, [trial[0]], [trial[1]], [densities])
            beta = (surface.slopes[0][1] + self._omega[0]) / surface.slope
            for vec in trial:
                vec.destroy()
            first.multipliers[step.number] = beta
            when.add_u(-beta, *point, first.lam)
            when.add_p(-beta, *point, first.mu)
            self._omega[0] -= beta * when.value_t(*point)
        for k, direction in enumerate(directions, start=1):
            along = (direction.du_next, direction.dp, direction.dp_vec, direction.dt + direction.dh)
            out = (direction.lam_dot, direction.mu_dot)
            # beta times the second derivatives of g, along the directions at the event, where the
            # time has moved by dt + dh
            self._omega[k] += add_curvature(when, -beta, point, along, out)
        slopes = smooth.second_order(step, first, directions, densities, times=True)
        self._omega[0] += slopes[0][0]
        for k, (sensitivity, (by_t, by_h)) in enumerate(
            zip(directions, slopes[1:], strict=True), 1
        ):
            # The derivative in h of the swept lam - beta g_u is zero by the choice of beta, and
            # so is that of its derivative along the direction: that determines beta_dot.
            beta_dot = (by_h + self._omega[k]) / surface.slope
            sensitivity.lam_dot.axpy(-beta_dot, surface.lam)
            sensitivity.mu_dot.axpy(-beta_dot, surface.mu)
            self._omega[k] += by_t - beta_dot * surface.by_t

    def _surface(
        self,
        record: StepRecord,
        step: Step,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
    ) -> _Surface:
        """Sweep the step that ends at an implicit event, the event function as one more cost.

        Its derivative in h is dg/dtau.
        """
        problem, when, point = self._problem, _when(record), _end(step)
        lam_g, mu_g = problem.create_state(), problem.create_parameters()
        when.add_u(1.0, *point, lam_g)
        by_u = lam_g.copy()  # the sweep overwrites it
        when.add_p(1.0, *point, mu_g)
        partial = when.value_t(*point)
        *slopes, (g_t, g_h) = self._map(record, step).adjoint(
            step, [*lam, lam_g], [*mu, mu_g], [*densities, ()], times=True
        )
        # g_h is g_u . phi, found as the adjoint of h
        slope = partial + g_h
        rate = step.u_next.copy()
        rate.axpy(-1.0, step.u)
        rate.scale(1.0 / step.h if step.h else 0.0)
        self._check_grazing(record, step, slope, partial, by_u, rate)
        for vec in (rate, by_u):
            vec.destroy()
        return _Surface(lam_g, mu_g, partial + g_t, slope, slopes)

    def _time_invariant(self, record: StepRecord, densities: Sequence[Densities]) -> bool:
        """Whether a step of fixed size gives the same at any time: the adjoint of t passes by."""
        equations = self._problem.modes.get(record.mode, self._problem)
        # no part of t in f or in running costs: by_t is zero and omega goes on as it is
        return not record.slope and equations.autonomous and not any(densities)

    def _recorded(self, step: Step) -> tuple[StepRecord, Step]:
        """Return what the step was, and it with the parameters that it had."""
        record = self._records[step.number]
        if step.p is not record.p:
            step = step._replace(p=record.p)
        if record.slope and not step.h:  # to a fixed time, from a moment before it
            step = step._replace(t=earlier_side(self._problem, step.t))
        return record, step

    def _map(self, record: StepRecord, step: Step) -> Any:
        if not step.h:
            return self._instants(record.mode)
        steps, refined = self._maps[record.mode], self._refined.get(step.number)
        return steps if refined is None or record.plain else refined(steps)

    def _check_grazing(
        self,
        record: StepRecord,
        step: Step,
        slope: float,
        by_t: float,
        by_u: PETSc.Vec,
        rate: PETSc.Vec,
    ) -> None:
        """Raise where the state only touches the surface.  Collective."""
        t, h, u, _, p, _ = step
        assert record.ends_at is not None

        def sum_of_parts(rates: Array) -> float:
            parts = np.abs(read(by_u)) * np.abs(rates)
            return float(summed(np.array([parts.sum()]), self._problem.comm)[0])

        refuse_grazing(
            record.ends_at.name,
            t + h,
            h,
            (slope, abs(by_t) + sum_of_parts(read(rate))),
            abs(_when(record).value(t, u, p)) if h else 0.0,
            lambda: sum_of_parts(self._speeds()),
        )


def refuse_grazing(
    name: str,
    t: float,
    h: float,
    slope_and_terms: tuple[float, float],
    distance: float,
    usual: Callable[[], float],
) -> None:
    """Refuse an event whose surface the state only touches: its time is not differentiable.

    Parameters
    ----------
    name, t : str, float
        Of the event, and when it happens.
    h : float
        Size of the step that ends there.
    slope_and_terms : (float, float)
        dg/dt, and the sum of the moduli of its terms.
    distance : float
        |g| where the step begins, 0 for one of size 0.
    usual : callable
        What dg/dt would be if all unknowns went their whole way in the span and their terms added
        up; asked where the step begins on the surface.

    Raises
    ------
    GrazingError
        The slope is small against its terms, or against the distance covered.
    SolveError
        The slope is not finite, since a derivative of the equations or of the function is none.
    """
    slope, terms = slope_and_terms
    if not np.isfinite(slope):
        raise SolveError(
            f'the function of event "{name}" has the rate {slope:.3g} at t = {t:.9g}',
            expected="equations and events with finite derivatives all along the run",
            remedy="smaller steps, bounds on the parameters, or another starting point",
        )
    if abs(slope) > GRAZING * terms:
        if distance > 0.0 and abs(slope) * h > TOUCHING * distance:
            return
        if distance == 0.0 and abs(slope) > RESTING * usual():
            return
    raise GrazingError(
        f'event "{name}" at t = {t:.9g} is grazed: dg/dt = {slope:.3g}',
        expected="a crossing at a finite speed",
        remedy="other parameters or initial states; where the function is a sign or a "
        "comparison, the difference a - b for an event at a = b",
    )


@dataclass(frozen=True, eq=False)
class _Surface:
    """The step before an event swept with its function: adjoints, slope, those of costs along.

    ``by_t`` is the derivative in the time of the start at fixed h, ``slope`` dg/dtau; ``slopes``
    are the derivatives in t and h of the costs.
    """

    lam: PETSc.Vec
    mu: PETSc.Vec
    by_t: float
    slope: float
    slopes: list[tuple[float, float]]


def _end(step: Step) -> Point:
    return step.t + step.h, step.u_next, step.p


def _when(record: StepRecord) -> Callback:
    assert record.ends_at is not None
    assert record.ends_at.when is not None
    return record.ends_at.when
