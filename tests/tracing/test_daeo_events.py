"""DAEOs with events of their users: what they see of y, and that y is found again after them."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.costs import EventTime
from daeosens.problem import Doses, add_events, with_doses
from daeosens.verify import duality


def decay(t, x, y, p):
    return -(p.rate + y) * x


def two_wells(t, x, y, p):
    """Return wells at 1 and -1, wherever x is; the first one is lower from x = 0.5 on."""
    return (1.0 - y[0] ** 2) ** 2 - (x[0] - 0.5) * np.sin(0.5 * np.pi * y[0])


def model_of(*events, f=decay, h=two_wells, box=(-6.0, 6.0), **more):
    return ds.DAEO(f, h, size=(1, 1), parameters=["rate", "kick"], box=box, events=events, **more)


def low(reset=None, **more):
    return ds.Event(lambda t, x, y, p: x[0] - 0.3, reset, direction=-1, name="low", **more)


def run_of(model, method="rk8vr", end=1.2, x0=1.0, p=(2.0, 0.6), t_eval=(), **steps):
    stepping = ds.Stepping((0.0, end), method, **(steps or {"rtol": 1e-12}))
    return ds.solve(model, [x0], p, stepping, t_eval=t_eval)


def happened(run):
    return [crossing.name for crossing in run.crossings]


def kicked(t, x, y, p):
    """Return x + kick: y = -1 where x = 0.3."""
    return x - p.kick * y


def exact(x0, rate, kick, end=1.2):
    """Return the times of the jump, the kick and the second jump, and x at the end."""
    first = np.log(2.0 * x0) / (rate + 1.0)
    low = first + np.log(5.0 / 3.0) / (rate - 1.0)
    second = low + np.log((0.3 + kick) / 0.5) / (rate + 1.0)
    return first, low, second, 0.5 * np.exp(-(rate - 1.0) * (end - second))


def slope(k, z):
    """Return the derivatives of one of these in (x0, rate, kick), by complex steps."""
    return np.array([exact(*(z + 1e-30j * e))[k].imag / 1e-30 for e in np.eye(3)])


def row(gradient):
    return np.array([gradient.u0[0], *gradient.p])


@pytest.fixture(scope="module")
def model():
    return model_of(low(kicked))


Z = np.array([1.0, 2.0, 0.6])


@pytest.mark.parametrize(
    ("method", "steps", "error"),
    [
        ("rk8vr", {}, 1e-11),
        ("esdirk4", {"rtol": 1e-8}, 1e-6),
        ("rk6vr", {"dt": 0.3}, 1e-4),  # steps with two events in them
        ("rk6vr", {"dt": 0.02}, 1e-11),
    ],
)
def test_after_a_reset_the_lowest_optimiser_is_found(model, method, steps, error):
    run = run_of(model, method, **steps)
    assert happened(run) == ["start", "jump", "low", "start", "jump"]
    first, kick, second, final = exact(*Z)
    times = [crossing.t for crossing in run.crossings]
    np.testing.assert_allclose(times, [0.0, first, kick, kick, second], rtol=0, atol=error)
    assert times[2] == times[3]
    np.testing.assert_allclose(run.crossings[2].before.array[:2], [0.3, -1.0], atol=error)
    np.testing.assert_allclose(run.crossings[3].after.array[:2], [0.9, 1.0], atol=error)
    assert run.u[-1, 0] == pytest.approx(final, abs=error)
    assert [jump.t for jump in run.report.jumps] == [times[1], times[4]]
    assert [number for _, number in run.report.active] == [1, 0, 3, 2]
    assert [branch.died for branch in run.report.branches[:2]] == [times[2]] * 2


def test_derivatives_through_a_reset_are_those_of_the_closed_form(model):
    run = run_of(model)
    final = model.terminal(lambda t, x, y, p: x[0] * y[0] ** 2)
    units = [([e[0], *np.zeros(model.size - 1)], e[1:]) for e in np.eye(3)]
    costs = [EventTime("jump"), EventTime("low"), EventTime("jump", 1), final]
    for k, cost in enumerate(costs):
        np.testing.assert_allclose(row(ds.adjoint(run, cost)), slope(k, Z), atol=1e-10)
        second = [(slope(k, Z + 1e-5 * e) - slope(k, Z - 1e-5 * e)) / 2e-5 for e in np.eye(3)]
        both = zip(*units, strict=True)
        products = [row(product) for product in ds.hessian_product(run, cost, *both)]
        np.testing.assert_allclose(products, second, rtol=0, atol=2e-9)
        assert duality(run, cost) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk4"])
def test_taylor_remainders_fall_through_resets(method):
    """The optimiser moves with x here, and the reset, its function and a parameter depend on it."""

    def h(t, x, y, p):
        return (p.kick + 0.5 - y[0] ** 2) ** 2 - (x[0] - 0.5) * np.sin(1.5 * y[0])

    event = ds.Event(
        lambda t, x, y, p: x[0] + 0.1 * y[0] - 0.2,
        lambda t, x, y, p: x + p.kick * y**2 + 0.1 * t,
        direction=-1,
        name="low",
        changes={"rate": lambda t, x, y, p: p.rate + 0.1 * x[0] * y[0]},
    )
    model = model_of(event, h=h)
    free = ds.Parameters(
        {"rate": ds.Parameter(2.0), "kick": ds.Parameter(0.6)},
        initial_state=lambda p: np.array([p[0] / 2.0, 0.0, 0.0]),
    )
    stepping = ds.Stepping((0.0, 1.2), method, dt=0.1)
    for cost in (model.terminal(lambda t, x, y, p: x[0] * y[0]), EventTime("jump", 1)):
        functional = ds.Reduced(model, cost, stepping, free)
        assert min(ds.taylor(functional)) > 1.9
        assert min(ds.taylor(functional, hessian=True)) > 2.85
        run = run_of(model, method, dt=0.1)
        assert happened(run) == ["start", "jump", "low", "start", "jump"]
        assert duality(run, cost) < 1e-12


def test_parameters_that_change_give_another_optimiser():
    """Wells at 1 and -1 again; the lower one is that of the parameter's sign."""
    model = ds.DAEO(
        lambda t, x, y, p: y - x,
        lambda t, x, y, p: (1.0 - y[0] ** 2) ** 2 - p.side * np.sin(0.5 * np.pi * y[0]),
        size=(1, 1),
        parameters=["side", "after"],
        box=(-2.0, 1.9),
        events=[ds.Event(0.4, changes={"side": lambda t, x, y, p: p.after}, name="turn")],
    )
    run = run_of(model, end=1.0, x0=0.0, p=(0.3, -0.2), t_eval=[0.25, 0.7])
    assert happened(run) == ["start", "turn", "start"]
    half = np.exp(-0.6)
    assert run.u[-1, 0] == pytest.approx((1.0 - np.exp(-0.4)) * half - (1.0 - half), abs=1e-12)
    assert run.at(0.7).array[1] == pytest.approx(-1.0, abs=1e-12)
    assert run.at(0.4, side="before").array[1] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("reset", [None, kicked])
def test_at_a_terminal_event_costs_see_the_optimiser_after_it(reset):
    model = model_of(low(reset, terminal=True))
    run = run_of(model, end=9.0)
    assert run.times[-1] == pytest.approx(exact(*Z)[1], abs=1e-12)
    x, y = (0.3, -1.0) if reset is None else (0.9, 1.0)
    np.testing.assert_allclose(run.u[-1, :2], [x, y], atol=1e-11)
    cost = model.terminal(lambda t, x, y, p: t * x[0] * y[0])
    gradient = ds.adjoint(run, cost)
    assert gradient.value == pytest.approx(run.times[-1] * x * y, abs=1e-11)
    by_kick = 0.0 if reset is None else run.times[-1]
    np.testing.assert_allclose(row(gradient), x * y * slope(1, Z) + [0, 0, by_kick], atol=1e-10)
    assert duality(run, cost) < 1e-12


def test_what_is_beyond_an_event_within_a_step_is_not_looked_at():
    """The optimiser y = x leaves the box in the step in which the run ends."""
    end = ds.Event(lambda t, x, y, p: x[0] - 1.95, terminal=True)
    model = model_of(
        end,
        f=lambda t, x, y, p: np.ones(1),
        h=lambda t, x, y, p: (y[0] - x[0]) ** 2,
        box=(-2.0, 2.0),
    )
    run = run_of(model, "rk4", dt=0.2, x0=1.0)
    np.testing.assert_allclose(run.u[-1, :2], 1.95, atol=1e-12)
    assert run.times[-1] == pytest.approx(0.95, abs=1e-12)


@pytest.mark.parametrize("dt", [0.4, 0.05])
def test_fixed_steps_go_on_to_the_end_of_the_step_that_an_event_cuts(model, dt):
    """Then later times do not depend on that of the event."""
    run = run_of(model, "rk4", dt=dt)
    moving = {crossing.t for crossing in run.crossings}
    grid = [t for t in run.times if t not in moving]
    halves = np.array(grid) / dt * 64.0
    np.testing.assert_allclose(halves, np.round(halves), atol=1e-9)


def test_an_event_at_the_start_sees_the_optimiser():
    """X = 0.4 begins at y = -1; the event adds 0.5 - 0.4 y."""
    kick = ds.Event(0.0, lambda t, x, y, p: x + 0.1 - p.kick * y, name="kick")
    run = run_of(model_of(kick), x0=0.4, p=(2.0, 0.5))
    assert happened(run) == ["start", "kick", "start", "jump"]
    np.testing.assert_allclose(run.crossings[2].after.array[:2], [1.0, 1.0], atol=1e-12)
    assert run.crossings[3].t == pytest.approx(np.log(2.0) / 3.0, abs=1e-12)


def test_doses_and_plain_events_are_events_of_daeos_too():
    model = model_of(breakpoints=[0.45])
    table = {"time": [0.6], "amount": [0.5], "compartment": [0]}
    treated = with_doses(model, Doses(table, bioavailability="kick"))
    plain = add_events(model, [ds.Event(0.6, lambda t, u, p: [u[0] + 0.5 * p[1], *u[1:]])])
    first = np.log(2.0) / 3.0
    before = 0.5 * np.exp(-(0.6 - first))
    after = before + 0.3
    second = 0.6 + np.log(after / 0.5) / 3.0
    for problem in (treated, plain):
        run = run_of(problem)
        assert happened(run)[2:] == [happened(run)[2], "start", "jump"]
        assert 0.45 in run.times
        assert run.crossings[4].t == pytest.approx(second, abs=1e-11)
        assert run.u[-1, 0] == pytest.approx(0.5 * np.exp(-(1.2 - second)), abs=1e-11)
        gradient = ds.adjoint(run, EventTime("jump", 1))
        assert gradient.p[1] == pytest.approx(0.5 / after / 3.0, abs=1e-10)
        assert duality(run, EventTime("jump", 1)) < 1e-12


def test_events_can_be_traced_for_a_model_later():
    model = model_of()
    more = add_events(model, [model.event(low(kicked))])
    assert run_of(more).u[-1, 0] == pytest.approx(exact(*Z)[3], abs=1e-11)


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ds.Event(0.5, name="jump"), 'an event of a DAEO is named "jump"'),
        (ds.Event(0.5, name="start"), 'an event of a DAEO is named "start"'),
        (ds.Event(0.5, mode="on"), 'names the unknown mode "on"'),
        (ds.Event(0.5, mode=lambda t, u, p: "on"), "names a mode"),
        (low(reset_t="autonomous", reset=kicked), "has reset_t"),
        (low(lambda t, x, y, p: np.stack([x[0], y[0]])), r"shape \(2,\)"),
    ],
)
def test_events_that_are_none_of_a_daeo(event, message):
    with pytest.raises(ds.InputError, match=message):
        model_of(event)


def test_infusions_and_modes_would_lose_the_optimiser():
    table = {"time": [0.1], "amount": [1.0], "duration": [0.5], "compartment": [0]}
    with pytest.raises(ds.UnsupportedError, match="infusions into a DAEO"):
        with_doses(model_of(), Doses(table))
    with pytest.raises(
        ds.InputError, match=r'mode "on" is a DAEO, .* a parameter .* its events change'
    ):
        ds.hybrid({"on": model_of()}, "on")


def test_two_lowest_optimisers_after_an_event_are_an_error():
    model = model_of(low(lambda t, x, y, p: 0.5 + 0.0 * x))
    with pytest.raises(ds.SolveError, match=r"two optimisers are lowest at t = 0\.74") as caught:
        run_of(model)
    assert caught.value.run.u[-1, 0] == 0.5
