"""A matrix of an implicit step with its factors, and what it was filled at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from petsc4py import PETSc

from daeosens.methods.linear_solver import (
    MULTILEVEL,
    PRODUCTS,
    linear_fault,
    refuse_without_transpose,
)
from daeosens.methods.remainders import note_solve
from daeosens.problem.implicit_matrix import Elsewhere, SystemMatrix

MakeSolver = Callable[..., PETSc.KSP]
"""``make_solver(matrix, precondition=...)``, as ``linear_solver``."""


def shared(make_solver: MakeSolver) -> MakeSolver:
    """Return what makes one solver for all matrices that can only be applied."""
    made: list[PETSc.KSP] = []

    def solver_of(matrix: PETSc.Mat, **more: Any) -> PETSc.KSP:
        if matrix.getType() not in PRODUCTS:
            return make_solver(matrix, **more)
        if not made:
            made.append(make_solver(matrix))
        return made[0]

    return solver_of


class Slot:
    """One system matrix, the point it was filled at, and its solver (made at the first solve)."""

    def __init__(self, system: SystemMatrix, make_solver: MakeSolver) -> None:
        self._system = system
        self._make_solver = make_solver
        self._solver: PETSc.KSP | None = None
        self._transposes = False
        self._point: tuple[float, int] | None = None
        self._shift = 0.0

    @property
    def matrix(self) -> PETSc.Mat:
        """The matrix as it was filled last."""
        return self._system.matrix

    @property
    def assembled(self) -> bool:
        """Whether the matrix has entries."""
        return self._system.assembled

    def holds(self, t: float, u: PETSc.Vec, p: Any, shift: float) -> bool:
        """Whether it was filled at this time and state [n], or has the same values anyway."""
        if self._system.constant:
            return self._system.stays(p, shift)
        return self._point == (t, u.handle)

    def fill(
        self,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        p: Any,
        shift: float,
        other: Elsewhere | None = None,
    ) -> None:
        """Fill F_u + shift F_udot at the point, and F_udot of another one."""
        self._system.fill(t, u, udot, p, shift, other)
        self._point = (t, u.handle)
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
            system = self._system
            other = system.preconditioner is not system.matrix
            more = {"precondition": system.precondition} if other else {}
            self._solver = self._make_solver(system.matrix, **more)
        solver = self._solver
        if transpose and not self._transposes:
            refuse_without_transpose(solver)
            self._transposes = True
        multilevel = solver.getPC().getType() in MULTILEVEL
        preconditioner = self._system.precondition(multilevel=multilevel)
        # it may have solved for another slot since
        solver.setOperators(self._system.matrix, preconditioner)
        (solver.solveTranspose if transpose else solver.solve)(right, solution)
        reason: Any = solver.getConvergedReason()
        if reason < 0:
            raise linear_fault(solver, "the linear system of a sweep")
        note_solve(solver, right, solution, transpose=transpose)
