"""Polynomials through values, and slopes, of a function of one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interpolant:
    """A polynomial in Newton's form: sum of c_k (x - x_0) ... (x - x_(k-1)).

    Attributes
    ----------
    nodes : tuple of float
        The x_k; one given with its slope stands twice.
    coefficients : tuple of float
        Divided differences c_k, as many as nodes.

    Examples
    --------
    >>> parabola = interpolate([(0.0, 1.0, -2.0), (1.0, 1.0, None)])
    >>> parabola.at(2.0), parabola.extrema()
    ((5.0, 6.0), [0.5])
    """

    nodes: tuple[float, ...]
    coefficients: tuple[float, ...]

    def at(self, x: float) -> tuple[float, float]:
        """Return the value and the derivative at x."""
        value = slope = 0.0
        for node, coefficient in zip(self.nodes[::-1], self.coefficients[::-1], strict=True):
            difference = x - node
            slope = slope * difference + value
            value = value * difference + coefficient
        return value, slope

    def extrema(self) -> list[float]:
        """Return where the derivative changes its sign strictly between 0 and 1, in order.

        Up to degree 3 all of them; beyond, those between which one of nine points lies.
        """
        first, last = self.at(0.0)[1], self.at(1.0)[1]
        if len(self.nodes) <= 3:
            return [first / (first - last)] if first * last < 0.0 else []
        if len(self.nodes) == 4:
            middle = self.at(0.5)[1]
            a, b = 2.0 * (first - 2.0 * middle + last), 4.0 * middle - 3.0 * first - last
            return _zeros(a, b, first)
        slopes = [first, *(self.at(0.125 * k)[1] for k in range(1, 8)), last]
        return [
            self._extremum(0.125 * k, 0.125 * (k + 1), slopes[k], slopes[k + 1])
            for k in range(8)
            if slopes[k] * slopes[k + 1] < 0.0
        ]

    def _extremum(self, low: float, high: float, at_low: float, at_high: float) -> float:
        """Return where the derivative is zero, by secants whose stale end is weighed by a half."""
        for _ in range(8):
            x = low - at_low * (high - low) / (at_high - at_low)
            slope = self.at(x)[1]
            if slope * at_low > 0.0:
                low, at_low, at_high = x, slope, 0.5 * at_high
            elif slope * at_high > 0.0:
                high, at_high, at_low = x, slope, 0.5 * at_low
            else:
                return x
        return low - at_low * (high - low) / (at_high - at_low)

    def root(self, low: float, high: float) -> float:
        """Return a zero between two points; the point nearer to zero if the signs do not differ."""
        at_low, at_high = self.at(low)[0], self.at(high)[0]
        if at_low * at_high >= 0.0:
            return low if abs(at_low) < abs(at_high) else high
        x = low - at_low * (high - low) / (at_high - at_low)
        for _ in range(100):
            value, slope = self.at(x)
            if value * at_low > 0.0:
                low = x
            else:
                high = x
            following = x - value / slope if slope else low
            if not low <= following <= high:
                following = 0.5 * (low + high)
            if (
                abs(following - x) <= 1e-8 * abs(x) or value == 0.0
            ):  # an error of its square is left
                return following
            x = following
        return x

    def deflated(self) -> Interpolant:
        """Return the polynomial divided by x - x_0, where x_0 is a zero."""
        return Interpolant(self.nodes[1:], self.coefficients[1:])

    def add(self, x: float, value: float) -> Interpolant:
        """Return the polynomial through one more point."""
        product = 1.0
        for node in self.nodes:
            product *= x - node
        coefficient = (value - self.at(x)[0]) / product
        return Interpolant((*self.nodes, x), (*self.coefficients, coefficient))


def interpolate(points: Sequence[tuple[float, float, float | None]]) -> Interpolant:
    """Return the polynomial through points (x, value, slope or None), in increasing order of x."""
    nodes: list[float] = []
    values: list[float] = []
    slopes: dict[float, float] = {}
    for x, value, slope in points:
        count = 1 if slope is None else 2
        nodes += [x] * count
        values += [value] * count
        if slope is not None:
            slopes[x] = slope
    column, coefficients = values, [values[0]]
    for order in range(1, len(nodes)):
        column = [
            slopes[nodes[k]]
            if nodes[k + order] == nodes[k]
            else (column[k + 1] - column[k]) / (nodes[k + order] - nodes[k])
            for k in range(len(column) - 1)
        ]
        coefficients.append(column[0])
    return Interpolant(tuple(nodes), tuple(coefficients))


def _zeros(a: float, b: float, c: float) -> list[float]:
    """Return the simple zeros of a x^2 + b x + c strictly between 0 and 1, in order."""
    discriminant = b * b - 4.0 * a * c
    if discriminant <= 0.0:
        return []
    q = -0.5 * (b + math.copysign(math.sqrt(discriminant), b))
    zeros = [q / a] if a else []
    zeros += [c / q] if q else []
    return sorted(x for x in zeros if 0.0 < x < 1.0)
