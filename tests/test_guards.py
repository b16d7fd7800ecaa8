"""What callbacks return and raise."""

import numpy as np
import pytest
from mpi4py import MPI
from petsc4py import PETSc

from daeosens import InputError, SolveError
from daeosens.guards import check_output, guarded, unwrapped

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
        PETSc.Vec().createSeq(2).axpy(1.0, PETSc.Vec().createSeq(3))

    with pytest.raises(PETSc.Error, match="error code 75"):
        broken()
    assert broken.__name__ == "broken"
