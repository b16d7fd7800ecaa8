"""Events whose times are not known well enough for their derivatives are told."""

import warnings

import numpy as np
import pytest
from scipy.integrate import quad

import daeosens as ds
from daeosens.errors import DiscretizationWarning

LEVEL = 1e-12
"""Of the pressure at the surface, far below the default absolute tolerance."""


def shrinks(r, u, p):
    """A pressure whose root falls from 1 by p (1 + sin(3 r) / 2), and the sum of that root."""
    root = np.sqrt(np.maximum(u[0], 1e-300))
    return np.array([-2.0 * p[0] * (1.0 + 0.5 * np.sin(3.0 * r)) * root, root])


def fallen(r):
    return r + (1.0 - np.cos(3.0 * r)) / 6.0


SURFACE = ds.Event(lambda r, u, p: u[0] - LEVEL, direction=-1, terminal=True, name="surface")
RADIUS = ds.costs.EventTime("surface")


def made(make, **tolerances):
    problem = make(shrinks, 2, 1, events=[SURFACE])
    return ds.solve(problem, [1.0, 0.0], [0.4], ds.Stepping((0.0, 9.0), **tolerances))


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize(
    "derive",
    [
        lambda run: ds.adjoint(run, RADIUS),
        lambda run: ds.tangent(run, dp=[1.0]),
        lambda run: ds.hessian_product(run, RADIUS, dp=[1.0]),
    ],
    ids=["adjoint", "tangent", "hessian"],
)
def test_a_level_below_the_absolute_tolerance_is_told(make, derive):
    run = made(make, rtol=1e-6)
    with pytest.warns(DiscretizationWarning, match='by way of event "surface" at t = 2.'):
        derive(run)


def test_costs_at_the_end_that_an_event_makes_are_looked_at():
    """The run with finer steps ends elsewhere, which left out the look."""
    end = ds.Terminal(lambda r, u, p: r + 0.0 * u[0])
    with pytest.warns(DiscretizationWarning, match='by way of event "surface" at t = 2.'):
        ds.adjoint(made(ds.ODE, rtol=1e-6), end)


def test_the_remedy_helps():
    run = made(ds.ODE, rtol=1e-8, atol=1e-18)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, RADIUS)
    r = gradient.value
    assert 0.4 * fallen(r) == pytest.approx(1.0 - np.sqrt(LEVEL), rel=1e-6)
    # 0.4 fallen(r) stays as it is
    slope = -fallen(r) / (0.4 * (1.0 + 0.5 * np.sin(3.0 * r)))
    assert gradient.p[0] == pytest.approx(slope, rel=1e-5)


def test_costs_that_do_not_feel_it_are_silent():
    """At the surface the sum of the root grows no more."""
    run = made(ds.ODE, rtol=1e-6)
    total = ds.Terminal(lambda r, u, p: u[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(run, total)
    radius = ds.adjoint(made(ds.ODE, rtol=1e-8, atol=1e-18), RADIUS).value
    assert gradient.p[0] == pytest.approx(-quad(fallen, 0.0, radius)[0], rel=1e-4)


def test_slow_and_small_events_that_are_resolved_are_silent():
    """A ball that hardly bounces any more, and a decay to a level that is small, and resolved."""
    bounce = ds.Event(lambda t, u, p: u[0], reset=lambda t, u, p: u * [1.0, -0.5], direction=-1)
    ball = ds.ODE(lambda t, u, p: np.array([u[1], -p[0] + 0 * u[0]]), 2, 1, events=[bounce])
    low = ds.Event(lambda t, u, p: u[0] - 1e-6, direction=-1, terminal=True, name="low")
    decay = ds.ODE(lambda t, u, p: -p[0] * u, 1, 1, events=[low])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = ds.solve(ball, [1.0, 0.0], [9.81], ds.Stepping((0.0, 1.33), rtol=1e-6))
        ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
        run = ds.solve(decay, [1.0], [0.5], ds.Stepping((0.0, 99.0), rtol=1e-6))
        gradient = ds.adjoint(run, ds.costs.EventTime("low"))
    assert gradient.p[0] == pytest.approx(-np.log(1e6) / 0.25, rel=1e-3)
