"""Explicit steps that stability holds: derivatives by rates that the state shows no more."""

import math

import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives import solve as solving
from daeosens.derivatives.step_placement.decays import LEFT, damping_step

METHODS = ["rk2a", "rk3bs", "rk4", "rk5f", "rk5dp", "rk5bs", "rk5ts", "rk6vr", "rk7vr", "rk8vr"]
X0 = np.array([2.0, 1.0, 5.0, 0.1])  # both unknowns, the fast rate, the slow one
SPAN = 30.0


def chain(t, u, p):
    """A fast unknown that follows a slow one."""
    return np.array([-p[0] * u[0] + u[1], -p[1] * u[1]])


def exact(x):
    """Return the gradient of the fast unknown at the end, in all of x, once its start is gone."""
    _, s, k, r = x
    end = s * np.exp(-r * SPAN) / (k - r)
    return np.array([0.0 * end, end / s, -end / (k - r), end * (1 / (k - r) - SPAN)])


def product_error(make, method, v):
    """Return the largest error of a product beside its largest entry, and the run."""
    stepping = ds.Stepping((0.0, SPAN), method, rtol=1e-8)
    run = ds.solve(make(chain, size=2, parameters=["fast", "slow"]), X0[:2], X0[2:], stepping)
    product = ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[0]), v[:2], v[2:])
    ours = np.array([*product.u0, *product.p])
    truth = np.imag(exact(X0 + 1e-30j * v)) / 1e-30
    return abs(ours - truth).max() / abs(truth).max(), run


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("method", ["rk5bs", "rk6vr", "rk8vr"])
def test_products_are_right_where_stability_holds_steps(make, method, monkeypatch):
    v = X0 * [0.7, -0.6, 0.9, -0.8]
    error, run = product_error(make, method, v)
    longest = float(run.step_sizes.max())
    assert error < 1e-9
    assert longest * X0[2] <= damping_step(ds.Stepping((0.0, 1.0), method, dt=1.0).resolved_method)
    # without it steps are as long as stability allows, a few of them fewer
    monkeypatch.setattr(solving, "damp_decays", lambda run, most, again: run)
    worse, fewer = product_error(make, method, v)
    assert worse > 5 * error
    assert float(fewer.step_sizes.max()) > longest
    assert run.n_steps < 1.4 * fewer.n_steps


def test_steps_that_resolve_a_run_stay():
    """A harmonic oscillator that decays slowly: the run is not taken again."""
    run = ds.solve(
        ds.ODE(lambda t, u, p: np.array([u[1], -u[0] - p[0] * u[1]]), 2, 1),
        *([1.0, 0.0], [0.2], ds.Stepping((0.0, 20.0), "rk6vr", rtol=1e-8)),
    )
    assert run.stepping.max_step is None


def test_no_more_steps_than_may_be_taken():
    _, run = product_error(ds.ODE, "rk6vr", X0)
    alone = ds.Stepping((0.0, SPAN), "rk6vr", rtol=1e-8, max_steps=run.n_steps - 1)
    model = ds.ODE(chain, size=2, parameters=["fast", "slow"])
    fewer = ds.solve(model, X0[:2], X0[2:], alone)
    assert fewer.n_steps < run.n_steps
    assert fewer.stepping.max_step is None


@pytest.mark.parametrize("name", METHODS)
def test_damping_steps_damp(name):
    """R(z) of the method's own step of a decay, against its tableau's."""
    method = ds.Stepping((0.0, 1.0), name, dt=1.0).resolved_method
    longest = damping_step(method)
    if math.isinf(longest):
        assert method.order in (2, 4)  # 1 + z + z^2 / 2 is at least 0.5, R of rk4 0.27
        return
    assert 1.0 < longest < 5.0
    model = ds.ODE(lambda t, u, p: -u, size=1)
    for z, inside in ((longest, True), (longest + 0.02, False)):
        run = ds.solve(model, [1.0], [], ds.Stepping((0.0, z), name, dt=z))
        assert (abs(float(run.u[-1, 0])) <= LEFT) is inside
