"""Derivatives of delay equations: exact for the steps that were taken, delays included."""

import gc
import math
import weakref

import numpy as np
import pytest
from order_six import bend

import daeosens as ds
from daeosens.derivatives import derivative_error
from daeosens.derivatives.engines.delays.adjoints import pull_back, pull_parameters
from daeosens.derivatives.engines.delays.program import program_of
from daeosens.derivatives.engines.delays.tangents import push_forward
from daeosens.derivatives.residual_jacobian import residual_adjoint
from daeosens.derivatives.solve import run_delayed
from daeosens.errors import KinkWarning
from daeosens.verify import duality

NAMES = ["a", "b", "c", "q0", "q1", "tau"]
P0, U0 = np.array([2.0, 1.0, 0.7, 0.6, 0.2, 0.47]), np.array([0.65, 0.45])
STEPS = {
    "rk1fe": {"dt": 0.05},
    "rk3bs": {"dt": 0.1},
    "rk4": {"dt": 0.07},
    "rk5ts": {"dt": 0.1},
    "rk6vr": {"dt": 0.15},
    "rk8vr": {"dt": 0.25},
}


def rhs(t, u, z, p):
    return np.array(
        [
            p[0] * z[0, 0] / (1 + z[1, 0] ** 4) - p[1] * u[0] + 0.1 * np.sin(t) * z[1, 1],
            p[2] * z[0, 1] * u[1] - u[1] ** 2 + 0.05 * np.cos(2 * t) * u[0],
        ]
    )


def history(t, p):
    return np.array([p[3] + p[4] * np.sin(t), 0.5 + p[4] ** 2 * t])


def lag(p):
    return 0.31 + 0.5 * p[5] ** 2 * p[1]


COST = ds.Terminal(lambda t, u, p: u[0] ** 2 + u[1] * p[0]) + ds.LeastSquares(
    [0.33, 1.1, 2.2], [[0.3, 0.2], [0.5, 0.6], [0.2, 0.1]]
)


def make():
    return ds.DDE(rhs, 2, NAMES, delays=["tau", lag], history=history)


def at(problem, x, stepping):
    return ds.solve(problem, x[:2], x[2:], stepping, COST.times)


def test_steps_of_a_run_print_in_a_line():
    run = at(make(), np.concatenate([U0, P0]), ds.Stepping((0.0, 3.0), "rk4", dt=0.07))
    told = str(run.report)
    count = len(run.step_sizes)
    assert told.startswith(f"DelayedSteps({count} steps of ")
    assert "2 unknowns" in told
    assert "\n" not in told


def replayed(run, x):
    """Return the states of a run taken again with other x = (u0, p), which may be complex.

    Each stage looks into the same step as in the run, and steps keep their shares of pieces.
    """
    steps, p = run.report, x[2:]
    tableau = steps.tableau
    tau = np.array([p[5], lag(p)])
    times = run.times + steps.time_slopes @ (tau - steps.tau)
    sizes = run.step_sizes + steps.size_slopes @ (tau - steps.tau)
    states, rates = [x[:2].astype(x.dtype)], []
    for n, h in enumerate(sizes):
        k = np.zeros((len(tableau.b), 2), dtype=x.dtype)
        for i, c in enumerate(tableau.c):
            t, z = times[n] + c * h, []
            for d, j in enumerate(steps.looked[n, i]):
                if j < 0:
                    z.append(history(t - tau[d], p))
                else:
                    part = (t - tau[d] - times[j]) / sizes[j]
                    weights = tableau.weights @ part ** np.arange(tableau.weights.shape[1])
                    z.append(states[j] + sizes[j] * weights @ rates[j])
            k[i] = rhs(t, states[n] + h * tableau.a[i] @ k, np.array(z), p)
        rates.append(k)
        states.append(states[n] + h * tableau.b @ k)
    return np.array(states)


def value_of(run, x):
    """Return the cost of the run that is taken again."""
    states = replayed(run, x)
    rows = [run.index(t) for t in (0.33, 1.1, 2.2)]
    misfit = states[rows] - np.array([[0.3, 0.2], [0.5, 0.6], [0.2, 0.1]])
    return states[-1, 0] ** 2 + states[-1, 1] * x[2] + 0.5 * np.sum(misfit**2)


@pytest.mark.parametrize("method", STEPS)
def test_derivatives_are_those_of_the_program(method):
    """Complex steps of an independent program; differences of order six of these for Hessians."""
    sizes = STEPS[method]
    x, rng = np.concatenate([U0, P0]), np.random.default_rng(1)
    run = at(make(), x, ds.Stepping((0.0, 3.0), method, **sizes))
    np.testing.assert_allclose(replayed(run, x), run.u, rtol=1e-12)

    def slope(x, along):
        return value_of(run, x + 1e-30j * along).imag / 1e-30

    gradient = ds.adjoint(run, COST)
    reference = [slope(x, unit) for unit in np.eye(8)]
    ours = np.concatenate([gradient.u0, gradient.p])
    np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-13)
    assert abs(gradient.value - value_of(run, x)) < 1e-13
    direction, other = rng.standard_normal((2, 8))
    product = ds.hessian_product(run, COST, direction[:2], direction[2:])
    bent = bend(slope, x, direction, other)
    assert abs(product.u0 @ other[:2] + product.p @ other[2:] - bent) < 1e-10
    assert product.gradient is not None
    np.testing.assert_array_equal(product.gradient.p, gradient.p)


@pytest.mark.parametrize("sizes", [{"dt": 0.1}, {"rtol": 1e-6}])
def test_adjoint_and_tangent_are_transposes(sizes):
    run = at(make(), np.concatenate([U0, P0]), ds.Stepping((0.0, 3.0), "rk5ts", **sizes))
    rng = np.random.default_rng(2)
    du, dp = rng.standard_normal((4, 2)), rng.standard_normal((4, 6))
    gradient = ds.adjoint(run, COST)
    for k, along in enumerate(ds.tangent(run, du, dp)):
        expected = gradient.u0 @ du[k] + gradient.p @ dp[k]
        assert abs(along.derivative(COST) - expected) < 1e-12 * abs(expected)
    assert gradient.engine == "arrays"
    assert duality(run, COST) < 1e-12


def test_the_transpose_of_a_run_that_is_restarted_is_its_adjoint():
    """As windows of multiple shooting are."""
    problem, restarts = make(), {1.1: np.array([0.6, 0.5]), 2.2: np.array([0.7, 0.4])}
    start, p = problem.create_state(), np.array(P0)
    start.setArray(U0)
    times, stepping = np.array([*restarts]), ds.Stepping((0.0, 3.0), "rk5ts", rtol=1e-6)
    program = program_of(run_delayed(problem, start, p, stepping, times, "states", restarts))
    rng = np.random.default_rng(2)
    shapes = (1, 2), (1, 6), (2, 1, 2), (program.n_steps + 1, 1, 2)
    du0, dp, moved, seeds = (rng.standard_normal(shape) for shape in shapes)
    along, back = push_forward(program, du0, dp, moved), pull_back(program, seeds)
    observed = np.einsum("nMx,nxD->", seeds, along.du)
    starts = np.array([back.lam[step + 1, 0] for step in program.steps.restarts])
    expected = np.sum(back.lam[0] * du0) + np.sum(pull_parameters(program, back) * dp)
    assert observed == pytest.approx(expected + np.sum(starts * moved[:, 0]), rel=1e-12)


@pytest.mark.slow
def test_hessians_are_symmetric_and_rows_share_a_sweep():
    run = at(make(), np.concatenate([U0, P0]), ds.Stepping((0.0, 3.0), "rk4", dt=0.1))
    units = np.eye(8)
    products = ds.hessian_product(run, COST, units[:, :2], units[:, 2:])
    matrix = np.array([np.concatenate([row.u0, row.p]) for row in products])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    alone = ds.hessian_product(run, COST, units[3, :2], units[3, 2:])
    np.testing.assert_allclose(alone.p, products[3].p, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"dt": 0.1}, {"rtol": 1e-8}])
def test_taylor_orders_of_all_unknowns(sizes):
    control = ds.Parameters(
        {name: ds.Parameter(value, scale="log") for name, value in zip(NAMES, P0, strict=True)},
        initial_state=lambda p: np.array([p[3] + 0.05, p[4] + 0.25]),
    )
    functional = ds.Reduced(make(), COST, ds.Stepping((0.0, 3.0), "rk5ts", **sizes), control)
    assert 1.95 < min(ds.taylor(functional)) < 2.1
    assert 2.9 < min(ds.taylor(functional, hessian=True)) < 3.1


def test_full_matrices_by_tangents_and_adjoints():
    run = at(make(), np.concatenate([U0, P0]), ds.Stepping((0.0, 3.0), "rk4", dt=0.1))
    units = np.eye(8)
    for time in (None, 1.1):
        rows = ds.sensitivities(run, time)
        columns = ds.tangent(run, units[:, :2], units[:, 2:])
        ends = [column.final if time is None else column.at(time) for column in columns]
        matrix = np.array([vec.array for vec in ends]).T
        np.testing.assert_allclose(np.hstack([rows.u0, rows.p]), matrix, atol=1e-13)
    assert rows.sweep == "adjoint"
    assert ds.sensitivities(run, with_respect_to=["u0"]).sweep == "tangent"


def test_residuals_and_gauss_newton():
    misfit = ds.LeastSquares([0.5, 1.5, 2.5], [[0.3], [0.4], [0.5]], observe=[0])
    control = ds.Parameters({"tau": ds.Parameter(0.47), "a": ds.Parameter(2.0)}, initial_state=U0)
    problem = ds.DDE(
        lambda t, u, z, p: rhs(t, u, z, np.array([p[1], 1.0, 0.7])),
        2,
        ["tau", "a"],
        delays=["tau", 0.6],
        history=[0.6, 0.5],
    )
    functional = ds.Reduced(problem, misfit, ds.Stepping((0.0, 3.0), "rk5ts", dt=0.1), control)
    x = functional.start()
    matrix = functional.residual_jacobian(x).getDenseArray()
    np.testing.assert_allclose(functional.gauss_newton_matrix(x), matrix.T @ matrix, atol=1e-13)
    run = functional.trajectory(x)
    for k, weights in enumerate(np.eye(3)):
        ((_, by_p),) = residual_adjoint(run, misfit, [weights])
        np.testing.assert_allclose(by_p.array, matrix[k], atol=1e-13)


def test_closed_forms_in_the_rate_and_the_delay():
    """For u' = -r u(t - tau): 1 - r t + r^2 (t - tau)^2 / 2 - r^3 (t - 2 tau)^3 / 6 at t = 2.5."""
    problem = ds.DDE(lambda t, u, z, p: -p[0] * z[0], 1, ["r", "tau"], delays="tau", history=[1.0])
    r, tau, t = 0.9, 1.1, 2.5
    run = ds.solve(problem, [1.0], [r, tau], ds.Stepping((0.0, t), "rk5ts", dt=0.2))
    last = ds.Terminal(lambda t, u, p: u[0])
    first, second = t - tau, t - 2 * tau
    by_tau = -(r**2) * first + r**3 * second**2
    by_r = -t + r * first**2 - r**2 * second**3 / 2
    np.testing.assert_allclose(ds.adjoint(run, last).p, [by_r, by_tau], rtol=1e-12)
    mixed = -2 * r * first + 3 * r**2 * second**2
    bends = [[first**2 - r * second**3, mixed], [mixed, r**2 - 4 * r**3 * second]]
    products = ds.hessian_product(run, last, dp=np.eye(2))
    np.testing.assert_allclose([product.p for product in products], bends, rtol=1e-11)


def jumping(t, u, z, p):
    return z[0] + np.where(t < 1.6, 0.0, p[0])


def jumping_history(t, p):
    return np.array([1.0 + np.where(t < -0.4, p[1], 0.0)])


def power(x, k):
    """x^k / k! right of 0."""
    return float(x > 0.0) * x**k / math.factorial(k) if k >= 0 else 0.0


@pytest.mark.parametrize("tau", [0.75, 0.8])  # and 2 tau is at the jump
@pytest.mark.parametrize("make", [ds.DDE, ds.trace])
def test_breakpoints_of_equations_and_history(make, tau):
    """U' = u(t - tau) + a [t > 1.6] from 1 + b [t < -0.4], a sum of powers."""
    a, b, end, terms = 0.7, -0.6, 2.5, range(5)
    problem = make(
        jumping,
        1,
        ["a", "b", "tau"],
        delays=["tau"],
        history=jumping_history,
        breakpoints=[-0.4, 1.6],
    )
    run = ds.solve(problem, [1.0], [a, b, tau], ds.Stepping((0.0, end), "rk5ts", dt=0.2))
    last = ds.Terminal(lambda t, u, p: u[0])
    gradient, products = ds.adjoint(run, last), ds.hessian_product(run, last, dp=[0.0, 0.0, 1.0])
    jump = [end - 1.6 - k * tau for k in terms]
    on, off = [end - k * tau for k in terms], [end + 0.4 - (k + 1) * tau for k in terms]
    value = 1.0 + sum(power(on[k], k + 1) for k in terms)
    by_a = sum(power(jump[k], k + 1) for k in terms)
    by_b = sum(power(on[k], k + 1) - power(off[k], k + 1) for k in terms)
    slope = sum(-k * power(on[k], k) * (1.0 + b) for k in terms)
    slope -= sum(a * k * power(jump[k], k) - b * (k + 1) * power(off[k], k) for k in terms)
    bend = sum(k**2 * power(on[k], k - 1) * (1.0 + b) for k in terms)
    bend += sum(
        a * k**2 * power(jump[k], k - 1) - b * (k + 1) ** 2 * power(off[k], k - 1) for k in terms
    )
    assert gradient.value == pytest.approx(value + a * by_a + b * by_b, rel=1e-11)
    np.testing.assert_allclose(gradient.p, [by_a, by_b, slope], rtol=1e-10)
    assert products.p[2] == pytest.approx(bend, rel=1e-9)
    assert duality(run, last) < 1e-12


@pytest.mark.parametrize("sizes", [{"dt": 0.1}, {"rtol": 1e-8}])
def test_taylor_orders_through_breakpoints(sizes):
    problem = ds.DDE(
        jumping,
        1,
        ["a", "b", "tau"],
        delays=["tau"],
        history=jumping_history,
        breakpoints=[-0.4, 1.6],
    )
    values = {"a": ds.Parameter(0.7), "b": ds.Parameter(-0.6), "tau": ds.Parameter(0.75)}
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2)
    control = ds.Parameters(values, initial_state=[1.0])
    functional = ds.Reduced(problem, cost, ds.Stepping((0.0, 2.5), "rk5ts", **sizes), control)
    assert 1.9 < min(ds.taylor(functional)) < 2.1
    assert 2.9 < min(ds.taylor(functional, hessian=True)) < 3.1


@pytest.mark.parametrize("make", [ds.DDE, ds.trace])
@pytest.mark.parametrize(
    ("tau", "breakpoints", "message"),
    [
        (0.75, [-0.4], "the equations jump near t = 1.6, where steps move with the delays"),
        (0.8, [-0.4], "the equations jump near t = 1.6, where steps move with the delays"),
        (0.75, [1.6], r'the history jumps near t = -0.4, as delay "tau" sees it(.|\n)*-0.4'),
    ],
)
def test_jumps_that_delays_pass_are_told(make, tau, breakpoints, message):
    names, options = ["a", "b", "tau"], {"history": jumping_history, "breakpoints": breakpoints}
    stepping = ds.Stepping((0.0, 2.5), "rk5ts", rtol=1e-6)
    problem = make(jumping, 1, names, delays=["tau"], **options)
    run = ds.solve(problem, [1.0], [0.7, -0.6, tau], stepping)
    with pytest.warns(KinkWarning, match=message):
        ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    # delays that are not differentiated leave steps and jumps where they are
    problem = make(jumping, 1, names[:2], delays=[tau], **options)
    run = ds.solve(problem, [1.0], [0.7, -0.6], stepping)
    ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))


@pytest.mark.parametrize("make", [ds.DDE, ds.trace])
def test_kinks_in_time_that_delays_pass_are_told(make):
    """U' = u(t - tau) + a max(t - 1.6, 0) from 1, a sum of powers."""

    def bent(t, u, z, p):
        return z[0] + p[0] * np.maximum(t - 1.6, 0.0)

    a, tau, end, last = 0.7, 0.75, 2.5, ds.Terminal(lambda t, u, p: u[0])
    slope = -sum(
        k * (power(end - k * tau, k) + a * power(end - 1.6 - k * tau, k + 1)) for k in range(5)
    )
    stepping, options = ds.Stepping((0.0, end), "rk5ts", dt=0.2), {"history": [1.0]}
    problem = make(bent, 1, ["a", "tau"], delays=["tau"], **options)
    run = ds.solve(problem, [1.0], [a, tau], stepping)
    with pytest.warns(KinkWarning, match=r"a kink near t = 1.6,(.|\n)*breakpoints=\[1.6, "):
        lacking = ds.adjoint(run, last).p[1]
    assert abs(lacking - slope) > 1e-3
    # steps that may be chosen end there
    run = ds.solve(problem, [1.0], [a, tau], ds.Stepping((0.0, end), "rk5ts", rtol=1e-6))
    assert ds.adjoint(run, last).p[1] == pytest.approx(slope, rel=1e-5)
    # the remedy, and a delay that is not differentiated
    problem = make(bent, 1, ["a", "tau"], delays=["tau"], **options, breakpoints=[1.6])
    run = ds.solve(problem, [1.0], [a, tau], stepping)
    assert ds.adjoint(run, last).p[1] == pytest.approx(slope, rel=1e-8)
    problem = make(bent, 1, ["a"], delays=[tau], **options)
    ds.adjoint(ds.solve(problem, [1.0], [a], stepping), last)


@pytest.mark.parametrize("make", [ds.DDE, ds.trace])
def test_kinks_of_histories_that_delays_pass_are_told(make):
    """U' = -u(t - tau) from 1 + 2 |t + 0.4|, up to tau."""
    tau, end, last = 1.1, 1.0, ds.Terminal(lambda t, u, p: u[0])
    history = {"history": lambda t, p: np.array([1.0 + 2.0 * np.abs(t + 0.4)])}
    stepping = ds.Stepping((0.0, end), "rk5ts", rtol=1e-6)
    # the integral of the history from -tau to end - tau, by tau
    slope = 2.0 * (abs(end - tau + 0.4) - abs(0.4 - tau))
    problem = make(lambda t, u, z, p: -z[0], 1, ["tau"], delays=["tau"], **history)
    with pytest.warns(KinkWarning, match='history has a kink near t = -0.4, as delay "tau"'):
        ds.adjoint(ds.solve(problem, [1.8], [tau], stepping), last)
    options = {**history, "breakpoints": [-0.4]}
    problem = make(lambda t, u, z, p: -z[0], 1, ["tau"], delays=["tau"], **options)
    run = ds.solve(problem, [1.8], [tau], stepping)
    assert ds.adjoint(run, last).p[0] == pytest.approx(slope, rel=1e-9)


def test_places_in_tables_and_histories_that_jump_at_parameters_are_told():
    last = ds.Terminal(lambda t, u, p: u[0])
    table = np.array([1.0, 0.0, 1.0])
    problem = ds.DDE(
        lambda t, u, z, p: -p[0] * z[0] + table[int(t) // 2],
        1,
        ["k", "tau"],
        delays="tau",
        history=[1.0],
    )
    run = ds.solve(problem, [1.0], [0.4, 1.0], ds.Stepping((0.0, 5.5), "rk4", dt=0.05))
    with pytest.warns(KinkWarning, match="the equations jump near t = 2, where steps move"):
        ds.adjoint(run, last)
    problem = ds.DDE(
        lambda t, u, z, p: -p[0] * z[0],
        1,
        ["k", "before"],
        delays=1.5,
        history=lambda t, p: np.array([np.where(t < -p[1], 2.0, 1.0)]),
    )
    run = ds.solve(problem, [1.0], [0.4, 0.7], ds.Stepping((0.0, 5.5), "rk5ts", rtol=1e-8))
    with pytest.warns(
        KinkWarning, match="the history jumps near t = -0.7, as delay delays.0. sees"
    ):
        ds.adjoint(run, last)


def test_jumps_at_levels_of_delayed_states_are_told():
    problem = ds.DDE(
        lambda t, u, z, p: np.where(z[0] > 0.5, -p[0], 0.1) * u, 1, ["k"], delays=[1.0], history=[1]
    )
    run = ds.solve(problem, [1.0], [0.4], ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-6))
    with pytest.warns(KinkWarning, match="the equations jump near t = 2.73(.|\n)*smooth function"):
        ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))


# tests/references/delay_equations.py: x(20) by a, n and tau
MACKEY_GLASS_SLOPES = [0.65221479130517196364, -0.012217015537260247366, -0.9677619737183008075]


def test_derivatives_against_digits_and_their_orders():
    def mackey_glass(t, x, z, p):
        return p[0] * z[0] / (1.0 + z[0] ** p[2]) - p[1] * x

    problem = ds.DDE(mackey_glass, 1, ["a", "b", "n", "tau"], delays="tau", history=[0.5])
    last, errors = ds.Terminal(lambda t, u, p: u[0]), []
    for count in (10, 20):
        stepping = ds.Stepping((0.0, 20.0), "rk6vr", dt=2.0 / count)
        run = ds.solve(problem, [0.5], [2.0, 1.0, 7.0, 2.0], stepping)
        errors.append(np.abs(ds.adjoint(run, last).p[[0, 2, 3]] - MACKEY_GLASS_SLOPES))
    assert (np.log2(errors[0] / errors[1]) > 5.9).all()
    assert errors[1].max() < 1e-8


def test_a_traced_equation_gives_the_same():
    def traced_rhs(t, u, z, p):
        return np.array(
            [
                p.a * z[0, 0] / (1 + z[1, 0] ** 4) - p.b * u[0] + 0.1 * np.sin(t) * z[1, 1],
                p.c * z[0, 1] * u[1] - u[1] ** 2 + 0.05 * np.cos(2 * t) * u[0],
            ]
        )

    model = ds.trace(
        traced_rhs,
        2,
        NAMES,
        delays=["tau", lambda p: 0.31 + 0.5 * p.tau**2 * p.b],
        history=lambda t, p: np.array([p.q0 + p.q1 * np.sin(t), 0.5 + p.q1**2 * t]),
    )
    stepping, x = ds.Stepping((0.0, 3.0), "rk5ts", dt=0.1), np.concatenate([U0, P0])
    dx = np.random.default_rng(3).standard_normal(8)
    run, reference = at(model, x, stepping), at(make(), x, stepping)
    np.testing.assert_allclose(run.u, reference.u, rtol=1e-13)
    ours, theirs = (ds.hessian_product(taken, COST, dx[:2], dx[2:]) for taken in (run, reference))
    np.testing.assert_allclose(ours.p, theirs.p, atol=1e-11)
    np.testing.assert_allclose(ours.gradient.p, theirs.gradient.p, atol=1e-12)
    value = model.terminal(lambda t, u, p: p.a * u[0] ** 2)
    np.testing.assert_allclose(
        ds.adjoint(run, value).p, ds.adjoint(run, ds.Terminal(lambda t, u, p: p[0] * u[0] ** 2)).p
    )
    assert model.pack(dict(zip(NAMES, P0, strict=True))).tolist() == P0.tolist()


def test_errors_of_derivatives_are_estimated():
    run = at(make(), np.concatenate([U0, P0]), ds.Stepping((0.0, 3.0), "rk4", dt=0.1))
    fine = at(make(), np.concatenate([U0, P0]), ds.Stepping((0.0, 3.0), "rk8vr", dt=0.05))
    estimate, better = derivative_error(run, COST), ds.adjoint(fine, COST)
    error = ds.adjoint(run, COST).p - better.p
    assert np.linalg.norm(estimate.p - error) < 0.3 * np.linalg.norm(error)


def test_what_is_refused():
    problem = make()
    run = at(problem, np.concatenate([U0, P0]), ds.Stepping((0.0, 3.0), "rk4", dt=0.1))
    for engine in ("vectors", "compiled", "tsadjoint"):
        with pytest.raises(ds.UnsupportedError, match=f'engine = "{engine}" for a delay equation'):
            ds.adjoint(run, COST, engine)
    with pytest.raises(ds.UnsupportedError, match='engine = "vectors" for a delay equation'):
        ds.tangent(run, dp=np.ones(6), engine="vectors")


def test_runs_whose_derivatives_were_taken_are_freed():
    """A fit takes thousands, of megabytes each."""
    model = ds.DDE(lambda t, u, z, p: -p[0] * z[0], 1, ["rate"], delays=[1.0], history=[1.0])
    run = ds.solve(model, [1.0], [0.5], ds.Stepping((0.0, 3.0), "rk5ts", dt=0.25))
    ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    freed = weakref.ref(run)
    del run
    gc.collect()
    assert freed() is None
