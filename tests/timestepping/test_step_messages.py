"""Runs that cannot go on say what to try: relays, fronts, far guesses, singular masses."""

import numpy as np
import pytest
from forms import DIAGONAL

from daeosens import ODE, Event, SolveError, Stepping, hybrid, solve, trace
from daeosens.errors import ChatterError, SingularMatrixError


def relay(make, gap):
    """U' = -1 above the upper level, 1 below the lower one, and a little more."""
    modes = {
        "down": make(lambda t, u, p: -1 + 0.3 * np.sin(t) + 0 * u, 1),
        "up": make(lambda t, u, p: 1 + 0.3 * np.sin(t) + 0 * u, 1),
    }
    events = [
        Event(lambda t, u, p: u[0] + gap, direction=-1, mode="up", within=["down"], name="low"),
        Event(lambda t, u, p: u[0] - gap, direction=1, mode="down", within=["up"], name="high"),
    ]
    return hybrid(modes, start="down", events=events)


@pytest.mark.parametrize("method", [*DIAGONAL, "rk6vr", "cn"])
@pytest.mark.parametrize("make", [ODE, trace])
def test_a_relay_without_hysteresis_is_told_so(make, method):
    """ESDIRK methods did not find the event, where the state is zero but for rounding."""
    message = r'(?s)"low" and "high" at one instant, t = 0\.54(.*)try: levels further apart \(hyst'
    with pytest.raises(SolveError, match=message):
        solve(relay(make, 0.0), [0.5], None, Stepping((0.0, 3.0), method, rtol=1e-6))


def test_events_that_use_up_the_steps_are_named_with_the_remedy():
    stepping = Stepping((0.0, 3.0), "esdirk4", rtol=1e-6, max_steps=400)
    message = (
        r'(?s)events in 400 steps up to t = 0\.55\d*, the last 30 of them, "high" and "low", '
        r"within 0\.00\d*: they follow(.*)try: hysteresis, levels further apart(.*)max_steps > 400"
    )
    with pytest.raises(SolveError, match=message):
        solve(relay(ODE, 1e-5), [0.5], None, stepping)


@pytest.mark.parametrize("method", ["esdirk5", "rk6vr"])
def test_hysteresis_helps(method):
    run = solve(relay(ODE, 0.05), [0.5], None, Stepping((0.0, 3.0), method, rtol=1e-8))
    assert len(run.crossings) > 10
    assert np.abs(run.u[-1]).max() <= 0.05


def test_a_run_that_takes_its_last_step_at_an_event():
    """The next piece has no step left."""
    stepping = Stepping((0.0, 3.0), "rk6vr", rtol=1e-6, max_steps=25)
    with pytest.raises(SolveError, match="after 25 steps"):
        solve(relay(ODE, 0.05), [0.5], None, stepping)


def test_unknowns_that_have_become_negative_are_named():
    """A glacier's margin: u^5 has no diffusion at u = 0, and antidiffusion below."""
    x = np.linspace(0.0, 2.0, 30)

    def glacier(t, u, p, power):
        flow = power(0.5 * (u[1:] + u[:-1])) ** 5 * (np.diff(u) / np.diff(x)) ** 3
        flow = np.concatenate([np.zeros(1), flow, np.zeros(1)])
        return np.diff(flow) / (x[1] - x[0]) + 0.5 * (1.0 - x)

    u0 = np.maximum(0.0, 1.0 - x**2) ** (3 / 7)
    stepping = Stepping((0.0, 3.0), "esdirk4", rtol=1e-4)
    message = r"(?s)unknowns 1\d, (.*) below it now(.*)try: equations that keep them there"
    with pytest.raises(SolveError, match=message):
        solve(ODE(lambda t, u, p: glacier(t, u, p, lambda h: h), 30), u0, None, stepping)


def test_far_guesses_of_algebraic_variables_name_consistent_state():
    """Two volts at a diode: 50 iterations away, and no step is short enough for them."""

    def diode(t, u, p):
        return np.array([u[1] - u[0], (1 - u[1]) / 1e-3 - 1e-9 * (np.exp(u[1] / 0.026) - 1)])

    problem = ODE(diode, 2, mass=np.diag([1.0, 0.0]))
    with pytest.raises(SolveError, match=r"(?s)after 0 steps(.*)try: a start from consistent"):
        solve(problem, [0.0, 2.0], None, Stepping((0.0, 10.0), "esdirk5", rtol=1e-6))


def test_singular_matrices_of_other_methods_name_the_one_that_knows_the_mass():
    """A capacitor between two nodes, and no conductance: at any step the matrix is singular."""
    mass = np.array([[1.0, -1.0], [-1.0, 1.0]])
    problem = ODE(lambda t, u, p: np.array([u[1] - u[0], u[0] - u[1]]), 2, mass=mass)
    with pytest.raises(SingularMatrixError, match=r'try: method="esdirk5", which knows'):
        solve(problem, [1.0, 0.0], None, Stepping((0.0, 1.0), "beuler", rtol=1e-3))


def melting(t, u, p):
    """Return the rate of ice that melts faster than it grows, while there is some."""
    return np.array([0.3 - np.where(u[0] > 0.0, p[0], 0.0), -u[1]])


@pytest.mark.parametrize("make", [ODE, trace])
@pytest.mark.parametrize("method", ["rk6vr", "esdirk5"])
def test_a_run_that_chatters_across_a_jump_names_it(make, method):
    """No method goes on there, so none is the remedy."""
    stepping = Stepping((0.0, 10.0), method, rtol=1e-6, max_steps=3000)
    with pytest.raises(SolveError) as raised:
        solve(make(melting, 2, ["melt"]), [1.0, 1.0], [1.0], stepping)
    assert "the equations jump where the state is" in str(raised.value)
    assert "np.where(u[0] > 0.0, p[0], 0.0)" in str(raised.value)
    assert "esdirk5" not in str(raised.value)
    assert "daeosens.hybrid" in str(raised.value)


def sliding(t, u, p):
    """Return the rate of a ball that friction brings to rest, whatever its direction."""
    return -p[0] * u / np.hypot(u[0], u[1])


@pytest.mark.parametrize("make", [ODE, trace])
def test_a_direction_that_chatters_is_told_after_few_steps(make):
    """Not after the million that runs may take: so short steps would never come to the end."""
    with pytest.raises(ChatterError, match=r"after 2000 steps(.*)the equations jump") as raised:
        solve(make(sliding, 2, 1), [0.8, -0.6], [1.0], Stepping((0.0, 3.0), rtol=1e-8))
    assert raised.value.ahead > 1e6
    assert "an event that changes its sign" in str(raised.value)


@pytest.mark.parametrize("make", [ODE, trace])
@pytest.mark.parametrize(("direction", "rtol"), [(0, 1e-4), (-1, 1e-6)])
@pytest.mark.filterwarnings("ignore::daeosens.errors.KinkWarning")  # of the jump at the event
def test_what_chatters_between_two_events_is_told_after_few_steps(make, direction, rtol):
    """Of the steps behind the last event there are three: all of them have the jump ahead."""
    rest = Event(lambda t, u, p: u[1], direction=direction, name="rest")
    brakes = make(lambda t, u, p: np.stack([u[1], -p[0] * np.sign(u[1])]), 2, 1, events=[rest])
    with pytest.raises(ChatterError, match=r"after 2000 steps(.*)the equations jump"):
        solve(brakes, [0.0, 1.0], [0.5], Stepping((0.0, 4.0), rtol=rtol))


@pytest.mark.parametrize("make", [ODE, trace])
def test_an_event_that_touches_zero_on_the_jump_is_named(make):
    """The length of what comes to rest turns at 0; a level above it is passed."""
    stepping = Stepping((0.0, 3.0), rtol=1e-8)

    def until(level):
        modes = {"slides": make(sliding, 2, 1), "rests": make(lambda t, u, p: 0.0 * u, 2, 1)}
        stop = Event(lambda t, u, p: np.hypot(u[0], u[1]) - level, mode="rests", name="stop")
        events = [modes["slides"].event(stop) if make is trace else stop]
        return solve(hybrid(modes, start="slides", events=events), [0.8, -0.6], [1.0], stepping)

    message = r'event "stop" has come to (.*), from 1, and does not happen(.*)hypot'
    with pytest.raises(ChatterError, match=message) as raised:
        until(0.0)
    assert raised.value.ahead > 1e6
    assert raised.value.run.times[0] == 0.0
    assert until(1e-6).crossings[0].t == pytest.approx(1.0 - 1e-6, abs=1e-9)


def test_a_kink_that_is_crossed_all_the_time_is_no_jump():
    stepping = Stepping((0.0, 30.0), "rk6vr", rtol=1e-6, max_steps=60)
    shaken = ODE(lambda t, u, p: np.array([u[1], -400.0 * u[0] - np.abs(u[0])]), 2, [])
    with pytest.raises(SolveError) as raised:
        solve(shaken, [1.0, 0.0], [], stepping)
    assert "jump" not in str(raised.value)


def test_a_level_that_a_spike_passes_in_no_time_is_named_with_a_lower_one():
    """An exponential neuron (Brette, Gerstner): at 20 mV a step that changes t leaves the range."""

    def rate(t, u, p):
        return (-30.0 * (u + 70.6) + 60.0 * np.exp((u + 50.4) / 2.0) + 900.0) / 281.0

    def neuron(level):
        fires = Event(lambda t, u, p: u[0] - level, lambda t, u, p: np.array([-60.0]), direction=1)
        return ODE(rate, 1, events=[fires])

    stepping = Stepping((0.0, 40.0), rtol=1e-8)
    with pytest.raises(SolveError, match=r"(?s)have shrunk to(.*)a lower level of an event"):
        solve(neuron(20.0), [-70.6], None, stepping)
    run = solve(neuron(-40.4), [-70.6], None, stepping)
    assert len(run.crossings) == 3
