"""Estimate rates and delays of an epidemic: infectious after a while, and immune for a time.

    x0' = -k1 x0 x1(t - latency) + k2 x1(t - immunity)
    x1' = k3 x0 x1(t - latency) - k4 x1
    x2' = k5 x1 - k6 x1(t - immunity)

Kermack and McKendrick's model with two delays.  The data are a run with k = 0.1, 0.2, ..., 0.6,
latency 1 and immunity 10, and normal noise, each column's a part of its largest value.  All eight
parameters are unknown; derivatives in the delays are exact for the steps, which end at breaking
points that move with them.

    python drivers/epidemic_delays.py configs/epidemic_delays.toml   (or mpiexec -n 2 python ...)

Results: fit.png, profiles.png, estimates with errors and intervals in summary.json and results.h5.
"""

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.inverse import Fit, Normal, Prediction, Profiles, likelihood
from daeosens.io import Results, positive
from daeosens.verify import Taylor

NAMES = ("k1", "k2", "k3", "k4", "k5", "k6", "latency", "immunity")
TRUTH = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0, 10.0])
STATES = ("susceptible", "infected", "removed")
START = np.array([5.0, 0.1, 1.0])


@dataclass(frozen=True)
class Config:
    stepping: ds.Stepping
    measurements: Annotated[int, positive(), "times of data, equally apart, from the first on"] = 40
    noise: Annotated[float, positive(), "standard deviation, part of a column's maximum"] = 0.02
    guess: Annotated[float, positive(), "first guess of each parameter, over the true one"] = 1.15
    points: Annotated[int, positive(), "on either side of a profile"] = 4
    seed: int = 0


def rhs(t: Any, x: Any, z: Any, p: Any) -> Any:
    infections = x[0] * z[0, 1]
    return np.array(
        [
            -p.k1 * infections + p.k2 * z[1, 1],
            p.k3 * infections - p.k4 * x[1],
            p.k5 * x[1] - p.k6 * z[1, 1],
        ]
    )


def model(config: Config) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what ``fit`` and ``likelihood`` take first, times of data, and the noise."""
    problem = ds.trace(rhs, STATES, NAMES, delays=NAMES[6:], history=START)
    first, last = config.stepping.t_span
    # not at multiples of the delays, where breaking points would coincide with times of data
    times = first + (last - first) * (np.arange(config.measurements) + 0.97) / config.measurements
    data = ds.solve(problem, START, TRUTH, config.stepping, times).at(times)
    sigma = config.noise * data.max(axis=0)
    data += sigma * np.random.default_rng(config.seed).standard_normal(data.shape)
    control = ds.Parameters(
        {
            name: ds.Parameter(config.guess * value, scale="log")
            for name, value in zip(NAMES, TRUTH, strict=True)
        },
        initial_state=START,
    )
    known: dict[str, Any] = {"times": times, "noise": Normal(sigma)}
    return (problem, data, control, config.stepping), known


def check(config: Config) -> Taylor:
    arguments, known = model(config)
    return ds.taylor(likelihood(*arguments, **known), hessian=True)


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    if not evidence.passed:
        return False
    arguments, known = model(config)
    fit = ds.fit(*arguments, **known)
    results.say(fit)
    profiles = fit.profile(NAMES[6:], points=config.points, tolerance=1e-2)
    results.say(profiles)
    results.say("\nparameter      truth   estimate   error / standard error")
    for name, truth in zip(NAMES, TRUTH, strict=True):
        value, error = fit.estimate[name], fit.covariance.error(name)
        scaled = (value - truth) / error
        results.say(f"{name:12s} {truth:7g} {value:10.5f}   {scaled:+22.2f}")
    first, last = config.stepping.t_span
    bands = fit.prediction(np.linspace(first, last, 201))
    fit.record(results)
    results.record("profile_intervals", {entry.name: entry.interval for entry in profiles.entries})
    results.write("times", bands.times)
    results.write("states", bands.value)
    results.once(lambda: draw(results, fit, profiles, bands))
    return fit.converged


def draw(
    results: Results,
    fit: Fit,
    profiles: Profiles,
    bands: Prediction,
) -> None:
    from daeosens.report import fits  # noqa: PLC0415 (optional extra)

    data = fit.data
    fits.bands_figure(
        results.path("fit.png"),
        bands,
        data.times,
        data.values,
        time_label="t [days]",
        value_labels=list(STATES),
    )
    units = {name: f"{name} [days]" for name in NAMES[6:]}
    fits.profiles_figure(results.path("profiles.png"), profiles, units, columns=2)


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
