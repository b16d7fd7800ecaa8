"""Which equations of a problem are algebraic, which variables, and the block between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import Array, largest, read, write
from daeosens.errors import UnsupportedError
from daeosens.problem import Problem

MakeSolver = Callable[[PETSc.Mat], PETSc.KSP]
Mask = npt.NDArray[np.bool_]

LOST = 1e-3
"""A matrix whose solves lose all but this part of a vector has no inverse."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Index sets of the algebraic equations and of the algebraic variables, on the same layout."""

    rows: PETSc.IS
    columns: PETSc.IS


@dataclass(frozen=True, eq=False)
class Split:
    """Equations with u' and variables with a rate, and those without; None where there are none."""

    differential: Parts
    algebraic: Parts | None


def algebraic_parts(
    problem: Problem, t: float, u: PETSc.Vec, p: Any, make_solver: MakeSolver
) -> Parts | None:
    """Find the algebraic equations and variables of a problem; None where there are none.

    Parameters and errors as for ``split_equations``, of a problem in any form.
    """
    if problem.residual_udot is None:
        return None
    return split_equations(problem, t, u, p, make_solver).algebraic


def split_equations(
    problem: Problem, t: float, u: PETSc.Vec, p: Any, make_solver: MakeSolver
) -> Split:
    """Tell equations and variables with rates from those without.

    Parameters
    ----------
    problem : Problem
        In mass or residual form.
    t, u, p
        Any admissible point.
    make_solver : callable
        Makes the linear solver of a block.

    Raises
    ------
    UnsupportedError
        F_udot is singular in another way than by rows and as many columns of zeros.
    """
    matrix, _, *zero = probed_rate(problem, t, u, p)
    start, _ = u.getOwnershipRange()
    parts = _same_layout(problem, *(start + np.flatnonzero(each) for each in zero))
    kept = _same_layout(problem, *(start + np.flatnonzero(~each) for each in zero))
    if parts is None or kept is None or not _regular(matrix, kept, make_solver):
        raise UnsupportedError(
            "a singular mass matrix (F_udot) whose null space is not that of single variables: "
            f"{count(u, zero[0])} rows and {count(u, zero[1])} columns are zero, and the rest is "
            "singular or not square",
            expected="algebraic equations without any u', in as many variables without rate",
            remedy="new unknowns, in which M is diagonal",
        )
    return Split(kept, parts if parts.rows.getSize() else None)


def later_side(problem: Problem, t: float) -> float:
    """Return t as callbacks are to see it where equations begin to hold, as at a breakpoint."""
    return problem.inside(t, t, 1e-12 * max(1.0, abs(t)))


def wave(like: PETSc.Vec, phase: float = 1.0) -> Array:
    """Return the rank's part of cos(phase + i): no zeros, whatever the distribution."""
    start, end = like.getOwnershipRange()
    return np.cos(phase + np.arange(start, end))


def probe_and_rate(u: PETSc.Vec) -> tuple[PETSc.Vec, PETSc.Vec]:
    """Return vectors [n] that find rows without u': what to multiply, and u' of about |u|."""
    probe = u.duplicate()
    write(probe, wave(u))
    rate = probe.copy()
    rate.scale(max(1.0, largest(u)))  # at rest a row that is nonlinear in u' would look algebraic
    return probe, rate


def earlier_side(problem: Problem, t: float) -> float:
    """Return t as callbacks are to see it where equations cease to hold."""
    margin = 1e-12 * max(1.0, abs(t))
    return problem.inside(t, t - margin, margin)


def probed_rate(
    problem: Problem, t: float, u: PETSc.Vec, p: Any
) -> tuple[PETSc.Mat, PETSc.Vec, Mask, Mask]:
    """Return F_udot, the rate that it is taken at, and which of the rank's rows and columns are 0.

    Parameters as for ``split_equations``, of a problem that is not u' = f.
    """
    assert problem.residual_udot is not None
    probe, rate = probe_and_rate(u)
    point = (t, u, rate, p)
    matrix = problem.residual_udot.create(*point)
    problem.residual_udot.fill(*point, matrix)
    by_row, by_column = u.duplicate(), u.duplicate()
    matrix.mult(probe, by_row)
    matrix.multTranspose(probe, by_column)
    return matrix, rate, read(by_row) == 0.0, read(by_column) == 0.0


def count(like: PETSc.Vec, mask: Mask) -> int:
    """Return how many rows are meant on all ranks.  Collective."""
    return int(like.comm.tompi4py().allreduce(int(mask.sum())))


def _same_layout(problem: Problem, rows: Any, columns: Any) -> Parts | None:
    """Return index sets with the local sizes of the rows; None if the numbers differ.

    The blocks are square on every rank then: a row may belong to another rank than its variable.
    """
    comm = problem.comm.tompi4py()
    sizes = comm.allgather((len(rows), len(columns)))
    if sum(m for m, _ in sizes) != sum(n for _, n in sizes):
        return None
    if any(m != n for m, n in sizes):
        first = sum(m for m, _ in sizes[: comm.rank])
        columns = np.concatenate(comm.allgather(columns))[first : first + len(rows)]
    return Parts(
        PETSc.IS().createGeneral(rows.astype(PETSc.IntType), comm=problem.comm),
        PETSc.IS().createGeneral(columns.astype(PETSc.IntType), comm=problem.comm),
    )


def block_of(matrix: PETSc.Mat, parts: Parts) -> PETSc.Mat:
    """Return the rows and columns of a matrix as a matrix, or, of products, as products."""
    if matrix.getType() == PETSc.Mat.Type.PYTHON:
        return PETSc.Mat().createSubMatrixVirtual(matrix, parts.rows, parts.columns)
    return matrix.createSubMatrix(parts.rows, parts.columns)


def _regular(matrix: PETSc.Mat, parts: Parts, make_solver: MakeSolver) -> bool:
    if parts.rows.getSize() == 0:
        return True
    block = block_of(matrix, parts)
    try:
        solver = make_solver(block)
    except PETSc.Error:  # a pivot that is zero
        return False
    return recovers(solver, block)


def recovers(solver: PETSc.KSP, block: PETSc.Mat) -> bool:
    """Whether A x = A v gives v back: it does not where A is singular, or nearly so."""
    vecs: Any = block.createVecs()
    v, right = vecs
    write(v, wave(v, 2.0))
    block.mult(v, right)
    x = v.duplicate()
    solver.solve(right, x)
    x.axpy(-1.0, v)
    reason: Any = solver.getConvergedReason()
    return reason > 0 and largest(x) <= LOST
