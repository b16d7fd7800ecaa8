"""The warning of gradients that the steps of a run do not resolve."""

import math
import warnings

import numpy as np
import pytest

from daeosens import (
    ODE,
    DiscretizationWarning,
    LeastSquares,
    Running,
    Stepping,
    Terminal,
    adjoint,
    solve,
    trace,
)
from daeosens.derivatives.time_shift import shift_error

LAST = Terminal(lambda t, u, p: u[0])

# p dJ/dp of an earthquake cycle: differences of SciPy's LSODA with rtol = 1e-12
SLIP = np.array([0.010, 0.015, 1e-3, 20.0, 60.0, 1e-9])
SLIPPED = np.array([78.39367, -126.77249, 0.476673, 46.70831, -48.37882, 47.97809])


def fault(t, u, p):
    """Return the rates of log(theta V0 / L) and log(V / V0): ageing law, radiation damping."""
    a, b, length, k, sigma, loading = p
    speed = 1e-6 * np.exp(u[1])
    rate = 1e-6 / length * (np.exp(-u[0]) - np.exp(u[1]))
    return np.stack([rate, (k * (loading - speed) - sigma * b * rate) / (sigma * a + 5.0 * speed)])


def quake(end, method, rtol):
    model = trace(fault, 2, ["a", "b", "L", "k", "sigma", "loading"])
    return solve(model, np.log([500.0, 0.002]), SLIP, Stepping((0.0, end), method, rtol=rtol))


@pytest.mark.parametrize("method", ["esdirk4", "esdirk5", "rk6vr"])
def test_earthquakes_warn_where_the_gradient_is_wrong(method):
    run = quake(1.4e9, method, 1e-6)
    assert run.final.array[0] == pytest.approx(10.3182, abs=1e-3)
    with pytest.warns(DiscretizationWarning, match=r"in the initial state are wrong by \d+ %"):
        found = adjoint(run, LAST).p * SLIP
    assert np.max(np.abs(found - SLIPPED)) > 10 * np.max(np.abs(SLIPPED))
    with pytest.warns(DiscretizationWarning):  # again: it does not fall silent
        adjoint(run, LAST)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["esdirk4", "esdirk5", "rk6vr"])
def test_a_run_that_ends_before_the_earthquake_is_silent(method):
    adjoint(quake(5e7, method, 1e-6), LAST)


def lorenz(t, u, p):
    return np.array([p[0] * (u[1] - u[0]), u[0] * (p[1] - u[2]) - u[1], u[0] * u[1] - p[2] * u[2]])


@pytest.mark.filterwarnings("error::daeosens.DiscretizationWarning")
def test_growth_that_stays_is_no_error():
    """Derivatives of a chaotic run are large, and those of its steps."""
    run = solve(
        ODE(lorenz, 3, ["s", "r", "b"]),
        [1.0, 2.0, 3.0],
        [10.0, 28.0, 8.0 / 3.0],
        Stepping((0.0, 30.0), "rk6vr", rtol=1e-8),
    )
    assert np.max(np.abs(adjoint(run, LAST).u0)) > 1e5


@pytest.mark.parametrize(
    "cost",
    [
        LAST,
        Running(lambda t, u, p: u[0] ** 2 * p[0]),
        LeastSquares([0.0, 0.5, 1.0], [[1.0], [0.2], [0.1]], observe=[0]),
        2.0 * LAST - Running(lambda t, u, p: u[1]),
    ],
)
def test_the_shift_of_time_holds_for_every_kind_of_cost(cost):
    """A gradient that is wrong by a part e is known to be wrong by no more than e."""
    problem = ODE(lambda t, u, p: np.array([-p[0] * u[0] * u[1], u[0] - u[1] ** 2]), 2, ["k"])
    times = getattr(cost, "times", None)
    run = solve(problem, [1.0, 0.5], [0.8], Stepping((0.0, 1.0), "rk8vr", rtol=1e-11), times)
    gradient = adjoint(run, cost)
    lowered = cost.lower(problem, 1.0)
    assert shift_error(run, lowered, gradient.u0_vec) < 1e-9
    wrong = gradient.u0_vec.copy()
    wrong.array[0] *= 1.1
    assert 0.002 < shift_error(run, lowered, wrong) < 0.1


@pytest.mark.filterwarnings("error::daeosens.DiscretizationWarning")
@pytest.mark.parametrize(
    "rhs",
    [lambda t, u, p: -p[0] * u * math.cos(9.0 * t), lambda t, u, p: -p[0] * u + (u > 0.5)],
    ids=["not autonomous", "a jump"],
)
def test_what_is_no_shift_of_time_is_left_alone(rhs):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, message=".*(jump|kink)")
        problem = ODE(rhs, 1, ["k"])
        adjoint(solve(problem, [1.0], [0.5], Stepping((0.0, 2.0), "rk6vr", rtol=1e-6)), LAST)
