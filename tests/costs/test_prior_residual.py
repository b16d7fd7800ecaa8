"""Residuals of priors: their values, products and curvature, on any number of ranks."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import SolveError
from daeosens.costs.prior_residual import FieldPriorResidual, NumbersPriorResidual
from daeosens.petsc import gather

NAMES = ("a", "b", "c", "d")
CHOSEN = [2, 0, 1]
P = np.array([0.7, 1.9, 0.3, 5.0])
DP = np.array([0.2, -1.1, 0.6, 9.0])
MEAN, SIGMA, W = np.array([0.1, -0.4, 1.2]), np.array([0.5, 2.0, 0.1]), np.array([1.3, -0.2, 0.8])


def numbers(comm, *, logarithmic, chosen=CHOSEN):
    names = [NAMES[k] for k in chosen]
    return NumbersPriorResidual(names, chosen, MEAN, SIGMA, comm, logarithmic=logarithmic)


def at(p=P):
    return (0.0, None, p)


def along(dp=DP):
    return (None, dp)


def zeros(comm, m=4):
    vec = PETSc.Vec().createMPI(m, comm=comm)
    vec.zeroEntries()
    return vec


def everywhere(comm, rows):
    """Return the rows of all ranks, on each of them."""
    return np.concatenate(comm.tompi4py().allgather(rows))


@pytest.mark.mpi
@pytest.mark.parametrize("logarithmic", [False, True])
def test_numbers_are_counted_once_however_many_ranks_there_are(logarithmic):
    comm = PETSc.COMM_WORLD
    residual = numbers(comm, logarithmic=logarithmic)
    s = np.log(P) if logarithmic else P
    slope = 1.0 / P if logarithmic else np.ones(4)
    rows = everywhere(comm, residual.value(at()))
    np.testing.assert_allclose(rows, (s[CHOSEN] - MEAN) / SIGMA, rtol=1e-15)
    rows = everywhere(comm, residual.tangent(at(), along()))
    np.testing.assert_allclose(rows, (slope * DP)[CHOSEN] / SIGMA, rtol=1e-15)


@pytest.mark.mpi
@pytest.mark.parametrize("logarithmic", [False, True])
def test_adjoint_is_dual_to_the_tangent_and_its_curvature_is_its_derivative(logarithmic):
    comm = PETSc.COMM_WORLD
    residual = numbers(comm, logarithmic=logarithmic)
    w = W if comm.rank == 0 else W[:0]

    def pulled(p):
        out = zeros(comm)
        residual.add_adjoint(2.0, at(p), w, (None, out))
        return gather(out)

    pushed = everywhere(comm, residual.tangent(at(), along()))
    assert pulled(P) @ DP == pytest.approx(2.0 * W @ pushed, rel=1e-12)
    out = zeros(comm)
    out.set(3.0)  # it is added
    residual.add_curvature(2.0, at(), w, along(), (None, out))
    expected = np.zeros(4)
    if logarithmic:
        expected[CHOSEN] = -2.0 * W / SIGMA * (DP / P**2)[CHOSEN]
    np.testing.assert_allclose(gather(out) - 3.0, expected, rtol=1e-12, atol=1e-14)
    h = 1e-5
    difference = (pulled(P + h * DP) - pulled(P - h * DP)) / (2.0 * h)
    np.testing.assert_allclose(difference, expected, rtol=1e-6, atol=1e-9)


def test_a_parameter_that_is_named_twice_has_two_rows():
    """As of two measurements of one quantity."""
    comm, out = PETSc.COMM_SELF, zeros(PETSc.COMM_SELF)
    residual = numbers(comm, logarithmic=True, chosen=[1, 1, 3])
    rows = residual.value(at())
    np.testing.assert_allclose(rows, (np.log(P[[1, 1, 3]]) - MEAN) / SIGMA, rtol=1e-15)
    residual.add_adjoint(1.0, at(), W, (None, out))
    expected = residual.tangent(at(), along()) @ W
    assert out.array @ DP == pytest.approx(expected, rel=1e-12)


def test_nothing_is_added_where_no_parameters_are_wanted():
    residual = numbers(PETSc.COMM_SELF, logarithmic=True)
    residual.add_adjoint(1.0, at(), W, (None, None))
    residual.add_curvature(1.0, at(), W, along(), (None, None))


def test_log_normal_prior_of_a_number_that_is_not_positive_is_a_failed_solve():
    residual = numbers(PETSc.COMM_SELF, logarithmic=True)
    with pytest.raises(SolveError, match='parameter "b" = -2 with a log-normal prior'):
        residual.value(at(np.array([1.0, -2.0, 3.0, 4.0])))


@pytest.mark.mpi
def test_residual_of_a_field_is_linear_and_its_adjoint_dual_to_it(rng):
    comm = PETSc.COMM_WORLD
    mean, p, dp, w, out = (zeros(comm, 7) for _ in range(5))
    for vec in (mean, p, dp, w):
        vec.setArray(rng.standard_normal(7)[slice(*vec.getOwnershipRange())])
    residual = FieldPriorResidual(mean, 0.25)
    expected = 4.0 * (gather(p) - gather(mean))
    np.testing.assert_allclose(everywhere(comm, residual.value(at(p))), expected, rtol=1e-15)
    residual.add_adjoint(2.0, at(p), w.getArray(), (None, out))
    pushed = everywhere(comm, residual.tangent(at(p), along(dp)))
    assert out.dot(dp) == pytest.approx(2.0 * pushed @ gather(w), rel=1e-12)
    before = gather(out)
    residual.add_curvature(2.0, at(p), w.getArray(), along(dp), (None, out))
    np.testing.assert_array_equal(gather(out), before)
