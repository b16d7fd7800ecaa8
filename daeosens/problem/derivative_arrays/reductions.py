"""Sums, products, extremes, ranks, differences and Fourier transforms along axes."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.arrays import (
    FUNCTIONS,
    METHODS,
    DerivativeArray,
    as_array,
    note_whole,
    primal,
)
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError
from daeosens.problem.derivative_arrays.elementwise import chosen
from daeosens.problem.derivative_arrays.movement import broadcast_to
from daeosens.problem.derivative_arrays.rules import (
    axis_number,
    axis_numbers,
    by_values,
    into,
    refuse_derivatives,
    varies,
)


def along_axis(function: Callable[..., Any], default: int | None, place: int) -> Callable[..., Any]:
    """Return the rule of a linear function along one axis, its positional argument ``place``."""

    def rule(a: Any, *arguments: Any, **options: Any) -> Any:
        a = as_array(a)
        listed = list(arguments)
        if len(listed) >= place:
            axis = listed.pop(place - 1)
        else:
            axis = options.pop("axis", default)
        refuse_derivatives(function, (*listed, *options.values()))
        if not varies(a):
            return function(a, *listed, axis=axis, **options)
        if axis is None:
            a, axis = a.reshape(-1), 0
        axis = axis_number(int(axis), a.ndim)

        def apply(x: Any) -> Any:
            if len(listed) >= place:  # what comes after the axis
                return function(x, *listed[: place - 1], axis, *listed[place - 1 :], **options)
            return function(x, *listed, axis=axis, **options)

        # linear: the same function of the slopes, whose own axis comes last and is not touched
        return DerivativeArray(apply(a.value), apply(a.slopes))

    return rule


def sum_of(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = 0.0,
    where: Any = True,
) -> Any:
    """Do as ``np.sum``."""
    a = as_array(a)
    # a number that is left out has no slope either
    if where is not True:
        a = chosen(where, a, 0.0)
    if not varies(a):
        return np.sum(a, axis, keepdims=keepdims) + initial
    axes = axis_numbers(axis, a.ndim)
    value = np.sum(a.value, axis=axes, keepdims=keepdims)
    result = DerivativeArray(value, np.sum(a.slopes, axis=axes, keepdims=keepdims))
    if dtype is not None:
        result = result.astype(dtype)
    return into(out, result if primal(initial) == 0 and not varies(initial) else result + initial)


def _count(a: Any, axis: Any) -> int:
    return math.prod(a.shape[k] for k in axis_numbers(axis, a.ndim))


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
        total = sum_of(a, axis, keepdims=keepdims, where=kept)
        return total / np.sum(kept, axis=axis, keepdims=keepdims)
    return into(out, sum_of(a, axis, dtype, keepdims=keepdims) / _count(a, axis))


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
    # two passes, as NumPy does: the derivative is that of what is computed
    away = a - _mean(a, axis, keepdims=True)
    square = np.real(away * np.conj(away)) if a.dtype.kind == "c" else away * away
    total = sum_of(square, axis, dtype, keepdims=keepdims)
    return into(out, total / (_count(a, axis) - ddof))


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
        (place,) = axis_numbers(axis, a.ndim)
        weights = weights.reshape([-1 if k == place else 1 for k in range(a.ndim)])
        weights = np.broadcast_to(weights, a.shape)
    total = sum_of(weights, axis, keepdims=keepdims)
    return sum_of(a * weights, axis, keepdims=keepdims) / total


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
        return into(out, np.stack(rows, axis=axis))

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
        a = chosen(rest.pop("where"), a, 1.0)
    axes = axis_numbers(axis, a.ndim)
    kept = [k for k in range(a.ndim) if k not in axes]
    shape = tuple([a.shape[k] for k in kept])
    # no division by an entry, which may be zero: products of the others come from the product rule
    factors = np.transpose(a, (*axes, *kept)).reshape(-1, *shape)
    result: Any = rest.pop("initial", 1.0)
    factors = list(factors)
    while len(factors) > 1:  # by halves: fewer, larger multiplications
        half = [x * y for x, y in zip(factors[::2], factors[1::2], strict=False)]
        factors = half + ([factors[-1]] if len(factors) % 2 else [])
    result = result * factors[0] if factors else result + 0.0 * np.sum(a, axis=axes)
    if keepdims:
        result = result.reshape([1 if k in axes else a.shape[k] for k in range(a.ndim)])
    return into(out, result)


def _extreme(place: Callable[..., Any], bound: Callable[..., Any]) -> Callable[..., Any]:
    def rule(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, **rest: Any) -> Any:
        a = as_array(a)
        if "where" in rest:
            raise DerivativeLostError(f"np.{bound.__name__} with where=")
        axes = axis_numbers(axis, a.ndim)
        kept = [k for k in range(a.ndim) if k not in axes]
        shape = [a.shape[k] for k in kept]
        flat = np.transpose(a, (*kept, *axes)).reshape(*shape, -1)
        # The slope of a maximum is that of the entry that is largest; which one that is, is noted
        # as a decision, since the derivative jumps where another takes over.
        result = np.take_along_axis(flat, note_whole(place(primal(flat), axis=-1))[..., None], -1)[
            ..., 0
        ]
        if "initial" in rest:
            result = bound(result, rest["initial"])
        if keepdims:
            result = result.reshape([1 if k in axes else a.shape[k] for k in range(a.ndim)])
        return into(out, result)

    return rule


maximum_of = _extreme(np.argmax, np.maximum)
minimum_of = _extreme(np.argmin, np.minimum)


def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return into(
        out, maximum_of(a, axis, keepdims=keepdims) - minimum_of(a, axis, keepdims=keepdims)
    )


def _sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, **_rest: Any) -> Any:
    a = as_array(a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    # a permutation: slopes move with values, and which one it is decides
    places = note_whole(np.argsort(primal(a), axis=axis, kind="stable"))
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
        shape = [1 if k == axis_number(axis, a.ndim) else n for k, n in enumerate(a.shape)]
    ordered = np.moveaxis(_sort(a, axis), axis, 0)
    share = np.asarray(q, dtype=float) * (len(ordered) - 1)
    below = np.clip(np.floor(share).astype(int), 0, max(len(ordered) - 2, 0))
    above = np.minimum(below + 1, len(ordered) - 1)
    # linear between two neighbours in order, as NumPy's default
    part = (share - below).reshape(share.shape + (1,) * (ordered.ndim - 1))
    result = ordered[below] * (1.0 - part) + ordered[above] * part
    return into(out, result.reshape(share.shape + tuple(shape)) if keepdims else result)


def _percentile(a: Any, q: Any, *arguments: Any, **options: Any) -> Any:
    return _quantile(a, np.asarray(q) / 100.0, *arguments, **options)


def _median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
) -> Any:
    return _quantile(a, 0.5, axis, out, keepdims=keepdims)


def _without_nan(function: Callable[..., Any], instead: float) -> Callable[..., Any]:
    def rule(a: Any, *arguments: Any, **options: Any) -> Any:
        a = as_array(a)
        return function(chosen(np.isnan(primal(a)), instead, a), *arguments, **options)

    return rule


def _nanmean(a: Any, axis: Any = None, **options: Any) -> Any:
    a = as_array(a)
    return _mean(a, axis, where=~np.isnan(primal(a)), **options)


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = np.moveaxis(as_array(y), axis, -1)
    if x is None:
        width: Any = dx
    else:
        x = as_array(x)
        width = np.diff(x) if np.ndim(x) == 1 else np.diff(np.moveaxis(x, axis, -1))
    return sum_of(0.5 * width * (y[..., 1:] + y[..., :-1]), -1)


def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    parts = [to_begin, np.diff(as_array(ary).reshape(-1)), to_end]
    return np.concatenate([np.atleast_1d(as_array(part)) for part in parts if part is not None])


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, **_options: Any) -> Any:
    return sum_of(np.diagonal(as_array(a), offset, axis1, axis2), -1)


def _first_axis(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction whose axis is 0 unless told otherwise, as those of ufuncs."""

    def reduce(a: Any, axis: Any = 0, *arguments: Any, **options: Any) -> Any:
        return rule(a, axis, *arguments, **options)

    return reduce


def _at(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the rule of ``np.add.at``, which counts repeated places."""

    def rule(a: Any, indices: Any, b: Any) -> None:
        numbers = np.arange(a.size).reshape(a.shape)[indices].reshape(-1)
        b = broadcast_to(as_array(b), a[indices].shape).reshape(-1)
        # one by one, as a place may be there several times; by all indices, since what is
        # transposed has no flat view, but a copy
        places = zip(*(axis.tolist() for axis in np.unravel_index(numbers, a.shape)), strict=True)
        for k, place in enumerate(places):
            a[place] = combine(a[place], b[k])

    return rule


def _outer_of(name: str) -> Callable[..., Any]:
    ufunc = getattr(np, name)

    def rule(a: Any, b: Any) -> Any:
        a, b = as_array(a), as_array(b)
        return ufunc(a.reshape(*a.shape, *(1,) * b.ndim), b)

    return rule


_cumprod = _in_turn(lambda x, y: x * y)


def _with_axes(function: Callable[..., Any], default: Any) -> Callable[..., Any]:
    """Return the rule of a linear function along several axes (FFTs)."""

    def rule(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        a = as_array(a)
        if axes is None:
            axes = tuple(range(-len(s), 0)) if s is not None else tuple(range(a.ndim))
        places = [axis_number(int(axis), a.ndim) for axis in axes]
        sizes = s if s is not None or "irfft" in function.__name__ else [a.shape[k] for k in places]
        if sizes is None:
            # inverse transforms of real signals have half the entries but one, as in NumPy
            sizes = [a.shape[k] for k in places[:-1]] + [2 * (a.shape[places[-1]] - 1)]
        value = function(a.value, sizes, places, norm)
        return DerivativeArray(value, function(a.slopes, sizes, places, norm))

    return rule


_fft = np.fft

FUNCTIONS.update(
    {
        np.sum: sum_of,
        np.mean: _mean,
        np.var: _var,
        np.std: _std,
        np.average: _average,
        np.prod: _prod,
        np.cumprod: _cumprod,
        np.max: maximum_of,
        np.amax: maximum_of,
        np.min: minimum_of,
        np.amin: minimum_of,
        np.ptp: _ptp,
        np.sort: _sort,
        np.median: _median,
        np.quantile: _quantile,
        np.percentile: _percentile,
        np.nansum: _without_nan(sum_of, 0.0),
        np.nanprod: _without_nan(_prod, 1.0),
        np.nanmax: _without_nan(maximum_of, -np.inf),
        np.nanmin: _without_nan(minimum_of, np.inf),
        np.nanmean: _nanmean,
        np.trapezoid: _trapezoid,
        np.ediff1d: _ediff1d,
        np.trace: _trace,
        np.cumsum: along_axis(np.cumsum, None, 1),
        np.diff: along_axis(np.diff, -1, 2),
        **{
            transform: along_axis(transform, -1, 2)
            for transform in (_fft.fft, _fft.ifft, _fft.rfft, _fft.irfft, _fft.hfft, _fft.ihfft)
        },
        **{
            transform: _with_axes(transform, (-2, -1))
            for transform in (_fft.fft2, _fft.ifft2, _fft.rfft2, _fft.irfft2)
        },
        **{
            transform: _with_axes(transform, None)
            for transform in (_fft.fftn, _fft.ifftn, _fft.rfftn, _fft.irfftn)
        },
    }
)
METHODS.update(
    {
        ("add", "reduce"): _first_axis(sum_of),
        ("multiply", "reduce"): _first_axis(_prod),
        ("maximum", "reduce"): _first_axis(maximum_of),
        ("minimum", "reduce"): _first_axis(minimum_of),
        ("logical_and", "reduce"): _first_axis(by_values(np.all)),
        ("logical_or", "reduce"): _first_axis(by_values(np.any)),
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
