"""Elementwise functions of graphs, by NumPy's and SciPy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import special

from daeosens.tracing.library import casadi

_TABLE: dict[Any, Any] = {
    np.add: lambda x, y: x + y,
    np.subtract: lambda x, y: x - y,
    np.multiply: lambda x, y: x * y,
    np.divide: lambda x, y: x / y,
    np.negative: lambda x: -x,
    np.positive: lambda x: x,
    np.power: casadi.power,
    np.float_power: casadi.power,
    np.square: lambda x: x * x,
    np.reciprocal: lambda x: 1.0 / x,
    np.sqrt: casadi.sqrt,
    np.cbrt: lambda x: casadi.sign(x) * casadi.fabs(x) ** (1.0 / 3.0),
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
    np.hypot: lambda x, y: casadi.sqrt(x * x + y * y),
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
    np.maximum: casadi.fmax,
    np.fmax: casadi.fmax,
    np.minimum: casadi.fmin,
    np.fmin: casadi.fmin,
    np.fmod: casadi.fmod,
    np.remainder: lambda x, y: x - y * casadi.floor(x / y),
    np.floor_divide: lambda x, y: casadi.floor(x / y),
    np.heaviside: lambda x, y: casadi.if_else(x == 0, y, x > 0),
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
    special.erf: casadi.erf,
    special.expit: lambda x: 0.5 + 0.5 * casadi.tanh(0.5 * x),
}

UFUNCS: Mapping[Any, Callable[..., Any]] = _TABLE
