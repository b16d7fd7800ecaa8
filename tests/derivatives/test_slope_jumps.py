"""Kinks of rates that are small numbers beside those of others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import daeosens as ds
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


def test_a_kink_between_events_is_told_beside_a_rate_in_a_large_unit() -> None:
    end = ds.Event(lambda t, u, p: t - 5.0, terminal=True)
    problem = ds.ODE(heated(1e12), 3, 3, events=[end])
    with pytest.warns(KinkWarning, match="kink near"):
        product(problem)


@pytest.mark.filterwarnings("error")
def test_what_rounding_leaves_of_terms_that_cancel_is_no_kink() -> None:
    def rhs(t: float, u: Array, p: Array) -> Array:
        # beside a branch whose sides are the same, (large + u) - large has steps of 1e-7
        push = -p[0] * u[0] if u[0] > 0.3 else -(p[0] * u[0])
        return np.array([push + p[1] * ((1e9 + u[1]) - 1e9), u[0] * p[2] - u[1]])

    run = ds.solve(ds.ODE(rhs, 2, 3), [1.0, 0.3], RATES, ds.Stepping((0.0, 6.0), rtol=1e-6))
    assert np.isfinite(ds.hessian_product(run, COST, [0.2, -0.5], [0.3, 0.6, -0.4]).p).all()
