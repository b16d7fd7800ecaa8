"""Events and breaking points of delay equations that meet: steps of size 0 between them."""

import math
from contextlib import nullcontext

import numpy as np
import pytest

import daeosens as ds
from daeosens.errors import KinkWarning
from daeosens.verify import duality

NAMES = ["first", "second", "tau", "small", "large"]
COST = ds.Terminal(lambda t, u, p: u[0])
UNITS = np.eye(5)


def kicked(when, rhs=lambda t, u, z, p: -z[0]):
    """Return u' = -u(t - tau) from 1, with two kicks."""
    kicks = [
        ds.Event(when[0], lambda t, u, p: u + p[3], name="small"),
        ds.Event(when[1], lambda t, u, p: u + p[4] * (1.0 + t), name="large"),
    ]
    return ds.DDE(rhs, 1, NAMES, delays="tau", history=[1.0], events=kicks)


def response(t, tau):
    """Return what a kick at 0 is at a time of u' = -u(t - tau), and its derivatives in t."""
    terms = [(k, t - k * tau) for k in range(8) if (t - k * tau).real > 0.0]
    return sum((-1.0) ** k * x**k / math.factorial(k) for k, x in terms)


def superposed(x, when, end):
    """Return the state at the end, a sum of responses, at parameters that may be complex."""
    a, b = (x[NAMES.index(time)] if isinstance(time, str) else time for time in when)
    tau = x[2]
    # a history of ones up to the start is a start whose slope was 0
    start = 1.0 - sum(
        (-1.0) ** k * (end - k * tau) ** (k + 1) / math.factorial(k + 1)
        for k in range(8)
        if (end - k * tau).real > 0.0
    )
    return start + x[3] * response(end - a, tau) + x[4] * (1.0 + b) * response(end - b, tau)


@pytest.mark.parametrize("when", [("first", "second"), (0.7, "second"), ("first", 0.7)])
@pytest.mark.parametrize("sizes", [{"dt": 0.1}, {"rtol": 1e-7}])
def test_two_kicks_at_one_instant_have_times_of_their_own(when, sizes):
    """A sum of powers, which steps have exactly; where both come back as well."""
    x, end = np.array([0.7, 0.7, 0.6, 0.4, -0.3]), 2.2
    run = ds.solve(kicked(when), [1.0], x, ds.Stepping((0.0, end), "rk5ts", **sizes))
    gradient = ds.adjoint(run, COST)
    assert gradient.value == pytest.approx(superposed(x, when, end), rel=1e-12)
    slopes = [superposed(x + 1e-30j * unit, when, end).imag / 1e-30 for unit in UNITS]
    np.testing.assert_allclose(gradient.p, slopes, atol=1e-12)
    assert duality(run, COST) < 1e-12
    for unit, product in zip(
        UNITS, ds.hessian_product(run, COST, np.zeros((5, 1)), UNITS), strict=True
    ):
        bend = [
            [superposed(x + s * 1e-4 * unit + 1e-30j * e, when, end).imag / 1e-30 for e in UNITS]
            for s in (1.0, -1.0)
        ]
        np.testing.assert_allclose(product.p, np.subtract(*bend) / 2e-4, atol=1e-7)


def nonlinear(t, u, z, p):
    return -z[0] * (1.0 + 0.2 * np.cos(t)) + 0.3 * np.sin(t) * u


@pytest.mark.parametrize("when", [("first", "second"), (0.7, "second")])
def test_taylor_orders_where_two_kicks_meet(when):
    values = dict(zip(NAMES, [0.7, 0.7, 0.6, 0.4, -0.3], strict=True))
    control = ds.Parameters(
        {name: ds.Parameter(x) for name, x in values.items()}, initial_state=[1.0]
    )
    cost, stepping = (
        ds.Terminal(lambda t, u, p: u[0] ** 2),
        ds.Stepping((0.0, 2.2), "rk8vr", dt=0.2),
    )
    functional = ds.Reduced(kicked(when, nonlinear), cost, stepping, control)
    assert 1.9 < min(ds.taylor(functional)) < 2.1
    assert 2.9 < min(ds.taylor(functional, hessian=True)) < 3.1


def one_way(gradient, at, h=1e-3):
    """Return the derivative of a gradient on one side, of third order."""
    values = [gradient(at + k * h) for k in range(4)]
    return (-11.0 * values[0] + 18.0 * values[1] - 9.0 * values[2] + 2.0 * values[3]) / (6.0 * h)


def test_kicks_whose_order_matters_are_in_the_order_of_the_list():
    """The derivative is that towards a later second kick, and delays that are longer."""

    def rhs(t, u, z, p):
        return -z[0] * u - 0.4 * z[0] ** 2

    x, way = np.array([0.7, 0.7, 0.6, 0.4, -0.3]), np.array([0.0, 1.0, 0.01, 0.3, 0.2])
    problem, stepping = kicked(("first", "second"), rhs), ds.Stepping((0.0, 2.2), "rk8vr", dt=0.1)

    def gradient(length):
        found = ds.adjoint(ds.solve(problem, [1.0], x + length * way, stepping), COST)
        return np.array([found.value, *found.p])

    with pytest.warns(
        KinkWarning, match='meet at t = 1.3,(.|\n)*other values of "first", "second"'
    ):
        slopes = one_way(gradient, 0.0)
    with pytest.warns(KinkWarning, match="their order matters"):
        assert gradient(0.0)[1:] @ way == pytest.approx(slopes[0], abs=1e-7)
    with pytest.warns(KinkWarning, match="their order matters"):
        product = ds.hessian_product(ds.solve(problem, [1.0], x, stepping), COST, dp=way)
    np.testing.assert_allclose(product.p, slopes[1:], atol=2e-6)


@pytest.mark.parametrize("delays", [(0.5, 0.5, 0.5), (0.4, 0.8, 1.2), (0.4, 0.8, 1.1)])
@pytest.mark.parametrize("start", [0.5, 0.8])
def test_second_derivatives_where_breaking_points_of_one_order_meet(delays, start):
    """Towards longer delays, each by less than the next one."""

    def rhs(t, u, z, p):
        growth = p[0] * z[0] / (1.0 + z[0] ** 2)
        return growth - 0.8 * u * z[1] + 0.2 * np.sin(t) * z[2] ** 2

    names = ["growth", "short", "middle", "long"]
    problem = ds.DDE(
        rhs,
        1,
        names,
        delays=names[1:],
        history=lambda t, p: np.array([0.5 + 0.1 * np.sin(3.0 * t) * p[0]]),
    )
    x, way = np.array([start, 1.3, *delays]), np.array([0.3, 0.2, 0.01, 0.1, 1.0])
    stepping = ds.Stepping((0.0, 2.2), "rk6vr", dt=0.1)

    def at(x):
        return ds.solve(problem, x[:1], x[1:], stepping)

    def gradient(length):
        found = ds.adjoint(at(x + length * way), COST)
        return np.array([*found.u0, *found.p])

    jumps = pytest.warns(KinkWarning, match="second derivatives are those on one side")
    # twice the longest of the last ones is the end of the run
    with jumps if start != 0.5 and delays != (0.4, 0.8, 1.2) else nullcontext():
        product = ds.hessian_product(at(x), COST, way[:1], way[1:])
    slopes = one_way(gradient, 0.0)
    np.testing.assert_allclose([*product.u0, *product.p], slopes, atol=1e-6)


def test_an_event_where_a_jump_of_the_history_comes_back():
    """U' = u(t - tau), and 1 + b [t < -0.4] before the start: the event sees it pass by."""
    problem = ds.DDE(
        lambda t, u, z, p: z[0],
        1,
        ["b", "tau", "when"],
        delays="tau",
        history=lambda t, p: np.array([1.0 + np.where(t < -0.4, p[0], 0.0)]),
        breakpoints=[-0.4],
        events=[ds.Event("when", lambda t, u, p: 2.0 * u, name="twice")],
    )
    b, tau, end = 0.5, 0.75, 0.6
    when = tau - 0.4
    run = ds.solve(problem, [1.0], [b, tau, when], ds.Stepping((0.0, end), "rk4", dt=0.1))
    with pytest.warns(KinkWarning, match="meet at t = 0.35"):
        gradient = ds.adjoint(run, COST)
    # until the event 1 + when + b (tau - 0.4); twice that, and end - when
    assert gradient.value == pytest.approx(2.0 + when + 2.0 * b * (tau - 0.4) + end, rel=1e-12)
    np.testing.assert_allclose(gradient.p, [2.0 * (tau - 0.4), 2.0 * b, 1.0], atol=1e-12)


@pytest.mark.parametrize(
    ("rhs", "resets", "told"),
    [
        # what adds up, and rates that are linear in both
        (lambda u, z: u - 2.0 * z, (lambda u: u + 0.3, lambda u: u + 0.2), ""),
        (lambda u, z: u - 2.0 * z, (lambda u: u + 0.3, lambda u: 1.2 * u), "t = 0.5,"),
        (lambda u, z: -(u**2) - z, (lambda u: u + 0.3, lambda u: u + 0.2), "t = 0.5,"),
        (lambda u, z: u - z**2, (lambda u: u + 0.3, lambda u: u + 0.2), "t = 1.1,"),
        (lambda u, z: u - z**2, (lambda u: 1.0 * u, lambda u: u + 0.2), ""),
        # the second kick where the first one comes back
        (lambda u, z: u - 2.0 * z, (lambda u: u + 0.3, None), ""),
        (lambda u, z: u * z, (lambda u: u + 0.3, None), "t = 1.1,"),
    ],
)
def test_orders_that_matter_are_told(rhs, resets, told):
    """Where derivatives by the times differ on both sides; no sooner."""
    first, second = resets
    later = 0.5 if second else 1.1
    events = [
        ds.Event("first", lambda t, u, p: first(u)),
        ds.Event("second", lambda t, u, p: (second or first)(u)),
    ]
    problem = ds.DDE(
        lambda t, u, z, p: rhs(u, z[0]),
        1,
        ["first", "second", "delay"],
        delays="delay",
        history=[1.0],
        events=events,
    )
    x, h = np.array([0.5, later, 0.6]), 1e-5

    def value(second):
        p = np.array([0.5, second, 0.6])
        return float(ds.solve(problem, [1.0], p, ds.Stepping((0.0, 1.6), "rk8vr", dt=0.1)).u[-1, 0])

    sides = [(value(later + s * h) - value(later)) / (s * h) for s in (1.0, -1.0)]
    run = ds.solve(problem, [1.0], x, ds.Stepping((0.0, 1.6), "rk8vr", dt=0.1))
    if told:
        assert abs(sides[0] - sides[1]) > 1e-3
        with pytest.warns(KinkWarning, match=f"meet at {told}"):
            gradient = ds.adjoint(run, COST)
    else:
        assert abs(sides[0] - sides[1]) < 1e-4
        gradient = ds.adjoint(run, COST)
    assert gradient.p[1] == pytest.approx(sides[0], abs=1e-4)


@pytest.mark.parametrize(("tau", "told"), [(1.0, True), (0.9, False)])
def test_harvests_that_come_back_at_harvests_have_second_derivatives_of_one_side(tau, told):
    """Rates in proportion to the state take a part of it away, sooner or later."""
    problem = ds.DDE(
        lambda t, u, z, p: p[0] * u * (1.0 - z[0]),
        1,
        ["growth", "tau", "part"],
        delays="tau",
        history=[0.8],
        events=[ds.Event(time, lambda t, u, p: u * (1.0 - p[2])) for time in (1.0, 2.0)],
    )
    x, stepping = np.array([1.1, tau, 0.2]), ds.Stepping((0.0, 3.3), "rk8vr", dt=0.1)
    way = np.array([0.0, 1.0, 0.0])

    def gradient(length):
        return ds.adjoint(ds.solve(problem, [0.8], x + length * way, stepping), COST).p

    slopes = [one_way(gradient, 0.0, h) for h in (1e-3, -1e-3)]
    run = ds.solve(problem, [0.8], x, stepping)
    if told:
        with pytest.warns(KinkWarning, match='second derivatives are those (.|\n)*of "tau"'):
            product = ds.hessian_product(run, COST, dp=way)
        assert np.abs(slopes[0] - slopes[1]).max() > 1e-2
    else:
        product = ds.hessian_product(run, COST, dp=way)
        np.testing.assert_allclose(product.p, slopes[1], atol=1e-6)
    np.testing.assert_allclose(product.p, slopes[0], atol=1e-6)


def test_a_jump_of_the_history_that_longer_delays_bring_into_the_run():
    problem = ds.DDE(
        lambda t, u, z, p: z[0],
        1,
        ["b", "tau"],
        delays="tau",
        history=lambda t, p: np.array([1.0 + np.where(t < -0.4, p[0], 0.0)]),
        breakpoints=[-0.4],
    )
    run = ds.solve(problem, [1.0], [0.5, 0.4], ds.Stepping((0.0, 0.3), "rk4", dt=0.1), [0.0])
    with pytest.warns(KinkWarning, match="meet at t = 0, and their order matters"):
        gradient = ds.adjoint(run, COST)
    assert gradient.value == pytest.approx(1.3, rel=1e-12)
    np.testing.assert_allclose(gradient.p, [0.0, 0.5], atol=1e-12)
    assert run(0.0).array[0] == 1.0
    with pytest.warns(KinkWarning, match="meet at t = 0, and their order matters"):
        start = ds.adjoint(run, ds.LeastSquares([0.0], [[0.0]]))
    np.testing.assert_allclose([*start.u0, *start.p], [1.0, 0.0, 0.0])


@pytest.mark.parametrize("far", [False, True])
def test_costs_at_the_time_when_a_jump_comes_back_have_derivatives_of_one_side(far):
    """Here u(1) is tau up to tau = 1, and 1 from there on."""
    problem = ds.DDE(lambda t, u, z, p: -z[0], 1, ["tau"], delays="tau", history=[0.0])
    cost = ds.LeastSquares([1.0 + 0.1 * far, 2.0], [0.0, 0.0], sigma=1.0)
    run = ds.solve(problem, [1.0], [1.0], ds.Stepping((0.0, 2.5), "rk5ts", dt=0.1), cost.times)
    told = nullcontext() if far else pytest.warns(KinkWarning, match="meet at t = 1,")
    with told:
        gradient = ds.adjoint(run, cost)
    assert gradient.p[0] == pytest.approx(0.9 if far else 0.0, abs=1e-12)


END = ds.Stepping((0.0, 1.0), "rk5ts", dt=0.1)


def linear(history, breakpoints=(), events=()):
    """Return u' = -u(t - tau), with parts of the history at parameters."""
    return ds.DDE(
        lambda t, u, z, p: -z[0],
        1,
        ["tau"],
        delays="tau",
        history=history,
        breakpoints=breakpoints,
        events=events,
    )


@pytest.mark.parametrize(
    ("problem", "start", "tau"),
    [
        (linear([0.0]), 1.0, 1.0),
        (linear(lambda t, p: np.array([0.0 + (t > -0.4)]), [-0.4]), 1.0, 1.4),
        (linear([0.0], events=[ds.Event(0.6, lambda t, u, p: u + 1.0)]), 0.0, 0.4),
    ],
    ids=["start", "history", "event"],
)
def test_a_jump_that_comes_back_at_the_end_is_told(problem, start, tau):
    """Here u(1) is less by what is left of the time after the jump has come back, or it has not."""
    run = ds.solve(problem, [start], [tau], END, [0.7])
    with pytest.warns(KinkWarning, match="meet the end of the run, t = 1, and .*: derivatives"):
        gradient = ds.adjoint(run, COST)
    sooner = ds.adjoint(ds.solve(problem, [start], [tau - 1e-3], END), COST)
    later = ds.adjoint(ds.solve(problem, [start], [tau + 1e-3], END), COST)
    assert abs(sooner.p[0] - 1.0) < 1e-9
    assert abs(gradient.p[0] - later.p[0]) < 1e-9
    with pytest.warns(KinkWarning, match="meet the end of the run"):
        ds.tangent(run, dp=[1.0])
    # what is seen before knows nothing of it
    ds.adjoint(run, ds.LeastSquares([0.7], [0.0], sigma=1.0))


def test_a_kink_that_comes_back_at_the_end_has_second_derivatives_of_one_side():
    """Here u(1) is (1 - tau)^2 / 2 for delays below 1, and 0 above."""
    problem = linear([1.0])
    run = ds.solve(problem, [1.0], [1.0], END)
    ds.adjoint(run, COST)  # its first ones are zero on both sides
    with pytest.warns(KinkWarning, match="meet the end of the run, t = 1, .*: second derivatives"):
        product = ds.hessian_product(run, COST, dp=[1.0])
    other = ds.hessian_product(ds.solve(problem, [1.0], [0.999], END), COST, dp=[1.0])
    np.testing.assert_allclose([product.p[0], other.p[0]], [0.0, 1.0], atol=1e-9)


def test_what_comes_back_at_the_end_without_a_jump_is_not_told():
    """A third derivative that jumps, and a delay that stays."""
    run = ds.solve(linear([1.0]), [1.0], [0.5], END)
    ds.adjoint(run, COST)
    ds.hessian_product(run, COST, dp=[1.0])
    fixed = ds.DDE(lambda t, u, z, p: -p[0] * z[0], 1, ["rate"], delays=1.0, history=[0.0])
    ds.adjoint(ds.solve(fixed, [1.0], [1.0], END), COST)
