"""Explicit Runge-Kutta steps, linearised in the state, the parameters, the time and the step size.

U_i = u_n + h sum_j a_ij k_j,  k_i = f(t_n + c_i h, U_i, p),  u_{n+1} = u_n + h sum_i b_i k_i
(docs/mathematics.md, section 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities, change
from daeosens.methods.grid_steps import GridStepAdjoint
from daeosens.methods.rk.second_order import RungeKuttaSecondOrder
from daeosens.methods.rk.stages import ExplicitStages, Kept, pull_back, weigh
from daeosens.methods.rk.tableau import Tableau
from daeosens.methods.step import FixedTimes, SecondOrderMap, Step, weighted
from daeosens.petsc.vectors import dot
from daeosens.problem.matrices import PointMatrix
from daeosens.problem.problem import Problem


class RungeKuttaStep(FixedTimes):
    """The step map of an explicit Runge-Kutta method, with work space for one sweep.

    The weights ``w_i = b_i lam + sum_{j>i} a_ji l_j``, with ``l_j = h f_u^T w_j``, avoid any
    division by ``b_i``, which is zero for some stages of 3bs, 5f, 5dp, 5bs, 6vr, 7vr and 8vr, and
    by h, which is zero between events at one instant.

    Source
    ------
    Hager, Numerische Mathematik 87, 2000; Sanz-Serna, SIAM Review 58(1), 2016, section 3.
    """

    def __init__(self, problem: Problem, tableau: Tableau, kept: Kept | None = None) -> None:
        self._problem = problem
        self._tableau = tableau.of_step
        self._work = problem.create_state()
        self._by_p = problem.create_parameters()
        self._rhs_u, self._rhs_p = PointMatrix(problem.rhs_u), PointMatrix(problem.rhs_p)
        self._adjoints: list[list[PETSc.Vec]] = []
        python = problem.breakpoints or problem.field_parameter
        compiled = problem.stencil is not None and not python
        self._passes: GridStepAdjoint | None = None
        in_passes = compiled and self._tableau.chained
        if in_passes:
            self._passes = GridStepAdjoint(problem, *self._tableau.of_passes)
        kept = {} if kept is None else kept
        self._stages = ExplicitStages(problem, self._tableau, kept, passes=in_passes)

    def advance(
        self, t: float, h: float, u: PETSc.Vec, p: Any, out: PETSc.Vec, *, again: bool = False
    ) -> None:
        """Fill ``out`` [n] with the state after one step of size ``h`` from ``u`` [n] at ``t``.

        ``again`` says that the last step began just there: its first rate is known.
        """
        self._stages.advance(t, h, u, p, first=int(again))
        u.copy(out)
        out.maxpy([h * weight for weight in self._tableau.numbers[1]], self._stages.rates)

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return h sum_i b_i r_i, summed over the weighted densities."""
        if not densities:
            return 0.0
        t, h, _, _, p, _ = step
        self._stages.recompute(step)
        points = [
            (self._stages.time(i, t, h), stage, p) for i, stage in enumerate(self._stages.states)
        ]
        return h * weighted(points, self._tableau.b, densities)

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

        Parameters and result as for ``StepMap.tangent``.
        """
        t, h, _, _, p, _ = step
        self._stages.recompute(step, rates=bool(dh))
        tableau = self._tableau
        running = 0.0
        d_rates: list[PETSc.Vec] = []
        d_state = self._work
        # the tangent of stage i: dU_i = du + h sum_{j<i} a_ij dk_j, and dh sum_j a_ij k_j
        for i, stage in enumerate(self._stages.states):
            du.copy(d_state)
            row = tableau.a[i, :i]
            # Row i of a is strictly lower triangular: only rates of earlier stages count.
            if i:
                d_state.maxpy((h * row).tolist(), d_rates)
                if dh:
                    d_state.maxpy((dh * row).tolist(), self._stages.rates[:i])
            time = self._stages.time(i, t, h)
            # Stage i is at t + c_i h.
            d_time = dt + tableau.c[i] * dh
            d_rates.append(self._rate_change(time, stage, p, d_state, dp, d_time))
            for weight, density in densities:
                point = (time, stage, p)
                slope = change(density, self._problem, point, d_state, dp, d_time)
                running += weight * tableau.b[i] * h * slope
                if dh:
                    running += weight * tableau.b[i] * dh * density.value(*point)
        du.maxpy((h * tableau.b).tolist(), d_rates)
        # du_{n+1} has sum b_i k_i dh besides: a longer step has more of each rate.
        if dh:
            du.maxpy((dh * tableau.b).tolist(), self._stages.rates)
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

        Parameters and result as for ``StepMap.adjoint``.
        """
        t, h, _, _, p, _ = step
        self._stages.recompute(step, rates=times)
        # Passes in C have no adjoints of t and h: steps that need these go stage by stage.
        if self._passes is not None and not times and not any(densities):
            for lam_k, mu_k in zip(lam, mu, strict=True):
                self._passes.pull([t], [h], [self._stages.states], p, lam_k, mu_k)
            return []
        tableau = self._tableau
        s = len(tableau.b)
        self._allocate(len(lam))
        by_t = np.zeros(len(lam))
        by_h = np.zeros(len(lam))
        weight = self._work
        for i in reversed(range(s)):
            time, stage = self._stages.time(i, t, h), self._stages.states[i]
            matrix_u = self._rhs_u.at(time, stage, p)
            matrix_p = self._fill_p(time, stage, p)
            rate_t = self._rate_t(time, stage, p) if times else None
            for k, (lam_k, mu_k) in enumerate(zip(lam, mu, strict=True)):
                # w_i comes first, as it needs l_j of later stages only; then l_i = h f_u^T w_i,
                # and mu takes h f_p^T w_i.
                adjoints = self._adjoints[k]
                weigh(tableau, i, lam_k, adjoints, weight)
                pull_back(h, (matrix_u, matrix_p), weight, adjoints[i], mu_k, self._by_p)
                for factor, density in densities[k]:
                    # The running cost h b_i r(U_i) is one more output of the stage: its slope
                    # joins l_i.
                    scale = factor * h * tableau.b[i]
                    density.add_u(scale, time, stage, p, adjoints[i])
                    density.add_p(scale, time, stage, p, mu_k)
                if rate_t is not None:
                    # s_i = h (f_t.w_i + b_i r_t), the adjoint of the stage's time, is the whole
                    # of dJ/dt_n. For h it counts c_i times, and k_i.w_i + b_i r_i for the factor
                    # h before each rate.
                    slope = h * dot(rate_t, weight)
                    by_h[k] += dot(self._stages.rates[i], weight)
                    for factor, density in densities[k]:
                        scale = factor * tableau.b[i]
                        slope += h * scale * density.value_t(time, stage, p)
                        by_h[k] += scale * density.value(time, stage, p)
                    by_t[k] += slope
                    by_h[k] += tableau.c[i] * slope
            if rate_t is not None:
                rate_t.destroy()
        # U_i = u_n + ... for every stage, and u_{n+1} = u_n + ...: lam_n = lam_{n+1} + sum_i l_i.
        for lam_k, adjoints in zip(lam, self._adjoints, strict=False):
            lam_k.maxpy([1.0] * s, adjoints)
        return list(zip(by_t.tolist(), by_h.tolist(), strict=True)) if times else []

    @property
    def second_order(self) -> SecondOrderMap:
        """What carries one adjoint and its derivatives along directions back over one step."""
        return self._second_order.carry_back

    @cached_property
    def _second_order(self) -> RungeKuttaSecondOrder:
        return RungeKuttaSecondOrder(self._problem, self._tableau, self._stages)

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
            self._adjoints.append([self._problem.create_state() for _ in self._stages.states])
