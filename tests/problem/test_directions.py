"""Second derivatives by colors of columns: those by all columns, wherever the point is."""

import numpy as np
import pytest

from daeosens.problem.automatic_hessian import AutomaticHessian
from daeosens.problem.coloring import MANY_COLUMNS, Directions

N = 2 * MANY_COLUMNS


def flux(t, u, p):
    """Nonlinear diffusion with a reaction that has no derivative by the neighbour where u is 0."""
    c = np.concatenate([u[:1], u, u[-1:]])
    q = (p[0] + c[1:] ** 2 * c[:-1]) * (c[1:] - c[:-1])
    return q[1:] - q[:-1] + p[1] * u**3 * np.roll(u, 5)


def by_hand(u, p, w, du, dp, size=1e-30):
    """Complex steps of w^T f along du, dp, differenced along each unknown and parameter."""

    def along(u, p):
        return np.imag(flux(0.0, u + 1j * size * du, p + 1j * size * dp) @ w) / size

    def differences(move, x):
        h = 1e-5
        return np.array([(move(x + h * e) - move(x - h * e)) / (2 * h) for e in np.eye(x.size)])

    return differences(lambda v: along(v, p), u), differences(lambda q: along(u, q), p)


@pytest.mark.parametrize("holes", [False, True])
def test_colors_give_what_all_columns_give(holes):
    """Also after points at which entries of the Jacobian and of its change are zero."""
    rng = np.random.default_rng(3)
    product = AutomaticHessian(flux, {1: None, 2: None}, "rhs", "hessian_product=")
    for number in range(4):
        u, w, du = rng.normal(size=(3, N))
        p, dp = rng.normal(size=(2, 2))
        if holes and number == 0:
            u, du = np.zeros(N), np.zeros(N)  # hardly an entry to be seen
        if holes and number == 1:
            u[::3], du[::3] = 0.0, 0.0
        hessian_vector = product((0.0, u, p), w, {1: du, 2: dp})
        by_u, by_p = by_hand(u, p, w, du, dp)
        np.testing.assert_allclose(hessian_vector[1], by_u, atol=2e-8)
        np.testing.assert_allclose(hessian_vector[2], by_p, atol=2e-7)


def test_colors_take_a_few_directions():
    u = np.linspace(0.5, 1.5, N)
    directions = Directions(N)
    assert directions.seeds(u).shape == (N, N)
    jacobian = np.eye(N) + np.eye(N, k=1)
    weights = np.cos(u)
    np.testing.assert_array_equal(
        directions.product(u, jacobian, 2.0 * jacobian, weights), 2.0 * weights @ jacobian
    )
    seeds = directions.seeds(u)
    assert seeds.shape == (N, 4)
    product = directions.product(u, jacobian @ seeds, jacobian @ seeds, weights)
    np.testing.assert_allclose(product, weights @ jacobian, rtol=1e-14)
    wider = jacobian + np.eye(N, k=-7)
    assert directions.product(u, jacobian @ seeds, wider @ seeds, weights) is None
    assert directions.seeds(u).shape == (N, N)  # what is missing is learned from all columns
    directions.product(u, jacobian, wider, weights)
    seeds = directions.seeds(u)
    assert seeds.shape[1] < 8
    product = directions.product(u, jacobian @ seeds, wider @ seeds, weights)
    np.testing.assert_allclose(product, weights @ wider, rtol=1e-14)


def test_dense_changes_and_functions_of_few_values_take_all_columns():
    u, rng = np.ones(N), np.random.default_rng(4)
    for rows in (N, 1):
        directions, weights = Directions(N), rng.normal(size=rows)
        change = rng.normal(size=(rows, N))
        for _ in range(2):
            assert directions.seeds(u).shape == (N, N)
            product = directions.product(u, change, change, weights)
            np.testing.assert_array_equal(product, weights @ change)
    few = Directions(MANY_COLUMNS - 1)
    few.product(u[1:], np.eye(MANY_COLUMNS - 1), np.eye(MANY_COLUMNS - 1), u[: MANY_COLUMNS - 1])
    assert few.seeds(u).shape == (MANY_COLUMNS - 1, MANY_COLUMNS - 1)


def test_products_of_a_grid_do_not_take_all_columns():
    counts = []

    def watched(t, u, p):
        counts.append(getattr(u, "slopes", u).shape[-1])
        return flux(t, u, p)

    u, w, du = np.random.default_rng(5).normal(size=(3, N))
    product = AutomaticHessian(watched, {1: None, 2: None}, "rhs", "hessian_product=")
    for _ in range(2):
        product((0.0, u, np.ones(2)), w, {1: du, 2: np.ones(2)})
    assert counts[0] == N + 2
    assert counts[-1] < 16
