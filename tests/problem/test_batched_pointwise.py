"""Derivatives at many points: from one evaluation for callbacks by entries, else one by one."""

import numpy as np
import pytest

from daeosens import ODE, Stepping, Terminal, adjoint, solve


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


BY_ENTRIES = [pendulum, filled, by_matrix]


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

    cost = Terminal(lambda t, u, p: u[0] ** 2 + u[1])
    problem = ODE(counted, len(u0), len(p))
    run = solve(problem, u0, p, Stepping((0.0, 2.0), "rk4", dt=dt))
    adjoint(run, cost, "arrays")
    calls.clear()
    blocks = adjoint(run, cost, "arrays")
    counts = len(calls)
    steps = adjoint(solve(ODE(rhs, len(u0), len(p)), u0, p, run.stepping), cost, "vectors")
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
