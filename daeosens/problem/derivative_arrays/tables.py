"""Functions by pieces, tables of values, polynomials, grids of points."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.arrays import (
    FUNCTIONS,
    DerivativeArray,
    as_array,
    note_branch,
    primal,
)
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError
from daeosens.problem.derivative_arrays.elementwise import chosen
from daeosens.problem.derivative_arrays.movement import stack
from daeosens.problem.derivative_arrays.points import PointArray
from daeosens.problem.derivative_arrays.rules import axis_numbers, refuse_derivatives, varies


def _piecewise(x: Any, condlist: Any, funclist: Any, *arguments: Any, **options: Any) -> Any:
    x = as_array(x)
    conditions = [np.asarray(primal(mask), dtype=bool) for mask in as_list(condlist, x)]
    pieces = list(funclist)
    if len(pieces) == len(conditions) + 1:
        last = ~np.any(conditions, axis=0)
        conditions.append(last)
    elif len(pieces) != len(conditions):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or "
            f"{len(conditions) + 1} functions are expected"
        )
    # zeros with slopes, to be filled piece by piece
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
    # NumPy's own are tables of floats too: whole numbers without a sign would wrap around below 0
    x, xp, fp = as_array(x), _in_floats(as_array(xp)), _in_floats(as_array(fp))
    if period is not None:
        raise DerivativeLostError("np.interp with period=", "x % period, and one more knot")
    knots = primal(xp)
    ends = (fp[0] if left is None else left, fp[-1] if right is None else right)
    if type(xp) is type(fp) is np.ndarray and not (varies(ends[0]) or varies(ends[1])):
        return _interp_of_constants(x, xp, fp, *ends)
    if np.size(knots) == 1:
        inside = fp[0] + 0.0 * x
    else:
        # the slope jumps at each knot: a run is looked at for them as for branches, unless only the
        # values vary, at a time
        if type(x) is DerivativeArray or type(xp) is DerivativeArray:
            note_branch(primal(x)[..., None], knots)
        k = np.clip(np.searchsorted(knots, primal(x), side="right") - 1, 0, np.size(knots) - 2)
        # the formula itself is differentiated, in x, the knots and the values
        share = (x - xp[k]) / (xp[k + 1] - xp[k])
        inside = fp[k] * (1.0 - share) + fp[k + 1] * share
    inside = chosen(primal(x) < knots[0], ends[0], inside)
    at_end = chosen(primal(x) == knots[-1], fp[-1], inside)
    return chosen(primal(x) > knots[-1], ends[1], at_end)


def _in_floats(table: Any) -> Any:
    real = type(table) is np.ndarray and table.dtype.kind in "biuf"
    return table.astype(float, copy=False) if real else table


def _interp_of_constants(x: Any, xp: Any, fp: Any, left: Any, right: Any) -> Any:
    """Return what a table of numbers gives at places that vary: straight lines, one for each place.

    The lines are looked up, before the first knot and behind the last one too, so that many points
    are taken at once, each on its own line.
    """
    place = primal(x)
    if xp.size > 1:
        note_branch(place[..., None], xp)
    with np.errstate(all="ignore"):  # a knot twice has nothing between
        slopes = np.concatenate([[0.0], np.diff(fp) / np.diff(xp), [0.0]])
    heights, origins = np.concatenate([[left], fp]), np.concatenate([xp[:1], xp])
    line = np.searchsorted(xp, place, side="right")
    height = _entries(heights, line)
    if right != fp[-1]:
        height = np.where(place > xp[-1], right, height)
    # nothing of an infinite place is left where a line is level
    x = chosen(np.isinf(place), 0.0, x)
    return height + _entries(slopes, line) * (x - _entries(origins, line))


def _entries(table: Any, places: Any) -> Any:
    """Return entries of a table, other ones at each of many points."""
    if type(places) is PointArray:
        return PointArray(table[places.entries])
    return table[places]


def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: Any = 1) -> Any:
    f = as_array(f)
    refuse_derivatives(np.gradient, varargs)
    axes = axis_numbers(axis, f.ndim)
    if len(varargs) == 1 and len(axes) > 1 and np.ndim(varargs[0]) == 0:
        varargs = varargs * len(axes)
    steps: list[Any] = [[spacing] for spacing in varargs] or [[] for _ in axes]
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    slopes = [
        DerivativeArray(
            np.gradient(f.value, *step, axis=place, edge_order=edge_order),
            np.gradient(f.slopes, *step, axis=place, edge_order=edge_order),
        )
        for step, place in zip(steps, axes, strict=True)
    ]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _polyval(p: Any, x: Any) -> Any:
    p, x = as_array(p), as_array(x)
    result: Any = 0.0 * x
    for k in range(p.shape[0]):
        # Horner's rule, whose derivative is that of the polynomial
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


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    x = np.asarray(primal(x))
    if not varies(weights):
        return np.bincount(x, weights, minlength)
    size = max(minlength, int(x.max(initial=-1)) + 1)
    # a constant matrix times the weights: linear in what varies
    places = (np.arange(size)[:, None] == x).astype(float)
    return np.matmul(places, weights)


def _apply_along_axis(func1d: Any, axis: int, arr: Any, *arguments: Any, **options: Any) -> Any:
    moved = np.moveaxis(as_array(arr), axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    rows = [as_array(func1d(row, *arguments, **options)) for row in flat]
    result = stack(rows).reshape(moved.shape[:-1] + tuple(rows[0].shape))
    return np.moveaxis(result, -1, axis) if rows[0].ndim == 1 else result


def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:  # noqa: N803
    x = as_array(x)
    count = x.shape[0] if N is None else N
    powers = np.arange(count) if increasing else np.arange(count)[::-1]
    return x[:, None] ** powers


FUNCTIONS.update(
    {
        np.piecewise: _piecewise,
        np.interp: _interp,
        np.gradient: _gradient,
        np.polyval: _polyval,
        np.linspace: _linspace,
        np.bincount: _bincount,
        np.apply_along_axis: _apply_along_axis,
        np.vander: _vander,
    }
)
