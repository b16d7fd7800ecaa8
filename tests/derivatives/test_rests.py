"""Derivatives of states that rest at the start, where nothing keeps steps short: closed forms."""

import numpy as np
import pytest

import daeosens as ds


def pushed_later(t, u, p):
    return np.array([u[1], -p[0] * u[1] + p[1] * np.maximum(t - 1.0, 0.0), 3.0])  # a clock too


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("rate", [5.0, 20.0, 100.0])
def test_steps_resolve_a_rest_before_a_push(make, rate):
    run = ds.solve(
        make(pushed_later, 3, ["rate", "push"]),
        [0.0, 0.0, 1.0],
        [rate, 1.0],
        ds.Stepping((0.0, 2.0), "rk6vr", rtol=1e-8),
    )
    cost = ds.Terminal(lambda t, u, p: u[0])
    fall = np.exp(-2.0 * rate)
    assert ds.adjoint(run, cost).u0[1] == pytest.approx((1.0 - fall) / rate, rel=1e-9)
    mixed = ds.hessian_product(run, cost, du0=[0.0, 1.0, 0.0]).p[0]
    expected = (2.0 * fall * rate - (1.0 - fall)) / rate**2
    assert mixed == pytest.approx(expected, rel=1e-7)


def test_a_rest_whose_modes_steps_cannot_follow_is_left_as_it_is():
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"])
    run = ds.solve(problem, [0.0], [1e4], ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-8))
    assert run.n_steps < 50


def test_a_rest_is_divided_into_no_more_steps_than_there_may_be():
    """What could be solved before is solved; whoever asks for derivatives is told."""
    problem = ds.ODE(pushed_later, 3, ["rate", "push"])
    stepping = ds.Stepping((0.0, 2.0), "rk6vr", rtol=1e-8)
    whole = ds.solve(problem, [0.0, 0.0, 1.0], [100.0, 1.0], stepping)
    for most in (whole.n_steps - 1, whole.n_steps - 20):
        few = ds.Stepping((0.0, 2.0), "rk6vr", rtol=1e-8, max_steps=most)
        run = ds.solve(problem, [0.0, 0.0, 1.0], [100.0, 1.0], few)
        assert run.n_steps <= most
        assert run.u[-1] == pytest.approx(whole.u[-1], rel=1e-7)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("rate", [20.0, 100.0])
def test_a_rest_after_an_event_is_resolved_as_well(make, rate):
    """A car is braked to a stand, waits, and is pushed: its speed after the stop is a parameter."""

    def stopped(t, u, p):
        return np.stack([u[0], p[2] + 0.0 * u[1], u[2]])

    run = ds.solve(
        make(pushed_later, 3, ["rate", "push", "left"], events=[ds.Event(0.5, stopped)]),
        [0.0, 1.0, 1.0],
        [rate, 1.0, 0.0],
        ds.Stepping((0.0, 2.0), "rk6vr", rtol=1e-8),
    )
    fall = np.exp(-1.5 * rate)
    slope = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0])).p[2]
    assert slope == pytest.approx((1.0 - fall) / rate, rel=1e-7)
