"""Running costs at many points at once: the derivatives of one point after the other."""

import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.costs.cost import at_many_points
from daeosens.problem import PiecewiseConstant, Spline

RANDOM = np.random.default_rng(11)
COUNT, N, M = 40, 3, 8
T = np.sort(RANDOM.uniform(0.0, 2.0, COUNT))
U = RANDOM.normal(size=(COUNT, N))
P = RANDOM.normal(size=M)
KNOTS = np.linspace(0.0, 2.0, 6)
CONSTANT, CUBIC = PiecewiseConstant(KNOTS), Spline(KNOTS, 3)


def rhs(t, u, p):
    return np.array([u[1] + CONSTANT(t, p[:5]), u[2] - p[0] * u[0], -p[1] * np.sin(u[1]) * u[2]])


def branched(t, u, p):
    return u[0] ** 2 * p[0] if u[1] > 0.0 else u[2] * np.exp(p[1] * u[0])


COSTS = {
    "products": lambda t, u, p: p[0] * u[0] ** 2 + np.sin(t * u[1]) * p[1] + u @ u * p[2],
    "lists": lambda t, u, p: np.sum(np.concatenate([[1.0], u, [p[3]]]) ** 3),
    "controls": lambda t, u, p: CONSTANT(t, p[:5]) ** 2 * u[0] + CUBIC(t, p) * u[1],
    "branches": branched,
    "states only": lambda t, u, p: u[0] * u[1] * u[2] + max(u[0], 0.0) ** 2,
    "parameters only": lambda t, u, p: np.cos(p[:4]) @ p[4:] * t,
}


def lowered(cost):
    problem = ds.ODE(rhs, N, [f"p{k}" for k in range(M)], breakpoints=CONSTANT.breakpoints)
    return problem, ds.Running(cost).lower(problem, 2.0).densities[0][1]


@pytest.mark.parametrize("name", COSTS)
def test_derivatives_are_those_of_single_points(name):
    problem, scalar = lowered(COSTS[name])
    many = at_many_points(scalar)
    by_u, by_p = many.gradients(T, U, P)
    du, dp = RANDOM.normal(size=(2, COUNT, N)), RANDOM.normal(size=(2, M))
    second_u, second_p = many.hessian_products(T, U, P, du, dp)
    for k in range(COUNT):
        state = PETSc.Vec().createWithArray(U[k].copy(), comm=PETSc.COMM_SELF)
        out = problem.create_state(), problem.create_parameters()
        scalar.add_u(1.0, T[k], state, P, out[0])
        scalar.add_p(1.0, T[k], state, P, out[1])
        np.testing.assert_allclose(by_u[k], out[0].array, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(by_p[k], out[1].array, rtol=1e-13, atol=1e-13)
        for d in range(2):
            along = PETSc.Vec().createWithArray(du[d, k].copy(), comm=PETSc.COMM_SELF)
            out = problem.create_state(), problem.create_parameters()
            scalar.add_hessian(1.0, (T[k], state, P), (along, dp[d]), out)
            np.testing.assert_allclose(second_u[d, k], out[0].array, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(second_p[d, k], out[1].array, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "cost",
    [
        pytest.param(
            lambda t, u, p: np.linalg.solve(np.eye(3) + np.outer(u, u), u)[0] * p[0],
            id="a function without such an axis",
        ),
        pytest.param(lambda t, u, p: 3.0, id="a constant"),
    ],
)
def test_what_knows_no_axis_of_points_takes_one_after_the_other(cost):
    _, scalar = lowered(cost)
    many = at_many_points(scalar)
    assert many is None or many.gradients(T, U, P) is None
    problem, scalar = lowered(cost)
    run = ds.solve(problem, U[0], P, ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
    both = ds.adjoint(run, ds.Running(cost) + ds.Running(COSTS["products"]), engine="arrays")
    vectors = ds.adjoint(run, ds.Running(cost) + ds.Running(COSTS["products"]), engine="vectors")
    np.testing.assert_allclose(both.p, vectors.p, rtol=1e-12)
    np.testing.assert_allclose(both.u0, vectors.u0, rtol=1e-12)


def test_few_evaluations_for_many_points():
    calls = []

    def counted(t, u, p):
        calls.append(t)
        return COSTS["controls"](t, u, p)

    _, scalar = lowered(counted)
    many = at_many_points(scalar)
    many.gradients(T, U, P)
    calls.clear()
    many.gradients(T, U, P)
    # all points, and three of them alone, in u and in p
    assert len(calls) == 7


@pytest.mark.parametrize("order", [("arrays", "vectors"), ("vectors", "arrays")])
def test_what_a_cost_keeps_from_its_first_call_is_of_a_single_point(order):
    kept = {}

    def weighted(t, u, p):
        return kept.setdefault("weights", np.ones(N) * np.cos(t)) @ u * p[0]

    problem, _ = lowered(weighted)
    run = ds.solve(problem, U[0], P, ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
    gradients = [ds.adjoint(run, ds.Running(weighted), engine=engine).p for engine in order]
    assert type(kept["weights"]) is np.ndarray
    np.testing.assert_allclose(*gradients, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::daeosens.errors.KinkWarning")  # that of "branches"
@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk5"])
@pytest.mark.parametrize("name", ["controls", "branches"])
def test_gradients_and_products_of_runs_pass_their_taylor_tests(name, method):
    problem, _ = lowered(COSTS[name])
    stepping = ds.Stepping((0.0, 2.0), method, dt=0.1)
    cost = ds.Running(COSTS[name]) + ds.Terminal(lambda t, u, p: u[2] ** 2)
    run = ds.solve(problem, U[0], P, stepping)
    along = RANDOM.normal(size=(2, N)), RANDOM.normal(size=(2, M))
    results = [
        [
            ds.adjoint(run, cost, engine=engine),
            *ds.hessian_product(run, cost, *along, engine=engine),
        ]
        for engine in ("arrays", "vectors")
    ]
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine.p, theirs.p, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(mine.u0, theirs.u0, rtol=1e-10, atol=1e-10)
    if name == "controls":
        guess = {
            key: ds.Parameter(value) for key, value in zip(problem.parameter_names, P, strict=True)
        }
        functional = ds.Reduced(problem, cost, stepping, ds.Parameters(guess, initial_state=U[0]))
        report = ds.taylor(functional)
        assert report.passed, report


def starting(p):
    """Return a start that depends on parameters, and how it changes along d, twice."""
    first = np.array([p[5], 0.2, np.sin(p[6])])
    return (
        first,
        lambda d: np.array([d[5], 0.0, np.cos(p[6]) * d[6]]),
        lambda d: np.array([0.0, 0.0, -np.sin(p[6]) * d[6] ** 2]),
    )


@pytest.mark.parametrize("method", ["rk4", "cn", "esdirk5"])
def test_remainders_are_of_orders_two_and_three(method):
    """With a start that parameters move, explicit time, and a last step that is cut short."""
    problem, _ = lowered(COSTS["controls"])
    cost = ds.Running(lambda t, u, p: COSTS["controls"](t, u, p) + (u @ u - 0.3 * t) ** 2)
    stepping = ds.Stepping((0.0, 1.97), method, dt=0.06)

    def run(p):
        return ds.solve(problem, starting(p)[0], p, stepping)

    # the same direction whichever tests run before
    here, along = run(P), np.random.default_rng(5).normal(size=M)
    _, moved, bent = starting(P)
    gradient = ds.adjoint(here, cost, engine="arrays")
    product = ds.hessian_product(here, cost, moved(along), along, engine="arrays")
    first = gradient.p @ along + gradient.u0 @ moved(along)
    second = product.p @ along + product.u0 @ moved(along) + gradient.u0 @ bent(along)
    remainders = []
    for size in (5e-3, 2.5e-3, 1.25e-3):
        change = ds.adjoint(run(P + size * along), cost).value - gradient.value
        by_first = change - size * first
        remainders.append([abs(by_first), abs(by_first - 0.5 * size**2 * second)])
    orders = np.log2(np.divide(remainders[:-1], remainders[1:]))
    assert orders == pytest.approx(np.array([[2.0, 3.0]] * 2), abs=0.2)
