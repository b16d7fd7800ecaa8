"""ESDIRK steps of M u' = f and IMEX steps of u' = f + g, linearised in u, p, t and h."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities, Point, change
from daeosens.methods.esdirk.second_order import DirkSecondOrder
from daeosens.methods.esdirk.stage_equations import StageEquations, destroy
from daeosens.methods.esdirk.stages import StageSolver
from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.methods.factored_matrix import MakeSolver
from daeosens.methods.rk.time_and_size import StageTangent
from daeosens.methods.step import FixedTimes, SecondOrderMap, Step, weighted
from daeosens.petsc.vectors import dot
from daeosens.problem.problem import Problem

ALMOST_NONE = 1e-6
"""Part of a step over which equations without u' decide, and the others change nothing."""


class DirkStep(FixedTimes):
    """The step map of an ESDIRK or IMEX method, with work space for one sweep.

    Running costs are integrated with the weights of the implicit part.

    Parameters
    ----------
    problem : Problem
        M u' = f(t, u, p) with a constant M.
    scheme : Esdirk
        Coefficients.
    make_solver : callable
        Makes the linear solver of a matrix.
    stages : StageSolver
        Finds the stages of a step.
    explicit : Problem, optional
        u' = g(t, u, p), stepped explicitly beside it.

    Source
    ------
    Hager, Numerische Mathematik 87, 2000; Sanz-Serna, SIAM Review 58(1), 2016, section 3; Sandu,
    "On the properties of Runge-Kutta discrete adjoints", ICCS 2006.
    """

    def __init__(
        self,
        problem: Problem,
        scheme: Esdirk,
        make_solver: MakeSolver,
        stages: StageSolver,
        explicit: Problem | None = None,
    ) -> None:
        self._problem = problem
        self._scheme = scheme
        self._equations = StageEquations(problem, scheme, make_solver, stages, explicit)
        self._right = problem.create_state()
        self._weights = [problem.create_state() for _ in self._equations.parts]
        self._rates_t = [problem.create_state() for _ in self._equations.parts]

    def share(self) -> None:
        """Keep what a step is linearised by until the next one, for several directions."""
        self._equations.shared = True

    @property
    def block(self) -> int:
        """How many steps are to be announced at a time."""
        return self._equations.block

    def ahead(self, steps: Sequence[Step]) -> None:
        """Evaluate derivatives at the stages of steps that follow, at once where that can be."""
        self._equations.ahead(steps)

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
        stages = equations.tangents(h, points, None, (du, None), dp, (dt, dh), rates)
        running = 0.0
        for point, (stage, *_), b in zip(points, stages, self._scheme.b.tolist(), strict=True):
            for weight, density in densities:
                slope = change(density, self._problem, point, stage.state, dp, stage.dt)
                running += weight * b * h * slope
                if dh:
                    running += weight * b * dh * density.value(*point)
        equations.complete(h, stages, dh, rates, du)
        destroy(stages)
        return running

    def error(self, step: Step, du: PETSc.Vec, dp: PETSc.Vec | None) -> None:
        """Overwrite ``du`` [n] before the step with the tangent of its error estimate.

        M e = h sum_i (b_i - b_embedded_i) (f_i + g_i) in the rows of M, and what follows in the
        others.
        """
        equations, h = self._equations, step.h
        points = equations.points(step)
        stages = equations.tangents(h, points, None, (du, None), dp, (0.0, 0.0), ())
        self._error(h, points[-1], stages, du)
        destroy(stages)

    def _error(
        self, h: float, end: Point, stages: Sequence[tuple[StageTangent, ...]], out: PETSc.Vec
    ) -> None:
        """Fill ``out`` [n] with the tangent of the error estimate, from those of the stages."""
        right, scheme, equations = self._right, self._scheme, self._equations
        assert scheme.b_embedded is not None
        right.zeroEntries()
        # The error estimate is M e = h sum (b_i - b_embedded_i) (f_i + g_i). M has no inverse for
        # algebraic equations; these say f(U_s) = 0, and a little of f_u lets e satisfy them
        # linearised.
        for k, b in enumerate(scheme.weights):
            weights = h * (b - scheme.b_embedded)
            right.maxpy(weights.tolist(), [stage[k].rate for stage in stages])
        if self._problem.form == "rhs":
            right.copy(out)
            return
        short = ALMOST_NONE * h  # the matrix is M, up to a little f_u for the rows without
        right.scale(1.0 / (short * scheme.gamma))
        equations.slot(0, len(self._scheme.c) - 1, end, short).solve(right, out, transpose=False)

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
        source, weights = self._right, self._weights
        values = list(zip(points, scheme.b.tolist(), scheme.c.tolist(), strict=True))
        # The first stage is explicit and has no equation of its own: its weight is what later
        # stages ask of the rate there, and lam leaves through it.
        for i in reversed(range(len(points))):
            point, b, c = values[i]
            slot = equations.slot(0, i, point, h) if i else None
            slopes = equations.slopes(i, point)
            if times:
                for part, rate_t in zip(equations.parts, self._rates_t, strict=True):
                    part.rhs_t(*point, rate_t)
            for k, (lam_k, mu_k) in enumerate(zip(lam, mu, strict=True)):
                source.zeroEntries()
                for factor, density in densities[k]:
                    density.add_u(factor * h * b, *point, source)
                    density.add_p(factor * h * b, *point, mu_k)
                equations.carry(
                    i, h, point, slot, slopes, source, (lam_k, mu_k), adjoints[k], weights
                )
                if times:
                    # s_i for t_n, c_i s_i + f_i.w_i + g_i.v_i + b_i r_i for h
                    slope = 0.0
                    for weight, rate, rate_t in zip(weights, rates[i], self._rates_t, strict=True):
                        slope += h * dot(rate_t, weight)
                        by_h[k] += dot(rate, weight)
                    for factor, density in densities[k]:
                        slope += factor * h * b * density.value_t(*point)
                        by_h[k] += factor * b * density.value(*point)
                    by_t[k] += slope
                    by_h[k] += c * slope
        return list(zip(by_t.tolist(), by_h.tolist(), strict=True)) if times else []

    @property
    def second_order(self) -> SecondOrderMap:
        """What carries one adjoint and its derivatives along directions back over one step."""
        return self._second_order.carry_back

    @cached_property
    def _second_order(self) -> DirkSecondOrder:
        return DirkSecondOrder(self._problem, self._scheme, self._equations)
