"""Functions of ``numpy.linalg``: solutions, norms, and decompositions of matrices that vary.

Rules of decompositions are those of a matrix A with the derivative dA along one direction, for all
of them at once [K, n, n].  Where two eigenvalues, or singular values, are equal, their vectors have
no derivative: NaN.

Source
------
Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation", 2008, sections 2 and 3; Golub and Pereyra, SIAM Journal on Numerical Analysis 10
(1973), equation 4.12.
"""

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


_DISTINCT = "a matrix of real numbers with two axes"


def _admitted(a: Any, name: str) -> DerivativeArray:
    if np.ndim(primal(a)) != 2 or np.iscomplexobj(primal(a)):
        raise DerivativeLostError(f"np.linalg.{name} of anything but {_DISTINCT}", _DISTINCT)
    return a


def _symmetric(a: Any, uplo: str) -> Any:
    """Return the symmetric matrix of which one triangle is given, as LAPACK sees it."""
    lower = a if uplo == "L" else a.T
    return np.tril(lower) + np.tril(lower, -1).T


def _made(value: Any, slopes: Any) -> DerivativeArray:
    """Return a matrix or vector with slopes [K, ...]."""
    return DerivativeArray(value, np.moveaxis(slopes, 0, -1))


def _over_gaps(squares: Any) -> Any:
    """Return 1/(x_j - x_i) [n, n] off the diagonal; NaN of equal ones, and 0 on it."""
    gaps = squares[None, :] - squares[:, None]
    same = np.eye(gaps.shape[0], dtype=bool)
    equal = (primal(gaps) == 0.0) & ~same
    # single vectors of equal eigenvalues have no derivatives: NaN stands for them
    return np.where(same, 0.0, np.where(equal, np.nan, 1.0 / np.where(same | equal, 1.0, gaps)))


def _eigh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803 (NumPy's name)
    a = _symmetric(_admitted(a, "eigh"), UPLO.upper())
    # With A = V L V^T and P = V^T dA V: dL = diag P, dV = V (F o P) with F_ij = 1/(l_j - l_i).
    values, vectors = np.linalg.eigh(a.value)
    projected = np.matmul(np.matmul(vectors.T, rows_first(a.slopes)), vectors)
    turned = np.matmul(vectors, _over_gaps(values) * projected)
    moved = np.diagonal(projected, axis1=-2, axis2=-1)
    return np.linalg._linalg.EighResult(_made(values, moved), _made(vectors, turned))  # type: ignore[attr-defined]


def _cholesky(a: Any, /, *, upper: bool = False) -> Any:
    a = _symmetric(_admitted(a, "cholesky"), "U" if upper else "L")
    lower = np.linalg.cholesky(a.value)
    inverse = np.linalg.inv(lower)
    # dL = L tril(L^-1 dA L^-T), with half of its diagonal, as A = L L^T is symmetric.
    inside = np.matmul(np.matmul(inverse, rows_first(a.slopes)), inverse.T)
    halved = np.tril(inside) * (1.0 - 0.5 * np.eye(inverse.shape[0]))
    result = _made(lower, np.matmul(lower, halved))
    return result.T if upper else result


def _svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    a = _admitted(a, "svd")
    rows, columns = a.shape
    if hermitian or (compute_uv and full_matrices and rows != columns):
        raise DerivativeLostError(
            "np.linalg.svd with hermitian=True, or with all vectors of a matrix that is not square",
            "full_matrices=False",
        )
    u, s, vt = np.linalg.svd(a.value, full_matrices=False)
    v, change = vt.T, rows_first(a.slopes)
    projected = np.matmul(np.matmul(u.T, change), v)
    values = _made(s, np.diagonal(projected, axis1=-2, axis2=-1))
    if not compute_uv:
        return values
    gaps, flipped = _over_gaps(s * s), np.swapaxes(projected, -1, -2)
    # dU = U (F o (P S + S P^T)) and dV = V (F o (S P + P^T S)) with F_ij = 1/(s_j^2 - s_i^2):
    # orthogonality makes both factors skew.
    of_u = np.matmul(u, gaps * (projected * s + flipped * s[:, None]))
    of_v = np.matmul(v, gaps * (projected * s[:, None] + flipped * s))
    # the part of dU outside of the columns of U, where there is room for it
    if rows > columns:
        rest = np.eye(rows) - np.matmul(u, u.T)
        of_u = of_u + np.matmul(np.matmul(rest, change), v) / s
    elif columns > rows:
        rest = np.eye(columns) - np.matmul(v, v.T)
        of_v = of_v + np.matmul(np.matmul(rest, np.swapaxes(change, -1, -2)), u) / s
    return np.linalg._linalg.SVDResult(_made(u, of_u), values, _made(v, of_v).T)  # type: ignore[attr-defined]


def _pinv(a: Any, *arguments: Any, **options: Any) -> Any:
    a = _admitted(a, "pinv")
    inverse = np.linalg.pinv(a.value, *arguments, **options)
    change = rows_first(a.slopes)
    turned = np.swapaxes(change, -1, -2)
    rows, columns = a.shape
    slopes = -np.matmul(np.matmul(inverse, change), inverse)
    # projections onto what A, and A^T, do not reach: zero for square regular matrices
    left = np.eye(rows) - np.matmul(a.value, inverse)
    slopes = slopes + np.matmul(np.matmul(np.matmul(inverse, inverse.T), turned), left)
    right = np.eye(columns) - np.matmul(inverse, a.value)
    slopes = slopes + np.matmul(np.matmul(right, turned), np.matmul(inverse.T, inverse))
    return _made(inverse, slopes)


def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    a, b = as_array(a), as_array(b)
    _, residuals, rank, singular = np.linalg.lstsq(primal(a), primal(b), rcond)
    cutoff = {} if rcond is None else {"rcond": rcond}
    inverse = np.linalg.pinv(a, **cutoff) if varies(a) else np.linalg.pinv(primal(a), **cutoff)
    solution = inverse @ b
    if residuals.size:
        left = b - a @ solution
        residuals = np.sum(left * left, axis=0, keepdims=np.ndim(primal(b)) == 1)
    return solution, residuals, rank, singular


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
        np.linalg.eigh: _eigh,
        np.linalg.eigvalsh: lambda a, UPLO="L": _eigh(a, UPLO)[0],  # noqa: N803
        np.linalg.cholesky: _cholesky,
        np.linalg.svd: _svd,
        np.linalg.svdvals: lambda x, /: _svd(x, compute_uv=False),
        np.linalg.pinv: _pinv,
        np.linalg.lstsq: _lstsq,
    }
)
