"""Evaluations of a callback at many points at once, which are an axis that it does not see."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import Differentiated
from daeosens.problem.derivative_arrays import DerivativeArray, PointArray, WaysDifferError

SMALL = 2000
"""Up to so many entries of f_u and f_p a second evaluation costs more than its columns do in one.

Of 28 unknowns and 7 parameters (n-body) 0.6 of the time, of 50 and 51 (Kuramoto) 1.3 times.
"""

SAME = 1e-10
"""Part of the largest derivative of a column by which one from all points may be rounded."""

FEW_POINTS = 16
"""Fewer points are as quick one after the other as all at once: Lotka-Volterra 200 us at once for
any number of them up to 100, 15 us for each alone."""

LEAST = 16
"""Points, on average, that go the same way through f where there are many ways: fewer are as quick
alone."""

TOGETHER, TEMPORARY = 512, 2**22
"""Points that are evaluated at once, at most, and bytes of their derivatives: beyond, caches are
too small for what is between (Pollution: 14 us a point, 19 of 1024, 23 of 4096)."""


def slopes_at_points(
    function: Differentiated,
    shape: tuple[int, ...],
    points: tuple[Array, Array, Array],
    columns: range,
    at_one: Callable[[int], Array],
) -> Array | None:
    """Return columns of the derivatives in u and p, side by side [K, rows, columns].

    Points are an axis of all arrays that the callback does not see (``PointArray``).  None where
    nearly each of them goes a way of its own, or it calls what knows no such axis.

    Parameters
    ----------
    function : Differentiated
        ``function(t, u [n], p [m])``.
    shape : tuple of int
        Of what it returns: (rows,), or () of a number.
    points : tuple of arrays
        t [K], u [K, n], and p [m] of all of them.
    columns : range
        Which of the n + m.
    at_one : callable
        ``at_one(k)`` returns the same [rows, columns] from an evaluation at one point.
    """
    n, width = points[1].shape[1], len(columns)
    of_u, of_p = np.eye(n, width, -columns.start), np.eye(len(points[2]), width, n - columns.start)
    several = min(TOGETHER, TEMPORARY // (8 * max(n, math.prod(shape)) * max(width, 1)))
    return products_at_points(
        function, shape, points, (lambda _: of_u[..., None], of_p), several, at_one
    )


def products_at_points(
    function: Differentiated,
    shape: tuple[int, ...],
    points: tuple[Array, Array, Array],
    seeds: tuple[Callable[[Array], Array], Array | None],
    several: int,
    at_one: Callable[[int], Array],
) -> Array | None:
    """Return products of the derivatives in u and p with W directions [K, rows, W].

    Arguments and None as of ``slopes_at_points``; besides

    Parameters
    ----------
    seeds : (callable, array [m, W] or None)
        The directions in u [n, W, K] at states [n, K], or the same at all of them [n, W, 1]; and
        those in p, None where it is not varied.
    several : int
        How many points are evaluated at once, at most.
    """
    (t, u, p), (directions, of_p) = points, seeds
    count, rows = len(u), math.prod(shape)
    width = directions(u[:1].T).shape[1]
    parameters = p
    if of_p is not None:
        slopes_of_p = PointArray(of_p[..., None])
        parameters = DerivativeArray(PointArray(p[:, None]), slopes_of_p)

    def slopes_at(places: npt.NDArray[np.intp]) -> Array | None:
        # slopes of unknowns have room for numbers of all points, should the callback put some
        # there; those of parameters are the same at all points
        states = u[places].T.copy()
        of_u = directions(states)
        room = np.broadcast_to(of_u, (*of_u.shape[:2], len(places))).copy()
        arguments = (
            PointArray(t[places]),
            DerivativeArray(PointArray(states), PointArray(room)),
            parameters.copy(),
        )
        result = function.at_points(arguments, (width,), len(places))
        if result is None or result.shape != shape:
            return None
        slopes: Array = result.slopes.copy().entries
        if slopes.dtype != float or not np.isfinite(slopes).all():
            return None
        return np.broadcast_to(slopes, (rows, width, len(places)))

    # before all others, since a callback may keep what it makes of its first arguments; each of
    # these may be looked at by differences as well
    alone = {k: at_one(k) for k in (0, count // 2, count - 1)}
    matrices = np.empty((count, rows, width))
    for first in range(0, count, several):
        part = np.arange(first, min(first + several, count))
        slopes = by_ways(part, slopes_at)
        if slopes is None:
            return None
        matrices[part] = np.moveaxis(slopes, -1, 0)
    # what keeps numbers from call to call would differ from single points
    for k, matrix in alone.items():
        limits = SAME * np.abs(matrix).max(axis=0, initial=0.0)
        if not (np.abs(matrices[k] - matrix) <= limits).all():
            return None
    return matrices


def hessians_at_points(
    function: Differentiated,
    shape: tuple[int, ...],
    points: tuple[Array, Array, Array],
    w: Array,
    directions: tuple[Array, Array],
    at_one: Callable[[int], Array],
) -> Array | None:
    """Return the derivatives of f_u^T w and f_p^T w [D, K, n + m] along D directions.

    Arguments and None as of ``slopes_at_points``; besides

    Parameters
    ----------
    w : array [K, rows]
        Weights.
    directions : tuple of arrays
        du [D, K, n] and dp [D, m].
    at_one : callable
        ``at_one(k)`` returns the same [D, n + m] from evaluations at one point.
    """
    t, u, p = points
    (count, n), width, rows = u.shape, u.shape[1] + p.size, math.prod(shape)
    several = min(TOGETHER, TEMPORARY // (16 * max(n, rows) * width))

    def varying(values: Array, along: Array, begin: int) -> DerivativeArray:
        # nested: slopes along all columns, and how these and the value change along the direction
        size, here = values.shape
        columns = np.zeros((size, width, here))
        columns[:, begin : begin + size] = np.eye(size)[..., None]
        value = DerivativeArray(PointArray(values.copy()), PointArray(along[:, None].copy()))
        still = PointArray(np.zeros((size, width, 1, here)))
        return DerivativeArray(value, DerivativeArray(PointArray(columns), still))

    alone = {k: at_one(k) for k in (0, count // 2, count - 1)}  # first, as of slopes
    products = np.empty((len(directions[1]), count, width))
    for d, (du, dp) in enumerate(zip(*directions, strict=True)):

        def change_at(places: npt.NDArray[np.intp], du: Array = du, dp: Array = dp) -> Array | None:
            arguments = (
                PointArray(t[places]),
                varying(u[places].T, du[places].T, 0),
                varying(p[:, None], dp[:, None], n),
            )
            result = function.at_points(arguments, (width, 1), len(places))
            slopes = None if result is None or result.shape != shape else result.slopes
            if type(slopes) is not DerivativeArray:
                return None
            change: Array = slopes.slopes.copy().entries
            if change.dtype != float or not np.isfinite(change).all():
                return None
            return np.broadcast_to(change[..., 0, :], (rows, width, len(places)))

        for first in range(0, count, several):
            part = np.arange(first, min(first + several, count))
            change = by_ways(part, change_at)
            if change is None:
                return None
            products[d, part] = np.einsum("kn,njk->kj", w[part], change)
    for k, product in alone.items():
        largest = np.abs(product).max(initial=0.0)  # there may be no directions
        if not np.abs(products[:, k] - product).max(initial=0.0) <= SAME * largest:
            return None
    return products


def by_ways(
    places: npt.NDArray[np.intp], evaluate: Callable[[npt.NDArray[np.intp]], Array | None]
) -> Array | None:
    """Return what is evaluated at places [K] of points [..., K], of the same way at a time.

    None where nearly each of them goes a way of its own, or what is evaluated is None.
    """
    try:
        return evaluate(places)
    except WaysDifferError as error:
        ways, way = np.unique(error.ways, return_inverse=True)
    if len(ways) * LEAST > max(len(places), FEW_POINTS * LEAST):
        return None
    parts = [by_ways(places[way == number], evaluate) for number in range(len(ways))]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    order = np.concatenate([np.flatnonzero(way == number) for number in range(len(ways))])
    return np.concatenate(known, axis=-1)[..., np.argsort(order)]
