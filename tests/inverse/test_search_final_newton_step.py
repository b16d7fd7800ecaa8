"""Fits of data with hardly any noise."""

from dataclasses import replace

import numpy as np
import pytest

from daeosens import ODE, Parameter, Parameters, Stepping, UnsupportedError, solve, trace
from daeosens.inverse import Normal, fit
from daeosens.inverse.search.final_newton_step import within_errors
from daeosens.petsc import gather, scatter

RATE_STARTS = (0.2, 0.35, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0)


@pytest.mark.parametrize("method", [None, "nls"])
@pytest.mark.parametrize("level", [0.0, 1e-8, 1e-4])
@pytest.mark.parametrize("start", RATE_STARTS)
def test_data_with_hardly_any_noise_are_fitted_from_anywhere(start, level, method):
    stepping, times = Stepping((0.0, 2.0), "rk4", dt=0.05), np.linspace(0.2, 2.0, 10)
    problem = trace(lambda t, u, p: -p.rate * u, size=1, parameters=["rate"])
    run = solve(problem, [1.0], [1.3], stepping, times)
    data = np.array([gather(run.at(t)) for t in times])
    data = data + level * np.random.default_rng(1).standard_normal(data.shape)
    rates = Parameters({"rate": Parameter(start, scale="log")}, [1.0])
    fitted = fit(problem, data, rates, stepping, times=times, method=method)
    assert fitted.converged
    assert fitted.estimate["rate"] == pytest.approx(1.3, abs=max(4.0 * level, 1e-11))
    if level == 0.0:
        at_rounding = "residuals are at rounding: no noise can be estimated"
        assert fitted.result.gradient_norm < 1e-6 or fitted.result.message == at_rounding
        with pytest.raises(UnsupportedError, match="meets the data exactly"):
            _ = fitted.covariance
    else:
        assert 0.5 * level < fitted.sigma[0] < 2.0 * level
        assert fitted.covariance.error("rate") < 4.0 * level


@pytest.mark.slow
def test_hardly_noisy_data_within_bounds():
    stepping, times = Stepping((0.0, 2.0), "rk4", dt=0.2), np.linspace(0.2, 2.0, 10)
    problem = ODE(lambda t, u, p: -p[0] * u + p[1], size=1, parameters=["rate", "feed"])
    run = solve(problem, [1.0], [1.3, 0.2], stepping, times)
    data = np.array([gather(run.at(t)) for t in times])
    entries = {"rate": Parameter(0.3, lower=0.1, upper=3.0), "feed": Parameter(0.5, lower=0.0)}
    fitted = fit(problem, data, Parameters(entries, [1.0]), stepping, times=times)
    assert fitted.converged
    assert fitted.estimate == pytest.approx({"rate": 1.3, "feed": 0.2}, abs=1e-10)


@pytest.mark.parametrize("sigma", [0.01, "estimated"])
def test_a_stuck_search_has_converged_within_a_small_part_of_standard_errors(sigma):
    """And not farther off, whether or not there is a parameter that data do not feel."""
    line = trace(
        lambda t, u, p: p[0] + p[1] * t + 0.0 * p[2] + 0 * u, 1, ["slope", "bend", "unfelt"]
    )
    times = np.linspace(0.1, 1.0, 10)
    noise = 0.01 * np.random.default_rng(1).normal(size=10)
    data = {"time": times, "y": times + noise}
    entries = {"slope": Parameter(1.0), "bend": Parameter(0.1)}
    control = Parameters({**entries, "unfelt": 1.0}, [0.0])
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.1)
    fitted = fit(line, data, control, stepping, noise=Normal(sigma))
    assert fitted.converged

    def told(functional, x):
        return within_errors(functional, replace(stuck, x=x)).reason

    stuck = replace(fitted.result, reason="DIVERGED_STAGNATION")
    assert told(fitted.functional, stuck.x) == "CONVERGED_STANDARD_ERRORS"
    # of all combinations of both, this one has the square 1 in standard errors
    covariance = fitted.covariance.matrix * (1.0 if sigma == 0.01 else 0.8)
    ahead = np.linalg.cholesky(covariance)[:, 0]
    control = Parameters({**entries, "unfelt": Parameter(1.0)}, [0.0])
    whole = fit(line, data, control, stepping, noise=Normal(sigma))
    assert "the data do not determine unfelt" in repr(whole)
    for part, reason in ((5e-4, "CONVERGED_STANDARD_ERRORS"), (2e-3, "DIVERGED_STAGNATION")):
        x = scatter(gather(stuck.x) + part * ahead, stuck.x.duplicate())
        assert told(fitted.functional, x) == reason
        x = scatter(np.append(gather(x), 1e3), whole.result.x.duplicate())
        assert told(whole.functional, x) == reason
