"""Costs at times inside of steps: ``Stepping(cut=False)``."""

import numpy as np
import pytest
from distributed import make
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives import derivative_error

TIMES = np.array([0.13, 0.5, 0.71, 0.77, 1.93, 2.0])
DATA = np.random.default_rng(0).uniform(0.2, 0.9, (6, 2))
COST = ds.LeastSquares(TIMES, DATA, 0.3) + ds.Terminal(lambda t, u, p: u[0] * p[1])
NAMES = ["a", "b"]


def rhs(t, u, p):
    return np.array([u[1] + 0.3 * np.sin(2 * t), -p[0] * u[0] * (1 + u[1] ** 2) - p[1] * u[1]])


def functional(problem, method, **sizes):
    control = ds.Parameters(
        {name: ds.Parameter(value) for name, value in zip(NAMES, (1.3, 0.4), strict=True)},
        initial_state=lambda p: np.array([0.8 * p[0], 0.3]),
    )
    return ds.Reduced(problem, COST, ds.Stepping((0.0, 2.0), method, **sizes, cut=False), control)


@pytest.mark.parametrize("style", ["numpy", "traced"])
@pytest.mark.parametrize(
    ("method", "sizes"),
    [
        ("rk4", {"dt": 0.4}),
        ("rk5ts", {"rtol": 1e-5}),
        ("cn", {"dt": 0.25}),
        ("esdirk4", {"dt": 0.4}),
    ],
)
def test_derivatives_are_exact(method, sizes, style):
    problem = ds.ODE(rhs, 2, NAMES) if style == "numpy" else ds.trace(rhs, 2, NAMES)
    reduced = functional(problem, method, **sizes)
    run = reduced.trajectory(reduced.start())
    assert not {0.13, 0.71, 0.77, 1.93} & set(run.times.tolist())
    gradient = ds.adjoint(run, COST)
    du, dp = np.array([0.3, -0.7]), np.array([0.5, 1.1])
    along = ds.tangent(run, du, dp)
    expected = gradient.u0 @ du + gradient.p @ dp
    assert abs(along.derivative(COST) - expected) < 1e-12 * abs(expected)
    assert 1.95 < min(ds.taylor(reduced)) < 2.1
    assert 2.9 < min(ds.taylor(reduced, hessian=True)) < 3.1


def test_values_are_those_of_the_states_there():
    reduced = functional(ds.ODE(rhs, 2, NAMES), "rk4", dt=0.4)
    run = reduced.trajectory(reduced.start())
    rows = (run(TIMES) - DATA) / 0.3
    expected = 0.5 * np.sum(rows**2) + run.final.array[0] * 0.4
    assert reduced.value(reduced.start()) == pytest.approx(expected, rel=1e-13)
    assert ds.adjoint(run, COST).value == pytest.approx(expected, rel=1e-13)


def test_residuals_and_gauss_newton():
    misfit = ds.LeastSquares(TIMES, DATA, 0.3)
    control = ds.Parameters(
        {"a": ds.Parameter(1.3), "b": ds.Parameter(0.4)}, initial_state=[0.8, 0.3]
    )
    stepping = ds.Stepping((0.0, 2.0), "rk4", dt=0.4, cut=False)
    reduced = ds.Reduced(ds.ODE(rhs, 2, NAMES), misfit, stepping, control)
    x = reduced.start()
    rows, matrix = reduced.residual(x).array, reduced.residual_jacobian(x).getDenseArray()
    np.testing.assert_allclose(rows @ matrix, reduced.gradient(x).array, rtol=1e-11)
    product = reduced.gauss_newton_product(x, [0.3, -1.0]).array
    np.testing.assert_allclose(product, matrix.T @ matrix @ [0.3, -1.0], rtol=1e-11)


@pytest.mark.slow
def test_more_data_take_no_more_steps_and_errors_are_estimated():
    times = np.linspace(0.01, 1.99, 199)
    stepping = ds.Stepping((0.0, 2.0), "rk4", dt=0.1, cut=False)
    run = ds.solve(ds.ODE(rhs, 2, NAMES), [0.8, 0.3], [1.3, 0.4], stepping, times)
    assert run.n_steps == 20
    misfit = ds.LeastSquares(times, np.zeros((199, 2)))
    fine = ds.Stepping((0.0, 2.0), "rk8vr", dt=0.1)
    better = ds.adjoint(ds.solve(run.problem, [0.8, 0.3], [1.3, 0.4], fine, times), misfit).p
    error = ds.adjoint(run, misfit).p - better
    assert np.linalg.norm(derivative_error(run, misfit).p - error) < 0.2 * np.linalg.norm(error)


@pytest.mark.mpi
def test_distributed_runs():
    case = make(PETSc.COMM_WORLD, "vec")
    times, stepping = [0.033, 0.07], {"t_span": (0.0, 0.1), "method": "rk5dp"}
    data = [case.u0 for _ in times]
    misfit = ds.LeastSquares(times, data)
    inside = ds.solve(case.problem, case.u0, case.p, ds.Stepping(**stepping, dt=0.02, cut=False))
    fine = ds.solve(case.problem, case.u0, case.p, ds.Stepping(**stepping, dt=0.01), times)
    ours, theirs = ds.adjoint(inside, misfit), ds.adjoint(fine, misfit)
    np.testing.assert_allclose(ours.p, theirs.p, rtol=1e-4)
    du = case.u0.copy()
    change = ds.tangent(inside, du).derivative(misfit)
    assert change == pytest.approx(ours.u0_vec.dot(du), rel=1e-12)


def test_what_is_refused():
    with pytest.raises(ds.InputError, match="cut = 1; expected: True or False"):
        ds.Stepping((0.0, 2.0), "rk4", dt=0.1, cut=1)
    event = ds.Event(lambda t, u, p: u[0])
    problem = ds.ODE(rhs, 2, NAMES, events=[event])
    stepping = ds.Stepping((0.0, 2.0), "rk4", dt=0.1, cut=False)
    with pytest.raises(
        ds.UnsupportedError, match="cut = False for a problem with events or delays"
    ):
        ds.solve(problem, [0.8, 0.3], [1.3, 0.4], stepping)
    with pytest.raises(ds.InputError, match="outside the time span"):
        ds.solve(ds.ODE(rhs, 2, NAMES), [0.8, 0.3], [1.3, 0.4], stepping, [2.5])
