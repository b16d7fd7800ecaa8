"""Cost of one event, as a number of steps: in the forward run and in the adjoint sweep.

    python scripts/bench/events.py [--output results.json] [--repeat 25]

Each system runs over one span three times: without events, with events whose surfaces are far away
("watching": the event functions are evaluated after every step), and with events that happen.  All
are timed in turn, and each turn gives the cost of a step (from spans of one and two lengths, so
that setting up does not count), of watching one step, and of an event, the last two in steps of the
same turn; the medians of the turns are printed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daeosens import ODE, Event, Stepping, Terminal, adjoint, hybrid, solve
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory

BOUND_FORWARD, BOUND_SWEEP = 10.0, 5.0


@dataclass(frozen=True)
class Row:
    """One line of the table: microseconds for a step, and numbers of steps."""

    case: str
    method: str
    events: int
    step: float
    watching: float
    event: float
    sweep_step: float
    sweep_event: float


@dataclass(frozen=True, eq=False)
class System:
    """A problem with and without its events, and how to run it."""

    name: str
    make: Callable[[str], Problem]
    u0: Any
    p: Any
    span: float
    dt: float


def ball(events: str) -> Problem:
    """Return a ball that bounces for ever; ``events`` is "none", "far" or "near"."""
    floor = 0.0 if events == "near" else -1e9
    bounce = Event(
        lambda _t, u, _p: u[0] - floor,
        lambda _t, u, p: np.array([u[0], -p[1] * u[1]]),
        direction=-1,
    )
    return ODE(
        lambda _t, u, p: np.array([u[1], -p[0] + 0.0 * u[0]]),
        2,
        ["gravity", "restitution"],
        jacobian=lambda _t, _u, _p: np.array([[0.0, 1.0], [0.0, 0.0]]),
        events=[] if events == "none" else [bounce],
    )


N, WIDTH = 50, 0.03
LAPLACIAN = N**2 * (np.diag(np.full(N - 1, 1.0), 1) + np.diag(np.full(N - 1, 1.0), -1)) - (
    2.0 * N**2 * np.eye(N)
)


def rod(events: str) -> Problem:
    """Return a rod, cold at its ends, heated while its middle is cold; stiffness 4 N^2."""

    def mode(on: float) -> Problem:
        return ODE(
            lambda _t, u, p: LAPLACIAN @ u + on * p[0],
            N,
            ["power", "low"],
            jacobian=lambda _t, _u, _p: LAPLACIAN,
            jacobian_p=lambda _t, _u, _p: np.outer(np.full(N, on), [1.0, 0.0]),
            rhs_t="autonomous",
        )

    if events == "none":
        return mode(1.0)
    far = 0.0 if events == "near" else 1e9
    middle = np.eye(N)[N // 2]
    hot = Event(
        lambda _t, u, p: u[N // 2] - p[1] - WIDTH - far,
        when_u=lambda _t, _u, _p: middle,
        when_p=lambda _t, _u, _p: np.array([0.0, -1.0]),
        direction=1,
        mode="off",
        within=["on"],
        name="hot",
    )
    cold = Event(
        lambda _t, u, p: u[N // 2] - p[1] + far,
        when_u=lambda _t, _u, _p: middle,
        when_p=lambda _t, _u, _p: np.array([0.0, -1.0]),
        direction=-1,
        mode="on",
        within=["off"],
        name="cold",
    )
    return hybrid({"on": mode(1.0), "off": mode(0.0)}, "on", [hot, cold])


SYSTEMS = (
    System("ball, n = 2", ball, [4.9, 0.0], [9.81, 1.0], 80.0, 0.1),
    System("heated rod, n = 50", rod, np.zeros(N), [20.0, 1.0], 0.5, 2e-4),
)
METHODS: tuple[tuple[str, dict[str, float]], ...] = (
    ("rk4", {}),
    ("rk5dp", {"rtol": 1e-6, "atol": 1e-6}),
    ("cn", {}),
)


def measure(system: System, method: str, tolerances: dict[str, float], repeat: int) -> Row:
    """Time the runs and their sweeps in turn."""
    cost = Terminal(lambda _t, u, _p: 0.5 * u @ u, lambda _t, u, _p: u, "independent")

    problems = {events: system.make(events) for events in ("none", "far", "near")}

    def run(events: str, spans: float) -> Trajectory:
        largest = {"max_step": system.dt} if tolerances else {}
        stepping = Stepping((0.0, spans * system.span), method, system.dt, **tolerances, **largest)
        return solve(problems[events], system.u0, system.p, stepping)

    cases = [("none", 1.0), ("none", 2.0), ("far", 1.0), ("near", 1.0)]
    forward: list[list[float]] = [[] for _ in cases]
    sweep: list[list[float]] = [[] for _ in cases]
    trajectories: list[Trajectory] = []
    for _ in range(repeat + 1):
        trajectories = []
        for k, case in enumerate(cases):
            begin = time.process_time()
            trajectory = run(*case)
            middle = time.process_time()
            adjoint(trajectory, cost, "vectors")
            sweep[k].append(1e6 * (time.process_time() - middle))
            forward[k].append(1e6 * (middle - begin))
            trajectories.append(trajectory)
    single, double, far, _ = (trajectory.n_steps for trajectory in trajectories)
    count = len(trajectories[3].crossings)

    def compared(times: list[list[float]]) -> tuple[float, float, float]:
        """Return the time of a step, and what watching a step and an event cost in steps."""
        short, long, watched, happened = (np.array(samples[1:]) for samples in times)
        step = (long - short) / (double - single)
        return (
            float(np.median(step)),
            float(np.median((watched - short) / far / step)),
            float(np.median((happened - watched) / count / step)),
        )

    step, watching, event = compared(forward)
    sweep_step, _, sweep_event = compared(sweep)
    return Row(system.name, method, count, step, watching, event, sweep_step, sweep_event)


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="Cost of one event, in steps.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=25)
    arguments = parser.parse_args()
    print(
        f"{'case':<20}{'method':<8}{'events':>7}{'step, us':>10}{'watching':>10}{'event':>8}"
        f"{'sweep, us':>11}{'event':>8}"
    )
    rows: list[Row] = []
    for system in SYSTEMS:
        for method, tolerances in METHODS:
            row = measure(system, method, tolerances, arguments.repeat)
            rows.append(row)
            print(
                f"{row.case:<20}{row.method:<8}{row.events:>7}{row.step:>10.1f}"
                f"{row.watching:>10.2f}{row.event:>8.1f}{row.sweep_step:>11.1f}"
                f"{row.sweep_event:>8.1f}",
                flush=True,
            )
    print(f"bounds: {BOUND_FORWARD:g} steps forward, {BOUND_SWEEP:g} in the sweep")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
