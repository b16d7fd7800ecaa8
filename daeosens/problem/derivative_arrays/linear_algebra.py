"""Functions of ``numpy.linalg``."""

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
from daeosens.problem.derivative_arrays.products import rows_first
from daeosens.problem.derivative_arrays.reductions import maximum_of, minimum_of, sum_of
from daeosens.problem.derivative_arrays.rules import axis_numbers, value_of, varies


def _solve(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    matrix, right = value_of(a), value_of(b)
    # A x = b: dx = A^-1 (db - dA x)
    value = np.linalg.solve(matrix, right)
    vector = np.ndim(right) == 1
    total: Any = None
    if varies(b):
        total = rows_first(b.slopes)
        total = total[..., None] if vector else total
    if varies(a):
        columns = value[..., None] if vector else value
        term = np.matmul(rows_first(a.slopes), columns)
        total = -term if total is None else total - term
    slopes = np.linalg.solve(np.broadcast_to(matrix, (total.shape[0], *matrix.shape)), total)
    slopes = slopes[..., 0] if vector else slopes
    return DerivativeArray(value, np.moveaxis(slopes, 0, -1))


def _inv(a: Any) -> Any:
    return np.linalg.solve(a, np.broadcast_to(np.eye(a.shape[-1]), a.shape))


def _det(a: Any) -> Any:
    size = a.shape[-1]
    # written out where small: that holds for singular matrices too, which have no inverse
    entry = [[a[..., j, k] for k in range(size)] for j in range(size)] if size <= 3 else []
    if size == 1:
        return entry[0][0]
    if size == 2:
        return entry[0][0] * entry[1][1] - entry[0][1] * entry[1][0]
    if size == 3:
        (p, q, r), (s, t, u), (v, w, x) = entry
        return p * (t * x - u * w) - q * (s * x - u * v) + r * (s * w - t * v)
    value = np.linalg.det(a.value)
    # d det A = det A tr(A^-1 dA); of its logarithm without the factor
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
    axes = axis_numbers(axis, x.ndim)
    if ord in (None, "fro") or (ord == 2 and len(axes) == 1):
        note_branch(np.real(primal(x)))
        value = np.linalg.norm(primal(x), None, axes if len(axes) < 3 else None, keepdims)
        if len(axes) > 2 and len(axes) != x.ndim:
            raise ValueError("Improper number of dimensions to norm.")
        inner = value if not varies(x.value) else np.linalg.norm(x.value, None, axis, keepdims)
        size = np.where(primal(inner) == 0, 1.0, inner)[()]
        if not keepdims:
            size = size.reshape([1 if k in axes else n for k, n in enumerate(x.shape)])
        # d|x| = x . dx / |x|; at x = 0 the slope is taken to be 0
        turned = np.conj(x.value) / size
        slopes = np.sum(np.real(turned[..., None] * x.slopes), axis=axes, keepdims=keepdims)
        return DerivativeArray(inner, slopes)
    size = np.abs(x)
    if len(axes) == 1:
        if ord == np.inf:
            return maximum_of(size, axes, keepdims=keepdims)
        if ord == -np.inf:
            return minimum_of(size, axes, keepdims=keepdims)
        if ord == 0:
            return np.linalg.norm(primal(x), ord, axis, keepdims)
        if ord == 1:
            return sum_of(size, axes, keepdims=keepdims)
        return np.power(sum_of(size**ord, axes, keepdims=keepdims), 1.0 / ord)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        # the largest sum of a column, or of a row
        along, over = axes if abs(ord) == 1 else axes[::-1]
        sums = sum_of(size, along, keepdims=True)
        extreme = (maximum_of if ord > 0 else minimum_of)(sums, over, keepdims=True)
        return extreme if keepdims else np.squeeze(extreme, axes)
    raise DerivativeLostError(f"np.linalg.norm with ord={ord}", "the norm of Frobenius")


FUNCTIONS.update(
    {
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
    }
)
