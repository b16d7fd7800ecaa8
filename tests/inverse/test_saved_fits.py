"""Fits in files: numbers without a solve, predictions and profiles with the model."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.errors import InputError
from daeosens.inverse import Fit, Normal, SavedFit, load_fit, save_fit

DATA = {"time": [1.0, 3.0, 2.0, 4.0], "mass": [0.62, 0.23, 0.35, 0.14]}
STEPS = ds.Stepping((0.0, 4.0), "rk4", dt=0.2)


def decay(power=1.0):
    return ds.ODE(lambda t, u, p: -p[0] * u**power, size=["mass"], parameters=["rate", "start"])


def rates(**more):
    entries = {"rate": ds.Parameter(1.0, scale="log"), "start": ds.Parameter(1.0, **more)}
    return ds.Parameters(entries, initial_state=lambda p: np.array([p[1]]))


NOISES = {
    "estimated": None,
    "given": Normal(0.02),
    "of each": Normal([[0.01], [0.02], [0.03], [0.04]]),
    "log": ds.inverse.LogNormal(0.05),
}


@pytest.mark.parametrize("noise", NOISES)
def test_fit_is_as_it_was(tmp_path, noise):
    model = decay(), DATA, rates(), STEPS
    fitted = ds.fit(*model, noise=NOISES[noise])
    path = tmp_path / "fit.h5"
    save_fit(fitted, path)
    numbers = load_fit(path)
    again = load_fit(path, *model)
    assert isinstance(numbers, SavedFit)
    assert isinstance(again, Fit)
    for loaded in (numbers, again):
        assert str(loaded) == str(fitted)
        assert loaded.estimate == fitted.estimate
        np.testing.assert_array_equal(loaded.covariance.matrix, fitted.covariance.matrix)
        np.testing.assert_array_equal(loaded.residuals, fitted.residuals)
        np.testing.assert_array_equal(loaded.intervals().lower, fitted.intervals().lower)
        np.testing.assert_equal(loaded.p_value, fitted.p_value)
        assert loaded.discretization.largest == fitted.discretization.largest
        np.testing.assert_array_equal(loaded.result.history.value, fitted.result.history.value)
    if noise != "of each":
        assert again.prediction([5.0]).value == fitted.prediction([5.0]).value
    assert str(again.profile(["rate"], points=2)) == str(fitted.profile(["rate"], points=2))
    save_fit(numbers, tmp_path / "copy.h5")
    assert str(load_fit(tmp_path / "copy.h5")) == str(fitted)


def test_fit_without_a_covariance(tmp_path):
    data = {"time": [1.0, 2.0, 3.0], "mass": [0.0, 0.0, 0.0]}
    problem = ds.ODE(lambda t, u, p: 0.0 * p[0] * u, size=["mass"], parameters=["rate"])
    control = ds.Parameters({"rate": ds.Parameter(1.0)}, initial_state=[0.0])
    fitted = ds.fit(problem, data, control, STEPS, noise=Normal(0.1))
    save_fit(fitted, tmp_path / "fit.h5")
    again = load_fit(tmp_path / "fit.h5")
    assert str(again) == str(fitted)
    with pytest.raises(type(fitted.uncertainty)):
        _ = again.covariance


def test_another_model_is_told(tmp_path):
    path = tmp_path / "fit.h5"
    save_fit(ds.fit(decay(), DATA, rates(), STEPS, noise=Normal(0.02)), path)
    with pytest.raises(InputError, match="the fit is of another problem; its value is"):
        load_fit(path, decay(power=1.1), DATA, rates(), STEPS)
    with pytest.raises(InputError, match="the fit is of another problem; free parameters are rate"):
        load_fit(path, decay(), DATA, rates(free=False), STEPS)
    with pytest.raises(InputError, match="the fit is of another problem; the data are others"):
        load_fit(path, decay(), {**DATA, "mass": [0.6, 0.2, 0.35, 0.14]}, rates(), STEPS)
    with pytest.raises(InputError, match="expected: the arguments of fit"):
        load_fit(path, decay())
    ds.optimize.save_result(ds.fit(decay(), DATA, rates(), STEPS).result, path)
    with pytest.raises(InputError, match='its format is "daeosens result 1"'):
        load_fit(path)
