"""Second-order adjoints of explicit Runge-Kutta steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from petsc4py import PETSc

from daeosens.costs.cost import Densities
from daeosens.methods.rk.stages import ExplicitStages, pull_back, weigh
from daeosens.methods.rk.tableau import Tableau
from daeosens.methods.rk.time_and_size import StageTangent, StageTimeAndSize
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.problem.matrices import PointMatrix
from daeosens.problem.problem import Problem


class RungeKuttaSecondOrder:
    """The adjoint of an explicit Runge-Kutta step, differentiated along directions.

    Parameters
    ----------
    problem : Problem
        u' = f(t, u, p).
    tableau : Tableau
        Coefficients of the steps.
    stages : ExplicitStages
        Of the steps.
    """

    def __init__(self, problem: Problem, tableau: Tableau, stages: ExplicitStages) -> None:
        self._problem = problem
        self._tableau = tableau
        self._stages = stages
        create = problem.create_state
        self._weight, self._weight_dot, self._by_u, self._rate_t = (create() for _ in range(4))
        self._by_p = problem.create_parameters()
        self._matrices: list[tuple[PointMatrix, PointMatrix]] = []
        self._adjoints: list[list[PETSc.Vec]] = []

    def carry_back(
        self,
        step: Step,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry one adjoint and its derivatives along several directions back over one step.

        Parameters and result as for ``SecondOrderMap``.

        Source
        ------
        Forward-over-adjoint differentiation of ``adjoint``; Hager, Numerische Mathematik 87, 2000,
        for the discrete adjoint.
        """
        t, h, _, _, p, _ = step
        self._stages.recompute(step, rates=times)
        tableau = self._tableau
        s = len(tableau.b)
        moments = [self._stages.time(i, t, h) for i in range(s)]
        slopes = self._fill_stages(moments, p)
        # forward: the tangent of every stage, dU_i = du + h sum_j a_ij dk_j, along each direction
        tangents = [
            self._stage_tangents(h, sensitivity, slopes, moments, p) for sensitivity in directions
        ]
        self._allocate(1 + len(directions))
        weight, weight_dot = self._weight, self._weight_dot
        clock = StageTimeAndSize(self._problem, p, h, densities, len(directions)) if times else None
        known = first.kept(step)
        # back: the stage adjoints l_i = h f_u^T (b_i lam + sum_j a_ji l_j), and their derivatives
        for i in reversed(range(s)):
            point, share = (moments[i], self._stages.states[i], p), h * float(tableau.b[i])
            if known is not None:  # an earlier direction has carried the adjoint itself back
                weight = known[s - 1 - i]
            else:
                weigh(tableau, i, first.lam, self._adjoints[0], weight)
                first.keep(step, weight)
                out = (self._adjoints[0][i], first.mu)
                pull_back(h, slopes[i], weight, *out, self._by_p)
                for factor, density in densities:
                    density.add_u(factor * share, *point, out[0])
                    density.add_p(factor * share, *point, out[1])
            if clock is not None:
                clock.read(
                    point, float(tableau.b[i]), float(tableau.c[i]), weight, self._stages.rates[i]
                )
                if known is None:
                    clock.add_first()
            for k, sensitivity in enumerate(directions, start=1):
                stage = tangents[k - 1][i]
                # the same recurrence for the derivatives of the adjoint ...
                weigh(tableau, i, sensitivity.lam_dot, self._adjoints[k], weight_dot)
                out = (self._adjoints[k][i], sensitivity.mu_dot)
                pull_back(h, slopes[i], weight_dot, *out, self._by_p)
                # ... and the change of f_u and f_p along the direction: w.f_uu dU + w.f_up dp
                direction = (stage.state, sensitivity.dp)
                self._problem.rhs_hessian(point, weight, direction, (self._by_u, self._by_p))
                out[0].axpy(h, self._by_u)
                out[1].axpy(h, self._by_p)
                for factor, density in densities:
                    density.add_hessian(factor * share, point, direction, out)
                if clock is not None:
                    clock.bend(k, sensitivity, stage, slopes[i], out)
                    clock.turn(k, weight_dot)
        if known is None:
            first.lam.maxpy([1.0] * s, self._adjoints[0])
        for sensitivity, adjoints in zip(directions, self._adjoints[1:], strict=False):
            sensitivity.lam_dot.maxpy([1.0] * s, adjoints)
        for stage in chain.from_iterable(tangents):
            stage.destroy()
        return [] if clock is None else clock.slopes

    def _fill_stages(self, times: list[float], p: Any) -> list[tuple[PETSc.Mat, PETSc.Mat | None]]:
        """Return f_u and f_p at every stage: the second-order sweep needs each of them twice."""
        problem = self._problem
        points = [(time, stage, p) for time, stage in zip(times, self._stages.states, strict=True)]
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
                    state.maxpy((dh * tableau.a[i, :i]).tolist(), self._stages.rates[:i])
            rate = state.duplicate()
            matrix_u.mult(state, rate)
            if matrix_p is not None:
                matrix_p.multAdd(direction.dp_vec, rate, rate)
            dt = direction.dt + float(tableau.c[i]) * dh
            if dt:
                self._problem.rhs_t(moments[i], self._stages.states[i], p, self._rate_t)
                rate.axpy(dt, self._rate_t)
            rates.append(rate)
            stages.append(StageTangent(state, rate, dt))
        return stages

    def _allocate(self, count: int) -> None:
        while len(self._adjoints) < count:
            self._adjoints.append([self._problem.create_state() for _ in self._tableau.b])
