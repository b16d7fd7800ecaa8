"""Kinks between steps: products with the Hessian warn of the term that they lack."""

import warnings

import numpy as np
import pytest

from daeosens import (
    ODE,
    Event,
    KinkWarning,
    Stepping,
    Terminal,
    adjoint,
    hessian_product,
    sensitivities,
    solve,
    tangent,
    trace,
)

LEVEL = Terminal(lambda t, u, p: u[0])
TANK = {"size": 1, "parameters": ["inflow", "outflow"]}
STEPPING = Stepping((0.0, 2.0), "rk6vr", rtol=1e-10, atol=1e-13)
START, RATES = [0.2], [0.8, 1.5]
# u = u0 + 0.8 t until u = 1 at t_1, then u - 1 = 0.8/1.5 (1 - exp(-1.5 (2 - t_1)))
EXACT = -(1.5 / 0.8) * np.exp(-1.5)


def with_maximum(t, u, p):
    return p[0] - p[1] * np.maximum(u - 1.0, 0.0)


def with_abs(t, u, p):
    return p[0] - p[1] * 0.5 * (np.abs(u - 1.0) + u - 1.0)


def with_where(t, u, p):
    return p[0] - p[1] * np.where(u > 1.0, u - 1.0, 0.0)


def with_if(t, u, p):
    return np.array([p[0] - p[1] * (u[0] - 1.0 if u[0] > 1.0 else 0.0)])


def curvature(problem):
    return hessian_product(solve(problem, START, RATES, STEPPING), LEVEL, [1.0], [0.0, 0.0]).u0[0]


def with_sign(t, u, p):
    return p[0] - p[1] * (u - 1.0) * 0.5 * (np.sign(u - 1.0) + 1.0)


def with_heaviside(t, u, p):
    return p[0] - p[1] * (u - 1.0) * np.heaviside(u - 1.0, 0.5)


def with_abs_of_a_number(t, u, p):
    return np.array([p[0] - p[1] * 0.5 * (abs(u[0] - 1.0) + u[0] - 1.0)])


IN_NUMPY = [with_if, with_sign, with_heaviside, with_abs_of_a_number]


@pytest.mark.parametrize("rhs", [with_maximum, with_abs, with_where, *IN_NUMPY])
def test_a_kink_inside_a_step_is_told_with_its_time(rhs):
    with pytest.warns(KinkWarning, match=r"near t = 1,(.|\n)*try: an event there"):
        lacking = curvature(ODE(rhs, **TANK))
    assert abs(lacking - EXACT) > 0.1


@pytest.mark.parametrize("rhs", [with_maximum, with_abs, with_where])
def test_a_kink_of_a_traced_model_is_told_too(rhs):
    with pytest.warns(KinkWarning, match="near t = 1,"):
        curvature(trace(rhs, **TANK))


@pytest.mark.parametrize("make", [ODE, trace])
def test_an_event_on_the_kink_brings_the_term_in(make):
    overflow = Event(lambda t, u, p: u[0] - 1.0, name="overflow")
    assert curvature(make(with_maximum, **TANK, events=[overflow])) == pytest.approx(
        EXACT, rel=1e-8
    )


def test_equations_that_jump_are_told_too():
    relay = ODE(lambda t, u, p: np.where(u > 1.0, 0.5 * p[0], p[0]), **TANK)
    with pytest.warns(KinkWarning, match="kink or jump near t = 1,"):
        curvature(relay)


@pytest.mark.parametrize(
    "rhs",
    [
        lambda t, u, p: p[0] - p[1] * np.maximum(u - 1.0, 0.0) ** 2,  # f_u is continuous
        lambda t, u, p: p[0] - p[1] * np.maximum(u + 1.0, 0.0),  # never crossed
        lambda t, u, p: p[0] - p[1] * u * (1.0 if t < 0.7 else 1.1),  # of the time alone
    ],
)
def test_what_does_not_matter_is_not_told(rhs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curvature(ODE(rhs, **TANK))


@pytest.mark.parametrize("make", [ODE, trace])
def test_knots_of_a_table_are_told_too(make):
    def table(t, u, p):
        return np.array([p[0] * np.interp(u[0], [0.0, 1.0, 2.0], [1.0, 3.0, 2.0]) + 0.0 * p[1]])

    with pytest.warns(KinkWarning, match=r"near t = 0\.476"):
        curvature(make(table, **TANK))


def with_lag(t, u, p):
    return np.where(t > p[0], 1.0, 0.0) - p[1] * u


def with_threshold(t, u, p):
    return np.where(u > 0.5, p[0], p[1])


SWEEPS = [
    lambda run: adjoint(run, LEVEL),
    lambda run: tangent(run, [1.0], [0.0, 0.0]),
    sensitivities,
]


@pytest.mark.parametrize("make", [ODE, trace])
@pytest.mark.parametrize("rhs", [with_lag, with_threshold])
@pytest.mark.parametrize("sweep", SWEEPS)
def test_gradients_of_equations_that_jump_are_told(sweep, rhs, make):
    """A start time as a parameter has the gradient 0 without an event: the exact one is not 0."""
    run = solve(make(rhs, **TANK), START, RATES, STEPPING)
    with pytest.warns(KinkWarning, match="the equations jump near t = "):
        sweep(run)


@pytest.mark.parametrize("sweep", SWEEPS)
def test_gradients_of_equations_with_a_kink_are_right_and_not_told(sweep):
    run = solve(ODE(with_maximum, **TANK), START, RATES, STEPPING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep(run)


def test_later_runs_are_looked_at_ever_more_rarely():
    problem, looks = ODE(with_threshold, **TANK), []
    for k in range(1, 20):
        run = solve(problem, START, RATES, STEPPING)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            adjoint(run, LEVEL)
        looks += [k] * bool(told)
    assert looks == [1, 8]
