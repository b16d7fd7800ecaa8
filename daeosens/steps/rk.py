"""Explicit Runge-Kutta steps, linearised in the state, the parameters, the time and the step size.

U_i = u_n + h sum_j a_ij k_j,  k_i = f(t_n + c_i h, U_i, p),  u_{n+1} = u_n + h sum_i b_i k_i
(docs/mathematics.md, section 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import dot
from daeosens.cost import Densities, change
from daeosens.errors import UnsupportedError
from daeosens.point_matrix import PointMatrix
from daeosens.problem import Problem
from daeosens.steps.directions import Adjoint, SecondOrder, Step
from daeosens.steps.passes import Passes
from daeosens.steps.stage_clock import StageClock, StageTangent
from daeosens.steps.tableaux import Tableau

Kept: TypeAlias = "Mapping[tuple[int, float], Sequence[PETSc.Vec]]"
"""Stage states by (handle of the state before the step, step size)."""


class RungeKuttaStep:
    """The step map of an explicit Runge-Kutta method, with work space for one sweep.

    The weights ``w_i = b_i lam + sum_{j>i} a_ji l_j``, with ``l_j = h f_u^T w_j``, avoid any
    division by ``b_i``, which is zero for some stages of 3bs, 5f, 5dp, 5bs, 6vr, 7vr and 8vr, and
    by h, which is zero between events at one instant.

    Source
    ------
    Hager, Numerische Mathematik 87, 2000; Sanz-Serna, SIAM Review 58(1), 2016, section 3.
    """

    def __init__(self, problem: Problem, tableau: Tableau, kept: Kept | None = None) -> None:
        if problem.form != "rhs":
            raise UnsupportedError(
                f"an explicit Runge-Kutta method for a problem in {problem.form} form",
                expected="u' = f(t, u, p)",
                remedy="cn, beuler, midpoint or theta:<value>",
            )
        self._problem = problem
        self._tableau = tableau.of_step
        self._states: Sequence[PETSc.Vec] = ()
        self._kept: Kept = {} if kept is None else kept
        self._work = problem.create_state()
        self._by_p = problem.create_parameters()
        self._matrices: list[tuple[PointMatrix, PointMatrix]] = []
        self._rhs_u, self._rhs_p = PointMatrix(problem.rhs_u), PointMatrix(problem.rhs_p)
        self._adjoints: list[list[PETSc.Vec]] = []
        compiled = problem.stencil is not None and not problem.breakpoints
        self._passes: Passes | None = None
        if compiled and self._tableau.chained:
            self._passes = Passes(problem, *self._tableau.of_passes)

    @cached_property
    def _own(self) -> list[PETSc.Vec]:
        return [self._problem.create_state() for _ in self._tableau.b]

    @cached_property
    def _rates(self) -> list[PETSc.Vec]:
        return [self._problem.create_state() for _ in self._tableau.b]

    @cached_property
    def _rows(self) -> list[tuple[list[float], list[PETSc.Vec]]]:
        """What is added up for each stage: weights, and the rates that they belong to."""
        rows = self._tableau.numbers[0]
        return [(weights, [self._rates[j] for j in numbers]) for numbers, weights in rows]

    @cached_property
    def _second_work(self) -> PETSc.Vec:
        return self._problem.create_state()

    @cached_property
    def _by_u(self) -> PETSc.Vec:
        return self._problem.create_state()

    def advance(
        self, t: float, h: float, u: PETSc.Vec, p: Any, out: PETSc.Vec, *, again: bool = False
    ) -> None:
        """Fill ``out`` [n] with the state after one step of size ``h`` from ``u`` [n] at ``t``.

        ``again`` says that the last step began just there: its first rate is known.
        """
        self._advance_stages(t, h, u, p, first=int(again))
        u.copy(out)
        out.maxpy([h * weight for weight in self._tableau.numbers[1]], self._rates)

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return h sum_i b_i r_i, summed over the weighted densities."""
        if not densities:
            return 0.0
        t, h, _, _, p = step
        self._recompute(step)
        tableau = self._tableau
        return h * sum(
            float(tableau.b[i]) * weight * density.value(self._time(i, t, h), stage, p)
            for i, stage in enumerate(self._states)
            if tableau.b[i]
            for weight, density in densities
        )

    def tangent(
        self,
        step: Step,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float = 0.0,
        dh: float = 0.0,
        densities: Densities = (),
    ) -> float:
        """Overwrite ``du`` [n] before the step with the one after it.

        Parameters
        ----------
        step : Step
            From which state, with which size and parameters.
        du, dp : Vec [n], Vec [m] or None
            Direction in the state (overwritten) and in the parameters.
        dt, dh : float
            Direction in the start and the size of the step.
        densities : sequence of (float, Scalar)
            Running costs with their weights.

        Returns
        -------
        float
            Directional derivative of the step's part of the running costs.
        """
        t, h, _, _, p = step
        self._recompute(step, rates=bool(dh))
        tableau = self._tableau
        running = 0.0
        d_rates: list[PETSc.Vec] = []
        d_state = self._work
        for i, stage in enumerate(self._states):
            du.copy(d_state)
            row = tableau.a[i, :i]
            if i:
                d_state.maxpy((h * row).tolist(), d_rates)
                if dh:
                    d_state.maxpy((dh * row).tolist(), self._rates[:i])
            time = self._time(i, t, h)
            d_time = dt + tableau.c[i] * dh
            d_rates.append(self._rate_change(time, stage, p, d_state, dp, d_time))
            for weight, density in densities:
                point = (time, stage, p)
                slope = change(density, self._problem, point, d_state, dp, d_time)
                running += weight * tableau.b[i] * h * slope
                if dh:
                    running += weight * tableau.b[i] * dh * density.value(*point)
        du.maxpy((h * tableau.b).tolist(), d_rates)
        if dh:
            du.maxpy((dh * tableau.b).tolist(), self._rates)
        for vec in d_rates:
            vec.destroy()
        return running

    def adjoint(
        self,
        step: Step,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry the adjoints of several costs back over one step.

        Parameters
        ----------
        step : Step
            From which state, with which size and parameters.
        lam, mu : sequences of Vec [n], Vec [m]
            Adjoints of the state after the step (overwritten by those before it) and of the
            parameters (added to), one for each cost.
        densities : sequence of sequences of (float, Scalar)
            Running costs with their weights, for each cost.
        times : bool
            Return the adjoints of t and h too.

        Returns
        -------
        list of (float, float)
            For each cost the derivatives with respect to t and to h; empty without ``times``.
        """
        t, h, _, _, p = step
        self._recompute(step, rates=times)
        if self._passes is not None and not times and not any(densities):
            for lam_k, mu_k in zip(lam, mu, strict=True):
                self._passes.pull([t], [h], [self._states], p, lam_k, mu_k)
            return []
        tableau = self._tableau
        s = len(tableau.b)
        self._allocate(len(lam))
        by_t = np.zeros(len(lam))
        by_h = np.zeros(len(lam))
        weight = self._work
        for i in reversed(range(s)):
            time, stage = self._time(i, t, h), self._states[i]
            matrix_u = self._rhs_u.at(time, stage, p)
            matrix_p = self._fill_p(time, stage, p)
            rate_t = self._rate_t(time, stage, p) if times else None
            for k, (lam_k, mu_k) in enumerate(zip(lam, mu, strict=True)):
                adjoints = self._adjoints[k]
                self._weigh(i, lam_k, adjoints, weight)
                self._pull_back(h, (matrix_u, matrix_p), weight, adjoints[i], mu_k)
                for factor, density in densities[k]:
                    scale = factor * h * tableau.b[i]
                    density.add_u(scale, time, stage, p, adjoints[i])
                    density.add_p(scale, time, stage, p, mu_k)
                if rate_t is not None:
                    slope = h * dot(rate_t, weight)
                    by_h[k] += dot(self._rates[i], weight)
                    for factor, density in densities[k]:
                        scale = factor * tableau.b[i]
                        slope += h * scale * density.value_t(time, stage, p)
                        by_h[k] += scale * density.value(time, stage, p)
                    by_t[k] += slope
                    by_h[k] += tableau.c[i] * slope
            if rate_t is not None:
                rate_t.destroy()
        for lam_k, adjoints in zip(lam, self._adjoints, strict=False):
            lam_k.maxpy([1.0] * s, adjoints)
        return list(zip(by_t.tolist(), by_h.tolist(), strict=True)) if times else []

    dt, dp = 0.0, None  # the times and parameters of smooth steps are fixed

    def add_time(self, k: int, slope: float) -> None:
        """Do nothing: the times of smooth steps are fixed."""

    def second_order(
        self,
        step: Step,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry one adjoint and its derivatives along several directions back over one step.

        Parameters
        ----------
        step : Step
            From which state, with which size and parameters.
        first : Adjoint
            lam [n], overwritten, and mu [m], added to.
        directions : sequence of SecondOrder
            The tangent before the step, and lam_dot [n], overwritten, mu_dot [m], added to.
        densities : sequence of (float, Scalar)
            Running costs with their weights.
        times : bool
            Differentiate in t and h too, and return those derivatives.

        Returns
        -------
        list of (float, float)
            The adjoints of t and of h (zeros if they are known), and their derivative along each
            direction; empty without ``times``.

        Source
        ------
        Forward-over-adjoint differentiation of ``adjoint``; Hager, Numerische Mathematik 87, 2000,
        for the discrete adjoint.
        """
        t, h, u, _, p = step
        self._recompute(step, rates=times)
        tableau = self._tableau
        s = len(tableau.b)
        moments = [self._time(i, t, h) for i in range(s)]
        slopes = self._fill_stages(moments, p)
        tangents = [self._stage_tangents(h, each, slopes, moments, p) for each in directions]
        self._allocate(1 + len(directions))
        weight, weight_dot = self._work, self._second_work
        clock = StageClock(self._problem, p, h, densities, len(directions)) if times else None
        known = first.weights[u.handle, h] if first.known and first.weights else None
        for i in reversed(range(s)):
            point, share = (moments[i], self._states[i], p), h * float(tableau.b[i])
            if known is not None:
                weight = known[s - 1 - i]
            else:
                self._weigh(i, first.lam, self._adjoints[0], weight)
                first.keep(u, h, weight)
                out = (self._adjoints[0][i], first.mu)
                self._pull_back(h, slopes[i], weight, *out)
                for factor, density in densities:
                    density.add_u(factor * share, *point, out[0])
                    density.add_p(factor * share, *point, out[1])
            if clock is not None:
                clock.read(point, float(tableau.b[i]), float(tableau.c[i]), weight, self._rates[i])
                if known is None:
                    clock.add_first()
            for k, each in enumerate(directions, start=1):
                stage = tangents[k - 1][i]
                self._weigh(i, each.lam_dot, self._adjoints[k], weight_dot)
                out = (self._adjoints[k][i], each.mu_dot)
                self._pull_back(h, slopes[i], weight_dot, *out)
                direction = (stage.state, each.dp)
                self._problem.rhs_hessian(point, weight, direction, (self._by_u, self._by_p))
                out[0].axpy(h, self._by_u)
                out[1].axpy(h, self._by_p)
                for factor, density in densities:
                    density.add_hessian(factor * share, point, direction, out)
                if clock is not None:
                    clock.bend(k, each, stage, slopes[i], out)
                    clock.turn(k, weight_dot)
        if known is None:
            first.lam.maxpy([1.0] * s, self._adjoints[0])
        for each, adjoints in zip(directions, self._adjoints[1:], strict=False):
            each.lam_dot.maxpy([1.0] * s, adjoints)
        for vec in (
            vec for stages in tangents for each in stages for vec in (each.state, each.rate)
        ):
            vec.destroy()
        return [] if clock is None else clock.slopes

    def _weigh(self, i: int, lam: PETSc.Vec, adjoints: list[PETSc.Vec], out: PETSc.Vec) -> None:
        """Fill ``out`` with w_i = b_i lam + sum_{j>i} a_ji l_j."""
        tableau = self._tableau
        lam.copy(out)
        out.scale(tableau.b[i])
        if i + 1 < len(tableau.b):
            out.maxpy(tableau.a[i + 1 :, i].tolist(), adjoints[i + 1 :])

    def _pull_back(
        self,
        factor: float,
        slopes: tuple[PETSc.Mat, PETSc.Mat | None],
        weight: PETSc.Vec,
        adjoint: PETSc.Vec,
        mu: PETSc.Vec,
    ) -> None:
        """Fill ``adjoint`` [n] with factor f_u^T w, and add factor f_p^T w to ``mu`` [m]."""
        matrix_u, matrix_p = slopes
        matrix_u.multTranspose(weight, adjoint)
        adjoint.scale(factor)
        if matrix_p is not None:
            matrix_p.multTranspose(weight, self._by_p)
            mu.axpy(factor, self._by_p)

    def _fill_stages(self, times: list[float], p: Any) -> list[tuple[PETSc.Mat, PETSc.Mat | None]]:
        """Return f_u and f_p at every stage: the second-order sweep needs each of them twice."""
        problem = self._problem
        points = [(time, stage, p) for time, stage in zip(times, self._states, strict=True)]
        while len(self._matrices) < len(points):
            self._matrices.append((PointMatrix(problem.rhs_u), PointMatrix(problem.rhs_p)))
        return [
            (matrix_u.at(*point), matrix_p.at(*point) if problem.n_parameters else None)
            for point, (matrix_u, matrix_p) in zip(points, self._matrices, strict=True)
        ]

    def _stage_tangents(
        self,
        h: float,
        direction: SecondOrder,
        slopes: list[tuple[PETSc.Mat, PETSc.Mat | None]],
        moments: list[float],
        p: Any,
    ) -> list[StageTangent]:
        """Return the derivatives of the stages along a direction."""
        tableau, dh = self._tableau, direction.dh
        stages: list[StageTangent] = []
        rates: list[PETSc.Vec] = []
        for i, (matrix_u, matrix_p) in enumerate(slopes):
            state = direction.du.copy()
            if i:
                state.maxpy((h * tableau.a[i, :i]).tolist(), rates)
                if dh:
                    state.maxpy((dh * tableau.a[i, :i]).tolist(), self._rates[:i])
            rate = state.duplicate()
            matrix_u.mult(state, rate)
            if matrix_p is not None:
                matrix_p.multAdd(direction.dp_vec, rate, rate)
            dt = direction.dt + float(tableau.c[i]) * dh
            if dt:
                rate_t = self._rate_t(moments[i], self._states[i], p)
                rate.axpy(dt, rate_t)
                rate_t.destroy()
            rates.append(rate)
            stages.append(StageTangent(state, rate, dt))
        return stages

    def _time(self, i: int, t: float, h: float) -> float:
        return self._problem.inside(t + self._tableau.numbers[2][i] * h, t, h)

    def _recompute(self, step: Step, *, rates: bool = False) -> None:
        """Make the stages available: kept ones if there are any, else computed again.

        Rates of kept stages are evaluated only where they are wanted.
        """
        t, h, u, _, p = step
        tableau = self._tableau
        kept = self._kept.get((u.handle, h))
        if kept is not None:
            self._states = kept[: len(tableau.b)]
            if rates:
                for i, (stage, rate) in enumerate(zip(self._states, self._rates, strict=True)):
                    self._problem.rhs(self._time(i, t, h), stage, p, rate)
            return
        self._advance_stages(t, h, u, p)

    def _advance_stages(self, t: float, h: float, u: PETSc.Vec, p: Any, first: int = 0) -> None:
        """Compute the stages and their rates, from number ``first`` on."""
        self._states = stages = self._own
        rates = self._rates
        for i, (weights, earlier) in enumerate(self._rows[first:], first):
            stage = stages[i]
            if len(weights) == 1:
                stage.waxpy(h * weights[0], earlier[0], u)
            else:
                u.copy(stage)
                if i:
                    stage.maxpy([h * weight for weight in weights], earlier)
            self._problem.rhs(self._time(i, t, h), stage, p, rates[i])

    def _rate_change(
        self,
        t: float,
        u: PETSc.Vec,
        p: Any,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float,
    ) -> PETSc.Vec:
        out = self._problem.create_state()
        self._rhs_u.at(t, u, p).mult(du, out)
        if dp is not None:
            matrix_p = self._fill_p(t, u, p)
            if matrix_p is not None:
                matrix_p.multAdd(dp, out, out)
        if dt:
            rate_t = self._rate_t(t, u, p)
            out.axpy(dt, rate_t)
            rate_t.destroy()
        return out

    def _rate_t(self, t: float, u: PETSc.Vec, p: Any) -> PETSc.Vec:
        out = self._problem.create_state()
        self._problem.rhs_t(t, u, p, out)
        return out

    def _fill_p(self, t: float, u: PETSc.Vec, p: Any) -> PETSc.Mat | None:
        return self._rhs_p.at(t, u, p) if self._problem.n_parameters else None

    def _allocate(self, n_costs: int) -> None:
        while len(self._adjoints) < n_costs:
            self._adjoints.append([self._problem.create_state() for _ in self._states])
