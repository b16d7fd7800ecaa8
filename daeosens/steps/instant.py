"""Steps of size 0 of implicit equations, with the first two derivatives of a method in their size.

Between two events at one instant, or from an event to a fixed time, a step F(t, u, u', p) = 0 of
size h leads to u + h v + h^2/2 w, of which all derivatives at h = 0 are wanted.  The rate v solves
F = 0 in the equations with u', and G_u v + G_t = 0 in those without, 0 = G(t, u, p).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from petsc4py import PETSc

from daeosens.arrays import dot, largest
from daeosens.cost import Densities, change
from daeosens.errors import SolveError
from daeosens.methods import Method
from daeosens.point_matrix import PointMatrix
from daeosens.problem import Problem
from daeosens.steps.algebraic import MakeSolver, Parts, Split, block_of, split_equations
from daeosens.steps.directions import Adjoint, SecondOrder, Step
from daeosens.steps.linear import block_solver, refuse_without_transpose

KEPT = -1.0
"""In place of the size of the step, of adjoints that are kept: those of jumps there have 0."""

ITERATIONS = 50
"""Of Newton's method for the rate, at most."""

CONSISTENT = 1e-4
"""Part of the state by which algebraic variables may miss their equations."""


class Bends(NamedTuple):
    """The second derivative w of a step in its size, in terms of the solution's.

    w = solution u'' + rates A^-1 M x'' + sides A^-1 f', with M x' = f of which A is the matrix of
    v: the latter two are the changes of x, and of y with them, that x'' and M^-1 f' mean.
    """

    solution: float
    rates: float
    sides: float


def bends_of(method: Method) -> Bends:
    """Return those of an implicit method.

    A step of the endpoint form leads to x + h M(u1)^-1 ((1 - theta) f0 + theta f1) and to y that
    satisfies its equations there; one of the one-stage form to (stage - u)/theta; an ESDIRK method
    is of order three at least.
    """
    theta = method.theta
    if method.esdirk:
        return Bends(1.0, 0.0, 0.0)
    if method.endpoint:
        return Bends(1.0, 1.0, -2.0 * (1.0 - theta))
    return Bends(theta, theta, 0.0)


class InstantStep:
    """The step map of a step of size 0 of a problem in mass or residual form.

    Directions of algebraic variables are taken to satisfy their linearised equations, as they do
    after jumps and steps.

    Parameters
    ----------
    problem : Problem
        What is stepped.
    method : Method
        An implicit one.
    options : mapping
        PETSc's, of the linear solvers.

    Source
    ------
    docs/mathematics.md, section 4.
    """

    def __init__(self, problem: Problem, method: Method, options: Mapping[str, Any]) -> None:
        self._problem = problem
        self._bends = bends_of(method)
        self._share = 0.5 if method.esdirk else method.theta
        self._make_solver = partial(block_solver, options=options)
        self._split: Split | None = None

    dt, dp = 0.0, None  # the times and parameters of smooth steps are fixed

    def add_time(self, k: int, slope: float) -> None:
        """Do nothing: the times of smooth steps are fixed."""

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
        """Add v dh to ``du`` [n].  Parameters and result as for ``RungeKuttaStep.tangent``."""
        del dp, dt  # the start has moved with them
        if not dh:
            return 0.0
        t, _, u, _, p = step
        with closing(self._at(step)) as rate:
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

        Parameters and result as for ``RungeKuttaStep.adjoint``.
        """
        del mu
        if not times:
            return []
        with closing(self._at(step)) as rate:
            return [
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
        """Carry derivatives of the adjoint back; parameters as for ``RungeKuttaStep``."""
        if not times:
            return []
        if first.known:
            assert first.weights is not None
            (lam,) = first.weights[step.u.handle, KEPT]
        else:
            lam = first.lam
            first.keep(step.u, KEPT, lam)
        with closing(self._at(step)) as rate:
            own = (0.0, 0.0 if first.known else _slope(step, rate.v, lam, densities))
            bend = rate.bend(lam)
            curve = self._curvature(rate, bend)
            return [
                own,
                *(self._along(step, each, rate.v, bend, curve, densities) for each in directions),
            ]

    def _at(self, step: Step) -> _Rate:
        """Return the rate at the instant of a step."""
        problem, (t, _, u, _, p) = self._problem, step
        time = problem.inside(t, t, 0.0)
        if problem.curved_mass or self._split is None:  # rows may be others elsewhere
            self._split = split_equations(problem, time, u, p, self._make_solver)
        return _Rate(problem, self._split, self._make_solver, (time, u, p))

    def _curvature(self, rate: _Rate, bend: _Bend) -> float:
        """Return lam.w, the second derivative of a step in its size."""
        solution, rates, sides = self._bends
        total = solution * bend.along(rate.v)
        if rates:
            total += rates * rate.bend(rate.weighed(bend.nu)).along(rate.v)
        return total + sides * rate.change_of_sides(bend.nu) if sides else total

    def _along(
        self,
        step: Step,
        each: SecondOrder,
        v: PETSc.Vec,
        bend: _Bend,
        curve: float,
        densities: Densities,
    ) -> tuple[float, float]:
        """Add to the derivatives of the adjoint along a direction; return those of t and h."""
        t, _, u, _, p = step
        point, dh = (t, u, p), each.dh
        by_t = dh * bend.by_t
        by_h = dot(each.lam_dot, v) + dot(bend.by_u, each.du) + bend.by_t * each.dt + dh * curve
        if self._problem.n_parameters:
            by_h += dot(bend.by_p, each.dp_vec)
            each.mu_dot.axpy(dh, bend.by_p)
        each.lam_dot.axpy(dh, bend.by_u)
        for weight, density in densities:
            slope_t = density.value_t(*point)
            bent = change(density, self._problem, point, v, None, 1.0)
            along = change(density, self._problem, point, each.du, each.dp_vec, each.dt)
            by_h += weight * (along + 2.0 * self._share * dh * bent)
            by_t += weight * dh * slope_t
            density.add_u(weight * dh, *point, each.lam_dot)
            density.add_p(weight * dh, *point, each.mu_dot)
        return by_t, by_h


def _slope(step: Step, v: PETSc.Vec, lam: PETSc.Vec, densities: Densities) -> float:
    """Return the derivative in the size of the step."""
    t, _, u, _, p = step
    return dot(v, lam) + sum(weight * density.value(t, u, p) for weight, density in densities)


@dataclass(frozen=True, eq=False)
class _Bend:
    """The derivatives of lam.v in u [n], p [m] and t; nu [n] is zero in algebraic equations."""

    by_u: PETSc.Vec
    by_p: PETSc.Vec
    by_t: float
    nu: PETSc.Vec

    def along(self, v: PETSc.Vec) -> float:
        """Return the derivative along the solution."""
        return dot(self.by_u, v) + self.by_t


class _Rate:
    """The rate v [n] at a point (t, u, p), and what it depends on."""

    def __init__(
        self,
        problem: Problem,
        split: Split,
        make_solver: MakeSolver,
        at: tuple[float, PETSc.Vec, Any],
    ) -> None:
        assert problem.residual_udot is not None
        self._problem = problem
        self._make_solver = make_solver
        self._udot = PointMatrix(problem.residual_udot)
        self._u = PointMatrix(problem.residual_u)
        self._blocks: list[_Block] = []
        self.v = problem.create_state()
        t, u, p = at
        self._point = (t, u, self.v, p)
        self._find(split)

    def close(self) -> None:
        """Free the objects made for this point."""
        for block in self._blocks:
            block.close()
        self._blocks.clear()

    def _find(self, split: Split) -> None:
        """Solve for the rate: by Newton's method, where the equations are not linear in it."""
        problem, v = self._problem, self.v
        work, step = problem.create_state(), problem.create_state()
        for _ in range(ITERATIONS):
            self.close()
            matrix = self._udot.at(*self._point)
            rates = _Block(self._point[0], matrix, split.differential, self._make_solver)
            self._blocks[:] = [rates]
            problem.residual(*self._point, work)
            rates.solve(work, step)
            v.axpy(-1.0, step)
            if problem.form == "mass" or largest(step) <= 1e-13 * largest(v):
                break
        else:
            raise _no_rate(self._point[0], "Newton's method does not converge")
        if split.algebraic is None:
            return
        matrix = self._u.at(*self._point)
        variables = _Block(self._point[0], matrix, split.algebraic, self._make_solver)
        self._blocks.append(variables)
        problem.residual(*self._point, work)
        self._check_consistent(variables, work)
        problem.residual_t(*self._point, work)
        matrix.multAdd(v, work, work)
        step.zeroEntries()
        variables.solve(work, step)
        v.axpy(-1.0, step)

    def _check_consistent(self, variables: _Block, residual: PETSc.Vec) -> None:
        t, u, *_ = self._point
        error = residual.duplicate()
        error.zeroEntries()
        variables.solve(residual, error)
        if largest(error) > CONSISTENT * largest(u):
            missing = f"its algebraic variables miss their equations by {largest(error):.3g}"
            raise _no_rate(t, missing)

    def bend(self, lam: PETSc.Vec) -> _Bend:
        """Return the derivatives of lam.v: -nu.(F_u, F_p, F_t), and those of nu.(G_u v + G_t)."""
        problem, create = self._problem, self._problem.create_state
        nu, by_u, work = create(), create(), create()
        by_p, work_p = problem.create_parameters(), problem.create_parameters()
        matrix, right, bent = self._u.at(*self._point), lam.copy(), 0.0
        rates, *algebraic = self._blocks
        for variables in algebraic:
            constraint, rest = create(), create()
            variables.solve_transposed(lam, constraint)
            matrix.multTranspose(constraint, work)
            right.axpy(-1.0, work)
            along = (self.v, rest, self._no_change())
            problem.residual_hessian(self._point, constraint, along, (by_u, work, by_p))
            bent = problem.residual_time_hessian(self._point, constraint, (work, rest, work_p))
            bent += dot(work, self.v)
            by_u.axpy(1.0, work)
            by_p.axpy(1.0, work_p)
        rates.solve_transposed(right, nu)
        matrix.multTranspose(nu, work)
        by_u.axpy(1.0, work)
        if problem.n_parameters:
            PointMatrix(problem.residual_p).at(*self._point).multTranspose(nu, work_p)
            by_p.axpy(1.0, work_p)
        problem.residual_t(*self._point, work)
        by_u.scale(-1.0)
        by_p.scale(-1.0)
        return _Bend(by_u, by_p, -bent - dot(work, nu), nu)

    def weighed(self, nu: PETSc.Vec) -> PETSc.Vec:
        """Return F_udot^T nu [n] as a new vector."""
        out = nu.duplicate()
        self._udot.at(*self._point).multTranspose(nu, out)
        return out

    def change_of_sides(self, nu: PETSc.Vec) -> float:
        """Return nu.f', where f = -F(t, u, 0, p), along the solution."""
        t, u, v, p = self._point
        at_rest = (t, u, self._problem.create_state(), p)
        work = nu.duplicate()
        self._problem.residual_t(*at_rest, work)
        self._u.at(*at_rest).multAdd(v, work, work)
        return -dot(nu, work)

    def _no_change(self) -> Any:
        """Return a direction of the parameters, as callbacks see them, that is 0."""
        p = self._point[3]
        return self._problem.create_parameters() if isinstance(p, PETSc.Vec) else 0.0 * p


class _Block:
    """A square block of a matrix, factorised: equations and variables of one kind."""

    def __init__(self, t: float, matrix: PETSc.Mat, parts: Parts, make_solver: MakeSolver) -> None:
        self._t = t
        self._parts = parts
        self._matrix = block_of(matrix, parts)
        try:
            self._solver = make_solver(self._matrix)
        except PETSc.Error as error:  # a pivot that is zero
            raise _no_rate(t, "a matrix of it is singular") from error

    def solve(self, right: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill the variables in ``out`` [n] with the solution for the equations of ``right``."""
        rows, columns = self._parts.rows, self._parts.columns
        given, found = right.getSubVector(rows), out.getSubVector(columns)
        self._solver.solve(given, found)
        out.restoreSubVector(columns, found)
        right.restoreSubVector(rows, given)
        self._check()

    def solve_transposed(self, right: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill the equations in ``out`` [n] with the solution for the variables of ``right``."""
        refuse_without_transpose(self._solver)
        rows, columns = self._parts.rows, self._parts.columns
        given, found = right.getSubVector(columns), out.getSubVector(rows)
        self._solver.solveTranspose(given, found)
        out.restoreSubVector(rows, found)
        right.restoreSubVector(columns, given)
        self._check()

    def close(self) -> None:
        """Free the objects made for this point."""
        self._solver.destroy()
        self._matrix.destroy()

    def _check(self) -> None:
        reason: Any = self._solver.getConvergedReason()
        if reason < 0:
            raise _no_rate(self._t, f"the linear solver stopped for reason {reason}")


def _no_rate(t: float, why: str) -> SolveError:
    return SolveError(
        f"no derivatives of an event at t = {t:.9g}, from which a step of no length leads to "
        f"another one or to a fixed time: the state has no rate there; {why}",
        expected="a consistent state of a problem of index one at most",
        remedy="consistent_state(problem, u0, p) for the start, "
        'options={"ksp_type": ..., "pc_type": ...}, or another time span',
    )
