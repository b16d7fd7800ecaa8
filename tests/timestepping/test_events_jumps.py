"""Equations that jump where an event happens warn: steps that end there have seen both sides."""

import warnings

import numpy as np
import pytest

from daeosens import ODE, Event, Stepping, Terminal, adjoint, hybrid, solve, trace
from daeosens.errors import KinkWarning

LAST = 2.0


def below(t, u, p):
    return p[0] * (1 + 0.3 * u)


def above(t, u, p):
    return 0.25 * p[0] * u


def both(t, u, p):
    return np.where(u < 1.0, below(t, u, p), above(t, u, p))


def exact(rate, start):
    """u(LAST): it passes 1 on the way."""
    passes = np.log(1.3 / (1 + 0.3 * start)) / (0.3 * rate)
    return np.exp(0.25 * rate * (LAST - passes))


def stepping(method):
    if method in ("rk4", "cn"):
        return Stepping((0.0, LAST), method, dt=0.05)
    return Stepping((0.0, LAST), method, rtol=1e-7)


ONE = Event(lambda t, u, p: u[0] - 1.0, name="one")
METHODS = ["rk6vr", "rk4", "cn"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [ODE, trace])
def test_a_plain_event_where_the_equations_jump_warns(make, method):
    message = '(?s)event "one": the equations themselves jump(.*)try: a mode for each side'
    with pytest.warns(KinkWarning, match=message):
        solve(make(both, 1, 1, events=[ONE]), [0.2], [1.0], stepping(method))


@pytest.mark.parametrize("method", [*METHODS, "esdirk5"])
def test_modes_as_the_message_says_give_the_derivatives(method):
    modes = {"below": ODE(below, 1, 1), "above": ODE(above, 1, 1)}
    passing = Event(ONE.when, mode="above", name="one")
    problem = hybrid(modes, start="below", events=[passing])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = solve(problem, [0.2], [1.0], stepping(method))
    gradient, h = adjoint(run, Terminal(lambda t, u, p: u[0])), 1e-6
    rtol = 1e-3 if method == "cn" else 1e-6
    assert run.u[-1, 0] == pytest.approx(exact(1.0, 0.2), rel=rtol)
    by_rate = (exact(1 + h, 0.2) - exact(1 - h, 0.2)) / (2 * h)
    by_start = (exact(1.0, 0.2 + h) - exact(1.0, 0.2 - h)) / (2 * h)
    assert gradient.p[0] == pytest.approx(by_rate, rel=rtol)
    assert gradient.u0[0] == pytest.approx(by_start, rel=rtol)


@pytest.mark.parametrize("when", ["start", 0.7, lambda t, u, p: t - p[0]])
def test_times_at_which_the_equations_jump_warn(when):
    """A time that is a parameter, in a comparison: its derivative would be wrong by 7 to 50 %."""

    def dose(t, u, p):
        return np.where(t < p[0], 1.0 + 0 * u, 0 * u)

    problem = ODE(dose, 1, ["start"], events=[Event(when, name="stop")])
    with pytest.warns(KinkWarning, match='event "stop"'):
        solve(problem, [0.0], [0.7], stepping("rk6vr"))


def _holidays(t, u, p):
    return -np.where(t % 1.0 > 0.8, p[1], p[0]) * u  # jumps at the event, too


@pytest.mark.parametrize("make", [ODE, trace])
def test_a_jump_of_the_time_alone_at_an_event_that_stays_is_resolved(make):
    """Steps of adaptive runs are as short there as their error asks for."""
    moves = Event(1.0, reset=lambda t, u, p: 2.0 * u, name="year")
    problem = make(_holidays, 1, ["term", "holiday"], events=[moves])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = solve(problem, [1.0], [2.0, 0.5], Stepping((0.0, 1.5), rtol=1e-8))
        gradient = adjoint(run, Terminal(lambda t, u, p: u[0]))
    last = 2.0 * np.exp(-2.0 * 1.3 - 0.5 * 0.2)
    assert run.u[-1, 0] == pytest.approx(last, rel=1e-7)
    np.testing.assert_allclose(gradient.p, [-1.3 * last, -0.2 * last], rtol=1e-5)
    with pytest.warns(KinkWarning, match='event "year"'):
        solve(problem, [1.0], [2.0, 0.5], Stepping((0.0, 1.5), "rk4", dt=0.1))


@pytest.mark.parametrize(
    "smooth",
    [
        lambda t, u, p: np.abs(u - 1.0) + 1.0,  # a kink
        lambda t, u, p: 1e6 * np.exp(-u / 1e-2) + 1.0,  # steep
        lambda t, u, p: 1.0 + np.sqrt(np.abs(u - 1.0)),  # a slope that is not bounded
        lambda t, u, p: 1.0 + 1e3 * np.tanh((u - 1.0) / 1e-3),
    ],
)
def test_equations_without_a_jump_do_not_warn(smooth):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(ODE(smooth, 1, events=[ONE]), [0.2], None, stepping("rk6vr"))


def test_breakpoints_take_their_own_side():
    """An event at the time of a breakpoint sees both."""
    problem = ODE(
        lambda t, u, p: np.where(t < 0.7, p[0], 0.0) + 0 * u,
        1,
        ["rate"],
        events=[Event(0.7, reset=lambda t, u, p: 2 * u, name="double")],
        breakpoints=[0.7],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = solve(problem, [0.0], [3.0], stepping("rk4"))
    assert run.u[-1, 0] == pytest.approx(2 * 0.7 * 3.0, rel=1e-12)


@pytest.mark.parametrize("make", [ODE, trace])
@pytest.mark.parametrize("before", [1e-7, 1e-9, 1e-11])
def test_a_step_that_is_short_warns_as_well(make, before):
    """Steps close in on a jump, and the millionth part of such a step is rounding of the state."""
    passes = np.log(1.3 / 1.06) / 0.3
    problem = make(both, 1, 1, events=[ONE])
    with pytest.warns(KinkWarning, match='event "one": the equations themselves jump'):
        run = solve(problem, [0.2], [1.0], stepping("rk8vr"), [passes - before])
    assert 0.5 * before < run.step_sizes[run.crossings[0].step - 1] < 2.0 * before


@pytest.mark.parametrize("before", [1e-7, 1e-9, 1e-11, 1e-13])
@pytest.mark.parametrize("factor", [1.0, 1e8])
def test_a_short_step_of_smooth_equations_does_not(before, factor):
    """Sums of large terms that nearly cancel, too: what their rounding changes is no jump."""

    def grows(t, u, p):
        return p[0] * (1 + 0.3 * u) + factor * (u * u - u**2 * (1.0 + 1e-9))

    passes = np.log(1.3 / 1.06) / 0.3
    with warnings.catch_warnings():
        warnings.simplefilter("error", KinkWarning)
        solve(ODE(grows, 1, 1, events=[ONE]), [0.2], [1.0], stepping("rk8vr"), [passes - before])


def test_a_look_at_smooth_equations_takes_two_evaluations():
    """One after each 1st, 2nd, 4th, ... event: five evaluations were a tenth of a ball's run."""
    times = []

    def falls(t, u, p):
        times.append(t)
        return np.array([u[1], -p[0]])

    bounce = Event(
        lambda t, u, p: u[0], lambda t, u, p: np.array([u[0], -p[1] * u[1]]), direction=-1
    )
    problem = ODE(falls, 2, 2, events=[bounce])
    run = solve(problem, [1.0, 0.0], [9.81, 0.9], Stepping((0.0, 3.0), "rk4", dt=0.05))
    ends = [run.times[crossing.step] for crossing in run.crossings]
    assert len(ends) == 4
    sizes = [run.step_sizes[crossing.step - 1] for crossing in run.crossings]
    looks = [
        sum(0.0 < abs(time - end) < 1e-3 * h for time in times)
        for end, h in zip(ends, sizes, strict=True)
    ]
    assert looks == [2, 2, 0, 2]
