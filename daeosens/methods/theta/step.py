"""Theta steps, linearised in the state, the parameters, the time and the step size.

Endpoint form (Crank-Nicolson for theta = 1/2), as PETSc's TSTHETA takes it:
``F(t+h, u1, (u1 - u0)/(theta h), p) + (1 - theta)/theta F(t, u0, 0, p) = 0``,
and where F_udot is no constant ``theta F(t+h, u1, k, p) + (1 - theta) F(t, u0, k, p) = 0`` with the
rate k = (u1 - u0)/h at both ends, which is the same where it is one.
One-stage form (backward Euler for theta = 1, implicit midpoint for 1/2):
``F(t + theta h, X, (X - u0)/(theta h), p) = 0,  u1 = u0 + (X - u0)/theta``.
With F = M u' - f these are the formulas of docs/mathematics.md, section 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from petsc4py import PETSc

from daeosens.costs.cost import Densities, change
from daeosens.methods.factored_matrix import MakeSolver
from daeosens.methods.step import FixedTimes, SecondOrderMap, Step
from daeosens.methods.theta.second_order import ThetaSecondOrder
from daeosens.methods.theta.step_equation import ThetaEquation
from daeosens.problem.problem import Problem


class ThetaStep(FixedTimes):
    """The step map of a theta method, with work space for one sweep.

    Parameters
    ----------
    problem : Problem
        In any form.
    theta : float
        Weight of the end of the step, in (0, 1].
    endpoint : bool
        Endpoint form; otherwise one-stage.
    make_solver : callable
        Makes the linear solver of a matrix.
    """

    def __init__(
        self, problem: Problem, theta: float, make_solver: MakeSolver, *, endpoint: bool
    ) -> None:
        self._problem = problem
        self._equation = ThetaEquation(problem, theta, make_solver, endpoint=endpoint)
        self._solution, self._right = problem.create_state(), problem.create_state()

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return the step's part of the running costs, with the method's own quadrature."""
        if not densities:
            return 0.0
        result = 0.0
        for share, time, state in self._equation.quadrature_points(step):
            for weight, density in densities:
                result += share * step.h * weight * density.value(time, state, step.p)
        return result

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
        equation, right = self._equation, self._right
        shift, ends = equation.ends(step)
        end, start = ends
        if equation.rest and not equation.both_rates:
            # The matrix at the start is that at the end of the step before: it is asked for first,
            # so that it is not the one that the end's replaces.
            equation.slot(*start, shift)
        system = equation.system(ends, shift)
        right.zeroEntries()
        # With F = 0 along the run: (F_u + shift F_u') du1 = shift F_u' du0 - rest F_u(start) du0
        # - F_p dp - F_t dt, F_p and F_t at the end and, with the weight rest, at the start.
        equation.add_udot_product(shift * equation.of_state, ends, du, right)
        if equation.rest:
            change = equation.change(system, shift, ends)
            change.add(-equation.rest, du, right)
            equation.add_partials(-equation.rest, start, dp, dt, right)
        # The point where F is linearised lies at t + reach h and moves by dt + reach dh. A longer
        # step also lowers the rate (u1 - u0) / h by dh/h of itself, which goes to the right-hand
        # side with a plus.
        equation.add_partials(-1.0, end, dp, dt + equation.reach * dh, right)
        if dh:
            equation.add_udot_product(dh / step.h, ends, end[2], right)
        system.solve(right, self._solution, transpose=False)
        # What was solved for is du1 - keep du0: see ``ThetaEquation.change``.
        if equation.endpoint:
            self._solution.axpy(equation.keep, du)
        running = self._quadrature_change(step, (du, self._solution), dp, dt, dh, densities)
        if equation.endpoint:
            self._solution.copy(du)
        else:  # du1 = du0 + (dX - du0) / theta
            du.scale(equation.keep)
            du.axpy(equation.of_next, self._solution)
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
        equation, h, p = self._equation, step.h, step.p
        rate = times or self._problem.form != "rhs"  # otherwise nothing depends on it
        shift, ends = equation.ends(step, rate=rate)
        (time, end, _, _), (start, *_) = ends
        slot = equation.system(ends, shift)
        solutions: list[PETSc.Vec] = []
        for lam_k, densities_k in zip(lam, densities, strict=True):
            # In endpoint form lam itself is the right-hand side and takes the running cost at the
            # end along, as ``pull_to_start`` wants keep times all of it.
            right = lam_k
            if not equation.at_end:
                right = self._right
                lam_k.copy(right)
                # u1 = u0 + (X - u0)/theta, so the stage X gets lam/theta.
                right.scale(equation.of_next)
            for weight, density in densities_k:
                density.add_u(weight * equation.share * h, time, end, p, right)
            solution = right.duplicate()
            slot.solve(right, solution, transpose=True)
            solutions.append(solution)
        # mu -= F_p^T nu, since F stands on the other side of the equation than f.
        equation.add_parameter_part(1.0, ends[0], solutions, mu)
        result = equation.time_slopes(h, ends, solutions, densities) if times else []
        equation.pull_to_start(slot, shift, ends, solutions, lam)
        # F at the start, with its weight (1 - theta)/theta
        if equation.rest:
            equation.add_parameter_part(equation.rest, ends[1], solutions, mu)
        for lam_k, mu_k, densities_k in zip(lam, mu, densities, strict=True):
            if not densities_k:
                continue
            for share, at, state in self._equation.quadrature_points(step):
                for weight, density in densities_k:
                    density.add_p(weight * share * h, at, state, p, mu_k)
            if equation.endpoint:
                # the running cost at the start depends on u0 alone: it passes by the solve
                for weight, density in densities_k:
                    density.add_u(weight * (1.0 - equation.theta) * h, start, step.u, p, lam_k)
        for solution in solutions:
            solution.destroy()
        return result

    @property
    def second_order(self) -> SecondOrderMap:
        """What carries one adjoint and its derivatives along directions back over one step."""
        return self._second_order.carry_back

    @cached_property
    def _second_order(self) -> ThetaSecondOrder:
        return ThetaSecondOrder(self._problem, self._equation)

    def _quadrature_change(
        self,
        step: Step,
        ends: tuple[PETSc.Vec, PETSc.Vec],
        dp: PETSc.Vec | None,
        dt: float,
        dh: float,
        densities: Densities,
    ) -> float:
        """Return the change of the step's running cost; ``ends`` are the directions there."""
        result = 0.0
        if not densities:
            return result
        t, h, u, _, p, _ = step
        du, d_end = ends
        for share, time, state in self._equation.quadrature_points(step):
            at_start = self._equation.endpoint and state is u
            d_time = dt + dh * (time - t) / h
            for weight, density in densities:
                point = (time, state, p)
                # dh stretches the weight of the quadrature and moves its point along the step
                slope = change(density, self._problem, point, du if at_start else d_end, dp, d_time)
                result += weight * share * (h * slope + (dh and dh * density.value(*point)))
        return result
