"""Running costs that vary faster than the steps tell so."""

import warnings

import numpy as np
import pytest

from daeosens import ODE, Event, Running, Stepping, Terminal, adjoint, solve, trace
from daeosens.derivatives.looks.running_costs import estimate
from daeosens.errors import DiscretizationWarning

END = 5.0


def decay(t, u, p):
    return -p[0] * u


def run_of(method, rtol, make=ODE, **keywords):
    return solve(
        make(decay, 1, 1, **keywords), [1.0], [1.0], Stepping((0.0, END), method, rtol=rtol)
    )


def waves(number):
    return Running(lambda t, u, p: u[0] ** 2 * (1 + np.cos(number * t)))


def exact(number):
    """Of exp(-2 t) (1 + cos(number t))."""
    powers = np.array([-2.0, -2.0 + 1j * number])
    return np.sum((np.exp(powers * END) - 1) / powers).real


METHODS = ["rk3bs", "rk6vr", "rk8vr", "esdirk3", "esdirk5", "cn"]


@pytest.mark.parametrize("make", [ODE, trace])
@pytest.mark.parametrize("method", METHODS)
def test_a_cost_faster_than_the_steps_warns(method, make):
    run = run_of(method, 1e-4, make)
    with pytest.warns(DiscretizationWarning, match=r"running cost varies faster(.|\n)*max_step="):
        gradient = adjoint(run, waves(40))
    assert abs(gradient.value / exact(40) - 1) > 2e-4


@pytest.mark.parametrize("method", METHODS)
def test_costs_as_smooth_as_the_state_do_not(method):
    """And the estimate is of the size of the error."""
    rtol = 1e-5 if method == "cn" else 1e-6
    run = run_of(method, rtol)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = adjoint(run, waves(0))
    error = abs(gradient.value / exact(0) - 1)
    assert error < 10 * rtol
    assert error / 30 < estimate(run, waves(0).lower(run.problem, END)) < 10 * error


@pytest.mark.slow
def test_what_the_message_says_helps():
    problem = ODE(decay, 1, 1)
    stepping = Stepping((0.0, END), "rk6vr", rtol=1e-6, max_step=0.02)
    run = solve(problem, [1.0], [1.0], stepping)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adjoint(run, waves(40)).value == pytest.approx(exact(40), rel=1e-6)

    def with_integral(t, u, p):
        return np.array([-p[0] * u[0], u[0] ** 2 * (1 + np.cos(40 * t))])

    stepping = Stepping((0.0, END), "rk6vr", rtol=1e-8)
    more = solve(ODE(with_integral, 2, 1), [1.0, 0.0], [1.0], stepping)
    value = adjoint(more, Terminal(lambda t, u, p: u[1])).value
    assert value == pytest.approx(exact(40), rel=1e-6)


def test_runs_through_events_are_looked_at():
    half = Event(lambda t, u, p: u[0] - 0.5, reset=lambda t, u, p: 2 * u, name="half")
    run = run_of("rk6vr", 1e-4, events=[half])
    with pytest.warns(DiscretizationWarning, match="running cost"):
        adjoint(run, waves(40))


def test_unknowns_below_atol_are_named():
    def model(t, u, p):
        return np.array([-u[0], 1e-11 * u[0] - u[1]])

    problem, start = ODE(model, ["large", "trace"]), [1.0, 0.0]
    run = solve(problem, start, None, Stepping((0.0, 1.0), "rk6vr", rtol=1e-6))
    assert "not seen by the error control: unknowns trace stay below 10 atol = 1e-08" in repr(run)
    atol = float(repr(run).rsplit("atol=", 1)[1])
    better = solve(problem, start, None, Stepping((0.0, 1.0), "rk6vr", rtol=1e-6, atol=atol))
    assert "not seen" not in repr(better)
    assert better.u[-1, 1] == pytest.approx(1e-11 * np.exp(-1), rel=1e-6)


def test_tails_of_diffusion_are_not_named():
    """Heat has come to the far end, as 1e-40 of what it is elsewhere: no atol sees to that."""

    def rod(t, u, p):
        return 1e-3 * np.diff(np.concatenate([[0.0], np.diff(u), [0.0]]))

    start = np.eye(30)[0]
    run = solve(ODE(rod, 30), start, None, Stepping((0.0, 1.0), "rk6vr", rtol=1e-6))
    assert 0.0 < run.u[-1, 28] < 1e-60
    named = repr(run).split("unknowns ", 1)[1].split(" stay", 1)[0]
    assert named.startswith("3, 4, 5")
    assert float(repr(run).rsplit("atol=", 1)[1]) > 1e-36
