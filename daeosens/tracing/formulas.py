"""NumPy functions of symbols that are formulas of others, written in NumPy itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.products import convolved
from daeosens.tracing.numpy_functions import along_axes
from daeosens.tracing.source_location import untraceable
from daeosens.tracing.symbols import Symbol, as_symbol, elementwise
from daeosens.tracing.ufuncs import root
from daeosens.tracing.unsupported import ARRAY_FUNCTIONS


def _var(a: Any, axis: int | None = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
    symbol = as_symbol(a)
    deviations = symbol - np.mean(symbol, axis, keepdims=True)
    count = symbol.size if axis is None else symbol.shape[axis]
    return np.sum(deviations * deviations, axis, keepdims=keepdims) / (count - ddof)


def _std(a: Any, axis: int | None = None, **options: Any) -> Any:
    return elementwise(root, _var(a, axis, **options))


def _polyval(p: Any, x: Any) -> Any:
    x, value = as_symbol(x), as_symbol(0.0)
    for coefficient in p:
        value = value * x + coefficient
    return value


def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0.0) -> Any:
    where: Any = np.where
    value = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        value = where(as_symbol(condition), choice, value)
    return value


def _interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None
) -> Any:
    knots, values = np.asarray(xp, dtype=float), as_symbol(fp)
    if period is not None:
        order = np.argsort(knots % period)  # then one knot more on either side
        order = np.concatenate([order[-1:], order, order[:1]])
        knots, values, x = knots[order] % period, values[order], as_symbol(x) % period
        knots[0], knots[-1] = knots[0] - period, knots[-1] + period
    if not (np.diff(knots) > 0).all() or values.shape != knots.shape:
        raise untraceable("np.interp with knots that do not increase", "as many values, in order")
    where: Any = np.where
    x = as_symbol(x)
    last = values[-1] if right is None or period is not None else right
    first = values[0] if left is None or period is not None else left
    result = where(np.isnan(x), x, where(x > knots[-1], last, values[-1]))
    for k in reversed(range(len(knots) - 1)):
        slope = (values[k + 1] - values[k]) / (knots[k + 1] - knots[k])
        # from the last piece to the first, so that the leftmost condition that holds decides
        result = where(x < knots[k + 1], values[k] + slope * (x - knots[k]), result)
    return where(x < knots[0], first, result)


def _trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    y = as_symbol(y)
    first: Any = np.moveaxis(y, axis, 0)
    widths: Any = dx
    if x is not None:
        points: Any = np.moveaxis(x, axis, 0) if np.ndim(x) == y.ndim else x
        widths = np.diff(points, axis=0)
        widths = widths.reshape(widths.shape + (1,) * (y.ndim - widths.ndim))
    return np.sum(widths * (first[1:] + first[:-1]), axis=0) / 2.0


def _einsum(subscripts: Any, *operands: Any, **_options: Any) -> Any:
    if not isinstance(subscripts, str) or "." in subscripts:
        raise untraceable(
            "np.einsum with ... or lists of axes", 'a letter for each axis, "ij,j->i"'
        )
    symbols = [as_symbol(operand) for operand in operands]
    np.einsum(subscripts, *[symbol.positions for symbol in symbols])  # complains of shapes
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    if not arrow:  # what stands once is left, in alphabetic order, as in NumPy
        output = "".join(sorted(name for name in set(inputs) - {","} if inputs.count(name) == 1))
    terms = inputs.split(",")
    names, result = "", as_symbol(1.0)
    for number, (term, symbol) in enumerate(zip(terms, symbols, strict=True), 1):
        own = "".join(dict.fromkeys(term))
        diagonal = symbol.rearranged(np.einsum(f"{term}->{own}", symbol.positions))
        needed = {*output, *"".join(terms[number:])}
        names, result = _contracted(names, result, own, diagonal, needed)
    return _with_axes(as_symbol(result), names, output)


def _contracted(
    names: str, first: Symbol, own: str, second: Symbol, needed: set[str]
) -> tuple[str, Any]:
    """Return the product of two arrays with named axes, summed over those that are not needed."""
    every = "".join(dict.fromkeys(names + own))
    left = "".join(name for name in names if name in needed)
    right = "".join(name for name in own if name in needed)
    inner = "".join(name for name in every if name not in needed)
    if {*inner} == {*names} & {*own}:  # a product of matrices
        rows, columns = (
            _with_axes(first, names, left + inner),
            _with_axes(second, own, inner + right),
        )
        ours, shared = rows.shape[: len(left)], rows.shape[len(left) :]
        theirs = columns.shape[len(inner) :]
        count = math.prod(shared)
        product: Any = rows.reshape(math.prod(ours), count) @ columns.reshape(
            count, math.prod(theirs)
        )
        return left + right, product.reshape(ours + theirs)
    product = _with_axes(first, names, every) * _with_axes(second, own, every)
    summed = tuple(every.index(name) for name in inner)
    return "".join(name for name in every if name in needed), np.sum(product, summed)


def _with_axes(array: Symbol, names: str, wanted: str) -> Symbol:
    """Return an array whose named axes are in another order, with axes of length 1 between them."""
    order = [names.index(name) for name in wanted if name in names]
    shape = [array.shape[names.index(name)] if name in names else 1 for name in wanted]
    return array.view(array.positions.transpose(order).reshape(shape))


ARRAY_FUNCTIONS.update(
    {
        np.einsum: _einsum,
        np.var: along_axes(_var),
        np.std: along_axes(_std),
        np.polyval: _polyval,
        np.select: _select,
        np.interp: _interp,
        np.trapezoid: _trapezoid,
        np.convolve: lambda a, v, mode="full": convolved(as_symbol(a), as_symbol(v), mode),
    }
)
