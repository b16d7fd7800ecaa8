"""What surfaces see of steps: functions that jump at known times, and ends outside their domain."""

import numpy as np
import pytest

from daeosens import ODE, Event, Stepping, Terminal, adjoint, hybrid, solve, trace
from daeosens.costs import EventTime
from daeosens.errors import NotFiniteError, SolveError

PERIOD, CYCLES = 2e-5, 30
NAMES = ["up", "down", "duty", "gain"]
RATES = np.array([2e4, 1.7e4, 0.45, 0.3])


def comparator(t, u, p):
    return (t / PERIOD - np.floor(t / PERIOD)) - (p[2] - p[3] * u[0])


def rising(t, u, p):
    return np.array([p[0] + 0.0 * u[0]])


def falling(t, u, p):
    return np.array([-p[1] + 0.0 * u[0]])


def level_after(p):
    """Return the level after all cycles: linear pieces, in closed form."""
    level = 0.1 + 0.0 * p[0]
    for _ in range(CYCLES):
        on = (p[2] - p[3] * level) / (1.0 / PERIOD + p[3] * p[0])
        level = level + p[0] * on - p[1] * (PERIOD - on)
    return level


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "stepping", [{"method": "rk6vr", "rtol": 1e-6}, {"method": "cn", "dt": 0.7 * PERIOD}]
)
def test_a_saw_tooth_compared_from_inside_of_its_periods(compiled, stepping):
    """A clock k T, and t / T - floor(t / T): rounding puts some k T into the period before."""
    make = trace if compiled else ODE
    on, off = make(rising, 1, NAMES), make(falling, 1, NAMES)
    clock = [
        Event(k * PERIOD, mode="on", name=f"clock {k}", within=["on", "off"])
        for k in range(1, CYCLES)
    ]
    compare = Event(comparator, mode="off", direction=1, within=["on"], name="compare")
    events = [*clock, compare]
    if compiled:
        events = [on.event(event) for event in events]
    switched = hybrid({"on": on, "off": off}, start="on", events=events)
    assert any(np.floor(k * PERIOD / PERIOD) < k for k in range(CYCLES))
    run = solve(switched, [0.1], RATES, Stepping((0.0, CYCLES * PERIOD), **stepping))
    assert sum(crossing.name == "compare" for crossing in run.crossings) == CYCLES
    value = on.terminal(lambda t, u, p: u[0]) if compiled else Terminal(lambda t, u, p: u[0])
    gradient = adjoint(run, value)
    assert gradient.value == pytest.approx(level_after(RATES), rel=1e-10)
    reference = [level_after(RATES + 1e-30j * unit).imag / 1e-30 for unit in np.eye(4)]
    np.testing.assert_allclose(gradient.p * RATES, reference * RATES, rtol=1e-8)


def root(t, u, p):
    with np.errstate(invalid="ignore"):
        return np.sqrt(u[0] - 0.2) - 0.1


def test_a_step_to_where_an_event_has_no_value_is_taken_again():
    """Steps for e^-pt span the way from above 0.21, where the event is, to below 0.2."""
    ends = Event(root, terminal=True, name="low")
    decay = ODE(lambda t, u, p: -p[0] * u, 1, ["rate"], events=[ends])
    stepping = Stepping((0.0, 20.0), "rk8vr", rtol=2e-8)
    run = solve(decay, [1.0], [0.7], stepping)
    assert run.effort.rejected > 0
    gradient = adjoint(run, EventTime("low"))
    time = np.log(1 / 0.21) / 0.7
    assert gradient.value == pytest.approx(time, rel=1e-8)
    assert gradient.p[0] == pytest.approx(-time / 0.7, rel=1e-7)
    with pytest.raises(NotFiniteError, match='event "low" when'):
        solve(decay, [1.0], [0.7], Stepping((0.0, 20.0), "rk4", dt=1.0))


def test_an_event_that_has_no_value_from_somewhere_on_is_an_error():
    """No size of the step helps: the event would be beyond the end of the domain."""
    ends = Event(lambda t, u, p: root(t, u, p) + 0.2, terminal=True, name="low")
    decay = ODE(lambda t, u, p: -p[0] * u, 1, ["rate"], events=[ends])
    with pytest.raises(NotFiniteError, match='event "low" when'):
        solve(decay, [1.0], [0.7], Stepping((0.0, 20.0), "rk6vr", rtol=1e-6))


@pytest.mark.parametrize(
    "when",
    [
        lambda t, u, p: 1.0 if u[0] > 0.5 else -1.0,
        lambda t, u, p: np.floor(2.0 * u[0]) - 0.5,
        lambda t, u, p: 1.0 / (u[0] - 0.5) if u[0] != 0.5 else 1e16,
        lambda t, u, p: float(u[0] > 0.5),
        lambda t, u, p: u[0] - (2.0 if t < np.log(5.0) else 0.1),
    ],
    ids=["comparison", "floor", "pole", "from rest", "in time"],
)
@pytest.mark.parametrize("direction", [0, 1])
def test_functions_that_jump_are_no_events(when, direction):
    """They were taken for zero somewhere inside the step."""
    grows = ODE(
        lambda t, u, p: p[0] * u,
        1,
        ["rate"],
        events=[Event(when, terminal=True, direction=direction, name="half")],
    )
    with pytest.raises(SolveError, match=r'event "half" has no zero.*jumps from .* at t = 1.6094'):
        solve(grows, [0.1], [1.0], Stepping((0.0, 2.0), "rk6vr", rtol=1e-6))


@pytest.mark.parametrize("direction", [0, -1])
@pytest.mark.parametrize("make", [ODE, trace])
def test_equations_that_jump_at_an_event_are_told_as_that(make, direction):
    """Friction that stops a body: ends of steps jump past zero with it, the speed itself does not.

    It was told as a function that jumps, in which nothing is wrong.
    """
    brakes = make(
        lambda t, u, p: np.stack([u[1], -p[0] * np.sign(u[1])]),
        2,
        ["friction"],
        events=[Event(lambda t, u, p: u[1], direction=direction, name="rest")],
    )
    told = r'event "rest" is where the equations jump: .* t = 2 (.|\n)*a mode for each side'
    with pytest.raises(SolveError, match=told):
        solve(brakes, [0.0, 1.0], [0.5], Stepping((0.0, 4.0), rtol=1e-8))


def test_a_function_that_is_zero_until_a_time_is_no_event():
    """Its part above zero leaves zero in the middle of a step."""
    above = Event(lambda t, u, p: np.maximum(u[0] - 0.5, 0.0), direction=1, name="half")
    grows = ODE(lambda t, u, p: p[0] * u, 1, ["rate"], events=[above])
    with pytest.raises(
        SolveError, match=r"is zero until t = 1\.6094(.|\n)*a mode in which it does"
    ):
        solve(grows, [0.1], [1.0], Stepping((0.0, 2.0), "rk6vr", rtol=1e-6))
