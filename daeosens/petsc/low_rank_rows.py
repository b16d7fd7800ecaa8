"""Products with many rows by few of them, where these span the others to rounding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import numpy as np
from scipy.linalg import qr, solve_triangular

from daeosens.petsc.vectors import Array

LEAST, MOST = 32, 96
"""How many rows are sought: where less than the first number would pay, all remain."""

SKETCH = 104
"""The rows are sought in so many random sums of the columns."""

PAYS = 0.75
"""Such a part of the products may remain."""

WORTH = 1000
"""Products with one row take at least so many times the square of the rank that is sought."""

RANK = 1e-15
"""Pivots below such a part of the first one are rounding."""

ROUNDING, WINDOWS = 3e-14, 16
"""So large errors may be beside the largest value of their column among the rows around: those of
one in so many parts."""


@dataclass(frozen=True, eq=False)
class FewRows:
    """A matrix [K, n]: ``weights`` [K, r] times ``rows`` [r, n], or all of its own rows.

    Attributes
    ----------
    rows : array [r, n]
    weights : array [K, r] or None
        None where these are all rows.
    """

    rows: Array
    weights: Array | None = None


def few_rows(values: Array, columns: int) -> FewRows:
    """Return a matrix by few of its rows, or by all where that costs less.

    What is smooth in time has rows that depend on one another: they are sums of some of them with
    weights of the order of one.  Errors are of the size of rounding, and each is judged by the
    values of its own column around it: what is small, or is small for some time, keeps its digits.

    Parameters
    ----------
    values : array [K, n]
        At successive points.
    columns : int
        How many columns c of a matrix [K, c] there are whose transpose is to be multiplied with it.

    Returns
    -------
    FewRows

    Examples
    --------
    >>> t = np.linspace(0.0, 1.0, 300)[:, None]
    >>> smooth = np.cos(t * np.linspace(1.0, 2.0, 200))
    >>> few = few_rows(smooth, columns=40000)
    >>> few.rows.shape, np.allclose(few.weights @ few.rows, smooth, rtol=0.0, atol=1e-14)
    ((8, 200), True)

    Source
    ------
    Interpolative decomposition of a random sketch: Halko, Martinsson, Tropp, SIAM Review 53(2),
    2011, section 5.2.
    """
    count, n = values.shape
    most = min(int(PAYS * count * n / (count + n)), isqrt(columns * n // WORTH), MOST)
    if most < LEAST:
        return FewRows(values)
    size = np.abs(values)
    largest = size.max(axis=0)
    scaled = values / np.where(largest > 0.0, largest, 1.0)
    sketch = scaled if n <= SKETCH else scaled @ _directions(n)
    triangle, order = qr(sketch.T, mode="r", pivoting=True, check_finite=False)
    pivots = np.abs(np.diag(triangle))
    rank = int(np.count_nonzero(pivots > RANK * pivots[0]))
    if not 0 < rank <= most:
        return FewRows(values)
    chosen, others = order[:rank], order[rank:]
    weights = np.empty((count, rank))
    weights[chosen] = np.eye(rank)
    weights[others] = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:]).T
    rows = values[chosen]
    nearby = np.concatenate(
        [np.broadcast_to(part.max(axis=0), part.shape) for part in np.array_split(size, WINDOWS)]
    )
    close = np.abs(weights @ rows - values) <= ROUNDING * nearby
    return FewRows(rows, weights) if close.all() else FewRows(values)


@lru_cache(maxsize=8)
def _directions(n: int) -> Array:
    """Return random vectors, always the same ones [n, SKETCH]."""
    return np.random.default_rng(0).normal(size=(n, SKETCH))
