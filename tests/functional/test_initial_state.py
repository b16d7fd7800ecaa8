"""Initial states that follow the parameters: their derivatives, and what is missing or wrong."""

import numpy as np
import pytest
from distributed import make, make_cost
from forms import FORMS, NAMES, P0, U0, initial_state, initial_state_p, make_stepping
from petsc4py import PETSc

import daeosens as ds
from daeosens.functional.initial_state import StartMap
from daeosens.petsc import gather, read, write
from daeosens.problem import Products

PROBLEM = FORMS["rhs"].analytic
VALUES = {name: ds.Parameter(value) for name, value in zip(NAMES, P0, strict=True)}


def state(values):
    vec = PROBLEM.create_state()
    write(vec, values)
    return vec


# ---- the map -------------------------------------------------------------------------------------


@pytest.mark.parametrize("supplied", [None, initial_state_p], ids=["automatic", "callback"])
def test_derivatives_are_those_of_the_map(supplied, rng):
    start, matrix = StartMap(initial_state, supplied), initial_state_p(P0)
    dp, lam = rng.standard_normal(3), rng.standard_normal(3)
    np.testing.assert_array_equal(start.at(PROBLEM, P0), initial_state(P0))
    np.testing.assert_allclose(read(start.tangent(PROBLEM, P0, dp)), matrix @ dp, rtol=1e-14)
    np.testing.assert_allclose(
        start.transposed(PROBLEM, P0, state(lam)), matrix.T @ lam, rtol=1e-14
    )
    h = 1e-4
    ahead, behind = (initial_state_p(P0 + sign * h * dp).T @ lam for sign in (1.0, -1.0))
    np.testing.assert_allclose(
        start.curvature(PROBLEM, P0, state(lam), dp), (ahead - behind) / (2 * h), atol=1e-7
    )


def test_second_derivatives_that_are_given_are_taken(rng):
    value = StartMap(initial_state, None, lambda p, w, dp: p * w + dp)
    lam, dp = rng.standard_normal((2, 3))
    np.testing.assert_array_equal(value.curvature(PROBLEM, P0, state(lam), dp), P0 * lam + dp)


@pytest.mark.mpi
def test_products_of_a_distributed_map():
    case = make(PETSc.COMM_WORLD)

    def apply(p, dp, out):
        case.u0.copy(out)
        out.scale(dp[1])

    products = Products(apply, lambda p, w: np.array([0.0, case.u0.dot(w)]))
    start, p = StartMap(scaled_state(case), products), np.array([0.02, 1.5])
    u0 = start.at(case.problem, p)
    np.testing.assert_allclose(gather(u0), 1.5 * gather(case.u0), rtol=1e-15)
    along = start.tangent(case.problem, p, np.array([0.3, 0.5]))
    pulled = start.transposed(case.problem, p, u0)
    assert pulled @ [0.3, 0.5] == pytest.approx(along.dot(u0), rel=1e-12)


def scaled_state(case):
    """u0 = p_1 times a profile."""

    def initial(p, out):
        case.u0.copy(out)
        out.scale(p[1])

    return initial


@pytest.mark.mpi
def test_distributed_initial_state_that_follows_the_parameters():
    case = make(PETSc.COMM_WORLD)
    cost, stepping = make_cost(case), ds.Stepping((0.0, 0.2), "rk4", dt=0.03)
    values = {"a": 0.02, "r": ds.Parameter(1.5)}
    control = ds.Parameters(
        values, scaled_state(case), lambda p, w: np.array([0.0, case.u0.dot(w)])
    )
    functional = ds.Reduced(case.problem, cost, stepping, control)
    x = functional.start()
    gradient = gather(functional.gradient(x))[0]

    def value(eps):
        moved = x.copy()
        moved.shift(eps)
        return functional.value(moved)

    difference = (8 * (value(1e-3) - value(-1e-3)) - value(2e-3) + value(-2e-3)) / 12e-3
    assert gradient == pytest.approx(difference, rel=1e-9)
    with pytest.raises(
        ds.UnsupportedError, match=r"tangent through a PETSc-style(.|\n)*try: Reduced.gr"
    ):
        functional.derivative(x, x)


@pytest.mark.mpi
def test_missing_or_wrong_derivative_of_a_distributed_initial_state_is_named():
    case = make(PETSc.COMM_WORLD)
    cost, stepping = make_cost(case), ds.Stepping((0.0, 0.2), "rk4", dt=0.03)
    values = {"a": 0.02, "r": ds.Parameter(1.5)}
    missing = ds.Reduced(case.problem, cost, stepping, ds.Parameters(values, scaled_state(case)))
    with pytest.raises(
        ds.UnsupportedError, match=r"'initial_state_p' is needed(.|\n)*callback\(p, w\)"
    ):
        missing.gradient(missing.start())
    wrong = ds.Parameters(values, scaled_state(case), lambda p, w: np.zeros(3))
    functional = ds.Reduced(case.problem, cost, stepping, wrong)
    with pytest.raises(
        ds.InputError, match=r"'initial_state_p' returned shape \(3,\)(.|\n)*\(2,\)"
    ):
        functional.gradient(functional.start())


# ---- wrong ones ----------------------------------------------------------------------------------


def test_initial_state_that_does_not_exist_is_a_failed_solve():
    control = ds.Parameters(VALUES, lambda p: U0 * np.nan)
    with pytest.raises(ds.SolveError, match=r"'initial_state' returned nan in entry \[0\]"):
        control.check(PROBLEM)


def test_wrong_or_impossible_jacobian_of_the_initial_state_is_named():
    cost, stepping = ds.Terminal(lambda t, u, p: u[0]), make_stepping("rk4")
    wrong = ds.Reduced(
        PROBLEM, cost, stepping, ds.Parameters(VALUES, initial_state, lambda p: np.eye(2))
    )
    with pytest.raises(
        ds.InputError, match=r"'initial_state_p' returned shape \(2, 2\)(.|\n)*\(3, 3\)"
    ):
        wrong.gradient(wrong.start())

    def dropping(p):
        return [float(x) for x in p]

    refused = ds.Reduced(PROBLEM, cost, stepping, ds.Parameters(VALUES, dropping))
    with pytest.raises(
        ds.InputError, match=r"'initial_state' cannot be differentiated(.|\n)*try: initial_state_p="
    ):
        refused.gradient(refused.start())
