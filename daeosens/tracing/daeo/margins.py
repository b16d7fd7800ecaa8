"""Whether other optimisers stay above the lowest one all along a step, by interval arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.courses import Path
from daeosens.tracing.daeo.intervals import IntervalFunction
from daeosens.tracing.daeo.piece import Piece

HALVINGS = 10
"""So often a step is halved at most."""

PARTS = 256
"""Of more parts, in which there is a doubt, no smaller ones are made."""

ROWS = 20_000
"""So many enclosures are made at a time, about."""


class Spans(NamedTuple):
    """Times, x, and a place of an optimiser, over parts of steps.

    Attributes
    ----------
    t, x : array [M, 2], [M, n_x, 2]
        Intervals.
    y : array [M, n_y]
        A point that the optimiser is near to.
    free : array of bool [M, n_y]
        Which of it are at no bound.
    pivot : array [M]
        The smallest pivot of h_yy among these.
    """

    t: Array
    x: Array
    y: Array
    free: npt.NDArray[np.bool_]
    pivot: Array


def first_dip(functions: IntervalFunction, piece: Piece, limit: int) -> int:
    """Return after how many steps an optimiser is found that dips below the lowest one inside one.

    Then the piece has brackets of it; ``limit`` if none does.  Bounds of h show for most steps that
    the others stay above the lowest one.  A step is halved where they do not, and the parts that
    are left at last are compared point by point.
    """
    for n, others in _close(functions, piece, limit):
        for k in others:
            if (k, n) in piece.brackets:
                continue
            piece.doubt[k, n] = False
            for first, last in _close_parts(functions, piece, k, n):
                if piece.bracket(k, n, first, last):
                    break
        if piece.doubt[:, n].any():
            return n + 1
    return limit


def bounds(functions: IntervalFunction, spans: Spans, p: Array) -> tuple[Array, Array]:
    """Return bounds [M] of the values of optimisers.

    The upper one is that of h at y.  Below it h cannot fall by more than g^2 / 2c, for a gradient g
    at y and a curvature c, for which half the smallest pivot is taken.
    """
    n_x = functions.n_x
    rows = np.empty((len(spans.t), functions.n_inputs, 2))
    rows[:, 0], rows[:, 1 : 1 + n_x] = spans.t, spans.x
    rows[:, 1 + n_x : 1 + n_x + functions.n_y] = spans.y[..., None]
    rows[:, 1 + n_x + functions.n_y :] = p[:, None]
    values, flags = functions.enclose(1, rows)
    # at a bound that holds y_i, its gradient is a multiplier and no descent
    slope = np.where(spans.free, np.abs(values[:, 1:]).max(axis=2), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # g^2 / 2c with c = pivot / 2
        falls = (slope**2).sum(axis=1) / spans.pivot
    falls = np.where(spans.free.any(axis=1), falls, 0.0)
    good = ~flags.any(axis=1) & (falls < np.inf)
    lower, upper = values[:, 0, 0] - falls, values[:, 0, 1]
    return np.where(good, lower, -np.inf), np.where(good, upper, np.inf)


def _close(
    functions: IntervalFunction, piece: Piece, limit: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield steps and the optimisers whose values may meet that of the lowest one in them."""
    count = len(piece.optimisers.values)
    size = max(1, ROWS // count)
    for start in range(0, limit, size):
        steps = np.arange(start, min(start + size, limit))
        spans = _over_steps(piece, steps)
        lower, upper = (bound.reshape(count, -1) for bound in bounds(functions, spans, piece.p))
        there = piece.reached[:, None] >= steps + 1
        # of doubts only those that the ends of the step do not decide
        decided = piece.doubt[:, steps] & (piece.ahead[:, steps + 1] > 0.0)
        near = ~(lower > upper[piece.active]) & there & ~decided
        near[piece.active] = False
        for column in np.flatnonzero(near.any(axis=0)).tolist():
            yield start + column, np.flatnonzero(near[:, column]).tolist()


def _over_steps(piece: Piece, steps: npt.NDArray[np.int_]) -> Spans:
    """Return all optimisers [K] over whole steps [N], one after the other."""
    count, optimisers = len(piece.optimisers.values), piece.optimisers
    first, last = optimisers[:, steps], optimisers[:, steps + 1]
    t, x, *slopes = piece.cubics(int(steps[0]), int(steps[-1]) + 1)
    shape = count, len(steps)
    times = np.broadcast_to(t[:, 1] - t[:, 0], shape)
    left, right = (
        end.change(times, np.broadcast_to(slope, (*shape, slope.shape[1])))
        for end, slope in zip((first, last), slopes, strict=True)
    )
    # the middle of the cubic Hermite polynomial through both ends
    y = 0.5 * (first.y + last.y) + 0.125 * (left - right)
    return Spans(
        np.tile(t, (count, 1)),
        np.tile(x, (count, 1, 1)),
        y.reshape(-1, y.shape[-1]),
        _free(first.active, last.active, y.shape[-1]).reshape(-1, y.shape[-1]),
        np.minimum(first.pivot, last.pivot).ravel(),
    )


def _close_parts(
    functions: IntervalFunction, piece: Piece, k: int, n: int
) -> Sequence[tuple[float, float]]:
    """Return the parts of a step in which the values of an optimiser may meet the lowest one."""
    path, parts = piece.path(n), np.array([[0.0, 1.0]])
    for _ in range(HALVINGS):
        middles = parts.mean(axis=1)
        parts = np.stack([parts[:, 0], middles, middles, parts[:, 1]], axis=1).reshape(-1, 2)
        (lower, _), (_, upper) = (
            bounds(functions, _over_parts(piece, path, j, n, parts), piece.p)
            for j in (k, piece.active)
        )
        # only where the bounds overlap may the values meet
        parts = parts[~(lower > upper)]
        if not len(parts) or len(parts) > PARTS:
            break
    return [(float(first), float(last)) for first, last in _joined(parts)]


def _over_parts(piece: Piece, path: Path, k: int, n: int, parts: Array) -> Spans:
    """Return one optimiser over parts [M, 2] of a step, by the cubic through its ends."""
    first, last = piece.optimisers[k, n], piece.optimisers[k, n + 1]
    dt = np.array(path.length)
    left, right = (o.change(dt, path.slope(s)) for o, s in ((first, 0.0), (last, 1.0)))
    s, way = parts.mean(axis=1)[:, None], last.y - first.y
    # the cubic Hermite polynomial, as the chord and what bends away from it
    y = first.y + s * way + s * (1.0 - s) * ((1.0 - s) * (left - way) - s * (right - way))
    hulls = [path.hull(a, b) for a, b in parts.tolist()]
    t, x = (np.array([hull[j] for hull in hulls]) for j in range(2))
    free = _free(np.array(first.active), np.array(last.active), y.shape[-1])
    pivot = np.full(len(parts), min(float(first.pivot), float(last.pivot)))
    return Spans(t, x, y, np.broadcast_to(free, y.shape), pivot)


def _free(first: Array, last: Array, n_y: int) -> npt.NDArray[np.bool_]:
    """Return which y [..., n_y] are not at the same bound throughout."""
    with np.errstate(invalid="ignore"):
        sides = [
            # two bits of each y in one number: 0 is free
            np.nan_to_num(end)[..., None].astype(np.int64) >> 2 * np.arange(n_y) & 3
            for end in (first, last)
        ]
    return (sides[0] == 0) | (sides[0] != sides[1])


def _joined(parts: Array) -> Iterator[Array]:
    """Yield neighbouring parts as one, up to eight of them."""
    begin = 0
    for k in range(1, len(parts) + 1):
        # neighbours together, but not too many: long parts have wide bounds again
        if k == len(parts) or parts[k, 0] != parts[k - 1, 1] or k - begin == 8:
            yield np.array([parts[begin, 0], parts[k - 1, 1]])
            begin = k
