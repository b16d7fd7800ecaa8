"""What linear solvers leave in a sweep, added up where it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from petsc4py import PETSc

_KSP: Any = PETSc.KSP  # the stubs of petsc4py 3.26 give enumerations the wrong type


@dataclass(eq=False)
class Remainders:
    """The sum of the relative errors that linear solves leave, from entry to exit of its block.

    Examples
    --------
    >>> with Remainders() as left:
    ...     add_remainder(1e-13)
    >>> left.total
    1e-13
    """

    total: float = 0.0

    def __enter__(self) -> Remainders:
        """Begin to add up."""
        _open.append(self)
        return self

    def __exit__(self, *_error: object) -> None:
        """End."""
        _open.remove(self)


_open: list[Remainders] = []


def add_remainder(amount: float) -> None:
    """Add the relative error of a solution, for those who ask."""
    # blocks may be nested: a gradient inside of a fit counts for both
    for left in _open:
        left.total += amount


UNSOLVED, HIDDEN = 1e-10, 100.0
"""A residual beside the terms that it is the sum of: a larger one is no rounding, and one so many
times the preconditioned residual is none of an error that this shows."""


def note_solve(
    solver: PETSc.KSP, right: PETSc.Vec, solution: PETSc.Vec, *, transpose: bool
) -> None:
    """Note what a solver has left: its residual, beside the solution where preconditioned.

    A preconditioned residual is about the error where the preconditioner is about the inverse;
    where it is far from it the residual itself, beside the right-hand side, tells so.  0 of direct
    solvers.  Collective.
    """
    if not _open or solver.getType() == _KSP.Type.PREONLY:
        return
    preconditioned = solver.getNormType() == _KSP.NormType.PRECONDITIONED
    size: Any = (solution if preconditioned else right).norm()
    if size == 0.0:
        return
    left = solver.getResidualNorm() / size
    matrix: Any = solver.getOperators()[0]
    if preconditioned and matrix.getType().endswith("aij"):
        residual = right.duplicate()
        (matrix.multTranspose if transpose else matrix.mult)(solution, residual)
        residual.axpy(-1.0, right)
        infinity: Any = PETSc.NormType.INFINITY
        of_right: Any = right.norm()
        of_residual: Any = residual.norm()
        residual.destroy()
        terms = matrix.norm(infinity) * size + of_right
        if of_residual > max(UNSOLVED, HIDDEN * left) * terms:
            left = max(left, of_residual / of_right if of_right else 1.0)
    add_remainder(left)
