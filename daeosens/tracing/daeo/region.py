"""Regions of y in which exactly one minimiser is: proof that there is one, and no other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.exclusion import Held, down, excluded
from daeosens.tracing.daeo.parts import MARGIN, Enclosures, Parts

PIECES = 200
"""So many parts of the surface of a region are looked at."""


@dataclass(frozen=True, eq=False)
class Region:
    """Regions about a point in which there may be one minimiser.

    Attributes
    ----------
    at : Enclosures
    y : array [n]
        About where it is.
    """

    at: Enclosures
    y: Array

    def about(self, factor: float) -> Array:
        """Return a region [n, 2] that is so large, relative to the box."""
        width = self.at.box[:, 1] - self.at.box[:, 0]
        low, high = self.y - factor * width, self.y + factor * width
        return np.stack(
            [np.maximum(low, self.at.box[:, 0]), np.minimum(high, self.at.box[:, 1])], axis=1
        )

    def alone(self, region: Array) -> bool:
        """Whether there is exactly one minimiser in a region."""
        parts = self.at.second(self.at.first(region[None]))
        return (
            bool(parts.smooth[0])
            and _at_most_one(parts)
            and self._some_feasible(region)
            and self._none_on_sides(region)
        )

    def _some_feasible(self, region: Array) -> bool:
        """Whether some point of a region satisfies all constraints."""
        part = self.at.first(np.stack([self.y, self.y], axis=-1)[None])
        # The point itself may miss active constraints by rounding: little ways inwards as well.
        ways = np.concatenate([np.zeros(1), 10.0 ** np.arange(-9.0, 0.0)])
        direction = _inwards(part)
        length = np.abs(direction).max()
        scale = (region[:, 1] - region[:, 0]).min() / (length if length > 0.0 else 1.0)
        points = self.y + ways[:, None] * scale * direction
        points = np.clip(points, region[:, 0], region[:, 1])
        values = self.at.first(np.stack([points, points], axis=-1)).value[:, 1:, 1]
        return bool((values <= 0.0).all(axis=1).any())

    def _none_on_sides(self, region: Array) -> bool:
        """Whether no minimiser over a region is on sides of it that are inside of the box."""
        todo: list[Array] = []
        for i in range(len(region)):
            for side in range(2):
                # A side that is one of the whole box is a bound, at which a minimiser may be.
                if region[i, side] != self.at.box[i, side]:
                    face = region.copy()
                    face[i] = region[i, side]
                    todo.append(face)
        count = 0
        while todo:
            count += len(todo)
            if count > PIECES:
                return False
            boxes = np.array(todo)
            first = self.at.first(boxes, region)
            # first order is cheap; Hessians are evaluated only where it does not decide
            stay = ~(first.infeasible | excluded(first))
            if stay.any():
                second = self.at.second(first[stay])
                gone = second.infeasible | excluded(second)
                boxes = boxes[stay][~gone]
            else:
                boxes = boxes[:0]
            todo = [half for box in boxes for half in _halves(box)]
        return True


def _inwards(part: Parts) -> Array:
    """Return a direction [n] from a point to where constraints are satisfied, not regarding h."""
    near = part.value[:, 1:, 1] >= -1e-6 * (1.0 + np.abs(part.value[:, 1:, 1]))
    rows = part.middle[0, 1:][near[0]]
    if not len(rows):
        return 0.0 * part.middle[0, 0]
    value = np.zeros((1, len(rows), 2))
    gradients = Parts(part.boxes, value, rows[None], 0.0 * rows[None], part.low, part.high)
    return down(gradients)[0]


def _at_most_one(parts: Parts) -> bool:
    """Whether a region has at most one minimiser: h + l g + r/2 g^2 is convex in it.

    For all l that there may be, with r of constraints that are surely active.  Of two minimisers
    each would then be lower than the other one.
    """
    held = Held.of(parts, 0)
    # the multipliers must be bounded, and none of them surely negative
    if held is None or (held.high < 0.0).any():
        return False
    middle, radius = held.curvature(parts, 0)
    if _definite(middle, radius):
        return True
    sure, m = held.low > 0.0, parts.near.shape[1]
    size = 1.0 + np.linalg.norm(middle)
    # The penalty r/2 g^2 adds curvature across constraints that are surely active, where h + l g
    # itself may bend down; it vanishes on them. Two strengths, as too large a one makes rounding
    # and the terms with g_yy large.
    for strength in (1.0, 10.0):
        more, more_radius = middle.copy(), radius.copy()
        for k in np.flatnonzero(sure).tolist():
            row, around = held.rows[k], held.radius[k]
            penalty = strength * size / (row @ row)
            more += penalty * np.outer(row, row)
            more_radius += 4.0 * MARGIN * penalty * np.outer(np.abs(row), np.abs(row))
            cross = np.outer(np.abs(row), around)
            more_radius += penalty * (cross + cross.T + np.outer(around, around))
            if held.which[k] < m:
                number = 1 + int(held.which[k])
                most = np.abs(parts.value[0, number]).max()
                assert parts.hessian is not None
                assert parts.hessian_radius is not None
                # (r/2 g^2)_yy = r (g_y g_y^T + g g_yy); of the last only the size is known
                bent = np.abs(parts.hessian[0, number]) + parts.hessian_radius[0, number]
                more_radius += penalty * most * bent
        if _definite(more, more_radius):
            return True
    return False


def _definite(middle: Array, radius: Array) -> bool:
    """Whether all symmetric matrices between are positive definite.

    They are if that is true of the middle less the sums of rows of the radius on the diagonal, as
    2 |a b| <= a^2 + b^2.  That is proven by a Cholesky factorisation of a little less, whatever
    it rounds (Rump, BIT 46, 2006).
    """
    if not np.isfinite(radius).all():
        return False
    less = radius.sum(axis=1) * (1.0 + MARGIN) + MARGIN * np.abs(np.diag(middle)).sum()
    try:
        np.linalg.cholesky(middle - np.diag(less))
    except np.linalg.LinAlgError:
        return False
    return True


def _halves(box: Array) -> list[Array]:
    """Return the halves of a box along its longest side; none of a point."""
    i = int(np.argmax(box[:, 1] - box[:, 0]))
    middle = 0.5 * (box[i, 0] + box[i, 1])
    if not box[i, 0] < middle < box[i, 1]:
        return [box, box]  # used up by the count
    low, high = box.copy(), box.copy()
    low[i, 1] = high[i, 0] = middle
    return [low, high]
