"""What discretisation does to fits and minima, against fits by exact solutions."""

import numpy as np
import pytest
from closed_forms import Formula

import daeosens as ds
from daeosens.errors import SolveError
from daeosens.inverse.fit_discretization import DiscretizationWarning
from daeosens.petsc import gather

TIMES = [1.0, 2.0, 3.0, 4.0]
DATA = {"time": TIMES, "mass": [0.66, 0.38, 0.29, 0.15]}
SPAN = (0.0, 4.0)
COARSE, FINE = ds.Stepping(SPAN, "beuler", dt=0.02), ds.Stepping(SPAN, "rk6vr", rtol=1e-10)


def decay():
    return ds.trace(lambda t, u, p: p[1] - p[0] * u, 1, ["rate", "feed"])


def unknown():
    return ds.Parameters(
        {"rate": ds.Parameter(1.0, scale="log"), "feed": ds.Parameter(0.05)}, [1.0]
    )


@pytest.mark.parametrize(
    "noise", [ds.inverse.Normal(0.05), ds.inverse.Normal()], ids=["given", "estimated"]
)
@pytest.mark.parametrize("priors", [(), (ds.Prior(0.5, 0.3, names=["rate"]),)], ids=["", "prior"])
def test_a_fit_says_how_far_discretisation_has_moved_it(noise, priors):
    coarse, fine = (
        ds.fit(decay(), DATA, unknown(), stepping, noise=noise, priors=priors)
        for stepping in (COARSE, FINE)
    )
    moved = gather(coarse.result.x) - gather(fine.result.x)
    np.testing.assert_allclose(coarse.discretization.shift, moved, atol=0.1 * max(abs(moved)))
    errors = np.sqrt(np.diag(coarse.covariance.scaled))
    np.testing.assert_allclose(
        coarse.discretization.standard_errors, coarse.discretization.shift / errors
    )
    assert "discretisation moves rate by" in repr(coarse)
    assert fine.discretization.largest < 1e-6


@pytest.mark.slow
def test_several_experiments_are_refined_together():
    experiments = [
        ds.Experiment(DATA, COARSE),
        ds.Experiment({"time": [1.0, 2.0], "mass": [0.3, 0.4]}, COARSE, [0.1]),
    ]
    coarse = ds.fit(decay(), experiments, unknown(), noise=ds.inverse.Normal(0.05))
    finer = [
        ds.Experiment(experiment.data, FINE, experiment.initial_state) for experiment in experiments
    ]
    fine = ds.fit(decay(), finer, unknown(), noise=ds.inverse.Normal(0.05))
    moved = gather(coarse.result.x) - gather(fine.result.x)
    np.testing.assert_allclose(coarse.discretization.shift, moved, atol=0.1 * max(abs(moved)))


def test_more_than_the_statistical_error_is_a_warning():
    with pytest.warns(DiscretizationWarning, match="rate by .* more than the statistical error"):
        fitted = ds.fit(decay(), DATA, unknown(), COARSE, noise=ds.inverse.Normal(1e-4))
    assert fitted.discretization.largest > 1.0
    assert "more than the statistical error" in repr(fitted)


def test_a_run_with_halved_steps_that_fails_leaves_the_fit_as_it_is():
    def rhs(t, u, p):
        if abs(t / 0.05 - round(t / 0.05)) > 1e-6:  # a stage of a step of 0.05, not of 0.1
            raise SolveError("no such run")
        return p[1] - p[0] * u

    model, stepping = ds.ODE(rhs, 1, ["rate", "feed"]), ds.Stepping(SPAN, "rk4", dt=0.1)
    fitted = ds.fit(model, DATA, unknown(), stepping, noise=ds.inverse.Normal(0.05))
    assert "no such run" in str(fitted.discretization)
    assert "discretisation" not in repr(fitted)


def reduced(stepping):
    return ds.Reduced(decay(), ds.LeastSquares(TIMES, DATA["mass"], 0.05), stepping, unknown())


@pytest.mark.parametrize("joint", [False, True])
def test_a_minimum_says_how_far_its_value_and_gradient_are_off(joint):
    coarse, fine = reduced(COARSE), reduced(FINE)
    if joint:
        coarse, fine = ds.functional.Joint([coarse, coarse]), ds.functional.Joint([fine, fine])
    result = ds.minimize(coarse, method="bnls", discretization=True)
    error = result.discretization
    # at a minimum of squares it is of second order in the error of the states
    assert 1 / 3 < error.value / (result.value - fine.value(result.x)) < 3
    np.testing.assert_allclose(
        gather(error.gradient),
        gather(coarse.gradient(result.x)) - gather(fine.gradient(result.x)),
        rtol=0.3,
    )
    assert "discretisation" in repr(result)
    assert ds.minimize(coarse, method="bnls").discretization is None


def test_only_runs_have_discretisation_errors():
    formula = Formula(lambda x: x @ x / 2, lambda x: x, lambda x: np.eye(1), [1.0])
    with pytest.raises(ds.InputError, match="discretization=True for Formula"):
        ds.minimize(formula, discretization=True)
