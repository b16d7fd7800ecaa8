"""Smooth functions through, or near, measurements of one quantity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import interpolate

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array

Kind: TypeAlias = Literal["cubic", "hermite", "pchip", "akima", "smooth"]

Interpolant: TypeAlias = Callable[..., Any]
"""``psi(t, nu)``: the value, or the derivative of order ``nu``, at times [Q]."""

FEWEST: dict[str, int] = {"cubic": 2, "hermite": 3, "pchip": 2, "akima": 3, "smooth": 5}
"""How many different times each kind needs."""


def interpolant(times: Array, values: Array, kind: Kind = "cubic", name: str = "") -> Interpolant:
    """Return a smooth function of time from measurements; replicates are averaged first.

    Parameters
    ----------
    times : array [K]
        In ascending order.
    values : array [K]
        Without NaN.
    kind : "cubic", "hermite", "pchip", "akima" or "smooth"
        Through the data: the cubic spline (order four, oscillates at jumps), Hermite's cubic with
        the slopes of parabolas through three points, Akima's, and that of Fritsch and Carlson,
        which is monotone where the data are.  Near the data: the cubic smoothing spline with
        its parameter by generalised cross-validation.
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
    if kind not in FEWEST:
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
    means = np.bincount(inverse, values) / counts
    if kind == "cubic":
        return interpolate.CubicSpline(knots, means)
    if kind == "pchip":
        return interpolate.PchipInterpolator(knots, means)
    if kind == "akima":
        return interpolate.Akima1DInterpolator(knots, means, extrapolate=True)
    if kind == "smooth":
        return interpolate.make_smoothing_spline(knots, means, w=counts.astype(float))
    slopes = np.gradient(means, knots, edge_order=2)
    return interpolate.CubicHermiteSpline(knots, means, slopes)
