"""Functions of NumPy that act on every entry by itself."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.arrays import (
    FUNCTIONS,
    UFUNCS,
    DerivativeArray,
    as_array,
    equal,
    note_branch,
    note_denominator,
    note_whole,
    primal,
)
from daeosens.problem.derivative_arrays.points import PointArray
from daeosens.problem.derivative_arrays.rules import (
    apart,
    elementwise,
    guarded_weight,
    into,
    on_values,
    singular,
    spread,
    value_of,
    varies,
    weighted,
)


def _power(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    x, y = (as_array(operand) if isinstance(operand, list) else operand for operand in (x, y))
    base, exponent = value_of(x), value_of(y)
    result = ufunc(base, exponent)
    terms: list[tuple[Any, Any]] = []
    if varies(x):
        several = _differs(exponent)
        if several is not None and np.all(several < 0):
            note_denominator(x)
        if np.ndim(exponent) == 0 and several is None and not varies(y):
            if exponent < 0:
                note_denominator(x)
            if exponent == 2:
                weight = 2.0 * base
            elif exponent == 0:
                weight = 0.0
            else:
                # (x^a)' = a x^(a-1) x' + x^a log(x) a'
                weight = exponent * ufunc(base, exponent - 1)
        else:
            nothing = primal(exponent) == 0
            # x^0 is 1 everywhere: 0 * x^-1 would be NaN at x = 0
            less = np.where(nothing, 0.0, exponent - 1)
            weight = np.where(nothing, 0.0, exponent * ufunc(base, less))
        terms.append((weight, x.slopes))
    if varies(y):
        nothing = primal(base) == 0
        logarithm = np.log(np.where(nothing, 1.0, base))
        # x^a log(x) tends to 0 with x for a > 0, where the formula is 0 * inf
        at_zero = np.where(primal(exponent) > 0, 0.0, np.nan)
        terms.append((np.where(nothing, at_zero, result * logarithm), y.slopes))
    return apart(result, terms, guarded_weight)


def _differs(exponent: Any) -> Any:
    """Return the exponents of points that have one each, else None."""
    return exponent.entries if type(exponent) is PointArray else None


_quotient = elementwise(lambda x, y, r: 1.0 / y, lambda x, y, r: -r / y)
_inverse = elementwise(lambda x, r: -r * r)


def _divide(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    if varies(y):
        note_denominator(y)
    return _quotient(ufunc, x, y)


def _reciprocal(ufunc: np.ufunc, x: Any) -> Any:
    note_denominator(x)
    return _inverse(ufunc, x)


def _choice(larger: bool, keeps_numbers: bool) -> Callable[..., Any]:
    """Return the rule of maximum and minimum, or of fmax and fmin, which pass over NaN."""

    def rule(ufunc: np.ufunc, x: Any, y: Any) -> Any:
        x, y = (as_array(operand) if isinstance(operand, list) else operand for operand in (x, y))
        note_branch(x, y)
        left, right = primal(x), primal(y)
        kept = x if varies(x) else y
        if type(kept.value) is np.ndarray and not (varies(x) and varies(y)):
            # a guard that never acts, np.maximum(u, 0), is as quick as a copy
            bound, value = (right, kept.value) if kept is x else (left, kept.value)
            if np.ndim(bound) == 0 and ((value > bound) if larger else (value < bound)).all():
                return kept.copy()
        if larger:
            # at a tie the derivative is that of the argument which varies: np.maximum(0, u) at 0
            # has the slope of u
            first = left >= right if varies(x) else left > right
        else:
            first = left < right if varies(x) else left <= right
        if keeps_numbers:
            first = (first | np.isnan(right)) & ~np.isnan(left)
        else:
            first = first | np.isnan(left)
        return chosen(first, x, y)

    return rule


def chosen(condition: Any, *choices: Any) -> Any:
    """Do as ``np.where``."""
    if len(choices) != 2:
        return np.where(primal(condition), *choices)
    condition = _ASBOOL(condition)
    x, y = (as_array(choice) if isinstance(choice, (list, tuple)) else choice for choice in choices)
    if not varies(x) and not varies(y):
        return np.where(condition, x, y)
    value = np.where(condition, value_of(x), value_of(y))[()]
    column = condition[..., None]
    slopes = np.where(column, x.slopes if varies(x) else 0.0, y.slopes if varies(y) else 0.0)
    return DerivativeArray(value, spread(slopes, value.shape))


def _ASBOOL(condition: Any) -> Any:  # noqa: N802
    if varies(condition):
        return np.asarray(condition != 0)
    if isinstance(condition, (list, tuple)):
        return np.array([_ASBOOL(element) for element in condition])
    condition = primal(condition)
    if type(condition) is PointArray:
        return condition.astype(bool)
    return np.asarray(condition, dtype=bool)


def _absolute(ufunc: np.ufunc, x: Any) -> Any:
    result = ufunc(x.value)
    if np.iscomplexobj(primal(x)):
        note_branch(np.real(primal(x)))  # of numbers on a line through 0 they change sides there
        note_branch(np.imag(primal(x)))
        size = np.where(primal(result) == 0, 1.0, result)
        # |z|' = Re(conj(z) z') / |z|; at 0 any number of size one at most is a derivative, and 0 is
        # taken
        turned = np.conj(x.value) / size
        return DerivativeArray(result, np.real(weighted(turned, x.slopes)))
    note_branch(x)
    return DerivativeArray(result, weighted(np.where(primal(x) >= 0, 1.0, -1.0)[()], x.slopes))


def _hypot(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    x, y = (as_array(operand) if isinstance(operand, list) else operand for operand in (x, y))
    result = ufunc(value_of(x), value_of(y))
    note_branch(x)
    note_branch(y)
    size = np.where(primal(result) == 0, 1.0, result)
    terms = [(value_of(operand) / size, operand.slopes) for operand in (x, y) if varies(operand)]
    return apart(result, terms, weighted)


def _conjugate(ufunc: np.ufunc, x: Any) -> Any:
    return DerivativeArray(ufunc(x.value), np.conj(x.slopes))


def _divmod(_ufunc: np.ufunc, x: Any, y: Any) -> Any:
    return x // y, x % y


def _modf(_ufunc: np.ufunc, x: Any) -> Any:
    whole = note_whole(np.trunc(primal(x)))
    return x - whole, whole


def _copysign(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    if not varies(x):
        return on_values(ufunc, x, y)
    note_branch(y)
    side = np.where(np.signbit(primal(y)), -1.0, 1.0)
    # a choice of a side by y: no slope from y
    return np.abs(x) * side[()]


def _square_of_sech(x: Any) -> Any:
    """Return 1 / cosh(x)^2, which is small where cosh(x)^2 overflows."""
    small = np.exp(x * np.where(primal(x) < 0.0, 2.0, -2.0)[()])
    return 4.0 * small / (1.0 + small) ** 2


def _equality(opposite: bool) -> Callable[..., Any]:
    def rule(_ufunc: np.ufunc, x: Any, y: Any) -> Any:
        same = equal(
            as_array(x) if isinstance(x, list) else x, as_array(y) if isinstance(y, list) else y
        )
        return np.logical_not(same) if opposite else same

    return rule


def _comparison(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    note_branch(x, y)
    return on_values(ufunc, x, y)


def _whole(rounding: Callable[..., Any], x: Any, y: Any) -> Any:
    """Return the quotient rounded, which is constant between jumps."""
    return note_whole(rounding(primal(x) / primal(y)))


def _rounding(ufunc: np.ufunc, *inputs: Any) -> Any:
    return note_whole(on_values(ufunc, *inputs))


def _side(ufunc: np.ufunc, x: Any, *others: Any) -> Any:
    note_branch(x)
    return on_values(ufunc, x, *others)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **bounds: Any) -> Any:
    low, high = bounds.pop("min", a_min), bounds.pop("max", a_max)
    a = as_array(a)
    if low is not None:
        a = np.maximum(a, low)
    if high is not None:
        a = np.minimum(a, high)
    return into(out, a)


def _nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    values = primal(x)
    most = np.finfo(float).max
    x = chosen(np.isnan(values), nan, x)
    x = chosen(np.isposinf(values), most if posinf is None else posinf, x)
    return chosen(np.isneginf(values), -most if neginf is None else neginf, x)


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    result: Any = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        # the first condition that holds wins: it is put on last
        result = chosen(condition, choice, result)
    return result


def _sinc(x: Any) -> Any:
    x = as_array(x)
    y = math.pi * x
    near = np.abs(primal(y)) < 0.5
    # the series has all derivatives at 0, where sin(y)/y is 0/0; both branches are evaluated, so
    # each gets an argument at which it is finite
    square = np.where(near, y * y, 0.0)
    series: Any = 1.0
    for k in range(9, 0, -1):
        series = 1.0 - square / (2 * k * (2 * k + 1)) * series
    away = np.where(near, 1.0, y)
    return np.where(near, series, np.sin(away) / away)


def _angle(z: Any, deg: bool = False) -> Any:
    angle = np.arctan2(np.imag(z), np.real(z))
    return angle * (180.0 / math.pi) if deg else angle


def _real(val: Any) -> Any:
    return as_array(val).real


def _imag(val: Any) -> Any:
    return as_array(val).imag


_LN2, _LN10 = math.log(2.0), math.log(10.0)

UFUNCS.update(
    {
        "add": elementwise(1.0, 1.0),
        "subtract": elementwise(1.0, -1.0),
        "multiply": elementwise(lambda x, y, r: y, lambda x, y, r: x),
        "divide": _divide,
        "power": _power,
        "float_power": _power,
        "pow": _power,
        "negative": elementwise(-1.0),
        "positive": elementwise(1.0),
        "absolute": _absolute,
        "fabs": _absolute,
        "square": elementwise(lambda x, r: 2.0 * x),
        "reciprocal": _reciprocal,
        "sqrt": singular(lambda x, r: 0.5 / r),
        "cbrt": singular(lambda x, r: 1.0 / (3.0 * r * r)),
        "exp": elementwise(lambda x, r: r),
        "exp2": elementwise(lambda x, r: _LN2 * r),
        "exp10": elementwise(lambda x, r: _LN10 * r),
        "expm1": elementwise(lambda x, r: np.exp(x)),
        "log": singular(lambda x, r: 1.0 / x),
        "log2": singular(lambda x, r: 1.0 / (_LN2 * x)),
        "log10": singular(lambda x, r: 1.0 / (_LN10 * x)),
        "log1p": singular(lambda x, r: 1.0 / (1.0 + x)),
        "sin": elementwise(lambda x, r: np.cos(x)),
        "cos": elementwise(lambda x, r: -np.sin(x)),
        "tan": elementwise(lambda x, r: 1.0 + r * r),
        "arcsin": singular(lambda x, r: 1.0 / np.sqrt((1.0 - x) * (1.0 + x))),
        "arccos": singular(lambda x, r: -1.0 / np.sqrt((1.0 - x) * (1.0 + x))),
        "arctan": elementwise(lambda x, r: 1.0 / (1.0 + x * x)),
        "sinh": elementwise(lambda x, r: np.cosh(x)),
        "cosh": elementwise(lambda x, r: np.sinh(x)),
        "tanh": elementwise(lambda x, r: _square_of_sech(x)),
        "arcsinh": elementwise(lambda x, r: 1.0 / np.sqrt(1.0 + x * x)),
        "arccosh": singular(lambda x, r: 1.0 / (np.sqrt(x - 1.0) * np.sqrt(x + 1.0))),
        "arctanh": singular(lambda x, r: 1.0 / ((1.0 - x) * (1.0 + x))),
        "arctan2": singular(
            lambda y, x, r: x / (x * x + y * y), lambda y, x, r: -y / (x * x + y * y)
        ),
        "hypot": _hypot,
        "logaddexp": elementwise(lambda x, y, r: np.exp(x - r), lambda x, y, r: np.exp(y - r)),
        "logaddexp2": elementwise(lambda x, y, r: np.exp2(x - r), lambda x, y, r: np.exp2(y - r)),
        "deg2rad": elementwise(math.pi / 180.0),
        "radians": elementwise(math.pi / 180.0),
        "rad2deg": elementwise(180.0 / math.pi),
        "degrees": elementwise(180.0 / math.pi),
        "conjugate": _conjugate,
        "maximum": _choice(True, False),
        "minimum": _choice(False, False),
        "fmax": _choice(True, True),
        "fmin": _choice(False, True),
        "remainder": elementwise(1.0, lambda x, y, r: -_whole(np.floor, x, y)),
        "fmod": elementwise(1.0, lambda x, y, r: -_whole(np.trunc, x, y)),
        "divmod": _divmod,
        "modf": _modf,
        "copysign": _copysign,
        "ldexp": lambda _ufunc, x, n: x * 2.0 ** primal(n),
        "equal": _equality(False),
        "not_equal": _equality(True),
        "logical_not": lambda _ufunc, x: equal(x, 0.0),
    }
)
for _name in (
    *("isfinite", "isnan", "isinf"),
    *("logical_and", "logical_or", "logical_xor", "isnat"),
):
    UFUNCS[_name] = on_values
for _name in ("less", "less_equal", "greater", "greater_equal"):
    UFUNCS[_name] = _comparison
for _name in ("floor", "ceil", "rint", "trunc", "floor_divide"):
    UFUNCS[_name] = _rounding
for _name in ("sign", "heaviside", "signbit"):
    UFUNCS[_name] = _side

UNARY = tuple(
    name
    for name in UFUNCS
    if isinstance(getattr(np, name, None), np.ufunc) and getattr(np, name).nin == 1
)


def _method(name: str) -> Callable[..., Any]:
    ufunc = getattr(np, name)

    def call(self: DerivativeArray) -> Any:
        return UFUNCS[name](ufunc, self)

    return call


# arrays of objects call the methods of their entries: np.sin([u[0], u[1]])
for _name in UNARY:
    if not hasattr(DerivativeArray, _name):
        setattr(DerivativeArray, _name, _method(_name))
DerivativeArray.conj = DerivativeArray.conjugate  # type: ignore[attr-defined]
UFUNCS["clip"] = lambda _ufunc, a, low, high: _clip(a, low, high)
FUNCTIONS.update(
    {
        np.where: chosen,
        np.clip: _clip,
        np.nan_to_num: _nan_to_num,
        np.select: _select,
        np.sinc: _sinc,
        np.angle: _angle,
        np.real: _real,
        np.imag: _imag,
    }
)
