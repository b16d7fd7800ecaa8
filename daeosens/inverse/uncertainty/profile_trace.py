"""The course of one profile: J minimised over the others, followed to both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from daeosens.inverse.uncertainty.conditional_functional import ConditionalFunctional, reoptimize
from daeosens.petsc.vectors import Array

End: TypeAlias = Literal["crossed", "bound", "open", "failed"]
"""The threshold was crossed; a bound was met before; it stayed below; a solve failed."""

Point: TypeAlias = tuple[float, float, Array]
"""Value of the parameter, rise of J, the others."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Points and ends of a profile, in the optimiser's scale; as in ``Profile``."""

    x: Array
    rise: Array
    path: Array
    ends: tuple[float, float]
    status: tuple[End, End]
    notes: tuple[str, ...]


@dataclass
class ProfileTracer:
    """Follows one profile to both sides."""

    cut: ConditionalFunctional
    base: float
    height: float
    width: float
    points: int
    reach: float
    tolerance: float
    method: str | None
    max_iterations: int

    def trace(self) -> Trace:
        """Follow both sides."""
        origin: Point = (self.cut.origin, 0.0, self.cut.center)
        notes: list[str] = []
        below, above = (self._side(origin, sign, notes) for sign in (-1.0, 1.0))
        curve = sorted([origin, *below[0], *above[0]], key=lambda point: point[0])
        return Trace(
            np.array([point[0] for point in curve]),
            np.array([point[1] for point in curve]),
            np.array([np.insert(point[2], self.cut.index, point[0]) for point in curve]),
            (below[1], above[1]),
            (below[2], above[2]),
            tuple(notes),
        )

    def _side(self, origin: Point, sign: float, notes: list[str]) -> tuple[list[Point], float, End]:
        """Return the points to one side, where the interval ends there, and how."""
        # In the root of twice the rise a parabola is a straight line of slope 1 / standard error.
        target = math.sqrt(2.0 * self.height)
        step = self.width / self.points
        curve = [origin]
        limit = self.cut.limit(sign)
        failures = 0
        while True:
            last = curve[-1]
            x = last[0] + sign * step
            at_bound = sign * (x - limit) >= 0
            x = limit if at_bound else x
            # Already on the bound, below the threshold.
            if x == last[0]:
                return curve[1:], limit, "bound"
            point = self._at(x, self._guess(curve, x))
            if isinstance(point, str):
                failures += 1
                if failures > 4:
                    notes.append(f"{'above' if sign > 0 else 'below'} {last[0]:.5g}: {point}")
                    return curve[1:], math.nan, "failed"
                # Nearer to the last minimum, from which the others are found more easily.
                step *= 0.25
                continue
            curve.append(point)
            if point[1] >= self.height:
                end = self._refine(curve, notes)
                return curve[1:], end, "crossed"
            if at_bound:
                return curve[1:], limit, "bound"
            if abs(x - self.cut.origin) >= self.reach * self.width:
                return curve[1:], sign * math.inf, "open"
            # The step that would have climbed one point's share of the root, by the slope of the
            # last step; at most twice and at least a fifth as long as that.
            climb = _root(point) - _root(last)
            wanted = target / self.points * abs(x - last[0]) / climb if climb > 0 else math.inf
            step = min(max(wanted, 0.2 * step), 2.0 * step)

    def _refine(self, curve: list[Point], notes: list[str]) -> float:
        """Return where the rise reaches the threshold, between the last two points.

        The root of the rise is close to a straight line: regula falsi, with the stale side halved
        (the Illinois rule).  The points are added to the curve.
        """
        target = math.sqrt(2.0 * self.height)
        below, above = curve[-2], curve[-1]
        errors = [_root(below) - target, _root(above) - target]
        stale = 0
        while abs(above[0] - below[0]) > self.tolerance * self.width:
            # The zero of the secant through both ends.
            x = (below[0] * errors[1] - above[0] * errors[0]) / (errors[1] - errors[0])
            share = (x - below[0]) / (above[0] - below[0])
            point = self._at(x, below[2] + share * (above[2] - below[2]))
            if isinstance(point, str):
                notes.append(f"end interpolated: {point}")
                break
            curve.append(point)
            error = _root(point) - target
            if abs(error) <= 0.3 * self.tolerance * target:
                return point[0]
            if error < 0:
                below, errors[0] = point, error
                errors[1] *= 0.5 if stale < 0 else 1.0
                stale = -1
            else:
                above, errors[1] = point, error
                errors[0] *= 0.5 if stale > 0 else 1.0
                stale = 1
        # The interval is shorter than the tolerance: true errors again, since halved ones would
        # mislead a last interpolation.
        low, high = _root(below) - target, _root(above) - target
        return (below[0] * high - above[0] * low) / (high - low)

    def _guess(self, curve: list[Point], x: float) -> Array:
        """Extrapolate the others."""
        last = curve[-1]
        if len(curve) == 1:
            # At the estimate the quadratic model knows the direction of the path.
            return last[2] + self.cut.slope * (x - last[0])
        before = curve[-2]
        share = (x - last[0]) / (last[0] - before[0])
        return last[2] + share * (last[2] - before[2])

    def _at(self, x: float, others: Array) -> Point | str:
        """Return the profile at x, or why there is none."""
        optimum = reoptimize(
            self.cut,
            x,
            others,
            method=self.method,
            # In z the Hessian is about the identity, so that a gradient g leaves J too high by
            # g^2 / 2: 1e-8 of the height at most.
            gradient_tolerance=1e-4 * math.sqrt(self.height),
            max_iterations=self.max_iterations,
        )
        if isinstance(optimum, str):
            return optimum
        value, best = optimum
        return x, value - self.base, best


def _root(point: Point) -> float:
    """Return the root of twice the rise, which is the distance in standard errors."""
    return math.copysign(math.sqrt(2.0 * abs(point[1])), point[1])
