"""Second derivatives through events; parameters that are times of events, or that events change."""

import warnings

import numpy as np
import pytest

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.derivatives import evaluate
from daeosens.derivatives.hessian import hessian_sweep
from daeosens.errors import DiscretizationWarning
from daeosens.verify import duality
from tests.problem.test_event import (
    BALL,
    ENERGY,
    METHODS,
    OBJECTIVE,
    OSCILLATOR,
    PROBLEM,
    RESIDUAL_SWING,
    START,
    SWING,
    P,
    fall,
    flight,
    tight,
)

STEP = 1e-30


def hessian(trajectory, objective):
    """Return the Hessian in (u0, p), whose columns are products with unit vectors."""
    n, m = trajectory.problem.size, trajectory.problem.n_parameters
    units = [(row[:n], row[n:]) for row in np.eye(n + m)]
    products = hessian_sweep(trajectory, objective, units)
    gradient = ds.adjoint(trajectory, objective)
    np.testing.assert_allclose(products[0].gradient.u0, gradient.u0, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(products[0].gradient.p, gradient.p, rtol=1e-12, atol=1e-13)
    return np.array([np.concatenate([product.u0, product.p]) for product in products])


def close(ours, expected, tolerance):
    size = abs(np.asarray(expected)).max()
    np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance * size)
    np.testing.assert_allclose(ours, ours.T, rtol=0, atol=1e-12 * size)


def exact_hessian(function, x):
    """Return the second derivatives of an analytic function: fourth-order complex differences."""
    n = len(x)
    result = np.empty((n, n))
    for j in range(n):
        d = np.zeros(n)
        d[j] = 1e-5 * abs(x[j])
        for i in range(n):

            def slope(y, i=i):
                return function(y + STEP * 1j * np.eye(n)[i]).imag / STEP

            near, far = slope(x + d) - slope(x - d), slope(x + 2 * d) - slope(x - 2 * d)
            result[i, j] = (8 * near - far) / (12 * d[j])
    return result


@pytest.mark.parametrize(("t_end", "bounces"), [(1.9, 1), (4.3, 3), (6.2, 5), (8.885, 20)])
@pytest.mark.parametrize("method", ["rk2a", "rk8vr", "cn", "midpoint"])
def test_hessian_of_the_bouncing_ball_is_the_closed_form(method, t_end, bounces):
    """The methods integrate a parabola without error, so at any step size: here half a flight."""
    trajectory = ds.solve(PROBLEM, BALL[:2], BALL[2:], ds.Stepping((0.0, t_end), method, dt=0.5))
    assert len(trajectory.crossings) == bounces

    def energy(x):
        z, v, _ = flight(x, t_end)
        return x[2] * z + 0.3 * v**2

    close(hessian(trajectory, ENERGY), exact_hessian(energy, BALL), 1e-9)


def test_hessian_of_the_time_of_an_impact_is_the_closed_form():
    """T = (v + sqrt(v^2 + 2 g z)) / g, for the derivatives in z, v and g written out."""
    trajectory = ds.solve(PROBLEM, BALL[:2], BALL[2:], ds.Stepping((0.0, 1.9), "rk4", dt=0.4))
    z, v, g, _ = BALL
    s = np.sqrt(v * v + 2 * g * z)
    ours = hessian(trajectory, EventTime("bounce"))
    expected = np.zeros((4, 4))
    expected[0, 0] = -g / s**3
    expected[0, 1] = expected[1, 0] = -v / s**3
    expected[1, 1] = 2 * z / s**3
    expected[0, 2] = expected[2, 0] = -z / s**3
    expected[1, 2] = expected[2, 1] = -(1 + v / s) / g**2 - v * z / (g * s**3)
    expected[2, 2] = 2 * (v + s) / g**3 - 2 * z / (g**2 * s) - z**2 / (g * s**3)
    close(ours, expected, 1e-12)
    speed = AtEvent(lambda t, u, p: u[1] * t, "bounce", side="after")

    def after(x):
        _, _, times = flight_times(x)
        return times[0] * x[3] * np.sqrt(x[1] * x[1] + 2 * x[2] * x[0])

    close(hessian(trajectory, speed), exact_hessian(after, BALL), 1e-9)


def flight_times(x):
    z, v, g, _ = x
    return z, v, [(v + np.sqrt(v * v + 2 * g * z)) / g]


@pytest.mark.parametrize("engine", ["vectors", "arrays", "compiled"])
@pytest.mark.parametrize("method", ["rk5dp", "esdirk4"])
def test_a_state_after_an_impact_is_observed_where_a_window_begins(engine, method):
    """In adaptive runs the steps after an event go on from its time, and windows with them."""
    bounce = ds.Event(
        lambda t, u, p: u[0], lambda t, u, p: np.array([u[0], -p[1] * u[1]]), name="hit"
    )
    problem = ds.trace(fall, size=2, parameters=["gravity", "restitution"], events=[bounce])
    steps = ds.Stepping((0.0, 4.3), method, rtol=1e-6, max_step=0.1)
    run = ds.solve(problem, BALL[:2], BALL[2:], steps)
    assert len(run.crossings) == 3
    speed = AtEvent(lambda t, u, p: u[1] * t, "hit", side="after", number=1)

    def after_the_second(x):
        z, v, g, e = x
        speed = np.sqrt(v * v + 2 * g * z)
        return ((v + speed) / g + 2 * e * speed / g) * e**2 * speed

    units = [(row[:2], row[2:]) for row in np.eye(4)]
    products = [ds.hessian_product(run, speed, *unit, engine=engine) for unit in units]
    assert {product.engine for product in products} == {engine}
    ours = np.array([np.concatenate([product.u0, product.p]) for product in products])
    close(ours, exact_hessian(after_the_second, BALL), 1e-9)
    gradient, expected = products[0].gradient, ds.adjoint(run, speed, "vectors")
    rounding = 1e-13 * abs(expected.p).max()
    np.testing.assert_allclose(gradient.u0, expected.u0, rtol=0, atol=rounding)
    np.testing.assert_allclose(gradient.p, expected.p, rtol=0, atol=rounding)


def swing_residual(t, u, udot, p):
    mass = np.array([[1.3 + 0.2 * p[1] / 4.0, 0.2], [0.1, 0.9]])
    drive = p[0] * np.sin(3 * t) - 0.2 * u[1] * (1 + u[0] ** 2)
    return mass @ udot - np.array([u[1], -p[1] * np.sin(u[0]) + drive])


IMPLICIT_SWING = ds.DAE(
    lambda t, u, udot, p: swing_residual(t, u, udot, p) + 0.1 * t * u**2 * udot,
    2,
    ["drive", "stiffness", "reset"],
    events=SWING.events,
)
CASES = [
    *((SWING, method) for method in (*METHODS, "beuler", "rk3bs", "rk6vr")),
    *((RESIDUAL_SWING, method) for method in ("beuler", "cn", "midpoint", "theta:0.6")),
    *((IMPLICIT_SWING, method) for method in ("beuler", "cn", "midpoint", "theta:0.6")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "method"), CASES)
def test_hessian_is_that_of_the_whole_program(problem, method):
    """At coarse steps, with every kind of cost, against differences of gradients of whole runs."""
    stepping = ds.Stepping((0.0, 3.0), method, dt=0.17, options=tight(method))
    point = np.concatenate([START, P])

    def whole(x):
        return ds.solve(problem, x[:2], x[2:], stepping, OBJECTIVE.times)

    def gradient(x):
        gradient = ds.adjoint(whole(x), OBJECTIVE)
        return np.concatenate([gradient.u0, gradient.p])

    trajectory = whole(point)
    assert [crossing.name for crossing in trajectory.crossings].count("struck") >= 1
    steps = 2e-4 * np.eye(5)
    expected = [
        (8 * (gradient(point + d) - gradient(point - d)) - gradient(point + 2 * d)) / (12 * 2e-4)
        + gradient(point - 2 * d) / (12 * 2e-4)
        for d in steps
    ]
    close(hessian(trajectory, OBJECTIVE), np.array(expected), 1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_taylor_of_third_order_through_events(method):
    stepping = ds.Stepping((0.0, 3.0), method, dt=0.17, options=tight(method))
    values = {name: ds.Parameter(v) for name, v in zip(SWING.parameter_names, P, strict=True)}
    control = ds.Parameters(values, lambda p: np.array([-0.6 * p[0] / 1.1, 0.8 * p[2] / 0.9]))
    orders = ds.taylor(
        ds.Reduced(SWING, OBJECTIVE, stepping, control),
        epsilons=[8e-3 * 0.5**k for k in range(5)],
        hessian=True,
    )
    assert orders.passed, orders
    assert orders.hessian_order > 2.9, orders


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk5dp", "beuler", "cn"])
def test_hessian_along_adaptive_steps(method):
    """Symmetric, and near the exact one: the sizes of the steps are held fixed."""
    stepping = ds.Stepping(
        (0.0, 1.9), method, rtol=1e-8, atol=1e-10, dt=0.01, options=tight(method)
    )
    if method != "rk5dp":
        stepping = ds.Stepping(
            (0.0, 1.9), method, rtol=1e-4, atol=1e-6, dt=0.01, options=tight(method)
        )
    trajectory = ds.solve(PROBLEM, BALL[:2], BALL[2:], stepping)
    second = hessian(trajectory, ENERGY)
    np.testing.assert_allclose(second, second.T, rtol=0, atol=1e-12 * abs(second).max())

    def energy(x):
        z, v, _ = flight(x, 1.9)
        return x[2] * z + 0.3 * v**2

    exact = exact_hessian(energy, BALL)
    limit = {"rk5dp": 1e-9, "cn": 1e-9, "beuler": 3e-2}[method]
    np.testing.assert_allclose(second, exact, rtol=0, atol=limit * abs(exact).max())


@pytest.mark.slow
def test_later_products_take_up_the_first_sweep():
    start = {name: ds.Parameter(v) for name, v in zip(SWING.parameter_names, P, strict=True)}
    stepping = ds.Stepping((0.0, 3.0), "cn", dt=0.17, options=tight("cn"))
    functional = ds.Reduced(SWING, OBJECTIVE, stepping, ds.Parameters(start, START))
    x = functional.start()
    units = np.eye(3)
    first = [functional.hessian_product(x, unit).array.copy() for unit in units]
    again = [functional.hessian_product(x, unit).array.copy() for unit in units]
    np.testing.assert_allclose(first, again, rtol=1e-12)
    np.testing.assert_allclose(first, np.transpose(first), rtol=1e-11)


def test_newton_finds_gravity_and_restitution_from_the_end_of_a_flight():
    truth = np.array([10.0, 0.8])
    stepping = ds.Stepping((0.0, 1.9), "rk4", dt=0.4)
    goal = ds.solve(PROBLEM, BALL[:2], truth, stepping, [0.5, 1.9])
    data = [goal.at(t).array.copy() for t in (0.5, 1.9)]
    start = {"gravity": ds.Parameter(9.0), "restitution": ds.Parameter(0.7)}
    functional = ds.Reduced(
        PROBLEM, ds.LeastSquares([0.5, 1.9], data), stepping, ds.Parameters(start, BALL[:2])
    )
    result = ds.minimize(functional, method="ntr", gradient_tolerance=1e-10)
    np.testing.assert_allclose(result.x.array, truth, rtol=1e-9)
    assert result.iterations <= 8


# ---- the switched oscillator: published second derivatives ---------------------------------------


@pytest.mark.slow
def test_published_second_derivatives_of_the_switched_oscillator():
    stepping = ds.Stepping((0.0, 0.125), "rk8vr", dt=0.125 / 16)
    trajectory = ds.solve(OSCILLATOR, [0.0, 1.0], [2.75, 0.36], stepping)

    def matrix(entries):
        result = np.zeros((4, 4))
        for (i, j), value in entries.items():
            result[i, j] = result[j, i] = value
        return result

    published = {
        ds.Terminal(lambda t, u, p: u[0]): {
            (0, 2): 0.07030414163,
            (0, 3): -0.5338285569,
            (1, 2): -0.1027231879,
            (1, 3): 0.787880911,
            (2, 2): 0.09208297769,
            (2, 3): -0.5330208751,
            (3, 3): 0.9979956644,
        },
        ds.Terminal(lambda t, u, p: u[1]): {
            (0, 2): 0.01027231879,
            (0, 3): -0.0787880911,
            (1, 2): 0.07030414163,
            (1, 3): -0.5338285569,
            (2, 2): -0.0477818129,
            (2, 3): 0.05285344979,
            (3, 3): 0.1935040261,
        },
        EventTime("steep"): {(0, 1): -0.01, (2, 2): -9.367457135e-4},
        EventTime("flat"): {(0, 1): -0.01, (2, 2): -0.002719904488, (3, 3): 7.016942279e-4},
    }
    for objective, entries in published.items():
        close(hessian(trajectory, objective), matrix(entries), 5e-10)


# ---- parameters as times, parameters that change -------------------------------------------------


@pytest.mark.slow
def test_injection_at_a_threshold_has_the_second_derivatives_of_the_closed_form():
    """U' = p - u, at u = c add d: u(T) = p - (p - c - d) p / (p - c) e^-T."""
    added = ds.Event(lambda t, u, p: u[0] - p[1], lambda t, u, p: u + p[2], direction=1)
    problem = ds.ODE(lambda t, u, p: p[0] - u, 1, ["p", "c", "d"], events=[added])
    x = np.array([1.0, 0.5, 0.3])
    trajectory = ds.solve(problem, [0.0], x, ds.Stepping((0.0, 2.0), "rk8vr", dt=0.05))

    def closed(y):
        return y[0] - (y[0] - y[1] - y[2]) * y[0] / (y[0] - y[1]) * np.exp(-2.0)

    ours = hessian(trajectory, ds.Terminal(lambda t, u, p: u[0]))[1:, 1:]
    close(ours, exact_hessian(closed, x), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk8vr", "rk4", "cn", "midpoint"])
def test_the_time_of_an_event_is_a_parameter(method):
    """U' = -k u, doubled at the time tau, and tau added; t_e = tau."""
    doubled = ds.Event("tau", lambda t, u, p: 2.0 * u + t, name="doubled")
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["k", "tau"], events=[doubled])
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.02, options=tight(method))
    end = ds.Terminal(lambda t, u, p: u[0])

    def whole(x):
        return ds.solve(problem, x[:1], x[1:], stepping)

    def gradient(x):
        gradient = ds.adjoint(whole(x), end)
        return np.append(gradient.u0, gradient.p)

    point = np.array([1.5, 0.7, 0.4321])
    trajectory = whole(point)
    assert trajectory.crossings[0].t == pytest.approx(0.4321, rel=1e-15)
    assert duality(trajectory, end) < 1e-12

    def closed(y):
        return (2.0 * y[0] * np.exp(-y[1] * y[2]) + y[2]) * np.exp(-y[1] * (1.0 - y[2]))

    # The size of the step that is cut is differentiated, the second time at an order less.
    error, bent = {"rk8vr": (1e-12, 1e-9), "rk4": (1e-8, 1e-6)}.get(method, (1e-4, 1e-2))
    expected = [closed(point + STEP * 1j * unit).imag / STEP for unit in np.eye(3)]
    np.testing.assert_allclose(gradient(point), expected, rtol=0, atol=error)
    assert ds.sensitivities(trajectory).p[0, 1] == pytest.approx(expected[2], abs=error)
    ours = hessian(trajectory, end)
    close(ours, exact_hessian(closed, point), bent)
    rows = [(gradient(point + d) - gradient(point - d)) / 2e-5 for d in 1e-5 * np.eye(3)]
    close(ours, np.array(rows), 1e-8)
    np.testing.assert_allclose(hessian(trajectory, EventTime("doubled")), 0.0, atol=1e-14)
    np.testing.assert_allclose(
        ds.adjoint(trajectory, EventTime("doubled")).p, [0.0, 1.0], atol=1e-15
    )


def test_unknown_names_of_parameters_are_told():
    late = ds.ODE(lambda t, u, p: -u, 1, ["rate"], events=[ds.Event("tau", name="late")])
    with pytest.raises(ds.InputError, match='event "late" names an unknown parameter "tau"'):
        ds.solve(late, [1.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    worn = ds.Event(0.5, changes={"speed": lambda t, u, p: 1.0}, name="worn")
    problem = ds.ODE(lambda t, u, p: -u, 1, ["rate"], events=[worn])
    with pytest.raises(ds.InputError, match='event "worn" names an unknown parameter "speed"'):
        ds.solve(problem, [1.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    worn = ds.Event(0.5, changes={"rate": 1.0}, name="worn")
    problem = ds.ODE(lambda t, u, p: -u, 1, ["rate"], events=[worn])
    with pytest.raises(ds.InputError, match=r'event "worn" changes\["rate"\] = 1.0'):
        ds.solve(problem, [1.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))


WEAR = ds.Event(
    lambda t, u, p: u[0],
    lambda t, u, p: np.array([u[0], -p[1] * u[1]]),
    direction=-1,
    name="bounce",
    changes={"restitution": lambda t, u, p: p[1] * (1.0 - 0.003 * u[1] ** 2 - 0.01 * t * p[0] / 9)},
)
WORN = ds.ODE(fall, 2, ["gravity", "restitution"], events=[WEAR])


def worn_flight(x, t_end):
    """Return height and speed at ``t_end`` and the last restitution; x may be complex."""
    z, v, g, e = x
    t = 0.0 * z
    while True:
        duration = (v + np.sqrt(v * v + 2 * g * z)) / g
        if np.real(t + duration) > t_end:
            rest = t_end - t
            return z + v * rest - g * rest**2 / 2, v - g * rest, e
        t, v, z = t + duration, v - g * duration, 0.0 * z
        v, e = -e * v, e * (1.0 - 0.003 * v**2 - 0.01 * t * g / 9)


@pytest.mark.parametrize("method", ["rk4", "cn", "midpoint"])
@pytest.mark.parametrize("t_end", [1.9, 4.0])
def test_parameters_that_change_at_events(method, t_end):
    trajectory = ds.solve(WORN, BALL[:2], BALL[2:], ds.Stepping((0.0, t_end), method, dt=0.3))
    cost = ds.Terminal(lambda t, u, p: p[0] * u[0] + 0.3 * u[1] ** 2 + 5.0 * p[1] ** 2)
    z, v, e = worn_flight(BALL, t_end)
    np.testing.assert_allclose(trajectory.final.array, [z, v], rtol=1e-11)
    assert trajectory.parameters(trajectory.n_steps)[1] == pytest.approx(e, rel=1e-12)
    np.testing.assert_array_equal(trajectory.p, BALL[2:])

    def closed(x):
        z, v, e = worn_flight(x, t_end)
        return x[2] * z + 0.3 * v**2 + 5.0 * e**2

    expected = np.array([closed(BALL + STEP * 1j * unit).imag / STEP for unit in np.eye(4)])
    gradient = ds.adjoint(trajectory, cost)
    ours = np.concatenate([gradient.u0, gradient.p])
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10 * abs(expected).max())
    assert duality(trajectory, cost) < 1e-12
    close(hessian(trajectory, cost), exact_hessian(closed, BALL), 1e-8)


def test_costs_see_the_parameters_of_their_time_and_priors_those_of_the_start():
    trajectory = ds.solve(WORN, BALL[:2], BALL[2:], ds.Stepping((0.0, 1.9), "rk4", dt=0.3), [0.5])
    e = trajectory.parameters(trajectory.n_steps)[1]
    assert e < 0.75
    observe = ds.LeastSquares([0.5, 1.9], [[0.0], [0.0]], observe=lambda t, u, p: p[1:])
    assert evaluate(trajectory, observe) == pytest.approx(0.5 * (0.8**2 + e**2), rel=1e-14)
    prior = ds.Prior([10.0, 0.5])
    assert evaluate(trajectory, prior) == pytest.approx(0.5 * 0.3**2, rel=1e-13)
    np.testing.assert_allclose(ds.adjoint(trajectory, prior).p, [0.0, 0.3], rtol=1e-13)
    np.testing.assert_allclose(hessian(trajectory, prior)[2:, 2:], np.eye(2), rtol=1e-13)
    objective = observe + prior + ds.Running(lambda t, u, p: p[1] * u[0] + t * p[1] ** 2)
    control = ds.Parameters(
        {"gravity": ds.Parameter(10.0), "restitution": ds.Parameter(0.8)}, BALL[:2]
    )
    functional = ds.Reduced(WORN, objective, ds.Stepping((0.0, 1.9), "rk4", dt=0.3), control)
    orders = ds.taylor(functional, epsilons=[4e-3 * 0.5**k for k in range(5)], hessian=True)
    assert orders.passed, orders
    assert orders.hessian_order > 2.9
    # Gauss-Newton: rows of the residual along the tangent, whose parameters change as well
    x = functional.start()
    squares = ds.Reduced(WORN, observe + prior, ds.Stepping((0.0, 1.9), "rk4", dt=0.3), control)
    jacobian = squares.residual_jacobian(x).getDenseArray()
    products = [squares.gauss_newton_product(x, unit).array.copy() for unit in np.eye(2)]
    np.testing.assert_allclose(products, jacobian.T @ jacobian, rtol=1e-11)


def test_a_change_with_derivatives_of_its_own():
    """A Terminal in place of a function carries them."""
    gave: list[str] = []

    def gradient_p(t, u, p):
        gave.append("p")
        return np.array([2.0])

    double = ds.Terminal(lambda t, u, p: 2.0 * p[0], lambda t, u, p: np.zeros(1), gradient_p)
    event = ds.Event(0.5, changes={"rate": double})
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"], events=[event])
    trajectory = ds.solve(problem, [1.0], [0.3], ds.Stepping((0.0, 1.0), "rk8vr", dt=0.05))
    assert trajectory.final.array[0] == pytest.approx(np.exp(-0.45), rel=1e-12)
    gradient = ds.adjoint(trajectory, ds.Terminal(lambda t, u, p: u[0]))
    assert gradient.p[0] == pytest.approx(-1.5 * np.exp(-0.45), rel=1e-12)
    along = ds.tangent(trajectory, dp=[1.0])
    np.testing.assert_allclose([along.parameters[k].array[0] for k in (0, -1)], [1.0, 2.0])
    assert gave


def test_missing_second_derivatives_in_time_are_named():
    """PETSc style: nothing can be complex-stepped."""
    from petsc4py import PETSc  # noqa: PLC0415

    template = PETSc.Vec().createSeq(1, comm=PETSc.COMM_SELF)

    def rhs(t, u, p, out):
        out.setArray(-u.array_r + t)

    def jacobian(t, u, p, out):
        out.setValue(0, 0, -1.0)
        out.assemble()

    def unit(t, u, p, out):
        out.set(1.0)

    def nothing(t, u, p, w, du, dp, out):
        out.zeroEntries()
        return np.zeros(0)

    event = ds.Event(
        lambda t, u, p: u.array_r[0] - 0.8,
        direction=-1,
        when_u=unit,
        when_p="independent",
        when_t="autonomous",
        when_hessian=lambda t, u, p, du, dp, out: out.zeroEntries() or np.zeros(0),
    )

    def problem(**keywords):
        return ds.ODE(
            rhs,
            state=template,
            jacobian=jacobian,
            rhs_t=unit,
            hessian_product=nothing,
            events=[event],
            **keywords,
        )

    stepping = ds.Stepping((0.0, 1.0), "rk8vr", dt=0.1)
    trajectory = ds.solve(problem(), template_of(template, 1.0), None, stepping)
    assert len(trajectory.crossings) == 1
    with pytest.raises(ds.UnsupportedError, match="'hessian_t' is needed"):
        hessian_sweep(trajectory, EventTime("event"), [(template_of(template, 1.0), None)])

    def constant(t, u, p, w, out):
        out.zeroEntries()
        return np.zeros(0), 0.0

    whole = problem(hessian_t=constant)
    trajectory = ds.solve(whole, template_of(template, 1.0), None, stepping)
    product = hessian_sweep(trajectory, EventTime("event"), [(template_of(template, 1.0), None)])[0]

    def when(u0):  # u = t - 1 + (u0 + 1) e^-t is 0.8
        t = trajectory.crossings[0].t
        for _ in range(30):
            t = t - (t - 1.8 + (u0 + 1) * np.exp(-t)) / (1 - (u0 + 1) * np.exp(-t))
        return t

    second = (when(1.0 + 1e-4) - 2 * when(1.0) + when(1.0 - 1e-4)) / 1e-8
    assert product.u0[0] == pytest.approx(second, rel=1e-4)


def template_of(template, value):
    vec = template.duplicate()
    vec.set(value)
    return vec


@pytest.mark.parametrize("method", ["beuler", "cn"])
def test_steps_of_order_one_have_no_second_derivatives_through_events(method):
    """They do not converge, which is told: a step's second derivative in its size is not u''."""
    dose = ds.Event("time", reset=lambda t, u, p: u + 1.0, name="dose")
    decay = ds.ODE(lambda t, u, p: -2.0 * u, 1, ["time"], events=[dose])
    cost, exact, errors = ds.Terminal(lambda t, u, p: u[0]), 4.0 * np.exp(-2.0 * 0.7), []
    for dt in (0.02, 0.01):
        run = ds.solve(decay, [1.0], [1.303], ds.Stepping((0.0, 2.003), method, dt=dt))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DiscretizationWarning)
            product = ds.hessian_product(run, cost, dp=[1.0])
        told = any('"dose" do not converge by "beuler"' in str(w.message) for w in caught)
        assert told == (method == "beuler" and dt == 0.02)  # once is enough
        errors.append(abs(product.p[0] / exact - 1.0))
    assert errors[1] < 0.6 * errors[0] < 0.03 if method == "cn" else min(errors) > 0.5
