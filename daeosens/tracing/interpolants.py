"""Interpolants of SciPy at symbols: piecewise polynomials, written in NumPy."""

# what SciPy's objects hold is known at run time only
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens.problem.interpolants import OTHERS, Call, InterpolantCalls
from daeosens.tracing.source_location import untraceable
from daeosens.tracing.symbols import Symbol, as_symbol

REMEDY = "np.interp, CubicSpline, PchipInterpolator, make_interp_spline, or ODE(...), not traced"


def _of_pieces(interpolant: Any, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
    """Return the value of a ``PPoly``: CubicSpline, PchipInterpolator, Akima1DInterpolator."""
    pieces = interpolant.derivative(nu) if nu else interpolant
    outside = pieces.extrapolate if extrapolate is None else extrapolate
    if pieces.c.ndim == 3:  # of several functions at once, one after the other
        kind: Any = sys.modules["scipy.interpolate"].PPoly
        parts = [kind.construct_fast(c, pieces.x) for c in np.moveaxis(pieces.c, -1, 0)]
        return np.stack([_of_pieces(own, x, 0, outside) for own in parts], axis=-1)
    if pieces.c.ndim > 3:
        raise untraceable("an interpolant of a table of functions", "one for each of its rows")
    where: Any = np.where
    x, knots = as_symbol(x), pieces.x
    if outside == "periodic":
        x = knots[0] + (x - knots[0]) % (knots[-1] - knots[0])
    result: Any = None
    for k in reversed(range(len(knots) - 1)):
        value: Any = pieces.c[0, k] + 0.0 * x
        for coefficient in pieces.c[1:, k]:
            value = value * (x - knots[k]) + coefficient
        # the last piece goes on to the right, the first one to the left
        result = value if result is None else where(x < knots[k + 1], value, result)
    if outside:
        return result
    return where((x < knots[0]) | (x > knots[-1]), np.nan, result)


def _of_spline(spline: Any, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
    outside = spline.extrapolate if extrapolate is None else extrapolate
    if spline.c.ndim == 2:  # of several functions at once
        columns = np.ascontiguousarray(spline.c.T)
        parts = [type(spline).construct_fast(spline.t, own, spline.k, outside) for own in columns]
        return np.stack([_of_spline(own, x, nu) for own in parts], axis=-1)
    if spline.c.ndim > 2:
        raise untraceable("a spline of a table of functions", "one for each of its rows")
    return _of_pieces(_pieces(spline), x, nu, outside)


def _of_univariate(spline: Any, x: Any, nu: int = 0, ext: Any = None) -> Any:
    modes = {0: 0, "extrapolate": 0, 1: 1, "zeros": 1, 2: 2, "raise": 2, 3: 3, "const": 3}
    mode = modes[spline.ext if ext is None else ext]
    pieces = _pieces(spline._eval_args)
    first, last = pieces.x[0], pieces.x[-1]
    where: Any = np.where
    x = as_symbol(x)
    if mode == 3:
        x = where(x < first, first, where(x > last, last, x))
    result = _of_pieces(pieces, x, nu, extrapolate=True)
    # an error of SciPy's is NaN, which the run tells
    outside = {1: 0.0, 2: np.nan}.get(mode)
    return result if outside is None else where((x < first) | (x > last), outside, result)


def _of_older(interpolant: Any, x: Any) -> Any:
    """Return the value of an ``interp1d`` of straight lines."""
    kind = interpolant._kind
    if kind != "linear" or interpolant.y.ndim != 1:
        raise untraceable(f"interp1d, kind = {kind!r}", REMEDY)
    below, above = (np.ravel(interpolant.fill_value)[[0, -1]]).tolist()
    if interpolant.fill_value == "extrapolate":
        below = above = None
    elif interpolant.bounds_error:
        below = above = np.nan  # which the run tells, as SciPy would
    x, y, knots = as_symbol(x), interpolant.y, interpolant.x
    where: Any = np.where
    inside: Any = np.interp(x, knots, y, below, above)
    if interpolant.fill_value != "extrapolate":
        return inside
    slopes = np.diff(y)[[0, -1]] / np.diff(knots)[[0, -1]]
    left, right = y[0] + slopes[0] * (x - knots[0]), y[-1] + slopes[1] * (x - knots[-1])
    return where(x < knots[0], left, where(x > knots[-1], right, inside))


def _refused(interpolant: Any, *_arguments: Any, **_options: Any) -> Any:
    raise untraceable(f"scipy.interpolate.{type(interpolant).__name__}", REMEDY)


def _pieces(spline: Any) -> Any:
    polynomials: Any = sys.modules["scipy.interpolate"].PPoly
    pieces = polynomials.from_spline(spline)
    knots, degree = (spline.t, spline.k) if hasattr(spline, "t") else (spline[0], spline[2])
    # the knots at both ends, where some stand several times, are no places where it is known
    first, last = knots[degree], knots[len(knots) - degree - 1]
    kept = (np.diff(pieces.x) > 0.0) & (first <= pieces.x[:-1]) & (pieces.x[:-1] < last)
    return polynomials.construct_fast(
        pieces.c[:, kept], np.append(pieces.x[:-1][kept], last), pieces.extrapolate
    )


def _taking(rule: Call) -> Callable[[Call], Call]:
    """Return what replaces calls by a rule, where they are of symbols."""

    def replaced(original: Call) -> Call:
        def call(self: Any, x: Any, *arguments: Any, **options: Any) -> Any:
            taken = rule if isinstance(x, Symbol) else original
            return taken(self, x, *arguments, **options)

        return call

    return replaced


OF_SYMBOLS = InterpolantCalls(
    {
        "PPoly": _taking(_of_pieces),
        "BSpline": _taking(_of_spline),
        "UnivariateSpline": _taking(_of_univariate),
        **dict.fromkeys(OTHERS, _taking(_refused)),
        "interp1d": _taking(_of_older),
    }
)
