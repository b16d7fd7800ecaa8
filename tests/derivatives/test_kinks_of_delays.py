"""Steps of delay equations end at kinks in states and in t: values and gradients are right."""

import warnings

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import daeosens as ds
from daeosens import DDE, Stepping, Terminal, adjoint, hessian_product, solve, tangent
from daeosens.errors import DiscretizationWarning, KinkWarning

LAST = Terminal(lambda t, u, p: u[0])
NAMES, P = ["power", "gain", "dead"], np.array([0.9, 2.0, 1.3])


def shower(t, u, z, p):
    """Someone turns a valve by the temperature that left it some time ago."""
    return p[0] * np.clip(p[1] * (1.0 - z[0]), 0.0, 1.0) - 0.3 * u


def temperature(p, start=0.2, end=9.0):
    """The last temperature by SciPy, which begins anew at kinks and their echoes."""
    power, gain, dead = p
    pieces, ends, u = [], [0.0], np.array([start])

    def late(t):
        if t <= dead:
            return 0.2
        number = min(int(np.searchsorted(ends, t - dead)) - 1, len(pieces) - 1)
        return float(pieces[number](t - dead)[0])

    echoes = np.arange(0.0, end, dead).tolist()
    waiting = sorted({*echoes[1:], end})
    while waiting:
        begin, stop = ends[-1], waiting.pop(0)
        grid = np.linspace(begin + 1e-9, min(stop, begin + 0.9 * dead) - 1e-9, 60)
        stop = min(stop, begin + 0.9 * dead)
        for level in (1.0, 1.0 - 1.0 / gain):
            values = np.array([late(t) - level for t in grid])
            for k in np.flatnonzero(values[:-1] * values[1:] < 0.0)[:1]:
                kink = brentq(lambda t, c=level: late(t) - c, grid[k], grid[k + 1], xtol=1e-15)
                stop = min(stop, kink)

        def rate(t, x):
            return power * np.clip(gain * (1.0 - late(t)), 0.0, 1.0) - 0.3 * x

        taken = solve_ivp(
            rate, (begin, stop), u, "DOP853", rtol=1e-12, atol=1e-13, dense_output=True
        )
        pieces.append(taken.sol)
        ends.append(stop)
        u = taken.y[:, -1]
        if stop < end:
            waiting = sorted({*waiting, *(t for t in (*echoes, end) if t > stop + 1e-9)})
            waiting = [*waiting, stop + dead] if stop + dead < end else waiting
            waiting.sort()
    return float(u[0])


def differences(function, x):
    """Central differences, extrapolated."""
    slopes = []
    for k in range(len(x)):
        of = []
        for h in (2e-3, 1e-3):
            step = h * np.eye(len(x))[k]
            of.append((function(x + step) - function(x - step)) / (2 * h))
        slopes.append((4 * of[1] - of[0]) / 3)
    return np.array(slopes)


@pytest.mark.slow
@pytest.mark.parametrize("make", [DDE, ds.trace])
@pytest.mark.parametrize(("method", "rtol"), [("rk5ts", 1e-6), ("rk8vr", 1e-8)])
def test_gradients_across_a_valve_that_opens_late(make, method, rtol):
    problem = make(shower, 1, NAMES, delays=["dead"], history=[0.2])
    run = solve(problem, [0.2], P, Stepping((0.0, 9.0), method, rtol=rtol))
    gradient = adjoint(run, LAST)
    assert gradient.value == pytest.approx(temperature(P), rel=10 * rtol)
    np.testing.assert_allclose(gradient.p, differences(temperature, P), rtol=20 * rtol)
    along = tangent(run, du0=[0.3], dp=[0.2, -1.0, 0.5])
    dual = 0.3 * gradient.u0[0] + gradient.p @ [0.2, -1.0, 0.5]
    assert along.derivative(LAST) == pytest.approx(dual, rel=1e-12)


def test_a_closed_form():
    """U' = a max(1 - u(t - tau), 0) from 0 is a tau + 1/2 at last; there is a kink at tau + 1/a."""
    problem = DDE(
        lambda t, u, z, p: p[0] * np.maximum(1.0 - z[0], 0.0),
        1,
        ["a", "tau"],
        delays=["tau"],
        history=[0.0],
    )
    run = solve(problem, [0.0], [1.7, 0.9], Stepping((0.0, 4.0), "rk5ts", rtol=1e-6))
    gradient = adjoint(run, LAST)
    assert gradient.value == pytest.approx(1.7 * 0.9 + 0.5, rel=1e-7)
    np.testing.assert_allclose(gradient.p, [0.9, 1.7], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [DDE, ds.trace])
def test_kinks_in_time_that_delays_pass(make):
    """U' = z - |sin 3 t| u, where steps follow a delay: compared with declared breakpoints."""

    def rhs(t, u, z, p):
        return p[0] * z[0] - np.abs(np.sin(3.0 * t)) * u

    known = (np.pi / 3 * np.arange(1, 5)).tolist()
    gradients = []
    for options in ({}, {"breakpoints": known}):
        problem = make(rhs, 1, ["a", "tau"], delays=["tau"], history=[1.0], **options)
        rtol = 1e-10 if options else 1e-7
        run = solve(problem, [1.0], [0.8, 0.55], Stepping((0.0, 4.5), "rk5ts", rtol=rtol))
        gradients.append(adjoint(run, LAST).p)
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-4)


@pytest.mark.slow
def test_pulses_between_the_stages_of_delay_equations():
    def rhs(t, u, z, p):
        return np.array([p[0] * z[0, 0] - u[0] + np.where(t % 5.0 < 0.02, p[1], 0.0)])

    stepping = Stepping((0.0, 12.0), "rk5ts", rtol=1e-6)
    problem = DDE(rhs, 1, 2, delays=[2.7], history=[0.0])
    edges = [0.02, 5.0, 5.02, 10.0, 10.02]
    known = DDE(rhs, 1, 2, delays=[2.7], history=[0.0], breakpoints=edges)
    runs = [solve(made, [0.0], [0.4, 30.0], stepping) for made in (problem, known)]
    gradients = [adjoint(run, LAST) for run in runs]
    assert gradients[0].value == pytest.approx(gradients[1].value, rel=1e-4)
    np.testing.assert_allclose(gradients[0].p, gradients[1].p, rtol=1e-4)


def test_smooth_delay_equations_keep_their_steps():
    def guarded(t, u, z, p):
        return np.maximum(p[0] * z[0] / (1.0 + z[0] ** 7), -5.0) - p[1] * u

    def plain(t, u, z, p):
        return p[0] * z[0] / (1.0 + z[0] ** 7) - p[1] * u

    stepping = Stepping((0.0, 20.0), "rk5ts", rtol=1e-6)
    counts = [
        solve(
            DDE(f, 1, ["a", "b", "tau"], delays=["tau"], history=[0.5]),
            [0.5],
            [2.0, 1.0, 2.0],
            stepping,
        ).n_steps
        for f in (guarded, plain)
    ]
    assert counts[0] == counts[1]


def test_hessian_products_lack_the_moving_time_and_tell():
    problem = DDE(shower, 1, NAMES, delays=["dead"], history=[0.2])
    run = solve(problem, [0.2], P, Stepping((0.0, 9.0), "rk5ts", rtol=1e-6))
    with pytest.warns(KinkWarning, match="products with the Hessian lack"):
        hessian_product(run, LAST, dp=[1.0, 0.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", KinkWarning)
        adjoint(run, LAST)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::daeosens.errors.KinkWarning")
@pytest.mark.parametrize("make", [DDE, ds.trace])
def test_misfits_of_a_start_and_a_history_that_follow_parameters(make):
    """A valve that is read late and driven in time; measurements that no parameters fit."""

    def driven(t, u, z, p):
        return p[0] * np.clip(p[1] * (1.0 + 0.2 * np.sin(t) - z[0]), 0.0, 1.0) - 0.3 * u

    problem = make(
        driven, 1, [*NAMES, "before"], delays=["dead"], history=lambda t, p: np.array([p[3]])
    )
    misfit = ds.LeastSquares([3.0, 7.0], [[1.5], [0.3]], 0.1)
    p = np.array([*P, 0.2])
    stepping = Stepping((0.0, 9.0), "rk5ts", rtol=1e-7)
    run = solve(problem, p[3:], p, stepping, t_eval=misfit.times)
    gradient = adjoint(run, misfit)
    rng = np.random.default_rng(3)
    (du, *dp), (dv, *dq) = rng.standard_normal((2, 5))
    along = tangent(run, du0=[du], dp=dp).derivative(misfit)
    assert along == pytest.approx(du * gradient.u0[0] + gradient.p @ dp, rel=1e-12)
    first = hessian_product(run, misfit, [du], dp)
    other = hessian_product(run, misfit, [dv], dq)
    assert dv * first.u0[0] + first.p @ dq == pytest.approx(
        du * other.u0[0] + other.p @ dp, rel=1e-11
    )
    # the whole derivative, against runs of much smaller errors
    entries = {name: ds.Parameter(x) for name, x in zip([*NAMES, "before"], p, strict=True)}
    control = ds.Parameters(entries, initial_state=lambda p: p[3:])
    ours = ds.Reduced(problem, misfit, stepping, control)
    finer = ds.Reduced(problem, misfit, Stepping((0.0, 9.0), "rk8vr", rtol=1e-10), control)

    def value(numbers):
        x = finer.start()
        x.setArray(numbers)
        return finer.value(x)

    np.testing.assert_allclose(
        ours.gradient(ours.start()).array, differences(value, p), rtol=3e-6, atol=3e-5
    )


def test_errors_and_taylor_tests_take_the_steps_of_runs_that_end_at_kinks():
    """Such steps once had other pieces between breaking points, which was a failed run."""
    problem = DDE(shower, 1, NAMES, delays=["dead"], history=[0.2])
    stepping = Stepping((0.0, 9.0), rtol=1e-6)
    error = ds.derivatives.derivative_error(solve(problem, [0.2], P, stepping), LAST)
    assert error.relative["p"] < 1e-4
    unknown = {name: ds.Parameter(value) for name, value in zip(NAMES, P, strict=True)}
    control = ds.Parameters(unknown, initial_state=[0.2])
    assert ds.taylor(ds.Reduced(problem, LAST, stepping, control)).passed


def test_kinks_whose_slopes_have_no_bound_are_told():
    """Steps end there, and are too long beside it: a tool that leaves what it cuts a turn ago."""

    def cut(t, u, z, p):
        chip = np.maximum(p[1] - u[0] + z[0, 0], 0.0)
        return np.array([u[1], -36.0 * u[0] - 0.36 * u[1] + p[0] * chip ** p[2]])

    stepping = Stepping((0.0, 4.0), rtol=1e-6)
    for power in (0.5, 1.0):
        # the first gradient of a problem is looked at
        problem = DDE(cut, 2, ["force", "feed", "power"], delays=[1.3], history=[0.0, 0.0])
        run = solve(problem, [0.0, 0.0], [20.0, 0.1, power], stepping)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            adjoint(run, LAST)
        assert [w.category for w in told] == ([KinkWarning] if power < 1.0 else [])


def cars(t, u, z, p):
    """Gaps and speeds of four that follow a leader who brakes; who drives reacts late."""
    gaps, speeds = z[0, :4], z[0, 4:]
    wanted = np.tanh((gaps - p[1]) / p[2]) + np.tanh(p[1] / p[2])
    wanted = p[0] * wanted / (1.0 + np.tanh(p[1] / p[2]))
    leader = np.interp(t, [0.0, 5.0, 8.0, 12.0, 20.0, 40.0], [15.0, 15.0, 8.0, 8.0, 14.0, 14.0])
    ahead = np.concatenate([np.array([leader]), u[4:-1]])
    return np.concatenate([ahead - u[4:], np.clip(p[3] * (wanted - speeds), -4.0, 2.0)])


@pytest.mark.parametrize("make", [DDE, ds.trace])
def test_no_warning_where_steps_end_at_kinks(make):
    """Kinks of a finer run are at times of their own, and its steps end there, too."""
    start, p = [25.0] * 4 + [15.0] * 4, [25.0, 25.0, 12.0, 0.9, 0.6]
    names = ["fastest", "gap", "width", "gain", "reaction"]
    problem = make(cars, 8, names, delays=["reaction"], history=start)
    cost = Terminal(lambda t, u, p: u[:4].sum() / 10.0 + u[4:].sum())
    run = solve(problem, start, p, Stepping((0.0, 25.0), rtol=1e-6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = adjoint(run, cost)
    # by Chebyshev collocation in extended precision, and differences
    truth = np.array([-4.219478043, 15.67413221, -4.387722104, -43.08751225, 167.2517065])
    np.testing.assert_allclose(gradient.p, truth, rtol=1e-4)
    # the estimate is of what is missing, and not of the kinks of another run
    error = ds.derivatives.derivative_error(run, cost)
    np.testing.assert_allclose(error.p, gradient.p - truth, atol=0.3 * np.ptp(gradient.p - truth))
    fine = solve(problem, start, p, Stepping((0.0, 25.0), rtol=1e-9))
    better = adjoint(fine, cost)
    by_u = gradient.u0 - better.u0
    np.testing.assert_allclose(error.u0, by_u, atol=0.3 * np.ptp(by_u))
    assert error.relative["u0"] < 3e-5
    assert error.relative["p"] < 3e-5


def pupil(lag):
    """Area of a pupil behind the light that it let in, and the integral of what is let in."""

    def rhs(t, u, z, p):
        light = np.where((t >= 4.0) & (t < 6.0), 2.0 * p[0], p[0])
        before = t - (p[4] if lag is None else lag)
        old = np.where((before >= 4.0) & (before < 6.0), 2.0 * p[0], p[0])
        drive = p[1] / (1.0 + (old * z[0, 0] / 20.0) ** p[2])
        return np.array([-p[3] * u[0] + drive, (light * u[0] / 100.0) ** 2])

    return rhs


@pytest.mark.parametrize("make", [DDE, ds.trace])
def test_jumps_that_move_with_breaking_points_are_not_told(make):
    """A flash that is seen later: what jumps at t - delay = 4 is at the end of a step that moves.

    One that jumps at 4.3 stays there, and is told.
    """
    names, p = ["light", "gain", "hill", "alpha", "delay"], np.array([2.0, 110.0, 7.0, 3.2, 0.3])
    last = Terminal(lambda t, u, p: u[0] / 10.0 + u[1])
    stepping, start = Stepping((0.0, 9.0), rtol=1e-7), [12.0, 0.0]
    late, fixed = (
        make(pupil(lag), 2, names, delays=["delay"], history=start, breakpoints=[4.0, 6.0])
        for lag in (None, 0.3)
    )
    direction = np.array([0.1, 1.0, 0.1, 0.1, 0.01])
    run, *beside = (solve(late, start, p + x * direction, stepping) for x in (0.0, 1e-3, -1e-3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = adjoint(run, last)
        sides = [adjoint(of_side, last).p for of_side in beside]
        warnings.simplefilter("ignore", DiscretizationWarning)  # second derivatives want 1e-8
        product = ds.hessian_product(run, last, dp=direction)
    # by Chebyshev collocation in extended precision, and differences
    truth = [-0.23746825, -0.0063247773, -0.085255714, 0.77417297, -37.271508]
    np.testing.assert_allclose(gradient.p, truth, rtol=1e-4)
    np.testing.assert_allclose(product.p, (sides[0] - sides[1]) / 2e-3, rtol=2e-3)
    run = solve(fixed, start, p, stepping)
    with pytest.warns(KinkWarning, match=r"the equations jump near t = 4\.3"):
        adjoint(run, last)
