"""Derivatives as matrices: filled, sparse, by products."""

import numpy as np
import pytest
from distributed import make
from matrix_kinds import (
    POINT,
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
from petsc4py import PETSc
from scipy import sparse

from daeosens import UnsupportedError
from daeosens.petsc import gather, scatter
from daeosens.problem import Products
from daeosens.problem.matrices import (
    constant,
    dense,
    from_numpy,
    from_petsc,
    negative,
    refused,
)

KINDS = {
    "dense": scaled(A),
    "csr": scaled(sparse.csr_array(A)),
    "coo": scaled(sparse.coo_matrix(A)),
    "products": PRODUCTS,
}


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_derivatives_have_the_products_of_the_matrix(kind):
    derivative = from_numpy(KINDS[kind], "jacobian", ROWS, ROWS)
    matrix = derivative.create(*POINT)
    for t in (0.5, 2.0):  # filled again at another point
        derivative.fill(t, *POINT[1:], matrix)
        np.testing.assert_allclose(entries(matrix), 2 * t * A, rtol=1e-15)
        np.testing.assert_allclose(transposed_entries(matrix), 2 * t * A, rtol=1e-15)
    assert derivative.assembled == (kind != "products")


@pytest.mark.parametrize("kind", KINDS)
def test_negative_derivative_for_a_residual(kind):
    derivative = negative(from_numpy(KINDS[kind], "jacobian", ROWS, ROWS))
    matrix = derivative.create(*RESIDUAL_POINT)
    for _ in range(2):
        derivative.fill(*RESIDUAL_POINT, matrix)
        np.testing.assert_allclose(entries(matrix), -A, rtol=1e-15)


def test_rectangular_derivatives_of_both_kinds():
    columns = vec(np.zeros(2))
    for values in (A[:, :2], sparse.csr_array(A[:, :2])):
        derivative = from_numpy(lambda t, u, p, v=values: v, "jacobian_p", ROWS, columns)
        matrix = derivative.create(*POINT)
        derivative.fill(*POINT, matrix)
        np.testing.assert_array_equal(entries(matrix), A[:, :2])
        np.testing.assert_array_equal(transposed_entries(matrix), A[:, :2])


def test_petsc_derivative_is_assembled_if_the_callback_forgot():
    def fill(t, u, p, out):
        out.setValues(range(3), range(3), A * p[0])

    derivative = from_petsc(fill, "jacobian", ROWS, ROWS, lambda: dense(ROWS, ROWS))
    matrix = derivative.create(*POINT)
    derivative.fill(*POINT, matrix)
    np.testing.assert_array_equal(entries(matrix), 2 * A)


def test_constant_derivative_is_the_matrix_itself():
    matrix = dense(ROWS, ROWS)
    matrix.getDenseArray()[...] = M
    matrix.assemble()
    derivative = constant(matrix)
    assert derivative.create() is matrix
    derivative.fill(1.0, None, matrix)
    np.testing.assert_array_equal(entries(matrix), M)


def test_missing_derivative_is_named_when_it_is_used():
    missing = refused("jacobian_p", "jacobian_p=callback")
    message = (
        r"'jacobian_p' is needed and was not supplied\n  expected: jacobian_p=callback, or Prod"
    )
    for use in (lambda: missing.create(*POINT), lambda: missing.fill(*POINT, None)):
        with pytest.raises(UnsupportedError, match=message):
            use()


def test_exceptions_in_products_come_out_through_petsc():
    def faulty(t, u, p, v):
        raise KeyError("growth")

    derivative = from_numpy(Products(faulty, faulty), "jacobian", ROWS, ROWS)
    matrix = derivative.create(*POINT)
    derivative.fill(*POINT, matrix)
    with pytest.raises(PETSc.Error) as raised:
        matrix.mult(POINT[1], ROWS)
    assert isinstance(raised.value.__cause__, KeyError)
    assert "in callback 'jacobian.apply' at t = 0.5" in raised.value.__cause__.__notes__[0]


@pytest.mark.mpi
@pytest.mark.parametrize("field", [False, True])
def test_products_and_matrices_of_a_distributed_problem_agree(field):
    """f_u and f_p by entries and by products, forward and transposed, on all ranks."""
    products, filled = (
        make(PETSc.COMM_WORLD, style, field=field) for style in ("products", "dmda")
    )
    point = (0.2, filled.u0, filled.p)
    for name in ("rhs_u", "rhs_p"):
        matrices = []
        for case in (products, filled):
            derivative = getattr(case.problem, name)
            matrix = derivative.create(*point)
            derivative.fill(*point, matrix)
            matrices.append(matrix)
        columns, rows = matrices[1].createVecs()
        scatter(np.sin(np.arange(columns.size)), columns)
        scatter(np.cos(np.arange(rows.size)), rows)
        forward, backward = [], []
        for matrix in matrices:
            product, transposed = rows.duplicate(), columns.duplicate()
            matrix.mult(columns, product)
            matrix.multTranspose(rows, transposed)
            forward.append(gather(product))
            backward.append(gather(transposed))
        np.testing.assert_allclose(*forward, rtol=0, atol=1e-12 * abs(forward[0]).max())
        np.testing.assert_allclose(*backward, rtol=0, atol=1e-12 * abs(backward[0]).max())


@pytest.mark.mpi
def test_dense_matrices_are_distributed_like_their_rows():
    rows = PETSc.Vec().createMPI(5, comm=PETSc.COMM_WORLD)
    columns = PETSc.Vec().createMPI(2, comm=PETSc.COMM_WORLD)
    matrix = dense(rows, columns)
    assert matrix.getSizes() == (rows.getSizes(), columns.getSizes())
    assert matrix.norm() == 0.0
