"""Starts whose algebraic variables follow the parameters: two derivatives, and fits with them."""

import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.functional import InitialState
from daeosens.functional.consistent_initial_state import ConsistentStart
from daeosens.functional.initial_state import StartMap
from daeosens.inverse import Normal
from daeosens.petsc import gather, scatter
from daeosens.problem import INDEPENDENT
from daeosens.verify import duality
from tests.timestepping.test_consistent_start import TIGHT, N, distributed

MASS = np.diag([1.0, 0.0])
LINEAR = ds.ODE(lambda t, u, p: np.array([-u[1], u[1] - p[0] * u[0]]), 2, ["k"], mass=MASS)
CUBIC = ds.ODE(
    lambda t, u, p: np.array([-u[1], u[1] - p[0] * u[0] + 0.1 * u[1] ** 3]), 2, ["k"], mass=MASS
)
TIMES = np.linspace(0.1, 2.0, 20)


def control(initial_state, value=0.8, **options):
    return ds.Parameters({"k": ds.Parameter(value, lower=0.1, upper=5.0)}, initial_state, **options)


# ---- the map -------------------------------------------------------------------------------------


def test_linear_constraint_in_closed_form():
    """0 = y - k x from x = 1, and from x = k^2: y = k^3."""
    k, lam = np.array([0.7]), LINEAR.admit_state([0.3, -1.1])
    fixed = ConsistentStart([1.0, 9.0], 0.0, {})
    np.testing.assert_allclose(fixed.at(LINEAR, k).array, [1.0, 0.7], rtol=1e-15)
    np.testing.assert_allclose(fixed.tangent(LINEAR, k, k).array, [0.0, 0.7], rtol=1e-15)
    np.testing.assert_allclose(fixed.transposed(LINEAR, k, lam), [-1.1], rtol=1e-15)
    np.testing.assert_allclose(fixed.curvature(LINEAR, k, lam, k), [0.0], atol=1e-15)
    moving = ConsistentStart(StartMap(lambda p: np.array([p[0] ** 2, 0.0])), 0.0, {})
    np.testing.assert_allclose(moving.at(LINEAR, k).array, [0.49, 0.343], rtol=1e-15)
    np.testing.assert_allclose(moving.tangent(LINEAR, k, k).array, [0.98, 1.029], rtol=1e-14)
    expected = 0.3 * 1.4 - 1.1 * 3 * 0.49
    np.testing.assert_allclose(moving.transposed(LINEAR, k, lam), [expected], rtol=1e-14)
    bend = (0.3 * 2.0 - 1.1 * 6 * 0.7) * 0.7
    np.testing.assert_allclose(moving.curvature(LINEAR, k, lam, k), [bend], rtol=1e-14)


def scrambled(t, u, p):
    z, x, y = u
    return np.array([-x + y * z, z**3 + z - p[1] * x * y, y - np.exp(-p[0] * y) * x - np.sin(t)])


def shifted(t, u, udot, p):
    return np.array([2.0 * udot[1] + 0.1 * udot[1] ** 3, 0.0 * udot[0], 0.0 * udot[0]]) - scrambled(
        t, u, p
    )


ROWS = np.zeros((3, 3))
ROWS[0, 1] = 2.0
SCRAMBLED = {
    "mass": ds.ODE(scrambled, 3, ["a", "b"], mass=ROWS),
    "residual": ds.DAE(shifted, 3, ["a", "b"]),
}


@pytest.mark.parametrize("form", SCRAMBLED)
@pytest.mark.parametrize("moves", [False, True])
def test_derivatives_are_those_of_the_solution(form, moves, rng):
    """Against differences of order 6, and against each other."""
    problem, p, dp = SCRAMBLED[form], np.array([0.7, 1.3]), rng.normal(size=2)
    value = StartMap(lambda p: np.array([0.2, p[0] * p[1] ** 2, 0.5])) if moves else [0.2, 1.1, 0.5]
    start, w = ConsistentStart(value, 0.3, {}), problem.admit_state(rng.normal(size=3))
    h, points, weights = 1e-3, (-3, -2, -1, 1, 2, 3), np.array([-1, 9, -45, 45, -9, 1]) / 60
    states = [start.at(problem, p + e * h * dp).array for e in points]
    along = start.tangent(problem, p, dp).array
    np.testing.assert_allclose(along, weights @ states / h, rtol=1e-9, atol=1e-11)
    assert start.transposed(problem, p, w) @ dp == pytest.approx(w.array @ along, rel=1e-13)
    slopes = [start.transposed(problem, p + e * h * dp, w) for e in points]
    bend = start.curvature(problem, p, w, dp)
    np.testing.assert_allclose(bend, weights @ slopes / h, rtol=1e-9, atol=1e-11)


def test_the_equations_are_those_of_the_first_mode_at_the_time_of_the_start():
    def equations(factor):
        return ds.ODE(
            lambda t, u, p: np.array([-u[1], u[1] - factor * p[0] * t * u[0]]),
            2,
            ["k"],
            mass=MASS,
        )

    problem = ds.hybrid({"one": equations(1.0), "two": equations(2.0)}, "two", [])
    end = ds.Terminal(lambda t, u, p: u[1])
    span = ds.Stepping((3.0, 3.5), "cn", dt=0.1)
    functional = ds.Reduced(problem, end, span, control([1.0, 0.0]))
    with pytest.raises(ds.InputError, match="does not satisfy the algebraic equations"):
        functional.value([0.8])
    functional = ds.Reduced(problem, end, span, control([1.0, 0.0], consistent=True))
    np.testing.assert_allclose(functional.trajectory([0.8]).u[0], [1.0, 4.8], rtol=1e-14)


# ---- reduced functionals -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cn", "theta:0.7", "midpoint", "beuler", "esdirk4"])
@pytest.mark.parametrize("initial_state", [[1.0, 0.5], lambda p: np.array([p[0] ** 2, p[0]])])
def test_gradients_and_hessians_are_right(method, initial_state):
    misfit = ds.LeastSquares(TIMES, np.outer(np.exp(-TIMES), [1.0, 1.2]))
    values = {"k": ds.Parameter(0.8, scale="log")}
    start = ds.Parameters(values, initial_state, consistent=True)
    functional = ds.Reduced(CUBIC, misfit, ds.Stepping((0.0, 2.0), method, dt=0.05), start)
    x = functional.start()
    assert min(ds.taylor(functional)) > 1.98
    assert min(ds.taylor(functional, hessian=True)) > 2.95
    assert duality(functional.trajectory(x), misfit) < 1e-12
    backward = functional.gradient(x).dot(x)
    assert functional.derivative(x, x) == pytest.approx(backward, rel=1e-12)
    column = functional.residual_jacobian(x).getDenseArray()[:, 0]
    product = functional.gauss_newton_product(x, np.ones(1)).array[0]
    assert product == pytest.approx(column @ column, rel=1e-12)


# data without noise, by coarse steps: discretisation is all that is left
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:discretisation moves")
def test_a_fit_with_crank_nicolson_finds_the_truth():
    truth = ds.consistent_state(CUBIC, [1.0, 0.0], [1.3])
    run = ds.solve(
        CUBIC, truth, [1.3], ds.Stepping((0.0, 2.0), "esdirk5", rtol=1e-9, atol=1e-11), TIMES
    )
    data = np.array([run.u[run.index(float(t))] for t in TIMES])
    u0 = ds.consistent_state(CUBIC, [1.0, 0.0], [0.8]).array
    stepping = ds.Stepping((0.0, 2.0), "cn", dt=0.05)

    def fitted(parameters, noise):
        return ds.fit(CUBIC, data, parameters, stepping, times=TIMES, noise=noise)

    for noise in (Normal(0.01), Normal()):
        estimate = fitted(control(u0, consistent=True), noise)
        assert estimate.estimate["k"] == pytest.approx(
            1.3, abs=5e-4
        )  # what is left is of the steps


# ---- refusals ------------------------------------------------------------------------------------


def test_consistent_state_inside_an_initial_state_names_the_option():
    def initial_state(p):
        return ds.consistent_state(CUBIC, [1.0, 0.0], p).array

    misfit = ds.LeastSquares([1.0], [[0.5, 0.5]])
    functional = ds.Reduced(
        CUBIC, misfit, ds.Stepping((0.0, 1.0), "cn", dt=0.1), control(initial_state)
    )
    with pytest.raises(ds.InputError, match=r"carry derivatives(.|\n)*u0, consistent=True"):
        functional.gradient([0.8])


def test_wrong_values_and_starts_without_a_solution_are_named():
    with pytest.raises(ds.InputError, match="consistent = 'yes'; expected: True or False"):
        control([1.0, 0.0], consistent="yes")
    none = ds.ODE(lambda t, u, p: np.array([-u[1], u[1] ** 2 + p[0]]), 2, ["k"], mass=MASS)
    misfit = ds.LeastSquares([1.0], [[0.5, 0.5]])
    with pytest.raises(ds.SolveError, match="no consistent algebraic variables found at t = 0"):
        ds.Reduced(
            none, misfit, ds.Stepping((0.0, 1.0), "cn", dt=0.1), control([1, 1], consistent=True)
        )


def test_without_algebraic_variables_nothing_changes():
    plain = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["k"])
    misfit = ds.LeastSquares([1.0], [[0.5]])
    values = []
    for consistent in (False, True):
        start = control(lambda p: p**2, consistent=consistent)
        functional = ds.Reduced(plain, misfit, ds.Stepping((0.0, 1.0), "cn", dt=0.1), start)
        values.append([*functional.gradient([0.8]).array, *functional.hessian([0.8]).ravel()])
    np.testing.assert_array_equal(*values)


# ---- several ranks -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.mpi
def test_answers_do_not_depend_on_the_number_of_ranks():
    end = ds.Terminal(
        lambda t, u, p: float((gather(u) ** 2).sum()),
        gradient_u=lambda t, u, p, out: (u.copy(out), out.scale(2.0)),
        gradient_p=INDEPENDENT,
    )
    options = TIGHT | {"ksp_type": "preonly", "pc_type": "redundant"}
    values = {"a": ds.Parameter(0.8), "b": ds.Parameter(0.25)}
    numbers = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        problem = distributed(comm).modes["weak"]
        guess = problem.create_state()
        scatter(np.concatenate([np.linspace(0.5, 0.9, N), np.full(N, 0.4)]), guess)
        start = ds.Parameters(values, guess, consistent=True)
        stepping = ds.Stepping((0.2, 0.8), "cn", dt=0.1, options=options)
        functional = ds.Reduced(problem, end, stepping, start)
        x = functional.start()
        first, rest = functional.trajectory(x).states[0], problem.create_state()
        problem.rhs(0.2, first, np.array([0.8, 0.25]), rest)
        state = gather(first).copy()  # the run is freed by the next one
        assert abs(gather(rest)[:N]).max() < 1e-15
        assert min(ds.taylor(functional)) > 1.98
        gradient = functional.gradient(x)
        derivative = functional.derivative(x, x)
        assert derivative == pytest.approx(gradient.dot(x), rel=1e-11)
        numbers.append([functional.value(x), *gather(gradient), *state])
    np.testing.assert_allclose(numbers[0], numbers[1], rtol=1e-10)


def test_a_start_by_itself_does_not_know_its_time():
    parameters = control([1.0, 0.0], consistent=True)
    with pytest.raises(ds.InputError, match=r"without the time of the start(.|\n)*Reduced"):
        parameters.unpack(CUBIC, parameters.start(CUBIC))


def test_rows_that_become_algebraic_with_the_parameters_are_looked_for_at_each_point():
    problem = ds.ODE(
        lambda t, u, p: np.array([-u[0], u[0] - u[1]]),
        2,
        ["tau"],
        mass=lambda p: np.diag([1.0, p[0]]),
    )
    start = ConsistentStart([1.0, 3.0], 0.0, {})
    for tau, value in ((1.0, [1.0, 3.0]), (0.0, [1.0, 1.0]), (1.0, [1.0, 3.0])):
        np.testing.assert_allclose(start.at(problem, np.array([tau])).array, value, rtol=1e-14)


# ---- whole starts --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cn", "midpoint", "beuler", "esdirk4"])
def test_initial_states_with_their_algebraic_variables(method):
    """The same run, gradient and curvature as with x as a parameter; none in the guess of y."""
    cost = ds.LeastSquares([0.5, 1.0], [[0.3, 0.2], [0.1, 0.3]], observe=[0, 1])
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.1, options=TIGHT)
    free = InitialState([0.9, 0.3], [0.8], consistent=True)
    whole = ds.Reduced(CUBIC, cost, stepping, free)
    orders = ds.taylor(whole, hessian=True)
    assert orders.order > 1.9
    assert orders.hessian_order > 2.9
    whole.check_second_order()
    named = ds.ODE(
        lambda t, u, p: np.array([-u[1], u[1] - p[0] * u[0] + 0.1 * u[1] ** 3]),
        2,
        ["k", "x"],
        mass=MASS,
    )
    entries = {"k": ds.Parameter(0.8, free=False), "x": ds.Parameter(0.9)}
    start = ds.Parameters(entries, lambda p: np.array([p[1], 0.3 + 0 * p[0]]), consistent=True)
    alone = ds.Reduced(named, cost, stepping, start)
    x, y = whole.start(), alone.start()
    assert whole.value(x) == pytest.approx(alone.value(y), rel=1e-12)
    gradient = whole.gradient(x).array
    assert gradient[0] == pytest.approx(alone.gradient(y).array[0], rel=1e-10)
    assert gradient[1] == 0.0
    dx, dy = x.duplicate(), y.duplicate()
    dx.setArray([0.7, 5.0])
    dy.setArray([0.7])
    product = whole.hessian_product(x, dx).array
    assert product[0] == pytest.approx(alone.hessian_product(y, dy).array[0], rel=1e-9)
    assert product[1] == 0.0


def test_a_start_is_found_from_measurements_of_algebraic_variables():
    stepping = ds.Stepping((0.0, 2.0), "cn", dt=0.1)
    truth = ds.solve(CUBIC, ds.consistent_state(CUBIC, [1.2, 0.5], [0.8]), [0.8], stepping, TIMES)
    data = [truth.at(t).array[1] for t in TIMES]
    cost = ds.LeastSquares(TIMES, data, observe=[1])
    result = ds.minimize(
        ds.Reduced(CUBIC, cost, stepping, InitialState([0.5, 0.5], [0.8], consistent=True))
    )
    assert result.x.array[0] == pytest.approx(1.2, rel=1e-5)
    with pytest.raises(ds.InputError, match="consistent = 1\n  expected: True or False"):
        InitialState([1.0], consistent=1)
    with pytest.raises(ds.InputError, match=r"without the time of the start(.|\n)*InitialState\("):
        InitialState([1.0, 1.0], [0.8], consistent=True).unpack(CUBIC, truth.final)


@pytest.mark.slow
@pytest.mark.mpi
def test_initial_states_on_any_number_of_ranks():
    """Taylor and the answers of one rank; equations far from their variables."""
    values = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        problem = distributed(comm).modes["weak"]
        guess = problem.create_state()
        scatter(np.concatenate([np.linspace(0.5, 0.9, N), np.full(N, 0.4)]), guess)
        cost = ds.Terminal(
            lambda t, u, p: float((gather(u) ** 2).sum()),
            gradient_u=lambda t, u, p, out: (u.copy(out), out.scale(2.0)),
            gradient_p=INDEPENDENT,
        )
        options = TIGHT | {"ksp_type": "preonly", "pc_type": "redundant"}
        stepping = ds.Stepping((0.0, 0.4), "cn", dt=0.1, options=options)
        functional = ds.Reduced(
            problem, cost, stepping, InitialState(guess, [0.8, 0.25], consistent=True)
        )
        assert ds.taylor(functional).order > 1.9
        values.append(gather(functional.gradient(functional.start())))
        assert not values[-1][N:].any()
    np.testing.assert_allclose(values[0], values[1], rtol=1e-9, atol=1e-12)
