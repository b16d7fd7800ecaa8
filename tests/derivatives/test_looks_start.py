"""The warning of starts that other parameters do not admit."""

import warnings

import numpy as np
import pytest

import daeosens as ds
from daeosens.errors import StartWarning

# x' = -y, 0 = y - k x: y(1) = k exp(-k)
K = 0.7
EXACT = (1.0 - K) * np.exp(-K)
LAST = ds.Terminal(lambda t, u, p: u[1])


def as_residual():
    return ds.DAE(lambda t, u, v, p: np.array([v[0] + u[1], u[1] - p[0] * u[0]]), 2, ["k"])


def with_mass():
    mass = np.diag([1.0, 0.0])
    return ds.ODE(lambda t, u, p: np.array([-u[1], u[1] - p[0] * u[0]]), 2, ["k"], mass=mass)


def run_of(problem, method):
    start = ds.consistent_state(problem, [1.0, K], [K])
    return ds.solve(problem, start, [K], ds.Stepping((0.0, 1.0), method, dt=0.01))


USES = {
    "adjoint": lambda run: ds.adjoint(run, LAST),
    "tangent": lambda run: ds.tangent(run, dp=[1.0]),
    "sensitivities": ds.sensitivities,
    "hessian": lambda run: ds.hessian_product(run, LAST, dp=[1.0]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("make", [as_residual, with_mass])
@pytest.mark.parametrize("method", ["cn", "midpoint", "theta:0.6"])
def test_derivatives_that_hold_the_start_fixed_are_told(method, make, use):
    run = run_of(make(), method)
    with pytest.warns(StartWarning, match="at these parameters only"):
        use(run)
    with warnings.catch_warnings(action="error", category=StartWarning):
        use(run)  # the second time


@pytest.mark.filterwarnings("error::daeosens.errors.StartWarning")
@pytest.mark.parametrize(
    ("make", "method"), [(as_residual, "beuler"), (with_mass, "beuler"), (with_mass, "esdirk4")]
)
def test_methods_that_forget_the_start_are_right(make, method):
    """But for the first rate of ESDIRK methods: b_1 h of it, 0.0016."""
    gradient = ds.adjoint(run_of(make(), method), LAST).p[0]
    assert gradient == pytest.approx(EXACT, rel=0.05 if method == "beuler" else 2e-3)


@pytest.mark.filterwarnings("error::daeosens.errors.StartWarning")
def test_a_start_that_follows_is_right():
    control = ds.Parameters({"k": ds.Parameter(K)}, [1.0, K], consistent=True)
    functional = ds.Reduced(as_residual(), LAST, ds.Stepping((0.0, 1.0), "cn", dt=0.01), control)
    assert functional.gradient([K]).array[0] == pytest.approx(EXACT, rel=1e-4)


def test_a_functional_with_a_fixed_start_is_told():
    control = ds.Parameters({"k": ds.Parameter(K)}, [1.0, K])
    functional = ds.Reduced(as_residual(), LAST, ds.Stepping((0.0, 1.0), "cn", dt=0.01), control)
    with pytest.warns(StartWarning):
        functional.gradient([K])


@pytest.mark.filterwarnings("error::daeosens.errors.StartWarning")
def test_equations_whose_algebraic_part_has_no_parameters_are_silent():
    problem = ds.DAE(lambda t, u, v, p: np.array([v[0] + p[0] * u[1], u[1] - u[0]]), 2, ["k"])
    run = ds.solve(problem, [1.0, 1.0], [K], ds.Stepping((0.0, 1.0), "cn", dt=0.01))
    assert ds.adjoint(run, LAST).p[0] == pytest.approx(-np.exp(-K), rel=1e-4)
