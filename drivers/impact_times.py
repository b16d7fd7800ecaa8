"""Estimate gravity and restitution from the sound of a bouncing ball: data at events.

    z' = v,  v' = -gravity;  where z falls through 0 the speed becomes -restitution v

A microphone gives the times of the impacts (one was missed), a radar the speed before each.  Both
move with the parameters, and so do the derivatives: Gauss-Newton through the impacts.  Without the
speeds, the times alone tell gravity only if the initial height is known; "estimate" and
"speed_sigma" in the configuration say what is asked and what is used.

    python drivers/impact_times.py configs/impact_times.toml   (or mpiexec -n 2 python ...)

The data, configs/impact_times.csv, were made with numpy.random.default_rng(4) from the closed form:
initial height 1.5 m, initial speed 0.4 m/s upwards, gravity 9.81 m/s^2, restitution 0.82; normal
noise of 4 ms and 0.05 m/s; impact 5 left out.

Results: fit.png, estimates with standard errors and intervals in summary.json and results.h5.
"""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import Results, existing_file, length, positive, read_table

Name = Literal["gravity", "restitution", "height", "speed"]
TRUTH = {"gravity": 9.81, "restitution": 0.82, "height": 1.5, "speed": 0.4}
UNITS = {"gravity": "[m/s²]", "restitution": "", "height": "[m]", "speed": "[m/s]"}


@dataclass(frozen=True)
class Guess:
    gravity: Annotated[float, positive(), "[m/s²]"] = 9.0
    restitution: Annotated[float, positive(), "speed after over speed before"] = 0.8
    height: Annotated[float, positive(), "at the start [m]"] = 1.5
    speed: Annotated[float, "at the start, upwards [m/s]"] = 0.4


@dataclass(frozen=True)
class Config:
    data: Annotated[Path, existing_file(), "CSV: impact (from 1), time [s], speed [m/s]"]
    stepping: ds.Stepping
    estimate: Annotated[tuple[Name, ...], length(2), "parameters; the others keep their guess"]
    time_sigma: Annotated[float, positive(), "noise of the times [s]"]
    speed_sigma: Annotated[float | None, positive(), "noise of the speeds [m/s], if used"] = None
    guess: Guess = field(default_factory=Guess)

    def __post_init__(self) -> None:
        if len(set(self.estimate)) < len(self.estimate):
            raise ds.InputError(f"estimate = {list(self.estimate)}", expected="each name once")


BALL = ds.ODE(
    lambda t, u, p: np.array([u[1], -p[0] + 0 * u[0]]),
    size=2,
    parameters=list(TRUTH),
    events=[
        ds.Event(
            lambda t, u, p: u[0],
            lambda t, u, p: np.array([u[0], -p[1] * u[1]]),
            direction=-1,
            name="impact",
        )
    ],
)


def functional(config: Config) -> ds.Reduced:
    table = read_table(config.data)
    numbers = table.column("impact").astype(int) - 1
    misfit = ds.costs.EventData("impact", table.column("time"), config.time_sigma, numbers=numbers)
    if config.speed_sigma is not None:
        speeds = table.column("speed")
        misfit += ds.costs.EventData(
            "impact", speeds, config.speed_sigma, lambda t, u, p: -u[[1]], numbers=numbers
        )
    start = {
        name: ds.Parameter(value, free=name in config.estimate)
        for name, value in vars(config.guess).items()
    }
    control = ds.Parameters(start, initial_state=lambda p: p[2:])
    return ds.Reduced(BALL, misfit, config.stepping, control)


def check(config: Config) -> ds.verify.Taylor:
    return ds.taylor(functional(config), hessian=True)


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    if not evidence.passed:
        return False
    reduced = functional(config)
    results.say(ds.optimize.result.HEADING)
    optimum = ds.minimize(
        reduced,
        method="brgn",
        gradient_tolerance=1e-6,
        restart=results.restart("minimisation.h5"),
        progress=lambda iterate, _x: results.say(iterate),
    )
    results.say(optimum)
    known = ds.inverse.covariance(reduced, optimum.x)
    linear = ds.inverse.covariance(reduced, optimum.x, hessian="gauss_newton")
    profiles = ds.inverse.profile(reduced, known, config.estimate[:2], points=3, tolerance=1e-2)
    freedom = reduced.residual(optimum.x).size - len(known.names)
    results.say(
        f"\n{known}\n\n{profiles}\n\nchi-square {2 * optimum.value:.3g}, "
        f"{freedom} degrees of freedom"
    )
    results.say(
        "\nparameter      truth   estimate   error / standard error   the latter, Gauss-Newton"
    )
    for name in known.names:
        value, truth = known.estimate[known.names.index(name)], TRUTH[name]
        cells = f"{(value - truth) / known.error(name):+22.2f}   {linear.error(name):.5g}"
        results.say(f"{name:12s} {truth:7g} {value:10.5f}   {cells}")
    results.record("parameters", dict(zip(known.names, known.estimate, strict=True)))
    results.record("standard_errors", dict(zip(known.names, known.standard_errors, strict=True)))
    results.record("profile_intervals", {entry.name: entry.interval for entry in profiles.entries})
    results.record("value", optimum.value)
    results.write("covariance", known.matrix)
    results.write("residuals", reduced.residual(optimum.x))
    draw(config, results, reduced, known)
    return optimum.converged


def draw(
    config: Config, results: Results, reduced: ds.Reduced, known: ds.inverse.Covariance
) -> None:
    """Draw the fitted flight with the data, residuals, and what is known of two parameters."""
    from daeosens.report.event_fits import EventFit, event_fit_figure  # noqa: PLC0415 (extra)
    from daeosens.report.hybrid_runs import JumpSeries, events_of  # noqa: PLC0415 (optional extra)

    table = read_table(config.data)
    times, speeds = table.column("time"), table.column("speed")
    u0, p = reduced.control.unpack(BALL, reduced.point(known.x))
    run = ds.solve(BALL, u0, p, replace(config.stepping, dt=0.01))
    rows = np.split(-reduced.residual(known.x).array, 2 if config.speed_sigma else 1)
    height, downwards = (
        JumpSeries("fit", run.times, values, events_of(run), "line")
        for values in (run.u[:, 0], -run.u[:, 1])
    )
    fits = [EventFit("height [m]", height, times, 0 * times, rows[0], config.time_sigma)]
    if config.speed_sigma is not None:
        label = "downward speed [m/s]"
        fits.append(EventFit(label, downwards, times, speeds, rows[1], None, config.speed_sigma))
    first, second = config.estimate[:2]
    results.once(
        lambda: event_fit_figure(
            results.path("fit.png"),
            fits,
            known,
            (first, second),
            time_label="t [s]",
            axis_labels=(f"{first} {UNITS[first]}", f"{second} {UNITS[second]}"),
            truth=(TRUTH[first], TRUTH[second]),
        )
    )


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
