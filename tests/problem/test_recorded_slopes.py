"""Products with transposed derivatives, from records of what evaluations do to slopes."""

import numpy as np
import pytest

from daeosens import ODE, LeastSquares, Running, Stepping, Terminal, adjoint, solve
from daeosens.problem.batched.pointwise import RecordedPulls, SinglePoint

RNG = np.random.default_rng(11)
N, M = 6, 9


def of_pairs(t, u, p):
    apart = u[None, :] - u[:, None]
    return p[:6] + p[6] * np.sum(np.sin(apart) / np.sqrt(1.0 + apart**2), axis=1) + t


def of_two_layers(t, u, p):
    weights = p.reshape(3, 3)
    inner = np.tanh(weights @ u.reshape(3, 2) + 0.1 * t)
    return np.concatenate([inner.T.ravel()[:3] @ weights, (inner * inner).sum(axis=1)])


def by_slices(t, u, p):
    rates = np.empty(6)
    rates[0] = p[0] * (u[-1] - u[0])
    rates[1:] = p[0] * (u[:-1] - u[1:])
    rates[1:3] += p[1:3] * u[[4, 4]]
    rates -= p[3] * u * u
    return rates


def through_views(t, u, p):
    """Write to views of views, and read what was written by another name."""
    rates = u.copy()
    inner = rates[1:5]
    part = inner[::2]
    part *= p[0]
    inner[1] = part[0] * u[5]
    part[1] += inner[1]
    rates[0] -= 2.0 * part[1] * inner[3]
    inner[2] = 0.0
    whole = rates[:]
    return whole * p[1] + rates[::-1]


def over_what_was_read(t, u, p):
    """Weights are what an array held when it was multiplied, not what is written to it later."""
    v = p[0] * u
    product = v * v
    v[:3] = 1.0
    v[3:] *= p[1]
    return product + v


def of_choices(t, u, p):
    high = np.maximum(u, p[0])
    chosen = np.where(u > 0.5, u**2, p[1] / (1.0 + u))
    return np.roll(high, 2) + np.cumsum(chosen) + np.append(np.diff(u) * p[2], p[3] * u[1])


def of_lists(t, u, p):
    flux = [p[k] * u[k] / (p[8] + u[k]) for k in range(5)]
    rows = np.array([[flux[0], 1.0, t], [flux[1], flux[2], u[5] ** p[7]]])
    return rows.ravel() + np.einsum("i,ij,j->i", u, np.outer(u, p[:6]), np.exp(-u))


KNOWN = [
    *(of_pairs, of_two_layers, by_slices, through_views, over_what_was_read, of_choices),
    of_lists,
]


def single_of(rhs):
    single = SinglePoint(rhs, None, None, None, (N, M))
    single.records = True
    return single


@pytest.mark.parametrize("rhs", KNOWN)
def test_rows_times_derivatives_are_those_of_the_jacobians(rhs):
    single = single_of(rhs)
    t, u, p = np.linspace(0.0, 1.0, 20), RNG.uniform(0.1, 1.0, (20, N)), RNG.uniform(0.5, 1.5, M)
    w = RNG.normal(size=(2, 20, N))
    pulls = RecordedPulls(single, t, u, p, 2)
    assert single.records
    expected = np.zeros((2, M))
    for k in range(19, -1, -1):
        both = single.both(float(t[k]), u[k], p)
        by_u, by_p = w[:, k] @ both[:, :N], w[:, k] @ both[:, N:]
        scale = np.abs(both).max() + 1.0
        np.testing.assert_allclose(pulls.pull(k, w[:, k]), by_u, rtol=0, atol=1e-14 * scale)
        expected += by_p
    np.testing.assert_allclose(pulls.by_p, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("rhs", KNOWN)
def test_derivatives_at_all_points_at_once_are_those_of_single_points(rhs):
    t, u, p = np.linspace(0.0, 1.0, 20), RNG.uniform(0.1, 1.0, (20, N)), RNG.uniform(0.5, 1.5, M)
    single, columns = single_of(rhs), range(N + M)
    u[1:] = u[0] + 1e-3 * (u[1:] - u[0])  # the same branches
    matrices = single.at_points(t, u, p, columns, lambda k: single.both(float(t[k]), u[k], p))
    assert single.at_all
    for k in range(20):
        both = single.both(float(t[k]), u[k], p)
        np.testing.assert_allclose(matrices[k], both, rtol=1e-12, atol=1e-13 * np.abs(both).max())


def with_numbers_that_change_places(t, u, p):
    """Numbers that were read stay what they were when their array is written to."""
    rates = p[:6] * u
    rates[0], rates[1] = rates[1], rates[0]
    last = rates[5]
    rates[5] = rates[4] * t
    return rates * last


def test_numbers_that_were_read_stay_what_they_were():
    test_rows_times_derivatives_are_those_of_the_jacobians(with_numbers_that_change_places)
    test_derivatives_at_all_points_at_once_are_those_of_single_points(
        with_numbers_that_change_places
    )


def with_a_solve(t, u, p):
    return np.linalg.solve(np.eye(6) + p[0] * np.outer(u, u), u)


def with_a_branch_between_points(t, u, p):
    return p[0] * u if t < 0.47 else p[1] * u**2


def over_a_place_twice(t, u, p):
    rates = p[0] * u
    rates[[1, 1]] = u[:2]
    return rates


def through_another_shape(t, u, p):
    rates = p[0] * u
    rates.reshape(2, 3)[0] = u[:3] ** 2
    return rates


def with_complex_numbers(t, u, p):
    wave = u[:3] + 1j * u[3:]
    turned = p[0] * wave * np.abs(wave)
    return np.concatenate([turned.real, turned.imag])


UNKNOWN = [
    *(with_a_solve, over_a_place_twice, through_another_shape, with_complex_numbers),
    with_a_branch_between_points,
]


@pytest.mark.parametrize("rhs", UNKNOWN)
def test_what_a_record_does_not_know_is_evaluated_along_all_directions(rhs):
    single = single_of(rhs)
    t, u, p = np.linspace(0.0, 1.0, 20), RNG.uniform(0.1, 1.0, (20, N)), RNG.uniform(0.5, 1.5, M)
    pulls = RecordedPulls(single, t, u, p, 1)
    for k in range(19, -1, -1):
        both = single.both(float(t[k]), u[k], p)
        np.testing.assert_allclose(pulls.pull(k, both[:1, :N]), both[:1, :N] @ both[:, :N], 1e-13)
    assert not single.records


def with_terms_that_cancel(t, u, p):
    """Attract each other, and itself, where the force is 0 and its slope 1e9."""
    apart = u[None, :] - u[:, None]
    return p[0] * np.sum(apart / (apart**2 + 1e-6) ** 1.5, axis=1)


def test_records_are_not_taken_where_they_lose_digits():
    """Slopes of a body's distance to itself are 0 forward, and cancel only in the end backward."""
    single = single_of(with_terms_that_cancel)
    u = np.arange(float(N)) + RNG.uniform(0.1, 0.2, (20, N))
    assert single.recorded(np.zeros(20), u, np.ones(M)) is None
    assert not single.records


def oscillators(t, u, p):
    rates = np.zeros_like(u)
    rates[:] = p[1:] + p[0] / len(u) * np.sum(np.sin(u[None, :] - u[:, None]), axis=1)
    return rates


@pytest.mark.slow
def test_gradients_of_coupled_unknowns_are_those_of_matrices():
    """Of 40 unknowns: observations on the way, running costs, adaptive steps, several blocks."""
    n = 40
    u0, p = RNG.uniform(0.0, 6.0, n), np.r_[1.5, RNG.normal(size=n)]
    stepping = Stepping((0.0, 2.0), "rk8vr", rtol=1e-8)
    problem = ODE(oscillators, n, n + 1)
    run = solve(problem, u0, p, stepping, t_eval=[0.7, 1.4])
    data = LeastSquares([0.7, 1.4], np.ones((2, n)), sigma=3.0)
    running = Running(lambda t, u, p: p[0] * np.cos(u).sum())
    cost = data + Terminal(lambda t, u, p: u @ u) + running
    quick = adjoint(run, cost, "arrays")
    matrices = ODE(oscillators, n, n + 1)
    matrices.batch._single.records = False
    slow = adjoint(solve(matrices, u0, p, stepping, t_eval=[0.7, 1.4]), cost, "arrays")
    np.testing.assert_allclose(quick.u0, slow.u0, rtol=1e-12, atol=1e-12 * np.abs(slow.u0).max())
    np.testing.assert_allclose(quick.p, slow.p, rtol=1e-12, atol=1e-12 * np.abs(slow.p).max())


def test_points_are_recorded_several_at_a_time():
    n, calls = 40, []

    def counted(t, u, p):
        calls.append(1)
        return oscillators(t, u, p)

    u0, p = RNG.uniform(0.0, 6.0, n), np.r_[1.5, RNG.normal(size=n)]
    run = solve(ODE(counted, n, n + 1), u0, p, Stepping((0.0, 2.0), "rk4", dt=0.05))
    cost = Terminal(lambda t, u, p: u @ u)
    adjoint(run, cost, "arrays")
    calls.clear()
    adjoint(run, cost, "arrays")
    assert len(calls) < 160  # stages, 120 of which have to be found again
