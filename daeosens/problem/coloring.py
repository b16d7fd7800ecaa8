"""Jacobians with few entries a row, from derivatives along sums of columns that share no row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from daeosens.petsc.vectors import Array

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
    >>> found = coloring.matrix(matrix @ coloring.seeds(np.ones(9)), np.ones(9))
    >>> float(abs(found - matrix).max())
    0.0
    """

    def __init__(self, pattern: Any) -> None:
        self.pattern = sparse.csr_array(pattern != 0)
        self.pattern.sort_indices()
        n = self.pattern.shape[1]
        colors = _colors(self.pattern)
        self.count = int(colors.max(initial=0)) + 1
        self._seeds = np.zeros((n, self.count + 2))
        self._seeds[np.arange(n), colors] = 1.0
        self._weights = np.random.default_rng(n).uniform(0.5, 1.5, (n, 2))
        self._rows = np.repeat(np.arange(n), np.diff(self.pattern.indptr))
        self._colors = colors[self.pattern.indices]

    def seeds(self, u: Array) -> Array:
        """Return the directions [n, count + 2]; the last one weighs unknowns by their size."""
        seeds = self._seeds.copy()
        seeds[:, -2:] = self._checks(u)
        return seeds

    def matrix(self, slopes: Array, u: Array) -> Any:
        """Return the Jacobian (CSR) from its products [n, count + 2] with the directions.

        None where it has other entries than the pattern, or numbers that are not finite.
        """
        values = slopes[self._rows, self._colors]
        result = sparse.csr_array(
            (values, self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape
        )
        checks = self._checks(u)
        missing = np.abs(result @ checks - slopes[:, -2:])
        if not np.all(missing <= AGREES * (abs(result) @ np.abs(checks)) + LEAST):
            return None
        return result

    def _checks(self, u: Array) -> Array:
        checks = self._weights.copy()
        checks[:, 1] *= np.abs(u)
        return checks


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
        bit = ~others & (others + 1)  # the lowest one that is free
        for row in rows[start:end]:
            taken[row] |= bit
        result[column] = bit.bit_length() - 1
    return result
