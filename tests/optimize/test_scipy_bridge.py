"""SciPy's optimisers on a functional, as they are."""

import math

import numpy as np
import pytest
from closed import TARGET, Closed, Curved, N, mixed, quadratic, rosenbrock
from petsc4py import PETSc
from scipy.optimize import minimize

from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
from daeosens.errors import InputError, SolveError, UnsupportedError
from daeosens.optimize.scipy_bridge import scipy_functions

SECOND_ORDER = ["trust-ncg", "Newton-CG", "trust-krylov", "trust-constr"]
FIRST_ORDER = ["L-BFGS-B", "BFGS", "CG", "TNC", "SLSQP"]


def tolerances(method):
    return {"trust-constr": {"gtol": 1e-9}, "Newton-CG": {"xtol": 1e-12}}.get(method, {})


@pytest.mark.mpi
@pytest.mark.parametrize("method", [*SECOND_ORDER, *FIRST_ORDER])
def test_scipy_finds_the_minimum_on_any_number_of_ranks(method, comm):
    functional = Curved(mixed, np.linspace(-0.5, 0.8, N), comm=PETSc.COMM_WORLD)
    fun, jac, hessp, x0, bounds = scipy_functions(functional)
    extra = {"hessp": hessp} if method in SECOND_ORDER else {}
    result = minimize(fun, x0, jac=jac, method=method, options=tolerances(method), **extra)
    assert bounds is None
    np.testing.assert_allclose(result.x, 1.0, atol=1e-3 if method in ("SLSQP", "TNC") else 1e-5)
    assert len(set(comm.allgather((result.nit, result.fun, *result.x)))) == 1


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["L-BFGS-B", "trust-constr", "SLSQP", "TNC"])
def test_bounds_are_scipys(method):
    functional = Curved(quadratic, np.zeros(N), bounds=(-1.0, 0.6), comm=PETSc.COMM_WORLD)
    functions = scipy_functions(functional)
    extra = {"hessp": functions.hessp} if method == "trust-constr" else {}
    result = minimize(
        functions.fun,
        functions.x0,
        jac=functions.jac,
        bounds=functions.bounds,
        method=method,
        **extra,
    )
    np.testing.assert_allclose(result.x, np.clip(TARGET, -1.0, 0.6), atol=5e-3)


@pytest.mark.parametrize("method", ["trust-ncg", "L-BFGS-B"])
def test_functions_are_evaluated_once_at_each_x(method):
    functional = Curved(rosenbrock, [-1.2, 1.0])
    calls = {"value": 0, "value_and_gradient": 0}
    both = functional.value_and_gradient

    def value(x):
        calls["value"] += 1
        return both(x)[0]

    def value_and_gradient(x):
        calls["value_and_gradient"] += 1
        return both(x)

    functional.value, functional.value_and_gradient = value, value_and_gradient
    fun, jac, hessp, x0, _ = scipy_functions(functional)
    extra = {"hessp": hessp} if method == "trust-ncg" else {}
    minimize(fun, x0, jac=jac, method=method, **extra)
    n_different = len(np.unique(functional.points, axis=0))
    assert max(calls.values()) <= n_different
    before = dict(calls)
    point = np.array([0.3, 0.4])
    values = [fun(point), fun(point), jac(point), jac(point), fun(point)]
    assert calls["value"] == before["value"] + 1
    assert calls["value_and_gradient"] == before["value_and_gradient"] + 1
    assert values[0] == values[-1] == rosenbrock(point)[0]
    np.testing.assert_array_equal(values[2], rosenbrock(point)[1])
    values[2][:] = 0.0
    np.testing.assert_array_equal(jac(point), rosenbrock(point)[1])


def test_reduced_runs_forward_once_for_value_gradient_and_product():
    decay = ODE(lambda t, u, p: -p[0] * u + p[1], size=1, parameters=["rate", "supply"])
    functional = Reduced(
        decay,
        LeastSquares([1.0, 2.0], [0.6, 0.5]),
        Stepping((0.0, 2.0), "rk4", dt=0.1),
        Parameters({"rate": Parameter(0.3), "supply": Parameter(0.1)}, initial_state=[1.0]),
    )
    fun, jac, _, x0, bounds = scipy_functions(functional)
    value, gradient = fun(x0), jac(x0)
    assert functional.count.forward == 1
    expected = functional.value_and_gradient(functional.start())
    assert value == expected[0]
    np.testing.assert_array_equal(gradient, expected[1].getArray())
    result = minimize(fun, x0, jac=jac, bounds=bounds, method="L-BFGS-B", tol=1e-14)
    assert result.fun < 1e-10


@pytest.mark.parametrize("method", ["L-BFGS-B", "trust-ncg", "trust-constr", "Newton-CG", "BFGS"])
@pytest.mark.parametrize("how", ["raises", "nan"])
def test_failed_solves_are_survived(method, how):
    def logarithm(x):
        with np.errstate(invalid="ignore"):
            return np.sum(x - np.log(x)), 1.0 - 1.0 / x

    functional = Curved(
        logarithm,
        [8.0, 6.0, 5.0] if method in SECOND_ORDER else [8.0, 0.3, 0.02],
        hessian=lambda x: np.diag(1.0 / x**2),
        domain=(lambda x: np.all(x > 0.0)) if how == "raises" else None,
    )
    fun, jac, hessp, x0, _ = scipy_functions(functional)
    extra = {"hessp": hessp} if method in SECOND_ORDER else {}
    result = minimize(fun, x0, jac=jac, method=method, options=tolerances(method), **extra)
    assert any(np.any(point <= 0.0) for point in functional.points)
    np.testing.assert_allclose(result.x, 1.0, atol=1e-4)


def test_where_there_is_no_value():
    functional = Closed(quadratic, np.ones(N), domain=lambda x: x[0] > 0.0)
    fun, jac, *_ = scipy_functions(functional)
    outside = -np.ones(N)
    with pytest.raises(
        SolveError, match=r"cannot be evaluated at the start: no solution at -1\.00"
    ):
        fun(outside)
    value, gradient = fun(np.ones(N)), jac(np.ones(N))
    functional.points = []
    assert fun(outside) > value
    np.testing.assert_allclose(jac(outside), -7.0 * gradient, rtol=1e-14)
    assert fun(outside) - value == pytest.approx(abs(2.0 * gradient.sum()))
    assert len(functional.points) == 1
    functional.value = lambda x: math.nan
    assert fun(2.0 * np.ones(N)) > value


def test_methods_without_gradients_survive_failed_solves():
    """What fails is worse than all that was tried: a simplex turns back from it."""
    functional = Closed(
        lambda x: (np.sum(x - np.log(x)), 1.0 - 1.0 / x), [0.3, 0.2], domain=lambda x: np.all(x > 0)
    )
    fun, _, _, x0, _ = scipy_functions(functional)
    low, high = fun([1.0, 1.0]), fun([9.0, 9.0])
    assert low < high < fun([-1.0, 1.0])
    result = minimize(fun, x0, method="Nelder-Mead", options={"initial_simplex": SIMPLEX})
    assert any(np.any(point <= 0.0) for point in functional.points[3:])
    np.testing.assert_allclose(result.x, 1.0, atol=1e-3)


SIMPLEX = [[0.3, 0.2], [0.9, 0.25], [0.05, 0.9]]


def test_bad_input_is_named():
    fun, jac, hessp, _, _ = scipy_functions(Closed(rosenbrock, [1.0, 1.0]))
    with pytest.raises(InputError, match=r"x has shape \(3,\)"):
        fun(np.zeros(3))
    with pytest.raises(InputError, match=r"x is nan at index \[1\]"):
        jac([0.0, np.nan])
    with pytest.raises(UnsupportedError, match="hessp needs hessian_product, which Closed lacks"):
        hessp(np.ones(2), np.ones(2))
    fun, jac, hessp, _, _ = scipy_functions(Curved(rosenbrock, [1.0, 1.0]))
    with pytest.raises(InputError, match=r"dx has shape \(1,\)"):
        hessp(np.ones(2), np.ones(1))
