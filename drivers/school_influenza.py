"""Estimate how fast influenza went through a boarding school, from the boys who were in bed.

    S' = -r S I,   I' = r S I - a I

S boys can still fall ill and I are ill; 763 were at school, and one was ill on the day before the
first count.  r is the rate at which an ill boy infects another one, 1 / a the time for which he
does; r 763 / a is how many he would infect in a school where nobody has been ill.

    python drivers/school_influenza.py configs/school_influenza.toml   (or mpiexec -n 2 python ...)

Data: British Medical Journal, 4 March 1978, page 587, as printed and fitted by J. D. Murray,
Mathematical Biology I, Springer, 2002, figure 10.3: r = 2.18e-3 a day and a / r = 202 boys.

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

NAMES = ("r", "a")
BOYS = 763
PUBLISHED = {"r": 2.18e-3, "a / r": 202.0}
"""Of Murray, to the digits that are printed."""


@dataclass(frozen=True)
class Config:
    data: Annotated[Path, existing_file(), "CSV: day, then boys in bed"]
    stepping: ds.Stepping
    rate: Annotated[float, positive(), "first guess of r [1/day]"] = 3e-3
    recovery: Annotated[float, positive(), "first guess of a [1/day]"] = 0.5
    points: Annotated[int, positive(), "on either side of a profile"] = 4


def rhs(t: Any, y: Any, p: Any) -> Any:
    infected = p.r * y[0] * y[1]
    return np.array([-infected, infected - p.a * y[1]])


def model(config: Config) -> tuple[Any, ...]:
    """Return what ``fit`` and ``likelihood`` take first."""
    control = ds.Parameters(
        {
            "r": ds.Parameter(config.rate, scale="log"),
            "a": ds.Parameter(config.recovery, scale="log"),
        },
        initial_state=np.array([BOYS - 1.0, 1.0]),
    )
    problem = ds.trace(rhs, ["well", "ill"], NAMES)
    return problem, read_table(config.data), control, config.stepping


def check(config: Config) -> Taylor:
    functional = likelihood(*model(config), observe="ill")
    return ds.taylor(functional, functional.start(), hessian=True)


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    if not evidence.passed:
        return False
    fit = ds.fit(*model(config), observe="ill")
    results.say(fit)
    r, a = (fit.estimate[name] for name in NAMES)
    squares = float(np.nansum((fit.residuals * fit.sigma) ** 2))
    results.say(
        f"\nr = {r:.4g} a day, published {PUBLISHED['r']}; a / r = {a / r:.4g} boys, published "
        f"{PUBLISHED['a / r']:g}\nan ill boy infects {r * BOYS / a:.3g} others at first; "
        f"sum of squares {squares:.6g}"
    )
    profiles = fit.profile(NAMES, points=config.points, tolerance=1e-2)
    results.say(profiles)
    bands = fit.prediction(np.linspace(*config.stepping.t_span, 141))
    fit.record(results)
    results.record("sum_of_squares", squares)
    results.record("reproduction_number", r * BOYS / a)
    results.record("profile_intervals", {entry.name: entry.interval for entry in profiles.entries})
    results.write("times", bands.times)
    results.write("ill", bands.value)
    results.once(lambda: draw(results, fit, profiles, bands))
    return fit.converged


def draw(results: Results, fit: Fit, profiles: Profiles, bands: Prediction) -> None:
    from daeosens.report import fits  # noqa: PLC0415 (optional extra)

    fits.bands_figure(
        results.path("fit.png"),
        bands,
        fit.data.times,
        fit.data.values,
        time_label="t [days]",
        value_labels=["boys in bed"],
    )
    labels = {name: f"{name} [1/day]" for name in NAMES}
    fits.profiles_figure(results.path("profiles.png"), profiles, labels)


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
