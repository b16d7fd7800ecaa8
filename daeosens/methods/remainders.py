"""What linear solvers leave in a sweep, added up where it is asked for."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from petsc4py import PETSc

_KSP: Any = PETSc.KSP  # the stubs of petsc4py 3.26 give enumerations the wrong type


@dataclass(eq=False)
class Remainders:
    """The sum of the relative errors that solves have left."""

    total: float = 0.0


_open: list[Remainders] = []


@contextmanager
def remainders() -> Generator[Remainders]:
    """Add up what linear solves leave inside the block.

    Examples
    --------
    >>> with remainders() as left:
    ...     add_remainder(1e-13)
    >>> left.total
    1e-13
    """
    left = Remainders()
    _open.append(left)
    try:
        yield left
    finally:
        _open.remove(left)


def add_remainder(amount: float) -> None:
    """Add the relative error of a solution, for those who ask."""
    for left in _open:
        left.total += amount


def note_solve(solver: PETSc.KSP, right: PETSc.Vec, solution: PETSc.Vec) -> None:
    """Note what a solver has left: its residual, beside the solution where preconditioned.

    A preconditioned residual is about the error, since the preconditioner is about the inverse.
    0 of direct solvers.  Collective.
    """
    if not _open or solver.getType() == _KSP.Type.PREONLY:
        return
    preconditioned = solver.getNormType() == _KSP.NormType.PRECONDITIONED
    size: Any = (solution if preconditioned else right).norm()
    if size > 0.0:
        add_remainder(solver.getResidualNorm() / size)
