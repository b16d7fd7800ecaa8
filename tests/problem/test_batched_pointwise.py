"""Derivatives at many points: from one evaluation for all of them, else one by one."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.errors import KinkWarning
from daeosens.problem.batched.pointwise import OneByOne, SinglePoint, one_by_one

TABLE = np.array([0.3, 1.2, 0.0, 2.0, 0.7])


def pendulum(t, u, p):
    return np.array([u[1], -p[0] * np.sin(u[0]) - p[1] * u[1] + p[2] * np.cos(t)])


def filled(t, u, p):
    rates = np.zeros_like(u)
    rates[0] = u[1]
    rates[1] = -p[0] * np.sin(u[0]) - p[1] * np.abs(u[1]) * u[1]
    rates[1] += np.where(u[0] > -9.0, p[2], -p[2]) * np.maximum(u[1], 0.1)
    return rates


def by_matrix(t, u, p):
    return np.array([[0.0, 1.0], [-1.0, -0.1]]) @ u * p[0] + 0.0 * (p[1] + p[2])


def by_slices(t, u, p):
    rates = np.empty(2)
    rates[0] = u[1]
    rates[1:] = -p[0] * np.sin(u[:-1]) - p[1] * u[1:]
    rates[1:] += p[2] * np.cos(t)
    return rates


BY_ENTRIES = [pendulum, filled, by_matrix, by_slices]


def with_sum(t, u, p):
    return np.array([u[1], -p[0] * u[0] - p[1] * np.sum(u) + p[2]])


def with_largest(t, u, p):
    return np.array([u[1], -p[0] * u[0] - p[1] * np.max(u) + p[2]])


def with_size(t, u, p):
    return p[0] * np.array([u[1], -u[0]]) / np.linalg.norm(u) + 0.0 * (p[1] + p[2])


def with_any(t, u, p):
    inside = p[0] if np.all(np.abs(u) < 0.8) else p[1]
    return np.array([u[1], -inside * u[0] + 0.0 * p[2]])


def with_branch(t, u, p):
    return np.array([u[1], -(p[0] if u[0] > 0.0 else p[1]) * u[0] + p[2]])


def with_branch_in_time(t, u, p):
    return np.array([u[1], -(p[0] if t < 1.0 else p[1]) * u[0] + p[2]])


def with_sorting(t, u, p):
    return np.sort(p[0] * u) - p[1] * u + p[2]


def with_sums_so_far(t, u, p):
    return -p[0] * np.cumsum(u, axis=-1) + p[1] * u[::-1] + p[2]


def with_mean_that_cancels(t, u, p):
    return np.array([u[1], -p[0] * u[0] + p[1] * (np.mean(u) - np.mean(u)) + p[2]])


def clipped_by_all(t, u, p):
    return np.minimum(p[0] * np.array([u[1], -u[0]]), p[1] * np.abs(u).max()) + 0.0 * p[2]


MIXING = [
    *(with_sum, with_largest, with_size, with_any, with_branch, with_branch_in_time),
    *(with_sorting, with_sums_so_far, with_mean_that_cancels, clipped_by_all),
]


def gradients(rhs, u0=(1.0, 0.3), p=(2.0, 0.3, 0.2), dt=0.1):
    """Return the gradient by blocks and step by step, and how often the former calls."""
    calls = []

    def counted(t, u, p):
        calls.append(np.shape(u))
        return rhs(t, u, p)

    cost = ds.Terminal(lambda t, u, p: u[0] ** 2 + u[1])
    problem = ds.ODE(counted, len(u0), len(p))
    run = ds.solve(problem, u0, p, ds.Stepping((0.0, 2.0), "rk4", dt=dt))
    ds.adjoint(run, cost, "arrays")
    calls.clear()
    blocks = ds.adjoint(run, cost, "arrays")
    counts = len(calls)
    steps = ds.adjoint(ds.solve(ds.ODE(rhs, len(u0), len(p)), u0, p, run.stepping), cost, "vectors")
    return np.concatenate([blocks.u0, blocks.p]), np.concatenate([steps.u0, steps.p]), counts


@pytest.mark.parametrize("rhs", BY_ENTRIES)
def test_callbacks_by_entries_are_evaluated_at_all_points_at_once(rhs):
    blocks, steps, _ = gradients(rhs)
    np.testing.assert_allclose(blocks, steps, rtol=1e-12, atol=1e-13)


@pytest.mark.filterwarnings("ignore::daeosens.errors.KinkWarning")
@pytest.mark.parametrize("rhs", MIXING)
def test_callbacks_that_would_mix_points_are_evaluated_at_one_after_the_other(rhs):
    blocks, steps, _ = gradients(rhs)
    np.testing.assert_allclose(blocks, steps, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dt", [0.5, 0.25, 0.125])
def test_as_many_points_as_unknowns_are_not_taken_for_these(dt):
    """A product of vectors [n] takes points for unknowns where these are as many."""
    n = round(8 / dt)  # stages of the run

    def rhs(t, u, p):
        return -p * u

    u0, rates = np.linspace(1.0, 2.0, n), np.ones(n)
    blocks, steps, _ = gradients(rhs, u0, rates, dt)
    np.testing.assert_allclose(blocks, steps, rtol=1e-12, atol=1e-13)


def test_one_evaluation_stands_for_those_at_all_points():
    """Beside plain ones, of all stages again and to compare, and three at single points."""
    *_, calls = gradients(pendulum)
    points = 20 * 4
    assert calls < 2 * points + 10
    *_, calls = gradients(with_branch)
    assert calls > points


def in_place_on_views(t, u, p):
    rates = u.copy()
    inner = rates[1:-1]
    inner *= p[0]
    inner[0] = u[0] * u[-1]
    rates[[0, 3]] -= p[1] * t
    return rates


def of_matrices(t, u, p):
    matrix = u.reshape(2, 2)
    inner = p[0] * matrix @ matrix.T - np.outer(u[:2], u[2:])
    return np.concatenate([(inner @ u[:2])[::-1], np.dot(np.ones((2, 4)), u) + inner[0]])


def of_pairs(t, u, p):
    apart = u[None, :] - u[:, None]
    return p[1:2] + p[0] * np.sum(np.sin(apart) / np.sqrt(1.0 + apart**2), axis=1)


def of_many_functions(t, u, p):
    size = np.linalg.norm(u) + np.std(u) + np.sum(np.abs(u)) ** p[1]
    table = np.interp(t, [0.0, 1.0, 2.0], [1.0, 3.0, 2.0])
    moved = np.roll(u, 1) + np.cumsum(u) - np.prod(u)
    moved[1:] += np.diff(u)
    choice = np.where(u > 0.5, u, p[0]) + np.clip(u, -0.2, 0.2) + np.hypot(u, p[1])
    wave = np.real(np.exp(1j * u) * (u + 2j))
    return table * moved / size + choice + wave + np.einsum("i,j->i", u, u) + np.tanh(u)


def with_parameters_filled(t, u, p):
    rates = np.full_like(u, 1.0)
    rates[:2] = p
    for k in range(1, len(u)):
        rates[k] += p[0] * u[k - 1] - u[k] / (1.0 + u[k])
    return rates


def stacked_by_rows(t, u, p):
    rows = np.array([u[:2], [p[0], u[3]], np.array([t, 1.0])])
    return np.vstack([rows[0] * rows[1], rows[1] - rows[2]]).ravel() + np.stack([u, u])[1]


def of_powers_that_differ(t, u, p):
    return p[0] ** (t - 1.0) * u - u ** np.cos(4.0 * t)


def of_entry_by_time(t, u, p):
    return u * u[int(4 * t) % 4] * p[0]


def of_differing_branches(t, u, p):
    return p[0] * u if u[0] > 0.5 else p[1] * u


def of_tables_of_states(t, u, p):
    rising = np.interp(u / p[1], [0.1, 0.3, 0.3, 0.6], [0.0, 1.0, 2.0, 2.5], left=-1.0, right=3.0)
    return rising * np.interp(u[0] + t, np.linspace(0.0, 2.0, 9), np.arange(9) ** 2) - p[0] * u


AT_ONCE = [
    of_tables_of_states,
    *(of_entry_by_time, of_differing_branches),
    of_powers_that_differ,
    *(in_place_on_views, of_matrices, of_pairs, of_many_functions, with_parameters_filled),
    stacked_by_rows,
]


def of_places_that_differ(t, u, p):
    return u * p[0] + np.max(u) * p[1]


def of_entries_chosen(t, u, p):
    positive = u > 0.5
    rates = p[0] * u
    rates[positive] = p[1]
    return rates


def of_solutions(t, u, p):
    return np.linalg.solve(np.eye(4) + p[0] * np.outer(u, u), u)


def of_a_way_for_nearly_each_point(t, u, p):
    return p[0] * u * (1.0 + int(1000.0 * t))


ALONE = [
    *(of_places_that_differ, of_entries_chosen, of_solutions),
    of_a_way_for_nearly_each_point,
]


@pytest.mark.parametrize("rhs", AT_ONCE + ALONE)
def test_derivatives_at_all_points_are_those_at_single_points(rhs):
    rng = np.random.default_rng(3)
    single = SinglePoint(rhs, None, None, None, (4, 2))
    t, u, p = np.linspace(0.0, 1.9, 40), rng.uniform(0.1, 1.0, (40, 4)), np.array([0.7, 1.3])
    one_by_one = np.array([single.both(*point, p) for point in zip(t.tolist(), u, strict=True)])
    together = single.at_points(t, u, p, range(6), lambda k: one_by_one[k])
    assert (together is None) == (rhs in ALONE)
    if together is not None:
        np.testing.assert_allclose(together, one_by_one, rtol=1e-14, atol=1e-15)
    many = OneByOne(SinglePoint(rhs, None, None, None, (4, 2)))
    np.testing.assert_allclose(many.jacobian(t, u, p), one_by_one[..., :4], rtol=1e-14, atol=1e-15)
    w = rng.normal(size=(3, 40, 4))
    along_p = np.einsum("mki,kij->mj", w, one_by_one[..., 4:])
    np.testing.assert_allclose(many.pull_parameters(t, u, p, w), along_p, rtol=1e-12)
    # one direction is its own seed, three are more than columns
    for count in (1, 3):
        many = OneByOne(SinglePoint(rhs, None, None, None, (4, 2)))
        dp = rng.normal(size=(count, 2))
        pushed = np.einsum("kij,dj->dki", one_by_one[..., 4:], dp)
        np.testing.assert_allclose(
            many.push_parameters(t, u, p, dp), pushed, rtol=1e-13, atol=1e-14
        )


@pytest.mark.parametrize("rhs", AT_ONCE + ALONE)
def test_second_derivatives_at_all_points_are_those_at_single_points(rhs):
    rng = np.random.default_rng(4)
    single = OneByOne(ds.ODE(rhs, 4, 2).batch._single)._single
    t, u, p = np.linspace(0.0, 1.9, 80), rng.uniform(0.1, 1.0, (80, 4)), np.array([0.7, 1.3])
    w, du, dp = rng.normal(size=(80, 4)), rng.normal(size=(3, 80, 4)), rng.normal(size=(3, 2))
    alone = one_by_one(single, t, u, p, w, du, dp)
    together = single.hessians_at_points(t, u, p, w, du, dp)
    assert (together is None) == (rhs in ALONE)
    none = single.hessians_at_points(t, u, p, w, du[:0], dp[:0])
    assert (none is None) == (together is None)
    assert none is None or none.shape == (0, 80, 6)
    by_u, by_p = OneByOne(single).hessian_product(t, u, p, w, du, dp)
    for product, expected in ((by_u, alone[0]), (by_p, alone[1])):
        largest = max(np.abs(expected).max(), 1e-3)
        np.testing.assert_allclose(product, expected, rtol=0.0, atol=1e-14 * largest)


def test_hessian_products_of_numpy_models_ask_for_many_points_at_once():
    """Of rates that follow a table by whole days, as many times as there are days, or so."""
    calls = []

    def rhs(t, u, p):
        calls.append(t)
        return np.array([TABLE[int(t)] - p[0] * u[0] ** 1.5, p[0] * u[0] - p[1] * u[1] * u[0]])

    problem = ds.ODE(rhs, 2, 2)
    run = ds.solve(problem, [1.0, 0.5], [0.3, 0.2], ds.Stepping((0.0, 4.0), "rk4", dt=0.01))
    cost = ds.Terminal(lambda t, u, p: u[0] * u[1])
    du, dp = np.array([0.3, -0.2]), np.array([0.5, 0.1])
    first = ds.hessian_product(run, cost, du, dp)
    calls.clear()
    again = ds.hessian_product(run, cost, du, dp)
    assert len(calls) < 1600  # of as many stages, several times each
    step = 1e-4
    gradients = [
        ds.adjoint(
            ds.solve(
                problem,
                np.array([1.0, 0.5]) + side * step * du,
                np.array([0.3, 0.2]) + side * step * dp,
                run.stepping,
            ),
            cost,
        )
        for side in (1.0, -1.0)
    ]
    slope = (gradients[0].p - gradients[1].p) / (2.0 * step)
    np.testing.assert_allclose(again.p, slope, rtol=1e-6)
    np.testing.assert_allclose(first.p, again.p, rtol=1e-13)


def of_tables_and_time(t, u, p):
    driven = np.interp(u[1] * p[1], [-2.0, -0.4, 0.3, 2.0], [-1.0, -0.5, 0.6, 0.9])
    return np.array([u[1], driven * u[0] ** 2 - p[0] * np.sin(u[0]) + p[1] ** 2 * np.cos(t)])


@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk5"])
def test_runs_of_tables_of_states_have_remainders_of_orders_two_and_three(method):
    """With residuals, explicit time, a start that parameters move, and a last step cut short."""
    problem, stepping = ds.ODE(of_tables_and_time, 2, 2), ds.Stepping((0.0, 1.97), method, dt=0.06)
    cost = ds.LeastSquares([0.6, 1.97], [[0.3, -0.1], [0.8, 0.4]])
    p, along = np.array([1.15, 0.8]), np.array([0.6, -0.4])

    def run(p):
        return ds.solve(problem, [p[0] * p[1], 0.3], p, stepping, [0.6])

    moved, bent = along[0] * p[1] + along[1] * p[0], 2.0 * along[0] * along[1]
    here = run(p)
    gradient = ds.adjoint(here, cost)
    with pytest.warns(KinkWarning):  # of the solution, which fixed steps do not end at
        product = ds.hessian_product(here, cost, [moved, 0.0], along)
    assert gradient.engine == product.engine == "arrays"
    first = gradient.p @ along + gradient.u0[0] * moved
    second = product.p @ along + product.u0[0] * moved + gradient.u0[0] * bent
    slope = ds.tangent(here, [moved, 0.0], along).derivative(cost)
    assert slope == pytest.approx(first, rel=1e-12)
    remainders = []
    for size in (8e-4, 4e-4, 2e-4):  # no stage comes to another line of the table
        change = ds.adjoint(run(p + size * along), cost).value - gradient.value
        by_first = change - size * first
        remainders.append([abs(by_first), abs(by_first - 0.5 * size**2 * second)])
    orders = np.log2(np.divide(remainders[:-1], remainders[1:]))
    assert orders == pytest.approx(np.array([[2.0, 3.0]] * 2), abs=0.2)


def test_a_callback_that_counts_its_calls_is_evaluated_point_by_point():
    """What it keeps between calls is not the same for one call for all points as for one each."""
    calls = []

    def remembering(t, u, p):
        calls.append(1)
        return p[0] * u * (1.0 if len(calls) < 2 else 2.0)

    single = SinglePoint(remembering, None, None, None, (1, 1))
    at_one = np.array([[2.0, 2.0]])
    points = np.arange(20.0), np.ones((20, 1)), np.ones(1)
    assert single.at_points(*points, range(2), lambda _k: at_one) is None
