"""Euler's method as a family of its own, by PETSc's type of that name."""

from dataclasses import dataclass
from typing import ClassVar

from daeosens.costs.cost import change
from daeosens.errors import UnsupportedError
from daeosens.methods.method import Method
from daeosens.petsc.vectors import dot
from daeosens.problem.matrices import PointMatrix


class EulerStep:
    """u+ = u + h f(t, u, p), with all derivatives of first order, and of second at fixed times."""

    dt, dp = 0.0, None

    def __init__(self, problem):
        self._problem = problem
        self._by_u, self._by_p = PointMatrix(problem.rhs_u), PointMatrix(problem.rhs_p)

    def _filled(self, function, point):
        out = self._problem.create_state()
        function(*point, out)
        return out

    def advance(self, t, h, u, p, out, *, again=False):
        out.waxpy(h, self._filled(self._problem.rhs, (t, u, p)), u)

    def quadrature(self, step, densities):
        return step.h * sum(
            weight * scalar.value(*step_point(step)) for weight, scalar in densities
        )

    def tangent(self, step, du, dp, dt=0.0, dh=0.0, densities=()):
        point, running = step_point(step), 0.0
        for weight, scalar in densities:
            running += step.h * weight * change(scalar, self._problem, point, du, dp, dt)
            running += dh * weight * scalar.value(*point)
        moved = du.duplicate()
        self._by_u.at(*point).mult(du, moved)
        if dp is not None:
            self._by_p.at(*point).multAdd(dp, moved, moved)
        moved.axpy(dt, self._filled(self._problem.rhs_t, point))
        du.axpy(step.h, moved)
        du.axpy(dh, self._filled(self._problem.rhs, point))
        return running

    def _pull(self, step, weight, lam, mu):
        """Add h f_u^T w and h f_p^T w."""
        for matrix, out in ((self._by_u, lam), (self._by_p, mu)):
            product = out.duplicate()
            matrix.at(*step_point(step)).multTranspose(weight, product)
            out.axpy(step.h, product)

    def adjoint(self, step, lam, mu, densities, *, times=False):
        point, slopes = step_point(step), []
        for lam_k, mu_k, running in zip(lam, mu, densities, strict=True):
            if times:
                by_t = step.h * dot(self._filled(self._problem.rhs_t, point), lam_k)
                slopes.append((by_t, dot(self._filled(self._problem.rhs, point), lam_k)))
                assert not running
            self._pull(step, lam_k.copy(), lam_k, mu_k)
            for weight, scalar in running:
                scalar.add_u(step.h * weight, *point, lam_k)
                scalar.add_p(step.h * weight, *point, mu_k)
        return slopes

    def add_time(self, k, slope):
        pass

    def second_order(self, step, first, directions, densities, *, times=False):
        assert not times
        point, known = step_point(step), first.kept(step)
        weight = known[0] if known else first.lam.copy()
        if not known:
            first.keep(step, weight)
            self._pull(step, weight, first.lam, first.mu)
        for direction in directions:
            lam_dot, mu_dot = direction.lam_dot, direction.mu_dot
            self._pull(step, lam_dot.copy(), lam_dot, mu_dot)
            bent = self._problem.create_state(), self._problem.create_parameters()
            self._problem.rhs_hessian(point, weight, (direction.du, direction.dp), bent)
            lam_dot.axpy(step.h, bent[0])
            mu_dot.axpy(step.h, bent[1])
        return []


def step_point(step):
    return step.t, step.u, step.p


@dataclass(frozen=True)
class Euler(Method):
    explicit: ClassVar[bool] = True
    tsadjoint: ClassVar[bool] = False
    in_blocks: ClassVar[str] = "steps of Euler's method are not linearised as arrays"
    adaptive: ClassVar[bool] = False

    def takes(self, problem):
        return problem.form == "rhs"

    def refusal(self, problem):
        return UnsupportedError(f"Euler's method for a problem in {problem.form} form")

    def set_type(self, ts, problem):
        ts.setType("euler")

    def step_map(self, problem, options, kept=None):
        self.refuse(problem)
        return EulerStep(problem)

    def instant_map(self, problem, options):
        return EulerStep(problem)

    def quadrature_error(self, problem, options, kept=None):
        raise NotImplementedError
