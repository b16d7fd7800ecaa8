"""Runs through events: where they are found, what happens at the ends, and what they cost."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.derivatives import evaluate
from daeosens.errors import GrazingError
from daeosens.timestepping.events import event_loop as crossings_module
from daeosens.verify import duality
from tests.problem.test_event import BALL, PROBLEM, exact_gradient, fall, flight, rebound, tight


def times(trajectory):
    return [crossing.t for crossing in trajectory.crossings]


def ball(u0, t_end, method="rk4", dt=0.05, **keywords):
    return ds.solve(PROBLEM, u0, [10.0, 0.8], ds.Stepping((0.0, t_end), method, dt=dt, **keywords))


# ---- several crossings in one step ---------------------------------------------------------------


def dip(form, bottom, half_width, **keywords):
    """Return u = (t - bottom)^2 - half_width^2, and its start."""
    event = ds.Event(lambda t, u, p: u[0], name="dip", **keywords)
    start = [bottom**2 - half_width**2]
    if form == "residual":
        residual = lambda t, u, udot, p: udot - 2 * (t - bottom)  # noqa: E731
        return ds.DAE(residual, 1, events=[event]), start
    mass = np.array([[2.0]]) if form == "mass" else None
    scale = 1.0 if mass is None else 2.0
    rhs = lambda t, u, p: 2 * scale * (t - bottom) + 0 * u  # noqa: E731
    return ds.ODE(rhs, 1, mass=mass, events=[event]), start


@pytest.mark.parametrize(("direction", "which"), [(0, (-1, 1)), (-1, (-1,)), (1, (1,))])
@pytest.mark.parametrize(
    ("form", "method"),
    [
        *(("rhs", method) for method in ("rk2a", "rk4", "rk5dp", "cn", "midpoint")),
        *((form, method) for form in ("mass", "residual") for method in ("cn", "midpoint")),
    ],
)
def test_two_crossings_within_one_step_are_found(form, method, direction, which):
    """The step is 0.1; the surface is crossed 1e-2 or 1e-3 before and after the deepest point."""
    for bottom in (0.51, 0.55, 0.598):
        for half_width in (1e-2, 1e-3):
            problem, start = dip(form, bottom, half_width, direction=direction)
            trajectory = ds.solve(problem, start, None, ds.Stepping((0.0, 1.0), method, dt=0.1))
            expected = [bottom + sign * half_width for sign in which]
            np.testing.assert_allclose(times(trajectory), expected, rtol=0, atol=1e-11)


def test_two_crossings_within_the_first_step():
    problem, start = dip("rhs", 0.05, 0.01)
    trajectory = ds.solve(problem, start, None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    np.testing.assert_allclose(times(trajectory), [0.04, 0.06], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_two_crossings_within_one_step_are_refused_where_asked(method):
    message = (
        r'event "dip" is crossed 2 times within the step from t = 0.5 to 0.6\n'
        r'.*\n  try: smaller steps, or Event\(\.\.\., twice="resolve"\)'
    )
    for direction in (-1, 0, 1):
        problem, start = dip("rhs", 0.55, 0.01, direction=direction, twice="refuse")
        with pytest.raises(ds.SolveError, match=message):
            ds.solve(problem, start, None, ds.Stepping((0.0, 1.0), method, dt=0.1))
    fine = ds.Stepping((0.0, 1.0), method, dt=1 / 96)
    problem, start = dip("rhs", 0.55, 0.01, twice="refuse")
    np.testing.assert_allclose(
        times(ds.solve(problem, start, None, fine)), [0.54, 0.56], rtol=0, atol=1e-12
    )


def test_surface_that_is_nearly_touched_is_no_event():
    """The distance at the deepest point is 1e-9 of the way that is covered."""
    problem, start = dip("rhs", 0.55, 0.0, twice="refuse")
    for method in ("rk4", "cn"):
        trajectory = ds.solve(
            problem, [start[0] + 1e-9], None, ds.Stepping((0.0, 1.0), method, dt=0.1)
        )
        assert trajectory.crossings == ()


@pytest.mark.parametrize(
    ("direction", "expected"), [(0, [0.52, 0.54, 0.57]), (-1, [0.52, 0.57]), (1, [0.54])]
)
def test_three_crossings_within_one_step(direction, expected):
    """The signs at both ends differ, as after a single crossing."""
    roots = np.polynomial.Polynomial.fromroots([0.52, 0.54, 0.57])
    slope = roots.deriv()
    event = ds.Event(lambda t, u, p: u[0], direction=direction, name="wave")
    problem = ds.ODE(lambda t, u, p: -slope(t) + 0 * u, 1, events=[event])
    trajectory = ds.solve(problem, [-roots(0.0)], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    np.testing.assert_allclose(times(trajectory), expected, rtol=0, atol=1e-11)


def test_shallow_dips_of_a_wave_are_all_found(rng):
    """Cos(6 t + phase) + a with steps of a twelfth of a period; some dips take 1e-3 of a step."""
    value = 0
    for _ in range(25):
        a, phase = 1 - 10 ** rng.uniform(-7, -1), rng.uniform(0, 2 * np.pi)
        event = ds.Event(lambda t, u, p, a=a: u[0] + a, name="dip")
        problem = ds.ODE(lambda t, u, p: np.array([6 * u[1], -6 * u[0]]), 2, events=[event])
        stepping = ds.Stepping((0.0, 3.0), "rk8vr", dt=np.pi / 36)
        start = [np.cos(phase), -np.sin(phase)]
        reach = np.arccos(a)
        bottoms = np.pi * (2 * np.arange(-1, 8) + 1)
        expected = (np.concatenate([bottoms - reach, bottoms + reach]) - phase) / 6
        expected = np.sort(expected[(expected > 0) & (expected < 3)])
        np.testing.assert_allclose(
            times(ds.solve(problem, start, None, stepping)), expected, rtol=0, atol=1e-7 / reach
        )
        value += len(expected)
    assert value > 100


@pytest.mark.parametrize("method", ["rk4", "cn", "midpoint"])
def test_gradient_through_two_crossings_within_one_step(method):
    """Between the crossings a clock runs faster: w(1) = 1 + 2 sqrt(d) p for a dip of depth d."""
    inside = ds.Event(lambda t, u, p: u[0], direction=-1, mode="in", within=["out"], name="enter")
    outside = ds.Event(lambda t, u, p: u[0], direction=1, mode="out", within=["in"], name="leave")

    def mode(speed):
        return ds.ODE(
            lambda t, u, p: np.array([2 * (t - 0.55) + 0 * u[0], 1 + speed * p[0]]), 2, ["faster"]
        )

    problem = ds.hybrid({"out": mode(0.0), "in": mode(1.0)}, "out", [inside, outside])
    depth, faster = 2.5e-4, 3.0
    start = [0.55**2 - depth, 0.0]
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.1, options=tight(method))
    trajectory = ds.solve(problem, start, [faster], stepping)
    assert [crossing.name for crossing in trajectory.crossings] == ["enter", "leave"]
    assert trajectory.final.array[1] == pytest.approx(1 + 2 * np.sqrt(depth) * faster, rel=1e-12)
    cost = ds.Terminal(lambda t, u, p: u[1])
    gradient = ds.adjoint(trajectory, cost)
    assert gradient.p[0] == pytest.approx(2 * np.sqrt(depth), rel=1e-10)
    assert gradient.u0[0] == pytest.approx(-faster / np.sqrt(depth), rel=1e-10)
    assert duality(trajectory, cost) < 1e-12


# ---- the start, the end, and short flights -------------------------------------------------------


@pytest.mark.parametrize("method", ["rk4", "cn"])
@pytest.mark.parametrize("height", [0.0, 1e-17, -1e-17, 1e-13])
def test_start_on_the_surface_moving_in_is_an_event(method, height):
    """Thrown at the floor from there: it happens at once, and nothing falls through."""
    trajectory = ball([height, -1.0], 0.5, method)
    flights = 0.16 * np.cumsum(0.8 ** np.arange(4))
    np.testing.assert_allclose(times(trajectory)[1:], flights, rtol=0, atol=1e-12)
    assert times(trajectory)[0] == pytest.approx(max(height, 0.0), rel=1e-10, abs=1e-16)
    assert min(state.array[0] for state in trajectory.states) > -1e-15


def test_start_below_the_surface_is_no_event():
    assert ball([-1e-13, -1.0], 0.5).crossings == ()


@pytest.mark.parametrize("method", ["rk4", "cn"])
@pytest.mark.parametrize("height", [0.0, 1e-13])
def test_start_on_the_surface_moving_out_is_no_event(method, height):
    trajectory = ball([height, 1.0], 0.5, method)
    np.testing.assert_allclose(times(trajectory), [0.2, 0.36, 0.488], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_derivatives_of_an_event_at_the_start(method):
    """Of a start just above: the first impact takes place, at the height over the speed."""
    trajectory = ball([0.0, -1.0], 0.1, method)
    assert times(trajectory) == [0.0]

    def end(x):
        height, speed, g, e = x
        after = e * np.sqrt(speed * speed + 2 * g * height)
        rest = 0.1 - (speed + np.sqrt(speed * speed + 2 * g * height)) / g
        return np.array([after * rest - g * rest**2 / 2, after - g * rest])

    point = np.array([0.0, -1.0, 10.0, 0.8])
    slopes = np.array([end(point + 1e-30j * unit).imag / 1e-30 for unit in np.eye(4)]).T
    matrices = ds.sensitivities(trajectory)
    np.testing.assert_allclose(matrices.u0, slopes[:, :2], rtol=1e-12)
    np.testing.assert_allclose(matrices.p, slopes[:, 2:], rtol=1e-12, atol=1e-15)


def test_start_on_the_surface_without_a_direction_is_no_event():
    event = ds.Event(lambda t, u, p: u[0] - 1, lambda t, u, p: u + 1, name="level")
    problem = ds.ODE(lambda t, u, p: -u, 1, events=[event])
    trajectory = ds.solve(problem, [1.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    assert trajectory.crossings == ()


def falling(power, start):
    """Return u' = -power t^(power - 1), which falls from a surface that it touches at t = 0."""
    event = ds.Event(lambda t, u, p: u[0], lambda t, u, p: u + 1, direction=-1, name="floor")
    problem = ds.ODE(lambda t, u, p: -power * t ** (power - 1) + 0 * u, 1, events=[event])
    return ds.solve(problem, [start], None, ds.Stepping((0.0, 1.5), "rk4", dt=0.1))


@pytest.mark.parametrize("power", [2, 3])
def test_start_that_touches_the_surface_and_falls_is_an_event(power):
    trajectory = falling(power, 0.0)
    expected = np.arange(power + 1) ** (1 / power)
    np.testing.assert_allclose(times(trajectory), expected, rtol=0, atol=1e-12)
    assert trajectory.final.array[0] == pytest.approx(power + 1 - 1.5**power, rel=1e-12)
    with pytest.raises(GrazingError, match='event "floor" at t = 0 is grazed'):
        ds.sensitivities(trajectory)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("level", np.linspace(0.05, 0.6, 7))
def test_limit_is_left_where_the_rate_changes_its_sign(make, level):
    """Rounding says whether the rate there is a little above or below zero: it means neither."""

    def rate(t, p):
        return np.sin(t + 3.0) - p[0]

    moving = make(lambda t, u, p: rate(t, p) + 0.0 * u, 1, ["level"])
    held = make(lambda t, u, p: 0.0 * u, 1, ["level"])
    to_zero = lambda t, u, p: 0.0 * u  # noqa: E731
    events = [
        ds.Event(
            lambda t, u, p: u[0], to_zero, direction=-1, mode="held", within=["moving"], name="gone"
        ),
        ds.Event(
            lambda t, u, p: rate(t, p), direction=1, mode="moving", within=["held"], name="back"
        ),
    ]
    if make is ds.trace:
        events = [moving.event(event) for event in events]
    problem = ds.hybrid({"moving": moving, "held": held}, start="moving", events=events)
    trajectory = ds.solve(problem, [0.3], [level], ds.Stepping((0.0, 5.0), "rk6vr", rtol=1e-8))
    left = 2 * np.pi - 3.0 + np.arcsin(level)
    assert [crossing.name for crossing in trajectory.crossings] == ["gone", "back"]
    assert times(trajectory)[1] == pytest.approx(left, rel=1e-12)
    end = np.cos(left + 3.0) - np.cos(8.0) - level * (5.0 - left)
    gradient = ds.adjoint(trajectory, ds.Terminal(lambda t, u, p: u[0]))
    assert gradient.value == pytest.approx(end, rel=1e-6)
    assert gradient.p[0] == pytest.approx(left - 5.0, rel=1e-6)


def test_state_that_rests_on_the_surface_until_it_is_pulled_down():
    event = ds.Event(lambda t, u, p: u[0], lambda t, u, p: u + 1, direction=-1, name="floor")
    pull = lambda t, u, p: np.array([0.0 if t < 0.5 else -1.0])  # noqa: E731
    problem = ds.ODE(pull, 1, events=[event], breakpoints=[0.5])
    trajectory = ds.solve(problem, [0.0], None, ds.Stepping((0.0, 1.2), "rk4", dt=0.2))
    np.testing.assert_allclose(times(trajectory), [0.5], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_implicit_event_at_the_last_time_happens(method):
    """The impact, its time in closed form, to the last digit and its neighbours."""
    impact = (BALL[1] + np.sqrt(BALL[1] ** 2 + 2 * BALL[2] * BALL[0])) / BALL[2]
    for t_end in (np.nextafter(impact, 0), impact, np.nextafter(impact, 2)):
        trajectory = ds.solve(
            PROBLEM, BALL[:2], BALL[2:], ds.Stepping((0.0, t_end), method, dt=0.4)
        )
        assert times(trajectory) == [pytest.approx(impact, rel=1e-14)]
        speed = evaluate(trajectory, ds.Terminal(lambda t, u, p: u[1]))
        assert speed == pytest.approx(0.8 * np.sqrt(100.01), rel=1e-13)
    before = ds.Stepping((0.0, impact - 1e-12), method, dt=0.4)
    assert ds.solve(PROBLEM, BALL[:2], BALL[2:], before).crossings == ()


@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_impact_at_the_end_of_a_step(method):
    """From 5 at rest, g = 10: at t = 1, where a step ends too."""
    trajectory = ball([5.0, 0.0], 1.9, method, dt=0.1)
    assert times(trajectory) == [pytest.approx(1.0, rel=1e-14)]
    expected = exact_gradient(lambda x: flight(x, 1.9)[0])
    gradient = ds.adjoint(trajectory, ds.Terminal(lambda t, u, p: u[0]))
    x = np.array([5.0, 0.0, 10.0, 0.8])
    expected = [flight(x + 1e-30j * unit, 1.9)[0].imag / 1e-30 for unit in np.eye(4)]
    np.testing.assert_allclose([*gradient.u0, *gradient.p], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("method", ["rk3bs", "rk5dp", "cn"])
def test_twenty_bounces_by_adaptive_steps(method):
    """After a bounce the flights become shorter than any step that was taken before."""
    tolerances = {"rtol": 1e-5, "atol": 1e-5}
    stepping = ds.Stepping((0.0, 8.885), method, **tolerances)
    trajectory = ds.solve(PROBLEM, BALL[:2], BALL[2:], stepping)
    _, _, expected = flight(BALL, 8.885)
    np.testing.assert_allclose(times(trajectory), expected, rtol=1e-9)
    assert min(state.array[0] for state in trajectory.states) > -1e-12


def test_parameter_that_is_a_time_may_be_the_first_or_the_last_one():
    event = ds.Event("at", lambda t, u, p: 2 * u, name="double")
    problem = ds.ODE(lambda t, u, p: 0 * u, 1, ["at"], events=[event])
    for at in (0.0, 1.0):
        trajectory = ds.solve(problem, [1.0], [at], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
        assert times(trajectory) == [pytest.approx(at, abs=1e-15)]
        assert trajectory.final.array[0] == 2.0


# ---- explicit events -----------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0.0, 0.35, 1.0])
def test_explicit_events_at_one_time_happen_in_the_order_of_the_list(t):
    double = ds.Event(t, lambda t, u, p: 2 * u, name="double")
    add = ds.Event(t, lambda t, u, p: u + p[0], name="add")
    for events, value, slope in (((double, add), 5.0, 1.0), ((add, double), 8.0, 2.0)):
        problem = ds.ODE(lambda t, u, p: 0 * u, 1, ["amount"], events=events)
        trajectory = ds.solve(problem, [1.0], [3.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
        assert [crossing.name for crossing in trajectory.crossings] == [
            event.name for event in events
        ]
        assert trajectory.final.array[0] == pytest.approx(value, rel=1e-15)
        matrices = ds.sensitivities(trajectory)
        np.testing.assert_allclose([matrices.u0, matrices.p], [[[2.0]], [[slope]]], rtol=1e-15)


def test_explicit_and_implicit_event_at_one_instant_are_refused():
    """U = t reaches 0.5 where the other event takes place."""
    level = ds.Event(lambda t, u, p: u[0] - 0.5, lambda t, u, p: u + 1, name="level")
    fixed = ds.Event(0.5, lambda t, u, p: 2 * u, name="fixed")
    problem = ds.ODE(lambda t, u, p: 0 * u + 1, 1, events=[level, fixed])
    with pytest.raises(ds.SolveError, match=r'"level" and "fixed" at one instant, t = 0\.5'):
        ds.solve(problem, [0.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.25))


def test_times_that_equal_an_event_to_rounding_are_its_time():
    """3 * 0.1 is not 0.3: no step of one unit in the last place lies between them."""
    problem = ds.ODE(
        lambda t, u, p: -u, 1, events=[ds.Event(0.3, lambda t, u, p: 2 * u, name="jump")]
    )
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    trajectory = ds.solve(problem, [1.0], None, stepping, [3 * 0.1])
    sizes = trajectory.step_sizes
    assert sizes[sizes > 0].min() > 0.09
    ratio = trajectory.at(3 * 0.1, "after").array[0] / trajectory.at(3 * 0.1, "before").array[0]
    assert ratio == pytest.approx(2.0, rel=1e-15)


def test_observation_just_after_an_event_sees_the_state_there():
    """However near, and at the right time: a short step leads to it."""
    event = ds.Event(lambda t, u, p: u[0] - 0.5, lambda t, u, p: u + 1, name="level")
    problem = ds.ODE(lambda t, u, p: 0 * u + 1, 1, events=[event])
    for distance in (1e-12, 1e-8, 1e-4):
        t = 0.5 + distance
        trajectory = ds.solve(problem, [0.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.3), [t])
        assert trajectory.at(t).array[0] == pytest.approx(1 + t, rel=1e-15)


# ---- steps ---------------------------------------------------------------------------------------


def test_fixed_steps_return_to_their_grid():
    trajectory = ball([4.9, 0.0], 3.0, dt=0.25)
    grid = 0.25 * np.arange(13)
    assert len(trajectory.crossings) == 2
    regular = np.setdiff1d(np.round(trajectory.times, 12), np.round(times(trajectory), 12))
    np.testing.assert_allclose(regular, grid, rtol=0, atol=1e-12)


def nonlinear(threshold):
    event = ds.Event(
        lambda t, u, p: u[0] - p[0], lambda t, u, p: 0.5 * u, direction=1, name="threshold"
    )
    problem = ds.ODE(lambda t, u, p: 2 - u**2 + np.sin(3 * t), 1, ["level"], events=[event])
    return ds.solve(problem, [0.0], [threshold], ds.Stepping((0.0, 2.0), "rk2a", dt=0.2))


def test_costs_are_continuous_where_an_event_passes_the_end_of_a_step():
    """A step cut short and a rest left out would show as a jump of the local error's size."""
    at_grid = ds.solve(
        ds.ODE(lambda t, u, p: 2 - u**2 + np.sin(3 * t), 1),
        [0.0],
        None,
        ds.Stepping((0.0, 2.0), "rk2a", dt=0.2),
    ).at(0.4)
    level = float(at_grid.array[0])
    for distance in (1e-3, 1e-5, 1e-9, 1e-12):
        below, above = (nonlinear(level + sign * distance).final.array[0] for sign in (-1.0, 1.0))
        assert abs(above - below) < 20 * distance


@pytest.mark.parametrize(
    ("method", "keywords"),
    [
        *((method, {"dt": 0.07}) for method in ("rk4", "rk5dp", "cn", "midpoint")),
        *((method, {"rtol": 1e-6, "atol": 1e-8}) for method in ("rk3bs", "rk5dp", "rk6vr")),
        *((method, {"rtol": 1e-5, "atol": 1e-6}) for method in ("beuler", "cn", "theta:0.6")),
    ],
)
def test_one_ts_for_all_pieces_gives_the_numbers_of_a_new_one_for_each(
    method, keywords, monkeypatch
):
    """Bit for bit: neither rates nor error estimates nor step sizes leak from piece to piece."""
    swing = lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0]) + np.cos(2 * t)])  # noqa: E731
    stiff = lambda t, u, p: np.array([u[1], -9 * p[0] * u[0] - u[1]])  # noqa: E731
    events = [
        ds.Event(lambda t, u, p: u[0], mode="stiff", direction=-1, within=["swing"], name="down"),
        ds.Event(lambda t, u, p: u[0], mode="swing", direction=1, within=["stiff"], name="up"),
        ds.Event(1.3, lambda t, u, p: 1.5 * u, name="kick"),
    ]
    modes = {"swing": ds.ODE(swing, 2, ["k"]), "stiff": ds.ODE(stiff, 2, ["k"])}
    problem = ds.hybrid(modes, "swing", events)
    arguments = (problem, [0.5, 1.0], [2.0], ds.Stepping((0.0, 10.0), method, **keywords))
    run = ds.solve(*arguments, t_eval=[0.4, 2.0, 4.1])
    flow = crossings_module._EventLoop._detector

    def anew(passage):
        passage._detectors.clear()
        return flow(passage)

    made = []
    maker = crossings_module.made_runner
    monkeypatch.setattr(crossings_module._EventLoop, "_detector", anew)
    monkeypatch.setattr(crossings_module, "made_runner", lambda *a: made.append(a) or maker(*a))
    renewed = ds.solve(*arguments, t_eval=[0.4, 2.0, 4.1])
    assert len(renewed.crossings) >= 5
    assert len(made) > len(renewed.crossings)
    np.testing.assert_array_equal(run.times, renewed.times)
    np.testing.assert_array_equal(run.u, renewed.u)


def test_limit_of_steps_is_that_of_the_whole_run():
    stepping = ds.Stepping((0.0, 40.0), "rk4", dt=0.05, max_steps=500)
    with pytest.raises(ds.SolveError, match=r"after 500 steps(?s:.*)max_steps > 500"):
        ds.solve(PROBLEM, [4.9, 0.0], [9.81, 1.0], stepping)


# ---- cost ----------------------------------------------------------------------------------------


def counted(events):
    """Return an elastic ball with or without a floor, and how often its rhs was evaluated."""
    calls = []

    def rhs(t, u, p):
        calls.append(t)
        return fall(t, u, p)

    floor = 0.0 if events == "near" else -1e9
    bounce = ds.Event(lambda t, u, p: u[0] - floor, rebound, direction=-1, name="bounce")
    problem = ds.ODE(rhs, 2, ["g", "e"], events=[] if events == "none" else [bounce])
    return problem, calls


@pytest.mark.parametrize("method", ["rk2a", "rk4", "rk8vr", "cn"])
def test_an_event_costs_a_few_steps_in_evaluations(method):
    """A surface that is far away costs none; an event less than six steps."""
    stepping = ds.Stepping((0.0, 40.0), method, dt=0.05)
    number = {}
    for events in ("none", "far", "near"):
        problem, calls = counted(events)
        trajectory = ds.solve(problem, [4.9, 0.0], [9.81, 1.0], stepping)
        number[events] = len(calls)
    assert len(trajectory.crossings) == 20
    step = number["none"] / 800
    assert number["far"] - number["none"] < 5
    assert (number["near"] - number["far"]) / 20 < 6 * step


def test_location_ends_where_newton_leaves_noise():
    """Implicit steps that are solved loosely give values that do not fall to rounding."""
    event = ds.Event(lambda t, u, p: u[0] - 0.3, name="level")
    calls = []

    def rhs(t, u, p):
        calls.append(t)
        return -np.sinh(3 * u)

    problem = ds.ODE(rhs, 1, events=[event])
    loose = {"snes_rtol": 1e-6, "snes_stol": 1e-6}
    stepping = ds.Stepping((0.0, 1.0), "cn", dt=0.01, options=loose)
    trajectory = ds.solve(problem, [1.0], None, stepping)
    exact = np.log(np.tanh(1.5) / np.tanh(0.45)) / 3
    assert times(trajectory) == [pytest.approx(exact, rel=3e-3)]
    assert len(calls) < 700


# ---- refusals ------------------------------------------------------------------------------------


def test_wrong_answer_to_double_crossings_is_named():
    with pytest.raises(ds.InputError, match="event \"event\": twice = 'ignore'"):
        ds.Event(lambda t, u, p: u[0], twice="ignore")


def test_first_steps_after_events_learn_from_refusals():
    """A switch excites what is stiff, so that the size of the steps before it is too bold."""
    n = 50
    laplacian = n**2 * (np.eye(n, k=1) + np.eye(n, k=-1) - 2.0 * np.eye(n))
    modes = {
        mode: ds.ODE(lambda t, u, p, on=on: laplacian @ u + on * 20.0, n)
        for mode, on in (("on", 1.0), ("off", 0.0))
    }
    events = [
        ds.Event(lambda t, u, p: u[n // 2] - 1.03, direction=1, mode="off", within=["on"]),
        ds.Event(lambda t, u, p: u[n // 2] - 1.0, direction=-1, mode="on", within=["off"]),
    ]
    stepping = ds.Stepping((0.0, 0.2), "rk5dp", rtol=1e-6, atol=1e-6, max_step=2e-4)
    run = ds.solve(ds.hybrid(modes, "on", events), np.zeros(n), [], stepping)
    assert len(run.crossings) > 40
    assert 1 <= run.effort.rejected < len(run.crossings) / 2


# ---- events that move, at the first and the last time -------------------------------------------


def dosed(kind, method, lag, times=(), **keywords):
    """Run a decay over [0, 4] with a dose at a parameter's time, in either of its ways."""
    when, direction = ("lag", 0) if kind == "named" else ((lambda t, u, p: t - p[1]), 1)
    dose = ds.Event(
        when, lambda t, u, p: u * u / 3 + 2 * p[0] + t, direction=direction, name="dose", **keywords
    )
    problem = ds.ODE(
        lambda t, u, p: -p[0] * u * (1 + 0.3 * np.sin(t)), 1, ["rate", "lag"], events=[dose]
    )
    return ds.solve(problem, [1.0], [0.5, lag], ds.Stepping((0.0, 4.0), method, dt=0.1), times)


AT_END = ds.Terminal(lambda t, u, p: u[0] ** 2 * (1 + 0.1 * t * p[1]))
MEASURED = ds.LeastSquares(
    [1.0, 4.0], [[0.3], [0.5]], observe=lambda t, u, p: u[:1] * (1 + 0.2 * t + p[1])
)
ALONG = np.array([0.3, 0.2, 1.0])


def slopes(run, cost):
    """Return the gradient in (u0, p) and the Hessian's product with a direction."""
    gradient = ds.adjoint(run, cost)
    product = ds.hessian_product(run, cost, ALONG[:1], ALONG[1:])
    return np.array([[*gradient.u0, *gradient.p], [*product.u0, *product.p]])


@pytest.mark.parametrize("kind", ["named", "implicit"])
@pytest.mark.parametrize("method", ["rk4", "cn", "beuler", "midpoint"])
@pytest.mark.parametrize("cost", [AT_END, ds.Running(lambda t, u, p: u[0] ** 2), MEASURED])
@pytest.mark.parametrize(("lag", "inwards"), [(0.0, 1.0), (4.0, -1.0)])
def test_derivatives_of_events_at_the_ends_are_those_from_the_inside(
    kind, method, cost, lag, inwards
):
    """The final time is fixed though the event moves: the limit, one-sided differences, Taylor."""

    def value(away):
        return evaluate(dosed(kind, method, lag + inwards * away, cost.times), cost)

    run = dosed(kind, method, lag, cost.times)
    assert run.n_steps not in run.moving
    assert duality(run, cost) < 1e-12
    computed = slopes(run, cost)
    near = slopes(dosed(kind, method, lag + inwards * 1e-9, cost.times), cost)
    np.testing.assert_allclose(near[0], computed[0], rtol=1e-6)
    np.testing.assert_allclose(near[1], computed[1], rtol=1e-5)
    beside = slopes(dosed(kind, method, lag + inwards * 1e-17, cost.times), cost)
    np.testing.assert_allclose(beside, computed, rtol=1e-12)
    eps = 1e-4
    difference = (-3 * value(0.0) + 4 * value(eps) - value(2 * eps)) / (2 * eps)
    assert inwards * difference == pytest.approx(computed[0, 2], rel=1e-5)
    unit = ds.hessian_product(run, cost, [0.0], [0.0, 1.0]).p[1]
    rests = [
        abs(value(e) - value(0.0) - inwards * e * computed[0, 2] - e * e / 2 * unit)
        for e in (2e-2, 1e-2)
    ]
    assert np.log2(rests[0] / rests[1]) > 2.85


def test_the_last_time_moves_with_an_event_that_ends_the_run():
    run = dosed("named", "rk4", 4.0, terminal=True)
    near = dosed("named", "rk4", 4.0 - 1e-9, terminal=True)
    assert run.n_steps in run.moving
    assert run.n_steps == near.n_steps
    np.testing.assert_allclose(slopes(near, AT_END), slopes(run, AT_END), rtol=1e-6)
    after, time = AtEvent(lambda t, u, p: u[0], "dose", side="after"), EventTime("dose")
    for ends in (True, False):  # what is seen at the event itself moves in any case
        run = dosed("named", "rk4", 4.0, terminal=ends)
        near = dosed("named", "rk4", 4.0 - 1e-9, terminal=ends)
        assert ds.adjoint(run, time).p.tolist() == [0.0, 1.0]
        np.testing.assert_allclose(slopes(near, after), slopes(run, after), rtol=1e-6)


@pytest.mark.parametrize("kind", ["named", "implicit"])
@pytest.mark.parametrize(("side", "outwards"), [("before", 1.0), ("after", -1.0)])
@pytest.mark.parametrize("seen", [1.0, 1.2345, 3 * 0.1])
def test_observations_on_one_side_of_an_event_that_moves(kind, side, outwards, seen):
    """Derivatives are those of the side, to the error of a step, and sweeps agree to rounding."""
    cost = ds.LeastSquares(
        [0.25, seen, 2.2],
        [[0.2], [0.3], [0.5]],
        observe=lambda t, u, p: u[:1] * (1 + 0.2 * t + p[1]),
        side=side,
    )

    def at(away):
        return dosed(kind, "rk4", seen + outwards * away, cost.times)

    run = at(0.0)
    jump = run.at(seen, "after").array[0] - run.at(seen, "before").array[0]
    assert jump > 0.6
    assert duality(run, cost) < 1e-12
    assert evaluate(at(1e-9), cost) == pytest.approx(evaluate(run, cost), rel=1e-7)
    eps = 1e-4
    values = [evaluate(at(k * eps), cost) for k in range(3)]
    difference = outwards * (-3 * values[0] + 4 * values[1] - values[2]) / (2 * eps)
    computed = slopes(run, cost)
    assert difference == pytest.approx(computed[0, 2], rel=3e-5)
    np.testing.assert_allclose(slopes(at(1e-9), cost), computed, rtol=1e-4)
    steps = ds.adjoint(run, cost, engine="vectors")
    np.testing.assert_allclose(computed[0], [*steps.u0, *steps.p], rtol=1e-12)
    before = ds.tangent(run, [0.0], [0.0, 1.0]).u[run.index(seen, "before"), 0]
    assert before == 0.0  # what is observed before the dose knows nothing of its time


def test_observations_at_the_ends_see_what_an_event_inside_would_leave():
    """At the first time the state before the event, at the last one that after it."""
    for lag, side, other in ((0.0, "before", "after"), (4.0, "after", "before")):
        run = dosed("named", "rk4", lag, [0.0, 4.0])
        assert run.index(lag) == run.index(lag, side) == (run.n_steps if lag else 0)
        with pytest.raises(ds.SolveError, match=f'"dose", which moves.* no step ends {other} it'):
            run.at(lag, other)


def test_optimisers_get_past_an_evaluation_at_the_time_of_an_observation():
    """From a start at which the dose falls on a measurement; the side is said, so it is one."""
    dose = ds.Event("lag", lambda t, u, p: u + 2.0, name="dose")
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate", "lag"], events=[dose])
    times, stepping = [0.5, 1.0, 1.5, 2.0, 3.0], ds.Stepping((0.0, 4.0), "rk4", dt=0.1)
    truth = ds.solve(problem, [1.0], [0.5, 1.2], stepping, times)
    data = [truth.at(t).array[0] for t in times]
    cost = ds.LeastSquares(times, data, observe=lambda t, u, p: u, side="after")
    lag = ds.Parameter(1.5, lower=1.05, upper=1.5)
    start = ds.Parameters({"rate": ds.Parameter(0.5), "lag": lag}, [1.0])
    result = ds.minimize(ds.Reduced(problem, cost, stepping, start), method="blmvm")
    assert result.x[1] == pytest.approx(1.2, rel=1e-5)


def test_event_at_the_last_time_of_a_problem_with_a_mass():
    dose = ds.Event("lag", lambda t, u, p: u + 2.0, name="dose")
    problem = ds.ODE(lambda t, u, p: -u, 1, ["lag"], mass=np.array([[2.0]]), events=[dose])
    stepping = ds.Stepping((0.0, 1.0), "cn", dt=0.1)
    cost = ds.Terminal(lambda t, u, p: u[0]) + ds.Running(lambda t, u, p: u[0])
    run, near = (ds.solve(problem, [1.0], [lag], stepping) for lag in (1.0, 1.0 - 1e-9))
    assert evaluate(run, cost) == pytest.approx(evaluate(near, cost), rel=1e-8)
    np.testing.assert_allclose(ds.adjoint(run, cost).p, ds.adjoint(near, cost).p, rtol=1e-6)
    assert duality(run, cost) < 1e-12


@pytest.mark.parametrize("method", ["beuler", "cn"])
def test_algebraic_variables_follow_where_the_next_event_of_the_instant_is_not_active(method):
    """Only the first jumps; y = 1.3 x holds afterwards."""

    def equations():
        def rhs(t, u, p):
            return np.array([-u[1], u[1] - p[0] * u[0]])

        return ds.ODE(rhs, 2, ["k"], mass=np.diag([1.0, 0.0]))

    doubled = ds.Event(0.5, lambda t, u, p: np.array([2.0 * u[0], u[1]]), name="doubled")
    elsewhere = ds.Event(0.5, lambda t, u, p: u, name="elsewhere", within=["B"])
    problem = ds.hybrid({"A": equations(), "B": equations()}, "A", [doubled, elsewhere])
    run = ds.solve(problem, [1.0, 1.3], [1.3], ds.Stepping((0.0, 1.0), method, dt=0.1))
    after = run.crossings[0].after.array
    assert after[1] == pytest.approx(1.3 * after[0], rel=1e-12)
