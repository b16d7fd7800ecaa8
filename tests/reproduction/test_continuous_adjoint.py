"""Continuous adjoints: closed forms, and agreement with the discrete ones.

The order of agreement is that of the method; the backsolve adjoint of a diffusive problem has to
fail visibly.
"""

from functools import cache

import numpy as np
import pytest
from continuous import PRODUCTS, RINGS, Ring, orders, stepping
from continuous_adjoint import continuous_adjoint
from forms import ANALYTIC_COST, DECAY, FORMS, P0, U0
from scipy import sparse

import daeosens as ds

PROBLEM = FORMS["rhs"].analytic
MODES = ("backsolve", "interpolating")


@cache
def discrete(method, dt):
    steps = stepping(method, dt)
    return ds.adjoint(ds.solve(PROBLEM, U0, P0, steps, ANALYTIC_COST.times), ANALYTIC_COST)


def distance(first, second):
    return max(abs(first.u0 - second.u0).max(), abs(first.p - second.p).max())


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("method", "order"), [("rk1fe", 1), ("beuler", 1), ("cn", 2), ("rk3bs", 3), ("rk4", 4)]
)
def test_continuous_adjoint_approaches_the_discrete_one_with_the_order_of_the_method(
    mode, method, order
):
    """For terminal, running and observation costs together."""
    errors = [
        distance(
            continuous_adjoint(PROBLEM, U0, P0, stepping(method, dt), ANALYTIC_COST, mode),
            discrete(method, dt),
        )
        for dt in (0.02, 0.01, 0.005)
    ]
    np.testing.assert_allclose(orders(errors), order, atol=0.1)


def test_interpolation_limits_the_order_to_four():
    errors = [
        distance(
            continuous_adjoint(
                PROBLEM, U0, P0, stepping("rk5dp", dt), ANALYTIC_COST, "interpolating"
            ),
            discrete("rk5dp", dt),
        )
        for dt in (0.02, 0.01)
    ]
    np.testing.assert_allclose(orders(errors), 4.0, atol=0.05)


@pytest.mark.parametrize("mode", MODES)
def test_continuous_adjoint_of_a_closed_form(mode):
    final = ds.Terminal(lambda t, u, p: u[0])
    gradient = continuous_adjoint(
        DECAY.problem, DECAY.u0, DECAY.p, stepping("rk4", 0.02, 2.0), final, mode
    )
    assert gradient.value == pytest.approx(DECAY.solution(2.0), rel=1e-7)
    np.testing.assert_allclose(gradient.p, DECAY.by_p(2.0), rtol=1e-7)
    np.testing.assert_allclose(gradient.u0, DECAY.by_u0(2.0), rtol=1e-7)
    assert gradient.drift < 1e-7
    assert f"({mode}): 100 backward steps" in str(gradient)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["rk4", "cn"])
def test_derivatives_given_by_products_give_the_same_adjoint(mode, method):
    steps = stepping(method, 0.05)
    matrix = continuous_adjoint(PROBLEM, U0, P0, steps, ANALYTIC_COST, mode)
    products = continuous_adjoint(PRODUCTS, U0, P0, steps, ANALYTIC_COST, mode)
    assert distance(matrix, products) < 1e-9


def test_way_back_can_have_its_own_steps():
    """Small fixed steps forward; adaptive ones back, whose tolerance then decides."""
    forward = stepping("rk4", 0.005)
    exact = discrete("rk5dp", 0.005)
    errors = []
    for tolerance in (1e-4, 1e-8):
        backward = ds.Stepping((0.0, 1.0), "rk5dp", rtol=tolerance, atol=tolerance)
        gradient = continuous_adjoint(
            PROBLEM, U0, P0, forward, ANALYTIC_COST, "interpolating", backward
        )
        errors.append(distance(gradient, exact))
        assert gradient.steps < gradient.forward.n_steps
    assert errors[1] < 1e-6
    assert errors[1] < 1e-2 * errors[0]


def test_observations_at_both_ends():
    cost = ds.LeastSquares([0.0, 1.0], [[0.2], [0.1]]) + ds.Running(lambda t, u, p: p[1] * u[0])
    steps = stepping("rk4", 0.02, 1.0)
    exact = ds.adjoint(ds.solve(DECAY.problem, DECAY.u0, DECAY.p, steps, cost.times), cost)
    for mode in MODES:
        gradient = continuous_adjoint(DECAY.problem, DECAY.u0, DECAY.p, steps, cost, mode)
        assert distance(gradient, exact) < 1e-7


def test_problem_without_parameters():
    problem = ds.ODE(lambda t, u, p: -(u**2), 1)
    gradient = continuous_adjoint(
        problem, [1.0], None, stepping("rk4", 0.01, 1.0), ds.Terminal(lambda t, u, p: u[0])
    )
    np.testing.assert_allclose(gradient.u0, 0.25, rtol=1e-8)  # u(1) = u0 / (1 + u0)
    assert gradient.p.size == 0


def test_unknown_mode_is_refused():
    with pytest.raises(ds.InputError, match="mode = 'quadrature'\n  expected: \"backsolve\""):
        continuous_adjoint(PROBLEM, U0, P0, stepping("cn", 0.1), ANALYTIC_COST, "quadrature")


@pytest.mark.parametrize("name", ["M", "F"])
def test_other_forms_are_refused_with_the_alternative(name):
    problem, steps = FORMS[name].analytic, stepping("cn", 0.1)
    with pytest.raises(ds.UnsupportedError, match=f"{problem.form} form(.|\n)*try: adjoint"):
        continuous_adjoint(problem, U0, P0, steps, ANALYTIC_COST)


# ---- diffusion -----------------------------------------------------------------------------------

FINAL_ENERGY = ds.Terminal(lambda t, u, p: 0.5 * (u @ u), lambda t, u, p: u, "independent")


@cache
def heat(n):
    """The five-point heat equation on n x n interior points of the unit square."""
    second = sparse.diags_array(
        [np.ones(n - 1), -2.0 * np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1]
    )
    laplace = sparse.kronsum(second, second, format="csr") * (n + 1) ** 2
    x = np.sin(np.pi * np.arange(1, n + 1) / (n + 1))
    problem = ds.ODE(
        lambda t, u, p: p[0] * (laplace @ u),
        n * n,
        ["alpha"],
        jacobian=lambda t, u, p: p[0] * laplace,
        jacobian_p=lambda t, u, p: (laplace @ u)[:, None],
    )
    return problem, np.outer(x, x).ravel()


@pytest.mark.parametrize("method", ["rk1fe", "cn"])
def test_interpolating_adjoint_of_diffusion_is_stable(method):
    problem, u0 = heat(30)
    steps = stepping(method, 1e-4, 0.01)
    gradient = continuous_adjoint(problem, u0, [1.0], steps, FINAL_ENERGY, "interpolating")
    exact = ds.adjoint(ds.solve(problem, u0, [1.0], steps), FINAL_ENERGY)
    np.testing.assert_allclose(gradient.p, exact.p, rtol=5e-3)
    np.testing.assert_allclose(gradient.u0, exact.u0, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_backsolve_of_diffusion_blows_up_with_the_resolution():
    """Rounding grows as exp(8 (n + 1)^2 T)."""
    drifts = []
    for n in (10, 30, 50):
        problem, u0 = heat(n)
        gradient = continuous_adjoint(problem, u0, [1.0], stepping("rk4", 5e-5, 0.01), FINAL_ENERGY)
        drifts.append(gradient.drift)
    assert drifts[0] < 1e-10
    assert drifts[1] > 1e10
    assert drifts[2] > 1e50
    assert abs(gradient.p[0]) > 1e30


@pytest.mark.slow
def test_backsolve_that_overflows_is_a_solve_error():
    problem, u0 = heat(30)
    with pytest.raises(ds.SolveError, match=r"not finite|entry|TS failed"):
        continuous_adjoint(problem, u0, [1.0], stepping("rk1fe", 1e-4, 0.3), FINAL_ENERGY)


# ---- distributed ---------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("options", RINGS, ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("method", "dt", "tolerance"), [("rk4", 0.025, 1e-6), ("cn", 0.05, 2e-3)])
def test_distributed_continuous_adjoint(options, mode, method, dt, tolerance):
    ring = Ring(**options)
    steps, cost = stepping(method, dt, 0.5), ring.cost()
    gradient = continuous_adjoint(ring.problem, ring.u0, ring.p, steps, cost, mode)
    exact = ds.adjoint(ds.solve(ring.problem, ring.u0, ring.p, steps, cost.times), cost)
    by_u0, by_p = exact.gather()
    np.testing.assert_allclose(gradient.u0, by_u0, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(gradient.p, by_p, rtol=tolerance, atol=tolerance)
    assert gradient.drift < 1e-3
