"""A right-hand side at many points, linearised for many rows of weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daeosens.petsc._kernels import FactorPulls, MatrixPulls, Pulls
from daeosens.petsc.diagonal_runs import Runs
from daeosens.petsc.vectors import Array


@dataclass(frozen=True, eq=False)
class CallPulls:
    """Products w f_u at each point by calls: ``pull(k, w [M, n])`` returns an array [M, n]."""

    pull: Callable[[int, Array], Array]


@dataclass(frozen=True, eq=False)
class Linearization:
    """f_u and f_p at K points, for at most M rows of weights w.

    Attributes
    ----------
    pulls : Pulls or CallPulls
        Products w f_u at each point.
    collect : callable
        ``collect(mu, fresh)`` adds the sum of f_p^T w over the points to ``mu`` [M, m], for the w
        that each point was visited with, or those in ``weights``.  ``fresh``: mu holds nothing yet.
    weights : array [K, M, n] or None
        Where the w belong; None if ``pulls`` keep what they need.
    """

    pulls: Pulls | CallPulls
    collect: Callable[[Array, bool], None]
    weights: Array | None = None


def by_matrices(
    matrices: Array, pull_parameters: Callable[[Array], Array], rows: int
) -> Linearization:
    """Return a linearisation by the matrices f_u [K, n, n].

    ``pull_parameters(w)`` returns the sum over the points of f_p^T w for w [M, K, n].

    Examples
    --------
    >>> point = by_matrices(np.full((1, 2, 2), 3.0), lambda w: w.sum(axis=1), rows=1)
    >>> point.weights[0] = 5.0
    >>> mu = np.empty((1, 2))
    >>> point.collect(mu, True)
    >>> mu
    array([[5., 5.]])
    """
    contiguous = np.ascontiguousarray(matrices, dtype=float)
    return with_weights(MatrixPulls(contiguous), pull_parameters, rows)


def with_weights(
    pulls: Pulls, pull_parameters: Callable[[Array], Array], rows: int
) -> Linearization:
    """Return a linearisation that keeps the weights for the derivative in the parameters."""
    weights = np.empty((pulls.count, rows, pulls.n))

    def collect(mu: Array, fresh: bool) -> None:
        add_part(mu, pull_parameters(weights.swapaxes(0, 1)), fresh=fresh)

    return Linearization(pulls, collect, weights)


def add_part(total: Array, part: Array, *, fresh: bool) -> None:
    """Add to a total, or begin with it where it is fresh."""
    if fresh:
        total[...] = part
    else:
        total += part


def sparse_pulls(values: Array, runs: Runs, n: int) -> Pulls:
    """Return the products with matrices f_u [n, n] by their values [K, entries] in runs."""
    nothing = np.empty((len(values), 0))
    none = np.empty((0, 5), dtype=np.int32)
    table = np.empty((0, 6), dtype=np.int32)
    parts = values, nothing, nothing
    return FactorPulls(n, (), table, (runs.runs, none, none, 0), parts, nothing, False, None)
