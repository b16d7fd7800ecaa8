"""Tables of times and ramps: steps end at their rows, and keep the order of the method."""

import itertools
import math
import warnings

import numpy as np
import pytest

import daeosens as ds

ROWS = np.arange(25.0)
NOISE = np.random.default_rng(4).normal(size=ROWS.size)
LAST = ds.Terminal(lambda t, u, p: u[0])


def exact(rows, values, end, rate=0.4, gain=1.3, start=0.7):
    """Return u(end) of u' = -rate u + gain T(t), T straight between rows, and du/dgain."""
    response = 0.0
    for n in range(len(rows) - 1):
        h = rows[n + 1] - rows[n]
        slope = (values[n + 1] - values[n]) / h
        decay = np.exp(-rate * h)
        # the integral of exp(-rate (h - s)) (T_n + slope s) over s in [0, h]
        mean = values[n] * (1.0 - decay) / rate
        grows = slope * (h / rate - (1.0 - decay) / rate**2)
        response = decay * response + mean + grows
    return np.exp(-rate * end) * start + gain * response, response


def fed(rows, values):
    """Return u' = -rate u + gain T(t)."""
    return lambda t, u, p: np.array([-p[0] * u[0] + p[1] * np.interp(t, rows, values)])


def as_problem(style, rhs):
    if style == "traced":
        return ds.trace(rhs, 1, ["rate", "gain"])
    return ds.ODE(rhs, 1, ["rate", "gain"])


@pytest.mark.parametrize("style", ["NumPy", "traced"])
@pytest.mark.parametrize("method", ["rk6vr", "esdirk5", "auto"])
def test_steps_end_at_rows_of_tables_and_keep_their_order(style, method):
    problem = as_problem(style, fed(ROWS, NOISE))
    value, by_gain = exact(ROWS, NOISE, ROWS[-1])
    stepping = ds.Stepping((0.0, ROWS[-1]), method, rtol=1e-8)
    run = ds.solve(problem, [0.7], [0.4, 1.3], stepping)
    assert np.isin(ROWS, run.times).all()
    of_a_row = 12 if method == "esdirk5" else 8
    assert run.n_steps < of_a_row * ROWS.size  # steps that pass rows are hundreds
    gradient = ds.adjoint(run, LAST)
    np.testing.assert_allclose([run.u[-1, 0], gradient.p[1]], [value, by_gain], rtol=3e-8)


@pytest.mark.parametrize("style", ["NumPy", "traced"])
def test_many_rows_are_hit_where_steps_are_as_short(style):
    rows = np.linspace(0.0, 100.0, 401)
    values = np.random.default_rng(5).normal(size=rows.size)
    problem = as_problem(style, fed(rows, values))
    run = ds.solve(problem, [0.7], [0.4, 1.3], ds.Stepping((0.0, 100.0), "rk6vr", rtol=1e-7))
    assert np.isin(rows, run.times).all()
    assert run.n_steps < 2 * rows.size
    assert run.u[-1, 0] == pytest.approx(exact(rows, values, 100.0)[0], rel=1e-7)


@pytest.mark.parametrize("start", [0.7, 4000.0])
def test_many_rows_of_what_is_smooth_do_not_shorten_steps(start):
    """Also after a transient of many steps between two of them."""
    rows = np.linspace(0.0, 20.0, 20_001)
    problem = ds.ODE(
        lambda t, u, p: np.array(
            [-p[0] * u[0] * np.sqrt(1.0 + u[0] ** 2) + p[1] * np.interp(t, rows, np.sin(rows) ** 2)]
        ),
        1,
        ["rate", "gain"],
    )
    run = ds.solve(problem, [start], [0.4, 1.3], ds.Stepping((0.0, 20.0), "rk6vr", rtol=1e-5))
    assert run.n_steps < 400


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("heights", [np.ones(9), NOISE[:9]])
def test_steps_end_at_knots_of_a_control(make, heights):
    """Equal heights show no kink in the state, but in its derivative by each of them."""
    knots = np.linspace(0.0, 8.0, 9)
    control = ds.problem.PiecewiseLinear(knots)

    def steered(t, u, p):
        return np.stack([-0.4 * u[0] + 1.3 * control(t, p[:])])

    problem = make(steered, 1, control.names("height"))
    run = ds.solve(problem, [0.7], heights, ds.Stepping((0.0, 8.0), rtol=1e-8))
    assert np.isin(knots, run.times).all()
    by_heights = [1.3 * exact(knots, hat, 8.0)[1] for hat in np.eye(9)]
    np.testing.assert_allclose(ds.adjoint(run, LAST).p, by_heights, rtol=1e-7)


def by_coefficients(control, rate, end, gain=1.0):
    """Return the integrals of gain exp(-rate (end - t)) B_k(t), by Gauss's rule in each piece."""
    places, weights = np.polynomial.legendre.leggauss(20)
    total = 0.0
    for first, last in itertools.pairwise(control.knots):
        times = 0.5 * (first + last) + 0.5 * (last - first) * places
        for t, weight in zip(times, 0.5 * (last - first) * weights, strict=True):
            total = total + weight * gain * np.exp(-rate * (end - t)) * control.gradient(t)
    return total


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("pieces", [3, 40])
@pytest.mark.parametrize("stepping", [{"rtol": 1e-8}, {"method": "rk8vr", "dt": 0.3}])
def test_knots_of_controls_are_breakpoints_by_themselves(make, degree, pieces, stepping):
    """Gradients and Hessian products of (u(8) - 2)^2; of equal coefficients too, whatever steps."""
    knots = np.cumsum(np.random.default_rng(3).uniform(0.5, 1.5, pieces + 1))
    knots = 8.0 * (knots - knots[0]) / np.ptp(knots)
    control = ds.problem.Spline(knots, degree)

    def steered(t, u, p):
        return np.stack([-0.4 * u[0] + 1.3 * control(t, p[:])])

    by_p = by_coefficients(control, 0.4, 8.0, 1.3)
    direction = np.cos(np.arange(control.size))
    cost = ds.Terminal(lambda t, u, p: (u[0] - 2.0) ** 2)
    problem = make(steered, 1, control.names("c"))
    for p in (np.ones(control.size), np.sin(3.0 * np.arange(control.size))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = ds.solve(problem, [0.7], p, ds.Stepping((0.0, 8.0), **stepping))
            gradient, product = ds.adjoint(run, cost), ds.hessian_product(run, cost, dp=direction)
        assert np.isin(knots, run.times).all()
        last = 0.7 * np.exp(-3.2) + by_p @ p
        scale = np.abs(by_p).max()
        np.testing.assert_allclose(
            gradient.p, 2.0 * (last - 2.0) * by_p, atol=1e-6 * scale, rtol=1e-6
        )
        np.testing.assert_allclose(
            product.p, 2.0 * (by_p @ direction) * by_p, atol=1e-6 * scale, rtol=1e-6
        )


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_knots_of_a_control_that_comes_again_are_breakpoints(make):
    """Of a day's schedule for three days."""
    day = ds.problem.PiecewiseConstant([0.0, 7.3, 21.0, 24.0])

    def house(t, u, p):
        return np.stack([0.1 * (day(t % 24.0, p[:]) - u[0])])

    run = ds.solve(
        make(house, 1, day.names("level")), [15.0], [1.0] * 3, ds.Stepping((0.0, 72.0), rtol=1e-9)
    )
    ends = np.add.outer([0.0, 24.0, 48.0], [0.0, 7.3, 21.0, 24.0])
    shares = np.diff(np.exp(-0.1 * (72.0 - ends)), axis=1).sum(axis=0)
    np.testing.assert_allclose(ds.adjoint(run, LAST).p, shares, rtol=1e-7)


@pytest.mark.parametrize("make", [ds.DDE, ds.trace])
def test_knots_of_controls_in_delay_equations(make):
    """Steps of u' = c(t) - r u(t - tau) follow the delay: differences of a closed form."""
    control = ds.problem.PiecewiseConstant([0.0, 1.5, 2.5, 4.0])

    def rhs(t, u, z, p):
        return np.stack([control(t, p[2:]) - p[0] * z[0, 0]])

    def exact(p):
        """Return u(4), 1 before 0, by as many integrals as delays fit in."""
        rate, tau, levels = p[0], p[1], p[2:]
        forced = np.array([0.0, 1.5, 2.5])
        jumps, value = np.diff(levels, prepend=0.0), 0.0
        for n in range(8):
            # the answer to 1 at t = 0: sum of (-rate)^n (t - n tau)_+^n / n!
            reach = np.maximum(4.0 - n * tau, 0.0)
            value += (-rate) ** n * reach**n / math.factorial(n)
            after = np.maximum(4.0 - forced - n * tau, 0.0)
            value += jumps @ ((-rate) ** n * after ** (n + 1) / math.factorial(n + 1))
        # the history is 1 for t <= 0: rate for the first tau
        for n in range(8):
            k = n + 1
            parts = [np.maximum(4.0 - s - n * tau, 0.0) ** k for s in (0.0, tau)]
            value -= rate * (-rate) ** n * (parts[0] - parts[1]) / math.factorial(k)
        return value

    p = np.array([0.8, 0.7, 1.0, 1.0, 1.0])
    names = ["rate", "lag", *control.names("c")]
    problem = make(rhs, 1, names, delays=["lag"], history=[1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = ds.solve(problem, [1.0], p, ds.Stepping((0.0, 4.0), rtol=1e-9))
        gradient = ds.adjoint(run, LAST)
    steps = 1e-5 * np.eye(5)
    slopes = [(exact(p + step) - exact(p - step)) / 2e-5 for step in steps]
    assert run.u[-1, 0] == pytest.approx(exact(p), rel=1e-8)
    np.testing.assert_allclose(gradient.p, slopes, rtol=1e-7)


def test_rows_that_a_parameter_moves_are_passed_as_kinks():
    """Also where such a row lies on one that stays; derivatives in the delay of a table are right.

    A step's end at it has f_p of the other side.
    """

    def rhs(t, u, p):
        return [-p[1] * u[0] + np.interp(t - p[0], ROWS, NOISE) + np.interp(t, ROWS, NOISE)]

    lag = 1e-6
    moved = np.union1d(ROWS, ROWS[:-1] + lag)
    sums = np.interp(moved - lag, ROWS, NOISE) + np.interp(moved, ROWS, NOISE)
    shifted, still = (
        exact(*table, ROWS[-1], gain=1.0)[0] for table in ((moved, sums), (ROWS, 2.0 * NOISE))
    )
    run = ds.solve(
        ds.trace(rhs, 1, ["lag", "rate"]),
        [0.7],
        [0.0, 0.4],
        ds.Stepping((0.0, ROWS[-1]), "rk6vr", rtol=1e-8),
    )
    assert ds.adjoint(run, LAST).p[0] == pytest.approx((shifted - still) / lag, rel=1e-4)


@pytest.mark.parametrize("method", ["rk6vr", "esdirk5"])
def test_kinks_of_derivatives_in_parameters_at_ends_of_steps_are_seen(method):
    """There f_p jumps, f_u does not: a last stage would have the derivative of the other side."""

    def rhs(t, u, p):
        return [-0.3 * u[0] + np.interp(t - p[0], ROWS, NOISE)]

    problem = ds.trace(rhs, 1, ["lag"])
    stepping = ds.Stepping((0.0, 20.0), method, rtol=1e-8)
    free = ds.solve(problem, [0.7], [0.3], stepping)
    hit = ds.solve(problem, [0.7], [0.3], stepping, t_eval=ROWS[1:20] + 0.3)
    left, right = (float(ds.adjoint(run, LAST).p[0]) for run in (free, hit))
    assert left == pytest.approx(right, rel=1e-6)


@pytest.mark.parametrize("method", ["rk5dp", "esdirk4"])
def test_few_rows_beside_other_branches(method):
    """Of few points what decides is asked one by one."""
    rows, values = np.linspace(0.0, 4.0, 9), np.cos(3.0 * np.arange(9.0))

    def rhs(t, u, p):
        return np.array([-p[0] * u[0] + np.interp(t, rows, values), u[0] - np.maximum(u[1], p[1])])

    last, results = ds.Terminal(lambda t, u, p: u[0] + u[1]), []
    for model in (ds.ODE(rhs, 2, 2), ds.trace(rhs, 2, ["rate", "least"])):
        run = ds.solve(model, [0.1, 0.2], [0.8, 0.25], ds.Stepping((0.0, 4.0), method, rtol=1e-7))
        assert np.isin(rows, run.times).all()
        results.append(ds.adjoint(run, last).p)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


def test_controls_of_sensitivities_and_events_hit_rows_too():
    bounce = ds.Event(lambda t, u, p: u[0] - 0.9, name="level")
    for problem, stepping in (
        (ds.ODE(fed(ROWS, NOISE), 1, ["rate", "gain"]), {"control": "sensitivities"}),
        (ds.ODE(fed(ROWS, NOISE), 1, ["rate", "gain"], events=[bounce]), {}),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = ds.solve(
                problem,
                [0.7],
                [0.4, 1.3],
                ds.Stepping((0.0, ROWS[-1]), "rk6vr", rtol=1e-6, **stepping),
            )
        assert np.isin(ROWS, run.times).all()
        value, by_gain = exact(ROWS, NOISE, ROWS[-1])
        gradient = ds.adjoint(run, LAST)
        np.testing.assert_allclose([run.u[-1, 0], gradient.p[1]], [value, by_gain], rtol=1e-6)


@pytest.mark.parametrize(
    "stepping", [ds.Stepping((0.0, 1.0), rtol=1e-8), ds.Stepping((0.0, 1.0), "rk4", dt=0.1)]
)
def test_controls_that_parameters_choose_have_their_knots_in_each_run(stepping):
    """Knots of the first run alone left gradients of others wrong by 8e-3, in silence."""
    early, late = (ds.problem.PiecewiseConstant([0.0, knot, 1.0]) for knot in (0.4, 0.731))

    def rate(t, u, p):
        return (early if p[2] > 0 else late)(t, p[:2]) - u

    problem = ds.ODE(rate, 1, 3)
    for choice, knot in ((1.0, 0.4), (-1.0, 0.731), (1.0, 0.4)):
        run = ds.solve(problem, [0.0], [1.0, 1.0, choice], stepping)
        gradient = ds.adjoint(run, LAST).p
        exact = [np.exp(knot - 1.0) - np.exp(-1.0), 1.0 - np.exp(knot - 1.0), 0.0]
        np.testing.assert_allclose(gradient, exact, atol=1e-6)
