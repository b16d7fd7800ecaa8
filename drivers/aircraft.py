"""Steer an aircraft so that it follows another one: optimal control with bounds.

    x' = v cos w,  y' = v sin w,  start (2, 0),  T = 1

The leader starts at the origin and flies straight on at speed 2, heading pi/4.  Speed v in [0, 2]
and heading w in [-pi, pi] minimise the integral of the squared distance to the leader.  Both are
functions of time in a basis ("constant", "linear" or "cubic" on equal intervals), so the answer is
the same whatever the steps; "refinements" shows it.

    python drivers/aircraft.py configs/aircraft.toml          (or mpiexec -n 2 python ...)

The problem is that of PETSc's tutorial ts/tutorials/optimal_control/ex1; with constant controls its
published optimum is 0.849937, v = 2 throughout, and the headings printed beside ours.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import Results, between, positive

START, LEADER = np.array([2.0, 0.0]), 2.0 * np.array([np.cos(np.pi / 4), np.sin(np.pi / 4)])
BOUNDS = {"v": (0.0, 2.0), "w": (-np.pi, np.pi)}
GUESS = {"v": 2.0, "w": np.pi / 2}
PUBLISHED = (
    2.88134,
    2.79477,
    2.68143,
    2.52676,
    2.30725,
    1.99478,
    1.59983,
    1.22992,
    0.98469,
    0.860197,
)
DEGREES = {"constant": 0, "linear": 1, "cubic": 3}


@dataclass(frozen=True)
class Optimizer:
    method: Literal["blmvm", "bqnls", "bncg", "bnls", "bntr", "bntl"] = "bntr"
    preconditioner: Annotated[Literal["auto", "lmvm", "dense", "none"], "Newton methods"] = "auto"
    options: Annotated[Mapping[str, Any], "of TAO"] = field(default_factory=dict)
    gradient_tolerance: Annotated[float, positive(), "largest gradient norm at the end"] = 1e-8
    max_iterations: Annotated[int, positive()] = 300


@dataclass(frozen=True)
class Config:
    stepping: ds.Stepping
    basis: Annotated[Literal["constant", "linear", "cubic"], "of the controls in time"] = "constant"
    intervals: Annotated[int, between(1), "equal intervals of the basis"] = 10
    refinements: Annotated[
        tuple[Annotated[int, positive()], ...], "solved again with the step divided by these"
    ] = ()
    optimizer: Optimizer = Optimizer()


def functional(config: Config, refinement: int = 1) -> tuple[ds.problem.Spline, ds.Reduced]:
    stepping = replace(config.stepping, dt=config.stepping.first_step / refinement)
    knots = np.linspace(*stepping.t_span, config.intervals + 1)
    steer = ds.problem.Spline(knots, DEGREES[config.basis], components=2)

    def rhs(t, u, p):
        v, w = steer(t, p)
        return np.array([v * np.cos(w), v * np.sin(w)])

    def jacobian_p(t, u, p):
        (v, w), (by_v, by_w) = steer(t, p), steer.gradient(t)
        return np.outer([np.cos(w), np.sin(w)], by_v) + v * np.outer([-np.sin(w), np.cos(w)], by_w)

    names = steer.names("v", "w")
    problem = ds.ODE(
        rhs,
        size=2,
        parameters=names,
        jacobian=lambda t, u, p: np.zeros((2, 2)),
        jacobian_p=jacobian_p,
        breakpoints=steer.breakpoints,
    )
    distance = ds.Running(
        lambda t, u, p: ((u - LEADER * t) ** 2).sum(),
        gradient_u=lambda t, u, p: 2.0 * (u - LEADER * t),
        gradient_p=ds.problem.INDEPENDENT,
    )
    start = {
        name: ds.Parameter(GUESS[name[0]], lower=BOUNDS[name[0]][0], upper=BOUNDS[name[0]][1])
        for name in names
    }
    return steer, ds.Reduced(problem, distance, stepping, ds.Parameters(start, initial_state=START))


def check(config: Config) -> ds.verify.Taylor:
    return ds.taylor(functional(config)[1], hessian=True)


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    if not evidence.passed:
        return False
    steer, reduced = functional(config)
    results.say(ds.optimize.result.HEADING)
    chosen = vars(config.optimizer)
    optimum = ds.minimize(reduced, progress=lambda iterate, _x: results.say(iterate), **chosen)
    results.say(optimum)
    p = np.array(list(reduced.control.values_at(reduced.problem, optimum.x).values()))
    speeds, headings = np.split(p, 2)
    published = PUBLISHED if config.basis == "constant" and config.intervals == 10 else ()
    results.say("\nspeed      heading    published heading")
    for k, (v, w) in enumerate(zip(speeds, headings, strict=True)):
        results.say(f"{v:<10.6g} {w:<10.6g} {published[k] if published else ''}")
    results.say("\nsteps  iterations  optimum           largest change of a control")
    for refinement in config.refinements:
        finer = functional(config, refinement)[1]
        again = ds.minimize(finer, **chosen)
        steps, change = finer.trajectory(again.x).n_steps, abs((again.x - optimum.x).array).max()
        results.say(f"{steps:5d}  {again.iterations:10d}  {again.value:.14f}  {change:.1e}")
    run = reduced.trajectory(optimum.x)
    results.record("value", optimum.value)
    results.record("iterations", optimum.iterations)
    for name, array in (("times", run.times), ("states", run.u), ("speeds", speeds)):
        results.write(name, array)
    results.write("headings", headings)
    results.once(lambda: draw(results, steer, run, p))
    return optimum.converged


def draw(
    results: Results, steer: ds.problem.Spline, run: ds.timestepping.Trajectory, p: np.ndarray
) -> Path:
    from daeosens.report.paths import (  # noqa: PLC0415 (optional extra)
        ControlSeries,
        Route,
        motion_figure,
    )

    leader = Route("leader", LEADER * run.times[:, None])
    constant = steer.degree == 0
    times = np.array(steer.knots) if constant else np.linspace(*run.times[[0, -1]], 201)
    values = np.array([steer(t, p) for t in (times[:-1] if constant else times)])
    controls = [
        ControlSeries(label, times, values[:, k], BOUNDS[name])
        for k, (name, label) in enumerate((("v", "speed v"), ("w", "heading w [rad]")))
    ]
    return motion_figure(results.path("aircraft.png"), [Route("follower", run.u), leader], controls)


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
