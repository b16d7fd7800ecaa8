"""Jumps and kinks that move, at which steps of fixed size happen to end, are told."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import daeosens as ds
from daeosens.errors import KinkWarning
from daeosens.verify import duality

VALUE = ds.Terminal(lambda t, u, p: u[0])


def _switched(make, inside):
    """Return u' = -u + 1 until t = p, then the same with 2: J = 2 - exp(p - 2) from u = 1."""
    late = {
        "<": lambda t, p: t < p[0],
        "-": lambda t, p: t - p[0] < 0.0,
    }[inside]
    return make(lambda t, u, p: np.array([-u[0] + np.where(late(t, p), 1.0, 2.0)]), 1, ["switch"])


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("inside", ["<", "-"])
@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk4"])
@pytest.mark.parametrize("switch", [0.5, 0.7, 0.72])
def test_a_jump_at_a_time_that_is_a_parameter_is_told_wherever_steps_end(
    make, inside, method, switch
):
    """The exact derivative is -exp(switch - 2), those of all steps are 0."""
    stepping = ds.Stepping((0.0, 2.0), method, dt=0.1)
    run = ds.solve(_switched(make, inside), [1.0], [switch], stepping)
    remedy = r"near .*\n  try: .*, daeosens.hybrid\(.*Event\(\"switch\", mode=\"after\"\)\]\)"
    with pytest.warns(KinkWarning, match="the equations jump " + remedy):
        ds.adjoint(run, VALUE)
    # an event without a mode ends a step there with stages on both sides
    with pytest.warns(KinkWarning, match="the equations have a jump " + remedy):
        ds.hessian_product(run, VALUE, dp=[1.0])


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize(
    ("late", "said"),
    [
        (lambda t, u, p: p[1] - t < 0.0, '"stop"'),
        (lambda t, u, p: t > p[0] + p[1], "lambda t, u, p: t - <its time>"),
        (lambda t, u, p: t > 2.0 * p[0], "lambda t, u, p: t - <its time>"),
        (lambda t, u, p: u[0] > p[0], "lambda t, u, p: <what changes its sign>"),
    ],
)
def test_the_parameter_that_a_time_is_has_its_name_in_the_remedy(make, late, said):
    model = make(
        lambda t, u, p: np.array([0.3 + np.where(late(t, u, p), 1.0, 2.0)]), 1, ["start", "stop"]
    )
    run = ds.solve(model, [0.0], [0.3, 0.613], ds.Stepping((0.0, 1.0), "rk4", dt=0.01))
    with pytest.warns(KinkWarning, match=re.escape(f'[daeosens.Event({said}, mode="after")]')):
        ds.adjoint(run, VALUE)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("method", ["rk8vr", "esdirk6"])
def test_its_remedy_is_right(make, method):
    """As an event the time is differentiated, twice."""
    modes = {
        "before": make(lambda t, u, p: 1.0 - u, 1, ["switch"]),
        "after": make(lambda t, u, p: 2.0 - u, 1, ["switch"]),
    }
    model = ds.hybrid(modes, "before", [ds.Event("switch", mode="after")])
    run = ds.solve(model, [1.0], [0.5], ds.Stepping((0.0, 2.0), method, dt=0.05))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, VALUE)
        product = ds.hessian_product(run, VALUE, dp=[1.0])
    assert gradient.p[0] == pytest.approx(-np.exp(-1.5), rel=1e-9)
    assert product.p[0] == pytest.approx(-np.exp(-1.5), rel=1e-8)
    assert duality(run, VALUE) < 1e-12


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("method", ["rk8vr", "esdirk6"])
def test_doses_at_times_that_are_parameters_are_right(make, method):
    """J = exp(-k T) + dose exp(k (time - T)), in time, dose and k."""
    names = ["time", "dose", "k"]
    dose = ds.Event("time", lambda t, u, p: u + p[1])
    model = make(lambda t, u, p: -p[2] * u, 1, names, events=[dose])
    p, along = np.array([0.7, 1.5, 0.8]), np.array([1.0, -0.4, 0.3])
    run = ds.solve(model, [1.0], p, ds.Stepping((0.0, 2.0), method, dt=0.05))
    gradient = ds.adjoint(run, VALUE).p
    product = ds.hessian_product(run, VALUE, dp=along).p
    time, size, k = p
    rest, left = np.exp(-2.0 * k), np.exp(k * (time - 2.0))
    late = time - 2.0
    exact = [size * k * left, left, size * late * left - 2.0 * rest]
    by_time_and_k = size * left * (1.0 + k * late)
    hessian = [
        [size * k**2 * left, k * left, by_time_and_k],
        [k * left, 0.0, late * left],
        [by_time_and_k, late * left, size * late**2 * left + 4.0 * rest],
    ]
    np.testing.assert_allclose(gradient, exact, rtol=1e-9)
    np.testing.assert_allclose(product, np.array(hessian) @ along, rtol=1e-8)
    assert duality(run, VALUE) < 1e-12


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_the_remedy_of_a_kink_is_right(make):
    """A ramp from a time on, which an event differentiates twice; J = ... + exp(start - 2)."""
    ramp = make(
        lambda t, u, p: np.array([-u[0] + np.maximum(t - p[0], 0.0)]),
        1,
        ["start"],
        events=[ds.Event("start")],
    )
    run = ds.solve(ramp, [1.0], [0.5], ds.Stepping((0.0, 2.0), "rk8vr", dt=0.05))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, VALUE)
        product = ds.hessian_product(run, VALUE, dp=[1.0])
    assert gradient.p[0] == pytest.approx(np.expm1(-1.5), rel=1e-9)
    assert product.p[0] == pytest.approx(np.exp(-1.5), rel=1e-8)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_a_kink_at_the_end_of_a_step_is_told_for_hessians(make):
    """The exact one is exp(start - 2), that of the steps 0; the gradient is right."""
    ramp = make(lambda t, u, p: np.array([-u[0] + np.maximum(t - p[0], 0.0)]), 1, ["start"])
    run = ds.solve(ramp, [1.0], [0.5], ds.Stepping((0.0, 2.0), "rk4", dt=0.05))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, VALUE)
    assert gradient.p[0] == pytest.approx(np.expm1(-1.5), rel=1e-2)
    with pytest.warns(KinkWarning, match="the equations have a kink near t = 0.5"):
        ds.hessian_product(run, VALUE, dp=[1.0])


def test_a_small_kink_is_called_a_kink():
    """Also where its slopes differ by less than what costs derivatives anything."""
    bent = ds.ODE(lambda t, u, p: np.array([-u[0] + p[1] * np.maximum(u[0] - p[0], 0.0)]), 1, 2)
    run = ds.solve(bent, [1.0], [0.7, 2e-3], ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
    with pytest.warns(KinkWarning, match="the equations have a kink near"):
        ds.hessian_product(run, VALUE, dp=[1.0, 0.0])


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_what_does_not_move_or_does_not_jump_is_not_told(make):
    """A switch at a given time, and a branch with the same value on both sides."""

    def rhs(t, u, p):
        return np.array([-p[0] * u[0] + np.where(t < 0.5, 1.0, 2.0) + np.where(t < p[1], t, t)])

    run = ds.solve(make(rhs, 1, 2), [1.0], [0.8, 0.7], ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.adjoint(run, VALUE)
