"""Decompositions of matrices [n, n] that vary: eigen- and singular values, Cholesky, pinv.

Each rule is that of a matrix A with the derivative dA along one direction, for all of them at once
[K, n, n].  Where two eigenvalues, or singular values, are equal, their vectors have no derivative:
NaN.

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
    primal,
)
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError
from daeosens.problem.derivative_arrays.products import rows_first
from daeosens.problem.derivative_arrays.rules import varies

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
        np.linalg.eigh: _eigh,
        np.linalg.eigvalsh: lambda a, UPLO="L": _eigh(a, UPLO)[0],  # noqa: N803
        np.linalg.cholesky: _cholesky,
        np.linalg.svd: _svd,
        np.linalg.svdvals: lambda x, /: _svd(x, compute_uv=False),
        np.linalg.pinv: _pinv,
        np.linalg.lstsq: _lstsq,
    }
)
