"""Second-order adjoints of theta steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from petsc4py import PETSc

from daeosens.costs.cost import Densities
from daeosens.methods.factored_matrix import FactoredMatrix
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.methods.theta.step_equation import ThetaEquation
from daeosens.methods.theta.time_and_size import EndTangent, Point, ThetaTimeAndSize
from daeosens.problem.problem import Problem


class ThetaSecondOrder:
    """The adjoint of a theta step, differentiated along directions, with its work space.

    Parameters
    ----------
    problem : Problem
        What is stepped.
    equation : ThetaEquation
        Of the steps.
    """

    def __init__(self, problem: Problem, equation: ThetaEquation) -> None:
        self._problem = problem
        self._equation = equation
        create = problem.create_state
        self._right, self._work, self._nu, self._by_u = create(), create(), create(), create()
        self._by_p = problem.create_parameters()
        self._along: list[EndTangent] = []

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

        Parameters and result as for ``SecondOrderMap``.  One factorisation serves all
        solves.
        """
        problem, equation = self._problem, self._equation
        h, rest, share = step.h, equation.rest, equation.share
        shift, ends = equation.ends(step)
        end, start = ends
        slot = equation.system(ends, shift)
        self._allocate(len(directions))
        works = self._along[: len(directions)]
        pairs = list(zip(directions, works, strict=True))
        for sensitivity, along in pairs:
            # the direction at the point of linearisation: stage or end, and its rate
            self._fill_end_tangent(sensitivity, shift, h, end[2], along)

        factors = (equation.of_next, shift, h)
        shares = [(weight * share * h, density) for weight, density in densities]
        nu = self._known_or_solved(step, end, factors, slot, first, shares)
        clock: ThetaTimeAndSize | None = None
        if times:
            scheme = (h, rest, share, equation.reach)
            seen = ends if rest else ends[:1]
            carry = partial(equation.add_udot_product, 1.0, ends)
            clock = ThetaTimeAndSize(problem, scheme, densities, seen, nu, carry, len(pairs))
        for k, pair in enumerate(pairs):
            self._solve_along(k, pair, ends, factors, slot, nu, shares, clock)

        solutions = [along.nu_dot for along in works]
        mus = [direction.mu_dot for direction in directions]
        lams = [direction.lam_dot for direction in directions]
        # The second order needs nu of the first. Where an earlier product has kept it, lam and mu
        # are known too and only the derivatives are carried.
        if not first.known:
            solutions, mus, lams = [nu, *solutions], [first.mu, *mus], [first.lam, *lams]
        equation.add_parameter_part(1.0, end, solutions, mus)
        equation.pull_to_start(slot, shift, ends, solutions, lams)
        for sensitivity, along in pairs:
            # The rate is shift (u1 - u0): what a mass that depends on u or p adds for u1 with a
            # minus, in ``_solve_along``, it adds for u0 with a plus.
            if problem.curved_mass:
                sensitivity.lam_dot.axpy(shift, along.by_udot)
            if sensitivity.dh:
                # d(1/(theta h)) = -dh/h of it
                change = -shift * sensitivity.dh / h
                equation.add_udot_product(change, ends, nu, sensitivity.lam_dot, transpose=True)
        if rest:
            shares = [(weight * (1.0 - share) * h, density) for weight, density in densities]
            self._add_start(start, nu, (solutions, mus), first, pairs, shares, clock)
        if clock is None:
            return []
        own = (0.0, 0.0)
        if not first.known:
            own = equation.time_slopes(h, ends, [nu], [densities])[0]
        return [
            own,
            *(clock.slopes(k, sensitivity, along) for k, (sensitivity, along) in enumerate(pairs)),
        ]

    def _known_or_solved(
        self,
        step: Step,
        end: Point,
        factors: tuple[float, float, float],
        slot: FactoredMatrix,
        first: Adjoint,
        shares: Densities,
    ) -> PETSc.Vec:
        """Return the adjoint nu of the step's equation; factors: of lam, 1/(theta h), h."""
        time, state, _, p = end
        known = first.kept(step)
        if known is not None:
            return known[0]
        right, nu = self._right, self._nu
        first.lam.copy(right)
        right.scale(factors[0])
        for weight, density in shares:
            density.add_u(weight, time, state, p, right)
            density.add_p(weight, time, state, p, first.mu)
        slot.solve(right, nu, transpose=True)
        if self._equation.endpoint:
            right.copy(first.lam)
        first.keep(step, nu)
        return nu

    def _solve_along(
        self,
        k: int,
        pair: tuple[SecondOrder, EndTangent],
        ends: tuple[Point, Point],
        factors: tuple[float, float, float],
        slot: FactoredMatrix,
        nu: PETSc.Vec,
        shares: Densities,
        clock: ThetaTimeAndSize | None,
    ) -> None:
        """Solve for the derivative of nu along direction number k."""
        sensitivity, along = pair
        of_lam, shift, h = factors
        problem, right, by_u, by_p = self._problem, self._right, self._by_u, self._by_p
        end, start = ends
        time, state, _, p = end
        out = (right, sensitivity.mu_dot)
        sensitivity.lam_dot.copy(right)
        right.scale(of_lam)
        for weight, density in shares:
            density.add_hessian(weight, (time, state, p), (along.end, sensitivity.dp), out)
        direction = (along.end, along.udot, sensitivity.dp)
        problem.residual_hessian(end, nu, direction, (by_u, along.by_udot, by_p))
        if clock is not None:
            clock.bend_end(k, sensitivity, along, (by_u, by_p), out)
        # J^T nu = lam differentiated: J^T nu_dot = lam_dot - (nu^T F)_uu du - ...
        right.axpy(-1.0, by_u)
        sensitivity.mu_dot.axpy(-1.0, by_p)
        if self._equation.both_rates:  # what the start adds in its rate, which that of the end is
            direction = (sensitivity.du, along.udot, sensitivity.dp)
            of_start = (along.start_u, self._work, along.start_p)  # the rest is for ``_add_start``
            problem.residual_hessian(start, nu, direction, of_start)
            if clock is not None:
                clock.bend_start_rate(sensitivity, self._work)
            along.by_udot.axpy(self._equation.rest, self._work)
        if problem.curved_mass:
            right.axpy(-shift, along.by_udot)
        if sensitivity.dh:  # of the shift 1/(theta h)
            self._equation.add_udot_product(
                shift * sensitivity.dh / h, ends, nu, right, transpose=True
            )
        # kept for ``pull_to_start``, which scales it by keep as in the first order
        if self._equation.endpoint:
            right.copy(sensitivity.lam_dot)
        slot.solve(right, along.nu_dot, transpose=True)

    def _add_start(
        self,
        start: Point,
        nu: PETSc.Vec,
        adjoints: tuple[Sequence[PETSc.Vec], Sequence[PETSc.Vec]],
        first: Adjoint,
        pairs: Sequence[tuple[SecondOrder, EndTangent]],
        shares: Densities,
        clock: ThetaTimeAndSize | None,
    ) -> None:
        """Add what the endpoint form evaluates at the start; ``adjoints`` are nu and mu."""
        time, u, _, p = start
        equation, rest = self._equation, self._equation.rest
        solutions, mus = adjoints
        equation.add_parameter_part(rest, start, solutions, mus)
        for k, (sensitivity, along) in enumerate(pairs):
            out = (sensitivity.lam_dot, sensitivity.mu_dot)
            rate, by_u, by_p = along.udot, along.start_u, along.start_p
            if not equation.both_rates:  # else it is known from ``_solve_along``
                rate = equation.zero
                direction = (sensitivity.du, rate, sensitivity.dp)
                self._problem.residual_hessian(start, nu, direction, (by_u, self._work, by_p))
            if clock is not None:
                clock.bend_start(k, sensitivity, rate, (by_u, by_p), out)
            sensitivity.lam_dot.axpy(-rest, by_u)
            sensitivity.mu_dot.axpy(-rest, by_p)
            for weight, density in shares:
                density.add_hessian(weight, (time, u, p), (sensitivity.du, sensitivity.dp), out)
        if not first.known:
            for weight, density in shares:
                density.add_u(weight, time, u, p, first.lam)
                density.add_p(weight, time, u, p, first.mu)

    def _fill_end_tangent(
        self, direction: SecondOrder, shift: float, h: float, udot: PETSc.Vec, out: EndTangent
    ) -> None:
        """Fill the derivatives of the state and of the rate at which F is linearised."""
        reach = self._equation.reach
        out.udot.waxpy(-1.0, direction.du, direction.du_next)
        out.end.waxpy(reach, out.udot, direction.du)
        # reach * shift is 1/h for the one-stage form and the shift itself for endpoints: the rate
        # is (u1 - u0) times that.
        out.udot.scale(reach * shift)
        if direction.dh:
            out.udot.axpy(-direction.dh / h, udot)

    def _allocate(self, n_directions: int) -> None:
        create = self._problem.create_state
        while len(self._along) < n_directions:
            self._along.append(
                EndTangent(
                    *(create(), create(), create(), create(), create()),
                    start_p=self._problem.create_parameters(),
                )
            )
