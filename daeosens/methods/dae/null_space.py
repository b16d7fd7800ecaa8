"""Bases of the null spaces of a singular matrix, and of what is beside them.

The matrix falls into blocks without common rows and columns, as the capacitances of a circuit do
between the nodes that no capacitor connects; each is small, and decomposed on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from daeosens.petsc.vectors import Array

_MAT: Any = PETSc.Mat  # the stubs of petsc4py 3.26 give enumerations and sizes the wrong type

Numbers: TypeAlias = "npt.NDArray[np.integer[Any]]"

LARGEST = 500
"""Up to how many rows or columns a block is decomposed."""

ZERO = 1e-12
"""Singular values of a scaled block that are zero beside its largest."""


class Columns(NamedTuple):
    """Some columns of a basis: the numbers of the rows that they have, and their values there."""

    rows: Numbers
    values: Array


@dataclass(frozen=True, eq=False)
class Bases:
    """Bases of the left and right null spaces of a matrix A [n, n], and complements of them.

    With rows and columns of A brought to one size, by factors that are not mixed with each other,
    they are its singular vectors.  So the complements R and W make a diagonal block R^T A W; and a
    basis N and its dual C, C^T N = I, make the projections C N^T and N C^T.
    """

    left: Sequence[Columns]
    left_dual: Sequence[Columns]
    left_rest: Sequence[Columns]
    right: Sequence[Columns]
    right_dual: Sequence[Columns]
    right_rest: Sequence[Columns]


def null_bases(matrix: PETSc.Mat) -> Bases | None:
    """Return bases, the same on every rank; None if a block is too large to tell.  Collective.

    Parameters
    ----------
    matrix : Mat [n, n]
        With entries, which are gathered on every rank.
    """
    whole = _gathered(matrix)
    n_rows = whole.shape[0]
    # Rows and columns are nodes of a graph, entries its edges: connected parts are the blocks.
    graph = sparse.bmat([[None, whole], [whole.T, None]])
    count, labels = connected_components(graph, directed=False)
    rows, columns = (_members(part, count) for part in (labels[:n_rows], labels[n_rows:]))
    bases = Bases([], [], [], [], [], [])
    for own_rows, own_columns in zip(rows, columns, strict=True):
        if max(own_rows.size, own_columns.size) > LARGEST:
            return None
        _add_block(bases, whole[own_rows][:, own_columns].toarray(), own_rows, own_columns)
    return bases


def basis_matrix(columns: Sequence[Columns], like: PETSc.Vec) -> PETSc.Mat:
    """Return the columns of a basis as a matrix [n, k] with the rows of a vector.  Collective."""
    starts = np.cumsum([0, *(column.values.shape[1] for column in columns)])
    matrix = _MAT().create(comm=like.comm)
    matrix.setSizes((like.getSizes(), (PETSc.DECIDE, int(starts[-1]))))
    matrix.setType(PETSc.Mat.Type.AIJ)
    widest = max((column.values.shape[1] for column in columns), default=0)
    matrix.setPreallocationNNZ((widest, widest))
    _insert(
        matrix,
        [
            (column.rows, np.arange(start, end), column.values)
            for column, start, end in zip(columns, starts, starts[1:], strict=False)
        ],
    )
    return matrix


def projection(dual: Sequence[Columns], columns: Sequence[Columns], like: PETSc.Vec) -> PETSc.Mat:
    """Return C N^T [n, n] for the dual C of a basis N.  Collective."""
    matrix = _MAT().create(comm=like.comm)
    matrix.setSizes((like.getSizes(), like.getSizes()))
    matrix.setType(PETSc.Mat.Type.AIJ)
    widest = max((column.rows.size for column in columns), default=0)
    matrix.setPreallocationNNZ((widest, widest))
    pairs = zip(dual, columns, strict=True)
    _insert(matrix, [(rows, rows, of_dual @ values.T) for (rows, of_dual), (_, values) in pairs])
    return matrix


def _insert(matrix: Any, blocks: Sequence[tuple[Numbers, Numbers, Array]]) -> None:
    """Insert blocks of (rows, columns, values), those rows that are the rank's own."""
    start, end = matrix.getOwnershipRange()
    matrix.setOption(_MAT.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    for rows, columns, values in blocks:
        own = (rows >= start) & (rows < end)
        if own.any() and columns.size:
            numbers = (part.astype(PETSc.IntType) for part in (rows[own], columns))
            matrix.setValues(*numbers, values[own])
    matrix.assemble()


def _gathered(matrix: PETSc.Mat) -> Any:
    """Return all entries of a matrix that are not zero, on every rank, as a SciPy array."""
    sized: Any = matrix
    ranks: Any = matrix.comm.tompi4py()
    if matrix.getType() not in ("seqaij", "mpiaij"):
        sized = matrix.convert(PETSc.Mat.Type.AIJ, PETSc.Mat())  # not in place
    starts, columns, values = sized.getValuesCSR()
    local = sparse.csr_array((values, columns, starts), (len(starts) - 1, matrix.getSize()[1]))
    whole = sparse.vstack(ranks.allgather(local), format="csr")
    whole.eliminate_zeros()
    return sparse.csr_array(whole)


def _members(labels: Numbers, count: int) -> list[Numbers]:
    """Return which positions have each label."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(1, count)))


def _add_block(bases: Bases, block: Array, rows: Numbers, columns: Numbers) -> None:
    """Decompose a block after its rows and columns have been brought to one size."""
    heights = _without_zeros(np.abs(block).max(axis=1, initial=0.0))[:, None]
    # Units of equations and unknowns may differ by many powers of ten; singular values tell the
    # rank only of rows and columns of one size.
    scaled = block / heights
    widths = _without_zeros(np.abs(scaled).max(axis=0, initial=0.0))[:, None]
    left, sizes, right = np.linalg.svd(scaled / widths.T)
    rank = int(np.count_nonzero(sizes > ZERO * sizes.max(initial=0.0)))
    # The scaled matrix is D^-1 A E^-1 with singular vectors L, R: null vectors of A are D^-1 L
    # and E^-1 R, and the duals D L and E R make C^T N = I.
    kinds = (
        (bases.left, rows, left[:, rank:] / heights),
        (bases.left_dual, rows, left[:, rank:] * heights),
        (bases.left_rest, rows, left[:, :rank] / heights),
        (bases.right, columns, right[rank:].T / widths),
        (bases.right_dual, columns, right[rank:].T * widths),
        (bases.right_rest, columns, right[:rank].T / widths),
    )
    for basis, numbers, values in kinds:
        if values.shape[1]:
            assert isinstance(basis, list)
            basis.append(Columns(numbers, values))


def _without_zeros(values: Array) -> Array:
    return np.where(values == 0.0, 1.0, values)
