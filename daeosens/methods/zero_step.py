"""Steps of size 0 of implicit equations, with the first two derivatives of a method in their size.

Between two events at one instant, or from an event to a fixed time, a step F(t, u, u', p) = 0 of
size h leads to u + h v + h^2/2 w, of which all derivatives at h = 0 are wanted.  The rate v solves
F = 0 in the equations with u', and G_u v + G_t = 0 in those without, 0 = G(t, u, p).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from petsc4py import PETSc

from daeosens.costs.cost import Densities, change
from daeosens.methods.dae.structure import Split, split_equations
from daeosens.methods.linear_solver import block_solver
from daeosens.methods.state_rate import Partials, Rate, RateCurvature
from daeosens.methods.step import Adjoint, FixedTimes, SecondOrder, Step
from daeosens.petsc.vectors import dot
from daeosens.problem.problem import Problem


class StepCurvature(NamedTuple):
    """The second derivative w of a step in its size, in terms of the solution's.

    w = solution u'' + rates A^-1 M x'', with M x' = f of which A is the matrix of v: the latter is
    the change of x, and of y with it, that x'' means.
    """

    solution: float
    rates: float


class InstantStep(FixedTimes):
    """The step map of a step of size 0 of a problem in mass or residual form.

    Directions of algebraic variables are taken to satisfy their linearised equations, as they do
    after jumps and steps.

    Parameters
    ----------
    problem : Problem
        What is stepped.
    bends : StepCurvature
        The second derivative of the step.
    share : float
        Weight of the end of the step.
    options : mapping
        PETSc's, of the linear solvers.

    Source
    ------
    docs/mathematics.md, section 4.
    """

    def __init__(
        self, problem: Problem, bends: StepCurvature, share: float, options: Mapping[str, Any]
    ) -> None:
        self._problem = problem
        self._bends = bends
        self._share = share
        self._make_solver = partial(block_solver, options=options)
        self._partials = Partials(problem)
        self._split: Split | None = None

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return 0, the running costs of no time."""
        del step, densities
        return 0.0

    def tangent(
        self,
        step: Step,
        du: PETSc.Vec,
        dp: PETSc.Vec | None,
        dt: float = 0.0,
        dh: float = 0.0,
        densities: Densities = (),
    ) -> float:
        """Add v dh to ``du`` [n].  Parameters and result as for ``StepMap.tangent``."""
        del dp, dt  # the start has moved with them
        if not dh:
            return 0.0
        t, _, u, _, p, _ = step
        with closing(self._at(step)) as rate:
            # u + h v + h^2/2 w at h = 0: the derivative in h is v, and nothing else moves
            du.axpy(dh, rate.v)
        return dh * sum(weight * density.value(t, u, p) for weight, density in densities)

    def adjoint(
        self,
        step: Step,
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Leave the adjoints as they are, and return those of t and h.

        Parameters and result as for ``StepMap.adjoint``.
        """
        del mu
        if not times:
            return []
        with closing(self._at(step)) as rate:
            return [
                # by_t is 0: at h = 0 the state after the step is that before it, at any time
                (0.0, _slope(step, rate.v, lam_k, densities_k))
                for lam_k, densities_k in zip(lam, densities, strict=True)
            ]

    def second_order(
        self,
        step: Step,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry derivatives of the adjoint back; as ``SecondOrderMap``."""
        if not times:
            return []
        # lam passes unchanged; it is kept for products whose first order is known
        (lam,) = first.kept(step) or [first.lam]
        if not first.known:
            first.keep(step, lam)
        with closing(self._at(step)) as rate:
            own = (0.0, 0.0 if first.known else _slope(step, rate.v, lam, densities))
            bend = rate.bend(lam)
            curve = self._curvature(rate, bend)
            return [
                own,
                *(
                    self._along(step, direction, rate.v, bend, curve, densities)
                    for direction in directions
                ),
            ]

    def _at(self, step: Step) -> Rate:
        """Return the rate at the instant of a step."""
        problem, (t, _, u, _, p, _) = self._problem, step
        time = problem.inside(t, t, 0.0)
        if problem.curved_mass or self._split is None:  # rows may be others elsewhere
            self._split = split_equations(problem, time, u, p, self._make_solver)
        return Rate(problem, self._partials, self._split, self._make_solver, (time, u, p))

    def _curvature(self, rate: Rate, bend: RateCurvature) -> float:
        """Return lam.w, the second derivative of a step in its size."""
        solution, rates = self._bends
        # lam.u'' is the derivative of lam.v along the solution
        total = solution * bend.along(rate.v)
        if rates:
            total += rates * rate.bend(rate.weighed(bend.nu)).along(rate.v)
        return total

    def _along(
        self,
        step: Step,
        sensitivity: SecondOrder,
        v: PETSc.Vec,
        bend: RateCurvature,
        curve: float,
        densities: Densities,
    ) -> tuple[float, float]:
        """Add to the derivatives of the adjoint along a direction; return those of t and h."""
        t, _, u, _, p, _ = step
        point, dh = (t, u, p), sensitivity.dh
        by_t = dh * bend.by_t
        # Derivative of lam.v + r along the direction: lam_dot.v, the change of v with u and t,
        # and dh lam.w.
        by_h = (
            dot(sensitivity.lam_dot, v)
            + dot(bend.by_u, sensitivity.du)
            + bend.by_t * sensitivity.dt
            + dh * curve
        )
        if self._problem.n_parameters:
            by_h += dot(bend.by_p, sensitivity.dp_vec)
            sensitivity.mu_dot.axpy(dh, bend.by_p)
        sensitivity.lam_dot.axpy(dh, bend.by_u)
        for weight, density in densities:
            slope_t = density.value_t(*point)
            bent = change(density, self._problem, point, v, None, 1.0)
            along = change(
                density, self._problem, point, sensitivity.du, sensitivity.dp_vec, sensitivity.dt
            )
            # a quadrature with weight ``share`` at the end has h^2 share r' in its expansion,
            # twice that as its second derivative
            by_h += weight * (along + 2.0 * self._share * dh * bent)
            by_t += weight * dh * slope_t
            density.add_u(weight * dh, *point, sensitivity.lam_dot)
            density.add_p(weight * dh, *point, sensitivity.mu_dot)
        return by_t, by_h


def _slope(step: Step, v: PETSc.Vec, lam: PETSc.Vec, densities: Densities) -> float:
    """Return the derivative in the size of the step."""
    t, _, u, _, p, _ = step
    return dot(v, lam) + sum(weight * density.value(t, u, p) for weight, density in densities)
