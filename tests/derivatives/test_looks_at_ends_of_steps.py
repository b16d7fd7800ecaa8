"""Jumps and kinks that move, at which steps of fixed size happen to end, are told."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import daeosens as ds
from daeosens.errors import KinkWarning

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
    with pytest.warns(KinkWarning, match=r"the equations jump near .*\n.*Event\(\"<parameter>\""):
        ds.adjoint(run, VALUE)


def test_its_remedy_is_right():
    """As an event the time is differentiated."""
    modes = {
        "before": ds.ODE(lambda t, u, p: 1.0 - u, 1, ["switch"]),
        "after": ds.ODE(lambda t, u, p: 2.0 - u, 1, ["switch"]),
    }
    model = ds.hybrid(modes, start="before", events=[ds.Event("switch", mode="after")])
    run = ds.solve(model, [1.0], [0.5], ds.Stepping((0.0, 2.0), "rk8vr", dt=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, VALUE)
    assert gradient.p[0] == pytest.approx(-np.exp(-1.5), rel=1e-10)


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
