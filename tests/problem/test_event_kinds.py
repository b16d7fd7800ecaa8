"""Built-in kinds of events: values, times, gradients of closed forms; both styles of callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import (
    ODE,
    Event,
    InputError,
    Parameter,
    Parameters,
    Reduced,
    SolveError,
    Stepping,
    Terminal,
    UnsupportedError,
    adjoint,
    hessian_product,
    hybrid,
    solve,
    tangent,
    taylor,
)
from daeosens.problem import Problem, Products, System, saturated, with_events
from daeosens.problem.event_kinds import fault, hysteresis, impact, impulse, system_of, threshold
from daeosens.verify import duality


@dataclass(frozen=True)
class Case:
    """A problem, and its final state and the times of its events in closed form.

    ``exact(u0, p, t_end) -> (state, times)`` takes complex numbers.
    """

    problem: Problem
    u0: tuple[float, ...]
    p: tuple[float, ...]
    t_end: float
    exact: Callable[..., Any]


def filled(u0, p, t_end):
    """Solve u' = feed - u; at u = level: multiply by factor, add dose."""
    (u,), (feed, level, factor, dose) = u0, p
    t, times = 0.0, []
    while True:
        duration = np.log((feed - u) / (feed - level))
        if np.real(t + duration) > t_end:
            return [feed - (feed - u) * np.exp(t - t_end)], times
        t, u = t + duration, factor * level + dose
        times.append(t)


def thrown(u0, p, t_end):
    """Free fall on to a floor, with restitution."""
    (z, v), (g, e, floor) = u0, p
    t, times = 0.0, []
    while True:
        duration = (v + np.sqrt(v * v + 2 * g * (z - floor))) / g
        if np.real(t + duration) > t_end:
            rest = t_end - t
            return [z + v * rest - g * rest**2 / 2, v - g * rest], times
        t, v, z = t + duration, -(v - g * duration) * e, floor + 0.0 * z
        times.append(t)


def hung(u0, p, t_end):
    """The same upside down: a ceiling and a balloon."""
    state, times = thrown([-u0[0], -u0[1]], [p[0], p[1], -p[2]], t_end)
    return [-state[0], -state[1]], times


def switched(u0, p, t_end):
    """Solve u' = power - u while on, u' = -u while off; off at upper, on at lower."""
    (u,), (power, upper, lower) = u0, p
    t, on, times = 0.0, True, []
    while True:
        end, level = (power, upper) if on else (0.0, lower)
        duration = np.log((u - end) / (level - end))
        if np.real(t + duration) > t_end:
            return [end + (u - end) * np.exp(t - t_end)], times
        t, u, on = t + duration, level, not on
        times.append(t)


def dosed(u0, p, t_end):
    """Solve u' = -rate u; at first, t = 2.5 and last: multiply by factor, add dose."""
    (u,), (rate, factor, dose, first, last) = u0, p
    t, times = 0.0, [first, 2.5, last]
    for time in times:
        u, t = factor * u * np.exp(-rate * (time - t)) + dose, time
    return [u * np.exp(-rate * (t_end - t))], times


def faulty(u0, p, t_end):
    """Solve u' = drive - u, and u' = slope between start and end."""
    (u,), (drive, slope, start, end) = u0, p
    u = drive + (u - drive) * np.exp(-start) + (end - start) * slope
    return [drive + (u - drive) * np.exp(end - t_end)], [start, end]


def root(function, slope, start):
    """Newton's method, for complex numbers too."""
    for _ in range(30):
        start = start - function(start) / slope(start)
    return start


def limited(u0, p, t_end):
    """Solve x' = swing cos t - drift between limits, y' = x: up, held, down, held, up."""
    (x0, y0), (swing, drift, rim, ground) = u0, p

    def free(x, y, t):
        """Return x and y at a later time, from a time t."""
        c = x - swing * np.sin(t) + drift * t
        return (
            lambda s: swing * np.sin(s) - drift * s + c,
            lambda s: y + swing * (np.cos(t) - np.cos(s)) - drift * (s**2 - t**2) / 2 + c * (s - t),
        )

    def rate(t):
        return swing * np.cos(t) - drift

    x, y = free(x0, y0, 0.0)
    first = root(lambda t: x(t) - rim, rate, 0.6 + 0.0j)
    second = np.arccos(drift / swing)
    x, y = free(rim, y(first) + rim * (second - first), second)
    third = root(lambda t: x(t) - ground, rate, 2.8 + 0.0j)
    fourth = 2 * np.pi - second
    x, y = free(ground, y(third) + ground * (fourth - third), fourth)
    return [x(t_end), y(t_end)], [first, second, third, fourth]


def decay_to(level):
    return lambda t, u, p: level(p) - u


def cases() -> dict[str, Case]:
    """Return every kind, with all of its numbers as parameters."""
    tank = System(["volume"], ["feed", "level", "factor", "dose"])
    ball = System(["height", "speed"], ["gravity", "restitution", "floor"])
    room = System(["temperature"], ["power", "upper", "lower"], modes=["on", "off"])
    blood = System(["drug"], ["rate", "factor", "dose", "first", "last"])
    grid = System(["angle"], ["drive", "slope", "start", "end"], modes=["normal", "fault"])
    wave = System(["x", "y"], ["swing", "drift", "rim", "ground"])

    def fall(t, u, p, sign=-1.0):
        return np.array([u[1], sign * p[0] + 0 * u[0]])

    refill = threshold(
        tank,
        component="volume",
        level="level",
        direction="rising",
        multiply={"volume": "factor"},
        add={"volume": "dose"},
    )
    bounce = {"position": "height", "speed": "speed", "floor": "floor"}
    on, off = decay_to(lambda p: p[0]), decay_to(lambda p: 0.0)
    thermostat = hysteresis(
        room, component=0, upper="upper", lower="lower", above="off", below="on", name="heater"
    )
    change = {"multiply": {"drug": "factor"}, "add": {"drug": "dose"}}
    free = ODE(
        lambda t, u, p: np.array([p[0] * np.cos(t) - p[1] + 0 * u[0], u[0]]), 2, wave.parameters
    )
    modes = {
        "normal": ODE(decay_to(lambda p: p[0]), 1, grid.parameters),
        "fault": ODE(lambda t, u, p: p[1] + 0 * u, 1, grid.parameters),
    }
    return {
        "threshold": Case(
            ODE(decay_to(lambda p: p[0]), 1, tank.parameters, events=[refill]),
            (0.1,),
            (1.0, 0.5, 0.8, 0.05),
            1.1,
            filled,
        ),
        "impact": Case(
            ODE(fall, 2, ball.parameters, events=[impact(ball, **bounce, restitution=1)]),
            (5.0, -0.1),
            (10.0, 1.0, 0.4),
            4.3,
            thrown,
        ),
        "impact with restitution": Case(
            ODE(
                fall,
                2,
                ball.parameters,
                events=[impact(ball, **bounce, restitution="restitution")],
            ),
            (5.0, -0.1),
            (10.0, 0.8, 0.4),
            6.2,
            thrown,
        ),
        "impact from below": Case(
            ODE(
                lambda t, u, p: fall(t, u, p, 1.0),
                2,
                ball.parameters,
                events=[impact(ball, **bounce, restitution="restitution", side="below")],
            ),
            (-5.0, 0.1),
            (10.0, 0.8, -0.4),
            4.3,
            hung,
        ),
        "hysteresis": Case(
            hybrid(
                {"on": ODE(on, 1, room.parameters), "off": ODE(off, 1, room.parameters)},
                "on",
                thermostat,
            ),
            (0.2,),
            (2.0, 0.9, 0.6),
            2.6,
            switched,
        ),
        "impulse": Case(
            ODE(
                lambda t, u, p: -p[0] * u,
                1,
                blood.parameters,
                events=impulse(blood, at=("first", 2.5, "last"), **change),
            ),
            (1.5,),
            (0.7, 0.9, 0.4, 1.0, 3.0),
            3.7,
            dosed,
        ),
        "fault": Case(
            hybrid(modes, "normal", fault(grid, start="start", end="end")),
            (0.3,),
            (1.2, -0.7, 0.4, 0.9),
            1.6,
            faulty,
        ),
        "saturation": Case(
            saturated(free, "x", lower="ground", upper="rim", system=wave),
            (0.0, 0.1),
            (1.0, 0.2, 0.5, -0.4),
            6.0,
            limited,
        ),
    }


CASES = cases()


def run(case, method="rk8vr", dt=0.04):
    options = {} if method.startswith("rk") else {"snes_rtol": 1e-14, "snes_stol": 1e-15}
    stepping = Stepping((0.0, case.t_end), method, dt=dt, options=options)
    return solve(case.problem, case.u0, case.p, stepping)


def weighted(n):
    """A function of the final state and of parameters, with a Hessian."""
    w = np.cos(1.0 + np.arange(n))
    return Terminal(lambda t, u, p: w @ u + 0.3 * p[0] * u[0] ** 2)


@pytest.mark.parametrize("name", CASES)
def test_value_times_and_gradient_are_the_closed_form(name):
    case = CASES[name]
    trajectory = run(case)
    state, times = case.exact(case.u0, case.p, case.t_end)
    assert len(trajectory.crossings) == len(times) >= 1
    np.testing.assert_allclose([c.t for c in trajectory.crossings], np.real(times), rtol=1e-11)
    np.testing.assert_allclose(trajectory.final.array, np.real(state), rtol=1e-10)
    n, cost = len(case.u0), weighted(len(case.u0))

    def value(x):
        final, _ = case.exact(x[:n], x[n:], case.t_end)
        return cost.value(case.t_end, np.array(final), x[n:])

    point = np.array([*case.u0, *case.p])
    expected = [value(point + 1e-30j * unit).imag / 1e-30 for unit in np.eye(len(point))]
    gradient = adjoint(trajectory, cost)
    ours = np.concatenate([gradient.u0, gradient.p])
    if name == "impact":  # which is given the number 1, of which there is no derivative
        ours[n + 1] = expected[n + 1]
    np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("method", ["rk4", "cn"])
@pytest.mark.parametrize("name", CASES)
def test_taylor_of_both_orders_and_duality_at_coarse_steps(name, method):
    case = CASES[name]
    names = case.problem.parameter_names
    values = {item: Parameter(value) for item, value in zip(names, case.p, strict=True)}
    start = np.array(case.u0)
    control = Parameters(values, lambda p: start * (1.0 + 0.3 * (p[0] - case.p[0])))
    options = {} if method.startswith("rk") else {"snes_rtol": 1e-14, "snes_stol": 1e-15}
    stepping = Stepping((0.0, case.t_end), method, dt=0.23, options=options)
    functional = Reduced(case.problem, weighted(len(start)), stepping, control)
    trajectory = functional.trajectory(functional.start())
    assert trajectory.crossings
    assert duality(trajectory, functional.objective) < 1e-12
    orders = taylor(functional, epsilons=[2e-3 * 0.5**k for k in range(6)], hessian=True)
    assert orders.passed, orders


def test_names_of_events():
    names = {
        name: list(dict.fromkeys(c.name for c in run(case, "rk4", 0.1).crossings))
        for name, case in CASES.items()
    }
    assert names["threshold"] == ["threshold"]
    assert names["impact"] == ["impact"]
    assert names["hysteresis"] == ["heater off", "heater on"]
    assert names["fault"] == ["fault", "normal"]
    assert names["saturation"] == [
        f"x {does} {side}" for side in ("upper", "lower") for does in ("reaches", "leaves")
    ]


def test_terminal_threshold_ends_the_run():
    tank = System(["volume"], ["feed", "level"])
    end = threshold(tank, component=0, level="level", terminal=True)
    problem = ODE(lambda t, u, p: p[0] - u, 1, tank.parameters, events=[end])
    trajectory = solve(problem, [0.0], [1.0, 0.5], Stepping((0.0, 5.0), "rk8vr", dt=0.1))
    assert trajectory.times[-1] == pytest.approx(np.log(2), rel=1e-12)


@pytest.mark.parametrize(
    ("direction", "expected"), [("rising", [0.5]), ("falling", [1.5]), ("either", [0.5, 1.5])]
)
def test_directions_of_a_threshold(direction, expected):
    event = threshold(System(1), component=0, level=0.0, direction=direction)
    problem = ODE(lambda t, u, p: np.array([np.pi * np.sin(np.pi * t)]), 1, events=[event])
    trajectory = solve(problem, [-1.0], None, Stepping((0.0, 1.9), "rk8vr", dt=0.1))
    assert [crossing.t for crossing in trajectory.crossings] == pytest.approx(expected, abs=1e-9)


# ---- saturation ----------------------------------------------------------------------------------


def pushed(t, u, p):
    """Push x by cos t; y follows x."""
    return np.array([p[0] * np.cos(t) + 0 * u[0], u[0] - u[1]])


WAVE = System(["x", "y"], ["push", "rim"])
PUSHED = ODE(pushed, 2, WAVE.parameters)


def modes_of(trajectory):
    return [(round(crossing.t, 9), crossing.mode) for crossing in trajectory.crossings]


@pytest.mark.parametrize(("x0", "held"), [(0.5, True), (0.5 - 1e-6, False), (-0.5, False)])
def test_start_at_a_limit_is_held_if_the_rate_points_outwards(x0, held):
    problem = saturated(PUSHED, "x", lower=-0.5, upper="rim", system=WAVE)
    trajectory = solve(problem, [x0, 0.0], [1.5, 0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    first, last = trajectory.crossings[0], trajectory.crossings[-1]
    assert first.name == ("x leaves upper" if held else "x reaches upper")
    assert last.name == "x leaves upper"
    assert last.t == pytest.approx(np.pi / 2, rel=1e-12)
    expected = 0.5 + 1.5 * (np.sin(2.0) - 1.0)
    assert trajectory.final.array[0] == pytest.approx(expected, rel=1e-5)


def test_held_from_the_start_without_any_event():
    """As x stays where it starts, it follows x0; y' = x - y."""
    problem = saturated(PUSHED, "x", upper=0.5, system=WAVE)
    trajectory = solve(problem, [0.5, 0.0], [1.0, 0.0], Stepping((0.0, 1.0), "rk8vr", dt=0.1))
    assert trajectory.crossings == ()
    assert trajectory.final.array == pytest.approx([0.5, 0.5 * (1 - np.exp(-1))], rel=1e-12)
    gradient = adjoint(trajectory, Terminal(lambda t, u, p: u[1]))
    assert gradient.u0 == pytest.approx([1 - np.exp(-1), np.exp(-1)], rel=1e-12)


def test_beyond_a_limit_is_an_error():
    problem = saturated(PUSHED, "x", lower=-1.0, upper="rim", system=WAVE)
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.1)
    with pytest.raises(SolveError, match=r"x = 0.6 is beyond its upper limit 0.5 at t = 0\n"):
        solve(problem, [0.6, 0.0], [1.0, 0.5], stepping)
    with pytest.raises(SolveError, match=r"x = -1.5 is beyond its lower limit -1"):
        solve(problem, [-1.5, 0.0], [1.0, 0.5], stepping)
    kick = impulse(WAVE, at=0.2, add={"x": 0.4})
    problem = saturated(ODE(pushed, 2, WAVE.parameters, events=kick), "x", upper=0.5, system=WAVE)
    with pytest.raises(SolveError, match=r"x = 0.5986\d* is beyond its upper limit 0.5 at t = 0.2"):
        solve(problem, [0.0, 0.0], [1.0, 0.5], stepping)


def test_other_events_take_a_held_component_off_its_limit_and_leave_it_there():
    """From t = asin(0.5) x is at 0.5; y is doubled at t = 0.8, x knocked back to 0.3 at t = 1."""
    knocks = [
        *impulse(WAVE, at=0.8, multiply={"y": 2.0}, name="other"),
        *impulse(WAVE, at=1.0, add={"x": -0.2}, name="back"),
        Event(0.9, name="marker"),
    ]
    problem = saturated(
        ODE(pushed, 2, WAVE.parameters, events=knocks), "x", upper="rim", system=WAVE
    )
    trajectory = solve(problem, [0.0, 0.1], [1.0, 0.5], Stepping((0.0, 1.5), "rk8vr", dt=0.05))
    assert modes_of(trajectory) == [
        (round(np.arcsin(0.5), 9), "x at upper"),
        (0.8, "x at upper"),
        (0.9, "x at upper"),
        (1.0, "free"),
    ]
    expected = 0.3 + np.sin(1.5) - np.sin(1.0)
    assert trajectory.final.array[0] == pytest.approx(expected, rel=1e-12)
    cost = Terminal(lambda t, u, p: u[0] + u[1])
    assert adjoint(trajectory, Terminal(lambda t, u, p: u[0])).p == pytest.approx(
        [np.sin(1.5) - np.sin(1.0), 1.0], rel=1e-11
    )
    assert duality(trajectory, cost) < 1e-12


def test_a_limit_that_an_event_moves():
    """The rim is raised from 0.5 to 0.7 at t = 1, where x goes on to rise."""
    raised = Event(1.0, changes={"rim": lambda t, u, p: 1.4 * p[1]}, name="raised")
    problem = saturated(
        ODE(pushed, 2, WAVE.parameters, events=[raised]), "x", upper="rim", system=WAVE
    )
    stepping = Stepping((0.0, 2.0), "rk8vr", dt=0.05)
    trajectory = solve(problem, [0.0, 0.1], [1.5, 0.5], stepping)
    again = np.arcsin(0.2 / 1.5 + np.sin(1.0))
    assert modes_of(trajectory) == [
        (round(np.arcsin(1 / 3), 9), "x at upper"),
        (1.0, "free"),
        (round(again, 9), "x at upper"),
        (round(np.pi / 2, 9), "free"),
    ]
    gradient = adjoint(trajectory, Terminal(lambda t, u, p: u[0]))
    assert gradient.value == pytest.approx(0.7 + 1.5 * (np.sin(2.0) - 1.0), rel=1e-12)
    assert gradient.p == pytest.approx([np.sin(2.0) - 1.0, 1.4], rel=1e-10)


@pytest.mark.slow
def test_two_components_with_limits():
    """The second one is fed by what the first one is held at."""
    problem = saturated(
        saturated(PUSHED, "x", lower=-0.6, upper=0.5, system=WAVE), "y", upper="rim", system=WAVE
    )
    assert len(problem.modes) == 6
    trajectory = solve(problem, [0.0, 0.0], [1.0, 0.25], Stepping((0.0, 6.0), "rk4", dt=0.05))
    modes = [mode for _, mode in modes_of(trajectory)]
    assert modes[:4] == ["x at upper", "x at upper, y at upper", "y at upper", "free"]
    states = np.array([state.array for state in trajectory.states])
    assert states.max(axis=0) == pytest.approx([0.5, 0.25], abs=1e-12)
    assert states[:, 0].min() == pytest.approx(-0.6, abs=1e-12)
    control = Parameters({"push": Parameter(1.0), "rim": Parameter(0.25)}, [0.0, 0.0])
    cost = Terminal(lambda t, u, p: u[0] * u[1])
    functional = Reduced(problem, cost, Stepping((0.0, 6.0), "cn", dt=0.2), control)
    assert taylor(functional, epsilons=[2e-4 * 0.5**k for k in range(5)]).passed
    assert duality(functional.trajectory(functional.start()), cost) < 1e-12


@pytest.mark.slow
def test_limits_on_top_of_modes():
    """A heater that is slow to start: its power has limits, and is switched by hysteresis."""
    house = System(["power", "temperature"], ["most", "low"], modes=["on", "off"])

    def make(sign):
        return ODE(lambda t, u, p: np.array([sign + 0 * u[0], u[0] - u[1]]), 2, house.parameters)

    entries = [
        {"kind": "hysteresis", "component": "temperature", "upper": 0.8, "lower": "low"}
        | {"above": "off", "below": "on"},
        {"kind": "saturation", "component": "power", "lower": 0.0, "upper": "most"},
    ]
    problem = with_events(hybrid({"on": make(1.0), "off": make(-1.0)}, "on"), entries, house)
    stepping = Stepping((0.0, 6.0), "rk4", dt=0.05)
    trajectory = solve(problem, [0.0, 0.0], [1.2, 0.5], stepping)
    modes = [mode for _, mode in modes_of(trajectory)]
    assert modes[:3] == ["on, power at upper", "off", "off, power at lower"]
    assert "on" in modes[3:]
    assert max(state.array[0] for state in trajectory.states) == pytest.approx(1.2, abs=1e-12)
    control = Parameters({"most": Parameter(1.2), "low": Parameter(0.5)}, [0.0, 0.0])
    functional = Reduced(problem, Terminal(lambda t, u, p: u[0] * u[1]), stepping, control)
    assert taylor(functional, epsilons=[2e-4 * 0.5**k for k in range(5)]).passed


def test_limits_are_refused_where_they_would_be_wrong():
    mass = ODE(pushed, 2, WAVE.parameters, mass=np.eye(2))
    with pytest.raises(UnsupportedError, match=r"limits of x in Problem\(M u' = f"):
        saturated(mass, "x", upper=1.0, system=WAVE)
    jumps = ODE(pushed, 2, WAVE.parameters, breakpoints=[1.0])
    with pytest.raises(UnsupportedError, match="limits of unknown 0 in equations with breakpoints"):
        saturated(jumps, 0, upper=1.0)


def test_function_that_names_no_mode():
    modes = {"a": ODE(lambda t, u, p: -u, 1), "b": ODE(lambda t, u, p: u, 1)}
    problem = hybrid(modes, lambda t, u, p: "b" if u[0] > 0 else "c")
    stepping = Stepping((0.0, 1.0), "rk8vr", dt=0.1)
    grown = solve(problem, [1.0], None, stepping)
    assert grown.final.array[0] == pytest.approx(np.e, rel=1e-12)
    final = Terminal(lambda t, u, p: u[0])
    for engine in ("vectors", "tsadjoint"):
        gradient = adjoint(grown, final, engine=engine)
        assert gradient.u0[0] == pytest.approx(np.e, rel=1e-12)
    with pytest.raises(InputError, match=r"the mode at t = 0 is 'c'\n  expected: one of a, b"):
        solve(problem, [-1.0], None, stepping)


# ---- wrong options -------------------------------------------------------------------------------

THREE = System(["x", "y", "z"], ["c", "d"], modes=["on", "off"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: threshold(THREE, component="w", level=0.0), 'there is no unknown "w"'),
        (lambda: threshold(THREE, component=3, level=0.0), "no unknown 3\n.*from 0 to 2"),
        (lambda: threshold(THREE, component=True, level=0.0), "no unknown True"),
        (lambda: threshold(THREE, component=0, level="cc"), '"cc"\n.*"c", "d"\n.*try: "c"'),
        (lambda: threshold(THREE, component=0, level=np.inf), "inf is given as a number"),
        (lambda: threshold(THREE, component=0, level=0.0, direction="up"), "direction = 'up'"),
        (lambda: threshold(THREE, component=0, level=0, add={"x": 1, 0: 2}), "x appears twice"),
        (lambda: threshold(System(2), component=0, level="c"), "there are no parameters by name"),
        (lambda: impact(THREE, position="x", speed="x"), "position and speed are both x"),
        (lambda: impact(THREE, position=0, speed=1, restitution=-1), "restitution = -1"),
        (lambda: impact(THREE, position=0, speed=1, side="left"), "side = 'left'"),
        (lambda: relay(above="of"), 'there is no mode "of"(?s:.*)try: "off"'),
        (lambda: relay(above="on"), 'above and below are both "on"'),
        (lambda: relay(upper=0.1), "upper = 0.1 is not above lower = 0.2"),
        (lambda: relay(upper="c", lower="c"), 'upper and lower are both "c"'),
        (lambda: impulse(THREE, at=1.0), "nothing changes"),
        (lambda: impulse(THREE, at=(), add={"x": 1}), r"at = \(\)"),
        (lambda: impulse(THREE, at="e", add={"x": 1}), 'there is no parameter "e"'),
        (lambda: fault(THREE, start=1, end=2, mode="on", cleared="on"), "are both"),
        (lambda: fault(THREE, start=1, end=1.0, mode="on", cleared="off"), "end = 1 is not after"),
        (lambda: fault(THREE, start="c", end="c", mode="on", cleared="off"), 'both "c"'),
        (lambda: fault(THREE, start=1, end=2), 'there is no mode "fault"'),
        (lambda: saturated(PUSHED, 0), "lower and upper are missing"),
        (lambda: saturated(PUSHED, 0, lower=2, upper=1), "lower = 2 is above upper = 1"),
        (lambda: saturated(PUSHED, 0, lower="rim", upper="rim"), "lower and upper are both 'rim'"),
    ],
)
def test_wrong_options_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def relay(**options):
    values = {"component": "x", "upper": 0.5, "lower": 0.2, "above": "off", "below": "on"}
    return hysteresis(THREE, **values | options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unknowns": 0}, "unknowns = 0"),
        ({"unknowns": []}, r"unknowns = \[\]"),
        ({"unknowns": "xy"}, "unknowns = 'xy'"),
        ({"unknowns": None}, "unknowns = None"),
        ({"unknowns": 1, "parameters": 2.5}, r"parameters = 2\.5"),
        ({"unknowns": ["x", "x"]}, "names that differ"),
        ({"unknowns": 1, "parameters": [1]}, r"parameters = \[1\]"),
        ({"unknowns": 1, "modes": ["a", "a"]}, "modes = "),
        ({"unknowns": 1, "style": "jax"}, "style = 'jax'"),
    ],
)
def test_wrong_systems_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        System(**arguments)


def test_names_of_a_problem():
    assert system_of(PUSHED) == System(2, ["push", "rim"])
    assert system_of(PUSHED, ["a", "b"]).index("b") == 1
    with pytest.raises(InputError, match=r"3 names of unknowns\n  expected: 2"):
        system_of(PUSHED, ["a", "b", "c"])


# ---- PETSc style, on any number of ranks ---------------------------------------------------------


def chain(comm, style):
    """Return u_i' = p0 cos(t + i) - p1 u_i for seven unknowns, distributed or not."""
    n, names = 7, ["push", "drag", "level", "factor"]
    phases = np.arange(n)
    if style == "numpy":
        return ODE(lambda t, u, p: p[0] * np.cos(t + phases) - p[1] * u, n, names)
    state = PETSc.Vec().createMPI(n, comm=comm)
    first, last = state.getOwnershipRange()
    own = phases[first:last]

    def rhs(t, u, p, out):
        out.getArray()[...] = p[0] * np.cos(t + own) - p[1] * u.getArray(readonly=True)

    def rhs_t(t, u, p, out):
        out.getArray()[...] = -p[0] * np.sin(t + own)

    def jacobian(t, u, p, out):
        for i in range(first, last):
            out.setValue(i, i, -p[1])
        out.assemble()

    def apply(t, u, p, v, out):
        out.getArray()[...] = -p[1] * v.getArray(readonly=True)

    def jacobian_p(t, u, p, out):
        out.zeroEntries()
        out.getDenseArray()[:, 0] = np.cos(t + own)
        out.getDenseArray()[:, 1] = -u.getArray(readonly=True)
        out.assemble()

    def total(values):
        return comm.tompi4py().allreduce(float(values))

    def hessian_product(t, u, p, w, du, dp, out):
        out.getArray()[...] = -dp[1] * w.getArray(readonly=True)
        return np.array([0.0, -w.dot(du), 0.0, 0.0])

    def hessian_t(t, u, p, w, out):
        out.zeroEntries()
        weights = w.getArray(readonly=True)
        by_push = -total(weights @ np.sin(t + own))
        return np.array([by_push, 0.0, 0.0, 0.0]), -p[0] * total(weights @ np.cos(t + own))

    value = Products(apply, apply) if style == "products" else jacobian
    diagonal = PETSc.Mat().createAIJ((state.getSizes(), state.getSizes()), nnz=1, comm=comm)
    diagonal.setUp()
    template = {} if style == "products" else {"jacobian_matrix": diagonal}
    return ODE(
        rhs,
        state=state,
        parameters=names,
        jacobian=value,
        jacobian_p=jacobian_p,
        rhs_t=rhs_t,
        hessian_product=hessian_product,
        hessian_t=hessian_t,
        **template,
    )


ENTRIES = [
    {"kind": "threshold", "component": 4, "level": "level", "direction": "rising"}
    | {"multiply": {"2": "factor", "4": 0.5, "6": -0.5}, "add": {"0": 0.3, "2": "level"}},
    {"kind": "impulse", "at": 0.55, "multiply": {"3": "factor"}, "name": "kick"},
    {"kind": "saturation", "component": 1, "lower": "level"},
]


SOLVERS = {
    "petsc": {"ksp_type": "preonly", "pc_type": "redundant"},
    "products": {"ksp_rtol": 1e-14, "pc_type": "none"},
}


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("style", "method"), [("petsc", "rk4"), ("petsc", "cn"), ("products", "cn")]
)
def test_petsc_style_is_numpy_style_on_any_number_of_ranks(style, method):
    answers = []
    for value in (style, "numpy"):
        free = chain(PETSc.COMM_WORLD, value)
        problem = with_events(free, ENTRIES, system_of(free))
        solver = SOLVERS.get(value, {})
        options = {"snes_rtol": 1e-14, "snes_stol": 1e-15, **solver} if method == "cn" else {}
        u0 = problem.state.duplicate()
        u0.setArray(0.05 * np.cos(np.arange(*u0.getOwnershipRange())))
        p = [1.1, 0.3, -0.2, 0.8]
        trajectory = solve(problem, u0, p, Stepping((0.0, 4.0), method, dt=0.2, options=options))
        answers.append((trajectory, problem))
    (ours, problem), (alone, _) = answers
    assert [c.name for c in ours.crossings] == [c.name for c in alone.crossings]
    assert {c.name for c in ours.crossings} == {
        "threshold",
        "kick",
        "unknown 1 reaches lower",
        "unknown 1 leaves lower",
    }
    np.testing.assert_allclose(
        [c.t for c in ours.crossings], [c.t for c in alone.crossings], rtol=1e-11
    )

    def second(t, u, p, du, dp, out):
        du.copy(out)
        return np.zeros(4)

    norm = Terminal(
        lambda t, u, p: 0.5 * u.dot(u),
        lambda t, u, p, out: u.copy(out),
        "independent",
        second,
        "autonomous",
    )
    gradients = [
        adjoint(ours, norm),
        adjoint(alone, Terminal(lambda t, u, p: 0.5 * u @ u)),
    ]
    assert gradients[0].value == pytest.approx(gradients[1].value, rel=1e-10)
    np.testing.assert_allclose(gradients[0].p, gradients[1].p, rtol=1e-9)
    by_u0 = gradients[0].gather()[0]
    np.testing.assert_allclose(by_u0, gradients[1].u0, rtol=1e-9, atol=1e-12)
    assert duality(ours, norm) < 1e-12
    du0, dp = 0.3 * np.sin(np.arange(7)), np.array([0.2, -0.5, 0.4, 0.7])
    mine = problem.state.duplicate()
    mine.setArray(du0[slice(*mine.getOwnershipRange())])
    bent = [
        hessian_product(ours, norm, mine, dp),
        hessian_product(alone, Terminal(lambda t, u, p: 0.5 * u @ u), du0, dp),
    ]
    np.testing.assert_allclose(bent[0].gather()[0], bent[1].u0, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(bent[0].p, bent[1].p, rtol=1e-8, atol=1e-10)


@pytest.mark.mpi
def test_field_parameters_keep_out_of_events(comm):
    """Solve u_i' = q_i cos t: u_0 is doubled where u_4 reaches 0.5, u_3 has the limit 0.3."""
    state = PETSc.Vec().createMPI(5, comm=PETSc.COMM_WORLD)

    def times(factor):
        def apply(t, u, p, v, out):
            v.copy(out)
            out.scale(factor(t))

        return apply

    def rhs(t, u, p, out):
        p.copy(out)
        out.scale(np.cos(t))

    def rhs_t(t, u, p, out):
        p.copy(out)
        out.scale(-np.sin(t))

    def nothing(*arguments):
        for out in arguments[-2:]:
            out.zeroEntries()

    def hessian_t(t, u, p, w, out_u, out_p):
        out_u.zeroEntries()
        w.copy(out_p)
        out_p.scale(-np.sin(t))
        return -np.cos(t) * w.dot(p)

    free = ODE(
        rhs,
        state=state,
        parameters=state,
        jacobian=Products(times(lambda t: 0.0), times(lambda t: 0.0)),
        jacobian_p=Products(times(np.cos), times(np.cos)),
        rhs_t=rhs_t,
        hessian_product=nothing,
        hessian_t=hessian_t,
    )
    entries = [
        {"kind": "threshold", "component": 4, "level": 0.5, "direction": "rising"}
        | {"multiply": {"0": 2.0}, "add": {"4": 1.0}},
        {"kind": "saturation", "component": 3, "upper": 0.3},
    ]
    problem = with_events(free, entries, system_of(free))
    q, dq = state.duplicate(), state.duplicate()
    q.setArray(1.0 + np.arange(*q.getOwnershipRange()))
    dq.setArray(0.1 * np.array([1.0, -2.0, 3.0, -1.0, 2.0])[slice(*q.getOwnershipRange())])
    trajectory = solve(problem, state, q, Stepping((0.0, 2.0), "rk8vr", dt=0.1))
    expected = [np.arcsin(0.075), np.arcsin(0.1), np.pi / 2]
    assert [crossing.t for crossing in trajectory.crossings] == pytest.approx(expected, rel=1e-11)

    def total(t, u, p):
        return comm.allreduce(sum(u.getArray(readonly=True)[k] for k in own))

    first, last = q.getOwnershipRange()
    own = [k - first for k in (0, 3) if first <= k < last]

    def total_u(t, u, p, out):
        out.zeroEntries()
        out.getArray()[own] = 1.0

    cost = Terminal(total, total_u, "independent", nothing, "autonomous")
    # u_0 + u_3 = q_0 (sin T + 0.5 / q_4) + 0.3 + q_3 (sin T - 1)
    sine = np.sin(2.0)
    gradient = adjoint(trajectory, cost)
    assert gradient.value == pytest.approx(sine + 0.1 + 0.3 + 4.0 * (sine - 1.0), rel=1e-11)
    slopes = [sine + 0.1, 0.0, 0.0, sine - 1.0, -0.02]
    np.testing.assert_allclose(gradient.gather()[1], slopes, rtol=0, atol=1e-11)
    along = tangent(trajectory, dp=dq).derivative(cost)
    assert along == pytest.approx(0.1 * (sine + 0.1) - 0.1 * (sine - 1.0) - 0.2 * 0.02, rel=1e-10)
    bent = hessian_product(trajectory, cost, dp=dq).gather()[1]
    expected = [-0.02 * 0.2, 0.0, 0.0, 0.0, -0.02 * 0.1 + 0.2 / 125.0]
    np.testing.assert_allclose(bent, expected, rtol=0, atol=1e-11)
    with pytest.raises(InputError, match='there is no parameter "q"'):
        threshold(system_of(free), component=0, level="q")
