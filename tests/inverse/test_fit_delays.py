"""Fits of delay equations: delays with errors, intervals and profiles."""

import numpy as np
import pytest

import daeosens as ds

NAMES = ("k1", "k2", "k3", "k4", "k5", "k6", "latency", "immunity")
TRUTH = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0, 10.0])
START = np.array([5.0, 0.1, 1.0])
STEPPING = ds.Stepping((0.0, 30.0), "rk5ts", rtol=1e-6)
TIMES = np.linspace(1.5, 29.5, 29)
UNKNOWN = ds.Parameters(
    {
        name: ds.Parameter(1.15 * value, scale="log")
        for name, value in zip(NAMES, TRUTH, strict=True)
    },
    initial_state=START,
)


def epidemic(t, x, z, p):
    infections = x[0] * z[0, 1]
    return np.array(
        [
            -p[0] * infections + p[1] * z[1, 1],
            p[2] * infections - p[3] * x[1],
            p[4] * x[1] - p[5] * z[1, 1],
        ]
    )


@pytest.fixture(scope="module")
def model():
    return ds.trace(epidemic, 3, NAMES, delays=NAMES[6:], history=START)


def test_kermack_and_mckendrick_without_noise(model):
    data = ds.solve(model, START, TRUTH, STEPPING, TIMES).at(TIMES)
    fit = ds.fit(model, data, UNKNOWN, STEPPING, times=TIMES, noise=ds.inverse.Normal(0.01))
    assert fit.converged
    np.testing.assert_allclose(list(fit.estimate.values()), TRUTH, rtol=1e-4)


@pytest.mark.slow
def test_errors_intervals_and_profiles_with_noise(model):
    data = ds.solve(model, START, TRUTH, STEPPING, TIMES).at(TIMES)
    noise = 0.02 * data.max(axis=0)
    data = data + noise * np.random.default_rng(4).standard_normal(data.shape)
    fit = ds.fit(model, data, UNKNOWN, STEPPING, times=TIMES, noise=ds.inverse.Normal(noise))
    errors = np.array([fit.covariance.error(name) for name in NAMES])
    assert (np.abs(np.array(list(fit.estimate.values())) - TRUTH) < 3.0 * errors).all()
    assert errors[7] < 0.15
    profile, (low, high) = fit.profile(["immunity"])["immunity"], fit.intervals()["immunity"]
    assert low < 10.0 < high
    np.testing.assert_allclose(profile.interval, [low, high], rtol=0.01)
