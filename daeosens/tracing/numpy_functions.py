"""What NumPy's functions do with arrays of symbols."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any, cast

import numpy as np
from scipy import sparse

from daeosens.tracing.casadi import casadi
from daeosens.tracing.source_location import untraceable
from daeosens.tracing.storage import flat, stored
from daeosens.tracing.symbols import (
    Symbol,
    as_symbol,
    broadcast,
    elementwise,
    is_sparse,
)
from daeosens.tracing.ufuncs import larger, root, smaller
from daeosens.tracing.unsupported import ARRAY_FUNCTIONS, REDUCTIONS

REDUCTIONS.update({np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min})

_VIEWS = (
    np.ravel,
    np.reshape,
    np.squeeze,
    np.expand_dims,
    np.transpose,
    np.swapaxes,
    np.moveaxis,
    np.atleast_1d,
    np.atleast_2d,
    np.flip,
    np.flipud,
    np.fliplr,
    np.diagonal,
)
_COPIES = (np.roll, np.repeat, np.tile, np.take, np.delete, np.diag, np.triu, np.tril, np.copy)
_JOINS = (np.concatenate, np.stack, np.vstack, np.hstack, np.column_stack, np.append, np.block)


def _moving(function: Callable[..., Any], *, view: bool) -> Callable[..., Any]:
    """Let NumPy move the numbers of the entries: so every option means what it means there."""

    def move(symbol: Any, *arguments: Any, **options: Any) -> Symbol:
        symbol = as_symbol(symbol)
        positions = function(symbol.positions, *arguments, **options)
        return symbol.view(positions) if view else symbol.rearranged(positions)

    return move


def _joining(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let NumPy join the numbers of the entries of several arrays."""

    def join(arrays: Any, *arguments: Any, **options: Any) -> Symbol:
        parts: list[Symbol] = []

        def numbered(thing: Any) -> Any:
            if isinstance(thing, (list, tuple)):
                things: list[Any] = list(thing)
                return [numbered(element) for element in things]
            part = as_symbol(thing)
            start = sum(placed.size for placed in parts)
            parts.append(part)
            return part.positions + start

        if function is np.append:
            arguments = (numbered((arrays, arguments[0]))[1], *arguments[1:])
            positions = function(parts[0].positions, *arguments, **options)
        else:
            positions = function(numbered(list(arrays)), *arguments, **options)
        column = casadi.vertcat(*(flat(part.graph) for part in parts))
        return Symbol(column, (column.numel(),)).rearranged(positions)

    return join


def _pad(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Symbol:
    if options or mode not in ("constant", "edge", "wrap", "reflect", "symmetric"):
        raise untraceable(f"np.pad with mode={mode!r} and {options}", "np.concatenate")
    symbol = as_symbol(array)
    modes: Any = mode
    return symbol.rearranged(np.pad(symbol.positions, pad_width, mode=modes))


def _where(condition: Any, *choices: Any) -> Symbol:
    if len(choices) != 2:
        raise untraceable("np.where without values depends on the data", "np.where(c, x, y)")
    return elementwise(casadi.if_else, condition, *choices)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, **bounds: Any) -> Any:
    low, high = bounds.pop("min", a_min), bounds.pop("max", a_max)
    a = as_symbol(a) if low is None else np.maximum(as_symbol(a), low)
    return a if high is None else np.minimum(a, high)


def _matmul(x: Any, y: Any) -> Symbol:
    x_shape, y_shape = np.shape(x), np.shape(y)
    if not x_shape or not y_shape or x_shape[-1] != y_shape[max(len(y_shape) - 2, 0)]:
        raise ValueError(f"product of shapes {x_shape} and {y_shape}")
    if len(y_shape) > 2:  # stacks of matrices
        if len(x_shape) == 1:
            return np.sum(as_symbol(x)[:, None] * y, axis=-2)
        return np.sum(as_symbol(x)[..., None] * as_symbol(y)[..., None, :, :], axis=-2)
    if len(x_shape) > 2:
        rows = as_symbol(x).reshape(math.prod(x_shape[:-1]), x_shape[-1])
        return _matmul(rows, y).reshape(*x_shape[:-1], *y_shape[1:])
    left, right = _factor(x), _factor(y)
    shape = (*x_shape[:-1], *y_shape[1:])
    if len(x_shape) == 1 and len(y_shape) == 1:
        return Symbol(casadi.dot(left, right), shape)
    # transposes are stored: (x y)^T = y^T x^T
    product = casadi.mtimes(right.T if len(y_shape) == 1 else right, left)
    return Symbol(casadi.reshape(casadi.densify(product), *stored(shape)), shape)


def _factor(value: Any) -> Any:
    """Return the stored form, keeping what is sparse sparse."""
    few = type(value) is np.ndarray and value.ndim == 2 and value.dtype != object
    if is_sparse(value) or (few and np.count_nonzero(value) < value.size / 4):
        columns: Any = sparse.csc_matrix
        return casadi.MX(casadi.DM(columns(value.T)))
    return as_symbol(value).graph


def _dot(x: Any, y: Any) -> Symbol:
    if not np.shape(x) or not np.shape(y):
        return as_symbol(x) * y
    if np.ndim(y) > 2:  # which is no product of stacks
        raise untraceable(f"np.dot with an array of shape {np.shape(y)}", "np.einsum or np.matmul")
    return _matmul(x, y)


def along_axes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a reduction of matrices along one axis take any axes of any array: also none of them."""

    def reduce(a: Any, axis: Any = None, **options: Any) -> Any:
        symbol = as_symbol(a)
        if axis is None or (symbol.ndim < 3 and not isinstance(axis, tuple)):
            return function(symbol, axis, **options)
        kept = np.sum(symbol.positions, axis=axis, keepdims=True).shape  # complains of wrong axes
        several = cast("tuple[int, ...]", axis) if isinstance(axis, tuple) else (axis,)
        axes = [number % symbol.ndim for number in several]
        others = [number for number in range(symbol.ndim) if number not in axes]
        shape = kept if options.pop("keepdims", False) else [symbol.shape[k] for k in others]
        moved = symbol.positions.transpose(*axes, *others)
        sizes = math.prod(symbol.shape[k] for k in axes), math.prod(symbol.shape[k] for k in others)
        return function(symbol.view(moved.reshape(sizes)), 0, **options).reshape(shape)

    return reduce


def _folded(function: Callable[[Any, Any], Any], neutral: float) -> Callable[..., Any]:
    """Return a reduction along an axis by one operation on pairs of halves."""

    def fold(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Symbol:
        symbol = as_symbol(a)
        moved = symbol.flatten() if axis is None else _axis_first(symbol, axis)
        if len(moved) == 0:
            return as_symbol(np.full(moved.shape[1:], neutral))
        while len(moved) > 1:
            # by halves: a graph as deep as the logarithm of the number of entries
            half = len(moved) // 2
            result: Any = elementwise(function, moved[:half], moved[half : 2 * half])
            moved = result if len(moved) % 2 == 0 else np.concatenate([result, moved[-1:]])
        return _with_kept(moved[0], symbol, axis, keepdims=keepdims)

    return along_axes(fold)


def _sum(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Symbol:
    symbol = as_symbol(a)
    np.sum(symbol.positions, axis=axis)  # complains where the axis is none
    if axis is None or symbol.ndim < 2:
        result = Symbol(casadi.sum1(flat(symbol.graph)), ())
    else:
        total = casadi.sum2 if axis % 2 == 0 else casadi.sum1
        result = Symbol(flat(total(symbol.graph)), (symbol.shape[1 - axis % 2],))
    return _with_kept(result, symbol, axis, keepdims=keepdims)


def _with_kept(result: Symbol, symbol: Symbol, axis: int | None, *, keepdims: bool) -> Symbol:
    if not keepdims:
        return result
    summed = range(symbol.ndim) if axis is None else (axis % symbol.ndim,)
    return result.reshape([1 if k in summed else n for k, n in enumerate(symbol.shape)])


def _mean(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    symbol = as_symbol(a)
    return _sum(symbol, axis, keepdims=keepdims) / (
        symbol.size if axis is None else symbol.shape[axis]
    )


def _cumsum(a: Any, axis: int | None = None) -> Any:
    symbol = as_symbol(a)
    if symbol.ndim > 1:
        raise untraceable(f"np.cumsum of a matrix, axis={axis}", "a product with np.tri(n)")
    return np.stack(list(accumulate(symbol)))


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    ends = [np.atleast_1d(part) for part in (prepend, a, append) if part is not None]
    moved = _axis_first(as_symbol(a if len(ends) == 1 else np.concatenate(ends, axis)), axis)
    for _ in range(n):
        moved = moved[1:] - moved[:-1]
    return ARRAY_FUNCTIONS[np.moveaxis](moved, 0, axis)


def _axis_first(symbol: Symbol, axis: int) -> Any:
    return symbol.view(np.moveaxis(symbol.positions, axis, 0))


def _norm(x: Any, ord: Any = None, axis: Any = None, **kept: Any) -> Any:  # noqa: A002 (NumPy's)
    symbol = as_symbol(x)
    vectors = symbol.ndim == 1 or isinstance(axis, int)
    if ord is None or ord == (2 if vectors else "fro"):
        whole = axis is None and not kept
        # ``root``: the derivative at 0 is 0 there, not 0/0
        entries = np.ravel(symbol)
        return elementwise(
            root, _dot(entries, entries) if whole else np.sum(symbol * symbol, axis, **kept)
        )
    if not vectors or ord not in (1, np.inf):
        raise untraceable(f"np.linalg.norm with ord={ord!r}", "sums, np.abs and np.sqrt")
    return (np.sum if ord == 1 else np.max)(np.abs(symbol), axis, **kept)


def _cross(a: Any, b: Any) -> Symbol:
    x, y = as_symbol(a), as_symbol(b)
    if x.shape != (3,) or y.shape != (3,):
        raise untraceable("np.cross of anything but two vectors [3]", "its components")
    return Symbol(casadi.cross(x.graph, y.graph), (3,))


def _filled(value: float | None) -> Callable[..., Symbol]:
    def fill(like: Any, *arguments: Any, **options: Any) -> Symbol:
        number = arguments[0] if value is None else value
        shape = options.pop("shape", None) or np.shape(like)
        return Symbol(broadcast(as_symbol(number), shape), shape)

    return fill


def _trace(a: Any) -> Symbol:
    return _sum(np.diagonal(as_symbol(a)))


_LARGEST, _SMALLEST = _folded(larger, -np.inf), _folded(smaller, np.inf)

ARRAY_FUNCTIONS.update({function: _moving(function, view=True) for function in _VIEWS})
ARRAY_FUNCTIONS.update({function: _moving(function, view=False) for function in _COPIES})
ARRAY_FUNCTIONS.update({function: _joining(function) for function in _JOINS})
ARRAY_FUNCTIONS.update(
    {
        np.pad: _pad,
        np.where: _where,
        np.clip: _clip,
        np.matmul: _matmul,
        np.dot: _dot,
        np.vdot: lambda a, b: _dot(np.ravel(a), np.ravel(b)),
        np.inner: lambda a, b: _dot(a, as_symbol(b).T),
        np.outer: lambda a, b: np.ravel(as_symbol(a))[:, None] * np.ravel(as_symbol(b)),
        np.cross: _cross,
        np.sum: along_axes(_sum),
        np.mean: along_axes(_mean),
        np.prod: _folded(lambda x, y: x * y, 1.0),
        np.max: _LARGEST,
        np.amax: _LARGEST,
        np.min: _SMALLEST,
        np.amin: _SMALLEST,
        np.cumsum: _cumsum,
        np.diff: _diff,
        np.trace: _trace,
        np.linalg.norm: _norm,
        np.zeros_like: _filled(0.0),
        np.empty_like: _filled(0.0),
        np.ones_like: _filled(1.0),
        np.full_like: _filled(None),
        np.broadcast_to: lambda a, shape: Symbol(broadcast(as_symbol(a), shape), shape),
        np.shape: lambda a: a.shape,
        np.ndim: lambda a: a.ndim,
        np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
        np.real: lambda a: a,
    }
)
