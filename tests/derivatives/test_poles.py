"""Steps over poles of the equations are told; what is bounded, or never used, is not."""

import warnings

import numpy as np
import pytest

from daeosens import ODE, Stepping, consistent_state, solve
from daeosens.errors import DiscretizationWarning

LOOSE = {"rtol": 1e-6, "atol": 1e-9}


def titration(t, u, p):  # acid, sodium and hydrogen; the charges are balanced
    acid, sodium, hydrogen = u
    charge = hydrogen + sodium - 1e-14 / hydrogen - acid * p[0] / (p[0] + hydrogen)
    return np.array([-p[1] * acid, p[1] * (0.1 - sodium), charge])


@pytest.mark.parametrize("method", ["esdirk4", "esdirk5", "kencarp3"])
def test_titration_with_the_concentration_as_unknown(method):
    names = ["acid", "sodium", "hydrogen"]
    problem = ODE(titration, names, 2, mass=np.diag([1.0, 1.0, 0.0]))
    p = [1.8e-5, 0.1]
    start = consistent_state(problem, [0.1, 0.0, 1e-3], p)
    with pytest.warns(DiscretizationWarning, match=r"over a pole.*unknowns hydrogen change"):
        run = solve(problem, start.array, p, Stepping((0.0, 30.0), method, **LOOSE))
    assert run.u[-1, 2] < 0.0


def falling(t, u, p):  # |u| = sqrt(1 - 2 t), and no more after t = 1/2
    return -p[0] / u


def lens(t, u, p):  # its focus passes infinity
    return np.array([p[0] * u[0] / (u[0] - 1.0) ** 3 - 0.3])


def sorption(t, u, p):  # beyond the concentration at which the isotherm has its pole
    return np.array([-1.0 - p[0] / (1.0 + 4.0 * u[0])])


def rising(t, u, p):  # the reciprocal of a difference
    return np.array([1.0, 0.5 - p[0] * np.reciprocal(u[0] - 0.95)])


def power(t, u, p):
    return np.array([1.0, (u[0] - 0.95) ** -1])


def in_time(t, u, p):
    return p[0] * u - 1.0 / (t - 0.95)


@pytest.mark.parametrize(
    ("rhs", "start", "method"),
    [
        (falling, [1.0], "rk4"),
        (lens, [0.5], "rk4"),
        (sorption, [0.0], "rk4"),
        (rising, [0.0, 0.0], "rk4"),
        (power, [0.0, 0.0], "esdirk4"),
        (in_time, [1.0], "rk4"),
    ],
)
def test_fixed_steps_over_poles(rhs, start, method):
    dt = 0.21 if method == "rk4" else 0.1
    sign = -1.0 if rhs is lens else 1.0
    with pytest.warns(DiscretizationWarning, match="over a pole of the equations"):
        solve(ODE(rhs, len(start), 1), start, [sign], Stepping((0.0, 2.0), method, dt=dt))


def gate(t, u, p):  # the opening rate of Hodgkin and Huxley, bounded at 10 mV
    x = 10.0 - u[0]
    opening = 0.01 * x / (np.exp(x / 10.0) - 1.0)
    return np.array([p[0], opening * (1.0 - u[1]) - 0.1 * u[1]])


def unused(t, u, p):  # the branch with a quotient is not taken where that has its pole
    x = u[0] - 0.5
    return np.array([1.0, np.where(np.abs(x) > 0.1, 0.01 / x, 0.1) * p[0]])


def cancelled(t, u, p):
    x = u[0] - 0.53
    return np.array([1.0, x * (1.0 + x) / x])


def bounded_in_time(t, u, p):
    x = t - 0.53
    return np.array([1.0 - np.exp(-x), x]) / x * p[0]


def stays_away(t, u, p):
    return -p[0] * u / (0.1 + u)


@pytest.mark.parametrize(
    ("rhs", "start", "end"),
    [
        (gate, [0.0, 0.3], 20.0),
        (unused, [0.0, 0.0], 1.0),
        (cancelled, [0.0, 0.0], 1.0),
        (stays_away, [1.0], 10.0),
        (bounded_in_time, [0.0, 0.0], 1.0),
    ],
)
@pytest.mark.parametrize("method", ["rk5dp", "esdirk4"])
def test_what_is_bounded_is_no_pole(rhs, start, end, method):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(ODE(rhs, len(start), 1), start, [1.0], Stepping((0.0, end), method, **LOOSE))
