"""Elementwise functions of graphs, by NumPy's and SciPy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from daeosens.tracing.casadi import casadi

STEP = 2.0**40
"""Exponents in so many parts of one are cut off where their own derivative is not wanted."""


def _power(x: Any, y: Any) -> Any:
    """Return x^y, whose derivative in y is 0 at x = 0, where log(x) is not finite."""
    if y.is_constant():
        return casadi.power(x, y)
    nothing = x == 0
    held = casadi.floor(y * STEP) / STEP  # its derivative is zero
    at_zero = casadi.power(casadi.if_else(nothing, x, 1), held)
    return casadi.if_else(nothing, at_zero, casadi.power(casadi.if_else(nothing, 1, x), y))


def root(x: Any) -> Any:
    """Return the root of a sum of squares; like that of ``abs`` its derivative at 0 is 0."""
    return casadi.if_else(x == 0, 0, casadi.sqrt(casadi.if_else(x == 0, 1, x)))


def larger(x: Any, y: Any) -> Any:
    """Return the maximum; NaN if either is, as in NumPy."""
    if x.is_constant():
        return casadi.if_else(y <= x, x, y)
    if y.is_constant():
        return casadi.if_else(x < y, y, x)
    return casadi.if_else(x < y, y, casadi.if_else(y <= x, x, x + y))


def smaller(x: Any, y: Any) -> Any:
    """Return the minimum; NaN if either is, as in NumPy."""
    return -larger(-x, -y)


def _remainder(x: Any, y: Any) -> Any:
    """Return the remainder with the sign of y, without rounding, as in NumPy."""
    rest = casadi.fmod(x, y)
    opposite = casadi.logic_or(casadi.logic_and(rest < 0, y > 0), casadi.logic_and(rest > 0, y < 0))
    return casadi.if_else(opposite, rest + y, rest)


def _expit(x: Any) -> Any:
    """Return 1/(1 + exp(-x)) to full relative accuracy on both sides."""
    positive = x >= 0
    fall = casadi.exp(casadi.if_else(positive, -x, x))
    return casadi.if_else(positive, 1, fall) / (1 + fall)


def _cube_root(x: Any) -> Any:
    return casadi.sign(x) * casadi.fabs(x) ** (1.0 / 3.0)


def _exclusive_or(x: Any, y: Any) -> Any:
    return casadi.logic_and(x, y) != casadi.logic_or(x, y)


def _logaddexp(x: Any, y: Any) -> Any:
    first = x >= y
    return casadi.if_else(first, x, y) + casadi.log1p(
        casadi.exp(casadi.if_else(first, y - x, x - y))
    )


_TABLE: dict[Any, Any] = {
    np.add: lambda x, y: x + y,
    np.subtract: lambda x, y: x - y,
    np.multiply: lambda x, y: x * y,
    np.divide: lambda x, y: x / y,
    np.negative: lambda x: -x,
    np.positive: lambda x: x,
    np.power: _power,
    np.float_power: _power,
    np.square: lambda x: x * x,
    np.reciprocal: lambda x: 1.0 / x,
    np.sqrt: casadi.sqrt,
    np.cbrt: _cube_root,
    np.exp: casadi.exp,
    np.exp2: lambda x: casadi.exp(np.log(2.0) * x),
    np.expm1: casadi.expm1,
    np.log: casadi.log,
    np.log1p: casadi.log1p,
    np.log2: lambda x: casadi.log(x) / np.log(2.0),
    np.log10: casadi.log10,
    np.sin: casadi.sin,
    np.cos: casadi.cos,
    np.tan: casadi.tan,
    np.arcsin: casadi.asin,
    np.arccos: casadi.acos,
    np.arctan: casadi.atan,
    np.arctan2: casadi.atan2,
    np.hypot: lambda x, y: root(x * x + y * y),
    np.sinh: casadi.sinh,
    np.cosh: casadi.cosh,
    np.tanh: casadi.tanh,
    np.arcsinh: casadi.asinh,
    np.arccosh: casadi.acosh,
    np.arctanh: casadi.atanh,
    np.deg2rad: lambda x: x * (np.pi / 180.0),
    np.rad2deg: lambda x: x * (180.0 / np.pi),
    np.absolute: casadi.fabs,
    np.fabs: casadi.fabs,
    np.sign: casadi.sign,
    np.floor: casadi.floor,
    np.ceil: casadi.ceil,
    np.maximum: larger,
    np.fmax: casadi.fmax,
    np.minimum: smaller,
    np.fmin: casadi.fmin,
    np.fmod: casadi.fmod,
    np.remainder: _remainder,
    np.floor_divide: lambda x, y: casadi.floor((x - _remainder(x, y)) / y + 0.5),
    np.heaviside: lambda x, y: casadi.if_else(x == 0, y, 0.5 + 0.5 * casadi.sign(x)),
    np.less: lambda x, y: x < y,
    np.less_equal: lambda x, y: x <= y,
    np.greater: lambda x, y: x > y,
    np.greater_equal: lambda x, y: x >= y,
    np.equal: lambda x, y: x == y,
    np.not_equal: lambda x, y: x != y,
    np.logical_and: casadi.logic_and,
    np.logical_or: casadi.logic_or,
    np.logical_not: casadi.logic_not,
    np.bitwise_and: casadi.logic_and,
    np.bitwise_or: casadi.logic_or,
    np.invert: casadi.logic_not,
    np.logical_xor: _exclusive_or,
    np.bitwise_xor: _exclusive_or,
    np.trunc: lambda x: casadi.sign(x) * casadi.floor(casadi.fabs(x)),
    np.isnan: lambda x: casadi.logic_not(x <= np.inf),
    np.logaddexp: _logaddexp,
    special.log1p: casadi.log1p,
    special.expm1: casadi.expm1,
    special.exp10: lambda x: casadi.power(10.0, x),
    special.cbrt: _cube_root,
    special.logit: lambda x: casadi.log(x) - casadi.log1p(-x),
    special.erf: casadi.erf,
    special.expit: _expit,
}

UFUNCS: Mapping[Any, Callable[..., Any]] = _TABLE

_BITWISE = (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert)

LOGICAL = frozenset(
    {
        *(np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal),
        *(np.logical_and, np.logical_or, np.logical_not, np.logical_xor, np.isnan),
        *_BITWISE,
    }
)
"""Those whose results are true or false."""

_OF_LOGICAL: Mapping[Any, Any] = {
    np.add: np.logical_or,
    np.maximum: np.logical_or,
    np.multiply: np.logical_and,
    np.minimum: np.logical_and,
}


def of_kinds(ufunc: Any, logical: Sequence[bool]) -> Any:
    """Return what NumPy calculates by a ufunc of arguments that are true or false, or numbers.

    None where it refuses them.

    Examples
    --------
    >>> of_kinds(np.add, [True, True]), of_kinds(np.add, [True, False])
    (<ufunc 'logical_or'>, <ufunc 'add'>)
    """
    if all(logical):
        return None if ufunc in (np.subtract, np.negative) else _OF_LOGICAL.get(ufunc, ufunc)
    return None if ufunc in _BITWISE else ufunc
