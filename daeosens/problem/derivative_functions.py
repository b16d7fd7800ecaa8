"""What NumPy's and SciPy's functions do with arrays that carry derivatives.

Every rule is written with NumPy's functions on values and slopes, so that it holds for derivatives
of derivatives as well.  At kinks the derivative is the one towards larger arguments: that of
``abs`` at 0 is 1, that of ``maximum(x, 0)`` 1, that of ``minimum(x, 0)`` 0; of two equal arguments
that vary ``maximum`` takes the first and ``minimum`` the second.  ``norm`` and ``hypot`` have the
slope 0 where they are 0.  Steps (``floor``, ``sign``, ``heaviside``, comparisons) are constant.
"""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
import string
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

from daeosens.petsc._kernels import DerivativeNumber
from daeosens.problem.derivative_arrays import (
    FUNCTIONS,
    METHODS,
    UFUNCS,
    DerivativeArray,
    DerivativeLostError,
    as_array,
    equal,
    moving,
    note_branch,
    primal,
    refuse_decimals,
    refuse_text,
    users_frame,
)

Partial = Callable[..., Any] | float | None
"""``(*inputs, result) -> derivative``; None where nobody knows it."""


def varies(x: Any) -> bool:
    """Whether x carries derivatives."""
    return type(x) is DerivativeArray or type(x) is DerivativeNumber


def value_of(x: Any) -> Any:
    """Return the value."""
    return x.value if varies(x) else x


def weighted(weight: Any, slopes: Any) -> Any:
    """Return a derivative [...] times slopes [..., K]."""
    return weight[..., None] * slopes if getattr(weight, "shape", ()) else weight * slopes


def spread(slopes: Any, shape: tuple[int, ...]) -> Any:
    """Return slopes [..., K] of a value that was broadcast to a shape, and may be written to."""
    if slopes.shape[:-1] == shape:
        return slopes
    return np.broadcast_to(slopes, (*shape, slopes.shape[-1])).copy()


def guarded_weight(weight: Any, slopes: Any) -> Any:
    """Return the same as ``weighted``, and 0 where an infinite derivative meets a slope of 0."""
    size = primal(weight)
    if np.isfinite(size).all():
        return weighted(weight, slopes)
    product = weighted(weight, slopes)
    return np.where((primal(slopes) != 0) | moving(slopes), product, 0.0)


def apart(result: Any, terms: Sequence[tuple[Any, Any]], combine: Callable[..., Any]) -> Any:
    """Return a result with the sum of its derivatives times slopes."""
    total: Any = None
    for weight, slopes in terms:
        term = combine(weight, slopes)
        total = term if total is None else total + term
    return DerivativeArray(result, spread(total, result.shape))


def elementwise(*partials: Partial, combine: Callable[..., Any] = weighted) -> Callable[..., Any]:
    """Return the rule of a ufunc with these derivatives in its arguments."""

    def rule(ufunc: np.ufunc, *inputs: Any) -> Any:
        inputs = tuple([as_array(x) if isinstance(x, list) else x for x in inputs])
        values = [value_of(x) for x in inputs]
        result = ufunc(*values)
        terms: list[tuple[Any, Any]] = []
        for x, partial in zip(inputs, partials, strict=True):
            if not varies(x):
                continue
            if partial is None:
                raise DerivativeLostError(
                    f"'{ufunc.__name__}' in that argument", "a constant in its place"
                )
            weight = partial(*values, result) if callable(partial) else partial
            terms.append((weight, x.slopes))
        return apart(result, terms, combine)

    return rule


def singular(*partials: Partial) -> Callable[..., Any]:
    """Return the same where derivatives may be infinite."""
    return elementwise(*partials, combine=guarded_weight)


def on_values(ufunc: Any, *inputs: Any, **options: Any) -> Any:
    """Return what is constant between jumps."""
    return ufunc(*[_values(x) for x in inputs], **{name: _values(x) for name, x in options.items()})


def _values(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)([_values(each) for each in x])
    return primal(x)


# -- ufuncs


def _power(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    x, y = (as_array(each) if isinstance(each, list) else each for each in (x, y))
    base, exponent = value_of(x), value_of(y)
    result = ufunc(base, exponent)
    terms: list[tuple[Any, Any]] = []
    if varies(x):
        if np.ndim(exponent) == 0 and not varies(y):
            if exponent == 2:
                weight = 2.0 * base
            elif exponent == 0:
                weight = 0.0
            else:
                weight = exponent * ufunc(base, exponent - 1)
        else:
            nothing = primal(exponent) == 0
            less = np.where(nothing, 0.0, exponent - 1)
            weight = np.where(nothing, 0.0, exponent * ufunc(base, less))
        terms.append((weight, x.slopes))
    if varies(y):
        nothing = primal(base) == 0
        logarithm = np.log(np.where(nothing, 1.0, base))
        at_zero = np.where(primal(exponent) > 0, 0.0, np.nan)
        terms.append((np.where(nothing, at_zero, result * logarithm), y.slopes))
    return apart(result, terms, guarded_weight)


def _choice(larger: bool, keeps_numbers: bool) -> Callable[..., Any]:
    """Return the rule of maximum and minimum, or of fmax and fmin, which pass over NaN."""

    def rule(ufunc: np.ufunc, x: Any, y: Any) -> Any:
        x, y = (as_array(each) if isinstance(each, list) else each for each in (x, y))
        note_branch(x, y)
        left, right = primal(x), primal(y)
        if larger:
            first = left >= right if varies(x) else left > right
        else:
            first = left < right if varies(x) else left <= right
        if keeps_numbers:
            first = (first | np.isnan(right)) & ~np.isnan(left)
        else:
            first = first | np.isnan(left)
        return _where(first, x, y)

    return rule


def _where(condition: Any, *choices: Any) -> Any:
    if len(choices) != 2:
        return np.where(primal(condition), *choices)
    condition = _ASBOOL(condition)
    x, y = (as_array(each) if isinstance(each, (list, tuple)) else each for each in choices)
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
        return np.array([_ASBOOL(each) for each in condition])
    return np.asarray(primal(condition), dtype=bool)


def _absolute(ufunc: np.ufunc, x: Any) -> Any:
    result = ufunc(x.value)
    if np.iscomplexobj(primal(x)):
        size = np.where(primal(result) == 0, 1.0, result)
        turned = np.conj(x.value) / size
        return DerivativeArray(result, np.real(weighted(turned, x.slopes)))
    note_branch(x)
    return DerivativeArray(result, weighted(np.where(primal(x) >= 0, 1.0, -1.0)[()], x.slopes))


def _hypot(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    x, y = (as_array(each) if isinstance(each, list) else each for each in (x, y))
    result = ufunc(value_of(x), value_of(y))
    size = np.where(primal(result) == 0, 1.0, result)
    terms = [(value_of(each) / size, each.slopes) for each in (x, y) if varies(each)]
    return apart(result, terms, weighted)


def _conjugate(ufunc: np.ufunc, x: Any) -> Any:
    return DerivativeArray(ufunc(x.value), np.conj(x.slopes))


def _divmod(_ufunc: np.ufunc, x: Any, y: Any) -> Any:
    return x // y, x % y


def _modf(_ufunc: np.ufunc, x: Any) -> Any:
    whole = np.trunc(primal(x))
    return x - whole, whole


def _copysign(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    if not varies(x):
        return on_values(ufunc, x, y)
    side = np.where(np.signbit(primal(y)), -1.0, 1.0)
    return np.abs(x) * side[()]


def _xlogy(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    left, right = value_of(x), value_of(y)
    result = ufunc(left, right)
    terms: list[tuple[Any, Any]] = []
    if varies(x):
        terms.append((np.log(right), x.slopes))
    if varies(y):
        terms.append((left / right, y.slopes))
    return apart(result, terms, guarded_weight)


def _equality(opposite: bool) -> Callable[..., Any]:
    def rule(_ufunc: np.ufunc, x: Any, y: Any) -> Any:
        same = equal(
            as_array(x) if isinstance(x, list) else x, as_array(y) if isinstance(y, list) else y
        )
        return np.logical_not(same) if opposite else same

    return rule


_LN2, _LN10 = math.log(2.0), math.log(10.0)
_ROOT_PI = math.sqrt(math.pi)

UFUNCS.update(
    {
        "add": elementwise(1.0, 1.0),
        "subtract": elementwise(1.0, -1.0),
        "multiply": elementwise(lambda x, y, r: y, lambda x, y, r: x),
        "divide": elementwise(lambda x, y, r: 1.0 / y, lambda x, y, r: -r / y),
        "power": _power,
        "float_power": _power,
        "pow": _power,
        "negative": elementwise(-1.0),
        "positive": elementwise(1.0),
        "absolute": _absolute,
        "fabs": _absolute,
        "square": elementwise(lambda x, r: 2.0 * x),
        "reciprocal": elementwise(lambda x, r: -r * r),
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
        "tanh": elementwise(lambda x, r: 1.0 / np.cosh(x) ** 2),
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
        "remainder": elementwise(1.0, lambda x, y, r: -np.floor(primal(x) / primal(y))),
        "fmod": elementwise(1.0, lambda x, y, r: -np.trunc(primal(x) / primal(y))),
        "divmod": _divmod,
        "modf": _modf,
        "copysign": _copysign,
        "ldexp": lambda _ufunc, x, n: x * 2.0 ** primal(n),
        "equal": _equality(False),
        "not_equal": _equality(True),
        "logical_not": lambda _ufunc, x: equal(x, 0.0),
        # SciPy
        "gamma": elementwise(lambda x, r: r * special.psi(x)),
        "gammaln": elementwise(lambda x, r: special.psi(x)),
        "loggamma": elementwise(lambda x, r: special.psi(x)),
        "psi": elementwise(lambda x, r: special.zeta(2.0, x)),
        "_zeta": elementwise(None, lambda s, x, r: -s * special.zeta(s + 1.0, x)),
        "rgamma": elementwise(lambda x, r: -r * special.psi(x)),
        "poch": elementwise(
            lambda x, m, r: r * (special.psi(x + m) - special.psi(x)),
            lambda x, m, r: r * special.psi(x + m),
        ),
        "beta": elementwise(
            lambda a, b, r: r * (special.psi(a) - special.psi(a + b)),
            lambda a, b, r: r * (special.psi(b) - special.psi(a + b)),
        ),
        "betaln": elementwise(
            lambda a, b, r: special.psi(a) - special.psi(a + b),
            lambda a, b, r: special.psi(b) - special.psi(a + b),
        ),
        "gammainc": elementwise(
            None, lambda a, x, r: np.exp((a - 1.0) * np.log(x) - x - special.gammaln(a))
        ),
        "gammaincc": elementwise(
            None, lambda a, x, r: -np.exp((a - 1.0) * np.log(x) - x - special.gammaln(a))
        ),
        "betainc": elementwise(
            None,
            None,
            lambda a, b, x, r: x ** (a - 1.0) * (1.0 - x) ** (b - 1.0) / special.beta(a, b),
        ),
        "erf": elementwise(lambda x, r: 2.0 / _ROOT_PI * np.exp(-x * x)),
        "erfc": elementwise(lambda x, r: -2.0 / _ROOT_PI * np.exp(-x * x)),
        "erfcx": elementwise(lambda x, r: 2.0 * x * r - 2.0 / _ROOT_PI),
        "erfi": elementwise(lambda x, r: 2.0 / _ROOT_PI * np.exp(x * x)),
        "dawsn": elementwise(lambda x, r: 1.0 - 2.0 * x * r),
        "erfinv": elementwise(lambda x, r: 0.5 * _ROOT_PI * np.exp(r * r)),
        "erfcinv": elementwise(lambda x, r: -0.5 * _ROOT_PI * np.exp(r * r)),
        "ndtr": elementwise(lambda x, r: np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)),
        "log_ndtr": elementwise(lambda x, r: np.exp(-0.5 * x * x - r) / math.sqrt(2.0 * math.pi)),
        "ndtri": elementwise(lambda x, r: math.sqrt(2.0 * math.pi) * np.exp(0.5 * r * r)),
        "expit": elementwise(lambda x, r: special.expit(x) * special.expit(-x)),
        "log_expit": elementwise(lambda x, r: special.expit(-x)),
        "logit": singular(lambda x, r: 1.0 / (x * (1.0 - x))),
        "softplus": elementwise(lambda x, r: special.expit(x)),
        "xlogy": _xlogy,
        "xlog1py": elementwise(lambda x, y, r: np.log1p(y), lambda x, y, r: x / (1.0 + y)),
        "entr": elementwise(lambda x, r: -np.log(x) - 1.0),
        "rel_entr": elementwise(lambda x, y, r: np.log(x / y) + 1.0, lambda x, y, r: -x / y),
        "kl_div": elementwise(lambda x, y, r: np.log(x / y), lambda x, y, r: 1.0 - x / y),
        "jv": elementwise(
            None, lambda v, x, r: 0.5 * (special.jv(v - 1, x) - special.jv(v + 1, x))
        ),
        "yv": elementwise(
            None, lambda v, x, r: 0.5 * (special.yv(v - 1, x) - special.yv(v + 1, x))
        ),
        "iv": elementwise(
            None, lambda v, x, r: 0.5 * (special.iv(v - 1, x) + special.iv(v + 1, x))
        ),
        "kv": elementwise(
            None, lambda v, x, r: -0.5 * (special.kv(v - 1, x) + special.kv(v + 1, x))
        ),
        "j0": elementwise(lambda x, r: -special.j1(x)),
        "j1": elementwise(lambda x, r: 0.5 * (special.j0(x) - special.jv(2, x))),
        "y0": elementwise(lambda x, r: -special.y1(x)),
        "y1": elementwise(lambda x, r: 0.5 * (special.y0(x) - special.yv(2, x))),
        "i0": elementwise(lambda x, r: special.i1(x)),
        "i1": elementwise(lambda x, r: 0.5 * (special.i0(x) + special.iv(2, x))),
        "k0": elementwise(lambda x, r: -special.k1(x)),
        "k1": elementwise(lambda x, r: -0.5 * (special.k0(x) + special.kv(2, x))),
        "ellipk": elementwise(
            lambda m, r: (special.ellipe(m) - (1.0 - m) * r) / (2.0 * m * (1.0 - m))
        ),
        "ellipe": elementwise(lambda m, r: (r - special.ellipk(m)) / (2.0 * m)),
        "exp1": elementwise(lambda x, r: -np.exp(-x) / x),
        "expi": elementwise(lambda x, r: np.exp(x) / x),
        "expn": elementwise(None, lambda n, x, r: -special.expn(n - 1, x)),
        "spence": elementwise(lambda x, r: np.log(x) / (1.0 - x)),
        "sindg": elementwise(lambda x, r: math.pi / 180.0 * special.cosdg(x)),
        "cosdg": elementwise(lambda x, r: -math.pi / 180.0 * special.sindg(x)),
    }
)
for _name in (
    *("floor", "ceil", "rint", "trunc", "floor_divide", "signbit"),
    *("isfinite", "isnan", "isinf"),
    *("logical_and", "logical_or", "logical_xor", "isnat"),
):
    UFUNCS[_name] = on_values


def _comparison(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    note_branch(x, y)
    return on_values(ufunc, x, y)


def _side(ufunc: np.ufunc, x: Any, *others: Any) -> Any:
    note_branch(x)
    return on_values(ufunc, x, *others)


for _name in ("less", "less_equal", "greater", "greater_equal"):
    UFUNCS[_name] = _comparison
for _name in ("sign", "heaviside"):
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


# -- linear functions along an axis


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis % ndim


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    several = axis if isinstance(axis, tuple) else (axis,)
    return tuple([_axis(int(each), ndim) for each in several])


def _with_axis(function: Callable[..., Any], default: int | None, place: int) -> Callable[..., Any]:
    """Return the rule of a linear function along one axis, its positional argument ``place``."""

    def rule(a: Any, *arguments: Any, **options: Any) -> Any:
        a = as_array(a)
        listed = list(arguments)
        if len(listed) >= place:
            axis = listed.pop(place - 1)
        else:
            axis = options.pop("axis", default)
        _no_derivatives(function, (*listed, *options.values()))
        if not varies(a):
            return function(a, *listed, axis=axis, **options)
        if axis is None:
            a, axis = a.reshape(-1), 0
        axis = _axis(int(axis), a.ndim)

        def apply(x: Any) -> Any:
            if len(listed) >= place:  # what comes after the axis
                return function(x, *listed[: place - 1], axis, *listed[place - 1 :], **options)
            return function(x, *listed, axis=axis, **options)

        return DerivativeArray(apply(a.value), apply(a.slopes))

    return rule


def _no_derivatives(function: Callable[..., Any], things: Sequence[Any]) -> None:
    for each in things:
        if varies(each) or (isinstance(each, list) and varies(as_array(each))):
            raise DerivativeLostError(
                f"np.{function.__name__} in that argument", "a constant there"
            )


FUNCTIONS.update(
    {
        np.cumsum: _with_axis(np.cumsum, None, 1),
        np.diff: _with_axis(np.diff, -1, 2),
        np.fft.fft: _with_axis(np.fft.fft, -1, 2),
        np.fft.ifft: _with_axis(np.fft.ifft, -1, 2),
        np.fft.rfft: _with_axis(np.fft.rfft, -1, 2),
        np.fft.irfft: _with_axis(np.fft.irfft, -1, 2),
        np.fft.hfft: _with_axis(np.fft.hfft, -1, 2),
        np.fft.ihfft: _with_axis(np.fft.ihfft, -1, 2),
    }
)


def _with_axes(function: Callable[..., Any], default: Any) -> Callable[..., Any]:
    """Return the rule of a linear function along several axes (FFTs)."""

    def rule(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        a = as_array(a)
        if axes is None:
            axes = tuple(range(-len(s), 0)) if s is not None else tuple(range(a.ndim))
        places = [_axis(int(each), a.ndim) for each in axes]
        sizes = s if s is not None or "irfft" in function.__name__ else [a.shape[k] for k in places]
        if sizes is None:
            sizes = [a.shape[k] for k in places[:-1]] + [2 * (a.shape[places[-1]] - 1)]
        value = function(a.value, sizes, places, norm)
        return DerivativeArray(value, function(a.slopes, sizes, places, norm))

    return rule


for _function, _default in (
    (np.fft.fft2, (-2, -1)),
    (np.fft.ifft2, (-2, -1)),
    (np.fft.rfft2, (-2, -1)),
    (np.fft.irfft2, (-2, -1)),
    (np.fft.fftn, None),
    (np.fft.ifftn, None),
    (np.fft.rfftn, None),
    (np.fft.irfftn, None),
):
    FUNCTIONS[_function] = _with_axes(_function, _default)


def _sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = 0.0,
    where: Any = True,
) -> Any:
    a = as_array(a)
    if where is not True:
        a = _where(where, a, 0.0)
    if not varies(a):
        return np.sum(a, axis, keepdims=keepdims) + initial
    axes = _axes(axis, a.ndim)
    value = np.sum(a.value, axis=axes, keepdims=keepdims)
    result = DerivativeArray(value, np.sum(a.slopes, axis=axes, keepdims=keepdims))
    if dtype is not None:
        result = result.astype(dtype)
    return _into(out, result if primal(initial) == 0 and not varies(initial) else result + initial)


def _into(out: Any, result: Any) -> Any:
    if out is None:
        return result
    out[...] = result
    return out


def _count(a: Any, axis: Any) -> int:
    return math.prod(a.shape[k] for k in _axes(axis, a.ndim))


def _mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    **rest: Any,
) -> Any:
    a = as_array(a)
    if "where" in rest:
        kept = np.broadcast_to(rest["where"], a.shape)
        total = _sum(a, axis, keepdims=keepdims, where=kept)
        return total / np.sum(kept, axis=axis, keepdims=keepdims)
    return _into(out, _sum(a, axis, dtype, keepdims=keepdims) / _count(a, axis))


def _var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    **rest: Any,
) -> Any:
    ddof = rest.pop("correction", ddof)
    if rest:
        raise DerivativeLostError(f"np.var with {', '.join(rest)}")
    a = as_array(a)
    away = a - _mean(a, axis, keepdims=True)
    square = np.real(away * np.conj(away)) if a.dtype.kind == "c" else away * away
    total = _sum(square, axis, dtype, keepdims=keepdims)
    return _into(out, total / (_count(a, axis) - ddof))


def _std(a: Any, *arguments: Any, **options: Any) -> Any:
    return np.sqrt(_var(a, *arguments, **options))


def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    a = as_array(a)
    if weights is None:
        return _mean(a, axis, keepdims=keepdims)
    weights = as_array(weights)
    if returned:
        raise DerivativeLostError("np.average with returned=True")
    if weights.shape != a.shape:
        (place,) = _axes(axis, a.ndim)
        weights = weights.reshape([-1 if k == place else 1 for k in range(a.ndim)])
        weights = np.broadcast_to(weights, a.shape)
    total = _sum(weights, axis, keepdims=keepdims)
    return _sum(a * weights, axis, keepdims=keepdims) / total


def _in_turn(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the rule of a running product, and the like, along an axis."""

    def rule(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        a = as_array(a)
        if axis is None:
            a, axis = a.reshape(-1), 0
        first = np.moveaxis(a, axis, 0)
        rows = [first[0]]
        for row in list(first)[1:]:
            rows.append(combine(rows[-1], row))
        return _into(out, np.stack(rows, axis=axis))

    return rule


def _prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    **rest: Any,
) -> Any:
    a = as_array(a)
    if "where" in rest:
        a = _where(rest.pop("where"), a, 1.0)
    axes = _axes(axis, a.ndim)
    kept = [k for k in range(a.ndim) if k not in axes]
    shape = tuple([a.shape[k] for k in kept])
    factors = np.transpose(a, (*axes, *kept)).reshape(-1, *shape)
    result: Any = rest.pop("initial", 1.0)
    factors = list(factors)
    while len(factors) > 1:  # by halves: fewer, larger multiplications
        half = [x * y for x, y in zip(factors[::2], factors[1::2], strict=False)]
        factors = half + ([factors[-1]] if len(factors) % 2 else [])
    result = result * factors[0] if factors else result + 0.0 * np.sum(a, axis=axes)
    if keepdims:
        result = result.reshape([1 if k in axes else a.shape[k] for k in range(a.ndim)])
    return _into(out, result)


def _extreme(place: Callable[..., Any], bound: Callable[..., Any]) -> Callable[..., Any]:
    def rule(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, **rest: Any) -> Any:
        a = as_array(a)
        if "where" in rest:
            raise DerivativeLostError(f"np.{bound.__name__} with where=")
        axes = _axes(axis, a.ndim)
        kept = [k for k in range(a.ndim) if k not in axes]
        shape = [a.shape[k] for k in kept]
        flat = np.transpose(a, (*kept, *axes)).reshape(*shape, -1)
        result = np.take_along_axis(flat, place(primal(flat), axis=-1)[..., None], -1)[..., 0]
        if "initial" in rest:
            result = bound(result, rest["initial"])
        if keepdims:
            result = result.reshape([1 if k in axes else a.shape[k] for k in range(a.ndim)])
        return _into(out, result)

    return rule


_max = _extreme(np.argmax, np.maximum)
_min = _extreme(np.argmin, np.minimum)


def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return _into(out, _max(a, axis, keepdims=keepdims) - _min(a, axis, keepdims=keepdims))


def _sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, **_rest: Any) -> Any:
    a = as_array(a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    places = np.argsort(primal(a), axis=axis, kind="stable")
    return np.take_along_axis(a, places, axis)


def _quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    **rest: Any,
) -> Any:
    a = as_array(a)
    if method != "linear" or rest or varies(q) or isinstance(axis, tuple):
        raise DerivativeLostError(
            "np.quantile of that kind", 'method="linear", one axis, a constant q'
        )
    if axis is None:
        shape = [1] * a.ndim
        a, axis = a.reshape(-1), 0
    else:
        shape = [1 if k == _axis(axis, a.ndim) else n for k, n in enumerate(a.shape)]
    ordered = np.moveaxis(_sort(a, axis), axis, 0)
    share = np.asarray(q, dtype=float) * (len(ordered) - 1)
    below = np.clip(np.floor(share).astype(int), 0, max(len(ordered) - 2, 0))
    above = np.minimum(below + 1, len(ordered) - 1)
    part = (share - below).reshape(share.shape + (1,) * (ordered.ndim - 1))
    result = ordered[below] * (1.0 - part) + ordered[above] * part
    return _into(out, result.reshape(share.shape + tuple(shape)) if keepdims else result)


def _percentile(a: Any, q: Any, *arguments: Any, **options: Any) -> Any:
    return _quantile(a, np.asarray(q) / 100.0, *arguments, **options)


def _median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
) -> Any:
    return _quantile(a, 0.5, axis, out, keepdims=keepdims)


def _without_nan(function: Callable[..., Any], instead: float) -> Callable[..., Any]:
    def rule(a: Any, *arguments: Any, **options: Any) -> Any:
        a = as_array(a)
        return function(_where(np.isnan(primal(a)), instead, a), *arguments, **options)

    return rule


def _nanmean(a: Any, axis: Any = None, **options: Any) -> Any:
    a = as_array(a)
    return _mean(a, axis, where=~np.isnan(primal(a)), **options)


# -- functions that move entries: NumPy moves their numbers, so every option means what it means


def _picked(a: DerivativeArray, places: Any) -> DerivativeArray:
    """Return entries by their numbers, counted from 1; 0 is a constant zero."""
    flat = a.reshape(-1)
    if not isinstance(places, np.ndarray):
        places = np.asarray(places)
    if places.size and places.min() == 0:
        return _where(places == 0, 0.0, flat[np.maximum(places - 1, 0)])
    return flat[places - 1]


def _moving(function: Callable[..., Any]) -> Callable[..., Any]:
    def move(a: Any, *arguments: Any, **options: Any) -> Any:
        a = as_array(a)
        _no_derivatives(function, (*arguments, *options.values()))
        numbers = np.arange(1, a.size + 1).reshape(a.shape)
        places = function(numbers, *arguments, **options)
        if not varies(a):
            return function(a, *arguments, **options)
        if isinstance(places, (list, tuple)):
            return type(places)([_picked(a, each) for each in places])
        return _picked(a, places)

    return move


def _joining(function: Callable[..., Any]) -> Callable[..., Any]:
    def join(arrays: Any, *arguments: Any, **options: Any) -> Any:
        parts: list[Any] = []
        total = 0

        def numbered(thing: Any) -> Any:
            nonlocal total
            if isinstance(thing, (list, tuple)) and function is np.block:
                return [numbered(each) for each in thing]
            part = as_array(thing)
            parts.append(part.reshape(-1))
            total += part.size
            return np.arange(total - part.size + 1, total + 1).reshape(part.shape)

        things = [numbered(each) for each in arrays]
        places = function(things, *arguments, **options)
        return _picked(_concatenated(parts), places)

    return join


def _concatenated(parts: Sequence[Any]) -> Any:
    """Return arrays [n_i] one after the other."""
    varying = [each for each in parts if varies(each)]
    count = varying[0].slopes.shape[-1]
    value = np.concatenate([value_of(each) for each in parts])
    slopes = [each.slopes if varies(each) else np.zeros((*each.shape, count)) for each in parts]
    return DerivativeArray(value, np.concatenate(slopes))


def _concatenate(arrays: Any, axis: Any = 0, out: Any = None, **_options: Any) -> Any:
    parts = [as_array(each) for each in arrays]
    if axis is None:
        parts, axis = [each.reshape(-1) for each in parts], 0
    if not any(varies(each) for each in parts):
        return np.concatenate(parts, axis)
    axis = _axis(int(axis), parts[0].ndim)
    count = next(each for each in parts if varies(each)).slopes.shape[-1]
    value = np.concatenate([value_of(each) for each in parts], axis)
    slopes = [each.slopes if varies(each) else np.zeros((*each.shape, count)) for each in parts]
    return _into(out, DerivativeArray(value, np.concatenate(slopes, axis)))


def _stack(arrays: Any, axis: int = 0, out: Any = None, **_options: Any) -> Any:
    parts = [as_array(each) for each in arrays]
    axis = _axis(axis, parts[0].ndim + 1)
    return _concatenate([np.expand_dims(each, axis) for each in parts], axis, out)


def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    return _concatenate([as_array(arr), as_array(values)], axis)


def _insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    arr, values = as_array(arr), as_array(values)
    whole = _concatenated([arr.reshape(-1), values.reshape(-1)])
    numbers = np.arange(1, arr.size + 1).reshape(arr.shape)
    added = np.arange(arr.size + 1, whole.size + 1).reshape(values.shape)
    return _picked(whole, np.insert(numbers, obj, added, axis))


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    a = as_array(a)
    if axis is None:
        if a.ndim > 1:
            return _roll(a.reshape(-1), shift, 0).reshape(a.shape)
        axis = 0
    axes = _axes(axis if not isinstance(axis, list) else tuple(axis), a.ndim)
    shifts: Any = shift if np.ndim(shift) == 0 else tuple(shift)
    if np.ndim(shift) == 0 and len(axes) > 1:
        shifts = (shift,) * len(axes)
    elif np.ndim(shift) == 0:
        shifts = (shift,)
    return DerivativeArray(np.roll(a.value, shifts, axes), np.roll(a.slopes, shifts, axes))


def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    arr = as_array(arr)
    numbers = np.arange(1, arr.size + 1).reshape(arr.shape)
    return _picked(arr, np.take_along_axis(numbers, primal(indices), axis))


def _pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    array = as_array(array)
    if mode not in ("constant", "edge", "wrap", "reflect", "symmetric") or (
        mode == "constant" and any(varies(each) for each in options.values())
    ):
        raise DerivativeLostError(
            f"np.pad with mode={mode!r} and {list(options)}", "np.concatenate"
        )
    if "reflect_type" in options:
        raise DerivativeLostError("np.pad with reflect_type", "np.concatenate")
    numbers = np.arange(1, array.size + 1).reshape(array.shape)
    if mode != "constant":
        return _picked(array, np.pad(numbers, pad_width, mode=mode))
    places = np.pad(numbers, pad_width, mode="constant")
    values = np.pad(primal(array), pad_width, mode="constant", **options)
    inside = array.reshape(-1)[np.maximum(places - 1, 0)]
    return _where(places == 0, values, inside)


# -- views


def _reshape(a: Any, shape: Any = None, order: str = "C", **rest: Any) -> Any:
    shape = rest.get("newshape", shape)
    if not varies(a):
        return np.reshape(as_array(a), shape, order=order)  # type: ignore[call-overload]
    if order not in ("C", "A"):
        numbers = np.arange(1, a.size + 1).reshape(a.shape)
        return _picked(a, np.reshape(numbers, shape, order=order))  # type: ignore[call-overload]
    value = np.reshape(a.value, shape)
    return DerivativeArray(value, np.reshape(a.slopes, (*value.shape, a.slopes.shape[-1])))


def _ravel(a: Any, order: str = "C") -> Any:
    return _reshape(as_array(a), -1, "C" if order == "K" else order)


def _transpose(a: Any, axes: Any = None) -> Any:
    a = as_array(a)
    order = tuple(range(a.ndim))[::-1] if axes is None else _axes(tuple(axes), a.ndim)
    return DerivativeArray(np.transpose(a.value, order), np.transpose(a.slopes, (*order, a.ndim)))


def _reordered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of a function that gives the axes another order."""

    def rule(a: Any, *arguments: Any, **options: Any) -> Any:
        a = as_array(a)
        seen = np.empty((1,) * a.ndim)
        marks = np.lib.stride_tricks.as_strided(seen, seen.shape, range(a.ndim))
        return _transpose(a, function(marks, *arguments, **options).strides)

    return rule


def _reshaping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of a function that adds or drops axes of length 1."""

    def rule(*arrays: Any, **options: Any) -> Any:
        a, *arguments = arrays
        a = as_array(a)
        numbers = np.broadcast_to(np.float64(0.0), a.shape)
        return _reshape(a, function(numbers, *arguments, **options).shape)

    return rule


def _at_least(function: Callable[..., Any]) -> Callable[..., Any]:
    one = _reshaping(function)

    def rule(*arrays: Any) -> Any:
        found = [one(each) if varies(as_array(each)) else function(each) for each in arrays]
        return found[0] if len(found) == 1 else tuple(found)

    return rule


def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if not varies(array):
        return np.broadcast_to(array, shape)
    count = array.slopes.shape[-1]
    slopes = array.slopes
    if array.ndim < len(shape):
        slopes = slopes.reshape((1,) * (len(shape) - array.ndim) + slopes.shape)
    return DerivativeArray(
        np.broadcast_to(array.value, shape), np.broadcast_to(slopes, (*shape, count))
    )


def _broadcast_arrays(*arrays: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*[np.shape(each) for each in arrays])
    return tuple([_broadcast_to(as_array(each), shape) for each in arrays])


def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    count = len(xi)
    arrays: list[Any] = []
    for k, each in enumerate(xi):
        axis = k if indexing == "ij" or count < 2 or k > 1 else 1 - k
        flat = as_array(each).reshape(-1)
        arrays.append(flat.reshape([-1 if j == axis else 1 for j in range(count)]))
    if not sparse:
        arrays = list(_broadcast_arrays(*arrays))
    return tuple([each.copy() for each in arrays] if copy else arrays)


def _splitting(function: Callable[..., Any], default: int | None) -> Callable[..., Any]:
    def rule(ary: Any, parts: Any, axis: int = 0) -> Any:
        if default is not None:
            axis = default if ary.ndim > 1 or default == 0 else 0
        axis = _axis(axis, ary.ndim)
        plain: Any = np.split if function is not np.array_split else np.array_split
        values = plain(ary.value, parts, axis)
        return [
            DerivativeArray(*pair)
            for pair in zip(values, plain(ary.slopes, parts, axis), strict=True)
        ]

    return rule


# -- products


def _rows_first(slopes: Any) -> Any:
    return np.moveaxis(slopes, -1, 0)


def _matmul(_ufunc: Any, a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    if not np.ndim(a) or not np.ndim(b):
        raise ValueError("matmul: Input operand does not have enough dimensions")
    left, right = value_of(a), value_of(b)
    value = np.matmul(left, right)
    total: Any = None
    if varies(a):
        if a.ndim == 1:
            if right.ndim == 1:
                total = np.matmul(right, a.slopes)
            elif right.ndim == 2:
                total = np.matmul(right.T, a.slopes)
            else:
                total = np.moveaxis(_slopes_product(a, right, left_side=True), 0, -1)
        else:
            total = np.moveaxis(_slopes_product(a, right, left_side=True), 0, -1)
    if varies(b):
        if b.ndim == 1 and left.ndim <= 2:
            term = np.matmul(left, b.slopes)
        else:
            term = np.moveaxis(_slopes_product(b, left, left_side=False), 0, -1)
        total = term if total is None else total + term
    return DerivativeArray(value, total)


def _slopes_product(x: DerivativeArray, other: Any, *, left_side: bool) -> Any:
    """Return slopes times the other factor, the directions first."""
    slopes = _rows_first(x.slopes)
    column, row = x.ndim == 1, other.ndim == 1
    if left_side:
        slopes = slopes[:, None, :] if column else slopes
        other = other[:, None] if row else other
    else:
        slopes = slopes[:, :, None] if column else slopes
        other = other[None, :] if row else other
    missing = other.ndim - (slopes.ndim - 1)
    if missing > 0:
        slopes = slopes.reshape((slopes.shape[0],) + (1,) * missing + tuple(slopes.shape[1:]))
    product = np.matmul(slopes, other) if left_side else np.matmul(other, slopes)
    drop_last = row if left_side else column
    drop_next = column if left_side else row
    if drop_last:
        product = product[..., 0]
        return product[..., 0] if drop_next else product
    return product[..., 0, :] if drop_next else product


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = as_array(a), as_array(b)
    if not np.ndim(a) or not np.ndim(b):
        return _into(out, a * b)
    if np.ndim(b) <= 2:
        return _into(out, np.matmul(a, b))
    return _into(out, _tensordot(a, b, ([np.ndim(a) - 1], [np.ndim(b) - 2])))


def _inner(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    if not np.ndim(a) or not np.ndim(b):
        return a * b
    return _tensordot(a, b, ([np.ndim(a) - 1], [np.ndim(b) - 1]))


def _vdot(a: Any, b: Any) -> Any:
    return np.matmul(np.conj(as_array(a).reshape(-1)), as_array(b).reshape(-1))


def _vecdot(_ufunc: Any, a: Any, b: Any) -> Any:
    return _sum(np.conj(as_array(a)) * as_array(b), -1)


def _outer(a: Any, b: Any, out: Any = None) -> Any:
    return _into(out, as_array(a).reshape(-1)[:, None] * as_array(b).reshape(-1))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = as_array(a), as_array(b)
    if isinstance(axes, (int, np.integer)):
        of_a: Any = list(range(a.ndim - int(axes), a.ndim))
        of_b: Any = list(range(int(axes)))
    else:
        of_a, of_b = (list(np.atleast_1d(each)) for each in axes)
    letters = iter(string.ascii_letters)
    names_a = [next(letters) for _ in range(a.ndim)]
    names_b = [next(letters) for _ in range(b.ndim)]
    of_a = [_axis(int(k), a.ndim) for k in of_a]
    of_b = [_axis(int(k), b.ndim) for k in of_b]
    for j, k in zip(of_a, of_b, strict=True):
        names_b[k] = names_a[j]
    rest_a = [name for k, name in enumerate(names_a) if k not in of_a]
    rest_b = [name for k, name in enumerate(names_b) if k not in of_b]
    rule = f"{''.join(names_a)},{''.join(names_b)}->{''.join(rest_a + rest_b)}"
    return _einsum(rule, a, b)


def _einsum(subscripts: Any, *operands: Any, out: Any = None, **_options: Any) -> Any:
    if not isinstance(subscripts, str):
        raise DerivativeLostError("np.einsum with lists of axes", 'np.einsum("ij,j->i", A, u)')
    arrays = [as_array(each) for each in operands]
    rule = subscripts.replace(" ", "")
    if "->" not in rule:
        names = rule.replace("...", "").replace(",", "")
        once = sorted(name for name in set(names) if names.count(name) == 1)
        rule = f"{rule}->{'...' if '...' in rule else ''}{''.join(once)}"
    inputs, output = rule.split("->")
    terms = inputs.split(",")
    extra = next(letter for letter in string.ascii_letters if letter not in rule)
    values = [value_of(each) for each in arrays]
    value = np.einsum(rule, *values)
    total: Any = None
    for k, each in enumerate(arrays):
        if not varies(each):
            continue
        named = ",".join(f"{term}{extra}" if j == k else term for j, term in enumerate(terms))
        moved = [each.slopes if j == k else other for j, other in enumerate(values)]
        slopes = np.einsum(f"{named}->{output}{extra}", *moved)
        total = slopes if total is None else total + slopes
    if not np.shape(value):
        value = value[()] if isinstance(value, np.ndarray) else value
    return _into(out, DerivativeArray(value, total))


def _kron(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    ndim = max(a.ndim, b.ndim)
    wide = [(1,) * (ndim - each.ndim) + tuple(each.shape) for each in (a, b)]
    left = a.reshape([n for size in wide[0] for n in (size, 1)])
    right = b.reshape([n for size in wide[1] for n in (1, size)])
    return (left * right).reshape([m * n for m, n in zip(*wide, strict=True)])


def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = np.moveaxis(as_array(a), axisa, -1), np.moveaxis(as_array(b), axisb, -1)
    x = [a[..., k] for k in range(a.shape[-1])]
    y = [b[..., k] for k in range(b.shape[-1])]
    if len(x) == len(y) == 2:
        return x[0] * y[1] - x[1] * y[0]
    if len(x) != 3 or len(y) != 3:
        raise DerivativeLostError("np.cross of vectors with two and three components", "three each")
    rows = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]
    return _stack(rows, axisc)


def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    a, v = as_array(a), as_array(v)
    if v.size > a.size:
        a, v = v, a
    total: Any = None
    for k in range(v.size):
        term = np.pad(a * v[k], (k, v.size - 1 - k))
        total = term if total is None else total + term
    if mode == "full":
        return total
    if mode == "same":
        start = (v.size - 1) // 2
        return total[start : start + a.size]
    return total[v.size - 1 : a.size]


def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = as_array(a), as_array(v)
    if v.size > a.size and mode != "full":
        raise DerivativeLostError("np.correlate with the longer array second", "np.convolve")
    whole = _convolve(a, np.conj(v)[::-1])
    if mode == "full":
        return whole
    if mode == "same":
        start = v.size // 2 if v.size % 2 == 0 else (v.size - 1) // 2
        return whole[start : start + a.size]
    return whole[v.size - 1 : a.size]


# -- linear algebra


def _solve(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    matrix, right = value_of(a), value_of(b)
    value = np.linalg.solve(matrix, right)
    vector = np.ndim(right) == 1
    total: Any = None
    if varies(b):
        total = _rows_first(b.slopes)
        total = total[..., None] if vector else total
    if varies(a):
        columns = value[..., None] if vector else value
        term = np.matmul(_rows_first(a.slopes), columns)
        total = -term if total is None else total - term
    slopes = np.linalg.solve(np.broadcast_to(matrix, (total.shape[0], *matrix.shape)), total)
    slopes = slopes[..., 0] if vector else slopes
    return DerivativeArray(value, np.moveaxis(slopes, 0, -1))


def _inv(a: Any) -> Any:
    return np.linalg.solve(a, np.broadcast_to(np.eye(a.shape[-1]), a.shape))


def _det(a: Any) -> Any:
    size = a.shape[-1]
    entry = [[a[..., j, k] for k in range(size)] for j in range(size)] if size <= 3 else []
    if size == 1:
        return entry[0][0]
    if size == 2:
        return entry[0][0] * entry[1][1] - entry[0][1] * entry[1][0]
    if size == 3:
        (p, q, r), (s, t, u), (v, w, x) = entry
        return p * (t * x - u * w) - q * (s * x - u * v) + r * (s * w - t * v)
    value = np.linalg.det(a.value)
    turned = np.swapaxes(np.linalg.inv(a.value), -1, -2)
    weight = turned * (value[..., None, None] if np.ndim(value) else value)
    return DerivativeArray(value, np.sum(weight[..., None] * a.slopes, axis=(-3, -2)))


def _slogdet(a: Any) -> Any:
    sign, value = np.linalg.slogdet(primal(a))
    inner = np.linalg.slogdet(a.value)[1]
    turned = np.swapaxes(np.linalg.inv(a.value), -1, -2)
    slopes = np.sum(turned[..., None] * a.slopes, axis=(-3, -2))
    del value
    return np.linalg._linalg.SlogdetResult(sign, DerivativeArray(inner, slopes))  # type: ignore[attr-defined]


def _matrix_power(a: Any, n: int) -> Any:
    if n < 0:
        a, n = np.linalg.inv(a), -n
    result: Any = np.eye(a.shape[-1]) + 0.0 * a
    for _ in range(n):
        result = np.matmul(result, a)
    return result


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    x = as_array(x)
    axes = _axes(axis, x.ndim)
    if ord in (None, "fro") or (ord == 2 and len(axes) == 1):
        value = np.linalg.norm(primal(x), None, axes if len(axes) < 3 else None, keepdims)
        if len(axes) > 2 and len(axes) != x.ndim:
            raise ValueError("Improper number of dimensions to norm.")
        inner = value if not varies(x.value) else np.linalg.norm(x.value, None, axis, keepdims)
        size = np.where(primal(inner) == 0, 1.0, inner)[()]
        if not keepdims:
            size = size.reshape([1 if k in axes else n for k, n in enumerate(x.shape)])
        turned = np.conj(x.value) / size
        slopes = np.sum(np.real(turned[..., None] * x.slopes), axis=axes, keepdims=keepdims)
        return DerivativeArray(inner, slopes)
    size = np.abs(x)
    if len(axes) == 1:
        if ord == np.inf:
            return _max(size, axes, keepdims=keepdims)
        if ord == -np.inf:
            return _min(size, axes, keepdims=keepdims)
        if ord == 0:
            return np.linalg.norm(primal(x), ord, axis, keepdims)
        if ord == 1:
            return _sum(size, axes, keepdims=keepdims)
        return np.power(_sum(size**ord, axes, keepdims=keepdims), 1.0 / ord)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        along, over = axes if abs(ord) == 1 else axes[::-1]
        sums = _sum(size, along, keepdims=True)
        found = (_max if ord > 0 else _min)(sums, over, keepdims=True)
        return found if keepdims else np.squeeze(found, axes)
    raise DerivativeLostError(f"np.linalg.norm with ord={ord}", "the norm of Frobenius")


# -- functions of several steps


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **bounds: Any) -> Any:
    low, high = bounds.pop("min", a_min), bounds.pop("max", a_max)
    a = as_array(a)
    if low is not None:
        a = np.maximum(a, low)
    if high is not None:
        a = np.minimum(a, high)
    return _into(out, a)


def _nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    values = primal(x)
    most = np.finfo(float).max
    x = _where(np.isnan(values), nan, x)
    x = _where(np.isposinf(values), most if posinf is None else posinf, x)
    return _where(np.isneginf(values), -most if neginf is None else neginf, x)


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    result: Any = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = _where(condition, choice, result)
    return result


def _piecewise(x: Any, condlist: Any, funclist: Any, *arguments: Any, **options: Any) -> Any:
    x = as_array(x)
    conditions = [np.asarray(primal(each), dtype=bool) for each in as_list(condlist, x)]
    pieces = list(funclist)
    if len(pieces) == len(conditions) + 1:
        last = ~np.any(conditions, axis=0)
        conditions.append(last)
    elif len(pieces) != len(conditions):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or "
            f"{len(conditions) + 1} functions are expected"
        )
    result = 0.0 * x
    for condition, piece in zip(conditions, pieces, strict=True):
        if not condition.any():
            continue
        inside = x[condition] if x.shape else x
        values = piece(inside, *arguments, **options) if callable(piece) else piece
        if x.shape:
            result[condition] = values
        else:
            result = values + 0.0 * x
    return result


def as_list(condlist: Any, x: Any) -> list[Any]:
    """Return the conditions of ``piecewise`` one by one."""
    if isinstance(condlist, (list, tuple)):
        first: Any = condlist[0]
        return list(condlist) if np.ndim(primal(first)) or not x.shape else [condlist]
    return [condlist] if np.ndim(primal(condlist)) == x.ndim else list(condlist)


def _interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    x, xp, fp = as_array(x), as_array(xp), as_array(fp)
    if period is not None:
        raise DerivativeLostError("np.interp with period=", "x % period, and one more knot")
    knots = primal(xp)
    if np.size(knots) == 1:
        inside = fp[0] + 0.0 * x
    else:
        note_branch(primal(x)[..., None], knots)
        k = np.clip(np.searchsorted(knots, primal(x), side="right") - 1, 0, np.size(knots) - 2)
        share = (x - xp[k]) / (xp[k + 1] - xp[k])
        inside = fp[k] * (1.0 - share) + fp[k + 1] * share
    inside = _where(primal(x) < knots[0], fp[0] if left is None else left, inside)
    at_end = _where(primal(x) == knots[-1], fp[-1], inside)
    return _where(primal(x) > knots[-1], fp[-1] if right is None else right, at_end)


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = np.moveaxis(as_array(y), axis, -1)
    if x is None:
        width: Any = dx
    else:
        x = as_array(x)
        width = np.diff(x) if np.ndim(x) == 1 else np.diff(np.moveaxis(x, axis, -1))
    return _sum(0.5 * width * (y[..., 1:] + y[..., :-1]), -1)


def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: Any = 1) -> Any:
    f = as_array(f)
    _no_derivatives(np.gradient, varargs)
    axes = _axes(axis, f.ndim)
    if len(varargs) == 1 and len(axes) > 1 and np.ndim(varargs[0]) == 0:
        varargs = varargs * len(axes)
    steps: list[Any] = [[each] for each in varargs] or [[] for _ in axes]
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    found = [
        DerivativeArray(
            np.gradient(f.value, *step, axis=place, edge_order=edge_order),
            np.gradient(f.slopes, *step, axis=place, edge_order=edge_order),
        )
        for step, place in zip(steps, axes, strict=True)
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    parts = [to_begin, np.diff(as_array(ary).reshape(-1)), to_end]
    return np.concatenate([np.atleast_1d(as_array(each)) for each in parts if each is not None])


def _polyval(p: Any, x: Any) -> Any:
    p, x = as_array(p), as_array(x)
    result: Any = 0.0 * x
    for k in range(p.shape[0]):
        result = result * x + p[k]
    return result


def _linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, **rest: Any
) -> Any:
    if rest.get("axis", 0) != 0 or rest.get("dtype") is not None:
        raise DerivativeLostError("np.linspace with axis= or dtype=")
    start, stop = as_array(start), as_array(stop)
    share = np.linspace(0.0, 1.0, num, endpoint)
    share = share.reshape((-1,) + (1,) * max(np.ndim(start), np.ndim(stop)))
    result = start * (1.0 - share) + stop * share
    return (result, (stop - start) / (num - 1 if endpoint else num)) if retstep else result


def _sinc(x: Any) -> Any:
    x = as_array(x)
    y = math.pi * x
    near = np.abs(primal(y)) < 0.5
    square = np.where(near, y * y, 0.0)
    series: Any = 1.0
    for k in range(9, 0, -1):
        series = 1.0 - square / (2 * k * (2 * k + 1)) * series
    away = np.where(near, 1.0, y)
    return np.where(near, series, np.sin(away) / away)


def _angle(z: Any, deg: bool = False) -> Any:
    angle = np.arctan2(np.imag(z), np.real(z))
    return angle * (180.0 / math.pi) if deg else angle


def _like(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(a: Any, *arguments: Any, **options: Any) -> Any:
        made = function(primal(a), *[_values(each) for each in arguments], **options)
        if made.dtype.char not in "dD":
            return made
        count = a.slopes.shape[-1]
        nothing = np.zeros((*made.shape, count), dtype=made.dtype)
        if varies(a.value):
            inner = a.value.slopes.shape[-1]
            nothing = DerivativeArray(nothing, np.zeros((*nothing.shape, inner)))
            made = DerivativeArray(made, np.zeros((*made.shape, inner)))
        result = DerivativeArray(made, nothing)
        filled = arguments[0] if function.__name__ == "full_like" and arguments else None
        if varies(filled):
            result[...] = filled
        return result

    return rule


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    x = np.asarray(primal(x))
    if not varies(weights):
        return np.bincount(x, weights, minlength)
    size = max(minlength, int(x.max(initial=-1)) + 1)
    places = (np.arange(size)[:, None] == x).astype(float)
    return np.matmul(places, weights)


def _apply_along_axis(func1d: Any, axis: int, arr: Any, *arguments: Any, **options: Any) -> Any:
    moved = np.moveaxis(as_array(arr), axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    rows = [as_array(func1d(row, *arguments, **options)) for row in flat]
    result = _stack(rows).reshape(moved.shape[:-1] + tuple(rows[0].shape))
    return np.moveaxis(result, -1, axis) if rows[0].ndim == 1 else result


def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:  # noqa: N803
    x = as_array(x)
    count = x.shape[0] if N is None else N
    powers = np.arange(count) if increasing else np.arange(count)[::-1]
    return x[:, None] ** powers


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, **_options: Any) -> Any:
    return _sum(np.diagonal(as_array(a), offset, axis1, axis2), -1)


def _at(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the rule of ``np.add.at``, which counts repeated places."""

    def rule(a: Any, indices: Any, b: Any) -> None:
        numbers = np.arange(a.size).reshape(a.shape)[indices].reshape(-1)
        b = _broadcast_to(as_array(b), a[indices].shape).reshape(-1)
        flat = a.reshape(-1)
        for place, k in zip(numbers.tolist(), range(numbers.size), strict=True):
            flat[place] = combine(flat[place], b[k])

    return rule


def _outer_of(name: str) -> Callable[..., Any]:
    ufunc = getattr(np, name)

    def rule(a: Any, b: Any) -> Any:
        a, b = as_array(a), as_array(b)
        return ufunc(a.reshape(*a.shape, *(1,) * b.ndim), b)

    return rule


def _first_axis(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction whose axis is 0 unless told otherwise, as those of ufuncs."""

    def reduce(a: Any, axis: Any = 0, *arguments: Any, **options: Any) -> Any:
        return rule(a, axis, *arguments, **options)

    return reduce


def _real(val: Any) -> Any:
    return as_array(val).real


def _imag(val: Any) -> Any:
    return as_array(val).imag


def _copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return a.copy()


_cumprod = _in_turn(lambda x, y: x * y)

FUNCTIONS.update(
    {
        np.sum: _sum,
        np.mean: _mean,
        np.var: _var,
        np.std: _std,
        np.average: _average,
        np.prod: _prod,
        np.cumprod: _cumprod,
        np.max: _max,
        np.amax: _max,
        np.min: _min,
        np.amin: _min,
        np.ptp: _ptp,
        np.sort: _sort,
        np.median: _median,
        np.quantile: _quantile,
        np.percentile: _percentile,
        np.nansum: _without_nan(_sum, 0.0),
        np.nanprod: _without_nan(_prod, 1.0),
        np.nanmax: _without_nan(_max, -np.inf),
        np.nanmin: _without_nan(_min, np.inf),
        np.nanmean: _nanmean,
        np.where: _where,
        np.clip: _clip,
        np.nan_to_num: _nan_to_num,
        np.select: _select,
        np.piecewise: _piecewise,
        np.interp: _interp,
        np.trapezoid: _trapezoid,
        np.gradient: _gradient,
        np.ediff1d: _ediff1d,
        np.polyval: _polyval,
        np.linspace: _linspace,
        np.sinc: _sinc,
        np.i0: special.i0,
        np.angle: _angle,
        np.real: _real,
        np.imag: _imag,
        np.copy: _copy,
        np.concatenate: _concatenate,
        np.stack: _stack,
        np.append: _append,
        np.insert: _insert,
        np.roll: _roll,
        np.pad: _pad,
        np.take_along_axis: _take_along_axis,
        np.reshape: _reshape,
        np.ravel: _ravel,
        np.transpose: _transpose,
        np.swapaxes: _reordered(np.swapaxes),
        np.moveaxis: _reordered(np.moveaxis),
        np.rollaxis: _reordered(np.rollaxis),
        np.squeeze: _reshaping(np.squeeze),
        np.expand_dims: _reshaping(np.expand_dims),
        np.atleast_1d: _at_least(np.atleast_1d),
        np.atleast_2d: _at_least(np.atleast_2d),
        np.atleast_3d: _at_least(np.atleast_3d),
        np.broadcast_to: _broadcast_to,
        np.broadcast_arrays: _broadcast_arrays,
        np.meshgrid: _meshgrid,
        np.split: _splitting(np.split, None),
        np.array_split: _splitting(np.array_split, None),
        np.hsplit: _splitting(np.hsplit, 1),
        np.vsplit: _splitting(np.vsplit, 0),
        np.dot: _dot,
        np.inner: _inner,
        np.vdot: _vdot,
        np.outer: _outer,
        np.tensordot: _tensordot,
        np.einsum: _einsum,
        np.kron: _kron,
        np.cross: _cross,
        np.linalg.cross: lambda x1, x2, *, axis=-1: _cross(x1, x2, axis=axis),
        np.convolve: _convolve,
        np.correlate: _correlate,
        np.linalg.solve: _solve,
        np.linalg.inv: _inv,
        np.linalg.det: _det,
        np.linalg.slogdet: _slogdet,
        np.linalg.matrix_power: _matrix_power,
        np.linalg.norm: _norm,
        np.linalg.vector_norm: lambda x, /, *, axis=None, ord=2, keepdims=False: _norm(  # noqa: A006
            as_array(x).reshape(-1) if axis is None else x, ord, axis, keepdims
        ),
        np.linalg.multi_dot: lambda arrays: np.matmul(
            arrays[0], arrays[1] if len(arrays) == 2 else np.linalg.multi_dot(arrays[1:])
        ),
        np.zeros_like: _like(np.zeros_like),
        np.ones_like: _like(np.ones_like),
        np.empty_like: _like(np.zeros_like),
        np.full_like: _like(np.full_like),
        np.bincount: _bincount,
        np.apply_along_axis: _apply_along_axis,
        np.vander: _vander,
        np.trace: _trace,
    }
)
for _function in (
    *(np.flip, np.fliplr, np.flipud, np.rot90, np.tile, np.repeat, np.take, np.delete, np.diag),
    *(np.diagflat, np.diagonal, np.tril, np.triu, np.compress, np.resize, np.fft.fftshift),
    *(np.fft.ifftshift, np.trim_zeros, np.linalg.diagonal),
):
    FUNCTIONS[_function] = _moving(_function)
for _function in (np.hstack, np.vstack, np.dstack, np.column_stack, np.block):
    FUNCTIONS[_function] = _joining(_function)


def _on_values(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(*arguments: Any, **options: Any) -> Any:
        return on_values(function, *arguments, **options)

    return rule


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a comparison that holds at one point only where it holds between numbers that vary."""

    def rule(x: Any, y: Any, *arguments: Any, **options: Any) -> Any:
        result = on_values(function, x, y, *arguments, **options)
        if np.any(result):
            x, y = as_array(x), as_array(y)
            if np.any(result & (moving(x) | moving(y)) & moving(x - y)):
                raise DerivativeLostError(
                    f"np.{function.__name__} of numbers that vary, whose branch holds at one point "
                    "(and around it for the numbers, not for their derivatives),",
                    "what is computed anew in the place of what is kept; >= or <= for a side; "
                    "np.sinc, np.expm1, np.log1p in the place of a limit",
                )
        return result

    return rule


def _isin(x: Any, y: Any, **options: Any) -> Any:
    result = on_values(np.isin, x, y, **options)
    if np.any(result) and (moving(as_array(x)).any() or moving(as_array(y)).any()):
        raise DerivativeLostError(
            "np.isin of numbers that vary, which holds at one point only,",
            "what is computed anew in the place of what is kept; np.rint for a flag",
        )
    return result


def _histogram(x: Any, *arguments: Any, **options: Any) -> Any:
    given = [x, *arguments, *options.values()]
    if any(moving(as_array(each)).any() for each in given):
        raise DerivativeLostError(
            "np.histogram", "np.bincount(np.digitize(x, edges) - 1, weights, minlength)"
        )
    return on_values(np.histogram, x, *arguments, **options)


def _rounded(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(x: Any, decimals: Any = 0) -> Any:
        refuse_decimals(x, decimals)
        return on_values(function, x, decimals)

    return rule


def _text(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(x: Any, *arguments: Any, **options: Any) -> Any:
        frame = users_frame(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        if frame is not None:
            refuse_text(x, frame)
        return on_values(function, x, *arguments, **options)

    return rule


FUNCTIONS[np.histogram] = _histogram
FUNCTIONS[np.isin] = _isin
for _function in (np.array_equal, np.array_equiv, np.allclose, np.isclose):
    FUNCTIONS[_function] = _same(_function)
for _function in (np.round, np.around):
    FUNCTIONS[_function] = _rounded(_function)
for _function in (np.array_repr, np.array_str, np.array2string):
    FUNCTIONS[_function] = _text(_function)

# what is a number of places, a shape or a step is constant between jumps
for _function in (
    *(np.shape, np.size, np.ndim, np.argmax, np.argmin, np.argsort, np.argwhere, np.nonzero),
    *(
        np.flatnonzero,
        np.count_nonzero,
        np.searchsorted,
        np.digitize,
        np.any,
        np.all,
        np.iscomplexobj,
    ),
    *(np.isrealobj, np.isreal, np.iscomplex),
    *(np.fix, np.isposinf, np.isneginf, np.result_type),
    *(np.may_share_memory, np.shares_memory),
    *(np.nanargmax, np.nanargmin, np.lexsort, np.linalg.matrix_rank, np.common_type),
):
    FUNCTIONS[_function] = _on_values(_function)

UFUNCS["matmul"] = _matmul
UFUNCS["vecdot"] = _vecdot
UFUNCS["clip"] = lambda _ufunc, a, low, high: _clip(a, low, high)
METHODS.update(
    {
        ("add", "reduce"): _first_axis(_sum),
        ("multiply", "reduce"): _first_axis(_prod),
        ("maximum", "reduce"): _first_axis(_max),
        ("minimum", "reduce"): _first_axis(_min),
        ("logical_and", "reduce"): _first_axis(_on_values(np.all)),
        ("logical_or", "reduce"): _first_axis(_on_values(np.any)),
        ("add", "accumulate"): _first_axis(FUNCTIONS[np.cumsum]),
        ("multiply", "accumulate"): _first_axis(_cumprod),
        ("maximum", "accumulate"): _first_axis(_in_turn(np.maximum)),
        ("minimum", "accumulate"): _first_axis(_in_turn(np.minimum)),
        ("add", "at"): _at(lambda x, y: x + y),
        ("subtract", "at"): _at(lambda x, y: x - y),
        **{
            (name, "outer"): _outer_of(name)
            for name in ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum")
        },
    }
)


def _array_method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def call(self: DerivativeArray, *arguments: Any, **options: Any) -> Any:
        return FUNCTIONS[function](self, *arguments, **options)

    return call


for _name in (
    *("sum", "mean", "var", "std", "prod", "cumsum", "cumprod", "max", "min", "ptp", "argmax"),
    *("argmin", "argsort", "nonzero", "any", "all", "round", "clip", "dot", "ravel", "squeeze"),
    *("swapaxes", "repeat", "take", "diagonal", "trace", "compress", "searchsorted"),
):
    setattr(DerivativeArray, _name, _array_method(_name))
DerivativeArray.conj = DerivativeArray.conjugate  # type: ignore[attr-defined]
