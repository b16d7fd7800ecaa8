"""The equations of the stages of diagonally implicit Runge-Kutta steps of M u' = f, linearised.

M U_i = M u_n + h sum_{j<=i} a_ij f_j,  f_i = f(t_n + c_i h, U_i, p),  u_{n+1} = U_s
(docs/mathematics.md, section 1).  In algebraic equations the f_j of earlier stages do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from petsc4py import PETSc

from daeosens.costs.cost import Point
from daeosens.methods.esdirk.stage_matrices import StageMatrices
from daeosens.methods.esdirk.stages import StageSolver
from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.methods.factored_matrix import FactoredMatrix, MakeSolver
from daeosens.methods.rk.time_and_size import StageTangent
from daeosens.methods.step import Step
from daeosens.problem.matrices import PointMatrix
from daeosens.problem.problem import Problem


class DirkEquations:
    """The stages of one step after the other: tangents, and weights of adjoints.

    With nu_i the adjoint of the equation of stage i, P what leaves out the parts of sides in
    algebraic equations (rows of M that are zero, or sums of rows), and
    y_i = P^T sum_{l>i} a_li nu_l, the weight w_i = gamma nu_i + y_i of f_i solves

        (M - h gamma f_u)^T w_i = M^T y_i + gamma (lam [last stage] + h b_i r_u),

    the only equation there is for each implicit stage; w_1 = y_1.

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
    """

    def __init__(
        self, problem: Problem, scheme: Esdirk, make_solver: MakeSolver, stages: StageSolver
    ) -> None:
        self._problem = problem
        self._scheme = scheme
        self.slot = StageMatrices(problem, scheme.gamma, make_solver).at
        self._stages = stages
        create = problem.create_state
        self._zero, self._right, self._later = create(), create(), create()
        self._by_u, self._rate_t = create(), create()
        self._by_p = problem.create_parameters()
        self._rhs_u, self._rhs_p = PointMatrix(problem.rhs_u), PointMatrix(problem.rhs_p)
        self._rates: list[PETSc.Vec] = []
        self._adjoints: list[list[PETSc.Vec]] = []

    def points(self, step: Step) -> list[Point]:
        """Return where the equations are evaluated, with times as callbacks see them."""
        t, h, _, _, p, _ = step
        states = self._stages.find(step)
        times = [self._problem.inside(t + c * h, t, h) for c in self._scheme.c.tolist()]
        return [(time, state, p) for time, state in zip(times, states, strict=True)]

    def rates(self, points: Sequence[Point]) -> list[PETSc.Vec]:
        """Return the rates at the points of a step, without those of rows of zeros of M."""
        if not self._rates:
            self._rates = [self._problem.create_state() for _ in points]
        for point, rate in zip(points, self._rates, strict=True):
            self._problem.rhs(*point, rate)
            self._stages.mask(rate)
        return self._rates

    def slopes(self, point: Point, *, by_u: bool) -> tuple[PETSc.Mat | None, PETSc.Mat | None]:
        """Return f_u, or None if it is not wanted, and f_p, or None without parameters."""
        by_p = self._rhs_p.at(*point) if self._problem.n_parameters else None
        return self._rhs_u.at(*point) if by_u else None, by_p

    def adjoints(self, count: int) -> list[list[PETSc.Vec]]:
        """Return room for the nu_i of ``count`` adjoints."""
        while len(self._adjoints) < count:
            self._adjoints.append([self._problem.create_state() for _ in self._scheme.c])
        return self._adjoints[:count]

    def tangents(
        self,
        h: float,
        points: Sequence[Point],
        slot_of: Callable[[int], FactoredMatrix | None],
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
        stages: list[StageTangent] = []
        for i, point in enumerate(points):
            # With the tangent after the step known, the last stage needs no solve: it is that
            # tangent.
            moved = du.copy() if i == 0 or du_next is None else du_next.copy()
            d_time = dt + float(self._scheme.c[i]) * dh
            rate = du.duplicate()
            if i == 0:
                # the explicit stage: its state is the start, so its rate is just evaluated
                self._rhs_u.at(*point).mult(du, rate)
                self._add_partials(1.0, point, dp, d_time, rate)
                self._stages.mask(rate)
                stages.append(StageTangent(moved, rate, d_time))
                continue
            # M dU_i = M du + h sum_{j<i} a_ij df_j + h gamma df_i, and df_i = f_u dU_i + f_p dp +
            # f_t dt
            earlier = self._later
            earlier.zeroEntries()
            earlier.maxpy((h * a[i, :i]).tolist(), [stage.rate for stage in stages])
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
            # df_i follows from the equation of the stage, without a product with f_u.
            moved.copy(rate)
            rate.axpy(-1.0, du)
            right.zeroEntries()
            self._add_mass(1.0 / (h * gamma), point, rate, right)
            right.axpy(-1.0 / (h * gamma), earlier)
            if dh:
                right.axpy(-dh / h, rates[i])
            right.copy(rate)
            stages.append(StageTangent(moved, rate, d_time))
        return stages

    def weigh(
        self,
        i: int,
        h: float,
        point: Point,
        slot: FactoredMatrix | None,
        right: PETSc.Vec,
        lam: PETSc.Vec,
        adjoints: list[PETSc.Vec],
        out: PETSc.Vec,
    ) -> None:
        """Fill ``out`` with w_i and ``adjoints[i]`` with nu_i.

        ``right`` [n] is h b_i r_u, and overwritten but at the first stage, which has no equation
        and no slot.
        """
        a, gamma, later = self._scheme.a, self._scheme.gamma, self._later
        later.zeroEntries()
        if i + 1 < len(a):
            later.maxpy(a[i + 1 :, i].tolist(), adjoints[i + 1 :])
            # P^T: in algebraic equations earlier rates do not count, so no adjoint flows back
            # there
            self._stages.mask(later, transpose=True)
        else:
            # lam enters at the last stage alone, which is the state after the step
            right.axpy(1.0, lam)
        if slot is None:
            later.copy(out)
            return
        right.scale(gamma)
        self._add_mass(1.0, point, later, right, transpose=True)
        right.scale(1.0 / (h * gamma))
        slot.solve(right, out, transpose=True)
        # w_i = gamma nu_i + y_i, solved for nu_i
        adjoints[i].waxpy(-1.0, later, out)
        adjoints[i].scale(1.0 / gamma)

    def pull_back(
        self,
        h: float,
        point: Point,
        slopes: tuple[PETSc.Mat | None, PETSc.Mat | None],
        weight: PETSc.Vec,
        right: PETSc.Vec,
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
        lam.axpy(1.0, right)
        self._later.zeroEntries()
        # M U_i = M u_n + ... for all implicit stages: lam_n = M^T sum_i nu_i + h f_u^T w_1.
        self._later.maxpy([1.0] * (len(adjoints) - 1), adjoints[1:])
        self._add_mass(1.0, point, self._later, lam, transpose=True)

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
