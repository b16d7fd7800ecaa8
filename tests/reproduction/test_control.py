"""Optimal control and recovered parameters: published results are found again."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize as scipy_minimize

from daeosens import Stepping, minimize, taylor
from daeosens.petsc import gather
from reproduction import aircraft, oscillator, recovery
from reproduction.recovery import CASES
from reproduction.tutorials import PRINTED


def printed(value):
    """Return the value as TAO prints it."""
    return f"{value:.6g}"


# ---- aircraft ------------------------------------------------------------------------------------

HEADINGS = [float(text) for text in PRINTED["optimal_control"]["headings"]]
solved = cache(aircraft.solved)


@cache
def optimum():
    return aircraft.optimum(HEADINGS)


@pytest.mark.parametrize("method", ["rk3bs", "rk3", "rk4", "rk5dp"])
@pytest.mark.parametrize("n_steps", [10, 25, 80])
def test_aircraft_cost_and_gradient_are_those_of_the_closed_form(method, n_steps):
    """The integrand is a quadratic polynomial on each interval, which order three integrates."""
    functional = aircraft.functional(n_steps=n_steps, method=method)
    x = functional.start()
    x.array[:] = np.concatenate([np.linspace(0.5, 1.9, 10), np.linspace(-3.0, 2.0, 10)])
    value, gradient = functional.value_and_gradient(x)
    assert value == pytest.approx(aircraft.closed_form(x.array), rel=1e-14)
    exact = aircraft.closed_form_gradient(x.array)
    np.testing.assert_allclose(gradient.array, exact, rtol=0, atol=1e-13)


def test_aircraft_gradient_check_has_order_two():
    for basis in ("constant", "linear", "cubic"):
        assert min(taylor(aircraft.functional(basis)).orders[1][:5]) > 1.99


def test_published_aircraft_is_the_optimum_to_the_tolerance_it_was_stopped_at():
    exact = optimum()
    assert printed(exact.value) == "0.849937"
    assert exact.slopes.max() < 0  # all speeds are held at their bound
    np.testing.assert_allclose(exact.controls[10:], HEADINGS, rtol=0, atol=6e-6)
    start = aircraft.functional().value(aircraft.functional().start())
    assert printed(start) == PRINTED["optimal_control"]["bqnls"]["values"][0]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["blmvm", "bqnls"])
def test_first_order_methods_need_more_than_thirty_iterations(method):
    solution = solved(method=method, gradient_tolerance=1e-8)
    assert solution.converged
    assert solution.iterations > 30
    assert solution.value == pytest.approx(optimum().value, abs=1e-13)
    np.testing.assert_allclose(solution.x.array, optimum().controls, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_exact_newton_needs_seven_iterations():
    solution = solved(method="bntr", gradient_tolerance=1e-13, tuned=True)
    assert solution.converged
    assert solution.gradient_norm < 1e-13
    assert solution.iterations <= 7
    assert solution.evaluations <= 8
    np.testing.assert_allclose(solution.x.array, optimum().controls, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_newton_iterates_are_the_printed_ones():
    """With PETSc's own choice of the first trust radius."""
    functional = aircraft.functional()
    result = minimize(
        functional,
        method="bntr",
        preconditioner="none",
        gradient_tolerance=1e-13,
        options={"tao_bnk_init_type": "interpolation"},
    )
    expected = np.array(PRINTED["optimal_control"]["bntr"]["values"], dtype=float)
    np.testing.assert_allclose(result.history.value, expected, rtol=2e-6)


def test_aircraft_iterations_are_the_printed_ones():
    expected = PRINTED["optimal_control"]["bqnls"]["values"][:16]
    history = solved(method="bqnls", gradient_tolerance=1e-8).history
    assert [printed(value) for value in history.value[:16]] == expected


@pytest.mark.slow
def test_scipy_finds_the_same_aircraft_optimum():
    functional = aircraft.functional()
    x = functional.start()

    def evaluate(values):
        x.array[:] = values
        value, gradient = functional.value_and_gradient(x)
        return value, gradient.array.copy()

    bounds = [(0.0, 2.0)] * 10 + [(-np.pi, np.pi)] * 10
    options = {"ftol": 0.0, "gtol": 1e-9, "maxiter": 1000}
    result = scipy_minimize(
        evaluate, x.array.copy(), jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    np.testing.assert_allclose(result.x, optimum().controls, rtol=0, atol=5e-6)


@pytest.mark.slow
def test_aircraft_optimum_does_not_depend_on_the_steps():
    for n_steps in (10, 40):
        solution = solved(n_steps=n_steps)
        # the cost depends on t, which a step sees 1e-12 inside its piece
        assert solution.value == pytest.approx(optimum().value, abs=1e-13)
        np.testing.assert_allclose(solution.x.array, optimum().controls, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("basis", ["linear", "cubic"])
def test_smooth_controls_converge_with_the_order_of_the_method(basis):
    """Here the answer does depend on the steps, by their error: order three, and no more."""
    values = [solved(basis, n_steps, gradient_tolerance=1e-7).value for n_steps in (10, 20, 40)]
    assert abs(values[1] - values[2]) < abs(values[0] - values[1]) / 6
    assert values[2] == pytest.approx(
        solved(basis, 20, gradient_tolerance=1e-7, scheme="rk5dp").value, abs=1e-6
    )
    assert values[2] < optimum().value + 0.01


# ---- van der Pol recovered -----------------------------------------------------------------------

recover = cache(recovery.recover)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_first_value_and_gradient_are_the_printed_ones(case):
    functional, expected = recovery.functional(case), PRINTED["inverse"][case.name]
    value, gradient = functional.value_and_gradient(functional.start())
    assert printed(value) == expected["values"][0]
    assert printed(gradient.norm()) == expected["residuals"][0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_unknown_is_recovered(case):
    result = recover(case)
    assert result.converged
    error = np.abs(gather(result.x) - case.truth)
    if case.unknown == "mu":
        assert error[0] < 1e-5 * case.mu
    else:
        assert result.value < 1e-24
        # the position; how well the velocity is known is another matter: see below
        assert error[0] < 5e-4


@pytest.mark.parametrize(
    ("name", "method", "count"),
    [("ex20opt_p_1", "bqnls", 12), ("ex20opt_p_3", "bqnls", 18), ("ex20opt_ic_1", "blmvm", 11)],
)
def test_iterations_are_the_printed_ones(name, method, count):
    """Up to where the gradient is a small difference of rounded numbers."""
    case = next(case for case in CASES if case.name == name)
    expected = PRINTED["inverse"][name]
    assert expected["method"] == method
    history = recover(case, method).history
    for ours, theirs in ((history.value, "values"), (history.gradient_norm, "residuals")):
        wanted = np.array(expected[theirs], dtype=float)[:count]
        np.testing.assert_allclose(ours[:count], wanted, rtol=2e-4)


@pytest.mark.parametrize("name", ["ex16opt_p", "ex16opt_ic"])
def test_adaptive_steps_are_the_printed_ones(name):
    case = next(case for case in CASES if case.name == name)
    functional = recovery.functional(case)
    steps = PRINTED["inverse"][name]["steps"]
    assert functional.trajectory(functional.start()).effort.steps == steps[1]


def test_a_fast_mode_that_dies_out_leaves_the_initial_velocity_unknown():
    """At mu = 100 one direction of the initial state is forgotten: misfit 1e-25, velocity 5 % off.

    At mu = 1e3 with 16 steps Crank-Nicolson does not damp that mode, so the tutorial recovers it.
    """
    by_name = {case.name: case for case in CASES}
    for name, known in (("ex20opt_ic_2", False), ("ex20opt_ic_3", False), ("ex20opt_ic_1", True)):
        case = by_name[name]
        values = recover(case).x.array
        largest, least = recovery.determined(case, case.truth)
        assert (least > 0.1 * largest) == known
        assert (abs(values[1] - case.truth[1]) < 1e-6) == known


# ---- damped oscillator ---------------------------------------------------------------------------


def test_closed_form_of_the_oscillator_by_the_matrix_exponential():
    exact = oscillator.closed_form()

    def value(point):
        matrix = np.array([[0, 1], [-1, -point[2]]]) * oscillator.T_END
        u = expm(matrix) @ point[:2]
        return (u @ u) / 2

    def gradient(point):
        return np.array([value(point + 1e-30j * unit).imag / 1e-30 for unit in np.eye(3)])

    point = np.array(oscillator.POINT)
    assert exact.value == pytest.approx(value(point), rel=1e-13)
    np.testing.assert_allclose(exact.gradient, gradient(point), rtol=0, atol=1e-14)

    def difference(h):
        rows = [gradient(point + h * unit) - gradient(point - h * unit) for unit in np.eye(3)]
        return np.array(rows) / (2 * h)

    extrapolated = (4 * difference(5e-4) - difference(1e-3)) / 3
    np.testing.assert_allclose(exact.hessian, extrapolated, rtol=0, atol=1e-8)


def test_published_derivatives_of_the_oscillator_are_exact_to_six_digits():
    """Those in the damping have an error of discretisation of up to 4e-7, the others none."""
    exact = oscillator.closed_form()
    gradient, hessian = oscillator.PUBLISHED_GRADIENT, np.array(oscillator.PUBLISHED_HESSIAN)
    np.testing.assert_allclose(gradient[:2], exact.gradient[:2], rtol=0, atol=5e-11)
    np.testing.assert_allclose(hessian[:2, :2], exact.hessian[:2, :2], rtol=0, atol=5e-9 * 1.01)
    np.testing.assert_allclose(gradient[2], exact.gradient[2], rtol=2e-9)
    np.testing.assert_allclose(hessian[2], exact.hessian[2], rtol=5e-7)


@pytest.mark.parametrize(("method", "dt", "error"), [("rk8vr", 0.1, 1e-13), ("rk5dp", 0.01, 2e-12)])
def test_gradient_of_the_oscillator(method, dt, error):
    functional = oscillator.functional(Stepping((0.0, oscillator.T_END), method, dt=dt))
    exact, x = oscillator.closed_form(), functional.start()
    value, gradient = functional.value_and_gradient(x)
    assert value == pytest.approx(exact.value, abs=error)
    np.testing.assert_allclose(gradient.array, exact.gradient, rtol=0, atol=error)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "dt", "error"), [("rk8vr", 0.1, 1e-12), ("rk5dp", 0.01, 2e-11)])
def test_hessian_of_the_oscillator(method, dt, error):
    functional = oscillator.functional(Stepping((0.0, oscillator.T_END), method, dt=dt))
    exact = oscillator.closed_form()
    hessian = functional.hessian(functional.start())
    np.testing.assert_allclose(hessian, exact.hessian, rtol=0, atol=error)
