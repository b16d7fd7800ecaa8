"""Numbers of arrays and vectors, looked at in C."""

import numpy as np
import pytest
from petsc4py import PETSc
from scipy import sparse

from daeosens.petsc._kernels import (
    finite_numbers,
    no_options,
    numbers_of,
    put_finite_matrix,
    put_finite_numbers,
    put_numbers,
)
from daeosens.petsc.vectors import write


def vector(values):
    return PETSc.Vec().createWithArray(np.array(values, dtype=float), comm=PETSc.COMM_SELF)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 7, 8, 19])
def test_one_number_that_is_not_finite_is_found(bad, place):
    values = 1e308 * np.linspace(-1.0, 1.0, 20)
    assert finite_numbers(values)
    values[place] = bad
    assert not finite_numbers(values)


def test_arrays_of_any_layout_are_looked_at():
    values = np.ones((4, 6))
    values[1, 3] = np.nan
    assert not finite_numbers(values.T)
    assert finite_numbers(values[:, ::2])
    assert not finite_numbers(values[:, 1::2])
    assert finite_numbers(np.empty(0))
    with pytest.raises(TypeError, match="double precision"):
        finite_numbers(np.ones(2, dtype=np.float32))


def test_numbers_of_a_vector_are_a_copy():
    vec = vector([1.0, 2.0])
    result = numbers_of(vec)
    result[0] = 5.0
    assert vec.array.tolist() == [1.0, 2.0]
    assert numbers_of(vector([])).size == 0


def test_numbers_are_put_if_they_fit():
    vec = vector([1.0, 2.0])
    assert vec.norm() == pytest.approx(np.sqrt(5.0))
    assert put_numbers(vec, np.array([[3.0, 0.0], [4.0, 0.0]])[:, 0])
    assert vec.array.tolist() == [3.0, 4.0]
    assert vec.norm() == 5.0  # it knows that it has changed
    for other in (np.zeros(3), np.zeros((2, 1)), np.zeros(2, dtype=int)):
        assert not put_numbers(vec, other)
    assert vec.array.tolist() == [3.0, 4.0]
    assert put_numbers(vector([]), np.empty(0))


def test_finite_numbers_are_put_if_they_are_a_plain_array_that_fits():
    class Labelled(np.ndarray):
        pass

    vec = vector([1.0, 2.0])
    assert put_finite_numbers(vec, np.array([[3.0, 0.0], [4.0, 0.0]])[:, 0])
    assert vec.array.tolist() == [3.0, 4.0]
    others = (np.zeros(3), np.zeros((2, 1)), np.zeros(2, dtype=int), np.array([np.nan, 1.0]))
    for other in (*others, np.zeros(2).view(Labelled), [0.0, 0.0], None, 1.0):
        assert not put_finite_numbers(vec, other)
    assert vec.array.tolist() == [3.0, 4.0]


def matrix_of(values):
    matrix = PETSc.Mat().createDense(values.shape, array=values.copy(), comm=PETSc.COMM_SELF)
    matrix.assemble()
    return matrix


def test_a_dense_matrix_is_filled_if_the_values_fit_and_are_finite():
    matrix = matrix_of(np.zeros((2, 3)))
    values = np.arange(6.0).reshape(2, 3)
    assert matrix.norm() == 0.0
    for layout in (values, np.asfortranarray(values), np.repeat(values, 2, axis=1)[:, ::2]):
        assert put_finite_matrix(matrix, -layout)
        assert put_finite_matrix(matrix, layout)
        np.testing.assert_array_equal(matrix.getDenseArray(), values)
        assert matrix.norm() == np.linalg.norm(values)  # it knows that it has changed
    others = (values.T, values[0], values.astype(int), values.astype(">f8"), values * np.nan)
    for other in (*others, values.tolist(), sparse.csr_array(values), np.ma.array(values), None):
        assert not put_finite_matrix(matrix, other)
    np.testing.assert_array_equal(matrix.getDenseArray(), values)
    for empty in (np.empty((0, 3)), np.empty((2, 0))):
        assert put_finite_matrix(matrix_of(empty), empty)


def test_a_part_of_a_dense_matrix_is_filled_without_the_rest():
    """The columns of a part are as far apart as those of the whole."""
    whole = matrix_of(np.zeros((4, 4)))
    part = whole.getDenseSubMatrix(1, 3, 1, 4)
    assert put_finite_matrix(part, np.arange(1.0, 7.0).reshape(2, 3))
    whole.restoreDenseSubMatrix(part)
    expected = np.zeros((4, 4))
    expected[1:3, 1:4] = np.arange(1.0, 7.0).reshape(2, 3)
    np.testing.assert_array_equal(whole.getDenseArray(), expected)


def test_a_sparse_matrix_is_not_filled():
    matrix = PETSc.Mat().createAIJ((2, 2), comm=PETSc.COMM_SELF)
    matrix.setUp()
    matrix.assemble()
    assert not put_finite_matrix(matrix, np.eye(2))


def test_numbers_of_the_other_order_of_bytes_are_left_to_numpy():
    values = np.array([3.0, 4.0]).astype(">f8")
    vec = vector([1.0, 2.0])
    assert not put_numbers(vec, values)
    assert not put_finite_numbers(vec, values)
    write(vec, values)
    assert vec.array.tolist() == [3.0, 4.0]
    assert finite_numbers(values)
    assert not finite_numbers(np.array([1.0, np.inf]).astype(">f8"))


def test_an_empty_database_of_options_is_known():
    assert no_options()
    options = PETSc.Options()
    options["ts_monitor"] = None
    assert not no_options()
    del options["ts_monitor"]
    assert no_options()
