"""h and g over boxes of y: values, gradients and Hessians as middles and radii.

Functions are enclosed with outward rounding.  What is computed of enclosures is rounded as well: a
sum of k products, in whatever order, is off by at most k 1.2e-16 times the sum of their sizes, and
is widened by MARGIN times that; a single difference is moved to the next number.  With fewer than
4000 terms all of it is proven, but for sizes below 1e-290.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.intervals import IntervalFunction

MARGIN = 1e-12
"""For rounding in sums of less than 4000 terms, relative to their sizes."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Parts:
    """Boxes, and what h and g are over them.

    Attributes
    ----------
    boxes : array [K, n, 2]
    value : array [K, 1 + m, 2]
        h first, then g.
    middle, radius : array [K, 1 + m, n]
        Of their gradients; infinite radii where they are not continuous.
    low, high : array of bool [K, n]
        Which bounds a box touches: those of the whole box, or sides of a region.
    hessian, hessian_radius : array [K, 1 + m, n, n], optional
    """

    boxes: Array
    value: Array
    middle: Array
    radius: Array
    low: Flags
    high: Flags
    hessian: Array | None = None
    hessian_radius: Array | None = None

    def __getitem__(self, key: Any) -> Parts:
        """Return some of them."""
        return Parts(
            self.boxes[key],
            self.value[key],
            self.middle[key],
            self.radius[key],
            self.low[key],
            self.high[key],
            None if self.hessian is None else self.hessian[key],
            None if self.hessian_radius is None else self.hessian_radius[key],
        )

    @property
    def infeasible(self) -> Flags:
        """Which violate a constraint everywhere."""
        return np.asarray((self.value[:, 1:, 0] > 0.0).any(axis=1))

    @property
    def near(self) -> Flags:
        """Which g may be active [K, m]."""
        return np.asarray(~(self.value[:, 1:, 1] < 0.0))

    @property
    def smooth(self) -> Flags:
        """Of which all Hessians are bounded."""
        assert self.hessian_radius is not None
        return np.asarray(np.isfinite(self.hessian_radius).all(axis=(1, 2, 3)))


@dataclass(frozen=True, eq=False)
class Enclosures:
    """h and g at t, x and p, which are numbers or intervals.

    Attributes
    ----------
    functions : sequence of IntervalFunction
        h, and each of g.
    box : array [n, 2]
        The whole box.
    inputs : array [n_inputs, 2]
        t, x, (y) and p.
    """

    functions: Sequence[IntervalFunction]
    box: Array
    inputs: Array

    def _rows(self, boxes: Array) -> Array:
        rows = np.empty((len(boxes), *self.inputs.shape))
        rows[:] = self.inputs
        start = 1 + self.functions[0].n_x
        rows[:, start : start + boxes.shape[1]] = boxes
        return rows

    def first(self, boxes: Array, within: Array | None = None) -> Parts:
        """Return values and gradients over boxes [K, n, 2]; ``within`` has sides as well."""
        rows = self._rows(boxes)
        enclosures = [function.enclose(1, rows) for function in self.functions]
        values = np.stack([value for value, _ in enclosures], axis=1)
        broken = np.stack([flags != 0 for _, flags in enclosures], axis=1)
        # nothing is known where h may be undefined or not continuous
        values[broken] = -np.inf, np.inf
        middle, radius = _middle(values[:, :, 1:])
        ends = self.box if within is None else within
        low, high = (boxes[..., side] == ends[:, side] for side in range(2))
        return Parts(boxes, values[:, :, 0], middle, radius, low, high)

    def second(self, first: Parts) -> Parts:
        """Return Hessians too, and gradients and values that are narrower by them."""
        boxes, n = first.boxes, first.boxes.shape[1]
        rows = self._rows(boxes)
        i, j = np.tril_indices(n)
        hessian = np.empty((len(boxes), len(self.functions), n, n, 2))
        for k, function in enumerate(self.functions):
            values, flags = function.enclose(2, rows)
            values[flags != 0] = -np.inf, np.inf
            hessian[:, k, i, j] = hessian[:, k, j, i] = values[:, n:]
        middle, radius = _middle(hessian)
        center = boxes.mean(axis=2)
        away = np.maximum(boxes[..., 1] - center, center - boxes[..., 0]) * (1.0 + MARGIN)
        # Mean value form: g(y) is in g(c) + H (y - c) for all y of the box. It is narrower than
        # the plain enclosure once boxes are small; both hold, so their intersection does.
        at = self.first(np.stack([center, center], axis=-1))
        with np.errstate(invalid="ignore"):
            spread = at.radius + np.einsum("kqij,kj->kqi", np.abs(middle) + radius, away)
            spread = spread * (1.0 + MARGIN)
            low = np.maximum(_less(first.middle, first.radius), _less(at.middle, spread))
            # upper ends as lower ends of the negative, so that one function rounds down for both
            high = -np.maximum(_less(-first.middle, first.radius), _less(-at.middle, spread))
            gradient, narrow = _middle(np.stack([low, high], axis=-1))
            room = np.einsum("kqi,ki->kq", np.abs(gradient) + narrow, away) * (1.0 + MARGIN)
            value = np.stack(
                [
                    # fmax takes the number where the other is NaN, as infinite radii may leave it
                    np.fmax(first.value[..., 0], _less(at.value[..., 0], room)),
                    -np.fmax(-first.value[..., 1], _less(-at.value[..., 1], room)),
                ],
                axis=-1,
            )
        return Parts(boxes, value, gradient, narrow, first.low, first.high, middle, radius)

    def point(self, y: Array) -> tuple[Array, Array]:
        """Return h and g [1 + m] and their gradients [1 + m, n] at a point."""
        part = self.first(np.stack([y, y], axis=-1)[None])
        return part.value[0].mean(axis=1), part.middle[0]


def _less(minuend: Array, subtrahend: Array) -> Array:
    """Return a lower bound of a difference."""
    return np.nextafter(minuend - subtrahend, -np.inf)


def _middle(intervals: Array) -> tuple[Array, Array]:
    """Return middles and radii of intervals [..., 2]; radii are infinite of what is not bounded."""
    with np.errstate(invalid="ignore", over="ignore"):
        middle = 0.5 * (intervals[..., 0] + intervals[..., 1])
        radius = 0.5 * (intervals[..., 1] - intervals[..., 0])
        radius = radius + MARGIN * (np.abs(middle) + radius)
    # a middle of 0 and an infinite radius: products with them stay numbers or infinite
    bad = ~np.isfinite(radius)
    return np.where(bad, 0.0, middle), np.where(bad, np.inf, radius)
