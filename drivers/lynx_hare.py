"""Fit predator and prey to the fur trade: the Hudson Bay lynx-hare pelts, 1900-1920.

    hares'  = (growth - predation * lynxes) * hares
    lynxes' = (conversion * hares - death) * lynxes

The four rates and both states in 1900 are fitted, with log-normal noise of a level estimated for
each species, and with priors.  The start comes from the data: straight lines through the slopes of
the logarithms.  Intervals come from the exact Hessian (Laplace) and from profile likelihoods.

    mpiexec -n 2 python drivers/lynx_hare.py configs/lynx_hare.toml

Data: Hudson's Bay Company pelts as printed in Howard (2009); a well-known Bayesian fit of the same
model with the same priors (B. Carpenter, 2018) has posterior means 0.55, 0.028, 0.80, 0.024 and
standard deviations 0.065, 0.004, 0.092, 0.004.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from mpi4py import MPI

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import Results, existing_file, positive, read_table

NAMES = ("growth", "predation", "death", "conversion", "hares_1900", "lynxes_1900")
BAYESIAN = ((0.55, 0.065), (0.028, 0.004), (0.80, 0.092), (0.024, 0.004))
PRIORS = (
    ds.Prior([1.0, 0.05, 1.0, 0.05], [0.5, 0.05, 0.5, 0.05], names=NAMES[:4]),
    ds.Prior([math.log(10.0)] * 2, 1.0, names=NAMES[4:], scale="log"),
)
NOISE = ds.inverse.LogNormal(each_column=True, prior=(-1.0, 1.0))


@dataclass(frozen=True)
class Optimizer:
    method: Literal["lmvm", "blmvm", "bqnls", "bncg"] = "lmvm"
    gradient_tolerance: Annotated[float, positive(), "largest gradient norm at the end"] = 1e-6
    max_iterations: Annotated[int, positive()] = 200


@dataclass(frozen=True)
class Config:
    data: Annotated[Path, existing_file(), "CSV: year, hares, lynxes [thousands]"]
    stepping: ds.Stepping
    starts: Annotated[int, positive(), "starts drawn from the priors, the first from the data"] = 1
    profiles: Annotated[int, positive(), "points on either side of a profile"] = 4
    forecast: Annotated[float, positive(), "last year of the prediction"] = 1925.0
    optimizer: Optimizer = Optimizer()

    def __post_init__(self) -> None:
        first = self.stepping.t_span[0]
        if not self.forecast > first:
            raise ds.InputError(
                f"forecast = {self.forecast:g}",
                expected=f"a year after the first of stepping.t_span, {first:g}",
            )


def rhs(t, u, p):
    growth, predation, death, conversion = p[:4]
    return np.array([(growth - predation * u[1]) * u[0], (conversion * u[0] - death) * u[1]])


def rhs_u(t, u, p):
    growth, predation, death, conversion = p[:4]
    return np.array(
        [
            [growth - predation * u[1], -predation * u[0]],
            [conversion * u[1], conversion * u[0] - death],
        ]
    )


def rhs_p(t, u, p):
    both = u[0] * u[1]
    return np.array([[u[0], -both, 0, 0, 0, 0], [0, 0, -u[1], both, 0, 0]])


def model(config: Config) -> tuple:
    """Return what ``fit`` and ``likelihood`` take first."""
    table = read_table(config.data)
    years, pelts = table.column("year"), table.select("hares", "lynxes")
    slopes = np.gradient(np.log(pelts), years, axis=0)
    (minus_predation, growth), (conversion, minus_death) = (
        np.polyfit(pelts[:, 1 - k], slopes[:, k], 1) for k in (0, 1)
    )
    start = (growth, -minus_predation, -minus_death, conversion, *pelts[0])
    control = ds.Parameters(
        {name: ds.Parameter(value, scale="log") for name, value in zip(NAMES, start, strict=True)},
        initial_state=lambda p: p[4:6],
    )
    problem = ds.ODE(rhs, size=2, parameters=NAMES, jacobian=rhs_u, jacobian_p=rhs_p)
    return problem, table, control, config.stepping


def check(config: Config) -> ds.verify.Taylor:
    return ds.taylor(ds.inverse.likelihood(*model(config), noise=NOISE, priors=PRIORS))


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    if not evidence.passed:
        return False
    fitted = ds.fit(
        *model(config),
        noise=NOISE,
        priors=PRIORS,
        starts=config.starts,
        comm=MPI.COMM_WORLD,
        folder=results.restart_folder("starts"),
        **vars(config.optimizer),
    )
    results.say(fitted)
    profiles = fitted.profile(NAMES[:4], points=config.profiles, tolerance=1e-2)
    results.say(profiles)
    results.say(
        "\nparameter        fitted  std error   Bayesian mean, sd   symmetric interval misses"
    )
    for name, (mean, deviation) in zip(NAMES, BAYESIAN, strict=False):
        results.say(
            f"{name:12s} {fitted.estimate[name]:10.5g} {fitted.covariance.error(name):10.3g}"
            f"   {mean:<8g}{deviation:>8g}   {100 * profiles[name].symmetric_mismatch:17.0f} %"
        )
    bands = fitted.prediction(np.arange(fitted.data.times[0], config.forecast + 0.05, 0.1))
    fitted.record(results)
    results.record("profile_intervals", {entry.name: entry.interval for entry in profiles.entries})
    results.write("times", bands.times)
    results.write("states", bands.value)
    results.once(lambda: draw(results, fitted, profiles, bands))
    return fitted.converged


def draw(
    results: Results,
    fitted: ds.inverse.Fit,
    profiles: ds.inverse.Profiles,
    bands: ds.inverse.Prediction,
) -> None:
    from daeosens.report import fits  # noqa: PLC0415 (optional extra)

    units = {name: f"{name} [1/year]" for name in ("growth", "death")}
    units |= {name: f"{name} [1/(year thousand)]" for name in ("predation", "conversion")}
    fits.bands_figure(
        results.path("fit.png"),
        bands,
        fitted.data.times,
        fitted.data.values,
        time_label="year",
        value_labels=["hares [thousands]", "lynxes [thousands]"],
    )
    fits.profiles_figure(results.path("profiles.png"), profiles, units, columns=2)
    names = [name.replace("_", " ") for name in NAMES]
    fits.correlation_figure(results.path("correlation.png"), names, fitted.correlation)
    if fitted.starts is not None:
        fits.waterfall_figure(results.path("waterfall.png"), fitted.starts)


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
