"""Diagonally implicit Runge-Kutta steps of M u' = f, linearised in u, p, t and h.

M U_i = M u_n + h sum_{j<=i} a_ij f_j,  f_i = f(t_n + c_i h, U_i, p),  u_{n+1} = U_s
(docs/mathematics.md, section 1).  In rows of zeros of M the f_j of earlier stages do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import dot
from daeosens.cost import Densities, Point, change
from daeosens.errors import UnsupportedError
from daeosens.point_matrix import PointMatrix
from daeosens.problem import Problem
from daeosens.steps.directions import Adjoint, SecondOrder, Step
from daeosens.steps.esdirk import Esdirk
from daeosens.steps.slot import MakeSolver, Slot
from daeosens.steps.stage_clock import StageClock, StageTangent
from daeosens.steps.stages import StageSolver
from daeosens.system_matrix import SystemMatrix


def refuse_esdirk(problem: Problem, method: str) -> None:
    """Refuse the forms of equations that ESDIRK methods do not take.

    Raises
    ------
    UnsupportedError
        F(t, u, u', p) = 0, or parameters in the mass.
    """
    if problem.form == "residual" or not problem.constant_mass:
        form = "residual form" if problem.form == "residual" else "the form M(p) u' = f"
        raise UnsupportedError(
            f'method = "{method}" for a problem in {form}',
            expected="u' = f(t, u, p), or M u' = f(t, u, p) with a constant M",
            remedy='"cn", "beuler", "midpoint" or "theta:<value>"',
        )


class DirkStep:
    """The step map of an ESDIRK method, with work space for one sweep.

    With nu_i the adjoint of the equation of stage i, P the projection on the rows of M that are not
    zero, and y_i = P sum_{l>i} a_li nu_l, the weight w_i = gamma nu_i + y_i of f_i solves

        (M - h gamma f_u)^T w_i = M^T y_i + gamma (lam [last stage] + h b_i r_u),

    the only equation there is for each implicit stage; w_1 = y_1.

    Parameters
    ----------
    problem : Problem
        In a form that ``refuse_esdirk`` lets pass.
    scheme : Esdirk
        Coefficients.
    make_solver : callable
        Makes the linear solver of a matrix.
    stages : StageSolver
        Finds the stages of a step.

    Source
    ------
    Hager, Numerische Mathematik 87, 2000; Sanz-Serna, SIAM Review 58(1), 2016, section 3.
    """

    dt, dp = 0.0, None  # the times and parameters of smooth steps are fixed

    def __init__(
        self, problem: Problem, scheme: Esdirk, make_solver: MakeSolver, stages: StageSolver
    ) -> None:
        self._problem = problem
        self._scheme = scheme
        self._make_solver = make_solver
        self._stages = stages
        create = problem.create_state
        self._zero, self._right, self._later, self._by_u = create(), create(), create(), create()
        self._weight, self._weight_dot, self._rate_t = create(), create(), create()
        self._by_p = problem.create_parameters()
        self._slots: list[Slot] = []
        self._rhs_u, self._rhs_p = PointMatrix(problem.rhs_u), PointMatrix(problem.rhs_p)
        self._rates: list[PETSc.Vec] = []
        self._adjoints: list[list[PETSc.Vec]] = []

    def quadrature(self, step: Step, densities: Densities) -> float:
        """Return h sum_i b_i r_i, summed over the weighted densities."""
        if not densities:
            return 0.0
        points = self._points(step)
        return step.h * sum(
            b * weight * density.value(*point)
            for b, point in zip(self._scheme.a[-1].tolist(), points, strict=True)
            if b
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

        Parameters and result as for ``RungeKuttaStep.tangent``.
        """
        h, points = step.h, self._points(step)
        rates = self._fill_rates(points) if dh else []
        stages = self._stage_tangents(
            h, points, lambda i: self._fill_slot(0, points[i], h), (du, None), dp, (dt, dh), rates
        )
        running = 0.0
        for point, stage, b in zip(points, stages, self._scheme.a[-1].tolist(), strict=True):
            for weight, density in densities:
                slope = change(density, self._problem, point, stage.state, dp, stage.dt)
                running += weight * b * h * slope
                if dh:
                    running += weight * b * dh * density.value(*point)
        stages[-1].state.copy(du)
        _destroy(stages)
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
        h, points = step.h, self._points(step)
        rates = self._fill_rates(points) if times else []
        self._allocate(len(lam))
        by_t, by_h = np.zeros(len(lam)), np.zeros(len(lam))
        right, weight = self._right, self._weight
        for i in reversed(range(len(points))):
            point, b = points[i], float(self._scheme.a[-1, i])
            slot = self._fill_slot(0, point, h) if i else None
            slopes = (None if i else self._rhs_u.at(*point), self._fill_p(point))
            if times:
                self._problem.rhs_t(*point, self._rate_t)
            for k, (lam_k, mu_k) in enumerate(zip(lam, mu, strict=True)):
                right.zeroEntries()
                for factor, density in densities[k]:
                    density.add_u(factor * h * b, *point, right)
                    density.add_p(factor * h * b, *point, mu_k)
                self._weigh(i, h, point, slot, lam_k, self._adjoints[k], weight)
                self._pull_back(h, point, slopes, weight, (lam_k, mu_k), self._adjoints[k])
                if times:
                    slope = h * dot(self._rate_t, weight)
                    by_h[k] += dot(rates[i], weight)
                    for factor, density in densities[k]:
                        slope += factor * h * b * density.value_t(*point)
                        by_h[k] += factor * b * density.value(*point)
                    by_t[k] += slope
                    by_h[k] += float(self._scheme.c[i]) * slope
        return list(zip(by_t.tolist(), by_h.tolist(), strict=True)) if times else []

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

        Parameters and result as for ``RungeKuttaStep.second_order``.  One factorisation of each
        stage serves all solves.

        Source
        ------
        Forward-over-adjoint differentiation of ``adjoint``.
        """
        problem, scheme = self._problem, self._scheme
        _, h, u, _, p = step
        points = self._points(step)
        rates = self._fill_rates(points) if times else []
        slots = [None, *(self._fill_slot(i, point, h) for i, point in enumerate(points[1:]))]
        tangents = [
            self._stage_tangents(
                h,
                points,
                slots.__getitem__,
                (each.du, each.du_next),
                each.dp_vec,
                (each.dt, each.dh),
                rates,
            )
            for each in directions
        ]
        self._allocate(1 + len(directions))
        clock = StageClock(problem, p, h, densities, len(directions)) if times else None
        known = first.weights[u.handle, h] if first.known and first.weights else None
        weight, weight_dot, right = self._weight, self._weight_dot, self._right
        for i in reversed(range(len(points))):
            point, slot, b = points[i], slots[i], float(scheme.a[-1, i])
            matrix_p = self._fill_p(point)
            matrix_u = self._rhs_u.at(*point) if clock is not None or not i else None
            slopes = (None if i else matrix_u, matrix_p)
            if known is not None:
                weight = known[len(points) - 1 - i]
            else:
                right.zeroEntries()
                for factor, density in densities:
                    density.add_u(factor * h * b, *point, right)
                    density.add_p(factor * h * b, *point, first.mu)
                self._weigh(i, h, point, slot, first.lam, self._adjoints[0], weight)
                first.keep(u, h, weight)
                both = (first.lam, first.mu)
                self._pull_back(h, point, slopes, weight, both, self._adjoints[0])
            if clock is not None:
                clock.read(point, b, float(scheme.c[i]), weight, rates[i])
                if known is None:
                    clock.add_first()
            for k, each in enumerate(directions, start=1):
                stage, adjoints = tangents[k - 1][i], self._adjoints[k]
                direction = (stage.state, each.dp)
                problem.rhs_hessian(point, weight, direction, (self._by_u, self._by_p))
                self._by_u.copy(right)
                right.scale(h)
                each.mu_dot.axpy(h, self._by_p)
                out = (right, each.mu_dot)
                for factor, density in densities:
                    density.add_hessian(factor * h * b, point, direction, out)
                if clock is not None:
                    assert matrix_u is not None
                    clock.bend(k, each, stage, (matrix_u, matrix_p), out)
                self._weigh(i, h, point, slot, each.lam_dot, adjoints, weight_dot)
                both = (each.lam_dot, each.mu_dot)
                self._pull_back(h, point, slopes, weight_dot, both, adjoints)
                if clock is not None:
                    clock.turn(k, weight_dot)
        for stages in tangents:
            _destroy(stages)
        return [] if clock is None else clock.slopes

    def _stage_tangents(
        self,
        h: float,
        points: Sequence[Point],
        slot_of: Callable[[int], Slot | None],
        ends: tuple[PETSc.Vec, PETSc.Vec | None],
        dp: PETSc.Vec | None,
        step: tuple[float, float],
        rates: Sequence[PETSc.Vec],
    ) -> list[StageTangent]:
        """Return the derivatives of the stages along a direction.

        ``ends`` are the tangents before the step and, if it is known, after it; ``step`` those of
        t and h; ``rates`` are needed for the latter.
        """
        a, gamma, right = self._scheme.a, self._scheme.gamma, self._right
        du, du_next = ends
        dt, dh = step
        found: list[StageTangent] = []
        for i, point in enumerate(points):
            moved = du.copy() if i == 0 or du_next is None else du_next.copy()
            d_time = dt + float(self._scheme.c[i]) * dh
            rate = du.duplicate()
            if i == 0:
                self._rhs_u.at(*point).mult(du, rate)
                self._add_partials(1.0, point, dp, d_time, rate)
                self._stages.mask(rate)
                found.append(StageTangent(moved, rate, d_time))
                continue
            earlier = self._later
            earlier.zeroEntries()
            earlier.maxpy((h * a[i, :i]).tolist(), [each.rate for each in found])
            if dh:
                earlier.maxpy((dh * a[i, :i]).tolist(), list(rates[:i]))
            if du_next is None or i < len(points) - 1:
                earlier.copy(right)
                self._add_partials(h * gamma, point, dp, d_time, right)
                if dh:
                    right.axpy(dh * gamma, rates[i])
                self._add_mass(1.0, point, du, right)
                right.scale(1.0 / (h * gamma))
                slot = slot_of(i)
                assert slot is not None
                slot.solve(right, moved, transpose=False)
            moved.copy(rate)
            rate.axpy(-1.0, du)
            right.zeroEntries()
            self._add_mass(1.0 / (h * gamma), point, rate, right)
            right.axpy(-1.0 / (h * gamma), earlier)
            if dh:
                right.axpy(-dh / h, rates[i])
            right.copy(rate)
            found.append(StageTangent(moved, rate, d_time))
        return found

    def _weigh(
        self,
        i: int,
        h: float,
        point: Point,
        slot: Slot | None,
        lam: PETSc.Vec,
        adjoints: list[PETSc.Vec],
        out: PETSc.Vec,
    ) -> None:
        """Fill ``out`` with w_i and ``adjoints[i]`` with nu_i; h b_i r_u is in the right-hand side.

        At the first stage, which has no equation, the right-hand side stays as it is.
        """
        a, gamma, right, later = self._scheme.a, self._scheme.gamma, self._right, self._later
        later.zeroEntries()
        if i + 1 < len(a):
            later.maxpy(a[i + 1 :, i].tolist(), adjoints[i + 1 :])
            self._stages.mask(later)
        else:
            right.axpy(1.0, lam)
        if slot is None:
            later.copy(out)
            return
        right.scale(gamma)
        self._add_mass(1.0, point, later, right, transpose=True)
        right.scale(1.0 / (h * gamma))
        slot.solve(right, out, transpose=True)
        adjoints[i].waxpy(-1.0, later, out)
        adjoints[i].scale(1.0 / gamma)

    def _pull_back(
        self,
        h: float,
        point: Point,
        slopes: tuple[PETSc.Mat | None, PETSc.Mat | None],
        weight: PETSc.Vec,
        out: tuple[PETSc.Vec, PETSc.Vec],
        adjoints: list[PETSc.Vec],
    ) -> None:
        """Add h f_p^T w to mu; with f_u, at the first stage, fill lam as it is before the step."""
        lam, mu = out
        matrix_u, matrix_p = slopes
        if matrix_p is not None:
            matrix_p.multTranspose(weight, self._by_p)
            mu.axpy(h, self._by_p)
        if matrix_u is None:
            return
        matrix_u.multTranspose(weight, lam)
        lam.scale(h)
        lam.axpy(1.0, self._right)
        self._later.zeroEntries()
        self._later.maxpy([1.0] * (len(adjoints) - 1), adjoints[1:])
        self._add_mass(1.0, point, self._later, lam, transpose=True)

    def _points(self, step: Step) -> list[Point]:
        """Return where the equations are evaluated, with times as callbacks see them."""
        t, h, _, _, p = step
        states = self._stages.find(step)
        times = [self._problem.inside(t + c * h, t, h) for c in self._scheme.c.tolist()]
        return [(time, state, p) for time, state in zip(times, states, strict=True)]

    def _fill_rates(self, points: Sequence[Point]) -> list[PETSc.Vec]:
        if not self._rates:
            self._rates = [self._problem.create_state() for _ in points]
        for point, rate in zip(points, self._rates, strict=True):
            self._problem.rhs(*point, rate)
            self._stages.mask(rate)
        return self._rates

    def _add_mass(
        self, factor: float, point: Point, v: PETSc.Vec, out: PETSc.Vec, *, transpose: bool = False
    ) -> None:
        t, u, p = point
        self._problem.add_udot_product(factor, t, u, self._zero, p, v, out, transpose=transpose)

    def _add_partials(
        self, factor: float, point: Point, dp: PETSc.Vec | None, dt: float, out: PETSc.Vec
    ) -> None:
        """Add factor (f_p dp + f_t dt)."""
        if dp is not None and self._problem.n_parameters:
            self._rhs_p.at(*point).mult(dp, self._by_u)
            out.axpy(factor, self._by_u)
        if dt:
            self._problem.rhs_t(*point, self._rate_t)
            out.axpy(factor * dt, self._rate_t)

    def _fill_slot(self, number: int, point: Point, h: float) -> Slot:
        """Return M/(h gamma) - f_u, with room for its factors."""
        problem, (t, u, p) = self._problem, point
        if number == len(self._slots):
            system = SystemMatrix(problem.residual_u, problem.residual_udot, t, u, self._zero, p)
            self._slots.append(Slot(system, self._make_solver))
        self._slots[number].fill(t, u, self._zero, p, 1.0 / (h * self._scheme.gamma))
        return self._slots[number]

    def _fill_p(self, point: Point) -> PETSc.Mat | None:
        return self._rhs_p.at(*point) if self._problem.n_parameters else None

    def _allocate(self, n_costs: int) -> None:
        while len(self._adjoints) < n_costs:
            self._adjoints.append([self._problem.create_state() for _ in self._scheme.c])


def _destroy(stages: Sequence[StageTangent]) -> None:
    for stage in stages:
        stage.state.destroy()
        stage.rate.destroy()
