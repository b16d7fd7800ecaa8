"""Keep a generator in step through a short circuit: the swing equation with a fault.

    theta' = omega_b (omega - 1),   2 H omega' = P - P_max sin theta - D (omega - 1)

from rest, theta(0) = asin(P/P_max): the start moves with the power P.  While the fault lasts P_max
is 0.  Minimised is -P + int c max(0, theta - limit)^exponent dt: as much power as the overshoot of
the rotor angle allows.  The times at which the fault begins and is cleared are parameters too.
Newton's method on the state at an event then tells how late the fault may be cleared: for the
angle at its peak to be the limit, and for the machine to stay in step at all (where no speed is
left at the unstable equilibrium).

    python drivers/swing_equation.py configs/swing_equation.toml          (or mpiexec -n 2 ...)

max(0, .)^2 has one continuous derivative.  Its integral has two, the quadrature of it only one: the
Hessian jumps where a point of the quadrature passes the limit, by an amount that falls with the
step.  Newton's method does not mind (it is a semismooth one); a Taylor test of order 3 has to stay
on one side.  With exponent 3 nothing jumps.  In the times of the fault the discrete cost has a kink
of the size of the error of a step where one falls on the end of a step: choose steps that avoid it.

The problem is that of PETSc's tutorial ts/tutorials/power_grid/ex3opt; with its 34 steps of
Crank-Nicolson we find its optimum, P = 1.00793, by exact Newton in 5 iterations, and with "blmvm"
all its 8 iterates.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.io import Results, between, increasing, positive
from daeosens.verify.extrapolated_differences import difference

BASE, INERTIA, P_MAX, MOST = 120.0 * np.pi, 5.0, 1.1378 / 0.545, 1.1
NAMES = ("power", "fault", "cleared")
SMALL = tuple(1e-3 * 0.5**k for k in range(5))  # moves that take no point past the limit


@dataclass(frozen=True)
class Optimizer:
    method: Literal["blmvm", "bqnls", "bncg", "bnls", "bntr", "bntl"] = "blmvm"
    options: Annotated[Mapping[str, Any], "of TAO"] = field(default_factory=dict)
    gradient_tolerance: Annotated[float, positive(), "largest gradient norm at the end"] = 1e-8
    max_iterations: Annotated[int, positive()] = 100


@dataclass(frozen=True)
class Config:
    stepping: ds.Stepping
    power: Annotated[float, between(0.0, MOST), "P at the start of the search [per unit]"] = 1.06
    fault: Annotated[tuple[float, float], increasing(), "it begins, is cleared [s]"] = (0.1, 0.2)
    limit: Annotated[float, positive(), "angle beyond which overshoot is counted [rad]"] = 1.0
    weight: Annotated[float, positive(), "c"] = 1e4
    exponent: Annotated[int, between(2), "of the overshoot"] = 2
    damping: Annotated[float, between(0.0), "D [per unit]"] = 5.0
    refinements: Annotated[
        tuple[Annotated[int, positive()], ...], "solved again with the step divided by these"
    ] = ()
    optimizer: Optimizer = Optimizer()

    def __post_init__(self) -> None:
        highest = np.arcsin(MOST / P_MAX)
        if not highest < self.limit < np.pi - highest:
            raise ds.InputError(
                f"limit = {self.limit:g}",
                expected=f"an angle in ({highest:.4g}, {np.pi - highest:.4g}), between the "
                "equilibria at the largest power",
            )
        end = self.stepping.t_span[1]
        if not self.fault[1] < end:
            raise ds.InputError(
                f"fault = {self.fault}",
                expected=f"clearing before the end of stepping.t_span, {end:g}",
            )


def machine(config: Config, *watched: ds.Event) -> ds.problem.Problem:
    def mode(p_max: float) -> ds.problem.Problem:
        def rhs(t, u, p):
            pull = p[0] - p_max * np.sin(u[0]) - config.damping * (u[1] - 1.0)
            return np.array([BASE * (u[1] - 1.0), 0.5 / INERTIA * pull])

        def jacobian(t, u, p):
            pull = np.array([-p_max * np.cos(u[0]), -config.damping])
            return np.array([[0.0, BASE], 0.5 / INERTIA * pull])

        def jacobian_p(t, u, p):
            return np.array([[0.0, 0.0, 0.0], [0.5 / INERTIA, 0.0, 0.0]])

        return ds.ODE(rhs, 2, NAMES, jacobian=jacobian, jacobian_p=jacobian_p, rhs_t="autonomous")

    begins = ds.Event("fault", mode="fault", name="fault")
    ends = ds.Event("cleared", mode="after", name="cleared")
    modes = {"before": mode(P_MAX), "fault": mode(0.0), "after": mode(P_MAX)}
    return ds.hybrid(modes, "before", [begins, ends, *watched])


def rest(p):
    return np.array([np.arcsin(p[0] / P_MAX), 1.0 + 0.0 * p[0]])


def functional(config: Config, *free: str, refinement: int = 1) -> ds.Reduced:
    """Return the cost as a function of the parameters named."""
    overshoot = ds.Running(
        lambda t, u, p: config.weight * np.maximum(0.0, u[0] - config.limit) ** config.exponent
    )
    start = dict(zip(NAMES, (config.power, *config.fault), strict=True))
    values = {name: ds.Parameter(value, free=name in free) for name, value in start.items()}
    values["power"] = replace(values["power"], lower=0.0, upper=MOST)
    stepping = replace(config.stepping, dt=config.stepping.first_step / refinement)
    cost = overshoot + ds.Terminal(lambda t, u, p: -p[0])
    return ds.Reduced(machine(config), cost, stepping, ds.Parameters(values, initial_state=rest))


PEAK = ds.Event(
    lambda t, u, p: u[1] - 1.0, direction=-1, within=["after"], terminal=True, name="peak"
)
LOST = ds.Event(
    lambda t, u, p: u[0] - np.pi + np.arcsin(p[0] / P_MAX),
    direction=1,
    within=["after"],
    terminal=True,
    name="lost",
)


def latest_clearing(config: Config, power: float, goal: str) -> tuple[float, list]:
    """Return the clearing time, and Newton's iterates: time, and what is to vanish there.

    For the goal "limit" the angle at the peak, less the limit.  For "step" (omega - 1)^2 where the
    machine falls out of step: it is nearly linear in the clearing time, while the angle at the peak
    has a vertical tangent.  That search begins later than the equal-area criterion allows, which
    knows no damping.
    """
    event, value, cleared = PEAK, lambda t, u, p: u[0] - config.limit, config.fault[1]
    if goal == "step":
        event, value = LOST, lambda t, u, p: (u[1] - 1.0) ** 2
        first = np.arcsin(power / P_MAX)
        angle = np.arccos(power / P_MAX * (np.pi - 2.0 * first) - np.cos(first))
        longest = np.sqrt(4.0 * INERTIA * (angle - first) / (BASE * power))
        cleared = config.fault[0] + (1.2 + 0.04 * config.damping) * longest
    stepping = replace(config.stepping, t_span=(0.0, 10.0), dt=config.stepping.first_step)
    problem, iterates, change = machine(config, event), [], 1.0
    while abs(change) > 1e-8 and len(iterates) < 20:
        p = np.array([power, config.fault[0], cleared])
        try:
            run = ds.solve(problem, rest(p), p, stepping)
            left = ds.adjoint(run, ds.costs.AtEvent(value, event.name))
            iterates.append((cleared, left.value))
            change = -left.value / left.p[2]
        except ds.SolveError:  # the event does not happen: halfway back
            change *= 0.5
            cleared -= change
            continue
        cleared += change
    return cleared, iterates


def check(config: Config) -> ds.verify.Taylor:
    return ds.taylor(functional(config, *NAMES), hessian=True, epsilons=SMALL)


def study(config: Config, results: Results) -> bool:
    evidence = check(config)
    results.say(evidence)
    if not evidence.passed:
        return False
    say_derivatives(config, results)
    chosen, reduced = vars(config.optimizer), functional(config, "power")
    results.say(f"\n{ds.optimize.result.HEADING}")
    optimum = ds.minimize(reduced, progress=lambda iterate, _x: results.say(iterate), **chosen)
    results.say(optimum)
    power = float(optimum.x[0])
    results.say(f"  power          {config.power:g} -> {power:.6g}")
    results.say("\nsteps  iterations  optimum         power")
    for refinement in config.refinements:
        finer = functional(config, "power", refinement=refinement)
        again = ds.minimize(finer, **chosen)
        steps = finer.trajectory(again.x).effort.steps
        line = f"{steps:5d}  {again.iterations:10d}  {again.value:.10f}  {again.x[0]:.9f}"
        results.say(line)
    powers = (config.power, power)
    latest = {}
    for goal, load in ((goal, load) for goal in ("limit", "step") for load in powers):
        latest[goal, load], iterates = latest_clearing(config, load, goal)
        results.say(f"\nP = {load:.6g}: cleared at [s]   left ({goal})")
        results.say("\n".join(f"{time:.12f}            {left:.1e}" for time, left in iterates))
    facts = {"power": power, "value": optimum.value, "iterations": optimum.iterations}
    facts |= {f"latest_{goal}": latest[goal, power] for goal in ("limit", "step")}
    for name, fact in facts.items():
        results.record(name, fact)
    results.write("values", optimum.history.value)
    smooth = functional(config, "power", refinement=4)
    runs = {}
    for name, load in zip(("before", "after"), powers, strict=True):
        run = smooth.trajectory([load])
        runs[load] = (run.times, run.u)
        results.write(f"{name}/times", run.times)
        results.write(f"{name}/states", run.u)
    results.once(
        lambda: draw(config, results, powers, runs, [latest["limit", load] for load in powers])
    )
    return optimum.converged


def say_derivatives(config: Config, results: Results) -> None:
    """Print the derivative in each parameter by adjoint, tangent and differences."""
    reduced = functional(config, *NAMES)
    x = reduced.start()
    results.say(f"\nJ = {reduced.value(x):.9g}; its derivatives")
    results.say("parameter     adjoint             tangent             differences")
    gradient = reduced.gradient(x).array
    for name, slope, unit in zip(NAMES, gradient, np.eye(3), strict=True):
        along = reduced.derivative(x, unit)
        moved = difference(
            lambda h, move=0.02 * unit: np.array([reduced.value(x.array + h * move)]), x.comm, 6
        )
        results.say(f"{name:10s} {slope:16.9f}  {along:18.9f}  {moved.values[0] / 0.02:18.9f}")


def draw(config: Config, results: Results, powers: tuple, runs: dict, latest: list) -> None:
    from daeosens.report import switched_runs as switching  # noqa: PLC0415 (optional extra)

    rows = [
        [
            switching.Course(f"P = {power:.5g}", times, states[:, k])
            for power, (times, states) in runs.items()
        ]
        for k in range(2)
    ]
    switching.switching_figure(
        results.path("swing.png"),
        [
            switching.Row("rotor angle [rad]", rows[0], {"limit": config.limit}),
            switching.Row("speed [per unit]", rows[1]),
        ],
        [config.fault],
        time_label="t [s]",
        shade_label="fault",
    )
    before, after = powers
    width = max(abs(before - after), 0.01)
    reach = np.linspace(after - 0.6 * width, min(after + 1.2 * width, MOST), 17)
    by_power = [tangents(config, before, "power", reach, after)]
    first, (least, most) = config.fault[0], sorted(latest)
    reach = np.linspace(first + 0.9 * (least - first), first + 1.08 * (most - first), 17)
    cleared = [
        tangents(config, power, "cleared", reach, mark)
        for power, mark in zip(powers, latest, strict=True)
    ]
    switching.tangents_figure(
        results.path("cost.png"),
        [
            switching.TangentsPanel("P [per unit]", "J", by_power, "optimum"),
            switching.TangentsPanel("fault cleared at [s]", "J", cleared, "peak at the limit"),
        ],
    )


def tangents(config: Config, power: float, name: str, x: np.ndarray, mark: float):
    """Return the cost as a function of one parameter, with some of its derivatives."""
    from daeosens.report.switched_runs import Tangents  # noqa: PLC0415 (optional extra)

    reduced = functional(replace(config, power=power), name)
    values, derivatives = np.transpose(
        [
            [value, slope[0]]
            for value, slope in (reduced.value_and_gradient([value_of_x]) for value_of_x in x)
        ]
    )
    some, label = slice(1, None, 3), "J(P)" if name == "power" else f"P = {power:.5g}"
    return Tangents(label, x, values, x[some], values[some], derivatives[some], mark)


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
