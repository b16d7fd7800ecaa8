"""The matrix F_u + shift F_udot of an implicit step, assembled or as a sum of products."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.petsc.vectors import read
from daeosens.problem.matrices import Derivative, note_one_sided, note_order, shell

_MAT: Any = PETSc.Mat  # the stubs of petsc4py 3.26 give enumerations the wrong type


Elsewhere: TypeAlias = "tuple[float, tuple[float, PETSc.Vec, PETSc.Vec, Any]]"
"""A factor, and another point (t, u, udot, p) whose F_udot is added."""


class SystemMatrix:
    """The matrix F_u + shift F_udot of an implicit step, with what it takes to fill it.

    Parameters
    ----------
    residual_u : Derivative
        F_u at ``(t, u, udot, p)``.
    residual_udot : Derivative or None
        F_udot; None is the identity.
    point : tuple
        Any admissible ``(t, u, udot, p)``; decides types and patterns.

    Attributes
    ----------
    matrix : PETSc.Mat
        Assembled where both parts are, otherwise a shell.
    assembled : bool
        Whether the entries are available, to factorise for instance.
    constant : bool
        Whether the matrix depends on the shift and the parameters alone: it then stays as it is
        while they do, with the factors that solvers keep as long as a matrix does not change.
    """

    def __init__(
        self, residual_u: Derivative, residual_udot: Derivative | None, *point: Any
    ) -> None:
        self._u = residual_u
        self._udot = residual_udot
        self._part_u = residual_u.create(*point)
        self._part_udot = None if residual_udot is None else residual_udot.create(*point)
        assembled = residual_u.assembled and (residual_udot is None or residual_udot.assembled)
        self._part_other: PETSc.Mat | None = None
        self._sum: SumMatrix | None = None
        self.assembled = assembled
        self.constant = residual_u.constant and (residual_udot is None or residual_udot.constant)
        self._filled: tuple[float, Any] | None = None
        self._diagonal: PETSc.Vec | None = None  # of F_u, where F_udot is the identity
        if not assembled and not (residual_u.shifts and residual_udot is None):
            # without entries there is nothing to add up: a shell multiplies with both parts
            self._sum = SumMatrix(self._part_udot, self._part_u)
            vecs: Any = self._part_u.createVecs()
            columns, rows = vecs
            self.matrix = shell(rows, columns, self._sum)
        elif self._part_udot is None:
            self.matrix = self._part_u
        else:
            residual_u.fill(*point, self._part_u)
            assert residual_udot is not None
            residual_udot.fill(*point, self._part_udot)
            self.matrix = self._part_u.duplicate(copy=True)
            # the union of both patterns, so that later sums find room for all entries
            different = _MAT.Structure.DIFFERENT_NONZERO_PATTERN
            self.matrix.axpy(1.0, self._part_udot, different)
            note_order(self.matrix)
        note_one_sided(self.matrix, one_sided=residual_u.one_sided)

    def fill(
        self,
        t: float,
        u: PETSc.Vec,
        udot: PETSc.Vec,
        p: Any,
        shift: float,
        other: Elsewhere | None = None,
        known: Any = None,
    ) -> PETSc.Mat:
        """Fill and return F_u + shift F_udot at the point, and F_udot of another one.

        ``known`` are the values that F_u is filled from, if there are any.
        """
        if self.constant:
            if self.stays(p, shift):
                return self.matrix
            self._filled = (shift, np.array(read(p) if isinstance(p, PETSc.Vec) else p))
        self._u.fill_known(known, (t, u, udot, p), self._part_u)
        if self._udot is not None:
            assert self._part_udot is not None
            self._udot.fill(t, u, udot, p, self._part_udot)
        if self._sum is not None:
            self._sum.a, self._sum.b = shift, 1.0
            self._sum.other = None if other is None else self._elsewhere(other)
            self.matrix.stateIncrease()
        elif self._part_udot is None:
            if self.assembled:
                # M = I: the shift goes to the diagonal, which is kept without it for ``reshift``
                self._keep_diagonal()
            self.matrix.shift(shift)
        else:
            self._add_parts(shift)
            if other is not None:
                subset = _MAT.Structure.SUBSET_NONZERO_PATTERN
                self.matrix.axpy(*self._elsewhere(other), subset)
        return self.matrix

    def _keep_diagonal(self) -> None:
        if self._diagonal is None:
            self._diagonal = self.matrix.createVecLeft()
        self.matrix.getDiagonal(self._diagonal)

    def _add_parts(self, shift: float) -> None:
        assert self._part_udot is not None
        subset = _MAT.Structure.SUBSET_NONZERO_PATTERN
        self.matrix.zeroEntries()
        self.matrix.axpy(1.0, self._part_u, subset)
        self.matrix.axpy(shift, self._part_udot, subset)

    def _elsewhere(self, other: Elsewhere) -> tuple[float, PETSc.Mat]:
        """Return the factor and F_udot at another point."""
        factor, point = other
        assert self._udot is not None
        if self._part_other is None:
            self._part_other = self._udot.create(*point)
        self._udot.fill(*point, self._part_other)
        return factor, self._part_other

    def stays(self, p: Any, shift: float) -> bool:
        """Whether a constant matrix has these values already."""
        filled = self._filled
        if filled is None or filled[0] != shift:
            return False
        if not isinstance(p, PETSc.Vec):
            return np.array_equal(filled[1], p)
        same = np.array_equal(filled[1], read(p))
        # of a field each rank has its own part, and all fill together
        return same if p.comm.size == 1 else p.comm.tompi4py().allreduce(same, MPI.LAND)

    def reshift(self, old: float, new: float) -> None:
        """Change the shift only; for F_u and F_udot that do not depend on udot.

        The entries are those of filling anew, to the last bit: sweeps in both directions have the
        same matrices then.
        """
        if self._filled is not None:
            self._filled = (new, self._filled[1])
        if self._sum is not None:
            self._sum.a = new
            self.matrix.stateIncrease()
        elif self._part_udot is not None:
            self._add_parts(new)
        elif self._diagonal is not None:
            self.matrix.setDiagonal(self._diagonal)
            self.matrix.shift(new)
        else:
            # no diagonal was kept: products, which have no entries to round
            self.matrix.shift(new - old)

    @property
    def parts(self) -> tuple[PETSc.Mat, PETSc.Mat | None]:
        """F_u, and F_udot or None for the identity; F_u is the matrix itself beside the latter."""
        return self._part_u, self._part_udot

    @property
    def udot_parts(self) -> tuple[PETSc.Mat | None, PETSc.Mat | None]:
        """F_udot at the point, None for the identity, and at the other one, if there was one."""
        return self._part_udot, self._part_other


class SumMatrix:
    """Context of a shell matrix a A + b B, where A may be None (the identity), and c C."""

    def __init__(self, first: PETSc.Mat | None, second: PETSc.Mat) -> None:
        self.first = first
        self.second = second
        self.a = 1.0
        self.b = 1.0
        self.other: tuple[float, PETSc.Mat] | None = None

    def mult(self, _matrix: PETSc.Mat, x: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill ``out`` with (a A + b B) x."""
        self.second.mult(x, out)
        self._add(x, out, transpose=False)

    def multTranspose(self, _matrix: PETSc.Mat, x: PETSc.Vec, out: PETSc.Vec) -> None:  # noqa: N802
        """Fill ``out`` with (a A + b B)^T x."""
        self.second.multTranspose(x, out)
        self._add(x, out, transpose=True)

    def scale(self, _matrix: PETSc.Mat, factor: float) -> None:
        """Multiply the matrix by a factor."""
        self.a *= factor
        self.b *= factor
        if self.other is not None:
            self.other = (factor * self.other[0], self.other[1])

    def _add(self, x: PETSc.Vec, out: PETSc.Vec, *, transpose: bool) -> None:
        out.scale(self.b)
        if self.first is None:
            out.axpy(self.a, x)
            return
        work = out.duplicate()
        terms = [(self.a, self.first), *([] if self.other is None else [self.other])]
        for factor, matrix in terms:
            (matrix.multTranspose if transpose else matrix.mult)(x, work)
            out.axpy(factor, work)
        work.destroy()
