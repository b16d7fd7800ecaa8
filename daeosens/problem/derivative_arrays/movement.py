"""Functions that move, join and copy entries.

NumPy moves their numbers, so every option means what it means.
"""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.arrays import (
    FUNCTIONS,
    DerivativeArray,
    as_array,
    constant,
    primal,
)
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError
from daeosens.problem.derivative_arrays.elementwise import chosen
from daeosens.problem.derivative_arrays.points import PointArray
from daeosens.problem.derivative_arrays.recorded_slopes import RecordedSlopes
from daeosens.problem.derivative_arrays.rules import (
    axis_number,
    axis_numbers,
    into,
    refuse_derivatives,
    value_of,
    values_of,
    varies,
)


def picked(a: DerivativeArray, places: Any) -> DerivativeArray:
    """Return entries by their numbers, counted from 1; 0 is a constant zero."""
    flat = a.reshape(-1)
    if not isinstance(places, np.ndarray):
        places = np.asarray(places)
    if places.size and places.min() == 0:
        # 0 stands for what NumPy has filled in, such as zeros beside a diagonal
        return chosen(places == 0, 0.0, flat[np.maximum(places - 1, 0)])
    return flat[places - 1]


def _moving(function: Callable[..., Any]) -> Callable[..., Any]:
    def move(a: Any, *arguments: Any, **options: Any) -> Any:
        a = as_array(a)
        refuse_derivatives(function, (*arguments, *options.values()))
        # NumPy moves the numbers of the entries; which entry came where is read off, so that no
        # option needs a rule of its own
        numbers = np.arange(1, a.size + 1).reshape(a.shape)
        places = function(numbers, *arguments, **options)
        if not varies(a):
            return function(a, *arguments, **options)
        if isinstance(places, (list, tuple)):
            return type(places)([picked(a, place) for place in places])
        return picked(a, places)

    return move


def _joining(function: Callable[..., Any]) -> Callable[..., Any]:
    def join(arrays: Any, *arguments: Any, **options: Any) -> Any:
        parts: list[Any] = []
        total = 0

        def numbered(thing: Any) -> Any:
            nonlocal total
            if isinstance(thing, (list, tuple)) and function is np.block:
                return [numbered(element) for element in thing]
            part = as_array(thing)
            parts.append(part.reshape(-1))
            total += part.size
            return np.arange(total - part.size + 1, total + 1).reshape(part.shape)

        things = [numbered(array) for array in arrays]
        # entries of all arrays are numbered through, so that one pick from all of them together is
        # the result
        places = function(things, *arguments, **options)
        return picked(concatenated(parts), places)

    return join


def concatenated(parts: Sequence[Any]) -> Any:
    """Return arrays [n_i] one after the other."""
    varying = [part for part in parts if varies(part)]
    # slopes have one axis more, the last one: the directions
    count = varying[0].slopes.shape[-1]
    value = np.concatenate([value_of(part) for part in parts])
    slopes = [part.slopes if varies(part) else np.zeros((*part.shape, count)) for part in parts]
    return DerivativeArray(value, np.concatenate(slopes))


def concatenate(arrays: Any, axis: Any = 0, out: Any = None, **_options: Any) -> Any:
    """Do as ``np.concatenate``."""
    parts = [as_array(array) for array in arrays]
    if axis is None:
        parts, axis = [part.reshape(-1) for part in parts], 0
    if not any(varies(part) for part in parts):
        return np.concatenate(parts, axis)
    axis = axis_number(int(axis), parts[0].ndim)
    count = next(part for part in parts if varies(part)).slopes.shape[-1]
    value = np.concatenate([value_of(part) for part in parts], axis)
    slopes = [part.slopes if varies(part) else np.zeros((*part.shape, count)) for part in parts]
    return into(out, DerivativeArray(value, np.concatenate(slopes, axis)))


def stack(arrays: Any, axis: int = 0, out: Any = None, **_options: Any) -> Any:
    """Do as ``np.stack``."""
    parts = [as_array(array) for array in arrays]
    axis = axis_number(axis, parts[0].ndim + 1)
    return concatenate([np.expand_dims(part, axis) for part in parts], axis, out)


def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    return concatenate([as_array(arr), as_array(values)], axis)


def _insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    arr, values = as_array(arr), as_array(values)
    whole = concatenated([arr.reshape(-1), values.reshape(-1)])
    numbers = np.arange(1, arr.size + 1).reshape(arr.shape)
    added = np.arange(arr.size + 1, whole.size + 1).reshape(values.shape)
    return picked(whole, np.insert(numbers, obj, added, axis))


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    a = as_array(a)
    if axis is None:
        if a.ndim > 1:
            return _roll(a.reshape(-1), shift, 0).reshape(a.shape)
        axis = 0
    axes = axis_numbers(axis if not isinstance(axis, list) else tuple(axis), a.ndim)
    shifts: Any = shift if np.ndim(shift) == 0 else tuple(shift)
    if np.ndim(shift) == 0 and len(axes) > 1:
        shifts = (shift,) * len(axes)
    elif np.ndim(shift) == 0:
        shifts = (shift,)
    # axes are counted from the first, so that they are the same for slopes, which have one more
    return DerivativeArray(np.roll(a.value, shifts, axes), np.roll(a.slopes, shifts, axes))


def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    arr = as_array(arr)
    numbers = np.arange(1, arr.size + 1).reshape(arr.shape)
    return picked(arr, np.take_along_axis(numbers, primal(indices), axis))


def _pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    array = as_array(array)
    if mode not in ("constant", "edge", "wrap", "reflect", "symmetric") or (
        mode == "constant" and any(varies(option) for option in options.values())
    ):
        raise DerivativeLostError(
            f"np.pad with mode={mode!r} and {list(options)}", "np.concatenate"
        )
    if "reflect_type" in options:
        raise DerivativeLostError("np.pad with reflect_type", "np.concatenate")
    try:
        places = _padded_places(array.shape, pad_width, mode)
    except TypeError:  # widths in a list, or none at all
        places = _padded_places.__wrapped__(array.shape, pad_width, mode)
    flat = array.reshape(-1)
    if mode != "constant":
        return flat[places]
    # what is filled in does not vary; entries inside keep their slopes
    values = np.pad(primal(array), pad_width, mode="constant", **options) if options else 0.0
    return chosen(places < 0, values, flat[np.maximum(places, 0)])


@lru_cache(maxsize=64, typed=True)
def _padded_places(shape: tuple[int, ...], pad_width: Any, mode: str) -> Any:
    """Return the numbers of the entries that ``np.pad`` puts where; -1 is none of them."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    filled = {"constant_values": -1} if mode == "constant" else {}
    places = np.pad(numbers, pad_width, mode=mode, **filled)  # type: ignore[call-overload]
    places.flags.writeable = False
    return places


def _reshape(a: Any, shape: Any = None, order: str = "C", **rest: Any) -> Any:
    shape = rest.get("newshape", shape)
    if not varies(a):
        return np.reshape(as_array(a), shape, order=order)  # type: ignore[call-overload]
    if order not in ("C", "A"):
        numbers = np.arange(1, a.size + 1).reshape(a.shape)
        return picked(a, np.reshape(numbers, shape, order=order))  # type: ignore[call-overload]
    value = np.reshape(a.value, shape)
    return DerivativeArray(value, np.reshape(a.slopes, (*value.shape, a.slopes.shape[-1])))


def _ravel(a: Any, order: str = "C") -> Any:
    return _reshape(as_array(a), -1, "C" if order == "K" else order)


def _transpose(a: Any, axes: Any = None) -> Any:
    a = as_array(a)
    order = tuple(range(a.ndim))[::-1] if axes is None else axis_numbers(tuple(axes), a.ndim)
    return DerivativeArray(np.transpose(a.value, order), np.transpose(a.slopes, (*order, a.ndim)))


def _reordered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of a function that gives the axes another order."""

    def rule(a: Any, *arguments: Any, **options: Any) -> Any:
        a = as_array(a)
        seen = np.empty((1,) * a.ndim)
        # Strides 0, 1, 2, ... mark the axes: where the function puts them is read off its result.
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
    reshaped = _reshaping(function)

    def rule(*arrays: Any) -> Any:
        results = [
            reshaped(array) if varies(as_array(array)) else function(array) for array in arrays
        ]
        return results[0] if len(results) == 1 else tuple(results)

    return rule


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """Do as ``np.broadcast_to``."""
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if not varies(array):
        return np.broadcast_to(array, shape)
    count = array.slopes.shape[-1]
    slopes = array.slopes
    if array.ndim < len(shape):
        # NumPy puts new axes in front: the directions stay last
        slopes = slopes.reshape((1,) * (len(shape) - array.ndim) + slopes.shape)
    return DerivativeArray(
        np.broadcast_to(array.value, shape), np.broadcast_to(slopes, (*shape, count))
    )


def _broadcast_arrays(*arrays: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*[np.shape(array) for array in arrays])
    return tuple([broadcast_to(as_array(array), shape) for array in arrays])


def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    count = len(xi)
    arrays: list[Any] = []
    for k, coordinates in enumerate(xi):
        axis = k if indexing == "ij" or count < 2 or k > 1 else 1 - k
        flat = as_array(coordinates).reshape(-1)
        arrays.append(flat.reshape([-1 if j == axis else 1 for j in range(count)]))
    if not sparse:
        arrays = list(_broadcast_arrays(*arrays))
    return tuple([array.copy() for array in arrays] if copy else arrays)


def _splitting(function: Callable[..., Any], default: int | None) -> Callable[..., Any]:
    def rule(ary: Any, parts: Any, axis: int = 0) -> Any:
        if default is not None:
            axis = default if ary.ndim > 1 or default == 0 else 0
        axis = axis_number(axis, ary.ndim)
        plain: Any = np.split if function is not np.array_split else np.array_split
        values = plain(ary.value, parts, axis)
        return [
            DerivativeArray(*pair)
            for pair in zip(values, plain(ary.slopes, parts, axis), strict=True)
        ]

    return rule


def _like(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(a: Any, *arguments: Any, **options: Any) -> Any:
        like = primal(a)
        at_points = type(like) is PointArray
        if at_points:  # made as for one point, and filled at all of them
            like = np.empty(like.shape, like.dtype)
        made = function(like, *[values_of(argument) for argument in arguments], **options)
        if made.dtype.char not in "dD":
            return made
        if at_points or type(a.slopes) is RecordedSlopes:
            result: Any = constant(made)
        else:
            count = a.slopes.shape[-1]
            nothing = np.zeros((*made.shape, count), dtype=made.dtype)
            # second derivatives: zeros have zero slopes, of either kind
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


def _copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return a.copy()


FUNCTIONS.update(
    {
        np.copy: _copy,
        np.concatenate: concatenate,
        np.stack: stack,
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
        np.broadcast_to: broadcast_to,
        np.broadcast_arrays: _broadcast_arrays,
        np.meshgrid: _meshgrid,
        np.split: _splitting(np.split, None),
        np.array_split: _splitting(np.array_split, None),
        np.hsplit: _splitting(np.hsplit, 1),
        np.vsplit: _splitting(np.vsplit, 0),
        np.zeros_like: _like(np.zeros_like),
        np.ones_like: _like(np.ones_like),
        np.empty_like: _like(np.zeros_like),
        np.full_like: _like(np.full_like),
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
