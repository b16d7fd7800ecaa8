"""Test functions of the weak form: smooth, of compact support, as wide as the data are smooth."""

from __future__ import annotations

import numpy as np
from scipy.fft import dst

from daeosens.petsc.vectors import Array

STEEPNESS = 9.0
"""Of exp(-9 / (1 - s^2)), which is nearly a normal density of standard deviation 1/sqrt(18)."""

DEVIATIONS = 2.0
"""So many standard deviations of a test function's spectrum from zero noise takes over."""

FEWEST_GAPS = 3.0
"""Radius in mean distances between times, at least."""

WIDEST = 0.25
"""Radius as a part of the run, at most."""


def corner_frequency(times: Array, values: Array) -> float:
    """Return the angular frequency from which the spectrum of measurements [K] is that of noise.

    Two lines are fitted to the sum of amplitudes up to each frequency; it is where they meet.

    Examples
    --------
    >>> t = np.linspace(0.0, 10.0, 201)
    >>> noise = 0.05 * np.random.default_rng(0).standard_normal(201)
    >>> 3.0 < corner_frequency(t, np.sin(3.0 * t) + noise) < 5.0
    True
    """
    count, span = len(times), float(times[-1] - times[0])
    if count < 5:
        return np.pi / span
    share: Array = np.linspace(0.0, 1.0, count)
    even = np.array(np.interp(times[0] + span * share, times, values), dtype=float)
    # sines vanish at the ends, and so does what is left of the line through both
    rest = even - even[0] - (even[-1] - even[0]) * share
    amplitudes: Array = np.abs(dst(rest[1:-1], type=1))
    summed = np.cumsum(amplitudes)
    errors = [_off_line(summed[: k + 1]) + _off_line(summed[k:]) for k in range(1, len(summed) - 1)]
    return np.pi * (int(np.argmin(errors)) + 2) / span


def _off_line(values: Array) -> float:
    """Return the square of how far values are from the line between the first and the last."""
    return float(np.sum((values - np.linspace(values[0], values[-1], len(values))) ** 2))


def radius(times: Array, values: Array) -> float:
    """Return how far a test function reaches to either side, for measurements [K] at times.

    Its spectrum ends, but for a few per cent, where that of the measurements turns into noise.

    Source
    ------
    Messenger, Bortz, Multiscale Modeling & Simulation 19, 2021, and Journal of Computational
    Physics 443, 2021, section 4.4 (weak SINDy: the corner of the spectrum).

    Examples
    --------
    >>> t = np.linspace(0.0, 10.0, 201)
    >>> slow, fast = (radius(t, np.sin(k * t)) for k in (2.0, 8.0))
    >>> fast < slow <= 2.5
    True
    """
    span = float(times[-1] - times[0])
    wide = DEVIATIONS * np.sqrt(2.0 * STEEPNESS) / corner_frequency(times, values)
    least = FEWEST_GAPS * span / max(len(times) - 1, 1)
    return float(np.clip(wide, min(least, WIDEST * span), WIDEST * span))


def weak_operator(times: Array, values: Array) -> Array:
    """Return weights [J, K] that make of a function at times what -psi_j' integrates to.

    For ``int psi_j (f - x') dt = -int psi_j' (int f - x) dt``, where both parts have the same
    quadrature, and what a constant comes to is exactly zero.  Rows are of length one: residuals
    have the noise level of measurements.

    Parameters
    ----------
    times : array [K]
        In ascending order; replicates repeat.
    values : array [K]
        What was measured, which tells the radius.

    Source
    ------
    Messenger, Bortz, Multiscale Modeling & Simulation 19, 2021 (the weak form); Bortz, Messenger,
    Dukic, Bulletin of Mathematical Biology 85, 2023 (WENDy: these test functions).

    Examples
    --------
    >>> t = np.linspace(0.0, 10.0, 101)
    >>> weights = weak_operator(t, np.sin(t))
    >>> bool(np.abs(weights @ np.ones(101)).max() < 1e-15)
    True
    """
    knots, inverse, counts = np.unique(times, return_inverse=True, return_counts=True)
    if len(knots) < 2:
        return np.zeros((0, len(times)))
    means = np.bincount(inverse, values) / counts
    reach = radius(knots, means)
    inside = (knots >= knots[0] + reach) & (knots <= knots[-1] - reach)
    centers = knots[inside] if inside.any() else np.array([0.5 * (knots[0] + knots[-1])])
    s = (times - centers[:, None]) / reach
    room = np.maximum(1.0 - s**2, 1e-3)  # where the exponential is zero to rounding
    slopes = -2.0 * STEEPNESS * s / room**2 * np.exp(STEEPNESS * (1.0 - 1.0 / room))
    gaps = np.diff(knots)
    trapezoids = 0.5 * (np.append(gaps, 0.0) + np.append(0.0, gaps))
    share = (trapezoids / counts)[inverse]  # replicates share the weight of their time
    weights = -slopes * share
    # the integral of psi' is zero, its quadrature only nearly so
    weights -= weights.sum(axis=1, keepdims=True) / share.sum() * share
    lengths = np.linalg.norm(weights, axis=1, keepdims=True)
    return weights / np.where(lengths > 0.0, lengths, 1.0)
