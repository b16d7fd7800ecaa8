"""Derivatives of delay equations through events: exact for the steps that were taken."""

import gc
import warnings
import weakref

import numpy as np
import pytest
from order_six import bend

import daeosens as ds
from daeosens.costs import AtEvent, EventData, EventTime
from daeosens.derivatives import at_fixed_times, derivative_error
from daeosens.derivatives.residual_jacobian import residual_adjoint
from daeosens.errors import GrazingError
from daeosens.problem import Doses, with_doses
from daeosens.verify import duality

NAMES = ["level", "kick", "tau", "when"]
X = np.array([1.0, 0.8, 0.31, 0.517, 1.033, 2.1371])  # u0 and p
TIMES, DATA = (0.33, 1.1, 2.2), np.array([[0.3, 0.2], [0.5, 0.6], [0.2, 0.1]])


def rhs(t, u, z, p):
    return np.array(
        [-z[0, 0] + 0.3 * np.sin(t) * u[1] * z[1, 1], p[0] * z[1, 0] - u[1] ** 2 * z[0, 1]]
    )


def history(t, p):
    return np.array([1.0 + 0.1 * p[0] * np.sin(t), 0.8 + 0.0 * t])


def lag(p):
    return 0.4 + 0.3 * p[2] ** 2 * p[1]


def surface(t, u, p):
    return u[0] - p[0] - 0.05 * np.sin(t) * p[1]


def kicked(t, u, p):
    return np.array([u[0] + p[1] + 0.1 * t * p[0] * u[1], u[1] * p[0] ** 0.5 + 0.2 * u[0] ** 2])


def dosed(t, u, p):
    return u + np.array([0.1 * p[1] * t, 0.2 * u[0] * u[1]])


def thinned(t, u, p):
    return u * np.array([1.1, 0.9])


RESETS = {"kick": kicked, "dose": dosed, "thinned": thinned}
EVENTS = [
    ds.Event(surface, kicked, direction=-1, name="kick"),
    ds.Event("when", dosed, name="dose"),
    ds.Event(1.3, thinned, name="thinned"),
]


def seen(t, u, p):
    return t * u[1] * p[1] + u[0] ** 2


COST = (
    ds.Terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[0])
    + ds.LeastSquares(TIMES, DATA)
    + EventTime("kick", 0)
    + AtEvent(seen, "kick", 1, side="after")
)


def make(events=EVENTS):
    return ds.DDE(rhs, 2, NAMES, delays=["tau", lag], history=history, events=events)


def at(x, stepping, cost=COST):
    return ds.solve(make(), x[:2], x[2:], stepping, cost.times)


def replayed(run, x):
    """Return times and states of a run taken again with other x = (u0, p), which may be complex.

    An independent program: each stage looks into the same step as in the run, steps keep their
    shares, and times of events are found by Newton's method on the last step before them.
    """
    steps, p, d = run.report, x[2:], len(run.report.tau)
    tableau, shapes = steps.tableau, run.report.looked
    clocks = np.zeros(steps.clocks, dtype=x.dtype)  # what they move by
    clocks[:d] = np.array([p[2], lag(p)]) - steps.tau
    for clock, k in steps.moving.items():
        clocks[clock] = p[k] - run.p[k]
    states, rates = [x[:2].astype(x.dtype)], []
    jumps = {crossing.step: crossing.name for crossing in run.crossings}

    def moved(rows, numbers, clocks):
        return numbers + rows @ clocks

    def step(n, clocks):
        times = moved(steps.time_slopes, run.times, clocks)
        sizes = moved(steps.size_slopes, run.step_sizes, clocks)
        k, h = np.zeros((len(tableau.b), 2), dtype=x.dtype), sizes[n]
        for i, c in enumerate(tableau.c):
            t, z = times[n] + c * h, []
            for tau, j in zip(steps.tau + clocks[:d], shapes[n, i], strict=True):
                if j < 0:
                    z.append(history(t - tau, p))
                else:
                    part = (t - tau - times[j]) / sizes[j]
                    weights = tableau.weights @ part ** np.arange(tableau.weights.shape[1])
                    z.append(states[j] + sizes[j] * weights @ rates[j])
            k[i] = rhs(t, states[n] + h * tableau.a[i] @ k, np.array(z), p)
        return k, states[n] + h * tableau.b @ k, times[n + 1]

    for n in range(run.n_steps):
        if n in jumps:
            time = moved(steps.time_slopes, run.times, clocks)[n]
            rates.append(np.zeros_like(rates[-1]))
            states.append(RESETS[jumps[n]](time, states[n], p))
            continue
        if n in steps.located:
            clock = steps.located[n]
            for _ in range(6):  # secants, by complex numbers as well
                other = clocks.copy()
                other[clock] += 1e-6
                values = [surface(*step(n, c)[:0:-1], p) for c in (clocks, other)]
                clocks[clock] -= 1e-6 * values[0] / (values[1] - values[0])
        k, after, _ = step(n, clocks)
        rates.append(k)
        states.append(after)
    return moved(steps.time_slopes, run.times, clocks), np.array(states)


def value_of(run, x):
    """Return the cost of the run that is taken again."""
    (times, states), p = replayed(run, x), x[2:]
    misfit = states[[run.index(t) for t in TIMES]] - DATA
    first, second = [c.step for c in run.crossings if c.name == "kick"][:2]
    value = states[-1, 0] ** 2 + states[-1, 1] * p[0] + 0.5 * np.sum(misfit**2) + times[first]
    return value + seen(times[second + 1], states[second + 1], p)


@pytest.mark.parametrize(
    ("method", "sizes"),
    [
        ("rk3bs", {"dt": 0.1}),
        ("rk4", {"dt": 0.1}),
        ("rk5ts", {"rtol": 1e-5}),
        ("rk8vr", {"dt": 0.23}),
    ],
)
def test_derivatives_are_those_of_the_program(method, sizes):
    """Complex steps of an independent program; differences of order six of these for Hessians."""
    run, rng = at(X, ds.Stepping((0.0, 3.0), method, **sizes)), np.random.default_rng(1)
    assert [crossing.name for crossing in run.crossings].count("kick") == 3
    np.testing.assert_allclose(replayed(run, X)[1], run.u, rtol=1e-11)

    def slope(x, along):
        return value_of(run, x + 1e-30j * along).imag / 1e-30

    gradient = ds.adjoint(run, COST)
    reference = [slope(X, unit) for unit in np.eye(6)]
    ours = np.concatenate([gradient.u0, gradient.p])
    np.testing.assert_allclose(ours, reference, rtol=1e-11, atol=1e-12)
    assert abs(gradient.value - value_of(run, X)) < 1e-12
    direction, other = rng.standard_normal((2, 6))
    product = ds.hessian_product(run, COST, direction[:2], direction[2:])
    bent = bend(slope, X, direction, other)
    assert abs(product.u0 @ other[:2] + product.p @ other[2:] - bent) < 1e-8


@pytest.mark.parametrize("sizes", [{"dt": 0.1}, {"rtol": 1e-6}])
def test_adjoint_and_tangent_are_transposes_and_hessians_symmetric(sizes):
    run, rng = at(X, ds.Stepping((0.0, 3.0), "rk5ts", **sizes)), np.random.default_rng(2)
    du, dp = rng.standard_normal((4, 2)), rng.standard_normal((4, 4))
    gradient = ds.adjoint(run, COST)
    for k, along in enumerate(ds.tangent(run, du, dp)):
        expected = gradient.u0 @ du[k] + gradient.p @ dp[k]
        assert abs(along.derivative(COST) - expected) < 1e-12 * abs(expected)
    assert duality(run, COST) < 1e-12
    units = np.eye(6)
    products = ds.hessian_product(run, COST, units[:, :2], units[:, 2:])
    matrix = np.array([np.concatenate([row.u0, row.p]) for row in products])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"dt": 0.1}, {"rtol": 1e-8}])
def test_taylor_orders_of_all_unknowns(sizes):
    control = ds.Parameters(
        {name: ds.Parameter(value) for name, value in zip(NAMES, X[2:], strict=True)},
        initial_state=lambda p: np.array([1.0 + 0.1 * p[1], 0.8]),
    )
    functional = ds.Reduced(make(), COST, ds.Stepping((0.0, 3.0), "rk5ts", **sizes), control)
    assert 1.95 < min(ds.taylor(functional)) < 2.1
    assert 2.9 < min(ds.taylor(functional, hessian=True)) < 3.1


def test_a_closed_form():
    """With u' = -u(t - tau) from 1: a kick at 1 - level, from its echo on a parabola."""
    kick = ds.Event(
        lambda t, u, p: u[0] - p[0], lambda t, u, p: u + p[1], direction=-1, name="kick"
    )
    problem = ds.DDE(
        lambda t, u, z, p: -z[0], 1, NAMES[:3], delays="tau", history=[1.0], events=[kick]
    )
    run = ds.solve(problem, [1.0], [0.3, 2.0, 1.0], ds.Stepping((0.0, 1.9), "rk5ts", dt=0.1))
    when = ds.adjoint(run, EventTime("kick"))
    np.testing.assert_allclose([when.value, when.p[0], when.u0[0]], [0.7, -1.0, 1.0], atol=1e-14)

    def end(x):
        start, level, kick, tau, t = *x, 1.9
        first = start - level  # the run starts at another state than the history
        value = level + kick - (tau - first)
        value -= start * first - 0.5 * first**2
        since = t - tau - first
        return value - (level + kick) * since + 0.5 * since**2

    x = np.array([1.0, 0.3, 2.0, 1.0])
    cost = ds.Terminal(lambda t, u, p: u[0])
    gradient = ds.adjoint(run, cost)
    expected = [end(x + 1e-30j * unit).imag / 1e-30 for unit in np.eye(4)]
    np.testing.assert_allclose([*gradient.u0, *gradient.p], expected, atol=1e-13)
    units = np.eye(4)
    products = ds.hessian_product(run, cost, units[:, :1], units[:, 1:])
    h = 1e-4
    for k, row in enumerate(products):
        pairs = [
            [end(x + s * h * units[k] + 1e-30j * unit).imag / 1e-30 for unit in units]
            for s in (1.0, -1.0)
        ]
        bend = np.subtract(*pairs) / (2.0 * h)
        np.testing.assert_allclose([*row.u0, *row.p], bend, atol=1e-9)


def test_a_relay_with_a_delay():
    """Zeros of x' = -a sign(x(t - tau)), by an unknown that switches: x0 / a + 2 k tau."""
    switch = ds.Event(
        lambda t, u, p: u[0], lambda t, u, p: u * np.array([1.0, -1.0]), name="switch"
    )
    problem = ds.DDE(
        lambda t, u, z, p: np.array([-p[0] * z[0, 1], 0.0 * u[0]]),
        ["x", "sign"],
        ["a", "tau"],
        delays="tau",
        history=[0.5, 1.0],
        events=[switch],
    )
    stepping = ds.Stepping((0.0, 6.0), "rk4", dt=0.2)
    run = ds.solve(problem, [0.5, 1.0], [1.1, 0.6], stepping)
    for k in range(4):
        gradient = ds.adjoint(run, EventTime("switch", k))
        assert abs(gradient.value - (0.5 / 1.1 + 1.2 * k)) < 1e-12
        np.testing.assert_allclose(gradient.p, [-0.5 / 1.1**2, 2.0 * k], atol=1e-11)
    product = ds.hessian_product(run, EventTime("switch", 3), [0.0, 0.0], [1.0, 0.0])
    np.testing.assert_allclose(product.p, [1.0 / 1.1**3, 0.0], atol=1e-10)
    peak = ds.Terminal(lambda t, u, p: u[0])
    # it falls through zero at t_4, and rises again a delay later
    end = ds.adjoint(run, peak)
    assert abs(end.value - 1.1 * (6.0 - 0.5 / 1.1 - 6.0 * 2.0 * 0.6 + 1.2)) < 1e-12
    np.testing.assert_allclose(end.p, [end.value / 1.1 + 0.5 / 1.1, -11.0], atol=1e-11)


def test_a_run_that_ends_at_an_event():
    end = ds.Event(surface, direction=-1, terminal=True, name="end")
    problem = make([end])
    cost = ds.Terminal(lambda t, u, p: t**2 * u[1] + u[0])
    stepping = ds.Stepping((0.0, 3.0), "rk5ts", dt=0.1)

    def value(x):
        run = ds.solve(problem, x[:2], x[2:], stepping)
        return ds.adjoint(run, cost)

    gradient = value(X)
    ours, h = np.concatenate([gradient.u0, gradient.p]), 1e-5
    for k, unit in enumerate(np.eye(6)):
        change = (value(X + h * unit).value - value(X - h * unit).value) / (2.0 * h)
        assert abs(change - ours[k]) < 1e-8
    assert duality(ds.solve(problem, X[:2], X[2:], stepping), cost) < 1e-12


@pytest.mark.parametrize("time", [0.0, 1.0, 3.0])
def test_a_time_that_is_a_parameter_and_meets_one_that_stays(time):
    """At an observation, at both ends: the derivative is that on the side of the state seen."""
    dose = ds.Event("when", lambda t, u, p: u + np.array([0.7 + t]), name="dose")
    problem = ds.DDE(
        lambda t, u, z, p: -z[0] * p[0], 1, ["rate", "when"], delays=[0.63], history=[1.0],
        events=[dose],
    )  # fmt: skip
    stepping, h = ds.Stepping((0.0, 3.0), "rk8vr", dt=0.3), 1e-5

    def at_time(when, t, side):
        run = ds.solve(problem, [1.0], [0.8, when], stepping, [t] if 0.0 < t < 3.0 else None)
        return ds.adjoint(run, ds.LeastSquares([t], [[0.2]], side=side))

    for t in {time or 3.0, 3.0}:
        for side in ("before", "after"):
            # seen before the event, which may be later; seen after it, which may be earlier
            way = 1.0 if time == 0.0 or (side == "before" and t == time) else -1.0
            ours = at_time(time, t, side)
            values = [at_time(time + k * way * h, t, side).value for k in (1, 2)]
            change = (4.0 * values[0] - values[1] - 3.0 * ours.value) / (2.0 * way * h)
            assert abs(change - ours.p[1]) < 1e-5, (t, side)


def test_data_at_events():
    data = EventData("kick", [0.7, 1.4, 2.6], sigma=0.1)
    control = ds.Parameters(
        {name: ds.Parameter(x) for name, x in zip(NAMES, X[2:], strict=True)}, X[:2]
    )
    functional = ds.Reduced(make(), data, ds.Stepping((0.0, 3.0), "rk5ts", dt=0.1), control)
    x = functional.start()
    matrix = functional.residual_jacobian(x).getDenseArray()
    run = functional.trajectory(x)
    for k, weights in enumerate(np.eye(3)):
        ((_, by_p),) = residual_adjoint(run, data, [weights])
        np.testing.assert_allclose(by_p.array, matrix[k], rtol=1e-12, atol=1e-12)
    kick = ds.adjoint(run, EventTime("kick", 2))
    np.testing.assert_allclose(matrix[2], kick.p / 0.1, rtol=1e-12)


def test_derivatives_at_fixed_times_jump_at_events():
    run = at(X, ds.Stepping((0.0, 3.0), "rk8vr", rtol=1e-10))
    direction = np.array([0.3, -0.2, 0.1, 0.4, 0.2, -0.1])
    rows, h = at_fixed_times(ds.tangent(run, direction[:2], direction[2:])), 1e-5
    runs = [
        at(X + sign * h * direction, ds.Stepping((0.0, 3.0), "rk8vr", rtol=1e-11))
        for sign in (1.0, -1.0)
    ]
    # derivatives jump at events, and at their echoes, where the rate does
    jumps = [c.t for c in run.crossings] + [float(run.times[n]) for n in run.report.breaking]
    checked = [n for n, t in enumerate(run.times) if min(abs(t - jump) for jump in jumps) > 1e-2]
    assert len(checked) > 5
    for n in checked:
        ends = [other(float(run.times[n])).array for other in runs]
        np.testing.assert_allclose(rows[n], np.subtract(*ends) / (2.0 * h), atol=2e-6)
    # beside an event the times of the states that move are taken out
    step = run.crossings[0].step
    before, after = (run.crossings[0].t + x for x in (-1e-3, 1e-3))
    for n, t in ((step, before), (step + 1, after)):
        ends = [other(t).array for other in runs]
        np.testing.assert_allclose(rows[n], np.subtract(*ends) / (2.0 * h), atol=5e-3)


def test_errors_of_derivatives_are_estimated():
    run = at(X, ds.Stepping((0.0, 3.0), "rk4", dt=0.1))
    fine = ds.adjoint(at(X, ds.Stepping((0.0, 3.0), "rk8vr", rtol=1e-11)), COST)
    error = derivative_error(run, COST)
    true = np.abs(ds.adjoint(run, COST).p - fine.p).max()
    assert 0.1 * true < np.abs(error.p).max() < 10.0 * true


def test_a_surface_that_is_touched_is_refused():
    touch = ds.Event(lambda t, u, p: (u[0] - 0.5) ** 3, name="touch")
    problem = ds.DDE(
        lambda t, u, z, p: -z[0], 1, ["tau"], delays="tau", history=[1.0], events=[touch]
    )
    run = ds.solve(problem, [1.0], [1.0], ds.Stepping((0.0, 0.9), "rk4", dt=0.1))
    with pytest.raises(GrazingError, match='"touch"'):
        ds.adjoint(run, EventTime("touch"))


def test_runs_through_events_are_freed_after_their_derivatives():
    run = at(X, ds.Stepping((0.0, 3.0), "rk4", dt=0.1))
    ds.adjoint(run, COST)
    ds.hessian_product(run, COST, [1.0, 0.0], np.ones(4))
    known = weakref.ref(run)
    del run
    gc.collect()
    assert known() is None


def test_a_branch_that_sees_a_jump_is_no_kink():
    """Steps end where a delayed state jumps from one side to the other, and move with that."""
    kick = ds.Event(lambda t, u, p: u[0] - p[1], lambda t, u, p: u + 0.6, direction=-1, name="kick")
    problem = ds.DDE(
        lambda t, u, z, p: -p[0] * np.maximum(z[0], 0.5),
        1,
        NAMES[:3],
        delays="tau",
        history=[1.0],
        events=[kick],
    )
    p, stepping = np.array([1.0, 0.31, 0.73]), ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-9)
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2)

    def at_p(p):
        return ds.solve(problem, [1.0], p, stepping)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = ds.adjoint(at_p(p), cost)
    for k, unit in enumerate(np.eye(3)):
        ends = [float(at_p(p + sign * 1e-5 * unit).u[-1, 0]) ** 2 for sign in (1.0, -1.0)]
        assert abs(gradient.p[k] - (ends[0] - ends[1]) / 2e-5) < 1e-6


@pytest.mark.parametrize(
    ("start", "when", "changes"),
    [
        (0.8, None, {"long": 1.2}),
        (0.5, None, {"long": 1.2}),
        (0.5, None, {"long": 0.6}),
        (0.5, 0.45, {"long": 1.2}),
        (0.5, "first", {"long": 1.2}),
        (0.5, "first", {"long": 0.6}),
        (0.5, "first", {"first": 0.6}),
        (0.5, "both", {"first": 0.7, "second": 0.45}),
    ],
)
def test_jumps_and_kinks_that_come_back_at_one_time(start, when, changes):
    """One delay is twice the other one, or both bring an event back at the same time.

    Of the steps of size 0 between these times each sees what has come back so far.
    """
    names = ["short", "long", "first", "second", "height"]
    truth = {"short": 0.6, "long": 0.85, "first": 0.45, "second": 1.1, "height": 0.5} | changes
    first = ds.Event(
        "first" if when == "both" else when or 0.0,
        lambda t, u, p: 1.3 * u + p[4] * (1.0 + 0.1 * t),
        name="a",
    )
    second = ds.Event("second", lambda t, u, p: 0.7 * u + 0.2 * u**2, name="b")
    problem = ds.DDE(
        lambda t, u, z, p: -0.8 * u * z[0] + 1.3 * z[1] / (1.0 + z[1] ** 2) + 0.2 * np.sin(t),
        1,
        names,
        delays=["short", "long"],
        history=[0.5],
        events=[first, second][: {None: 0, "both": 2}.get(when, 1)],
    )
    stepping, cost = ds.Stepping((0.0, 2.5), "rk4", dt=0.1), ds.Terminal(lambda t, u, p: u[0] ** 2)

    def gradient(x):
        whole = ds.adjoint(ds.solve(problem, x[:1], x[1:], stepping), cost)
        return np.array([whole.value, *whole.u0, *whole.p])

    x, h = np.array([start, *truth.values()]), 1e-3
    direction = np.array([0.3, 0.5, -0.2, 0.4, 0.1, 0.6])
    at = [gradient(x + k * h * direction) for k in (-2, -1, 0, 1, 2)]
    slope = (at[0] - 8.0 * at[1] + 8.0 * at[3] - at[4]) / (12.0 * h)
    assert at[2][1:] @ direction == pytest.approx(slope[0], rel=1e-4)


@pytest.mark.parametrize("later", [1e-14, 2e-12, 1e-10])
def test_short_steps_between_events_and_breaking_points(later):
    """A dose just after the delay: a delay later what is seen jumps just after a step's end."""
    dose = ds.Event("when", lambda t, u, p: 1.5 * u, name="dose")
    problem = ds.DDE(
        lambda t, u, z, p: p[0] * z[0] - u,
        1,
        ["rate", "delay", "when"],
        delays="delay",
        history=[1.0],
        events=[dose],
    )
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2)

    def gradient(later):
        run = ds.solve(
            problem, [0.5], [0.7, 0.6, 0.6 + later], ds.Stepping((0.0, 1.5), "rk5ts", dt=0.1)
        )
        return ds.adjoint(run, cost).p

    np.testing.assert_allclose(gradient(later), gradient(1e-6), rtol=1e-4)


def infused(style, amounts, state=(0.0, 0.3)):
    """A drug that comes back, by doses of a table, with an effect."""

    def fed(t, u, z, p):
        return np.array([p[0] * z[0, 0] * z[0, 1] - p[1] * u[0], u[0] - 0.5 * u[1] * u[0]])

    plain = style(
        fed,
        ["drug", "effect"],
        ["back", "loss", "amount", "F", "tau"],
        delays="tau",
        history=lambda t, p: np.array([state[0] + 0.1 * p[0], state[1] + 0.1 * t]),
    )
    table = {"time": [0.0, 1.0, 1.4], "duration": [0.0, 1.0, 0.8], "compartment": ["drug"] * 3}
    doses = Doses(table | {"amount": amounts}, bioavailability={"drug": "F"}, lag={"drug": 0.25})
    return with_doses(plain, doses)


INFUSED = [0.4, 0.7, 3.0, 0.6, 0.93]
INFUSIONS = [2.0, "amount", "amount"]
EFFECT = ds.Terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[2]) + ds.LeastSquares(
    [1.1, 1.9, 3.3], DATA
)


@pytest.mark.parametrize("method", ["rk4", "rk5ts"])
@pytest.mark.parametrize("style", [ds.DDE, ds.trace])
def test_infusions_have_exact_derivatives(style, method):
    problem, control = infused(style, INFUSIONS), {"dt": 0.1} if method == "rk4" else {"rtol": 1e-8}
    stepping = ds.Stepping((0.0, 4.0), method, **control)
    run = ds.solve(problem, [0.0, 0.3], INFUSED, stepping, EFFECT.times)
    names = [crossing.name for crossing in run.crossings]
    assert names == ["dose 0", "dose 1", "dose 2", "dose 1 ends", "dose 2 ends"]
    assert [crossing.t for crossing in run.crossings] == [0.25, 1.25, 1.65, 2.25, 2.45]
    assert duality(run, EFFECT) < 1e-12
    entries = dict(zip(problem.parameter_names, map(ds.Parameter, INFUSED), strict=True))
    functional = ds.Reduced(problem, EFFECT, stepping, ds.Parameters(entries, [0.0, 0.3]))
    assert 1.95 < min(ds.taylor(functional)) < 2.1
    assert 2.9 < min(ds.taylor(functional, hessian=True)) < 3.1


def test_infusions_are_unknowns_that_events_reset():
    """The other way to write them, in the whole Hessian."""

    def fed(t, u, z, p):
        back = p[0] * z[0, 0] * z[0, 1] - p[1] * u[0]
        return np.array([back + u[2], u[0] - 0.5 * u[1] * u[0], 0.0 * u[0]])

    def more(amounts):
        return lambda t, u, p: u + np.array([amounts[0] * p[3], 0.0, amounts[1] * p[2] * p[3]])

    times = {0.25: (2.0, 0.0), 1.25: (0.0, 1.0), 1.65: (0.0, 1.0 / 0.8)}
    times |= {2.25: (0.0, -1.0), 2.45: (0.0, -1.0 / 0.8)}
    by_events = ds.DDE(
        fed,
        3,
        5,
        delays=lambda p: p[4],
        history=lambda t, p: np.array([0.1 * p[0], 0.3 + 0.1 * t, 0.0]),
        events=[ds.Event(time, more(amounts)) for time, amounts in times.items()],
    )
    stepping = ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-11)
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[2])
    runs = (
        ds.solve(infused(ds.DDE, INFUSIONS), [0.0, 0.3], INFUSED, stepping),
        ds.solve(by_events, [0.0, 0.3, 0.0], INFUSED, stepping),
    )
    np.testing.assert_allclose(runs[0].u[-1], runs[1].u[-1, :2], rtol=1e-9)
    rows = [ds.hessian_product(run, cost, dp=np.eye(5)) for run in runs]
    matrices = [np.array([row.p for row in products]) for products in rows]
    np.testing.assert_allclose(*matrices, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(*(row[0].gradient.p for row in rows), rtol=1e-9)
    np.testing.assert_allclose(matrices[0], matrices[0].T, atol=1e-10)
