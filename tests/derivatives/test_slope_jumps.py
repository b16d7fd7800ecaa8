"""Kinks of rates that are small numbers beside those of others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import daeosens as ds
from daeosens.derivatives.branches.branch_changes import MARGIN, changed_by_rounding, equations_of
from daeosens.errors import KinkWarning

Array = npt.NDArray[np.float64]

STEPPING = ds.Stepping((0.0, 6.0), "rk8vr", rtol=1e-10)
RATES = [1.1, 0.7, 0.4]
COST = ds.Terminal(lambda t, u, p: u[0] ** 2 + p[0] * u[1])


def surface(t: float, u: Array, p: Array) -> Any:
    """Return what changes its sign six times, and follows time, state and parameters."""
    return u[0] - p[2] * np.cos(0.3 * t)


def heated(unit: float) -> Callable[[float, Array, Array], Array]:
    """Return the rates of an oscillator with a stop, and that of a heat in some unit."""

    def rhs(t: float, u: Array, p: Array) -> Array:
        push = np.maximum(surface(t, u, p), 0.0)
        stopped = -p[0] * u[0] - p[1] * push * (1.0 + u[1])
        return np.array([u[1] - 0.3 * p[0] * push, stopped, unit * (1.0 + u[0] ** 2)])

    return rhs


def product(problem: Any) -> Array:
    run = ds.solve(problem, [1.0, 0.3, 0.0], RATES, STEPPING)
    computed = ds.hessian_product(run, COST, [0.2, -0.5, 0.0], [0.3, 0.6, -0.4])
    return np.concatenate([computed.u0, computed.p])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_products_have_the_terms_of_kinks_beside_a_rate_in_any_unit(make: Any, unit: float) -> None:
    names = ["stiffness", "stop", "clearance"]
    expected = product(make(heated(1.0), 3, names, events=[ds.Event(surface)]))
    assert np.allclose(product(make(heated(unit), 3, names)), expected, rtol=3e-8, atol=3e-8)


@pytest.mark.filterwarnings("error")
def test_kinks_before_an_event_have_their_terms_beside_a_rate_in_a_large_unit() -> None:
    end = ds.Event(lambda t, u, p: t - 5.0, terminal=True)
    expected = product(ds.ODE(heated(1.0), 3, 3, events=[ds.Event(surface), end]))
    assert np.allclose(
        product(ds.ODE(heated(1e12), 3, 3, events=[end])), expected, rtol=3e-8, atol=3e-8
    )


@pytest.mark.filterwarnings("error")
def test_what_rounding_leaves_of_terms_that_cancel_is_no_kink() -> None:
    def rhs(t: float, u: Array, p: Array) -> Array:
        # beside a branch whose sides are the same, (large + u) - large has steps of 1e-7
        push = -p[0] * u[0] if u[0] > 0.3 else -(p[0] * u[0])
        return np.array([push + p[1] * ((1e9 + u[1]) - 1e9), u[0] * p[2] - u[1]])

    run = ds.solve(ds.ODE(rhs, 2, 3), [1.0, 0.3], RATES, ds.Stepping((0.0, 6.0), rtol=1e-6))
    assert np.isfinite(ds.hessian_product(run, COST, [0.2, -0.5], [0.3, 0.6, -0.4]).p).all()


def test_rounding_of_time_and_state_does_not_cancel() -> None:
    model = ds.ODE(lambda t, u, p: np.array([u[0] - t, u[1] + t]), 2)
    function = equations_of(
        ds.solve(model, [1.0, 1.0], None, ds.Stepping((0.0, 0.1), "rk4", dt=0.1))
    )
    assert function is not None
    unit = MARGIN * 4.0 * np.finfo(float).eps
    for side in (-1.0, 1.0):
        rng = np.random.default_rng(1)
        left = changed_by_rounding(function, rng, 0, 1.0, np.ones(2), side)
        np.testing.assert_allclose(left, 2.0 * unit, rtol=0.1)


def late(unit: float) -> Any:
    """Return a delay equation that is driven with a kink, and what is counted in some unit."""

    def rhs(t: float, u: Array, z: Array, p: Array) -> Array:
        return np.array([-p[0] * z[0, 0] + np.abs(t - 1.53), unit * (1.0 + 0.1 * u[0] ** 2)])

    return ds.DDE(rhs, 2, ["rate", "delay"], delays="delay", history=[1.0, 0.0])


@pytest.mark.parametrize("unit", [1.0, 1e12])
def test_kinks_that_delays_move_past_are_told_beside_a_rate_in_a_large_unit(unit: float) -> None:
    stepping = ds.Stepping((0.0, 4.0), "rk4", dt=0.31)
    run = ds.solve(late(unit), [1.0, 0.0], [0.7, 0.8], stepping)
    with pytest.warns(KinkWarning, match="kink near t = 1.53"):
        ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))


@pytest.mark.filterwarnings("error")
def test_what_is_counted_in_a_large_unit_may_begin_at_zero_beside_a_delay() -> None:
    cost = ds.Terminal(lambda t, u, p: u[0])
    gradients = [
        ds.adjoint(
            ds.solve(late(unit), [1.0, 0.0], [0.7, 0.8], ds.Stepping((0.0, 4.0), rtol=1e-8)), cost
        )
        for unit in (1.0, 1e12)
    ]
    assert gradients[1].value == pytest.approx(gradients[0].value, rel=1e-7)
    assert np.allclose(gradients[1].p, gradients[0].p, rtol=1e-6)
