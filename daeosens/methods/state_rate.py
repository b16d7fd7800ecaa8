"""The rate of a state of implicit equations, and what it depends on.

Where F(t, u, u', p) = 0 has no memory of a step before it, the rate v solves F = 0 in the equations
with u', and G_u v + G_t = 0 in those without, 0 = G(t, u, p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.methods.dae.structure import MakeSolver, Parts, Split, block_of
from daeosens.methods.linear_solver import refuse_without_transpose
from daeosens.petsc.vectors import dot, largest
from daeosens.problem.matrices import PointMatrix
from daeosens.problem.problem import Problem

ITERATIONS = 50
"""Of Newton's method for the rate, at most."""

CONSISTENT = 1e-4
"""Part of the state by which algebraic variables may miss their equations."""


@dataclass(frozen=True, eq=False)
class RateCurvature:
    """The derivatives of lam.v in u [n], p [m] and t; nu [n] is zero in algebraic equations."""

    by_u: PETSc.Vec
    by_p: PETSc.Vec
    by_t: float
    nu: PETSc.Vec

    def along(self, v: PETSc.Vec) -> float:
        """Return the derivative along the solution."""
        return dot(self.by_u, v) + self.by_t


class Partials:
    """The matrices of F at one point after the other."""

    def __init__(self, problem: Problem) -> None:
        assert problem.residual_udot is not None
        self.udot = PointMatrix(problem.residual_udot)
        self.u = PointMatrix(problem.residual_u)
        self.p = PointMatrix(problem.residual_p)


class Rate:
    """The rate v [n] at a point (t, u, p), and what it depends on."""

    def __init__(
        self,
        problem: Problem,
        partials: Partials,
        split: Split,
        make_solver: MakeSolver,
        at: tuple[float, PETSc.Vec, Any],
    ) -> None:
        self._problem = problem
        self._make_solver = make_solver
        self._udot, self._u, self._p = partials.udot, partials.u, partials.p
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
        before = math.inf
        for _ in range(ITERATIONS):
            self.close()
            matrix = self._udot.at(*self._point)
            # F_udot in the equations with u': what Newton's method for v solves with
            rates = _Block(self._point[0], matrix, split.differential, self._make_solver)
            self._blocks[:] = [rates]
            problem.residual(*self._point, work)
            step.zeroEntries()
            rates.solve(work, step)
            v.axpy(-1.0, step)
            size, scale = largest(step), largest(v)
            # the rounding of matrices that are nearly singular: small, and falls no more
            settled = 0.5 * before <= size <= 1e-6 * scale
            if problem.form == "mass" or size <= 1e-13 * scale or settled:
                break
            before = size
        else:
            raise _no_rate(self._point[0], "Newton's method does not converge")
        # Variables without rates follow: 0 = G_u v + G_t, solved for their part of v.
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

    def bend(self, lam: PETSc.Vec) -> RateCurvature:
        """Return the derivatives of lam.v: -nu.(F_u, F_p, F_t), and those of nu.(G_u v + G_t)."""
        problem, create = self._problem, self._problem.create_state
        nu, by_u, work = create(), create(), create()
        by_p, work_p = problem.create_parameters(), problem.create_parameters()
        matrix, right, bent = self._u.at(*self._point), lam.copy(), 0.0
        rates, *algebraic = self._blocks
        for variables in algebraic:
            constraint, rest = create(), create()
            # The way back of ``_find``: first the algebraic part of v, then the rest.
            variables.solve_transposed(lam, constraint)
            matrix.multTranspose(constraint, work)
            right.axpy(-1.0, work)
            along = (self.v, rest, self._no_change())
            problem.residual_hessian(self._point, constraint, along, (by_u, work, by_p))
            # With c the constraint: c.(G_u v + G_t) has the derivative c.(G_ut v + G_tt) in t, and
            # those in u and p have a part along v and one with t likewise.
            bent = problem.residual_time_hessian(self._point, constraint, (work, rest, work_p))
            bent += dot(work, self.v)
            by_u.axpy(1.0, work)
            by_p.axpy(1.0, work_p)
        # lam.v through F(t, u, v, p) = 0: nu = F_udot^-T right, and -nu.F_x for each x
        rates.solve_transposed(right, nu)
        matrix.multTranspose(nu, work)
        by_u.axpy(1.0, work)
        if problem.n_parameters:
            self._p.at(*self._point).multTranspose(nu, work_p)
            by_p.axpy(1.0, work_p)
        problem.residual_t(*self._point, work)
        by_u.scale(-1.0)
        by_p.scale(-1.0)
        return RateCurvature(by_u, by_p, -bent - dot(work, nu), nu)

    def weighed(self, nu: PETSc.Vec) -> PETSc.Vec:
        """Return F_udot^T nu [n] as a new vector."""
        out = nu.duplicate()
        self._udot.at(*self._point).multTranspose(nu, out)
        return out

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
        """Add the solution for the equations of ``right`` to the variables in ``out`` [n]."""
        part = self._parts.rows.take(right)
        solution = part.duplicate()
        self._solver.solve(part, solution)
        self._check()
        self._parts.columns.add(1.0, solution, out)

    def solve_transposed(self, right: PETSc.Vec, out: PETSc.Vec) -> None:
        """Add the solution for the variables of ``right`` to the equations in ``out`` [n]."""
        refuse_without_transpose(self._solver)
        part = self._parts.columns.take(right)
        solution = part.duplicate()
        self._solver.solveTranspose(part, solution)
        self._check()
        self._parts.rows.add(1.0, solution, out)

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
