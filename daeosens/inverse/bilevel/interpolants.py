"""Smooth functions through, or near, measurements of one quantity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy
from scipy.linalg import lapack
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr

from daeosens.errors import InputError, is_one_of
from daeosens.petsc.vectors import Array

# ``scipy.interpolate`` is imported where an interpolant is made: once it is, each evaluation of a
# callback with derivatives replaces calls of its classes, which is a quarter of the time

Kind: TypeAlias = Literal["cubic", "hermite", "pchip", "akima", "smooth", "gaussian"]

Interpolant: TypeAlias = Callable[..., Any]
"""``psi(t, nu)``: the value, or the derivative of order ``nu``, at times [Q]."""

FEWEST: dict[str, int] = {
    "cubic": 2,
    "hermite": 3,
    "pchip": 2,
    "akima": 3,
    "smooth": 5,
    "gaussian": 5,
}
"""How many different times each kind needs."""


def noise_level(times: Array, values: Array) -> float:
    """Return how far measurements [K] scatter about cubics through their neighbours; 0 if few.

    Through two on either side, so that little of what curves counts for noise; by the median, so
    that spikes do not.

    Source
    ------
    Gasser, Sroka, Jennen-Steinmetz, Biometrika 73, 1986, with cubics in the place of lines.

    Examples
    --------
    >>> t = np.linspace(0.0, 1.0, 401)
    >>> noise = np.random.default_rng(0).standard_normal(401)
    >>> round(noise_level(t, np.sin(t) + 0.1 * noise), 2)
    0.1
    """
    knots, inverse, counts = np.unique(times, return_inverse=True, return_counts=True)
    if len(knots) < FEWEST["smooth"]:
        return 0.0
    means = np.bincount(inverse, values) / counts
    around = np.arange(2, len(knots) - 2) + np.array([-2, -1, 1, 2])[:, None]
    offsets = knots[around] - knots[2:-2]
    gaps, size = -means[2:-2], np.ones(len(knots) - 4)
    for k in range(4):
        others = np.delete(offsets, k, axis=0)
        weight = np.prod(others / (others - offsets[k]), axis=0)  # Lagrange's, in the middle
        gaps = gaps + weight * means[around[k]]
        # the variance of a difference is that of its independent terms
        size += weight**2
    # of a normal distribution's quartile
    return 1.4826 * float(np.median(np.abs(gaps) / np.sqrt(size)))


def never_negative(values: Array, level: float) -> bool:
    """Whether measurements with this noise look like those of a quantity that is not negative.

    None is negative, or none by more than noise explains where it is small beside the spread.
    """
    lowest, spread = float(values.min()), float(np.std(values))
    return lowest >= 0.0 or (lowest > -4.0 * level and spread > 4.0 * level)


def above_zero(psi: Interpolant, floor: float) -> Interpolant:
    """Return a curve that stays at ``floor`` where psi is below, between exact measurements.

    Between measurements near zero, splines undershoot; many right-hand sides have a pole below
    zero, or a root.

    Examples
    --------
    >>> curve = above_zero(lambda t, nu=0: t if nu == 0 else np.ones_like(t), 0.5)
    >>> curve(np.array([-1.0, 2.0])), curve(np.array([-1.0, 2.0]), 1)
    (array([0.5, 2. ]), array([0., 1.]))
    """

    def curve(times: Array, nu: int = 0) -> Array:
        low = psi(times) < floor
        return np.where(low, floor if nu == 0 else 0.0, psi(times, nu))

    return curve


def expected_above_zero(psi: Interpolant, level: float) -> Interpolant:
    """Return what a quantity that is not negative is expected to be, where psi was measured.

    For noise of this level and nothing else known, the mean of the normal distribution about psi,
    cut off at zero: psi where that is well above the noise, 0.8 levels where it is zero, and
    positive however negative it is.  Smooth, with two derivatives.

    Source
    ------
    Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, 1994, section 13.10.1.

    Examples
    --------
    >>> curve = expected_above_zero(lambda t, nu=0: t if nu == 0 else np.ones_like(t), 0.1)
    >>> curve(np.array([-1.0, 0.0, 1.0])).round(4)
    array([0.0098, 0.0798, 1.    ])
    """

    def curve(times: Array, nu: int = 0) -> Array:
        # The mean of N(psi, level^2), cut off at zero, is level (z + phi(z)/Phi(z)); by
        # logarithms, since both vanish far below zero
        z = psi(times) / level
        hazard = np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
        if nu == 0:
            return level * (z + hazard)
        # hazard' = -hazard (z + hazard), of which both derivatives follow
        slope = 1.0 - hazard * (z + hazard)
        if nu == 1:
            return slope * psi(times, 1)
        bend = hazard * (z + hazard) ** 2 - hazard * slope
        return slope * psi(times, 2) + bend / level * psi(times, 1) ** 2

    return curve


def interpolant(times: Array, values: Array, kind: Kind = "cubic", name: str = "") -> Interpolant:
    """Return a smooth function of time from measurements; replicates are averaged first.

    Parameters
    ----------
    times : array [K]
        In ascending order.
    values : array [K]
        Without NaN.
    kind : "cubic", "hermite", "pchip", "akima", "smooth" or "gaussian"
        Through the data: the cubic spline (order four, oscillates at jumps), Hermite's cubic with
        the slopes of parabolas through three points, Akima's, and that of Fritsch and Carlson,
        which is monotone where the data are.  Near the data: the cubic smoothing spline with
        its parameter by generalised cross-validation, and the mean of a Gaussian process, its
        length and the level of the noise by what makes the data most likely.
    name : str
        Of the column, for messages.

    Raises
    ------
    InputError
        Too few different times, or another word.

    Source
    ------
    SciPy's ``interpolate``.

    Examples
    --------
    >>> t = np.linspace(0.0, 1.0, 11)
    >>> float(interpolant(t, np.sin(t))(0.55, 1).round(4)), float(np.cos(0.55).round(4))
    (0.8525, 0.8525)
    """
    if not is_one_of(kind, *FEWEST):
        raise InputError(
            f"interpolant = {kind!r}", expected=", ".join(f'"{word}"' for word in FEWEST)
        )
    knots, inverse, counts = np.unique(times, return_inverse=True, return_counts=True)
    if len(knots) < FEWEST[kind]:
        raise InputError(
            f'column "{name}" has measurements at {len(knots)} times',
            expected=f'at least {FEWEST[kind]} for interpolant="{kind}"',
            remedy="more samples, or another interpolant",
        )
    # splines want each time once; replicates weigh by their number where the curve is smoothed
    means = np.bincount(inverse, values) / counts
    if kind == "cubic":
        return scipy.interpolate.CubicSpline(knots, means)
    if kind == "pchip":
        return scipy.interpolate.PchipInterpolator(knots, means)
    if kind == "akima":
        return scipy.interpolate.Akima1DInterpolator(knots, means, extrapolate=True)
    if kind == "smooth":
        return smoothing_spline(knots, means, counts)
    if kind == "gaussian":
        return gaussian_process(knots, means, counts)
    slopes = np.gradient(means, knots, edge_order=2)
    return scipy.interpolate.CubicHermiteSpline(knots, means, slopes)


SMOOTHINGS = 40
"""Smoothing parameters that are tried, from the measurements themselves to a straight line."""

TINY = 1e-20
"""Of a complex step: its square is nothing beside one."""


def smoothing_spline(times: Array, means: Array, counts: npt.NDArray[np.int_]) -> Interpolant:
    """Return the cubic smoothing spline near means of measurements [K], so many each time.

    Its parameter is that of generalised cross-validation, sought on a logarithmic scale in units
    of the distances between times: the curve does not depend on the unit of time.  Of minima that
    are as good as each other it is the smoothest.

    Source
    ------
    Green, Silverman, Nonparametric Regression and Generalized Linear Models, 1994, sections 2.3
    (Reinsch's algorithm) and 3.3.

    Examples
    --------
    >>> t = np.linspace(0.0, 6.0, 61)
    >>> noisy = np.sin(t) + 0.1 * np.random.default_rng(1).standard_normal(61)
    >>> curve = smoothing_spline(t, noisy, np.ones(61, dtype=int))
    >>> bool(np.abs(curve(t) - np.sin(t)).max() < 0.1)
    True
    """
    gap = float(np.diff(times).mean())
    gaps, share, m = np.diff(times) / gap, 1.0 / counts, len(times) - 2
    left, right = 1.0 / gaps[:-1], 1.0 / gaps[1:]
    # what makes second differences of values, three entries in each column
    q = np.array([left, -left - right, right])
    # symmetric, of bandwidth two, by diagonals: the integral of the square of the second
    # derivative, and Q^T W^-1 Q
    roughness, misfit = np.zeros((3, m)), np.zeros((3, m))
    roughness[0], roughness[1, 1:] = (gaps[:-1] + gaps[1:]) / 3.0, gaps[1:-1] / 6.0
    for k in range(3):
        for row in range(k, 3):
            misfit[k, k:] += q[row, : m - k] * q[row - k, k:] * share[row : row + m - k]
    bends = q[0] * means[:-2] + q[1] * means[1:-1] + q[2] * means[2:]

    def at(logarithm: float) -> tuple[Array, float]:
        """Return what the curve leaves of the means [K], and the trace of what does so."""
        # trace(B (R + s B)^-1) is the derivative of log det(R + s B), here by a complex step
        smoothing = math.exp(logarithm) * (1.0 + 1j * TINY)
        both = roughness + smoothing * misfit
        bands = np.zeros((7, m), dtype=complex)
        for k in range(3):
            bands[4 - k, k:] = bands[4 + k, : m - k] = both[k, k:]
        factors, _, solution, _ = lapack.zgbsv(2, 2, bands, bends.astype(complex))
        trace = float(np.sum(factors[4].imag / factors[4].real)) / TINY
        weights, rest = smoothing.real * solution.real, np.zeros(len(means))
        for row in range(3):
            rest[row : row + m] += q[row] * weights
        return share * rest, trace

    def score(logarithm: float) -> float:
        rest, trace = at(logarithm)
        return float(rest @ (rest / share)) / trace**2

    tried: list[float] = np.linspace(
        math.log(1e-6), 4.0 * math.log(len(times)), SMOOTHINGS
    ).tolist()
    scores = np.array([np.inf, *map(score, tried), np.inf])
    lowest = (scores[1:-1] <= scores[:-2]) & (scores[1:-1] <= scores[2:])
    # few measurements often have a minimum near themselves besides: where scores differ by no more
    # than noise does, two deviations of a mean of squares, the smoothest curve is taken
    as_good = scores[1:-1] <= scores.min() * (1.0 + 2.0 * math.sqrt(2.0 / len(times)))
    k = int(np.flatnonzero(lowest & as_good)[-1])
    around = tried[max(k - 1, 0)], tried[min(k + 1, SMOOTHINGS - 1)]
    best = minimize_scalar(score, bounds=around, method="bounded").x
    return scipy.interpolate.CubicSpline(times, means - at(best)[0], bc_type="natural")


LENGTHS = 24
"""Correlation lengths that are tried, from the smallest gap to twice the span."""

LEAST_NOISE, MOST_NOISE = 1e-10, 1e3
"""Variances of the noise, in units of that of the process, between which it is sought."""


def gaussian_process(times: Array, means: Array, counts: npt.NDArray[np.int_]) -> Interpolant:
    """Return the mean of a Gaussian process given means of measurements [K], so many each time.

    Its covariance is Matern's of order 5/2, which has two derivatives; its own mean is a constant.
    That, both variances and the length are those under which the measurements are most likely.

    Source
    ------
    Rasmussen, Williams, Gaussian Processes for Machine Learning, 2006, equations 2.30, 2.45, 4.17.

    Examples
    --------
    >>> t = np.linspace(0.0, 6.0, 61)
    >>> noisy = np.sin(t) + 0.1 * np.random.default_rng(1).standard_normal(61)
    >>> curve = gaussian_process(t, noisy, np.ones(61, dtype=int))
    >>> bool(np.abs(curve(t) - np.sin(t)).max() < 0.1), bool(abs(curve(3.0, 1) + 0.99) < 0.2)
    (True, True)
    """
    weights = np.sqrt(counts)
    apart = times[:, None] - times

    def likelihood(length: float) -> tuple[float, float, Array]:
        """Return -2 log of the likelihood, the mean, and the coefficients of covariances [K]."""
        scaled = weights[:, None] * _matern(apart / length) * weights
        values, vectors = np.linalg.eigh(scaled)
        y, ones = vectors.T @ (weights * means), vectors.T @ weights

        def at(noise: float) -> tuple[float, float, Array]:
            # (S + noise)^-1 is diagonal here; the mean and the variance have closed forms
            spread = np.maximum(values, 0.0) + noise
            center = float((ones / spread) @ y / ((ones / spread) @ ones))
            gap = y - center * ones
            variance = max(float(gap @ (gap / spread)) / len(y), np.finfo(float).tiny)
            deviance = len(y) * np.log(variance) + float(np.log(spread).sum())
            return deviance, center, weights * (vectors @ (gap / spread))

        between = math.log(LEAST_NOISE), math.log(MOST_NOISE)
        best = minimize_scalar(lambda s: at(math.exp(s))[0], bounds=between, method="bounded")
        return at(math.exp(best.x))

    ends = float(np.diff(times).min()), 2.0 * float(times[-1] - times[0])
    tried: list[float] = np.geomspace(*ends, LENGTHS).tolist()
    k = int(np.argmin([likelihood(length)[0] for length in tried]))
    around = math.log(tried[max(k - 1, 0)]), math.log(tried[min(k + 1, LENGTHS - 1)])
    nearest = minimize_scalar(lambda s: likelihood(math.exp(s))[0], bounds=around, method="bounded")
    length = math.exp(nearest.x)
    _, center, coefficients = likelihood(length)

    def curve(t: Any, nu: int = 0) -> Any:
        distances = (np.asarray(t, dtype=float)[..., None] - times) / length
        return (center if nu == 0 else 0.0) + _matern(distances, nu) @ coefficients / length**nu

    return curve


def _matern(x: Array, nu: int = 0) -> Array:
    """Return the covariance of order 5/2 at distances in lengths, or its derivatives up to two."""
    a = np.sqrt(5.0) * np.abs(x)
    decay = np.exp(-a)
    if nu == 0:
        return (1.0 + a + a**2 / 3.0) * decay
    if nu == 1:
        return -5.0 / 3.0 * x * (1.0 + a) * decay
    return -5.0 / 3.0 * (1.0 + a - a**2) * decay
