"""Which equations of a problem are algebraic, which variables, and the block between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import UnsupportedError
from daeosens.methods.dae.null_space import Columns, basis_matrix, null_bases, projection
from daeosens.methods.linear_solver import PRODUCTS
from daeosens.petsc.vectors import Array, largest, read, write
from daeosens.problem.problem import Problem, ProblemCache

MakeSolver = Callable[[PETSc.Mat], PETSc.KSP]
Mask = npt.NDArray[np.bool_]

_REVERSE: Any = PETSc.ScatterMode.REVERSE

LOST = 1e-3
"""A matrix whose solves lose all but this part of a vector has no inverse."""


class Part(Protocol):
    """Some of the equations, or of the variables: k of them or combinations of them."""

    @property
    def size(self) -> int:
        """Their number k, on all ranks."""
        ...

    def take(self, full: PETSc.Vec) -> PETSc.Vec:
        """Return the part [k] of a vector [n]."""
        ...

    def add(self, factor: float, part: PETSc.Vec, full: PETSc.Vec) -> None:
        """Add ``factor`` times a part [k] to a vector [n]."""
        ...

    def coordinates(self, full: PETSc.Vec) -> PETSc.Vec:
        """Return what has to be added [k] for the part of a vector [n]."""
        ...

    def clear(self, full: PETSc.Vec, *, transpose: bool = False) -> None:
        """Leave what a vector [n], or an adjoint, has beside the part."""
        ...


class Numbered:
    """Equations or variables by their numbers."""

    def __init__(self, numbers: PETSc.IS, like: PETSc.Vec) -> None:
        self.numbers = numbers
        self.size: int = numbers.getSize()
        self._template = PETSc.Vec().create(comm=like.comm)
        self._template.setType(like.getType())
        self._template.setSizes((numbers.getLocalSize(), self.size))
        scatter: Any = PETSc.Scatter
        self._scatter: Any = scatter().create(like, numbers, self._template, None)

    def take(self, full: PETSc.Vec) -> PETSc.Vec:
        """Return the part [k] of a vector [n]."""
        part = self._template.duplicate()
        self._scatter.scatter(full, part)
        return part

    def add(self, factor: float, part: PETSc.Vec, full: PETSc.Vec) -> None:
        """Add ``factor`` times a part [k] to a vector [n]."""
        part = part.copy()
        part.scale(factor)
        self._scatter.scatter(part, full, addv=True, mode=_REVERSE)

    def coordinates(self, full: PETSc.Vec) -> PETSc.Vec:
        """Return what has to be added [k] for the part of a vector [n]."""
        return self.take(full)

    def clear(self, full: PETSc.Vec, *, transpose: bool = False) -> None:
        """Leave what a vector [n], or an adjoint, has beside the part."""
        del transpose
        nothing = self._template.duplicate()
        nothing.zeroEntries()
        self._scatter.scatter(nothing, full, mode=_REVERSE)


class Combined:
    """Sums of equations or variables, by the columns of a basis [n, k], and by its dual."""

    def __init__(self, basis: PETSc.Mat, dual: PETSc.Mat | None = None) -> None:
        self._basis, self._dual = basis, dual
        self.size: int = basis.getSize()[1]

    def take(self, full: PETSc.Vec) -> PETSc.Vec:
        """Return the part [k] of a vector [n]."""
        return _transposed_product(self._basis, full)

    def add(self, factor: float, part: PETSc.Vec, full: PETSc.Vec) -> None:
        """Add ``factor`` times a part [k] to a vector [n]."""
        change = full.duplicate()
        self._basis.mult(part, change)
        full.axpy(factor, change)

    def coordinates(self, full: PETSc.Vec) -> PETSc.Vec:
        """Return what has to be added [k] for the part of a vector [n]."""
        assert self._dual is not None
        return _transposed_product(self._dual, full)

    def clear(self, full: PETSc.Vec, *, transpose: bool = False) -> None:
        """Leave what a vector [n], or an adjoint, has beside the part."""
        assert self._dual is not None
        if transpose:
            Combined(self._dual).add(-1.0, self.take(full), full)
        else:
            self.add(-1.0, self.coordinates(full), full)


def _transposed_product(matrix: PETSc.Mat, full: PETSc.Vec) -> PETSc.Vec:
    part = matrix.createVecRight()
    matrix.multTranspose(full, part)
    return part


@dataclass(frozen=True, eq=False)
class Parts:
    """Equations and variables of one kind, as many of the ones as of the others on every rank."""

    rows: Part
    columns: Part


@dataclass(frozen=True, eq=False)
class Split:
    """Equations with u' and variables with a rate, and those without; None where there are none.

    ``null`` [n, n] projects sides of the equations on what they have in those without u'.
    """

    differential: Parts
    algebraic: Parts | None
    null: PETSc.Mat | None


def algebraic_parts(
    problem: Problem, t: float, u: PETSc.Vec, p: Any, make_solver: MakeSolver
) -> Parts | None:
    """Find the algebraic equations and variables of a problem; None where there are none.

    Parameters and errors as for ``split_equations``, of a problem in any form.
    """
    if problem.residual_udot is None:
        return None
    return split_equations(problem, t, u, p, make_solver).algebraic


def null_projection(problem: Problem, make_solver: MakeSolver) -> PETSc.Mat | None:
    """Return the projection [n, n] on the equations without u', of a constant mass; None: none.

    Parameters and errors as for ``split_equations``.
    """
    if problem.residual_udot is None:
        return None
    state = problem.create_state()
    return split_equations(problem, 0.0, state, None, make_solver).null


def split_equations(
    problem: Problem, t: float, u: PETSc.Vec, p: Any, make_solver: MakeSolver
) -> Split:
    """Tell equations and variables with rates from those without; once for a constant mass.

    Equations without rates are rows of zeros of F_udot, variables without them columns of zeros; of
    a constant mass also the combinations of rows and of columns that are zero.

    Parameters
    ----------
    problem : Problem
        In mass or residual form.
    t, u, p
        Any admissible point; nothing depends on it where the mass is constant.
    make_solver : callable
        Makes the linear solver of a block.

    Raises
    ------
    UnsupportedError
        F_udot is singular in another way than by rows and as many columns of zeros, and not
        constant, without entries, or not to be decomposed.
    """
    if problem.curved_mass:  # rows may be others elsewhere
        return _split(problem, t, u, p, make_solver)
    known = _SPLITS.of(problem)
    if not known:
        known.append(_split(problem, t, u, p, make_solver))
    return known[0]


_SPLITS: ProblemCache[list[Split]] = ProblemCache(list)
"""Of problems with a constant mass: the only one."""


def _split(problem: Problem, t: float, u: PETSc.Vec, p: Any, make_solver: MakeSolver) -> Split:
    matrix, _, *zero = probed_rate(problem, t, u, p)
    start, _ = u.getOwnershipRange()
    parts = _same_layout(problem, *(start + np.flatnonzero(empty) for empty in zero))
    kept = _same_layout(problem, *(start + np.flatnonzero(~empty) for empty in zero))
    # The simple case: rows and as many columns of zeros, and the rest of F_udot is regular.
    if parts is not None and kept is not None and _regular(matrix, kept, make_solver):
        if not parts.rows.size:
            return Split(kept, None, None)
        diagonal = u.duplicate()
        write(diagonal, zero[0].astype(float))
        return Split(kept, parts, PETSc.Mat().createDiagonal(diagonal))
    # else combinations of rows and columns, once and for all where the mass is constant
    known = not (problem.curved_mass or matrix.getType() in PRODUCTS)
    # singular vectors of the zero singular values of each block, and their duals
    bases = null_bases(matrix) if known else None
    if bases is None or not bases.left:
        raise UnsupportedError(
            "a singular mass matrix (F_udot) whose null space is not that of single variables: "
            f"{count(u, zero[0])} rows and {count(u, zero[1])} columns are zero, and the rest is "
            "singular or not square",
            expected="algebraic equations without any u', in as many variables without rate, or "
            "ODE(..., mass=matrix) with a constant mass of blocks of a few hundred unknowns",
            remedy="new unknowns, in which M is diagonal or constant: for C(u) u', charges q, with "
            "A q' = f and 0 = q - Q(u)",
        )

    def combined(*columns: Sequence[Columns]) -> Combined:
        return Combined(*(basis_matrix(column, u) for column in columns))

    return Split(
        Parts(combined(bases.left_rest), combined(bases.right_rest)),
        Parts(combined(bases.left), combined(bases.right, bases.right_dual)),
        projection(bases.left_dual, bases.left, u),
    )


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
    # a vector without zeros: a product that is exactly 0 is one with a row without entries
    matrix.mult(probe, by_row)
    matrix.multTranspose(probe, by_column)
    return matrix, rate, read(by_row) == 0.0, read(by_column) == 0.0


def count(like: PETSc.Vec, mask: Mask) -> int:
    """Return how many rows are meant on all ranks.  Collective."""
    return int(like.comm.tompi4py().allreduce(int(mask.sum())))


def _same_layout(problem: Problem, rows: Any, columns: Any) -> Parts | None:
    """Return parts with the local sizes of the rows; None if the numbers differ.

    The blocks are square on every rank then: a row may belong to another rank than its variable.
    """
    comm = problem.comm.tompi4py()
    sizes = comm.allgather((len(rows), len(columns)))
    if sum(m for m, _ in sizes) != sum(n for _, n in sizes):
        return None
    # the numbers agree in all, but not on each rank: variables are dealt out anew
    if any(m != n for m, n in sizes):
        first = sum(m for m, _ in sizes[: comm.rank])
        columns = np.concatenate(comm.allgather(columns))[first : first + len(rows)]
    numbered = (
        PETSc.IS().createGeneral(numbers.astype(PETSc.IntType), comm=problem.comm)
        for numbers in (rows, columns)
    )
    return Parts(*(Numbered(numbers, problem.state) for numbers in numbered))


def block_of(matrix: PETSc.Mat, parts: Parts) -> PETSc.Mat:
    """Return the rows and columns of a matrix as a matrix, or, of products, as products."""
    rows, columns = parts.rows, parts.columns
    if not (isinstance(rows, Numbered) and isinstance(columns, Numbered)):
        return _combined_block(matrix, parts)
    if matrix.getType() == PETSc.Mat.Type.PYTHON:
        return PETSc.Mat().createSubMatrixVirtual(matrix, rows.numbers, columns.numbers)
    return matrix.createSubMatrix(rows.numbers, columns.numbers)


def _combined_block(matrix: PETSc.Mat, parts: Parts) -> PETSc.Mat:
    """Return R^T A C [k, k] for bases R and C, one column after the other.  Collective."""
    full, image = matrix.createVecRight(), matrix.createVecLeft()
    matrix.multTranspose(image, full)
    unit = parts.rows.take(image)
    start, end = unit.getOwnershipRange()
    block: Any = PETSc.Mat().create(comm=matrix.comm)
    block.setSizes((unit.getSizes(), unit.getSizes()))
    block.setType(PETSc.Mat.Type.AIJ)
    block.setPreallocationNNZ((end - start, unit.size - (end - start)))
    numbers = np.arange(start, end, dtype=PETSc.IntType)
    # column k is R^T A (C e_k)
    for k in range(unit.size):
        unit.zeroEntries()
        if start <= k < end:
            unit.setValue(k, 1.0)
        unit.assemble()
        full.zeroEntries()
        parts.columns.add(1.0, unit, full)
        matrix.mult(full, image)
        block.setValues(numbers, [k], read(parts.rows.take(image)))
    block.assemble()
    return block


def _regular(matrix: PETSc.Mat, parts: Parts, make_solver: MakeSolver) -> bool:
    if parts.rows.size == 0:
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
    # another wave than that of the probe, whose products found the rows
    write(v, wave(v, 2.0))
    block.mult(v, right)
    x = v.duplicate()
    solver.solve(right, x)
    x.axpy(-1.0, v)
    reason: Any = solver.getConvergedReason()
    return reason > 0 and largest(x) <= LOST
