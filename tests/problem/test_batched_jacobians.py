"""Automatic Jacobians at many points at once, against those of single points."""

import numpy as np
import pytest
from scipy import sparse

from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.batched.jacobians import jacobians_at_points
from daeosens.problem.coloring import Coloring

N, POINTS = 80, 40


def diffusion(t, u, p):
    """A chain with a source that changes at t = 1, and a reaction."""
    source = 2.0 if t <= 1.0 else 0.5
    wide = np.concatenate([[source], u, [u[-1]]])
    return p[0] * np.diff(wide, 2) * len(u) ** 2 - p[1] * u * np.roll(u, 1)


def filled(_t, u, p):
    """Entries that are put into a fresh array."""
    rates = np.zeros_like(u)
    rates[1:] = p[0] * (u[:-1] - u[1:])
    rates[0] = -p[1] * np.abs(u[0] - 0.5) + np.interp(u[1], [0.0, 0.4, 1.0], [0.0, 1.0, 0.5])
    return rates


def clipped(_t, u, p):
    """Kinks in the state that each entry decides for itself."""
    return np.where(u > 0.5, -p[0] * u, p[1] * np.maximum(u, 0.2)) + np.append(u[1:] ** 2, 0.0)


def branched(_t, u, p):
    """A branch by the state: points go two ways."""
    rate = p[0] * u[0] if u[0] > 0.5 else p[1] * u[0] ** 2
    return rate * np.ones(len(u)) * u - u * np.append(u[1:], 0.0)


MODELS = [diffusion, filled, clipped, branched]
P = np.array([1.3, 0.7])
each_model = pytest.mark.parametrize("model", MODELS)


def points(rng, size=N, count=POINTS):
    return rng.uniform(0.0, 2.0, count), rng.uniform(0.0, 1.0, (count, size))


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


def assert_those_of_single_points(jacobian, matrices, t, u):
    for time, state, matrix in zip(t, u, matrices, strict=True):
        alone = dense(jacobian(float(time), state, P))
        np.testing.assert_allclose(dense(matrix), alone, rtol=0, atol=1e-13 * np.abs(alone).max())


@each_model
@pytest.mark.parametrize("size", [30, N], ids=["whole", "by colors"])
def test_they_are_those_of_single_points(model, size, rng):
    jacobian = AutomaticJacobian(model, 1, "rhs", "jacobian=", colored=True)
    t, u = points(rng, size)
    for state in u:  # entries that are zero at the first of them
        jacobian(0.5, state, P)
    matrices = jacobians_at_points(jacobian, t, u, P)
    assert matrices is not None
    assert sparse.issparse(matrices[0]) == (size == N)
    assert_those_of_single_points(jacobian, matrices, t, u)


@each_model
def test_those_in_the_parameters_are_too(model, rng):
    jacobian = AutomaticJacobian(model, 2, "rhs", "jacobian_p=")
    t, u = points(rng, 30)
    matrices = jacobians_at_points(jacobian, t, u, P)
    assert matrices is not None
    assert_those_of_single_points(jacobian, matrices, t, u)


def test_points_that_a_pattern_does_not_fit_are_left_out(rng):
    """Where the last unknown is large it couples to the first: entries that no start has."""

    def coupled(_t, u, p):
        return -p[0] * u + np.where(u[-1] > 2.0, u[-1], 0.0) * np.append(1.0, np.zeros(N - 1))

    jacobian = AutomaticJacobian(coupled, 1, "rhs", "jacobian=", colored=True)
    t, u = points(rng)
    jacobian(0.0, u[0], P)
    u[[3, 17], -1] = 3.0
    matrices = jacobians_at_points(jacobian, t, u, P)
    assert [k for k, matrix in enumerate(matrices) if matrix is None] == [3, 17]
    known = [k for k in range(POINTS) if matrices[k] is not None]
    assert_those_of_single_points(jacobian, [matrices[k] for k in known], t[known], u[known])
    # a single point learns the entry, and all are known from then on
    assert dense(jacobian(0.0, u[3], P))[0, -1] == 1.0
    assert all(matrix is not None for matrix in jacobians_at_points(jacobian, t, u, P))


def test_few_points_are_asked_for_alone(rng):
    t, u = points(rng, count=5)
    jacobian = AutomaticJacobian(diffusion, 1, "rhs", "jacobian=", colored=True)
    assert jacobians_at_points(jacobian, t, u, P) is None
    assert jacobian.at_all


def test_callbacks_that_know_no_axis_of_points_are_asked_once(rng):
    calls = []

    def by_lists(_t, u, p):
        calls.append(type(u))
        values = sorted(range(len(u)), key=float)
        return np.linalg.solve(np.diag(1.0 + u), -p[0] * u)[values]

    t, u = points(rng, 20)
    jacobian = AutomaticJacobian(by_lists, 1, "rhs", "jacobian=", colored=True)
    assert jacobians_at_points(jacobian, t, u, P) is None
    count = len(calls)
    assert jacobians_at_points(jacobian, t, u, P) is None
    assert len(calls) == count


def test_callbacks_with_a_memory_are_not_taken_at_many_points(rng):
    calls = []

    def remembers(_t, u, p):
        calls.append(0)
        return -p[0] * u * len(calls)

    t, u = points(rng, 20)
    jacobian = AutomaticJacobian(remembers, 1, "rhs", "jacobian=", colored=True)
    jacobian.evaluate._next_look = 100  # which would refuse it at a single point
    assert jacobians_at_points(jacobian, t, u, P) is None


def test_rows_without_entries_have_sums_of_zero(rng):
    pattern = sparse.diags_array(np.arange(9.0) % 3, shape=(9, 9)).tocsr()
    coloring, u = Coloring(pattern), rng.normal(size=(9, 4))
    products = np.moveaxis([pattern @ coloring.seeds(state) for state in u.T], 0, -1)
    for matrix in coloring.matrices(products, u):
        np.testing.assert_array_equal(matrix.toarray(), pattern.toarray())
    products[0] += 1.0
    assert coloring.matrices(products, u) == [None] * 4
    np.testing.assert_array_equal(
        coloring.seeds(u), np.moveaxis([coloring.seeds(state) for state in u.T], 0, -1)
    )
