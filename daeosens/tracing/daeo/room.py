"""How much room constraints g(t, x, y, p) <= 0 leave for y, along a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize, nnls

from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.parts import MARGIN, Enclosures

THIN = 1e-6
"""Room counts as gone when it is so much smaller than it was at the start of the run."""

BUDGET = 4000
"""So many boxes may be looked at for the proof that there is no room."""


class Room:
    """Room of one run: the largest s for which some y in the box has all g <= -s, in their units.

    A feasible set that shrinks to a point takes its optimisers with it: their multipliers go to
    infinity, steps and regions of proof to zero.  So the run is ended just before, where it is
    proven that all but a millionth of the room of the start is gone.  What had no room at
    the start, like constraints that are equations, is not looked at.

    Parameters
    ----------
    at : Enclosures
        h and g at the start of the run.
    """

    def __init__(self, at: Enclosures) -> None:
        values = at.first(at.box[None]).value[0, 1:]
        range_ = values[:, 1] - values[:, 0]
        # each g in units of its own range over the box: how much one is missed by can be compared
        # then
        self._units: Array = np.where(np.isfinite(range_) & (range_ > 0.0), range_, 1.0)
        self._y: Array = at.box.mean(axis=1)
        self._at_start = self._largest(at)

    def check(self, t: float, x: Array, at: Enclosures) -> None:
        """Refuse to go on where nearly all of the room is gone.

        Raises
        ------
        SolveError
            No y satisfies the constraints, or will in a moment.
        """
        least = THIN * self._at_start
        if self._at_start > 0.0 and self._largest(at) < least and self._gone(at, least):
            raise SolveError(
                f"the constraints leave no room for y at t = {t:.9g}, x = {x}: the set of all y "
                f"with g <= 0 shrinks to the point y = {self._y}, or is empty",
                expected="constraints that leave room along the whole run",
                remedy="other constraints, parameters or initial states, or an event that ends the "
                "run before",
            )

    def _largest(self, at: Enclosures) -> float:
        """Return the room that sequential quadratic programming finds from the y of before."""
        low, high = at.box.T
        m = len(self._units)

        def lack(z: Array) -> tuple[Array, Array]:
            values, gradients = at.point(np.clip(z[:-1], low, high))
            return values[1:] / self._units, gradients[1:] / self._units[:, None]

        # minimise s with g / units <= s; the first s is one with which that is so
        start = np.append(self._y, lack(np.append(self._y, 0.0))[0].max())
        below: dict[str, Any] = {
            "type": "ineq",
            "fun": lambda z: z[-1] - lack(z)[0],
            "jac": lambda z: np.column_stack([-lack(z)[1], np.ones(m)]),
        }
        minimized: Any = minimize  # its types know no arrays of bounds
        result: Any = minimized(
            lambda z: z[-1],
            start,
            jac=lambda z: np.append(0.0 * z[:-1], 1.0),
            method="SLSQP",
            bounds=[*map(tuple, at.box), (None, None)],
            constraints=below,
            options={"ftol": 1e-14, "maxiter": 60},
        )
        y = np.clip(np.asarray(result.x[:-1], dtype=float), low, high)
        lacks = [float(lack(np.append(place, 0.0))[0].max()) for place in (self._y, y)]
        if lacks[1] < lacks[0]:
            self._y = y
        return -min(lacks)

    def _weights(self, at: Enclosures) -> Array:
        """Return weights of g, of sum 1, whose sum has hardly a slope where the room is largest."""
        values, gradients = at.point(self._y)
        lack, slopes = values[1:] / self._units, gradients[1:] / self._units[:, None]
        # Multipliers of min s, g / units <= s: they are not negative, add up to one (the last row,
        # which outweighs the others) and make the weighted gradient least.
        near = lack >= lack.max() - 1e-3
        size = 1e3 * (1.0 + np.abs(slopes).max())
        rows = np.vstack([slopes[near].T, np.full(int(near.sum()), size)])
        weights = np.zeros(len(lack))
        weights[near] = nnls(rows, np.append(0.0 * self._y, size))[0]
        return weights / self._units

    def _gone(self, at: Enclosures, least: float) -> bool:
        """Whether no y in the box has all g <= -least, in their units: that is proven by boxes.

        A box is done with where a g is above that, or a weighted sum of them; of two g with
        opposite slopes that is told of the sum at once, of each only in boxes as small as the room.
        """
        limit = -least * self._units
        weights = self._weights(at)
        of_sum = float(weights @ limit)
        todo, count = at.box[None], 0
        while len(todo):
            count += len(todo)
            if count > BUDGET:
                return False
            first = at.first(todo)
            first = first[(first.value[:, 1:, 0] <= limit).all(axis=1)]
            if not len(first.boxes):
                return True
            # values by the mean value theorem are off by the square of a box, others by its width
            second = at.second(first)
            values = second.value[:, 1:]
            if (values[..., 1] <= limit).all(axis=1).any():
                return False
            center = first.boxes.mean(axis=2)
            away = (first.boxes[..., 1] - first.boxes[..., 0]) * (0.5 + MARGIN)
            middle = at.first(np.stack([center, center], axis=-1)).value[:, 1:, 0]
            slope = np.abs(np.einsum("q,kqi->ki", weights, second.middle[:, 1:]))
            around = np.einsum("q,kqi->ki", weights, second.radius[:, 1:])
            # the sum at the middle, less what its slopes may make of it within half a width
            lowest = middle @ weights - ((slope + around) * away).sum(axis=1) * (1.0 + MARGIN)
            rounding = MARGIN * (np.abs(middle) @ weights)
            stay = (values[..., 0] <= limit).all(axis=1) & (lowest - rounding <= of_sum)
            boxes = first.boxes[stay]
            widest = np.argmax(boxes[..., 1] - boxes[..., 0], axis=1)
            # what is left is cut in two across its widest side
            rows, halfway = np.arange(len(boxes)), boxes.mean(axis=2)
            below, above = boxes.copy(), boxes.copy()
            below[rows, widest, 1] = above[rows, widest, 0] = halfway[rows, widest]
            todo = np.concatenate([below, above])
        return True
