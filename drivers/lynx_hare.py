"""Fit predator and prey to the fur trade: the Hudson Bay lynx-hare pelts, 1900-1920.

    hares'  = (growth - predation * lynxes) * hares
    lynxes' = (conversion * hares - death) * lynxes

The four rates and both states in 1900 are fitted by maximum likelihood with log-normal noise.  The
start comes from the data: straight lines through the slopes of the logarithms.

    mpiexec -n 2 python drivers/lynx_hare.py configs/lynx_hare.toml

Data: Hudson's Bay Company pelts as printed in Howard (2009); a well-known Bayesian fit of the same
model (B. Carpenter, 2018) has posterior means 0.55, 0.028, 0.80, 0.024.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

import daeosens as ds
from daeosens.io import Results, existing_file, positive, read_table
from daeosens.study import drive

NAMES = ("growth", "predation", "death", "conversion", "hares_1900", "lynxes_1900")
BAYESIAN_MEANS = (0.55, 0.028, 0.80, 0.024)


@dataclass(frozen=True)
class Optimizer:
    method: Literal["lmvm", "blmvm", "bqnls", "bncg"] = "lmvm"
    gradient_tolerance: Annotated[float, positive(), "largest gradient norm at the end"] = 1e-6
    max_iterations: Annotated[int, positive()] = 200


@dataclass(frozen=True)
class Config:
    data: Annotated[Path, existing_file(), "CSV: year, hares, lynxes [thousands]"]
    stepping: ds.Stepping
    sigma: Annotated[float, positive(), "standard deviation of the logarithms"] = 0.25
    optimizer: Optimizer = Optimizer()


def rhs(t, u, p):
    growth, predation, death, conversion = p[:4]
    return np.array([(growth - predation * u[1]) * u[0], (conversion * u[0] - death) * u[1]])


def functional(config: Config) -> tuple[ds.Reduced, np.ndarray, np.ndarray]:
    table = read_table(config.data)
    years, pelts = table.column("year"), table.select("hares", "lynxes")
    slopes = np.gradient(np.log(pelts), years, axis=0)
    (minus_predation, growth), (conversion, minus_death) = (
        np.polyfit(pelts[:, 1 - k], slopes[:, k], 1) for k in (0, 1)
    )
    start = (growth, -minus_predation, -minus_death, conversion, *pelts[0])
    misfit = ds.LeastSquares(
        years, np.log(pelts), sigma=config.sigma, observe=lambda t, u, p: np.log(u)
    )
    control = ds.Parameters(
        {name: ds.Parameter(value, scale="log") for name, value in zip(NAMES, start, strict=True)},
        initial_state=lambda p: p[4:6],
    )
    problem = ds.ODE(rhs, size=2, parameters=NAMES)
    return ds.Reduced(problem, misfit, config.stepping, control), years, pelts


def check(config: Config) -> ds.Taylor:
    return ds.taylor(functional(config)[0])


def study(config: Config, results: Results) -> bool:
    reduced, years, pelts = functional(config)
    evidence = ds.taylor(reduced)
    results.say(evidence)
    if not evidence.passed:
        return False
    results.say(ds.optimize.HEADING)
    found = ds.minimize(
        reduced, progress=lambda iterate, _x: results.say(iterate), **vars(config.optimizer)
    )
    results.say(found)
    run = reduced.trajectory(found.x)
    fitted = np.array([run.at(year).array for year in years])
    residuals = (np.log(pelts) - np.log(fitted)) / config.sigma
    values = reduced.control.values_at(reduced.problem, found.x)
    results.say("\nparameter        fitted   Bayesian mean")
    for name, mean in zip(NAMES, (*BAYESIAN_MEANS, None, None), strict=True):
        results.say(f"{name:12s} {values[name]:10.5g}   {'' if mean is None else mean}")
    results.say(
        f"root-mean-square residual of the logarithms: {np.std(residuals) * config.sigma:.4f}"
    )
    results.record("parameters", values)
    results.record("value", found.value)
    results.record("iterations", found.iterations)
    for name, array in (("times", run.times), ("states", run.u), ("residuals", residuals)):
        results.write(name, array)
    results.once(lambda: draw(results, years, pelts, run, residuals))
    return found.converged


def draw(results: Results, years, pelts, run, residuals) -> Path:
    from daeosens.report.figures import FitSeries, fit_figure  # noqa: PLC0415 (optional extra)

    species = enumerate(("hares", "lynxes"))
    return fit_figure(
        results.path("fit.png"),
        [
            FitSeries(name, years, pelts[:, k], run.times, run.u[:, k], residuals[:, k])
            for k, name in species
        ],
        time_label="year",
        value_label="pelts [thousands]",
        residual_label="residual / sigma",
        title="Hudson Bay pelts and the Lotka-Volterra fit",
    )


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
