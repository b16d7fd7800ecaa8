"""Estimate the rates at which alpha-pinene turns into its isomers when it is hot, without a guess.

    alpha-pinene -> dipentene                  (k1)
    alpha-pinene -> allo-ocimene               (k2)
    allo-ocimene -> alpha- and beta-pyronene   (k3)
    allo-ocimene <-> a dimer                   (k4, k5)

All reactions are of first order, and all five species were measured, in percent.  The equations are
linear in the rates: the bi-level estimate needs no guess of them, and windows and a fit of the
equations go on from it.

    python drivers/alpha_pinene.py configs/alpha_pinene.toml   (or mpiexec -n 2 python ...)

Data: Fuguitt and Hawkins, Journal of the American Chemical Society 69, 1947, as printed in Box,
Hunter, MacGregor, Erjavec, Technometrics 15, 1973, and in COPS 3.0 (Dolan, More, Munson,
ANL/MCS-TM-273, 2004), whose optimum, the sum of squares 19.8722, is that of the fit.

Results: fit.png, profiles.png, estimates with errors and intervals in summary.json and results.h5.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.inverse import Fit, Prediction, Profiles, likelihood
from daeosens.io import Results, existing_file, positive, read_table
from daeosens.verify import Taylor

SPECIES = ("pinene", "dipentene", "alloocimene", "pyronene", "dimer")
NAMES = ("k1", "k2", "k3", "k4", "k5")
START = np.array([100.0, 0.0, 0.0, 0.0, 0.0])
PUBLISHED = 19.8722
"""The sum of squares of COPS."""


@dataclass(frozen=True)
class Config:
    data: Annotated[Path, existing_file(), "CSV: minute, then percents of the five species"]
    stepping: ds.Stepping
    guess: Annotated[float, positive(), "first guess of each rate [1/min]"] = 1.0
    points: Annotated[int, positive(), "on either side of a profile"] = 4


def rhs(t: Any, y: Any, p: Any) -> Any:
    dimerised = p.k4 * y[2] - p.k5 * y[4]
    return np.array(
        [
            -(p.k1 + p.k2) * y[0],
            p.k1 * y[0],
            p.k2 * y[0] - p.k3 * y[2] - dimerised,
            p.k3 * y[2],
            dimerised,
        ]
    )


def model(config: Config) -> tuple[Any, ...]:
    """Return what ``fit`` and ``likelihood`` take first."""
    control = ds.Parameters(
        {name: ds.Parameter(config.guess, scale="log") for name in NAMES}, initial_state=START
    )
    return ds.trace(rhs, SPECIES, NAMES), read_table(config.data), control, config.stepping


def check(config: Config) -> Taylor:
    functional = likelihood(*model(config))
    # at rates near the estimate: at the guess all is over at the first measurement
    return ds.taylor(functional, np.log([6e-5, 3e-5, 2e-5, 3e-4, 4e-5]), hessian=True)


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    if not evidence.passed:
        return False
    fit = ds.fit(*model(config), start="bilevel")
    results.say(fit.preparation)
    results.say(fit)
    squares = float(np.nansum((fit.residuals * fit.sigma) ** 2))
    results.say(f"\nsum of squares {squares:.6f}, published {PUBLISHED}")
    profiles = fit.profile(NAMES, points=config.points, tolerance=1e-2)
    results.say(profiles)
    bands = fit.prediction(np.linspace(*config.stepping.t_span, 201))
    fit.record(results)
    results.record("sum_of_squares", squares)
    results.record("profile_intervals", {entry.name: entry.interval for entry in profiles.entries})
    results.write("times", bands.times)
    results.write("states", bands.value)
    results.once(lambda: draw(results, fit, profiles, bands))
    return fit.converged


def draw(results: Results, fit: Fit, profiles: Profiles, bands: Prediction) -> None:
    from daeosens.report import fits  # noqa: PLC0415 (optional extra)

    data = fit.data
    labels = [f"{name} [%]" for name in SPECIES]
    fits.bands_figure(
        results.path("fit.png"),
        bands,
        data.times,
        data.values,
        time_label="t [min]",
        value_labels=labels,
    )
    fits.profiles_figure(results.path("profiles.png"), profiles, {k: f"{k} [1/min]" for k in NAMES})


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
