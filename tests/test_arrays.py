"""Arrays, vectors and callbacks: the door between NumPy and PETSc."""

import sys

import numpy as np
import pytest
from mpi4py import MPI
from petsc4py import PETSc

from daeosens import InputError, SolveError
from daeosens.arrays import (
    check_output,
    dot,
    finite_array,
    gather,
    guarded,
    install_abort_hook,
    largest,
    norm,
    read,
    scatter,
    unwrapped,
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


def test_user_input_becomes_a_new_float_array():
    given = np.array([1, 2])
    array = finite_array(given, "data")
    array[0] = 7.0
    assert array.dtype == float
    assert given.tolist() == [1, 2]
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
        ([1j], None, r"data is not an array of real numbers"),
        (None, None, r"data is (nan|not an array)"),
        ({"a": 1}, None, r"data is not an array of real numbers"),
    ],
)
def test_wrong_user_input_is_named(values, shape, message):
    with pytest.raises(InputError, match=message):
        finite_array(values, "data", shape)


# ---- what callbacks return -----------------------------------------------------------------------


def test_right_output_is_passed_on():
    assert check_output([1, 2], "f", (2,), 0.0).tolist() == [1, 2]
    assert check_output(3.0, "r", (), 0.0) == 3.0
    assert check_output([1j], "f", (1,), 0.0, real=False)[0] == 1j


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [1.0],
            r"callback 'f' returned shape \(1,\) at t = 0\.25 \(rank 0\)\n  expected: shape \(2,\)",
        ),
        (
            [[1.0, 2.0]],
            r"returned shape \(1, 2\)(.|\n)*try: return an array of shape \(2,\) from 'f'",
        ),
        (None, r"callback 'f' returned NoneType at t = 0\.25 \(rank 0\)\n  expected: real numbers"),
        (["a", "b"], r"callback 'f' returned <U1 values"),
        ([1j, 2.0], r"callback 'f' returned complex128 values"),
        ([True, False], r"callback 'f' returned bool values(.|\n)*try: the difference a - b"),
        (
            [[1.0], [1.0, 2.0]],
            r"callback 'f' returned no array at t = 0\.25 \(rank 0\): setting an",
        ),
    ],
)
def test_wrong_output_names_callback_time_and_rank(values, message):
    with pytest.raises(InputError, match=message):
        check_output(values, "f", (2,), 0.25)


@pytest.mark.parametrize(
    ("values", "entry"),
    [([1.0, np.nan], r"nan in entry \[1\]"), ([np.inf, np.nan], r"inf in entry \[0\]")],
)
def test_output_that_is_not_finite_is_a_failed_solve(values, entry):
    message = rf"callback 'f' returned {entry} at t = 0\.25 \(rank 0\)\n  expected: finite values"
    with pytest.raises(SolveError, match=message):
        check_output(values, "f", (2,), 0.25)


def test_time_may_be_complex_during_a_complex_step():
    with pytest.raises(InputError, match=r"at t = 0\.25 \(rank"):
        check_output([1.0], "f", (2,), 0.25 + 1e-40j)


# ---- exceptions of callbacks ---------------------------------------------------------------------


def test_exception_of_a_callback_gets_name_time_and_rank():
    def faulty(t, u):
        raise KeyError("growth")

    with pytest.raises(KeyError) as raised:
        guarded(faulty, "rhs", PETSc.COMM_SELF)(0.125, None)
    assert raised.value.__notes__ == [
        f"in callback 'rhs' at t = 0.125 (rank {MPI.COMM_WORLD.rank})"
    ]
    with pytest.raises(KeyError) as raised:
        guarded(faulty, "mass", PETSc.COMM_SELF)(np.ones(2), None)
    assert raised.value.__notes__ == [f"in callback 'mass' (rank {MPI.COMM_WORLD.rank})"]


def test_guarded_callback_returns_what_the_callback_returns():
    assert guarded(lambda t, u: t + u, "rhs", PETSc.COMM_SELF)(1.0, 2.0) == 3.0


class Faulty:
    """Context of a matrix whose product fails."""

    def __init__(self, error):
        self.error = error

    def mult(self, matrix, x, y):
        raise self.error


def faulty_matrix(error):
    matrix = PETSc.Mat().createPython([2, 2], Faulty(error), comm=PETSc.COMM_SELF)
    matrix.setUp()
    return matrix


def test_exception_that_went_through_petsc_comes_out_as_it_was_raised():
    """However often: a product inside a linear solver inside Newton's iteration."""
    error = ZeroDivisionError("in mult")
    matrix = faulty_matrix(error)
    x, y = matrix.createVecs()
    with pytest.raises(PETSc.Error):
        matrix.mult(x, y)

    @unwrapped
    def once():
        matrix.mult(x, y)

    @unwrapped
    def nested():
        snes = PETSc.SNES().create(comm=PETSc.COMM_SELF)
        snes.setFunction(lambda _snes, x, f: matrix.mult(x, f), y)
        snes.solve(None, x)

    for act in (once, nested):
        with pytest.raises(ZeroDivisionError, match="in mult") as raised:
            act()
        assert raised.value is error


def test_petscs_own_errors_stay_what_they_are():
    @unwrapped
    def broken():
        ramp(PETSc.COMM_SELF, 2).axpy(1.0, ramp(PETSc.COMM_SELF, 3))

    with pytest.raises(PETSc.Error, match="error code 75"):
        broken()
    assert broken.__name__ == "broken"


def test_no_hook_is_installed_on_one_rank():
    if MPI.COMM_WORLD.size == 1:
        before = sys.excepthook
        install_abort_hook()
        assert sys.excepthook is before
