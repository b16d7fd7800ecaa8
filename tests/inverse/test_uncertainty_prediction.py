"""Bands of predictions against closed forms."""

import math

import numpy as np
import pytest
from closed_forms import DECAY_STEPPING, decay, decay_control
from distributed import averaging, make, make_ring

from daeosens import InputError, LeastSquares, Reduced, Stepping, UnsupportedError
from daeosens.functional import InitialState
from daeosens.inverse.uncertainty.covariance import covariance_from_hessian
from daeosens.inverse.uncertainty.prediction import predict

TIMES = [0.0, 0.7, 2.0, 3.0]  # the last one beyond the stepping
RATE, AMOUNT = 0.5, 2.0
EXACT = AMOUNT * np.exp(-RATE * np.array(TIMES))
HESSIAN = np.array([[400.0, 50.0], [50.0, 100.0]])  # in (rate, log amount)


@pytest.fixture(scope="module")
def model():
    return Reduced(decay(), LeastSquares([1.0], [1.0]), DECAY_STEPPING, decay_control())


@pytest.fixture(scope="module")
def estimate():
    return covariance_from_hessian(
        HESSIAN, [RATE, math.log(AMOUNT)], ["rate", "amount"], ["linear", "log"]
    )


def relative_error():
    """Standard error of log u(t) = log amount - rate t."""
    slopes = np.column_stack([-np.array(TIMES), np.ones(4)])
    return np.sqrt(np.einsum("ki,ij,kj->k", slopes, np.linalg.inv(HESSIAN), slopes))


@pytest.mark.parametrize("observe", [None, [0], lambda t, u, p: u])
def test_bands_of_an_exponential(model, estimate, observe):
    prediction = predict(model, estimate, TIMES, observe=observe, noise=0.1)
    np.testing.assert_allclose(prediction.value[:, 0], EXACT, rtol=1e-10)
    np.testing.assert_allclose(prediction.standard_error[:, 0], EXACT * relative_error(), rtol=1e-8)
    lower, upper = prediction.confidence
    np.testing.assert_allclose(upper - lower, 2 * 1.959963984540054 * prediction.standard_error)
    low, high = prediction.prediction
    np.testing.assert_allclose(
        (high - low) / (2 * prediction.quantile), np.hypot(prediction.standard_error, 0.1)
    )
    assert (low < lower).all()
    assert (high > upper).all()


def test_log_normal_bands_stay_positive(model, estimate):
    prediction = predict(model, estimate, TIMES, noise=[0.3], scale="log", level=0.99)
    np.testing.assert_allclose(prediction.standard_error[:, 0], relative_error(), rtol=1e-8)
    lower, upper = prediction.prediction
    assert (lower > 0).all()
    np.testing.assert_allclose(np.sqrt(lower * upper), prediction.value, rtol=1e-12)


def test_outputs_may_depend_on_the_parameters(model, estimate):
    prediction = predict(
        model, estimate, [0.0], observe=lambda t, u, p: np.array([p[0] ** 2, u[0]])
    )
    assert prediction.value[0, 0] == RATE**2
    assert prediction.standard_error[0, 0] == pytest.approx(2 * RATE * estimate.error("rate"))


def test_held_parameters_add_nothing(model):
    held = covariance_from_hessian(
        HESSIAN, [RATE, math.log(AMOUNT)], ["rate", "amount"], held=["rate", "amount"]
    )
    assert not predict(model, held, TIMES).standard_error.any()


@pytest.mark.mpi
def test_bands_of_a_distributed_state(comm):
    case = make(comm)
    control = InitialState(case.u0, case.p)
    stepping = Stepping((0.0, 0.05), "cn", dt=0.01)
    cost = LeastSquares([0.05], [case.u0.copy()])
    model = Reduced(case.problem, cost, stepping, control)
    size = case.u0.size
    errors = 0.01 * (1.0 + np.arange(size))
    whole = case.u0.comm.tompi4py().allgather(case.u0.getArray().tolist())
    estimate = covariance_from_hessian(
        np.diag(errors**-2), np.concatenate(whole), [f"u{i}" for i in range(size)]
    )
    prediction = predict(model, estimate, [0.0, 0.05])
    np.testing.assert_allclose(prediction.standard_error[0], errors, rtol=1e-12)
    matrix = averaging(make_ring(comm, dm=True))
    averaged = predict(model, estimate, [0.0], observe=matrix)
    rows = [[matrix.getValues([i], range(size))[0] for i in range(*matrix.getOwnershipRange())]]
    dense = np.array([row for part in comm.allgather(rows[0]) for row in part])
    np.testing.assert_allclose(
        averaged.standard_error[0], np.sqrt(((dense * errors) ** 2).sum(axis=1)), rtol=1e-12
    )
    with pytest.raises(UnsupportedError, match="PETSc-style problem with an observe callback"):
        predict(model, estimate, [0.0], observe=lambda t, u, p: u)


@pytest.mark.parametrize(
    ("times", "change", "message"),
    [
        ([-1.0], {}, "time -1 lies before the start 0"),
        ([], {}, r"times have shape \(0,\)"),
        ([1.0, 0.5], {}, "decreases"),
        ([1.0], {"noise": -1.0}, "noise = -1"),
        ([1.0], {"noise": [1.0, 2.0]}, r"noise has shape \(2,\)"),
        ([1.0], {"level": 1.0}, "level = 1"),
        ([1.0], {"scale": "logit"}, "scale = 'logit'"),
        ([1.0], {"observe": [1]}, r"observe = \[1\]"),
        ([1.0], {"observe": lambda t, u, p: -u, "scale": "log"}, r"an output is -1\.2\d* at t = 1"),
    ],
)
def test_bad_questions_are_refused(model, estimate, times, change, message):
    with pytest.raises(InputError, match=message):
        predict(model, estimate, times, **change)


def test_what_is_no_model_or_no_estimate_is_named(model, estimate):
    with pytest.raises(InputError, match=r"model is NoneType(.|\n)*try: Reduced\("):
        predict(None, estimate, [1.0])
    with pytest.raises(InputError, match=r"estimate is list\n  expected: a Covariance"):
        predict(model, [1.0], [1.0])
