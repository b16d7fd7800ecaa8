"""Theta steps, linearised in the state, the parameters, the time and the step size.

Endpoint form (Crank-Nicolson for theta = 1/2), as PETSc's TSTHETA takes it:
``F(t+h, u1, (u1 - u0)/(theta h), p) + (1 - theta)/theta F(t, u0, 0, p) = 0``.
One-stage form (backward Euler for theta = 1, implicit midpoint for 1/2):
``F(t + theta h, X, (X - u0)/(theta h), p) = 0,  u1 = u0 + (X - u0)/theta``.
With F = M u' - f these are the formulas of docs/mathematics.md, section 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from petsc4py import PETSc

from daeosens.arrays import dot
from daeosens.cost import Densities, change
from daeosens.point_matrix import PointMatrix
from daeosens.problem import Problem
from daeosens.steps.directions import Adjoint, SecondOrder, Step
from daeosens.steps.slot import MakeSolver, Slot, shared
from daeosens.steps.theta_clock import EndTangent, Point, ThetaClock
from daeosens.system_matrix import SystemMatrix


class ThetaStep:
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
        self._theta = theta
        self._endpoint = endpoint
        self._at_end = endpoint or theta == 1.0  # F is linearised at the state after the step
        self._make_solver = shared(make_solver)
        # Where F_u does not depend on udot one matrix serves both neighbouring steps.
        self._reusable = problem.form == "rhs" or (problem.form == "mass" and problem.constant_mass)
        self._slots: list[Slot] = []
        self._stage = problem.create_state()
        self._udot = problem.create_state()
        self._zero = problem.create_state()
        self._solution = problem.create_state()
        self._right = problem.create_state()
        self._work = problem.create_state()
        self._residual_p = PointMatrix(problem.residual_p)
        self._nu, self._by_u = problem.create_state(), problem.create_state()
        self._by_p = problem.create_parameters()
        self._along: list[EndTangent] = []

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return the step's part of the running costs, with the method's own quadrature."""
        if not densities:
            return 0.0
        result = 0.0
        for share, time, state in self._quadrature_points(step):
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

        Parameters and result as for ``RungeKuttaStep.tangent``.
        """
        theta, problem = self._theta, self._problem
        t, h, u, _, p = step
        shift, end, udot = self._linearisation_point(step)
        start, time = self._times(t, h)
        d_end_time = dt + (dh if self._endpoint else theta * dh)
        rest = (1.0 - theta) / theta if self._endpoint else 0.0
        right = self._right
        right.zeroEntries()
        if rest:
            left = self._left_matrix(start, u, p)
            left.mult(du, right)
            right.scale(-rest)
            self._add_partials(-rest, (start, u, self._zero, p), dp, dt, right)
        point = (time, end, udot, p)
        problem.add_udot_product(shift, *point, du, right)
        self._add_partials(-1.0, point, dp, d_end_time, right)
        if dh:
            problem.add_udot_product(dh / h, *point, udot, right)
        slot = self._slot(time, end, udot, p, shift)
        slot.solve(right, self._solution, transpose=False)
        running = self._quadrature_change(step, (du, self._solution), dp, dt, dh, densities)
        if self._endpoint:
            self._solution.copy(du)
        else:  # du1 = du0 + (dX - du0) / theta
            du.scale(1.0 - 1.0 / theta)
            du.axpy(1.0 / theta, self._solution)
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

        Parameters and result as for ``RungeKuttaStep.adjoint``.
        """
        theta, problem = self._theta, self._problem
        t, h, u, _, p = step
        rate = times or problem.form != "rhs"  # otherwise nothing depends on it
        shift, end, udot = self._linearisation_point(step, rate=rate)
        start, time = self._times(t, h)
        rest = (1.0 - theta) / theta if self._endpoint else 0.0
        ends = (time, end, udot, p), (start, u, self._zero, p)
        slot = self._slot(time, end, udot, p, shift)
        solutions: list[PETSc.Vec] = []
        for lam_k, densities_k in zip(lam, densities, strict=True):
            right = lam_k
            if densities_k or not self._at_end:
                right = self._right
                lam_k.copy(right)
                right.scale(1.0 if self._endpoint else 1.0 / theta)
            share = theta if self._endpoint else 1.0
            for weight, density in densities_k:
                density.add_u(weight * share * h, time, end, p, right)
            solution = right.duplicate()
            slot.solve(right, solution, transpose=True)
            solutions.append(solution)
        self._add_parameter_part(1.0, ends[0], solutions, mu)
        result = self._time_part(h, rest, ends, solutions, densities) if times else []
        self._pull_to_start(shift, rest, ends, solutions, lam)
        if rest:
            self._add_parameter_part(rest, ends[1], solutions, mu)
        for lam_k, mu_k, densities_k in zip(lam, mu, densities, strict=True):
            if not densities_k:
                continue
            for share, at, state in self._quadrature_points(step):
                for weight, density in densities_k:
                    density.add_p(weight * share * h, at, state, p, mu_k)
            if self._endpoint:
                for weight, density in densities_k:
                    density.add_u(weight * (1.0 - theta) * h, start, u, p, lam_k)
        for solution in solutions:
            solution.destroy()
        return result

    def _pull_to_start(
        self,
        shift: float,
        rest: float,
        ends: tuple[Point, Point],
        solutions: Sequence[PETSc.Vec],
        lam: Sequence[PETSc.Vec],
    ) -> None:
        """Replace each adjoint after the step by the one before it, without that of the costs."""
        if rest and self._problem.form == "rhs":  # one matrix, and one pass over the vectors
            both = self._slot(*ends[1], -shift / rest).matrix
            for lam_k, solution in zip(lam, solutions, strict=True):
                both.multTranspose(solution, lam_k)
                lam_k.scale(-rest)
            return
        for lam_k, solution in zip(lam, solutions, strict=True):
            lam_k.scale(0.0 if self._endpoint else 1.0 - 1.0 / self._theta)
            self._problem.add_udot_product(shift, *ends[0], solution, lam_k, transpose=True)
        if rest:
            left = self._slot(*ends[1], 0.0).matrix
            for lam_k, solution in zip(lam, solutions, strict=True):
                left.multTranspose(solution, self._work)
                lam_k.axpy(-rest, self._work)

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

        Parameters and result as for ``RungeKuttaStep.second_order``.  One factorisation serves all
        solves.
        """
        theta, problem = self._theta, self._problem
        t, h, u, _, p = step
        shift, end, udot = self._linearisation_point(step)
        start, time = self._times(t, h)
        rest = (1.0 - theta) / theta if self._endpoint else 0.0
        share = theta if self._endpoint else 1.0  # of the quadrature at the end
        keep = 0.0 if self._endpoint else 1.0 - 1.0 / theta  # of lam in its successor
        slot = self._slot(time, end, udot, p, shift)
        self._allocate(len(directions))
        works = self._along[: len(directions)]
        pairs = list(zip(directions, works, strict=True))
        for each, along in pairs:
            self._fill_end_tangent(each, shift, h, udot, along)

        ends = (time, end, udot, p), (start, u, self._zero, p)
        factors = (1.0 if self._endpoint else 1.0 / theta, shift, h)
        shares = [(weight * share * h, density) for weight, density in densities]
        nu = self._known_or_solved(u, ends[0], factors, slot, first, shares)
        clock: ThetaClock | None = None
        if times:
            reach = 1.0 if self._endpoint else theta
            seen = ends if rest else ends[:1]
            clock = ThetaClock(problem, (h, rest, share, reach), densities, seen, nu, len(pairs))
        for k, pair in enumerate(pairs):
            self._solve_along(k, pair, ends[0], factors, slot, nu, shares, clock)

        solutions = [along.nu_dot for along in works]
        mus = [each.mu_dot for each in directions]
        lams = [each.lam_dot for each in directions]
        if not first.known:
            solutions, mus, lams = [nu, *solutions], [first.mu, *mus], [first.lam, *lams]
        self._add_parameter_part(1.0, ends[0], solutions, mus)
        for lam, solution in zip(lams, solutions, strict=True):
            lam.scale(keep)
            problem.add_udot_product(shift, *ends[0], solution, lam, transpose=True)
        for each, along in pairs:
            if problem.curved_mass:
                each.lam_dot.axpy(shift, along.by_udot)
            if each.dh:
                change = -shift * each.dh / h
                problem.add_udot_product(change, *ends[0], nu, each.lam_dot, transpose=True)
        if rest:
            shares = [(weight * (1.0 - theta) * h, density) for weight, density in densities]
            adjoints = (solutions, lams, mus)
            self._second_order_at_start(
                ends[1], rest, nu, adjoints, first, directions, shares, clock
            )
        if clock is None:
            return []
        own = (0.0, 0.0)
        if not first.known:
            own = self._time_part(h, rest, ends, [nu], [densities])[0]
        return [own, *(clock.slopes(k, each, along) for k, (each, along) in enumerate(pairs))]

    def _known_or_solved(
        self,
        u: PETSc.Vec,
        end: Point,
        factors: tuple[float, float, float],
        slot: Slot,
        first: Adjoint,
        shares: Densities,
    ) -> PETSc.Vec:
        """Return the adjoint nu of the step's equation; factors: of lam, 1/(theta h), h."""
        time, state, _, p = end
        if first.known and first.weights:
            return first.weights[u.handle, factors[2]][0]
        right, nu = self._right, self._nu
        first.lam.copy(right)
        right.scale(factors[0])
        for weight, density in shares:
            density.add_u(weight, time, state, p, right)
            density.add_p(weight, time, state, p, first.mu)
        slot.solve(right, nu, transpose=True)
        first.keep(u, factors[2], nu)
        return nu

    def _solve_along(
        self,
        k: int,
        pair: tuple[SecondOrder, EndTangent],
        end: Point,
        factors: tuple[float, float, float],
        slot: Slot,
        nu: PETSc.Vec,
        shares: Densities,
        clock: ThetaClock | None,
    ) -> None:
        """Solve for the derivative of nu along direction number k."""
        each, along = pair
        of_lam, shift, h = factors
        problem, right, by_u, by_p = self._problem, self._right, self._by_u, self._by_p
        time, state, _, p = end
        out = (right, each.mu_dot)
        each.lam_dot.copy(right)
        right.scale(of_lam)
        for weight, density in shares:
            density.add_hessian(weight, (time, state, p), (along.end, each.dp), out)
        direction = (along.end, along.udot, each.dp)
        problem.residual_hessian(end, nu, direction, (by_u, along.by_udot, by_p))
        if clock is not None:
            clock.bend_end(k, each, along, (by_u, by_p), out)
        right.axpy(-1.0, by_u)
        if problem.curved_mass:
            right.axpy(-shift, along.by_udot)
        if each.dh:  # of the shift 1/(theta h)
            problem.add_udot_product(shift * each.dh / h, *end, nu, right, transpose=True)
        each.mu_dot.axpy(-1.0, by_p)
        slot.solve(right, along.nu_dot, transpose=True)

    def _second_order_at_start(
        self,
        start: Point,
        rest: float,
        nu: PETSc.Vec,
        adjoints: tuple[Sequence[PETSc.Vec], Sequence[PETSc.Vec], Sequence[PETSc.Vec]],
        first: Adjoint,
        directions: Sequence[SecondOrder],
        shares: Densities,
        clock: ThetaClock | None,
    ) -> None:
        """Add what the endpoint form evaluates at the start; ``adjoints`` are nu, lam and mu."""
        time, u, _, p = start
        by_u, by_p = self._by_u, self._by_p
        solutions, lams, mus = adjoints
        left = self._left_matrix(time, u, p)
        for lam, solution in zip(lams, solutions, strict=True):
            left.multTranspose(solution, self._work)
            lam.axpy(-rest, self._work)
        self._add_parameter_part(rest, start, solutions, mus)
        for k, each in enumerate(directions):
            out = (each.lam_dot, each.mu_dot)
            direction = (each.du, self._zero, each.dp)
            self._problem.residual_hessian(start, nu, direction, (by_u, self._work, by_p))
            if clock is not None:
                clock.bend_start(k, each, (by_u, by_p), out)
            each.lam_dot.axpy(-rest, by_u)
            each.mu_dot.axpy(-rest, by_p)
            for weight, density in shares:
                density.add_hessian(weight, (time, u, p), (each.du, each.dp), out)
        if not first.known:
            for weight, density in shares:
                density.add_u(weight, time, u, p, first.lam)
                density.add_p(weight, time, u, p, first.mu)

    def _fill_end_tangent(
        self, direction: SecondOrder, shift: float, h: float, udot: PETSc.Vec, out: EndTangent
    ) -> None:
        """Fill the derivatives of the state and of the rate at which F is linearised."""
        out.udot.waxpy(-1.0, direction.du, direction.du_next)
        out.end.waxpy(1.0 if self._endpoint else self._theta, out.udot, direction.du)
        out.udot.scale(shift if self._endpoint else self._theta * shift)
        if direction.dh:
            out.udot.axpy(-direction.dh / h, udot)

    def _allocate(self, n_directions: int) -> None:
        create = self._problem.create_state
        while len(self._along) < n_directions:
            self._along.append(EndTangent(create(), create(), create(), create()))

    def _linearisation_point(
        self, step: Step, *, rate: bool = True
    ) -> tuple[float, PETSc.Vec, PETSc.Vec]:
        """Return the shift 1/(theta h), the state and the rate at which F is linearised.

        The rate may be any without ``rate``.
        """
        _, h, u, u_next, _ = step
        shift = 1.0 / (self._theta * h)
        if self._at_end and not rate:
            return shift, u_next, self._zero
        self._udot.waxpy(-1.0, u, u_next)
        if self._at_end:
            self._udot.scale(shift)
            return shift, u_next, self._udot
        u.copy(self._stage)
        self._stage.axpy(self._theta, self._udot)
        self._udot.scale(1.0 / h)
        return shift, self._stage, self._udot

    def _times(self, t: float, h: float) -> tuple[float, float]:
        """Return the times of the start and of the implicit stage, as callbacks see them."""
        stage = t + (h if self._endpoint else self._theta * h)
        return self._problem.inside(t, t, h), self._problem.inside(stage, t, h)

    def _quadrature_points(self, step: Step) -> list[tuple[float, float, PETSc.Vec]]:
        start, time = self._times(step.t, step.h)
        if self._endpoint:
            points = [(1.0 - self._theta, start, step.u), (self._theta, time, step.u_next)]
            return [point for point in points if point[0]]
        _, stage, _ = self._linearisation_point(step)
        return [(1.0, time, stage)]

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
        t, h, u, _, p = step
        du, d_end = ends
        for share, time, state in self._quadrature_points(step):
            at_start = self._endpoint and state is u
            d_time = dt + dh * (time - t) / h
            for weight, density in densities:
                point = (time, state, p)
                slope = change(density, self._problem, point, du if at_start else d_end, dp, d_time)
                result += weight * share * (h * slope + (dh and dh * density.value(*point)))
        return result

    def _time_part(
        self,
        h: float,
        rest: float,
        ends: tuple[Point, Point],
        solutions: Sequence[PETSc.Vec],
        densities: Sequence[Densities],
    ) -> list[tuple[float, float]]:
        """Return the derivatives with respect to t and h for each cost."""
        problem, work = self._problem, self._work
        end, start = ends
        reach = 1.0 if self._endpoint else self._theta
        problem.residual_t(*end, work)
        by_t = [-dot(work, solution) for solution in solutions]
        by_h = [reach * slope for slope in by_t]
        if rest:
            problem.residual_t(*start, work)
            by_t = [a - rest * dot(work, s) for a, s in zip(by_t, solutions, strict=True)]
        work.zeroEntries()
        problem.add_udot_product(1.0 / h, *end, end[2], work)
        by_h = [a + dot(work, s) for a, s in zip(by_h, solutions, strict=True)]
        points = (
            [(1.0 - self._theta, start, 0.0), (self._theta, end, 1.0)]
            if self._endpoint
            else [(1.0, end, self._theta)]
        )
        for k, densities_k in enumerate(densities):
            for weight, density in densities_k:
                for share, (time, state, _, p), along in points:
                    slope = weight * share * h * density.value_t(time, state, p)
                    by_t[k] += slope
                    by_h[k] += along * slope + weight * share * density.value(time, state, p)
        return list(zip(by_t, by_h, strict=True))

    def _add_partials(
        self,
        factor: float,
        point: Point,
        dp: PETSc.Vec | None,
        dt: float,
        out: PETSc.Vec,
    ) -> None:
        if dp is not None and self._problem.n_parameters:
            self._residual_p.at(*point).mult(dp, self._work)
            out.axpy(factor, self._work)
        if dt:
            self._problem.residual_t(*point, self._work)
            out.axpy(factor * dt, self._work)

    def _add_parameter_part(
        self,
        factor: float,
        point: Point,
        solutions: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
    ) -> None:
        """Subtract ``factor`` F_p^T nu from each mu."""
        if self._problem.n_parameters == 0:
            return
        matrix = self._residual_p.at(*point)
        work = mu[0].duplicate()
        for solution, mu_k in zip(solutions, mu, strict=True):
            matrix.multTranspose(solution, work)
            mu_k.axpy(-factor, work)
        work.destroy()

    def _left_matrix(self, t: float, u: PETSc.Vec, p: Any) -> PETSc.Mat:
        """Return F_u at the start of the step, where the endpoint form takes udot = 0."""
        return self._slot(t, u, self._zero, p, 0.0).matrix

    def _slot(self, t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any, shift: float) -> Slot:
        """Return F_u + shift F_udot, refilled only if neither slot holds the point already."""
        reusable = self._reusable and u is not self._stage
        for slot in self._slots:
            if reusable and slot.holds(t, u):
                slot.reshift(shift)
                self._slots.remove(slot)
                self._slots.append(slot)
                return slot
        if len(self._slots) < (2 if self._endpoint else 1):
            slot = Slot(
                SystemMatrix(self._problem.residual_u, self._problem.residual_udot, t, u, udot, p),
                self._make_solver,
            )
        else:
            slot = self._slots.pop(0)
        self._slots.append(slot)
        slot.fill(t, u, udot, p, shift)
        return slot
