"""Interpolants of SciPy, which are objects of the user's and no functions of NumPy."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from daeosens.problem.clock import Clock, Lookup
from daeosens.problem.derivative_arrays.arrays import (
    DerivativeArray,
    admitted,
    note_whole,
    primal,
)
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError
from daeosens.problem.derivative_arrays.rules import varies

PIECEWISE = ("PPoly", "BSpline", "UnivariateSpline")
"""What is called with a point and the order of a derivative; others inherit from these."""

UNKNOWN = ("interp1d", "RegularGridInterpolator", "BarycentricInterpolator", "KroghInterpolator")


class Replaced(NamedTuple):
    """A class whose calls see derivatives while a callback is at work."""

    kind: Any
    original: Callable[..., Any]
    rule: Callable[..., Any]


def interpolants() -> tuple[Replaced, ...]:
    """Return SciPy's classes, if anybody has imported them."""
    return _replaced() if "scipy.interpolate" in sys.modules else ()


@cache
def _replaced() -> tuple[Replaced, ...]:
    module: Any = sys.modules["scipy.interpolate"]
    rules = dict.fromkeys(PIECEWISE, _piecewise) | dict.fromkeys(UNKNOWN, _refused)
    kinds = [(getattr(module, name, None), rule) for name, rule in rules.items()]
    return tuple(Replaced(kind, kind.__call__, rule(kind.__call__)) for kind, rule in kinds if kind)


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


def clocked(original: Callable[..., Any]) -> Callable[..., Any]:
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
