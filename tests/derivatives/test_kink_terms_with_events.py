"""What kinks contribute to second derivatives of runs with events, beside closed forms.

A car goes by x' = 1 + a max(x - c, 0) + b max(x - d, 0), hops by k where it is at e, and is done at
x = 4.  Its time is a sum of logarithms, one for each piece between kinks and hop.
"""

import re
import warnings
from functools import cache
from itertools import pairwise

import mpmath
import numpy as np
import pytest

import daeosens as ds
from daeosens.errors import KinkWarning

NAMES = ["a", "b", "c", "d", "e", "k"]
END, DECAY = 4.0, 0.3
COST = ds.costs.AtEvent(lambda t, u, p: t + u[1], "end")


def rate(t, u, p):
    speed = 1.0 + p[0] * np.maximum(u[0] - p[2], 0.0) + p[1] * np.maximum(u[0] - p[3], 0.0)
    return np.array([speed, -DECAY * u[1]])


def hopped(t, u, p):
    return np.array([u[0] + p[5], u[1] * p[5]])


def car(make):
    hop = ds.Event(lambda t, u, p: u[0] - p[4], reset=hopped, direction=1, name="hop")
    return make(
        rate,
        2,
        NAMES,
        events=[hop, ds.Event(lambda t, u, p: u[0] - END, terminal=True, name="end")],
    )


CARS = {make: car(make) for make in (ds.ODE, ds.trace)}
ORDINARY = [0.2, 0.8, 0.7, -0.4, 1.0, 2.5, 1.6, 0.35]
PLACES = {
    "a kink on each side of the hop": {},
    "both before it": {"d": 1.3},
    "both behind it": {"e": 0.5},
    "where the run begins": {"x": 1.0 - 1e-6},
    "shortly behind the beginning": {"x": 1.0 - 1e-3},
    "shortly before the end": {"d": END - 1e-2},
    "shortly behind the hop": {"e": 0.65 - 1e-3},
}


def point(place):
    names = ["x", "w", *NAMES]
    return [PLACES[place].get(n, x) for n, x in zip(names, ORDINARY, strict=True)]


def exact(x, w, a, b, c, d, e, k):
    def time(low, high):
        ends = [low, *sorted(knot for knot in (c, d) if low < knot < high), high]
        total = mpmath.mpf(0)
        for begin, end in pairwise(ends):
            middle = (begin + end) / 2
            slopes = [(s, knot) for s, knot in ((a, c), (b, d)) if middle > knot]
            first, last = (1 + sum(s * (y - knot) for s, knot in slopes) for y in (begin, end))
            slope = sum(s for s, _ in slopes)
            total += mpmath.log(last / first) / slope if slopes else end - begin
        return total

    duration = time(x, e) + time(e + k, mpmath.mpf(END))
    return duration + w * k * mpmath.exp(-DECAY * duration)


@cache
def exact_hessian(*at):
    hessian = np.empty((8, 8))
    with mpmath.workdps(50):
        for i, j in zip(*np.tril_indices(8), strict=True):
            orders = tuple(int(n == i) + int(n == j) for n in range(8))
            slope = mpmath.diff(exact, tuple(map(mpmath.mpf, at)), orders, h=mpmath.mpf(10) ** -15)
            hessian[i, j] = hessian[j, i] = float(slope)
    return hessian


def products_at(at, make, method, rtol):
    stepping = ds.Stepping((0.0, 50.0), method, rtol=rtol)
    run = ds.solve(CARS[make], at[:2], at[2:], stepping)
    every = np.eye(8)
    products = ds.hessian_product(run, COST, every[:, :2], every[:, 2:])
    return np.array([np.concatenate([product.u0, product.p]) for product in products])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", CARS)
@pytest.mark.parametrize(
    ("method", "rtol", "error"),
    [
        ("rk5dp", 1e-8, 2e-6),
        ("rk6vr", 1e-11, 1e-9),
        ("rk8vr", 1e-12, 1e-10),
        ("esdirk5", 1e-8, 3e-6),
        ("esdirk6", 1e-11, 1e-8),
    ],
)
@pytest.mark.parametrize("place", PLACES)
def test_the_hessian_of_a_time_is_that_of_logarithms(place, method, rtol, error, make):
    with warnings.catch_warnings(record=True) as told:
        warnings.filterwarnings("always", "the steps follow the states, and entries of a product")
        found = products_at(point(place), make, method, rtol)
    expected = exact_hessian(*point(place))
    if told:  # of products that are small beside others, and as wrong
        sizes = np.abs(expected) * point(place)
        sizes = np.maximum(sizes, 0.01 * sizes.max(axis=1, keepdims=True))
        errors = np.abs(found - expected) * point(place)
        wrong = float(np.max(errors[sizes > 0.0] / sizes[sizes > 0.0]))  # some rows are zero
        percent = re.search(r"by about ([0-9.e-]+) %", str(told[0].message))
        assert percent is not None
        assert wrong / 3.0 < 0.01 * float(percent[1]) < 3.0 * wrong
    scale = np.abs(expected).max()
    # Newton's method leaves as much of short implicit steps
    assert np.abs(found - found.T).max() < (1e-11 if "esdirk" in method else 1e-12) * scale
    np.testing.assert_allclose(found, expected, atol=error * scale, rtol=0.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("distance", [1e-1, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize(("method", "rtol"), [("rk6vr", 1e-6), ("rk6vr", 1e-12), ("rk8vr", 1e-12)])
def test_kinks_soon_after_the_start_are_seen(distance, method, rtol):
    """Where all steps are short: rounding hid them, or steps of 1e-15 were taken for none."""
    at = [1.0 - distance, *ORDINARY[1:]]
    expected = exact_hessian(*at)
    found = products_at(at, ds.trace, method, rtol)
    np.testing.assert_allclose(found, expected, atol=100 * rtol * np.abs(expected).max(), rtol=0.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", CARS)
def test_of_a_start_on_a_kink_the_side_of_the_run_is_meant(make):
    """The start goes on to larger x: second derivatives are those of starts there."""
    at = [1.0, *ORDINARY[1:]]
    behind, before = (exact_hessian(1.0 + side * 1e-9, *at[1:]) for side in (1.0, -1.0))
    assert abs(behind - before)[0, 0] > 0.6
    found = products_at(at, make, "rk8vr", 1e-12)
    np.testing.assert_allclose(found, behind, atol=1e-8 * np.abs(behind).max(), rtol=0.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", CARS)
@pytest.mark.parametrize("method", ["rk8vr", "esdirk6"])
def test_remainders_are_of_third_order_as_kinks_move(make, method):
    """Of runs that have their steps, kinks and events at other times."""
    at, rtol = np.array(point("shortly before the end")), 1e-12
    at[5] = 3.5
    along = np.array([0.3, -0.2, 0.5, 0.4, -0.6, 0.5, 0.2, -0.3])
    stepping = ds.Stepping((0.0, 50.0), method, rtol=rtol)

    def run_at(x):
        return ds.solve(CARS[make], x[:2], x[2:], stepping)

    run = run_at(at)
    gradient = ds.adjoint(run, COST)
    product = ds.hessian_product(run, COST, along[:2], along[2:])
    first = np.concatenate([gradient.u0, gradient.p]) @ along
    second = np.concatenate([product.u0, product.p]) @ along
    steps = 0.04 / 2.0 ** np.arange(4)
    left = [
        abs(
            ds.adjoint(run_at(at + h * along), COST).value
            - gradient.value
            - h * first
            - 0.5 * h**2 * second
        )
        for h in steps
    ]
    orders = np.log2(np.divide(left[:-1], left[1:]))
    assert np.all(np.abs(orders - 3.0) < 0.15), orders


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", CARS)
def test_products_are_dual(make):
    """Duality of the second order: w.H v by the product with v and by that with w."""
    rng = np.random.default_rng(5)
    v, w = rng.standard_normal((2, 8))
    run = ds.solve(CARS[make], ORDINARY[:2], ORDINARY[2:], ds.Stepping((0.0, 50.0), rtol=1e-8))
    left, right = (
        np.concatenate([product.u0, product.p]) @ other
        for product, other in zip(
            ds.hessian_product(run, COST, [v[:2], w[:2]], [v[2:], w[2:]]), (w, v), strict=True
        )
    )
    assert left == pytest.approx(right, rel=1e-12)


PLACES_OF_THE_ROAD = np.array([0.0, 1000.0, 2200.0, 3000.0, 4500.0, 6000.0])
SLOPES = np.array([0.0, 0.02, 0.06, -0.03, 0.01, 0.0])


def cyclist(t, u, p):
    """Return the rates of place, speed and what is left of the anaerobic reserve."""
    slope = np.interp(u[0], PLACES_OF_THE_ROAD, SLOPES)
    power = p[2] * (1.0 + 3.0 * slope)
    force = power / u[1] - 0.6 * p[1] * u[1] ** 2 - p[0] * 9.81 * (slope + 0.004)
    reserve = np.where(power > p[3], p[3] - power, (p[3] - power) * (1.0 - u[2] / 20000.0))
    return np.array([u[1], force / p[0], reserve])


BY_PLACE = np.array(
    [
        -1.878802910e-05,
        -7.592277296e-05,
        2.500374692e-08,
        -2.787730772e-05,
        -9.479151433e-02,
        1.132793646e-04,
        2.946843161e-06,
    ]
)
BY_POWER = np.array(
    [
        1.132793646e-04,
        2.823286979e-03,
        7.674670998e-06,
        -1.002598950e-02,
        -6.132525682e-01,
        -5.670705801e-03,
        1.245200225e-02,
    ]
)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_a_cyclist_on_hills(make):
    """Seven kinks before the goal; beside runs over x, where those of the road stay at their place.

    By mpmath with 40 digits: dv/dx = F / (m v), pieces between kinks, differences of 1e-9.
    """
    model = make(
        cyclist,
        3,
        ["mass", "drag", "power", "critical"],
        events=[ds.Event(lambda t, u, p: u[0] - 5000.0, terminal=True, name="goal")],
    )
    run = ds.solve(
        model, [0.0, 5.0, 20000.0], [80.0, 0.32, 280.0, 285.0], ds.Stepping((0.0, 3e3), rtol=1e-8)
    )
    cost = ds.costs.AtEvent(lambda t, u, p: t + 1e-3 * u[2], "goal")
    every = np.eye(7)
    products = ds.hessian_product(run, cost, every[[0, 5], :3], every[[0, 5], 3:])
    by_place, by_power = (np.concatenate([product.u0, product.p]) for product in products)
    sizes = np.array([10.0, 1.0, 1000.0, 80.0, 0.32, 280.0, 285.0])
    for product, expected in ((by_place, BY_PLACE), (by_power, BY_POWER)):
        scaled = np.abs(expected * sizes).max()
        np.testing.assert_allclose(product * sizes, expected * sizes, atol=2e-6 * scaled, rtol=0.0)


@pytest.mark.parametrize("make", CARS)
def test_steps_that_move_with_an_event_have_no_term_and_say_so(make):
    """Fixed steps do not end at kinks; those behind an event follow its time."""
    run = ds.solve(CARS[make], ORDINARY[:2], ORDINARY[2:], ds.Stepping((0.0, 50.0), "rk4", dt=0.05))
    with pytest.warns(KinkWarning, match="lack what the moving time of that change contributes"):
        ds.hessian_product(run, COST, [1.0, 0.0])
