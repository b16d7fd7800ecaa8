"""Interpolants of SciPy at arrays that carry derivatives, and at clocks."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens.problem.clock import Clock
from daeosens.problem.derivative_arrays.arrays import (
    DerivativeArray,
    admitted,
    note_whole,
    primal,
)
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError
from daeosens.problem.derivative_arrays.rules import varies
from daeosens.problem.interpolants import OTHERS, PIECEWISE, InterpolantCalls
from daeosens.problem.time_formulas import Lookup


def _piecewise(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of a piecewise polynomial, which knows its derivatives of all orders."""

    def call(self: Any, x: Any, nu: int = 0, *arguments: Any, **options: Any) -> Any:
        x = admitted(x)
        if not varies(x):
            return original(self, x, nu, *arguments, **options)
        knots = getattr(self, "x", getattr(self, "t", None))
        if knots is not None:
            note_whole(np.searchsorted(knots, primal(x)))
        value = call(self, x.value, nu, *arguments, **options)
        slope = call(self, x.value, nu + 1, *arguments, **options)
        # of several functions at once, their axes stand between those of x and the directions
        own = np.ndim(primal(slope)) - np.ndim(primal(x))
        slopes = x.slopes.reshape(*np.shape(primal(x)), *[1] * own, x.slopes.shape[-1])
        return DerivativeArray(value, slope[..., None] * slopes)

    return call


def _clocked(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return calls of an interpolant that note what it makes of a clock."""

    def call(self: Any, x: Any, *arguments: Any, **options: Any) -> Any:
        knots = getattr(self, "x", getattr(self, "t", None))
        if isinstance(x, Clock) and knots is not None and not (arguments or options):
            # the degree of a spline, and what interp1d was asked for
            bent = getattr(self, "k", None) == 1 or getattr(self, "_kind", None) == "linear"
            table = Lookup(lambda at: original(self, at), np.asarray(knots), id(self), bent=bent)
            return x.looked_up(table)
        return original(self, x, *arguments, **options)

    return call


def _refused(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, x: Any, *arguments: Any, **options: Any) -> Any:
        if varies(admitted(x)):
            raise DerivativeLostError(
                f"scipy.interpolate.{type(self).__name__}",
                "np.interp, scipy.interpolate.CubicSpline or PchipInterpolator",
            )
        return original(self, x, *arguments, **options)

    return call


WITH_DERIVATIVES = InterpolantCalls(
    dict.fromkeys(PIECEWISE, _piecewise) | dict.fromkeys(OTHERS, _refused)
)
OF_CLOCKS = InterpolantCalls(dict.fromkeys((*PIECEWISE, *OTHERS), _clocked))
