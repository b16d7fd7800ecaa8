"""What the moving times of kinks contribute to second derivatives, beside events on the kinks."""

from itertools import pairwise

import mpmath
import numpy as np
import pytest

import daeosens as ds
from daeosens.errors import KinkWarning

STEPPING = ds.Stepping((0.0, 6.0), "rk8vr", rtol=1e-10)
START, RATES = [1.0, 0.3], [1.1, 0.7, 0.4]
POINT, ALONG = ([0.2, -0.5], [0.3, 0.6, -0.4]), ([1.0, 0.4], [-0.5, 0.2, 1.0])
COST = ds.Terminal(lambda t, u, p: u[0] ** 2 + p[0] * u[1])


def surface(t, u, p):
    """Return what changes its sign six times, and follows time, state and parameters."""
    return u[0] - p[2] * np.cos(0.3 * t)


def stopper(t, u, p):
    """Return the rate of an oscillator with a stop that is driven, and coupled by friction."""
    push = np.maximum(surface(t, u, p), 0.0)
    return np.array([u[1] - 0.3 * p[0] * push, -p[0] * u[0] - p[1] * push * (1.0 + u[1])])


def compared(t, u, p):
    """Return the same, of two numbers that are compared with each other."""
    push = u[0] - np.minimum(u[0], p[2] * np.cos(0.3 * t))
    return np.array([u[1] - 0.3 * p[0] * push, -p[0] * u[0] - p[1] * push * (1.0 + u[1])])


def products(problem, *directions, engine="auto"):
    run = ds.solve(problem, START, RATES, STEPPING)
    return [ds.hessian_product(run, COST, *each, engine=engine) for each in directions]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rhs", [stopper, compared])
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("engine", ["vectors", "arrays", "auto"])
def test_products_are_those_with_events_on_the_kinks(rhs, make, engine):
    names = ["stiffness", "stop", "clearance"]
    (product,) = products(make(rhs, 2, names), POINT, engine=engine)
    with_events = make(stopper, 2, names, events=[ds.Event(surface)])
    (expected,) = products(with_events, POINT)
    assert np.allclose(product.u0, expected.u0, rtol=3e-8, atol=3e-8)
    assert np.allclose(product.p, expected.p, rtol=3e-8, atol=3e-8)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_the_hessian_is_symmetric(make):
    one, other = products(make(stopper, 2, 3), POINT, ALONG)
    left = one.u0 @ ALONG[0] + one.p @ ALONG[1]
    right = other.u0 @ POINT[0] + other.p @ POINT[1]
    assert left == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_products_are_derivatives_of_gradients(make):
    """Of runs that have their kinks at other times, to the error of a difference."""
    problem = make(stopper, 2, 3)
    (product,) = products(problem, POINT)

    def gradient(x):
        u0, p = (np.add(a, x * np.array(b)) for a, b in zip((START, RATES), POINT, strict=True))
        swept = ds.adjoint(ds.solve(problem, u0, p, STEPPING), COST)
        return np.concatenate([swept.u0, swept.p])

    slopes = [(gradient(x) - gradient(-x)) / (2.0 * x) for x in (2e-3, 1e-3)]
    difference = (4.0 * slopes[1] - slopes[0]) / 3.0
    assert np.allclose(np.concatenate([product.u0, product.p]), difference, rtol=1e-5, atol=1e-6)


def kicked(t, u, p):
    return np.array([u[0] + 0.1 * p[2], p[0] * u[1]])


EVENTS = {
    "at a given time": ds.Event(2.1, reset=kicked, name="kick"),
    "of the state": ds.Event(lambda t, u, p: u[1] + 0.2, reset=kicked, direction=-1, name="kick"),
    "of a parameter": ds.Event(
        2.1, changes={"stop": lambda t, u, p: 1.3 * p[1] + 0.1 * u[0]}, name="kick"
    ),
    "at the end": ds.Event(lambda t, u, p: t - 5.0 - p[2] * u[1], terminal=True, name="end"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("engine", ["vectors", "auto"])
@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_kinks_before_and_after_events(event, make, engine):
    names = ["stiffness", "stop", "clearance"]
    plain = make(stopper, 2, names, events=[event])
    product, other = products(plain, POINT, ALONG, engine=engine)
    with_events = make(stopper, 2, names, events=[ds.Event(surface), event])
    (expected,) = products(with_events, POINT)
    assert np.allclose(product.u0, expected.u0, rtol=3e-7, atol=3e-7)
    assert np.allclose(product.p, expected.p, rtol=3e-7, atol=3e-7)
    left = product.u0 @ ALONG[0] + product.p @ ALONG[1]
    right = other.u0 @ POINT[0] + other.p @ POINT[1]
    assert left == pytest.approx(right, rel=1e-11)


@pytest.mark.filterwarnings("error")
def test_many_kinks_of_one_comparison_are_all_brought_in():
    def bouncing(t, u, p):
        return np.array([u[1], -u[0] - p[0] * np.maximum(u[0], 0.0)])

    stepping = ds.Stepping((0.0, 40.0), "rk8vr", rtol=1e-10)
    run = ds.solve(ds.ODE(bouncing, 2, 1), [1.0, 0.0], [0.5], stepping)
    sides = np.sign(run.u[:, 0])
    assert sum(a != b for a, b in pairwise(sides)) > 12
    product = ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[0]), dp=[1.0])

    def last(x):
        """Half periods of pi and pi / w; amplitudes 1 on the stiff side and w on the other one."""
        w = np.sqrt(1.0 + x)
        t = np.fmod(40.0 + 0.5 * np.pi / w, np.pi + np.pi / w)
        return np.sin(w * t) if w * t < np.pi else -w * np.sin(t - np.pi / w)

    h = 1e-3
    values = [last(0.5 + k * h) for k in (-2, -1, 0, 1, 2)]
    exact = (-values[0] + 16 * values[1] - 30 * values[2] + 16 * values[3] - values[4]) / 12 / h**2
    assert product.p[0] == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    "push",
    [
        lambda u, p: np.maximum(u[0] - 1.0, 0.0) + np.maximum(u[1] - 1.0, 0.0),
        lambda u, p: np.maximum(u[0] - p[1], 0.0) + np.maximum(p[2] - u[0], 0.0),
    ],
)
def test_surfaces_that_are_crossed_at_one_time_are_told(push):
    def two(t, u, p):
        return np.array([p[0], p[0], -push(u, p)])

    stepping = ds.Stepping((0.0, 2.0), rtol=1e-8)
    run = ds.solve(ds.ODE(two, 3, 3), [0.2, 0.2, 0.0], [0.8, 1.0, 1.0], stepping)
    with pytest.warns(KinkWarning, match="a kink near t = 1"):
        ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[2]), [1.0, -1.0, 0.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_what_changes_sides_with_a_jump_of_time_alone_is_no_moving_change(make):
    """A lung whose pressure rises and drops: the flow turns by itself, and at the known time."""

    def lung(t, u, p):
        flow = np.where(t < 1.0, 2.0 * t, 0.0) - p[0] * u[0]
        return np.array([flow, np.minimum(flow, 0.0)])

    def breathed_out(v0, k):
        def volume(t):
            return 2 * t / k - 2 / k**2 + (v0 + 2 / k**2) * mpmath.exp(-k * t)

        turn = mpmath.findroot(lambda t: 2 * t - k * volume(t), 0.1)
        return volume(turn) - v0 + volume(mpmath.mpf(1)) * (mpmath.exp(-k) - 1)

    run = ds.solve(make(lung, 2, 1), [0.3, 0.0], [0.8], ds.Stepping((0.0, 2.0), rtol=1e-8))
    product = ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[1]), [1.0, 0.0], [0.5])
    with mpmath.workdps(30):
        by = {n: mpmath.diff(breathed_out, (0.3, 0.8), n) for n in [(2, 0), (1, 1), (0, 2)]}
    expected = [by[2, 0] + 0.5 * by[1, 1], by[1, 1] + 0.5 * by[0, 2]]
    assert np.allclose([product.u0[0], product.p[0]], np.array(expected, float), rtol=1e-6)


OBSERVED = [0.7, 1.9, 3.3, 4.7]
COSTS = {
    "residuals": ds.LeastSquares(OBSERVED, [[1.0, 0.5], [0.3, 0.2], [0.7, 0.1], [0.2, 0.9]]),
    "running": ds.Running(lambda t, u, p: u[0] ** 2 * p[1] + np.sin(t) * u[1]),
}


def follower(t, u, p):
    """What is above a level that moves decays."""
    level = p[1] * (1.0 + 0.9 * np.sin(2.0 * t))
    first = -3.0 * p[0] * np.maximum(u[0] - level, 0.0) + 0.4 * np.cos(t) * u[1]
    return np.array([first, 0.2 * u[0] * np.sin(2.0 * t) - p[2] * u[1]])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("cost", COSTS)
def test_surfaces_that_move_with_time_and_costs_along_the_run(make, cost):
    """Three kinks, and a last step that is cut short: beside differences of gradients."""
    model, objective = make(follower, 2, 3), COSTS[cost]
    start, p = np.array([1.6, 0.9]), np.array([1.3, 0.8, 0.25])
    stepping = ds.Stepping((0.0, 5.07), "rk8vr", rtol=1e-11)
    du, dp = np.array([0.7, -1.1]), np.array([0.4, 0.9, -0.3])

    def run_at(step):
        return ds.solve(model, start + step * du, p + step * dp, stepping, OBSERVED)

    def gradient(step):
        swept = ds.adjoint(run_at(step), objective)
        return np.concatenate([swept.u0, swept.p])

    product = ds.hessian_product(run_at(0.0), objective, du, dp)
    step = 2e-4
    near, far = (gradient(k * step) - gradient(-k * step) for k in (1, 2))
    difference = (8.0 * near - far) / (12.0 * step)
    np.testing.assert_allclose(
        np.concatenate([product.u0, product.p]), difference, atol=1e-7 * np.abs(difference).max()
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("beside", [0.0, 1e-16, 5e-16, -5e-16, 3e-15, 1e-13, -1e-11])
def test_a_kink_on_an_end_of_a_step_has_its_term(beside):
    """To rounding it is in either of two steps: it was looked for in one alone."""
    model = ds.ODE(lambda t, u, p: np.array([u[0] ** 0, p[1] * np.maximum(u[0] - p[0], 0.0)]), 2, 2)
    stepping = ds.Stepping((0.0, 1.0), "rk8vr", rtol=1e-8, t_eval=(0.5 + beside,))
    run = ds.solve(model, [0.0, 0.0], [0.5, 2.0], stepping)
    product = ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[1]), dp=[1.0, 0.0])
    # of p1 (1 - p0)^2 / 2
    np.testing.assert_allclose(product.p, [2.0, -0.5], atol=1e-6, rtol=0.0)
