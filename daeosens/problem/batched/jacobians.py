"""Automatic Jacobians at many points at once: whole, or by colors of their columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.batched.many_points import (
    FEW_POINTS,
    SMALL,
    products_at_points,
    slopes_at_points,
)

CACHED = 2**20
"""Bytes of slopes at the points that are evaluated at once, about: beyond, caches are too small for
what is between (Medical Akzo Nobel, 400 unknowns: 32 us a point of 64, 73 of 128, 142 alone)."""

LARGEST = 16 * CACHED
"""Bytes of slopes at the fewest points that are worth it, at most: memory."""


def jacobians_at_points(
    jacobian: AutomaticJacobian, t: Array, u: Array, p: Array
) -> list[Any] | None:
    """Return the Jacobian of f(t, u, p) in u or p at each of K points, from few evaluations of f.

    SciPy arrays (CSR) by colors, otherwise arrays; None at points where a pattern turns out to lack
    entries.  None in the place of all where points are to be asked for one after the other: they
    are few, nearly each of them goes a way of its own through f, Jacobians are so large that most
    of the time is arithmetic, or f calls what knows no axis of points.

    Parameters
    ----------
    jacobian : AutomaticJacobian
        Of f in its argument number 1 or 2; of what this has learnt at single points.
    t : array [K]
    u : array [K, n]
    p : array [m]
        The points.
    """
    if len(t) < FEW_POINTS or not jacobian.at_all:
        return None
    matrices = (
        _by_colors(jacobian, t, u, p) if jacobian.colored(u.shape[1]) else _whole(jacobian, t, u, p)
    )
    jacobian.at_all = matrices is not None
    return matrices


def _whole(jacobian: AutomaticJacobian, t: Array, u: Array, p: Array) -> list[Any] | None:
    """Return Jacobians by all of their columns."""
    n, m = u.shape[1], len(p)
    columns = range(n) if jacobian.position == 1 else range(n, n + m)
    if not 0 < n * len(columns) <= SMALL:
        return None

    def at_one(k: int) -> Array:
        return np.asarray(jacobian(float(t[k]), u[k], p))

    matrices = slopes_at_points(jacobian.evaluate, (n,), (t, u, p), columns, at_one)
    return None if matrices is None else list(matrices)


def _by_colors(jacobian: AutomaticJacobian, t: Array, u: Array, p: Array) -> list[Any] | None:
    """Return Jacobians in u by sums of columns that share no row."""
    if jacobian.coloring is None:
        jacobian(float(t[0]), u[0], p)  # learns which
    coloring, n = jacobian.coloring, u.shape[1]
    if coloring is None or not jacobian.colored(n):
        return None
    size = 8 * n * (coloring.count + 2)
    if FEW_POINTS * size > LARGEST:
        return None

    def at_one(k: int) -> Array:
        return jacobian.products((float(t[k]), u[k], p), coloring.seeds(u[k]))

    slopes = products_at_points(
        jacobian.evaluate,
        (n,),
        (t, u, p),
        (coloring.seeds, None),
        max(FEW_POINTS, CACHED // size),
        at_one,
    )
    return None if slopes is None else coloring.matrices(np.moveaxis(slopes, 0, -1), u.T)
