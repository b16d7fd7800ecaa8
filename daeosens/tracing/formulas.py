"""NumPy functions of symbols that are formulas of others, written in NumPy itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.products import convolved
from daeosens.tracing.numpy_functions import along_axes
from daeosens.tracing.source_location import untraceable
from daeosens.tracing.symbols import as_symbol, elementwise
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
    down = y.ndim == 2 and axis % 2 == 0
    widths: Any = dx if x is None else np.diff(x, axis=axis if np.ndim(x) == y.ndim else -1)
    if down and np.ndim(widths) == 1:
        widths = widths[:, None]
    sums = y[1:] + y[:-1] if down or y.ndim == 1 else y[:, 1:] + y[:, :-1]
    return np.sum(widths * sums, axis=0 if down or y.ndim == 1 else 1) / 2.0


ARRAY_FUNCTIONS.update(
    {
        np.var: along_axes(_var),
        np.std: along_axes(_std),
        np.polyval: _polyval,
        np.select: _select,
        np.interp: _interp,
        np.trapezoid: _trapezoid,
        np.convolve: lambda a, v, mode="full": convolved(as_symbol(a), as_symbol(v), mode),
    }
)
