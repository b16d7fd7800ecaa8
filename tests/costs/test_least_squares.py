"""Least squares by BRGN against minima known from elsewhere."""

import numpy as np
import pytest
from closed import DOMAINS, Closed, Residual, rosenbrock
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError, OptionError, SolveError, UnsupportedError
from daeosens.optimize import minimize
from daeosens.petsc import gather


def rosenbrock_residual(x):
    return (
        np.array([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]]),
        np.array([[-20.0 * x[0], 10.0], [-1.0, 0.0]]),
    )


TIMES = np.linspace(0.0, 3.0, 12)
DATA = 2.0 * np.exp(-0.7 * TIMES) + 0.5 + 0.05 * np.cos(17.0 * TIMES)


def decay(x):
    """A fit with residuals that stay: 12 data, 3 parameters of different size."""
    fall = np.exp(-x[1] * TIMES)
    jacobian = np.column_stack([fall, -x[0] * TIMES * fall, np.ones_like(TIMES)])
    return x[0] * fall + x[2] - DATA, jacobian


def fitted():
    """The same minimum by Gauss-Newton steps in plain NumPy."""
    x = np.array([2.0, 0.7, 0.5])
    for _ in range(60):
        r, jacobian = decay(x)
        x = x - np.linalg.lstsq(jacobian, r, rcond=None)[0]
    r, jacobian = decay(x)
    assert np.abs(jacobian.T @ r).max() < 1e-14
    return x


def fit(**extra):
    return Residual(decay, [1.0, 1.0, 0.1], **extra)


# ---- minima --------------------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", ["auto", "dense", "none", "lmvm"])
def test_brgn_finds_the_fit(inverse):
    functional = fit()
    result = minimize(functional, method="brgn", gradient_tolerance=1e-12, preconditioner=inverse)
    assert result.reason == "CONVERGED_GATOL"
    assert result.iterations < 20
    np.testing.assert_allclose(result.x.getArray(), fitted(), rtol=1e-10)
    r, jacobian = decay(result.x.getArray())
    assert result.value == pytest.approx(0.5 * r @ r, rel=1e-14)
    assert result.gradient_norm == pytest.approx(np.linalg.norm(jacobian.T @ r), abs=1e-14)
    assert len(functional.jacobians) == result.iterations
    assert functional.residuals == []
    assert result.notes == (f"{result.iterations} residual Jacobians by the tangent sweep",)
    assert "note           " in str(result)


def test_zero_residual_converges_quadratically():
    functional = Residual(rosenbrock_residual, [-1.2, 1.0])
    result = minimize(functional, method="brgn", gradient_tolerance=1e-12)
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-13)
    late = result.history.gradient_norm[-3:]
    assert late[-1] < 20.0 * late[-2] ** 2 + 1e-13


@pytest.mark.parametrize("algorithm", ["bnls", "bntr", "bntl"])
def test_subsolver_of_brgn_is_a_choice(algorithm):
    options = {"tao_brgn_subsolver_tao_type": algorithm}
    result = minimize(fit(), method="brgn", gradient_tolerance=1e-11, options=options)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), fitted(), rtol=1e-9)


@pytest.mark.parametrize("method", ["brgn"])
def test_bounds_are_kept(method):
    upper = np.array([1.5, 3.0, 9.0])
    functional = fit(bounds=(0.0, upper))
    # With x_0 at its bound the residual is large, and full Gauss-Newton steps multiply the distance
    # to the minimum by -1.2256, the eigenvalue of (H - R^T R) (R^T R)^-1.  The search shortens them
    # as long as J tells, down to gradients of the root of its rounding.
    result = minimize(functional, method=method, gradient_tolerance=1e-8)
    bfgs = minimize(functional, method="bqnls", gradient_tolerance=1e-11)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), bfgs.x.getArray(), atol=3e-5)
    assert result.x.getArray()[0] == 1.5
    assert result.value == pytest.approx(bfgs.value, rel=1e-8)


@pytest.mark.parametrize("method", ["brgn"])
def test_max_iterations_is_exact(method):
    result = minimize(fit(), method=method, max_iterations=2, gradient_tolerance=0.0)
    assert (result.iterations, result.reason) == (2, "DIVERGED_MAXITS")


# ---- regularisation ------------------------------------------------------------------------------


def test_l2pure_adds_its_term():
    weight = 0.3
    options = {"tao_brgn_regularization_type": "l2pure", "tao_brgn_regularizer_weight": weight}
    result = minimize(fit(), method="brgn", gradient_tolerance=1e-11, options=options)
    x = result.x.getArray()
    r, jacobian = decay(x)
    assert result.converged
    assert np.linalg.norm(jacobian.T @ r + weight * x) <= 1e-11
    assert result.value == pytest.approx(0.5 * r @ r + 0.5 * weight * x @ x, rel=1e-14)


def test_l1dict_adds_its_term():
    options = {
        "tao_brgn_regularization_type": "l1dict",
        "tao_brgn_regularizer_weight": 0.2,
        "tao_brgn_l1_smooth_epsilon": 1e-2,
    }
    result = minimize(fit(), method="brgn", gradient_tolerance=1e-10, options=options)
    x = result.x.getArray()
    r, jacobian = decay(x)
    assert result.converged
    slope = 0.2 * x / np.sqrt(x**2 + 1e-4)
    assert np.linalg.norm(jacobian.T @ r + slope) <= 1e-10
    assert result.value == pytest.approx(
        0.5 * r @ r + 0.2 * np.sum(np.sqrt(x**2 + 1e-4) - 1e-2), rel=1e-13
    )


def test_levenberg_marquardt_survives_failed_solves():
    options = {"tao_brgn_regularization_type": "lm", "tao_brgn_regularizer_weight": 1e-3}
    functional = Residual(rosenbrock_residual, [-1.2, 1.0], domain=lambda x: np.hypot(*x) < 1.6)
    result = minimize(functional, method="brgn", options=options)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-6)
    assert result.notes[0].endswith("residual Jacobians by the tangent sweep")


@pytest.mark.parametrize("kind", ["l2prox", "user"])
def test_regularisations_that_go_wrong_are_refused(kind):
    functional = fit()
    with pytest.raises(OptionError, match=f'"{kind}" is not supported'):
        minimize(functional, method="brgn", options={"tao_brgn_regularization_type": kind})
    with pytest.raises(OptionError, match='"lmvm" has no use for a Jacobian'):
        minimize(functional, method="brgn", options={"tao_brgn_subsolver_tao_type": "lmvm"})
    assert functional.points == functional.residuals == []


def test_preconditioner_of_the_user_is_not_for_regularised_brgn():
    with pytest.raises(InputError, match="not with a regularisation of BRGN"):
        minimize(
            fit(),
            method="brgn",
            preconditioner=lambda x, r: r.copy(),
            options={"tao_brgn_regularization_type": "lm"},
        )


# ---- failed solves, exceptions -------------------------------------------------------------------


@pytest.mark.parametrize("method", ["brgn"])
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_failed_solves_are_survived(method, domain):
    functional = Residual(rosenbrock_residual, [-1.2, 1.0], domain=domain)
    tolerance = 1e-8 if method == "brgn" else 1e-5
    result = minimize(functional, method=method, gradient_tolerance=tolerance)
    assert result.converged
    np.testing.assert_allclose(result.x.getArray(), 1.0, atol=1e-4)
    tried = functional.points + functional.residuals
    assert result.failed_solves == sum(not domain(point) for point in tried)


@pytest.mark.parametrize("method", ["brgn"])
def test_failure_at_the_start_is_an_error(method):
    with pytest.raises(SolveError, match="cannot be evaluated at the start: no solution"):
        minimize(fit(domain=lambda x: False), method=method)


def test_residual_at_the_start_that_is_not_finite():
    lm = {"tao_brgn_regularization_type": "lm"}
    functional = Residual(lambda x: (x * np.nan, np.eye(3)), np.ones(3))
    with pytest.raises(SolveError, match="residual at the start is not finite"):
        minimize(functional, method="brgn", options=lm)
    functional.residual = lambda x: 3.0
    with pytest.raises(InputError, match=r"residual\(x\) returned 3\.0"):
        minimize(functional, method="brgn", options=lm)


@pytest.mark.parametrize("method", ["brgn"])
def test_exceptions_come_out_as_raised(method):
    functional = fit()
    functional.pieces = lambda x: 1 / 0
    with pytest.raises(ZeroDivisionError):
        minimize(functional, method=method)


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["brgn"])
def test_functional_without_residual_is_refused(method):
    functional = Closed(rosenbrock, [-1.2, 1.0])
    with pytest.raises(UnsupportedError, match=f'method "{method}" needs residual'):
        minimize(functional, method=method)
    assert functional.points == []


@pytest.mark.parametrize("asked", [{"method": "pounders"}, {"options": {"tao_type": "pounders"}}])
def test_pounders_is_not_offered(asked):
    """PETSc 3.26 writes beyond its arrays: with four variables the heap was corrupt each time."""
    functional = fit()
    with pytest.raises(InputError, match=r'"pounders" is not offered: .*heap.*try: "brgn"'):
        minimize(functional, **asked)
    assert functional.residuals == []


# ---- several ranks -------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["brgn"])
@pytest.mark.parametrize("bounds", [None, (0.0, [1.5, 3.0, 9.0])])
def test_same_history_on_any_number_of_ranks(method, bounds):
    extra = {"method": method, "gradient_tolerance": 1e-6, "bounds": bounds}
    if bounds is None:
        extra["bounds"] = (None, None)
    spread = minimize(fit(comm=PETSc.COMM_WORLD), **extra)
    alone = minimize(fit(), **extra)
    assert spread.converged
    np.testing.assert_allclose(gather(spread.x), alone.x.getArray(), rtol=1e-6)
    n = min(5, spread.iterations)
    np.testing.assert_allclose(spread.history.value[:n], alone.history.value[:n], rtol=1e-9)
    numbers = (spread.iterations, spread.evaluations, spread.value, spread.gradient_norm)
    assert len(set(MPI.COMM_WORLD.allgather(numbers))) == 1


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["lm", "l2pure", "l1dict"])
def test_regularisations_on_any_number_of_ranks(kind):
    options = {
        "tao_brgn_regularization_type": kind,
        "tao_brgn_regularizer_weight": 0.01,
        "tao_brgn_l1_smooth_epsilon": 1e-2,
    }
    extra = {"method": "brgn", "gradient_tolerance": 1e-9, "options": options}
    spread = minimize(fit(comm=PETSc.COMM_WORLD), **extra)
    alone = minimize(fit(), **extra)
    assert spread.converged
    np.testing.assert_allclose(gather(spread.x), alone.x.getArray(), rtol=1e-7)
