"""One noise level for columns of different noise is told, and only that."""

import warnings

import numpy as np
import pytest

from daeosens import ODE, Parameter, Parameters, Stepping, fit
from daeosens.errors import NoiseWarning
from daeosens.inverse import LogNormal, Normal
from daeosens.inverse.fit_noise import warn_of_unequal_noise

TIMES = np.arange(1.0, 13.0)
STEPPING = Stepping((0.0, 12.0), "rk4", dt=0.25)
RATES = np.array([0.3, 0.15])


def plasma_and_effect(sizes):
    """Level in mg/L, and an activity in per cent."""
    noise = np.random.default_rng(1).normal(size=(TIMES.size, 2)) * sizes
    exact = np.stack([8.0 * np.exp(-RATES[0] * TIMES), 100.0 * np.exp(-RATES[1] * TIMES)], axis=1)
    return exact + noise


def fitted(data, **more):
    model = ODE(lambda t, u, p: -p * u, ["level", "activity"], ["ke", "kout"])
    unknown = Parameters(
        {"ke": Parameter(0.2, scale="log"), "kout": Parameter(0.2, scale="log")}, [8.0, 100.0]
    )
    table = {"time": TIMES, "level": data[:, 0], "activity": data[:, 1]}
    return fit(model, table, unknown, STEPPING, **more)


@pytest.mark.slow
def test_columns_of_different_units_are_told():
    data = plasma_and_effect([0.1, 3.0])
    with pytest.warns(NoiseWarning, match=r"0\.\d+ \(level\), [12]\.\d+ \(activity\)") as told:
        shared = fitted(data)
    assert "Normal(each_column=True)" in str(told[0].message)
    apart = fitted(data, noise=Normal(each_column=True))
    # the standard error of ke comes from the level alone, which has a thirtieth of the noise
    assert shared.covariance.error("ke") > 10.0 * apart.covariance.error("ke")


@pytest.mark.slow
def test_columns_of_the_same_noise_are_not():
    fitted(plasma_and_effect([1.0, 1.0]))  # warnings are errors here
    fitted(plasma_and_effect([0.1, 3.0]), noise=Normal([0.1, 3.0]))
    fitted(plasma_and_effect([0.05, 0.05]), noise=LogNormal(each_column=True))


@pytest.mark.slow
def test_data_without_noise_are_not_told():
    """Residuals of a twin experiment are what the steps err: that differs from column to column."""
    fitted(plasma_and_effect([1e-4, 1e-3]))


def test_chance_is_told_in_one_of_a_thousand():
    """Equal columns, 2000 times; the test is that of Neyman and Pearson at 1e-3."""
    rng, names = np.random.default_rng(2), ["a", "b", "c"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2000):
            warn_of_unequal_noise(names, rng.normal(size=(15, 3)), 1.0, np.ones(3))
    assert len(told) < 12
    few = np.full((5, 2), np.nan)
    few[:2, 0], few[:, 1] = 1e-3, 1.0
    warn_of_unequal_noise(
        names[:2], few, 1.0, np.ones(2)
    )  # two measurements of a column say too little
