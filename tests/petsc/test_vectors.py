"""Arrays and vectors: the door between NumPy and PETSc."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import InputError
from daeosens.petsc.vectors import (
    dot,
    finite_array,
    gather,
    largest,
    norm,
    one_norm,
    read,
    scatter,
    unshared,
    write,
)


def ramp(comm, n=7):
    """A vector 0, 1, ... on all ranks of a communicator."""
    vec = PETSc.Vec().createMPI(n, comm=comm)
    return scatter(np.arange(float(n)), vec)


# ---- vectors -------------------------------------------------------------------------------------


def test_reading_does_not_mark_a_vector_as_changed():
    """PETSc 3.26 restarts a step whose vector has changed."""
    vec = PETSc.Vec().createSeq(3, comm=PETSc.COMM_SELF)
    before = vec.stateGet()
    values = read(vec)
    assert vec.stateGet() == before
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1.0
    write(vec, [1.0, 2.0, 3.0])
    assert vec.stateGet() > before
    assert values.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.mpi
def test_numbers_that_are_kept_are_not_shared():
    vec = ramp(PETSc.COMM_WORLD)
    values = [np.zeros(2), [vec, 1.0]]
    kept = unshared(values)
    values[0][:], values[1][1] = 3.0, 2.0
    vec.set(4.0)
    assert kept[0].tolist() == [0.0, 0.0]
    assert gather(kept[1][0]).tolist() == list(range(7))
    assert kept[1][1] == 1.0
    assert unshared(len) is len


@pytest.mark.mpi
def test_scatter_and_gather_are_inverse_on_all_ranks():
    values = np.arange(7.0) ** 2
    vec = scatter(values, PETSc.Vec().createMPI(7, comm=PETSc.COMM_WORLD))
    np.testing.assert_array_equal(gather(vec), values)
    start, end = vec.getOwnershipRange()
    np.testing.assert_array_equal(read(vec), values[start:end])


@pytest.mark.mpi
def test_gathered_values_are_a_copy():
    vec = ramp(PETSc.COMM_WORLD)
    gather(vec)[:] = 7.0
    np.testing.assert_array_equal(gather(vec), np.arange(7.0))


@pytest.mark.mpi
def test_norms_and_products_are_those_of_the_whole_vector():
    vec = ramp(PETSc.COMM_WORLD)
    vec.scale(-1.0)
    assert largest(vec) == 6.0
    assert norm(vec) == pytest.approx(np.sqrt(91.0), rel=1e-15)
    assert one_norm(vec) == 21.0
    assert dot(vec, ramp(PETSc.COMM_WORLD)) == -91.0


@pytest.mark.mpi
@pytest.mark.parametrize("position", [0, 3, 6])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_largest_is_infinite_if_one_value_of_one_rank_is_not_finite(position, value):
    """MPI's maximum may drop a NaN, PETSc's infinity norm with it."""
    vec = ramp(PETSc.COMM_WORLD)
    vec.setValue(position, value)
    vec.assemble()
    assert largest(vec) == np.inf


@pytest.mark.mpi
def test_largest_of_few_values_on_many_ranks():
    """Some ranks have none."""
    assert largest(ramp(PETSc.COMM_WORLD, 1)) == 0.0


# ---- what users give -----------------------------------------------------------------------------


def test_a_mask_of_nothing_masks_nothing():
    assert finite_array(np.ma.array([1.0, 2.0]), "data").tolist() == [1.0, 2.0]


def test_user_input_becomes_a_new_float_array():
    values = np.array([1, 2])
    array = finite_array(values, "data")
    array[0] = 7.0
    assert array.dtype == float
    assert values.tolist() == [1, 2]
    assert finite_array(3, "sigma").shape == ()
    assert finite_array(range(3), "times", (3,)).tolist() == [0.0, 1.0, 2.0]
    assert finite_array([1e300], "data").tolist() == [1e300]


@pytest.mark.parametrize(
    ("values", "shape", "message"),
    [
        ([1.0, 2.0], (3,), r"data has shape \(2,\)\n  expected: shape \(3,\)"),
        ([[1.0, 2.0]], (2,), r"data has shape \(1, 2\)\n  expected: shape \(2,\)"),
        ([1.0, np.nan], None, r"data is nan at index \[1\]\n  expected: finite numbers"),
        ([[1.0, 2.0], [-np.inf, np.nan]], None, r"data is -inf at index \[1, 0\]"),
        (np.nan, None, r"data is nan\n"),
        (["a"], None, r"data is not an array of real numbers \(could not convert"),
        ([[1.0], [1.0, 2.0]], None, r"data is not an array of real numbers \(setting an array"),
        ([1j], None, r"data has complex numbers"),
        (None, None, r"data is (nan|not an array)"),
        ({"a": 1}, None, r"data is not an array of real numbers"),
        (np.array([1j]), None, r"data has complex numbers\n  expected: real numbers"),
        (
            np.ma.array([[1.0, 2.0]], mask=[[False, True]]),
            None,
            r"data is masked at index \[0, 1\]\n  expected: numbers everywhere\n  try: no entries",
        ),
    ],
)
def test_wrong_user_input_is_named(values, shape, message):
    with pytest.raises(InputError, match=message):
        finite_array(values, "data", shape)
