"""A bouncing ball: derivatives through impacts, exact at any step size, against the closed form.

    z' = v,  v' = -gravity;  where z falls through 0 the speed becomes -restitution v

The final height and speed are differentiated with respect to the initial height and speed, gravity
and restitution, once (by the adjoint and by tangents) and twice.  The methods integrate a parabola
without error, so all must agree with the closed form to rounding, with steps that span half a
flight.  The time of an impact moves with the parameters: the same run with the impacts held at
their times ("pinned") has other derivatives, dz(T)/dz(0) = 1 instead of 0.83782811 with the values
of the configuration.

    python drivers/bouncing_ball.py configs/bouncing_ball.toml   (or mpiexec -n 2 python ...)

Results: bounces.png (height and speed, and their derivatives with their jumps), states and
derivatives in results.h5.
"""

import sys
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import Results, between, positive
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.automatic_hessian import AutomaticHessian

NAMES = ("height", "speed", "gravity", "restitution")
OUTPUTS = {
    "height": ds.Terminal(lambda t, u, p: u[0]),
    "speed": ds.Terminal(lambda t, u, p: u[1]),
}
MOST = 30  # bounces
TOLERANCE = 1e-9  # of the largest derivative


@dataclass(frozen=True)
class Config:
    stepping: ds.Stepping
    height: Annotated[float, positive(), "at the start [m]"] = 5.0
    speed: Annotated[float, "at the start, upwards [m/s]"] = -0.1
    gravity: Annotated[float, positive(), "[m/s²]"] = 10.0
    restitution: Annotated[float, between(0.0, 1.0), "speed after over speed before"] = 0.8
    longer: Annotated[tuple[float, ...], "ends of longer runs, with more bounces [s]"] = ()
    shown: Annotated[float, positive(), "end of the figure [s]"] = 4.3
    neighbor: Annotated[float, "initial height of the other ball in the figure [m]"] = 5.5

    def __post_init__(self) -> None:
        first = impacts(self.values, 1)[0]
        if self.stepping.t_span[0] != 0.0 or self.stepping.t_span[1] <= first:
            raise ds.InputError(
                f"t_span = {self.stepping.t_span}",
                expected=f"[0, more than {first:.6g}]: an impact",
            )

    @property
    def values(self) -> np.ndarray:
        return np.array([self.height, self.speed, self.gravity, self.restitution])


def rebound(t, u, p):
    return np.array([u[0], -p[3] * u[1]])


def ball(*impacts) -> ds.problem.Problem:
    """Return the ball that bounces at these times, or where these functions fall through 0."""
    return ds.ODE(
        lambda t, u, p: np.array([u[1], -p[2] + 0 * u[0]]),
        size=2,
        parameters=NAMES,
        events=[
            ds.Event(when, rebound, direction=-1 if callable(when) else 0, name="bounce")
            for when in impacts
        ],
    )


BALL = ball(lambda t, u, p: u[0])


def functional(config: Config, output: ds.Terminal, end: float | None = None) -> ds.Reduced:
    control = ds.Parameters(
        {name: ds.Parameter(x) for name, x in zip(NAMES, config.values, strict=True)},
        initial_state=lambda p: p[:2],
    )
    span = (0.0, end or config.stepping.t_span[1])
    return ds.Reduced(BALL, output, replace(config.stepping, t_span=span), control)


def impacts(x, count: int) -> list:
    """Return the times of the first impacts."""
    z, v, g, e = x
    speed = np.sqrt(v * v + 2 * g * z)
    times = [(v + speed) / g]
    for k in range(1, count):
        times.append(times[-1] + 2 * speed * e**k / g)
    return times


def flight(x, end: float, count: int):
    """Return height and speed at the end, after so many impacts."""
    z, v, g, e = x
    rest = end - impacts(x, count)[-1]
    up = np.sqrt(v * v + 2 * g * z) * e**count
    return np.array([up * rest - g * rest**2 / 2, up - g * rest])


def closed_form(config: Config, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives [2, 4] of height and speed, and the second ones [2, 4, 4]."""
    x, units = config.values, np.eye(4)
    count = sum(time <= end for time in impacts(x, MOST))

    def state(x):
        return flight(x, end, count)

    first = AutomaticJacobian(state, 0, "flight", "")(x)
    product = AutomaticHessian(state, {0: None}, "flight", "")
    second = [[product((x,), w, {0: unit})[0] for unit in units] for w in np.eye(2)]
    return first, np.array(second)


def check(config: Config) -> ds.verify.Taylor:
    both = OUTPUTS["height"] + 0.3 * OUTPUTS["speed"]
    return ds.taylor(functional(config, both), hessian=True)


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    end = config.stepping.t_span[1]
    parts = {name: functional(config, output) for name, output in OUTPUTS.items()}
    run = parts["height"].trajectory(config.values)
    results.say(f"\n{run}\n\nimpact   time [s]            error against the closed form")
    exact_times = impacts(config.values, len(run.crossings))
    for k, (crossing, exact) in enumerate(zip(run.crossings, exact_times, strict=True), 1):
        results.say(f"{k:6d}   {crossing.t:.15f}   {crossing.t - exact:.1e}")
    results.say(f"\nat t = {end:g}                  adjoint         tangent         closed form")
    errors = []
    for (output, reduced), exact in zip(parts.items(), closed_form(config, end)[0], strict=True):
        gradient = reduced.gradient(config.values).array
        along = [reduced.derivative(config.values, unit) for unit in np.eye(4)]
        for name, *row in zip(NAMES, gradient, along, exact, strict=True):
            cells = "  ".join(f"{value:14.10f}" for value in row)
            results.say(f"d {output:7s}/ d {name:12s}  {cells}")
        errors += [abs(gradient - exact).max(), abs(np.array(along) - exact).max()]
        results.write(f"gradient/{output}", gradient)
    pinned(config, results, run)
    results.say("\nlargest errors, relative\nend [s]  bounces  steps  derivatives  second ones")
    for later in (end, *config.longer):
        first, second = closed_form(config, later)
        functionals = [functional(config, output, later) for output in OUTPUTS.values()]
        gradients = np.array([reduced.gradient(config.values).array for reduced in functionals])
        hessians = np.array([reduced.hessian(config.values) for reduced in functionals])
        pairs = ((gradients, first), (hessians, second))
        errors += [abs(ours - exact).max() / abs(exact).max() for ours, exact in pairs]
        run = functionals[0].trajectory(config.values)
        counts = f"{later:<7g}  {len(run.crossings):7d}  {run.effort.steps:5d}"
        results.say(f"{counts}  {errors[-2]:11.1e}  {errors[-1]:11.1e}")
        results.write(f"hessian/{later:g}", hessians)
    results.record("largest_error", max(errors))
    draw(config, results)
    return evidence.passed and max(errors) < TOLERANCE


def pinned(config: Config, results: Results, run: ds.timestepping.Trajectory) -> None:
    """Compare derivatives with those of the same run whose impacts are held at their times."""
    first, held = run.crossings[0], ball(*(crossing.t for crossing in run.crossings))
    results.say("\nimpacts             dz(T)/dz(0)   speed before the first: dv/dz(0)    dv/dg")
    for words, problem in (("where z = 0", BALL), ("at the same times", held)):
        again = ds.solve(problem, config.values[:2], config.values, run.stepping)
        by_height = ds.tangent(again, du0=[1.0, 0.0])
        by_gravity = ds.tangent(again, dp=[0.0, 0.0, 1.0, 0.0])
        end, before = by_height.final.array[0], by_height.states[first.step].array[1]
        speed = by_gravity.states[first.step].array[1]
        results.say(f"{words:18s}  {end:.8f}   {before:32.5f}   {speed:.5f}")
        results.record(words, [end, before, speed])


def draw(config: Config, results: Results) -> None:
    """Draw the motion, that of a neighbor, and the derivatives, which tell what separates them."""
    from daeosens.report.hybrid_runs import (  # noqa: PLC0415 (optional extra)
        JumpSeries,
        Panel,
        events_of,
        jumps_figure,
    )

    def run(problem, height, dt=0.01):
        stepping = replace(config.stepping, t_span=(0.0, config.shown), dt=dt)
        return ds.solve(problem, [height, config.speed], config.values, stepping)

    main, other = run(BALL, config.height), run(BALL, config.neighbor)
    steps = run(BALL, config.height, config.stepping.dt)
    held = run(ball(*(crossing.t for crossing in main.crossings)), config.height)
    slopes = [
        ds.derivatives.at_fixed_times(ds.tangent(trajectory, du0=[1.0, 0.0]))
        for trajectory in (main, held)
    ]

    def series(name, trajectory, values, style="plain"):
        return JumpSeries(name, trajectory.times, values, events_of(trajectory), style)

    start = f"z(0) = {config.neighbor:g} m"
    motion = [
        Panel(
            label,
            [
                series(start if k == 0 else "", other, other.u[:, k], "faint"),
                series("", main, main.u[:, k]),
                JumpSeries(
                    "ends of steps" if k == 0 else "", steps.times, steps.u[:, k], (), "points"
                ),
            ],
        )
        for k, label in enumerate(("height z [m]", "speed v [m/s]"))
    ]
    derivatives = [
        Panel(
            label,
            [
                series("impacts pinned" if k == 0 else "", held, slopes[1][:, k], "faint"),
                series("", main, slopes[0][:, k]),
            ],
        )
        for k, label in enumerate(("dz / dz(0)", "dv / dz(0) [1/s]"))
    ]
    results.write("times", main.times)
    results.write("states", main.u)
    results.write("by_height", slopes[0])
    results.once(
        lambda: jumps_figure(
            results.path("bounces.png"),
            [motion, derivatives],
            time_label="t [s]",
            titles=[f"z(0) = {config.height:g} m", "derivatives at fixed times"],
            moments=[crossing.t for crossing in main.crossings],
        )
    )


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
