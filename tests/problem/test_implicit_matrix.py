"""Matrices of implicit steps: sums of derivatives of all kinds."""

import numpy as np
import pytest
from matrix_kinds import (
    PRODUCTS,
    RESIDUAL_POINT,
    ROWS,
    A,
    M,
    entries,
    scaled,
    transposed_entries,
    vec,
)
from scipy import sparse

from daeosens.problem import Products
from daeosens.problem.implicit_matrix import SystemMatrix
from daeosens.problem.matrices import from_numpy

SYSTEMS = {
    "A and identity": (scaled(A), None, np.eye(3)),
    "A and M": (scaled(A), lambda t, u, p: M, M),
    "sparse and sparse": (scaled(sparse.csr_array(A)), lambda t, u, p: sparse.csr_array(M), M),
    "sparse and dense": (scaled(sparse.csr_array(A)), lambda t, u, p: M, M),
    "dense and sparse": (scaled(A), lambda t, u, p: sparse.csr_array(M), M),
    "products and identity": (PRODUCTS, None, np.eye(3)),
    "products and M": (PRODUCTS, lambda t, u, p: M, M),
    "A and products": (
        scaled(A),
        Products(lambda t, u, p, v: M @ v, lambda t, u, p, w: M.T @ w),
        M,
    ),
}


def without_udot(derivative):
    """The same derivative for a residual, whose point has the rate in it."""
    if isinstance(derivative, Products):
        return Products(
            lambda t, u, udot, p, v: derivative.apply(t, u, p, v),
            lambda t, u, udot, p, w: derivative.apply_transpose(t, u, p, w),
        )
    return lambda t, u, udot, p: derivative(t, u, p)


@pytest.mark.parametrize(("by_u", "by_udot", "exact"), SYSTEMS.values(), ids=SYSTEMS)
def test_system_matrix_is_the_sum(by_u, by_udot, exact):
    lower = [
        None if value is None else from_numpy(without_udot(value), "jacobian", ROWS, ROWS)
        for value in (by_u, by_udot)
    ]
    system = SystemMatrix(*lower, *RESIDUAL_POINT)
    assert system.assembled == all(part is None or part.assembled for part in lower)
    for shift in (4.0, -1.5, 0.0):
        matrix = system.fill(*RESIDUAL_POINT, shift)
        assert matrix is system.matrix
        np.testing.assert_allclose(entries(matrix), A + shift * exact, rtol=0, atol=1e-14)
        np.testing.assert_allclose(
            transposed_entries(matrix), A + shift * exact, rtol=0, atol=1e-14
        )
        system.reshift(shift, 2.5)
        np.testing.assert_allclose(entries(matrix), A + 2.5 * exact, rtol=0, atol=1e-14)


def test_sparse_system_keeps_the_diagonal_for_the_shift():
    """Although f_u has none."""
    off = sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    rows = vec(np.zeros(2))
    derivative = from_numpy(lambda t, u, udot, p: off, "jacobian", rows, rows)
    point = (0.0, rows, rows, np.empty(0))
    matrix = SystemMatrix(derivative, None, *point).fill(*point, 3.0)
    assert matrix.getType() == "seqaij"
    np.testing.assert_array_equal(entries(matrix), [[3.0, 1.0], [1.0, 3.0]])
