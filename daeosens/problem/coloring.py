"""Jacobians with few entries a row, from derivatives along sums of columns that share no row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from daeosens.petsc.vectors import Array

MANY_COLUMNS = 64
"""From so many columns of a Jacobian on it is looked whether it has few entries."""

FEW_COLORS = 4
"""Colors pay if there are at most so many times fewer than columns."""

IN_VAIN = 3
"""So often colors may be doubted without an entry that they lack, before all columns are taken."""

AGREES = 1e-10
"""Of a row's size: what rounding may make between its entries and the row along a direction."""

LEAST = 1e-290
"""Smaller products have fewer digits."""


class Coloring:
    """Which entries [n, n] a Jacobian has, and directions from which all of them are known.

    Columns of one color have no row in common, so the sum of their derivatives has each entry for
    itself.  Two directions more, random in all columns, tell at every point whether there are
    entries that the pattern does not have.

    Parameters
    ----------
    pattern : sparse array [n, n]
        Not zero where the Jacobian may not be.

    Source
    ------
    Curtis, Powell and Reid, On the estimation of sparse Jacobian matrices, 1974; Griewank and
    Walther, Evaluating Derivatives, SIAM 2008, section 8.1.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> matrix = sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(9, 9)).tocsr()
    >>> coloring = Coloring(matrix)
    >>> coloring.count
    3
    >>> jacobian = coloring.matrix(matrix @ coloring.seeds(np.ones(9)), np.ones(9))
    >>> float(abs(jacobian - matrix).max())
    0.0
    """

    def __init__(self, pattern: Any) -> None:
        self.pattern = sparse.csr_array(pattern != 0)
        self.pattern.sort_indices()
        n = self.pattern.shape[1]
        # columns of one color share no row: of their sum each entry is that of one column (Curtis,
        # Powell, Reid 1974)
        colors = _colors(self.pattern)
        self.count = int(colors.max(initial=0)) + 1
        self._seeds = np.zeros((n, self.count + 2))
        self._seeds[np.arange(n), colors] = 1.0
        self._weights = np.random.default_rng(n).uniform(0.5, 1.5, (n, 2))
        self._seeds[:, -2:] = self._weights
        counts = np.diff(self.pattern.indptr)
        rows: Array = np.repeat(np.arange(n), counts)
        # where entries are in products [n, count + 2], and in a dense matrix
        self._products = rows * (self.count + 2) + colors[self.pattern.indices]
        self._places = rows * n + self.pattern.indices
        self._of_entries = self._weights[self.pattern.indices].T.copy()
        # rows that have entries, where these begin, and the others
        self._filled, self._empty = np.flatnonzero(counts), np.flatnonzero(counts == 0)
        self._begins = self.pattern.indptr[:-1][self._filled]

    def seeds(self, u: Array) -> Array:
        """Return the directions [n, count + 2] at u [n]; the last one weighs unknowns by size.

        Or [n, count + 2, K] at K points u [n, K].
        """
        seeds = np.broadcast_to(
            self._seeds.reshape(*self._seeds.shape, *(1,) * (u.ndim - 1)),
            (*self._seeds.shape, *u.shape[1:]),
        ).copy()
        # random sums of columns: an entry outside of the pattern shows in them but for chance; the
        # second by the sizes of the unknowns, so that small ones with large entries count
        seeds[:, -1] *= np.abs(u)
        return seeds

    def matrix(self, slopes: Array, u: Array) -> Any:
        """Return the Jacobian (CSR) from its products [n, count + 2] with the directions.

        None where it has other entries than the pattern, or numbers that are not finite.
        """
        values, known = self._entries(slopes, u)
        return self._sparse(values) if known else None

    def array(self, slopes: Array, u: Array) -> Array | None:
        """Return the same as an array [n, n]."""
        values, known = self._entries(slopes, u)
        if not known:
            return None
        result = np.zeros(self.pattern.shape)
        result.reshape(-1)[self._places] = values
        return result

    def matrices(self, slopes: Array, u: Array) -> list[Any]:
        """Return the Jacobians at K points from products [n, count + 2, K]; u is [n, K]."""
        values, known = self._entries(slopes, u)
        return [
            self._sparse(of_point) if is_known else None
            for of_point, is_known in zip(values.T.copy(), known.tolist(), strict=True)
        ]

    def _entries(self, slopes: Array, u: Array) -> tuple[Array, Any]:
        """Return the entries [nnz] of the pattern, and whether there are no others.

        Or those [nnz, K] at K points.
        """
        beyond = (1,) * (u.ndim - 1)
        values = slopes.reshape(-1, *u.shape[1:])[self._products]
        # the last two directions by the entries that are known, and the sizes of these sums
        weights = np.broadcast_to(
            self._of_entries.reshape(2, -1, *beyond), (2, *values.shape)
        ).copy()
        weights[1] *= np.abs(u)[self.pattern.indices]
        terms = values * weights
        along = slopes[:, -2:].swapaxes(0, 1)
        known = (np.abs(along[:, self._empty]) <= LEAST).all(axis=(0, 1))
        if self._filled.size:
            sums = np.add.reduceat(terms, self._begins, axis=1)
            sizes = np.add.reduceat(np.abs(terms), self._begins, axis=1)
            missing = np.abs(sums - (along[:, self._filled] if self._empty.size else along))
            known &= (missing <= AGREES * sizes + LEAST).all(axis=(0, 1))
        return values, known

    def _sparse(self, values: Array) -> Any:
        pattern = self.pattern.indices, self.pattern.indptr
        return sparse.csr_array((values, *pattern), shape=self.pattern.shape)


class Directions:
    """Directions from which products with the change of a Jacobian along a direction are known.

    All unit vectors, unless there are many and that change, A [n, n], has entries only where the
    Jacobian has some, at the point or where it was evaluated before: then sums of columns, and two
    more directions that tell whether an entry is missing.

    Parameters
    ----------
    size : int
        Number n of columns.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._whole = size < MANY_COLUMNS
        self._coloring: Coloring | None = None
        self._in_vain = 0
        self._doubted = False

    def seeds(self, x: Array) -> Array:
        """Return the directions [n, K] at a point x [n]."""
        if self._coloring is None or self._doubted:
            return np.eye(self._size)
        return self._coloring.seeds(x)

    def product(self, x: Array, jacobian: Array, change: Array, w: Array) -> Array | None:
        """Return A^T w [n], or None where the directions have to be asked for once more.

        Parameters
        ----------
        x : array [n]
            The point.
        jacobian, change : array [q, K]
            Products of the Jacobian, and of A, with the directions.
        w : array [q]
            Weights of the rows.
        """
        if self._coloring is not None and not self._doubted:
            matrix = self._coloring.matrix(change, x)
            self._doubted = matrix is None
            return None if matrix is None else matrix.T @ w
        if not self._whole:
            self._learn(jacobian, change)
        return w @ change

    def _learn(self, jacobian: Array, change: Array) -> None:
        """Color the columns of a Jacobian that is known whole."""
        self._doubted = False
        # the pattern is known once all columns have been asked for
        square = jacobian.shape[0] == self._size
        if not (square and np.isfinite(jacobian).all() and np.isfinite(change).all()):
            self._whole = not square
            return
        pattern = sparse.csr_array((jacobian != 0.0) | (change != 0.0))
        if self._coloring is not None:
            pattern = pattern + self._coloring.pattern
            self._in_vain += pattern.nnz == self._coloring.pattern.nnz
        coloring = Coloring(pattern)
        self._whole = coloring.count > self._size // FEW_COLORS or self._in_vain == IN_VAIN
        self._coloring = None if self._whole else coloring


def _colors(pattern: Any) -> Any:
    """Return the colors [n] of columns, of which no two of one color share a row."""
    columns = pattern.tocsc()
    starts, rows = columns.indptr.tolist(), columns.indices.tolist()
    taken = [0] * pattern.shape[0]  # by row, a bit for each color
    result = np.zeros(pattern.shape[1], dtype=int)
    for column, (start, end) in enumerate(pairwise(starts)):
        others = 0
        for row in rows[start:end]:
            others |= taken[row]
        # colors are bits: ``others`` has those that its rows have taken
        bit = ~others & (others + 1)  # the lowest one that is free
        for row in rows[start:end]:
            taken[row] |= bit
        result[column] = bit.bit_length() - 1
    return result
