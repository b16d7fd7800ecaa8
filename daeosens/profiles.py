"""Profile likelihoods: how far each parameter can go when the others make the best of it.

The profile of a parameter is J minimised over all others, as a function of that one.  Where it has
risen by half the quantile of chi-square with one degree of freedom lies the end of the confidence
interval: right to second order where the covariance is only right to first, and independent of the
scale.  Where both agree, the quadratic (Laplace) approximation is good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from daeosens.arrays import Array, gather, scatter
from daeosens.errors import InputError, nearest, together
from daeosens.functional import Functional
from daeosens.identifiability import Scale
from daeosens.slices import Slice, reoptimize
from daeosens.uncertainty import Covariance

End: TypeAlias = Literal["crossed", "bound", "open", "failed"]
"""The threshold was crossed; a bound was met before; it stayed below; a solve failed."""

POOR = 0.1
"""The quadratic approximation is poor if it misses an end by more than this part of its reach."""


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """Profile of one parameter; prints itself.

    Attributes
    ----------
    name : str
    scale : str
        "linear" or "log": of ``x``.
    estimate : float
        In the optimiser's scale.
    x : array [N]
        Values of the parameter in the optimiser's scale, increasing.
    rise : array [N]
        J minus its minimum.
    path : array [N, k]
        All parameters, in the optimiser's scale.
    threshold : float
        The rise at which the interval ends.
    half_width : float
        Distance to either end by the covariance, in the optimiser's scale.
    ends : (float, float)
        The interval in the optimiser's scale; infinite where open, NaN where failed.
    status : (str, str)
        How either side ended.
    notes : tuple of str
        What has to be known.
    """

    name: str
    scale: Scale
    estimate: float
    x: Array
    rise: Array
    path: Array
    threshold: float
    half_width: float
    ends: tuple[float, float]
    status: tuple[End, End]
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> Array:
        """Values of the parameter [N] in its own unit."""
        return np.exp(self.x) if self.scale == "log" else self.x

    @property
    def interval(self) -> tuple[float, float]:
        """The interval in the parameter's own unit."""
        lower, upper = (self._unit(end) for end in self.ends)
        return lower, upper

    @property
    def quadratic_interval(self) -> tuple[float, float]:
        """The same from the curvature at the estimate alone."""
        ends = (self.estimate - self.half_width, self.estimate + self.half_width)
        return self._unit(ends[0]), self._unit(ends[1])

    @property
    def symmetric_interval(self) -> tuple[float, float]:
        """The quadratic interval in the parameter's own unit (delta method)."""
        center = self._unit(self.estimate)
        reach = self.half_width * (center if self.scale == "log" else 1.0)
        return center - reach, center + reach

    @property
    def mismatch(self) -> float:
        """By how much the quadratic approximation misses an end, as part of its half width.

        Infinite where an end is open or unknown; bounds are no fault of the approximation.
        """
        return self._miss(self.ends, self.estimate, self.half_width)

    @property
    def symmetric_mismatch(self) -> float:
        """The same for the symmetric interval in the parameter's own unit."""
        center = self._unit(self.estimate)
        return self._miss(self.interval, center, self.symmetric_interval[1] - center)

    @property
    def quadratic_is_poor(self) -> bool:
        """Whether the quadratic approximation misleads."""
        return self.mismatch > POOR

    def __repr__(self) -> str:
        """Return the interval beside the quadratic one, and the notes."""
        lower, upper = self.quadratic_interval
        verdict = "quadratic approximation POOR" if self.quadratic_is_poor else "quadratic good"
        line = (
            f"{self.name}: {self._unit(self.estimate):.5g} in {self._words()}; by the curvature "
            f"[{lower:.5g}, {upper:.5g}]: {verdict}"
        )
        return "\n".join([line, *(f"  {note}" for note in self.notes)])

    def _miss(self, ends: tuple[float, float], center: float, reach: float) -> float:
        misses = [
            abs(abs(end - center) / reach - 1.0) if how == "crossed" else math.inf
            for end, how in zip(ends, self.status, strict=True)
            if how != "bound"
        ]
        return max(misses, default=0.0)

    def _words(self) -> str:
        lower, upper = self.interval
        low, high = self.status
        below = {"open": "(not bounded below", "failed": "(unknown"}.get(low, f"[{lower:.5g}")
        above = {"open": "not bounded above)", "failed": "unknown)"}.get(high, f"{upper:.5g}]")
        return f"{below}, {above}"

    def _unit(self, x: float) -> float:
        return math.exp(min(x, 700.0)) if self.scale == "log" and x < math.inf else x


@dataclass(frozen=True, eq=False, repr=False)
class Profiles:
    """Profiles of several parameters; prints itself.

    Attributes
    ----------
    level : float
        Probability of the intervals.
    entries : tuple of Profile
    """

    level: float
    entries: tuple[Profile, ...]

    def __getitem__(self, name: str) -> Profile:
        """Return the profile of one parameter."""
        names = [entry.name for entry in self.entries]
        if name not in names:
            raise InputError(
                f'no profile of "{name}"',
                expected=f"one of {', '.join(names)}",
                remedy=nearest(name, names),
            )
        return self.entries[names.index(name)]

    def __repr__(self) -> str:
        """Return one paragraph a parameter."""
        heading = f"profile likelihoods, {100 * self.level:g} % intervals"
        return "\n".join([heading, *(repr(entry) for entry in self.entries)])


def profile(
    functional: Functional,
    estimate: Covariance,
    names: Sequence[str] | None = None,
    *,
    level: float = 0.95,
    threshold: float | None = None,
    points: int = 5,
    reach: float = 10.0,
    tolerance: float = 1e-3,
    method: str | None = None,
    max_iterations: int = 200,
) -> Profiles:
    """Return the profile likelihoods of some parameters.  Collective.

    The steps follow the curvature of the profile, so that J rises evenly in the root of its rise;
    each minimisation starts from the extrapolated path of the others.

    Parameters
    ----------
    functional : Functional
        J, a negative log-likelihood up to a constant.
    estimate : Covariance
        Of its minimum, from ``covariance``.
    names : sequence of str, optional
        Which parameters; all by default.
    level : float
        Probability of the intervals.
    threshold : float, optional
        Rise of J at the ends.  By default half the squared quantile of ``estimate``: chi-square
        with one degree of freedom over two; where the noise level was estimated (and J is in its
        units), F with (1, degrees of freedom) over two.
    points : int
        Points on either side, about.
    reach : float
        An end that is not met within so many half widths of the quadratic interval is open.
    tolerance : float
        Of the ends, as part of the half width.
    method : str, optional
        TAO type; "lmvm", or with bounds "bqnls".
    max_iterations : int
        In each minimisation.

    Returns
    -------
    Profiles

    Raises
    ------
    InputError
        Unknown names (the nearest is named) or bad numbers.

    Source
    ------
    Venzon and Moolgavkar, J. R. Stat. Soc. C 37(1), 1988; Bates and Watts, Nonlinear Regression
    Analysis and Its Applications, 1988, section 6.1 (the root of the rise).
    """
    chosen = estimate.names if names is None else tuple(names)
    complaints = [
        f'"{name}" is not a free parameter; try: {nearest(name, estimate.names)}'
        for name in chosen
        if name not in estimate.names
    ]
    if points < 1:
        complaints.append(f"points = {points}; expected: at least 1")
    if not reach > 1:
        complaints.append(f"reach = {reach:g}; expected: more than 1")
    if not 0 < tolerance < 1:
        complaints.append(f"tolerance = {tolerance:g}; expected: between 0 and 1")
    if threshold is not None and not threshold > 0:
        complaints.append(f"threshold = {threshold:g}; expected: a positive number")
    if complaints:
        raise together(complaints, heading="profile")
    quantile = estimate.quantile(level)
    height = 0.5 * quantile**2 if threshold is None else threshold
    bounds = functional.bounds()
    kind = method or ("lmvm" if bounds is None else "bqnls")
    start = scatter(estimate.x, functional.start())
    base, gradient = functional.value_and_gradient(start)
    slope = gather(gradient)
    limits = None if bounds is None else (gather(bounds[0]), gather(bounds[1]))
    entries: list[Profile] = []
    for name in chosen:
        i = estimate.names.index(name)
        cut = Slice(functional, estimate, i, limits)
        error = float(estimate.scaled_errors[i])
        given = threshold is not None and math.isinf(estimate.degrees_of_freedom)
        width = (math.sqrt(2.0 * height) if given else quantile) * error
        if width == 0.0:  # on a bound, from which J rises with its slope
            width = height / max(abs(float(slope[i])), 1e-300)
        tracer = _Tracer(cut, base, height, width, points, reach, tolerance, kind, max_iterations)
        entries.append(tracer.trace(name, estimate.scales[i]))
    return Profiles(level, tuple(entries))


@dataclass
class _Tracer:
    """Follows one profile to both sides."""

    cut: Slice
    base: float
    height: float
    width: float
    points: int
    reach: float
    tolerance: float
    method: str
    max_iterations: int

    def trace(self, name: str, scale: Scale) -> Profile:
        origin = (self.cut.origin, 0.0, self.cut.center)
        self.notes: list[str] = []
        sides = [self._side(origin, sign) for sign in (-1.0, 1.0)]
        curve = sorted([origin, *sides[0][0], *sides[1][0]], key=lambda point: point[0])
        lowest = min(curve, key=lambda point: point[1])
        if lowest[1] < -1e-3 * self.height:
            self.notes.append(
                f"J is lower by {-lowest[1]:.3g} at {name} = "
                f"{math.exp(lowest[0]) if scale == 'log' else lowest[0]:.5g}: the estimate is not "
                "the minimum; minimize again from there"
            )
        return Profile(
            name,
            scale,
            self.cut.origin,
            np.array([point[0] for point in curve]),
            np.array([point[1] for point in curve]),
            np.array([np.insert(point[2], self.cut.index, point[0]) for point in curve]),
            self.height,
            self.width,
            (sides[0][1], sides[1][1]),
            (sides[0][2], sides[1][2]),
            tuple(self.notes),
        )

    def _side(self, origin: _Point, sign: float) -> tuple[list[_Point], float, End]:
        """Return the points to one side, where the interval ends there, and how."""
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
            if x == last[0]:
                return curve[1:], limit, "bound"
            point = self._at(x, self._guess(curve, x))
            if isinstance(point, str):
                failures += 1
                if failures > 4:
                    self.notes.append(f"{'above' if sign > 0 else 'below'} {last[0]:.5g}: {point}")
                    return curve[1:], math.nan, "failed"
                step *= 0.25
                continue
            curve.append(point)
            if point[1] >= self.height:
                end = self._refine(curve)
                return curve[1:], end, "crossed"
            if at_bound:
                return curve[1:], limit, "bound"
            if abs(x - self.cut.origin) >= self.reach * self.width:
                return curve[1:], sign * math.inf, "open"
            climb = _root(point) - _root(last)
            wanted = target / self.points * abs(x - last[0]) / climb if climb > 0 else math.inf
            step = min(max(wanted, 0.2 * step), 2.0 * step)

    def _refine(self, curve: list[_Point]) -> float:
        """Return where the rise reaches the threshold, between the last two points.

        The root of the rise is close to a straight line: regula falsi, with the stale side halved
        (the Illinois rule).  The points are added to the curve.
        """
        target = math.sqrt(2.0 * self.height)
        below, above = curve[-2], curve[-1]
        errors = [_root(below) - target, _root(above) - target]
        stale = 0
        while abs(above[0] - below[0]) > self.tolerance * self.width:
            x = (below[0] * errors[1] - above[0] * errors[0]) / (errors[1] - errors[0])
            share = (x - below[0]) / (above[0] - below[0])
            point = self._at(x, below[2] + share * (above[2] - below[2]))
            if isinstance(point, str):
                self.notes.append(f"end interpolated: {point}")
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
        low, high = _root(below) - target, _root(above) - target
        return (below[0] * high - above[0] * low) / (high - low)

    def _guess(self, curve: list[_Point], x: float) -> Array:
        """Extrapolate the others."""
        last = curve[-1]
        if len(curve) == 1:
            return last[2] + self.cut.slope * (x - last[0])
        before = curve[-2]
        share = (x - last[0]) / (last[0] - before[0])
        return last[2] + share * (last[2] - before[2])

    def _at(self, x: float, others: Array) -> _Point | str:
        """Return the profile at x, or why there is none."""
        found = reoptimize(
            self.cut,
            x,
            others,
            method=self.method,
            gradient_tolerance=1e-4 * math.sqrt(self.height),
            max_iterations=self.max_iterations,
        )
        if isinstance(found, str):
            return found
        value, best = found
        return x, value - self.base, best


_Point: TypeAlias = tuple[float, float, Array]
"""Value of the parameter, rise of J, the others."""


def _root(point: _Point) -> float:
    """Return the root of twice the rise, which is the distance in standard errors."""
    return math.copysign(math.sqrt(2.0 * abs(point[1])), point[1])
