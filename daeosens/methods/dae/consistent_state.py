"""Algebraic variables solved for anew where the equations or the state jump, differentiated.

Of F(t, u, u', p) = 0 the rows without u' are algebraic equations G(t, u, p) = 0, and the columns of
F_udot that are zero belong to algebraic variables y; of a constant mass M sums of rows, N^T F, and
variables along the null space V of M as well: u+ = u + V y.  After an event the differential
variables (M u) stay and y follows from them, along every direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.methods.dae.structure import MakeSolver, Parts, block_of, later_side, recovers
from daeosens.methods.linear_solver import refuse_without_transpose
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.petsc.vectors import dot, largest, read, write
from daeosens.problem.matrices import PointMatrix
from daeosens.problem.problem import Problem

ITERATIONS = 100
"""Newton iterations at most."""

SHORTEST = 2.0**-12
"""The smallest part of a Newton step that is tried."""

SMALL = 1e-12
"""Part of the algebraic variables that is rounding in any case."""

NOISE = 8 * 2.0**-52
"""Relative change of a state that is rounding."""


class ConsistentState:
    """The map (t, u, p) -> u+ that keeps the differential variables and solves for the others.

    Parameters
    ----------
    problem : Problem
        Whose equations hold afterwards.
    parts : Parts
        From ``algebraic_parts``.
    make_solver : callable
        Makes the linear solver of a block.

    Source
    ------
    docs/mathematics.md, section 4.
    """

    def __init__(self, problem: Problem, parts: Parts, make_solver: MakeSolver) -> None:
        self._problem = problem
        self._parts = parts
        self._rows, self._columns = parts.rows, parts.columns
        self._make_solver = make_solver
        self._zero, self._full = problem.create_state(), problem.create_state()
        self._by_t = problem.create_state()
        self._residual_u = PointMatrix(problem.residual_u)
        self._residual_p = PointMatrix(problem.residual_p)

    def apply(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> Any:
        """Fill ``out`` [n] with u, its algebraic variables replaced by the solution of G = 0.

        By Newton's method from those of u, each step halved until the next (simplified) one would
        be shorter, down to where rounding decides.  Returns p.  Collective.

        Raises
        ------
        SolveError
            No solution found; G_y singular, as it is for an index above one.
        """
        u.copy(out)
        time, trial = later_side(self._problem, t), out.duplicate()
        self._problem.residual(time, out, self._zero, p, self._full)
        right, length = self._rows.take(self._full), math.inf
        for _ in range(ITERATIONS):
            with closing(self._linearise(time, out, p)) as linear:
                # Newton's step for y alone: differential variables are given
                step = linear.solve(right)
                length, noise, share = largest(step), 0.0, 1.0
                if not math.isfinite(length):
                    break
                # damping by the natural monotonicity test (Deuflhard, Newton Methods for Nonlinear
                # Problems, 2004, chapter 3): the next step with the same matrix has to be shorter
                while length > noise:
                    out.copy(trial)
                    self._columns.add(-share, step, trial)
                    right = self._residual(time, trial, p)
                    finite = math.isfinite(largest(right))
                    ahead = largest(linear.solve(right)) if finite else math.inf
                    if ahead <= (1.0 - 0.5 * share) * length:
                        trial.copy(out)
                        break
                    # a step that does not shrink may be rounding: then it is the answer
                    if noise == 0.0:
                        noise = self._noise(time, out, p, linear)
                    share *= 0.5
                    if share < SHORTEST:
                        raise self._failure(time, out, p, length)
                else:  # no longer than rounding: solved
                    linear.check_regular()
                    return p
        raise self._failure(time, out, p, length)

    def tangent(
        self, step: Step, du: PETSc.Vec, dp: PETSc.Vec | None, dt: float
    ) -> PETSc.Vec | None:
        """Overwrite ``du`` [n]: G_y dy = -(G_x dx + G_p dp + G_t dt); return ``dp``."""
        t, _, _, u_after, p, _ = step
        time, work = later_side(self._problem, t), self._full
        linear = self._linearise(time, u_after, p)
        # the algebraic part of du is of no account: it is replaced by what G = 0 says
        self._columns.clear(du)
        linear.whole.mult(du, work)
        if dp is not None and self._problem.n_parameters:
            self._residual_p.at(time, u_after, self._zero, p).multAdd(dp, work, work)
        if dt:
            self._problem.residual_t(time, u_after, self._zero, p, self._by_t)
            work.axpy(dt, self._by_t)
        self._columns.add(-1.0, linear.solve(self._rows.take(work)), du)
        linear.close()
        return dp

    def adjoint(self, step: Step, lam: Sequence[PETSc.Vec], mu: Sequence[PETSc.Vec]) -> list[float]:
        """Overwrite ``lam`` [n] by those before, add to ``mu`` [m]; return the adjoints of t."""
        time, u_after, p = later_side(self._problem, step.t), step.u_next, step.p
        with closing(self._linearise(time, u_after, p)) as linear:
            multipliers = [self._multiplier(linear, vector) for vector in lam]
            return self._pull_back(linear, (time, u_after, self._zero, p), multipliers, lam, mu)

    def second_order(
        self, step: Step, first: Adjoint, directions: Sequence[SecondOrder]
    ) -> list[float]:
        """Carry one adjoint, unless it is known, and its derivatives along directions back.

        The multiplier is differentiated: G_y^T nu_dot = lam_dot - (nu^T G)_y along the direction
        after the jump, in t too.
        """
        t, _, _, u_after, p, _ = step
        time, problem = later_side(self._problem, t), self._problem
        point = (time, u_after, self._zero, p)
        linear = self._linearise(time, u_after, p)
        omega = [0.0]
        known = first.kept(step, "consistent")
        if known is not None:
            (nu,) = known
        else:
            nu = self._multiplier(linear, first.lam)
            first.keep(step, nu, "consistent")
            omega = self._pull_back(linear, point, [nu], [first.lam], [first.mu])
        create = problem.create_state
        by_u, by_udot, by_p = create(), create(), problem.create_parameters()
        column = (create(), create(), problem.create_parameters())
        by_t = problem.residual_time_hessian(point, nu, column)
        for direction in directions:
            problem.residual_hessian(
                point, nu, (direction.du_next, self._zero, direction.dp), (by_u, by_udot, by_p)
            )
            by_u.axpy(direction.dt, column[0])
            by_p.axpy(direction.dt, column[2])
            direction.lam_dot.axpy(-1.0, by_u)
            direction.mu_dot.axpy(-1.0, by_p)
            nu_dot = self._multiplier(linear, direction.lam_dot)
            (slope,) = self._pull_back(
                linear, point, [nu_dot], [direction.lam_dot], [direction.mu_dot]
            )
            bend = (
                dot(column[0], direction.du_next)
                + dot(column[2], direction.dp_vec)
                + by_t * direction.dt
            )
            omega.append(slope - bend)
        linear.close()
        return omega

    def _pull_back(
        self,
        linear: _Linear,
        point: tuple[float, PETSc.Vec, PETSc.Vec, Any],
        multipliers: Sequence[PETSc.Vec],
        lam: Sequence[PETSc.Vec],
        mu: Sequence[PETSc.Vec],
    ) -> list[float]:
        """Carry adjoints back with multipliers of the equations; return those of the time."""
        problem, work = self._problem, self._full
        problem.residual_t(*point, self._by_t)
        for nu, lam_k in zip(multipliers, lam, strict=True):
            linear.whole.multTranspose(nu, work)
            lam_k.axpy(-1.0, work)
            self._columns.clear(lam_k, transpose=True)
        if problem.n_parameters:
            by_p, matrix = mu[0].duplicate(), self._residual_p.at(*point)
            for nu, mu_k in zip(multipliers, mu, strict=True):
                matrix.multTranspose(nu, by_p)
                mu_k.axpy(-1.0, by_p)
        return [-dot(self._by_t, nu) for nu in multipliers]

    def _residual(self, t: float, u: PETSc.Vec, p: Any) -> PETSc.Vec:
        """Return G(t, u, p), or infinities where it cannot be evaluated."""
        try:
            self._problem.residual(t, u, self._zero, p, self._full)
        except SolveError:  # raised on every rank: the state has left the domain of the callback
            self._full.set(math.inf)
        return self._rows.take(self._full)

    def _linearise(self, t: float, u: PETSc.Vec, p: Any) -> _Linear:
        matrix = self._residual_u.at(t, u, self._zero, p)
        block = block_of(matrix, self._parts)
        try:
            return _Linear(t, matrix, block, self._make_solver(block))
        except PETSc.Error as error:  # a pivot that is zero
            raise _singular(t) from error

    def _multiplier(self, linear: _Linear, lam: PETSc.Vec) -> PETSc.Vec:
        """Return nu [n], zero outside the algebraic rows, with G_y^T nu = lam."""
        nu = self._problem.create_state()
        self._rows.add(1.0, linear.solve(self._columns.take(lam), transpose=True), nu)
        return nu

    def _noise(self, t: float, u: PETSc.Vec, p: Any, linear: _Linear) -> float:
        """Return how far rounding of the state moves the solution."""
        start, end = u.getOwnershipRange()
        moved = u.duplicate()
        write(moved, read(u) * (1.0 + NOISE * np.sign(np.cos(3.0 * np.arange(start, end)))))
        change = self._residual(t, moved, p)
        change.axpy(-1.0, self._residual(t, u, p))
        least = SMALL * largest(self._columns.coordinates(u))
        return max(least, largest(linear.solve(change)))

    def _failure(self, t: float, u: PETSc.Vec, p: Any, length: float) -> SolveError:
        residual = largest(self._residual(t, u, p))
        return SolveError(
            f"no consistent algebraic variables found at t = {t:.9g}: residual {residual:.3g}, "
            f"Newton step {length:.3g}",
            expected="algebraic equations with a solution near the values they began with",
            remedy="other values of the algebraic variables to begin with: in the start or, after "
            "an event, in its reset",
        )


@dataclass(frozen=True, eq=False)
class _Linear:
    """F_u at a point, its algebraic block G_y, and the solver of that."""

    t: float
    whole: PETSc.Mat
    block: PETSc.Mat
    solver: PETSc.KSP

    def solve(self, right: PETSc.Vec, *, transpose: bool = False) -> PETSc.Vec:
        solution = right.duplicate()
        if transpose:
            refuse_without_transpose(self.solver)
        (self.solver.solveTranspose if transpose else self.solver.solve)(right, solution)
        reason: Any = self.solver.getConvergedReason()
        if reason < 0:
            raise _singular(self.t)
        return solution

    def close(self) -> None:
        """Free the objects made for this point; petsc4py would keep parallel ones for long."""
        self.solver.destroy()
        self.block.destroy()

    def check_regular(self) -> None:
        if not recovers(self.solver, self.block):
            raise _singular(self.t)


def _singular(t: float) -> SolveError:
    return SolveError(
        f"at t = {t:.9g} the algebraic equations do not determine the algebraic variables: "
        "their Jacobian is singular, or its linear solver did not converge",
        expected="index at most one",
        remedy="the derivative in time of each constraint in its place, of one of positions the "
        "second; or a start that satisfies the equations, without consistent=True; or "
        'options={"ksp_type": ..., "pc_type": ...}',
    )
