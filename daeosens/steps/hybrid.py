"""The steps of a run with events: smooth steps and jumps, with the times of events differentiated.

A sweep calls one step after the other and knows nothing of events; here the derivative of the time
(forward: dt, backward: omega) is carried beside it.  The size of a smooth step is held fixed, but
for those that end at a pinned time (slope -1: h = end - t) or halfway to it (slope -1/2).  The last
step before an implicit event has the size that solves g(t + h, Phi(u, p, t, h), p) = 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from petsc4py import PETSc

from daeosens.arrays import dot, norm
from daeosens.cost import Callback, Densities
from daeosens.errors import GrazingError, UnsupportedError
from daeosens.problem import Problem
from daeosens.steps.directions import Adjoint, SecondOrder

GRAZING = 1e-10
"""A crossing is grazing where |dg/dt| is below this part of |g_u| |du/dt|,"""

TOUCHING = 1e-6
"""or h |dg/dt| below this part of |g| at the start of the step."""


@dataclass(frozen=True, eq=False)
class Switch:
    """One event, lowered: the function whose zero is sought, and the reset as a map of states.

    ``when`` is None for an explicit event, ``reset`` None for the identity.
    """

    name: str
    when: Callback | None
    reset: Problem | None


@dataclass(frozen=True, eq=False)
class Record:
    """What a smooth step, or a jump, of a run with events was.

    Attributes
    ----------
    mode : str
        Of the equations.
    slope : float
        dh/dt: 0, -1 or -1/2.
    timed : bool
        Some implicit event came before, so the time of the step depends on state and parameters.
    ends_at : Switch or None
        The implicit event that ends the step.
    jump : Switch or None
        It is a jump.
    """

    mode: str = ""
    slope: float = 0.0
    timed: bool = False
    ends_at: Switch | None = None
    jump: Switch | None = None


class HybridStep:
    """The step map of a run with events: smooth steps, and jumps.

    Parameters
    ----------
    problem : Problem
        For layouts.
    records : mapping of int to Record
        By the handle of the state before the step or the jump.
    maps : mapping of str to StepMap
        Of the smooth steps in each mode.

    Source
    ------
    docs/mathematics.md, section 4.
    """

    def __init__(
        self, problem: Problem, records: Mapping[int, Record], maps: Mapping[str, Any]
    ) -> None:
        self._problem = problem
        self._records = records
        self._maps = maps
        self._dt = 0.0
        self._omega: list[float] = []

    def quadrature(
        self,
        t: float,
        h: float,
        u: PETSc.Vec,
        u_next: PETSc.Vec,
        p: Any,
        densities: Densities,
    ) -> float:
        """Return the step's part of the running costs."""
        record = self._records[u.handle]
        if record.jump is not None:
            return 0.0
        return self._maps[record.mode].quadrature(t, h, u, u_next, p, densities)

    def tangent(
        self,
        t: float,
        h: float,
        u: PETSc.Vec,
        u_next: PETSc.Vec,
        p: Any,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float = 0.0,
        dh: float = 0.0,
        densities: Densities = (),
    ) -> float:
        """Overwrite ``du`` [n] before the step with the one after it; carry dt along."""
        record = self._records[u.handle]
        if not record.timed:
            self._dt = 0.0
        if record.jump is not None:
            self._jump_tangent(record.jump, t, u, p, du, dp)
            return 0.0
        step = self._maps[record.mode]
        dt, dh = self._dt, record.slope * self._dt
        self._dt += dh
        if record.ends_at is None:
            return step.tangent(t, h, u, u_next, p, du, dp, dt, dh, densities)
        running = step.tangent(t, h, u, u_next, p, du, dp, dt, 0.0, densities)
        rate = self._problem.create_state()
        faster = step.tangent(t, h, u, u_next, p, rate, None, 0.0, 1.0, densities)
        when = record.ends_at.when
        assert when is not None
        point = (t + h, u_next, p)
        by_u = self._problem.create_state()
        when.add_u(1.0, *point, by_u)
        by_t = when.value_t(*point)
        fixed = dot(by_u, du) + by_t * dt
        if dp is not None and self._problem.n_parameters:
            by_p = self._problem.create_parameters()
            when.add_p(1.0, *point, by_p)
            fixed += dot(by_p, dp)
        slope = by_t + dot(by_u, rate)
        self._check_grazing(record.ends_at, (t, u, p), h, slope, norm(by_u) * norm(rate))
        change = -fixed / slope
        du.axpy(change, rate)
        self._dt += change
        return running + change * faster

    def adjoint(
        self,
        t: float,
        h: float,
        u: PETSc.Vec,
        u_next: PETSc.Vec,
        p: Any,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry the adjoints of several costs, and of the time, back over one step or jump."""
        record = self._records[u.handle]
        self._omega += [0.0] * (len(lam) - len(self._omega))
        if not (record.timed or record.ends_at or record.jump):
            self._omega = [0.0] * len(lam)
        if record.jump is not None:
            for k, (lam_k, mu_k) in enumerate(zip(lam, mu, strict=True)):
                self._omega[k] += self._jump_adjoint(record.jump, t, u, p, lam_k, mu_k)
            return []
        step = self._maps[record.mode]
        arguments = (t, h, u, u_next, p)
        if record.ends_at is not None:
            self._before_event(record, arguments, lam, mu, densities)
        elif record.timed:
            slopes = step.adjoint(*arguments, lam, mu, densities, times=True)
            s = record.slope
            self._omega = [
                (1.0 + s) * omega + by_t + s * by_h
                for omega, (by_t, by_h) in zip(self._omega, slopes, strict=True)
            ]
        else:
            step.adjoint(*arguments, lam, mu, densities)
        return []

    def add_time(self, k: int, slope: float) -> None:
        """Add to the adjoint of the time of the event that the sweep has reached."""
        while len(self._omega) <= k:
            self._omega.append(0.0)
        self._omega[k] += slope

    @property
    def dt(self) -> float:
        """The derivative of the time of the state that a tangent has reached."""
        return self._dt

    def second_order(
        self,
        t: float,
        h: float,
        u: PETSc.Vec,
        u_next: PETSc.Vec,
        p: Any,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
    ) -> None:
        """Refuse: second derivatives through events are not there yet."""
        raise through_events()

    def _before_event(
        self,
        record: Record,
        arguments: tuple[Any, ...],
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
    ) -> None:
        """Sweep the step that ends at an implicit event; its size is differentiated.

        The event function goes along as one more cost, whose derivative in h is dg/dtau.
        """
        t, h, u, u_next, p = arguments
        switch, problem = record.ends_at, self._problem
        assert switch is not None
        assert switch.when is not None
        point = (t + h, u_next, p)
        lam_g, mu_g = problem.create_state(), problem.create_parameters()
        switch.when.add_u(1.0, *point, lam_g)
        by_u = lam_g.copy()
        switch.when.add_p(1.0, *point, mu_g)
        partial = switch.when.value_t(*point)
        *slopes, (g_t, g_h) = self._maps[record.mode].adjoint(
            *arguments, [*lam, lam_g], [*mu, mu_g], [*densities, ()], times=True
        )
        slope = partial + g_h
        rate = problem.create_state()
        self._maps[record.mode].tangent(*arguments, rate, None, 0.0, 1.0)
        self._check_grazing(switch, (t, u, p), h, slope, norm(by_u) * norm(rate))
        for k, (by_t, by_h) in enumerate(slopes):
            beta = (by_h + self._omega[k]) / slope
            lam[k].axpy(-beta, lam_g)
            if problem.n_parameters:
                mu[k].axpy(-beta, mu_g)
            self._omega[k] += by_t - beta * (partial + g_t)

    def _check_grazing(
        self,
        switch: Switch,
        start: tuple[float, PETSc.Vec, Any],
        h: float,
        slope: float,
        size: float,
    ) -> None:
        """Raise where the state only touches the surface: the time is not differentiable.

        The slope is small against what the speed would allow, or against the distance covered.
        """
        assert switch.when is not None
        distance = abs(switch.when.value(*start))
        if abs(slope) > GRAZING * size and abs(slope) * h > TOUCHING * distance:
            return
        raise GrazingError(
            f'event "{switch.name}" at t = {start[0] + h:.9g} is grazed: dg/dt = {slope:.3g}',
            expected="a crossing at a finite speed",
            remedy="other parameters or initial states",
        )

    def _jump_tangent(
        self,
        switch: Switch,
        t: float,
        u: PETSc.Vec,
        p: Any,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
    ) -> None:
        reset = switch.reset
        if reset is None:
            return
        matrix = reset.rhs_u.create(t, u, p)
        reset.rhs_u.fill(t, u, p, matrix)
        before = du.copy()
        matrix.mult(before, du)
        if dp is not None and reset.n_parameters:
            matrix_p = reset.rhs_p.create(t, u, p)
            reset.rhs_p.fill(t, u, p, matrix_p)
            matrix_p.multAdd(dp, du, du)
        if self._dt:
            reset.rhs_t(t, u, p, before)
            du.axpy(self._dt, before)

    def _jump_adjoint(
        self, switch: Switch, t: float, u: PETSc.Vec, p: Any, lam: PETSc.Vec, mu: PETSc.Vec
    ) -> float:
        """Carry lam and mu back over a jump; return the adjoint of its time."""
        reset = switch.reset
        if reset is None:
            return 0.0
        after = lam.copy()
        matrix = reset.rhs_u.create(t, u, p)
        reset.rhs_u.fill(t, u, p, matrix)
        matrix.multTranspose(after, lam)
        if reset.n_parameters:
            matrix_p = reset.rhs_p.create(t, u, p)
            reset.rhs_p.fill(t, u, p, matrix_p)
            matrix_p.multTransposeAdd(after, mu, mu)
        by_t = reset.create_state()
        reset.rhs_t(t, u, p, by_t)
        return dot(by_t, after)


def through_events() -> UnsupportedError:
    """Return the refusal of second derivatives of runs with events."""
    return UnsupportedError(
        "a Hessian through events",
        expected="a run without events",
        remedy="adjoint, tangent, or Gauss-Newton for least squares",
    )
