"""A matrix of an implicit step with its factors, and what it was filled at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from petsc4py import PETSc

from daeosens.methods.linear_solver import (
    IN_SWEEPS,
    PRODUCTS,
    ZERO_PIVOT,
    linear_fault,
    refuse_without_transpose,
    singular,
)
from daeosens.methods.remainders import add_remainder, note_solve
from daeosens.problem.implicit_matrix import Elsewhere, SystemMatrix

MakeSolver = Callable[[PETSc.Mat], PETSc.KSP]
"""``make_solver(matrix)``, as ``linear_solver``."""


def shared(make_solver: MakeSolver) -> MakeSolver:
    """Return what makes one solver for all matrices that can only be applied."""
    made: list[PETSc.KSP] = []

    def solver_of(matrix: PETSc.Mat) -> PETSc.KSP:
        if matrix.getType() not in PRODUCTS:
            return make_solver(matrix)
        if not made:
            made.append(make_solver(matrix))
        return made[0]

    return solver_of


CORRECTION, CORRECTIONS = 1e-4, 3
"""Relative tolerance of the correction of a solution, and how many there are at most."""

SOLVED = 1e-11
"""Relative errors below this one are not corrected further."""

_KSP: Any = PETSc.KSP  # the stubs of petsc4py 3.26 give enumerations the wrong type


class FactoredMatrix:
    """One system matrix, the point it was filled at, and its solver (made at the first solve).

    Attributes
    ----------
    iterations : int
        Of the linear solver in the last solve.
    """

    def __init__(self, system: SystemMatrix, make_solver: MakeSolver) -> None:
        self._system = system
        self._make_solver = make_solver
        self._solver: PETSc.KSP | None = None
        self._direct, self._transposes = False, False
        self.iterations = 0
        self._at: tuple[float, PETSc.Vec] | None = None
        self._shift = 0.0

    @property
    def matrix(self) -> PETSc.Mat:
        """The matrix as it was filled last."""
        return self._system.matrix

    @property
    def assembled(self) -> bool:
        """Whether the matrix has entries."""
        return self._system.assembled

    @property
    def udot_parts(self) -> tuple[PETSc.Mat | None, PETSc.Mat | None]:
        """F_udot at the point that it was filled at last, and at the other one."""
        return self._system.udot_parts

    def holds(self, t: float, u: PETSc.Vec, p: Any, shift: float) -> bool:
        """Whether it was filled at this time and state [n], or has the same values anyway."""
        # the same at every state: only shift and parameters count
        if self._system.constant:
            return self._system.stays(p, shift)
        if self._at is None:
            return False
        # the vector itself is kept: where it was freed, another one may have its address
        time, state = self._at
        return time == t and state.handle == u.handle

    def fill(
        self,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        p: Any,
        shift: float,
        other: Elsewhere | None = None,
        known: Any = None,
    ) -> None:
        """Fill F_u + shift F_udot at the point, and F_udot of another one."""
        self._system.fill(t, u, udot, p, shift, other, known)
        self._at = (t, u)
        self._shift = shift

    def reshift(self, shift: float) -> None:
        """Change the shift only; for F_u and F_udot that do not depend on udot."""
        if shift != self._shift:
            self._system.reshift(self._shift, shift)
            self._shift = shift

    def solve(self, right: PETSc.Vec, solution: PETSc.Vec, *, transpose: bool) -> None:
        """Solve with the matrix or its transpose; vectors [n].

        Raises
        ------
        SolveError
            The linear solver does not converge.
        UnsupportedError
            It cannot solve with the transpose.
        """
        if self._solver is None:
            self._solver = self._make_solver(self._system.matrix)
            # a name, for which PETSc is asked once and not at each solve
            self._direct = self._solver.getType() == _KSP.Type.PREONLY
        solver = self._solver
        if transpose and not self._transposes:
            refuse_without_transpose(solver)
            self._transposes = True
        solver.setOperators(self._system.matrix)  # it may have solved for another slot since
        self.iterations = 0
        self._apply(right, solution, transpose=transpose)
        if self._direct:
            return
        tolerances: Any = solver.getTolerances()
        preconditioned = solver.getNormType() == _KSP.NormType.PRECONDITIONED
        # Corrections are ours to add where the tolerance is ours too; with one of the user's the
        # remainder is only noted.
        if preconditioned and tolerances[0] == IN_SWEEPS:
            add_remainder(self._improve(right, solution, transpose=transpose))
        else:
            note_solve(solver, right, solution, transpose=transpose)

    def _apply(self, right: PETSc.Vec, solution: PETSc.Vec, *, transpose: bool) -> None:
        assert self._solver is not None
        solver = self._solver
        try:
            (solver.solveTranspose if transpose else solver.solve)(right, solution)
        except PETSc.Error as error:  # dense matrices raise where others end with a reason
            if getattr(error, "ierr", 0) == ZERO_PIVOT:
                raise singular("the matrix of a step has no factors") from error
            raise
        self.iterations += solver.getIterationNumber()
        reason: Any = solver.getConvergedReason()
        if reason < 0:
            raise linear_fault(solver, "the linear system of a sweep")

    def _improve(self, right: PETSc.Vec, solution: PETSc.Vec, *, transpose: bool) -> float:
        """Add what the residual says is missing; return the relative error that is left.

        A preconditioned residual hides what the preconditioner does not see, or is relative to
        what it has blown up; the residual itself shows it.
        """
        solver = self._solver
        assert solver is not None
        matrix, (rtol, atol, divtol, most) = self._system.matrix, solver.getTolerances()
        product: Any = matrix.multTranspose if transpose else matrix.mult
        residual, change = right.duplicate(), right.duplicate()

        def size_of_residual() -> float:
            product(solution, residual)
            # right - A x, with the matrix itself and not with the preconditioner
            residual.aypx(-1.0, right)
            size: Any = residual.norm()
            return size

        before, left = size_of_residual(), 0.0
        solver.setTolerances(CORRECTION, atol, divtol, most)
        for _ in range(CORRECTIONS):
            if before == 0.0:
                break
            self._apply(residual, change, transpose=transpose)
            solution.axpy(1.0, change)
            after = size_of_residual()
            size: Any = solution.norm()
            part: Any = change.norm() / size if size else 0.0
            # what the next correction would be: this one, times how much the residual has fallen
            # by it
            left = part * min(1.0, max(CORRECTION, after / before))
            if left < SOLVED:
                break
            before = after
        solver.setTolerances(rtol, atol, divtol, most)
        residual.destroy()
        change.destroy()
        return left
