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

import numpy as np

from daeosens.errors import (
    InputError,
    is_one_of,
    is_real,
    is_whole,
    name_list,
    nearest,
    require,
    suggestion,
    together,
)
from daeosens.functional.functional import Functional, require_functional
from daeosens.functional.parameter import MOST_EXPONENT
from daeosens.inverse.identifiability import Scale
from daeosens.inverse.uncertainty.conditional_functional import ConditionalFunctional
from daeosens.inverse.uncertainty.covariance import Covariance
from daeosens.inverse.uncertainty.profile_trace import End, ProfileTracer
from daeosens.optimize.methods import METHODS, listed
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import MOST, Array, as_float, gather, scatter

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

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Stepping, fit
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> fitted = fit(decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1))
    >>> rate = fitted.profile(["rate"])["rate"]
    >>> rate.quadratic_is_poor, rate.status
    (False, ('crossed', 'crossed'))
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
        # d exp(x) = exp(x) dx
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
        # A bound cuts the interval, which says nothing about curvature; an open end misses by
        # infinity.
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
        return math.exp(min(x, MOST_EXPONENT)) if self.scale == "log" and x < math.inf else x


@dataclass(frozen=True, eq=False, repr=False)
class Profiles:
    """Profiles of several parameters; prints itself.

    Attributes
    ----------
    level : float
        Probability of the intervals.
    entries : tuple of Profile

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Stepping, fit
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> fitted = fit(decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1))
    >>> [round(end, 2) for end in fitted.profile(["rate"])["rate"].interval]
    [0.44, 0.57]
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


FINEST = 1e-10
"""Ends of intervals are not found closer than this part of their width: minima are no better."""


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
    each minimisation starts from the extrapolated path of the others.  So a profile follows the
    valley of the estimate: another one, in which J may be lower over there, is not looked for.

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
        TAO type; by default "lmvm", and "bqnls" where others are on bounds.
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

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.36], sigma=0.1)
    >>> rates = Parameters({"rate": Parameter(0.5, lower=0.1, upper=2.0)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), rates)
    >>> from daeosens import minimize
    >>> from daeosens.inverse import covariance
    >>> estimate = covariance(functional, minimize(functional, method="bnls").x)
    >>> profile(functional, estimate)["rate"]
    rate: 0.51083 in [0.33067, 0.7638]; by the curvature [0.3017, 0.71995]: quadratic ... POOR
    """
    require_functional(functional)
    agree(
        functional.comm,
        "profile",
        names=names,
        level=level,
        threshold=threshold,
        points=points,
        reach=reach,
        tolerance=tolerance,
        method=method,
        max_iterations=max_iterations,
    )
    require(estimate, Covariance, "estimate", "covariance(functional, x)")
    chosen = estimate.names if names is None else name_list(names, "profile names")
    complaints = [
        f'"{name}" is not a free parameter; expected: one of {", ".join(estimate.names)}'
        + suggestion(name, estimate.names)
        for name in chosen
        if name not in estimate.names
    ]
    if not (is_whole(points) and 1 <= points <= MOST):
        complaints.append(f"points = {points!r}; expected: at least 1")
    if not (is_real(reach) and 1.0 < as_float(reach) < math.inf):
        complaints.append(f"reach = {reach!r}; expected: more than 1")
    if not (is_real(tolerance) and FINEST <= tolerance < 1):
        complaints.append(f"tolerance = {tolerance!r}; expected: between {FINEST:g} and 1")
    if threshold is not None and not (is_real(threshold) and 0 < as_float(threshold) < math.inf):
        complaints.append(f"threshold = {threshold!r}; expected: a positive number")
    if not (is_whole(max_iterations) and 0 <= max_iterations <= MOST):
        complaints.append(f"max_iterations = {max_iterations!r}; expected: an integer >= 0")
    if method is not None and not is_one_of(method, *METHODS):
        complaints.append(f"unknown method {method!r}; expected: {listed(METHODS)}")
    if complaints:
        raise together(complaints, heading="profile")
    quantile = estimate.quantile(level)
    # J is a negative log-likelihood, so 2 (J - min J) is chi-square: half the squared quantile.
    height = 0.5 * quantile**2 if threshold is None else float(threshold)
    bounds = functional.bounds()
    start = scatter(estimate.x, functional.start())
    base, gradient = functional.value_and_gradient(start)
    slope = gather(gradient)
    limits = None if bounds is None else (gather(bounds[0]), gather(bounds[1]))
    # each parameter is a trace of its own: J minimised over the others, along the parameter
    entries: list[Profile] = []
    for name in chosen:
        i = estimate.names.index(name)
        cut = ConditionalFunctional(functional, estimate, i, limits)
        error = float(estimate.scaled_errors[i])
        # A threshold of the user's own belongs to sqrt(2 height) standard errors where J is a
        # parabola; with estimated noise it is that of the same quantile, see Fit.profile.
        by_height = threshold is not None and math.isinf(estimate.degrees_of_freedom)
        width = (math.sqrt(2.0 * height) if by_height else quantile) * error
        if width == 0.0:  # on a bound, from which J rises with its slope
            width = height / max(abs(float(slope[i])), 1e-300)
        tracer = ProfileTracer(
            cut, base, height, width, points, reach, tolerance, method, max_iterations
        )
        entries.append(_entry(name, estimate.scales[i], tracer))
    return Profiles(level, tuple(entries))


def _entry(name: str, scale: Scale, tracer: ProfileTracer) -> Profile:
    trace = tracer.trace()
    notes = trace.notes
    lowest = int(np.argmin(trace.rise))
    # Rounding and the tolerance of minimisations are far below a thousandth of the height.
    if trace.rise[lowest] < -1e-3 * tracer.height:
        x = float(trace.x[lowest])
        best = math.exp(x) if scale == "log" else x
        lower = (
            f"J is lower by {-trace.rise[lowest]:.3g} at {name} = {best:.5g}: the estimate is not "
            "the minimum; minimize again from there"
        )
        notes = (*notes, lower)
    return Profile(
        name,
        scale,
        tracer.cut.origin,
        trace.x,
        trace.rise,
        trace.path,
        tracer.height,
        tracer.width,
        trace.ends,
        trace.status,
        notes,
    )
