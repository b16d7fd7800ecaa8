"""IMEX steps of u' = f + g, linearised in u, p, t and h."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities, change
from daeosens.methods.factored_matrix import MakeSolver
from daeosens.methods.imex.second_order import ImexSecondOrder
from daeosens.methods.imex.stage_equations import ImexEquations, destroy
from daeosens.methods.imex.stages import ImexStages
from daeosens.methods.imex.tableau import Additive
from daeosens.methods.rk.time_and_size import StageTangent
from daeosens.methods.step import FixedTimes, SecondOrderMap, Step, weighted
from daeosens.petsc.vectors import dot
from daeosens.problem.problem import Problem


class ImexStep(FixedTimes):
    """The step map of an IMEX method, with work space for one sweep.

    Running costs are integrated with the weights of the implicit part.

    Parameters
    ----------
    problem : Problem
        u' = f + g.
    scheme : Additive
        Coefficients.
    make_solver : callable
        Makes the linear solver of a matrix.
    stages : ImexStages
        Finds the stages of a step.

    Source
    ------
    docs/mathematics.md, section 1; Sandu, "On the properties of Runge-Kutta discrete adjoints",
    ICCS 2006, for the adjoint of a step.
    """

    def __init__(
        self, problem: Problem, scheme: Additive, make_solver: MakeSolver, stages: ImexStages
    ) -> None:
        self._problem = problem
        self._scheme = scheme
        self._equations = ImexEquations(problem, scheme, make_solver, stages)
        create = problem.create_state
        self._source, self._weight, self._weight_explicit = create(), create(), create()
        self._rate_t = create()

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return h sum_i b_i r_i, summed over the weighted densities."""
        if not densities:
            return 0.0
        return step.h * weighted(self._equations.points(step), self._scheme.b, densities)

    def quadrature_error(self, step: Step, densities: Densities) -> float:
        """Return by how much the embedded quadrature differs."""
        assert self._scheme.b_embedded is not None
        weights = self._scheme.b - self._scheme.b_embedded
        return step.h * weighted(self._equations.points(step), weights, densities)

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
        h, equations = step.h, self._equations
        points = equations.points(step)
        rates = equations.rates(points) if dh else []
        stages = equations.tangents(h, points, None, du, dp, (dt, dh), rates)
        running = 0.0
        for point, (stage, _), b in zip(points, stages, self._scheme.b.tolist(), strict=True):
            for weight, density in densities:
                slope = change(density, self._problem, point, stage.state, dp, stage.dt)
                running += weight * b * h * slope
                if dh:
                    running += weight * b * dh * density.value(*point)
        equations.complete(h, stages, dh, rates, du)
        destroy(stages)
        return running

    def error(self, step: Step, du: PETSc.Vec, dp: PETSc.Vec | None) -> None:
        """Overwrite ``du`` [n] before the step with the tangent of its error estimate."""
        equations, h = self._equations, step.h
        stages = equations.tangents(h, equations.points(step), None, du, dp, (0.0, 0.0), ())
        self._error(h, stages, du)
        destroy(stages)

    def accumulate(
        self, step: Step, tangents: Sequence[tuple[PETSc.Vec, PETSc.Vec]], dp: Sequence[PETSc.Vec]
    ) -> None:
        """Carry tangents over a step, and beside each the sum of its error estimates so far.

        Both [n] of each pair are overwritten; all of them share the factors of the stages.
        """
        equations, h, fixed = self._equations, step.h, (0.0, 0.0)
        points = equations.points(step)
        slots = equations.slots(points, h)
        error = self._source
        for (du, total), along in zip(tangents, dp, strict=True):
            stages = equations.tangents(h, points, slots, total, None, fixed, ())
            equations.complete(h, stages, 0.0, (), total)
            destroy(stages)
            stages = equations.tangents(h, points, slots, du, along, fixed, ())
            equations.complete(h, stages, 0.0, (), du)
            self._error(h, stages, error)
            total.axpy(1.0, error)
            destroy(stages)

    def _error(
        self, h: float, stages: Sequence[tuple[StageTangent, StageTangent]], out: PETSc.Vec
    ) -> None:
        """Fill ``out`` [n] with the tangent of h sum_i (b_i - b_embedded_i) (f_i + g_i)."""
        scheme = self._scheme
        assert scheme.b_embedded is not None
        out.zeroEntries()
        for k, b in enumerate((scheme.b, scheme.b_explicit)):
            weights = h * (b - scheme.b_embedded)
            out.maxpy(weights.tolist(), [pair[k].rate for pair in stages])

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
        h, scheme, equations = step.h, self._scheme, self._equations
        points = equations.points(step)
        rates = equations.rates(points) if times else []
        adjoints = equations.adjoints(len(lam))
        by_t, by_h = np.zeros(len(lam)), np.zeros(len(lam))
        source, of_implicit, of_explicit = self._source, self._weight, self._weight_explicit
        for i in reversed(range(len(points))):
            point, b, c = points[i], float(scheme.b[i]), float(scheme.c[i])
            slot = equations.slot(0, point, h) if i else None
            slopes = equations.of_implicit.at(point, by_u=not i)
            read = scheme.reads[i]
            slopes_explicit = equations.of_explicit.at(point) if read else (None, None)
            for k, (lam_k, mu_k) in enumerate(zip(lam, mu, strict=True)):
                source.zeroEntries()
                for factor, density in densities[k]:
                    density.add_u(factor * h * b, *point, source)
                    density.add_p(factor * h * b, *point, mu_k)
                equations.weigh_explicit(i, lam_k, adjoints[k], of_explicit)
                equations.pull_back(h, slopes_explicit, of_explicit, source, mu_k)
                equations.weigh_implicit(i, h, slot, source, lam_k, adjoints[k], of_implicit)
                equations.pull_back(h, slopes, of_implicit, source, mu_k)
                if times:
                    # s_i for t_n, c_i s_i + f_i.w_i + g_i.v_i + b_i r_i for h
                    weights = (equations.implicit, of_implicit), (equations.explicit, of_explicit)
                    slope = 0.0
                    for (part, weight), rate in zip(weights, rates[i], strict=True):
                        part.rhs_t(*point, self._rate_t)
                        slope += h * dot(self._rate_t, weight)
                        by_h[k] += dot(rate, weight)
                    for factor, density in densities[k]:
                        slope += factor * h * b * density.value_t(*point)
                        by_h[k] += factor * b * density.value(*point)
                    by_t[k] += slope
                    by_h[k] += c * slope
                if not i:
                    equations.start(source, lam_k, adjoints[k])
        return list(zip(by_t.tolist(), by_h.tolist(), strict=True)) if times else []

    @property
    def second_order(self) -> SecondOrderMap:
        """What carries one adjoint and its derivatives along directions back over one step."""
        return self._second_order.carry_back

    @cached_property
    def _second_order(self) -> ImexSecondOrder:
        return ImexSecondOrder(self._problem, self._scheme, self._equations)
