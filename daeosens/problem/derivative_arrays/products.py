"""Products of arrays: matrix products, contractions, convolutions."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import string
from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.arrays import FUNCTIONS, UFUNCS, DerivativeArray, as_array
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError
from daeosens.problem.derivative_arrays.movement import stack
from daeosens.problem.derivative_arrays.reductions import sum_of
from daeosens.problem.derivative_arrays.rules import axis_number, into, value_of, varies


def rows_first(slopes: Any) -> Any:
    """Return slopes [..., K] as [K, ...]."""
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
                # slopes have the directions last, and matmul multiplies the last two axes: vectors
                # and matrices need no transposition, stacks of matrices do
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
    slopes = rows_first(x.slopes)
    column, row = x.ndim == 1, other.ndim == 1
    if left_side:
        slopes = slopes[:, None, :] if column else slopes
        other = other[:, None] if row else other
    else:
        slopes = slopes[:, :, None] if column else slopes
        other = other[None, :] if row else other
    # the axis of directions comes before those that broadcast
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
        return into(out, a * b)
    if np.ndim(b) <= 2:
        return into(out, np.matmul(a, b))
    return into(out, _tensordot(a, b, ([np.ndim(a) - 1], [np.ndim(b) - 2])))


def _inner(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    if not np.ndim(a) or not np.ndim(b):
        return a * b
    return _tensordot(a, b, ([np.ndim(a) - 1], [np.ndim(b) - 1]))


def _vdot(a: Any, b: Any) -> Any:
    return np.matmul(np.conj(as_array(a).reshape(-1)), as_array(b).reshape(-1))


def _vecdot(_ufunc: Any, a: Any, b: Any) -> Any:
    return sum_of(np.conj(as_array(a)) * as_array(b), -1)


def _outer(a: Any, b: Any, out: Any = None) -> Any:
    return into(out, as_array(a).reshape(-1)[:, None] * as_array(b).reshape(-1))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = as_array(a), as_array(b)
    if isinstance(axes, (int, np.integer)):
        of_a: Any = list(range(a.ndim - int(axes), a.ndim))
        of_b: Any = list(range(int(axes)))
    else:
        of_a, of_b = (list(np.atleast_1d(numbers)) for numbers in axes)
    letters = iter(string.ascii_letters)
    names_a = [next(letters) for _ in range(a.ndim)]
    names_b = [next(letters) for _ in range(b.ndim)]
    of_a = [axis_number(int(k), a.ndim) for k in of_a]
    of_b = [axis_number(int(k), b.ndim) for k in of_b]
    for j, k in zip(of_a, of_b, strict=True):
        names_b[k] = names_a[j]
    rest_a = [name for k, name in enumerate(names_a) if k not in of_a]
    rest_b = [name for k, name in enumerate(names_b) if k not in of_b]
    # every contraction is one of Einstein's sums, whose rule is below
    rule = f"{''.join(names_a)},{''.join(names_b)}->{''.join(rest_a + rest_b)}"
    return _einsum(rule, a, b)


def _einsum(subscripts: Any, *operands: Any, out: Any = None, **_options: Any) -> Any:
    if not isinstance(subscripts, str):
        raise DerivativeLostError("np.einsum with lists of axes", 'np.einsum("ij,j->i", A, u)')
    arrays = [as_array(operand) for operand in operands]
    rule = subscripts.replace(" ", "")
    if "->" not in rule:
        # without "->" what stands once is left, in alphabetic order, as in NumPy
        names = rule.replace("...", "").replace(",", "")
        once = sorted(name for name in set(names) if names.count(name) == 1)
        rule = f"{rule}->{'...' if '...' in rule else ''}{''.join(once)}"
    inputs, output = rule.split("->")
    terms = inputs.split(",")
    # one letter more, for the directions: multilinear, so each factor's slopes stand in its place
    # once
    extra = next(letter for letter in string.ascii_letters if letter not in rule)
    values = [value_of(array) for array in arrays]
    value = np.einsum(rule, *values)
    total: Any = None
    for k, array in enumerate(arrays):
        if not varies(array):
            continue
        named = ",".join(f"{term}{extra}" if j == k else term for j, term in enumerate(terms))
        moved = [array.slopes if j == k else other for j, other in enumerate(values)]
        slopes = np.einsum(f"{named}->{output}{extra}", *moved)
        total = slopes if total is None else total + slopes
    if not np.shape(value):
        value = value[()] if isinstance(value, np.ndarray) else value
    return into(out, DerivativeArray(value, total))


def _kron(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    ndim = max(a.ndim, b.ndim)
    wide = [(1,) * (ndim - factor.ndim) + tuple(factor.shape) for factor in (a, b)]
    # axes by turns: (m, 1) times (1, n) is the block (m, n)
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
    return stack(rows, axisc)


def convolved(a: Any, v: Any, mode: str) -> Any:
    """Return ``np.convolve`` of two vectors, made of functions of NumPy."""
    longer, shorter = max(a.size, v.size), min(a.size, v.size)
    # each row of products begins one place later than the one before: sums are those of diagonals
    rows = np.pad(np.outer(a, v), ((0, 0), (0, a.size)))
    shifted = np.ravel(rows)[: -a.size].reshape((a.size, a.size + v.size - 1))
    total = np.sum(shifted, axis=0)
    if mode == "full":
        return total
    if mode == "same":
        start = (shorter - 1) // 2
        return total[start : start + longer]
    return total[shorter - 1 : longer]


def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    return convolved(as_array(a), as_array(v), mode)


def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = as_array(a), as_array(v)
    if v.size > a.size and mode != "full":
        raise DerivativeLostError("np.correlate with the longer array second", "np.convolve")
    whole = _convolve(a, np.conj(v)[::-1])
    if mode == "full":
        return whole
    if mode == "same":
        start = (v.size - 1) // 2
        return whole[start : start + a.size]
    return whole[v.size - 1 : a.size]


FUNCTIONS.update(
    {
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
    }
)
UFUNCS["matmul"] = _matmul
UFUNCS["vecdot"] = _vecdot
