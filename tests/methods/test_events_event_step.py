"""Crossings have the same derivatives in all units; surfaces that are only touched are refused."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.costs import EventTime
from daeosens.errors import GrazingError
from daeosens.methods.events.event_step import refuse_grazing

UNITS = [
    (1.0, 1.0, 1.0),
    (1e6, 1.0, 1.0),
    (1.0, 1e-6, 1.0),
    (1.0, 1.0, 1e12),
    (1e-9, 1e9, 1e-12),
    (1e12, 1e-9, 1e14),
]
"""Of the event function, of the time, and of an unknown which it does not look at."""

STEPS = [("rk4", {"dt": 0.03}), ("rk6vr", {"rtol": 1e-8}), ("esdirk4", {"dt": 0.03})]


def derivatives(run, time):
    costs = [EventTime("level"), ds.Terminal(lambda t, u, p: u[0])]
    of_time, of_height = (ds.adjoint(run, cost).p for cost in costs)
    along = [ds.tangent(run, dp=row).states[-1].array[0] for row in np.eye(2)]
    second = ds.hessian_product(run, costs[1], dp=[1.0, 0.0])
    return np.concatenate([of_time / time, of_height, along, second.p])


def thrown(style, units, method, control):
    """A ball that bounces at a level, and a third unknown that adds up its height."""
    g, time, unit = units
    bounce = ds.Event(
        lambda t, u, p: g * (u[0] - p[0]),
        lambda t, u, p: np.array([p[0] + 0.0 * u[0], -0.8 * u[1], u[2]]),
        direction=-1,
        name="level",
    )
    problem = style(
        lambda t, u, p: np.array([u[1] / time, -9.81 / time, unit * p[1] * u[0] / time]),
        3,
        ["level", "gain"],
        events=[bounce],
    )
    control = {key: value * time if key == "dt" else value for key, value in control.items()}
    stepping = ds.Stepping((0.0, 1.5 * time), method, **control)
    return ds.solve(problem, [1.0, 0.0, 0.0], [0.1, 0.8], stepping)


@pytest.mark.parametrize(("method", "control"), STEPS)
@pytest.mark.parametrize("style", [ds.ODE, ds.trace])
def test_crossings_have_the_same_derivatives_in_all_units(style, method, control):
    expected = derivatives(thrown(style, UNITS[0], method, control), 1.0)
    for units in UNITS[1:]:
        ours = derivatives(thrown(style, units, method, control), units[1])
        np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("style", [ds.DDE, ds.trace])
def test_crossings_of_delay_equations_have_the_same_derivatives_in_all_units(style):
    def gradient(g, time, unit):
        raised = ds.Event(
            lambda t, u, p: g * (u[0] - p[0]),
            lambda t, u, p: np.array([u[0] + 1.0, u[1]]),
            direction=-1,
            name="level",
        )
        problem = style(
            lambda t, u, z, p: np.array([-z[0, 0] / time, p[1] * unit * u[0] / time]),
            2,
            ["level", "gain"],
            delays=0.9 * time,
            history=[1.0, 0.0],
            events=[raised],
        )
        stepping = ds.Stepping((0.0, 2.0 * time), "rk5ts", dt=0.03 * time)
        run = ds.solve(problem, [1.0, 0.0], [0.3, 0.8], stepping)
        return np.append(
            ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0])).p,
            ds.adjoint(run, EventTime("level")).p / time,
        )

    expected = gradient(*UNITS[0])
    np.testing.assert_allclose(expected[2:], [-1.0, 0.0], atol=1e-12)  # 1 - t = level
    for units in UNITS[1:]:
        np.testing.assert_allclose(gradient(*units), expected, rtol=1e-8, atol=1e-10)


def at_rest(t, u, p):
    """A fall from rest."""
    return [u[1], -9.81]


def cubic(t, u, p):
    """A way that stops at t = 1, and goes on."""
    return [3.0 * (t - 1.0) ** 2, 0.0 * t]


TOUCHED = [
    # on the surface at the start, at rest, and at a speed that is rounding
    (at_rest, [0.0, 0.0], [1.0, 0.0], 0.0, -1),
    (at_rest, [1.0, 0.1 * 3 - 0.3], [1.0, 0.0], 1.0, -1),
    (at_rest, [0.0, 0.1 * 3 - 0.3], [1.0, 0.0], 0.0, -1),
    (cubic, [-1.0, 0.0], [1.0, 0.0], 0.0, 0),
]


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize(("rates", "start", "weights", "level", "direction"), TOUCHED)
def test_touches_are_refused_in_all_units(rates, start, weights, level, direction, units):
    g, time, unit = units
    touch = ds.Event(
        lambda t, u, p: g * (weights[0] * u[0] + weights[1] * u[1] - level),
        lambda t, u, p: u + np.array([1.0, 0.0, 0.0]),
        direction=direction,
        name="touch",
    )

    def rhs(t, u, p):
        return np.array([*rates(t / time, u, p), unit * u[0]]) / time

    problem = ds.ODE(rhs, 3, events=[touch])
    stepping = ds.Stepping((0.0, 1.5 * time), "rk4", dt=0.3 * time)
    run = ds.solve(problem, [*start, 0.0], None, stepping)
    assert run.crossings
    with pytest.raises(GrazingError, match='"touch"'):
        ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    with pytest.raises(GrazingError, match='"touch"'):
        ds.tangent(run, [1.0, 1.0, 0.0])


def test_a_speed_that_is_rounding_of_its_terms_is_refused():
    def refuse(slope):
        refuse_grazing("touch", 1.0, 0.1, (slope, 1.0), 1e-14, lambda: 0.0)

    refuse(1e-9)
    with pytest.raises(GrazingError, match='"touch" at t = 1 is grazed: dg/dt = 1e-11'):
        refuse(1e-11)


def test_a_speed_that_is_not_a_number_is_no_touch():
    message = 'the function of event "touch" has the rate nan at t = 1\n'
    with pytest.raises(ds.SolveError, match=message):
        refuse_grazing("touch", 1.0, 0.1, (np.nan, 1.0), 0.1, lambda: 0.0)
