"""Priors: what they are worth, of numbers and of fields, and what is refused."""

import numpy as np
import pytest
from distributed import make
from forms import FORMS, NAMES, OBSERVATION_TIMES, P0, PRIOR_MEAN, PRIOR_SIGMA, U0, make_stepping
from petsc4py import PETSc

from daeosens import ODE, InputError, Prior, Stepping, UnsupportedError, adjoint, solve
from daeosens.derivatives import evaluate

PROBLEM = FORMS["rhs"].analytic


@pytest.fixture(scope="module")
def run():
    return solve(PROBLEM, U0, P0, make_stepping("rk4"), OBSERVATION_TIMES)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_prior_of_named_parameters(run, scale):
    prior = Prior(PRIOR_MEAN, PRIOR_SIGMA, names=["c", "a"], scale=scale)
    s = np.log(P0[[2, 0]]) if scale == "log" else P0[[2, 0]]
    residual = (s - PRIOR_MEAN) / PRIOR_SIGMA
    gradient = adjoint(run, prior)
    assert gradient.value == pytest.approx(0.5 * residual @ residual, rel=1e-14)
    inner = 1 / P0[[2, 0]] if scale == "log" else 1.0
    expected = np.zeros(3)
    expected[[2, 0]] = residual / PRIOR_SIGMA * inner
    np.testing.assert_allclose(gradient.p, expected, rtol=1e-14)
    np.testing.assert_array_equal(gradient.u0, np.zeros(3))


def test_prior_of_all_parameters_with_one_mean_and_one_sigma(run):
    prior = Prior(1.0, 0.5)
    assert evaluate(run, prior) == pytest.approx(0.5 * (((P0 - 1) / 0.5) ** 2).sum(), rel=1e-14)


def test_prior_keeps_its_numbers_when_the_caller_changes_his(run):
    mean, sigma, names = np.array(PRIOR_MEAN), np.array(PRIOR_SIGMA), ["c", "a"]
    prior = Prior(mean, sigma, names)
    mean[:], sigma[:], names[0] = 5.0, 0.1, "b"
    expected = evaluate(run, Prior(PRIOR_MEAN, PRIOR_SIGMA, ["c", "a"]))
    assert evaluate(run, prior) == expected


@pytest.mark.mpi
def test_prior_of_a_field():
    case = make(PETSc.COMM_WORLD, field=True)
    run = solve(case.problem, case.u0, case.p, Stepping((0.0, 0.1), "rk4", dt=0.02))
    mean = case.p.copy()
    mean.shift(-0.3)
    prior = Prior(mean, 0.5)
    mean.set(9.0)
    gradient = adjoint(run, prior)
    assert gradient.value == pytest.approx(0.5 * 24 * 0.36, rel=1e-12)
    np.testing.assert_allclose(gradient.p, 0.3 / 0.25, rtol=1e-12)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("mean", "sigma", "scale"),
    [(1.0, 1.0, "linear"), ("vec", [1.0, 2.0], "linear"), ("vec", 1.0, "log")],
)
def test_priors_that_a_field_cannot_have_are_refused(mean, sigma, scale):
    case = make(PETSc.COMM_WORLD, field=True)
    prior = Prior(case.p if mean == "vec" else mean, sigma, scale=scale)
    with pytest.raises(
        UnsupportedError, match=r"this prior for a field parameter\n  expected: mean as"
    ):
        prior.lower(case.problem, 0.1)


BLOCK = ODE(lambda t, u, p: u, 1, [f"B[{i},{j}]" for i in range(2) for j in range(3)])

WRONG = {
    "sigma": (
        lambda: Prior(0.0, [1.0, 0.0, 1.0]).lower(PROBLEM, 1.0),
        r"prior sigma = 0\n  expected: sigma > 0",
    ),
    "sigma shape": (
        lambda: Prior(0.0, [1.0, 2.0]).lower(PROBLEM, 1.0),
        r"prior sigma has shape \(2,\)\n  expected: a number, or shape \(3,\)",
    ),
    "mean shape": (
        lambda: Prior([0.0, 1.0], names=["a"]).lower(PROBLEM, 1.0),
        r"prior mean has shape \(2,\)\n  expected: a number, or shape \(1,\)",
    ),
    "shape of a block": (
        lambda: Prior(np.ones((3, 2)), names=["B"]).lower(BLOCK, 1.0),
        r"prior mean has shape \(3, 2\)\n  expected: a number, or shape \(6,\) or \(2, 3\)",
    ),
    "mean NaN": (lambda: Prior(np.nan).lower(PROBLEM, 1.0), r"prior mean is nan"),
    "scale": (
        lambda: Prior(0.0, scale="log10").lower(PROBLEM, 1.0),
        r"prior scale = 'log10'\n  expected: \"linear\" or \"log\"",
    ),
    "name": (
        lambda: Prior(0.0, names=["A"]).lower(PROBLEM, 1.0),
        rf"prior names parameter \"A\"\n  expected: {', '.join(NAMES)}",
    ),
}


@pytest.mark.parametrize(("describe", "message"), WRONG.values(), ids=WRONG)
def test_wrong_descriptions_are_named(describe, message):
    with pytest.raises(InputError, match=message):
        describe()


def test_one_name_in_the_place_of_a_list_is_refused():
    with pytest.raises(InputError, match='prior names = "km", a string'):
        Prior([0.5], 0.1, names="km")
