"""Boxes of y that have no minimiser, by conditions of first and second order.

Constraints are g <= 0 and the bounds of the box that a part of it touches; a bound is a constraint
whose gradient is a unit vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.parts import MARGIN, Flags, Parts

TURNS = 24
"""Steps towards a direction that leads down."""

GUARD = 1e-9
"""Bounds are so much wider than the solution of their equations, relative to the largest one."""

SHORT = 1e-3
"""Shorter vectors between unit gradients, squared, are not looked for: intervals are wider."""


def excluded(parts: Parts) -> Flags:
    """Return which boxes have no minimiser, because some direction leads down everywhere.

    Down in h, in all g that may be active, and away from bounds that are touched.
    """
    direction = down(parts)
    size = np.abs(direction)
    with np.errstate(invalid="ignore"):
        slope = np.einsum("kqi,ki->kq", parts.middle, direction)
        # The slope along d is middle . d, off by at most radius . |d|, and by rounding.
        wide = (1.0 + MARGIN) * parts.radius + 2.0 * MARGIN * np.abs(parts.middle)
        room = np.einsum("kqi,ki->kq", wide, size)
        falls = slope + room < 0.0
    # a constraint that is not active anywhere in the box may rise
    falls[:, 1:] |= ~parts.near
    return np.asarray(falls.all(axis=1))


def down(parts: Parts) -> Array:
    """Return directions [K, n] that lead down in everything that counts, if there are some."""
    count, n = parts.low.shape
    unit = np.broadcast_to(np.eye(n), (count, n, n))
    # Rows: h_y, the gradients of g, and those of the bounds y_low - y <= 0 and y - y_high <= 0.
    vectors = np.concatenate([parts.middle, -unit, unit], axis=1)
    sizes = np.linalg.norm(vectors, axis=2)
    present = np.concatenate(
        [np.ones((count, 1), dtype=bool), parts.near, parts.low, parts.high], axis=1
    )
    vectors = vectors / np.where(sizes > 0.0, sizes, 1.0)[..., None]
    vectors = vectors * present[..., None]
    products = vectors @ vectors.transpose(0, 2, 1)
    # the direction along which all fall alike; where they depend on each other, by their shortest
    idle = np.where(present, 1e-9, 1.0)[..., None] * np.eye(present.shape[1])
    # Shares s with (V V^T) s = 1: then d = -V^T s has the same slope -1 along all of them.
    shares = np.linalg.solve(products + idle, present[..., None].astype(float))[..., 0]
    alike = np.einsum("kqr,kr->kq", products, shares)
    other = ~((alike > 0.5) | ~present).all(axis=1)
    if other.any():
        shares[other] = _shares(products[other], present[other])
    direction = -(shares[:, None, :] @ vectors)[:, 0]
    # bounds that are touched are not crossed, whatever rounding has left
    direction = np.where(parts.low, np.maximum(direction, 0.0), direction)
    return np.where(parts.high, np.minimum(direction, 0.0), direction)


def _shares(products: Array, present: Flags) -> Array:
    """Return the shares [K, q] of unit vectors in the shortest one between them.

    By Frank and Wolfe's method, until all have half of its length along it, which is enough.
    """
    count, q = present.shape
    shares, along = np.zeros((count, q)), products[:, 0].copy()
    shares[:, 0] = 1.0
    left = np.flatnonzero(np.ones(count))
    turn = 0
    while left.size and turn < TURNS:
        here = along[left]
        j = np.argmin(np.where(present[left], here, np.inf), axis=1)
        rows = np.arange(len(left))
        least, square = here[rows, j], np.einsum("kq,kq->k", shares[left], here)
        # Along the shortest vector between them all have at least its length squared; half of
        # that is enough to fall along all.
        going = (least < 0.5 * square) & (square > SHORT)
        left, j, least, square = left[going], j[going], least[going], square[going]
        # the shortest point between the vector so far and the worst one, which has length 1
        step = (square - least) / (square - 2.0 * least + 1.0)
        step = np.clip(step, 0.0, 1.0)
        shares[left] *= 1.0 - step[:, None]
        shares[left, j] += step
        along[left] = along[left] * (1.0 - step[:, None]) + step[:, None] * products[left, j]
        turn += 1
    return shares


def second_order_excluded(parts: Parts, looked_at: Flags) -> Flags:
    """Return which boxes have no minimiser by the signs of multipliers, or negative curvature."""
    gone = np.zeros(len(parts.boxes), dtype=bool)
    for k in np.flatnonzero(looked_at & parts.smooth).tolist():
        held = Held.of(parts, k)
        if held is None:
            continue
        # First order: h_y + sum l g_y = 0 with l >= 0. A multiplier that is negative everywhere
        # leaves no such point in the box.
        if (held.high < 0.0).any():
            gone[k] = True
        # All surely active: then h + l g must not fall along the constraints (second order).
        elif (held.low > 0.0).all():
            gone[k] = _bendsdown(parts, k, held)
    return gone


@dataclass(frozen=True, eq=False)
class Held:
    """Constraints that may be active in a box, and enclosures of their multipliers.

    Attributes
    ----------
    which : array of int [a]
        Numbers: of g from 0 on; then lower bounds, and upper ones.
    rows, radius : array [a, n]
        Their gradients.
    inverse : array [a, n]
        About the inverse of the transposed rows.
    rest : array [a, a]
        How far their product is from the identity.
    low, high : array [a]
        Bounds of the multipliers: everywhere in the box where the first order conditions hold.
    """

    which: npt.NDArray[np.intp]
    rows: Array
    radius: Array
    inverse: Array
    rest: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, parts: Parts, k: int) -> Held | None:
        """Return those of one box; None if their gradients may depend on each other."""
        n = parts.low.shape[1]
        present = np.concatenate([parts.near[k], parts.low[k], parts.high[k]])
        which = np.flatnonzero(present)
        # More than n gradients in n dimensions depend on each other: multipliers are not unique.
        if len(which) > n:
            return None
        unit, zero = np.eye(n), np.zeros((2 * n, n))
        rows = np.concatenate([parts.middle[k, 1:], -unit, unit])[which]
        radius = np.concatenate([parts.radius[k, 1:], zero])[which]
        if not np.isfinite(radius).all() or not np.isfinite(parts.radius[k, 0]).all():
            return None
        if not len(which):
            nothing = np.zeros(0)
            return cls(which, rows, radius, rows, np.zeros((0, 0)), nothing, nothing)
        inverse: Array = np.asarray(np.linalg.pinv(rows.T), dtype=float)
        size = np.abs(inverse)
        error = np.abs(inverse @ rows.T - np.eye(len(which)))
        # |I - inverse G^T| over the whole box: by the radius of G, and by what rounding has left
        # of the product. It is of use only while its row sums are below 1.
        rest = (size @ radius.T + error + MARGIN * (size @ np.abs(rows.T))) * (1.0 + MARGIN)
        # G^T l = -h_y, solved with the approximate inverse
        middle = -inverse @ parts.middle[k, 0]
        away = size @ (parts.radius[k, 0] + MARGIN * np.abs(parts.middle[k, 0])) * (1.0 + MARGIN)
        # l = middle +- (away + rest |l|), so that l is within these
        around = bounded_by(rest, (away + rest @ np.abs(middle)) * (1.0 + MARGIN))
        if around is None:
            return None
        low, high = np.nextafter(middle - around, -np.inf), np.nextafter(middle + around, np.inf)
        return cls(which, rows, radius, inverse, rest, low, high)

    def curvature(self, parts: Parts, k: int) -> tuple[Array, Array]:
        """Return the middle and the radius of the Hessian of h + l g."""
        assert parts.hessian is not None
        assert parts.hessian_radius is not None
        middle, radius = parts.hessian[k, 0].copy(), parts.hessian_radius[k, 0].copy()
        sizes = np.abs(middle)
        for number, low, high in zip(self.which, self.low, self.high, strict=True):
            if number >= parts.near.shape[1]:
                continue
            of_g, of_g_radius = parts.hessian[k, 1 + number], parts.hessian_radius[k, 1 + number]
            # l >= 0 at a minimiser, so the part below 0 is cut off
            multiplier, around = 0.5 * (max(low, 0.0) + high), 0.5 * (high - max(low, 0.0))
            middle += multiplier * of_g
            sizes += abs(multiplier) * (np.abs(of_g) + of_g_radius)
            radius += abs(multiplier) * of_g_radius + around * (np.abs(of_g) + of_g_radius)
        return middle, (radius + 2.0 * MARGIN * sizes) * (1.0 + MARGIN)


def _bendsdown(parts: Parts, k: int, held: Held) -> bool:
    """Whether h + l g falls along the constraints to second order; all of them are active.

    From every y along w = x - rows^T u, where u is such that w is along the constraints at y.
    """
    middle, radius = held.curvature(parts, k)
    a = len(held.which)
    rows = held.rows
    # directions along all active constraints, in the middle of the box
    kernel = np.linalg.svd(rows)[2][a:].T if a else np.eye(len(middle))
    if not kernel.shape[1]:
        return False
    # the direction in which the curvature is least
    lowest = kernel @ np.linalg.eigh(kernel.T @ middle @ kernel)[1][:, 0]
    off = np.zeros(len(middle))
    if a:
        # G(y) (x - inverse^T u) = 0: u = G x + (1 - G inverse^T) u
        start = (held.radius + MARGIN * np.abs(rows)) @ np.abs(lowest) + np.abs(rows @ lowest)
        u = bounded_by(held.rest.T, start * (1.0 + MARGIN))
        if u is None:
            return False
        off = np.abs(held.inverse).T @ u * (1.0 + MARGIN)
    size = np.abs(lowest) + off
    # w = x + e with |e| <= off: w^T H w differs from x^T H x by the terms in e and the radius of
    # H. Negative for all of them proves that there is no minimum.
    value = lowest @ middle @ lowest
    room = size @ radius @ size + off @ np.abs(middle) @ (2.0 * np.abs(lowest) + off)
    room += MARGIN * (np.abs(lowest) @ np.abs(middle) @ np.abs(lowest))
    return bool(value + room * (1.0 + MARGIN) < 0.0)


def bounded_by(rest: Array, start: Array) -> Array | None:
    """Return bounds v [a] of all numbers with |l| <= start + rest |l|, neither of them negative.

    Whatever rounding has made of v, it is one if start + rest v <= v: that is checked.  None if
    there are none, or they are not found.
    """
    if not np.abs(rest).sum(axis=1).max(initial=0.0) < 0.9:
        return None
    v: Array = np.asarray(np.linalg.solve(np.eye(len(rest)) - rest, start), dtype=float)
    v = v + GUARD * np.abs(v).max(initial=0.0)
    holds = (v >= 0.0) & ((start + rest @ np.abs(v)) * (1.0 + MARGIN) <= v)
    return v if holds.all() else None
