"""Runs of DAEOs: optimisers tracked through jumps, against searches in every right-hand side.

    python scripts/bench/daeo.py [--output results.json] [--repeat 5]

"one jump" is x' = -(p0 + y) x with two minimisers on [0, 1], whose solution is known; "emerging"
is x' = y with h = (x - y)^2 + sin(5y) on [0, 2], nine minimisers, five or six of them there at a
time, and four jumps; "waves" has as many minimisers as its box is wide, and one jump.  "tracked" is
a DAEO, "not located" an ODE whose right-hand side follows both minimisers and takes the lower one,
"searched" one that searches the box, with proof, at every call: the steps of both meet jumps
wherever they happen.  "search a step" is a DAEO that searches after every step, proven or not,
and locates jumps.  Least processor times of a run and of its gradient.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import daeosens as ds
from daeosens.tracing import SearchEffort
from daeosens.tracing.daeo.intervals import interval_function
from daeosens.tracing.daeo.search import Search

BOUNDS = (("cn, 40000 steps", 1000.0), ("rk6vr, rtol 1e-10", 20.0))
"""Milliseconds, of runs with one jump."""

SIMPLE = (2.0, 1.0, 0.5, 0.5 * np.pi)
FINAL = 0.231749525877731419


@dataclass(frozen=True)
class Row:
    """One line of the table: milliseconds, and the error of the last state where it is known."""

    problem: str
    optimisers: int
    how: str
    method: str
    steps: int
    searches: int | None
    run: float
    gradient: float | None
    error: float | None


def decay(_t: Any, x: Any, y: Any, p: Any) -> Any:
    """Return x' of the problem with one jump."""
    return -(p[0] + y) * x


def two_wells(_t: Any, x: Any, y: Any, p: Any) -> Any:
    """Return h of it."""
    return (p[1] - y[0] ** 2) ** 2 - (x[0] - p[2]) * np.sin(p[3] * y[0])


def follow(_t: Any, _x: Any, y: Any, _p: Any) -> Any:
    """Return x' = y."""
    return y


def waves(_t: Any, x: Any, y: Any, _p: Any) -> Any:
    """Return a parabola with a wave on it."""
    return (x[0] - y[0]) ** 2 + np.sin(5.0 * y[0])


def run_on(_t: Any, x: Any, _y: Any, _p: Any) -> Any:
    """Return x' = 1."""
    return 1.0 + 0.0 * x


def rows_of_wells(_t: Any, x: Any, y: Any, _p: Any) -> Any:
    """Return a long row of wells, one in each unit of length, that tilts with x."""
    return -np.cos(2.0 * np.pi * y[0]) + 1e-3 * (y[0] - x[0]) ** 2


def least(call: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Return the least processor time in milliseconds, and the result."""
    times, result = list[float](), None
    for _ in range(repeat):
        begin = time.process_time()
        result = call()
        times.append(time.process_time() - begin)
    return 1e3 * min(times), result


def tracked(
    problem: str,
    model: Any,
    start: list[float],
    p: Any,
    stepping: tuple[str, ds.Stepping],
    repeat: int,
    final: float | None = None,
) -> Row:
    """Time a run and a gradient of a DAEO."""
    method, steps = stepping
    ds.adjoint(ds.solve(model, start, p, steps), cost := model.terminal(lambda _t, x, _y, _p: x[0]))
    milliseconds, run = least(lambda: ds.solve(model, start, p, steps), repeat)
    gradient, _ = least(lambda: ds.adjoint(run, cost), repeat)
    error = None if final is None else abs(float(run.u[-1, 0]) - final)
    counts = len(run.report), "tracked", method, run.n_steps, len(run.report.searches)
    return Row(problem, *counts, milliseconds, gradient, error)


def searched(method: str, steps: ds.Stepping) -> Row:
    """Time a run of an ODE that searches in its right-hand side."""
    search = Search(interval_function(two_wells, 1, 1, 4), [[-6.0, 6.0]])

    def rhs(t: float, x: Any, _p: Any) -> Any:
        minimizers = search.find(t, x, SIMPLE, mode="global")
        return decay(t, x, minimizers.points[minimizers.best], SIMPLE)

    ode = ds.ODE(rhs, 1, jacobian="differences")
    milliseconds, run = least(lambda: ds.solve(ode, [1.0], [], steps), 1)
    error = abs(float(run.u[-1, 0]) - FINAL)
    return Row("one jump", 2, "searched", method, run.n_steps, None, milliseconds, None, error)


def not_located(method: str, steps: ds.Stepping, repeat: int) -> Row:
    """Time a run of an ODE that follows both minimisers by Newton's method."""
    _, p1, p2, p3 = SIMPLE

    def rhs(t: float, x: Any, _p: Any) -> Any:
        places = np.array([-1.0, 1.0])
        for _ in range(4):
            angles = p3 * places
            slopes = -4.0 * places * (p1 - places**2) - (x[0] - p2) * p3 * np.cos(angles)
            bends = 12.0 * places**2 - 4.0 * p1 + (x[0] - p2) * p3**2 * np.sin(angles)
            places = places - slopes / bends
        values = two_wells(t, x, places[None], SIMPLE)
        return decay(t, x, places[np.argmin(values)], SIMPLE)

    ode = ds.ODE(rhs, 1, jacobian="differences")
    milliseconds, run = least(lambda: ds.solve(ode, [1.0], [], steps), repeat)
    error = abs(float(run.u[-1, 0]) - FINAL)
    return Row("one jump", 2, "not located", method, run.n_steps, None, milliseconds, None, error)


def measure(repeat: int) -> list[Row]:
    """Return all lines."""
    rows: list[Row] = []
    wells = decay, two_wells, (1, 1), 4
    simple = ds.DAEO(*wells, box=[(-6.0, 6.0)])
    every = ds.DAEO(*wells, box=[(-6.0, 6.0)], effort=SearchEffort(interval=0.0))
    for n in (4, 40, 400, 4000, 40000, 400000):
        fixed = f"cn, {n} steps", ds.Stepping((0.0, 1.0), "cn", dt=1.0 / n)
        rows.append(tracked("one jump", simple, [1.0], SIMPLE, fixed, repeat, FINAL))
        if n in (40, 400, 4000):
            row = tracked("one jump", every, [1.0], SIMPLE, fixed, repeat, FINAL)
            rows.append(replace(row, how="search a step"))
            explicit = f"rk2a, {n} steps", ds.Stepping((0.0, 1.0), "rk2a", dt=1.0 / n)
            rows += [not_located(*explicit, repeat), searched(*explicit)]
    tight = "rk6vr, rtol 1e-10", ds.Stepping((0.0, 1.0), "rk6vr", rtol=1e-10)
    rows.append(tracked("one jump", simple, [1.0], SIMPLE, tight, repeat, FINAL))
    emerging = ds.DAEO(follow, waves, size=(1, 1), parameters=0, box=[(-20.0, 20.0)])
    longer = "rk6vr, rtol 1e-10", ds.Stepping((0.0, 2.0), "rk6vr", rtol=1e-10)
    rows.append(tracked("emerging", emerging, [1.0], [], longer, repeat))
    for n in (5, 11, 21, 41, 81):
        box = [(-0.5 * n, 0.5 * n)]
        model = ds.DAEO(run_on, rows_of_wells, size=(1, 1), parameters=0, box=box)
        fixed = "rk4, 1000 steps", ds.Stepping((0.0, 1.0), "rk4", dt=1e-3)
        rows.append(tracked("waves", model, [0.45], [], fixed, repeat))
    return rows


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="Runs of DAEOs.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    rows = measure(arguments.repeat)
    print(
        f"{'problem':<11}{'optimisers':>11}{'':>15}  {'method':<20}{'steps':>7}{'searches':>9}"
        f"{'run, ms':>10}{'gradient, ms':>14}{'error':>10}"
    )
    for row in rows:
        gradient = "" if row.gradient is None else f"{row.gradient:.2f}"
        searches = "" if row.searches is None else str(row.searches)
        error = "" if row.error is None else f"{row.error:.1e}"
        print(
            f"{row.problem:<11}{row.optimisers:>11}{row.how:>15}  {row.method:<20}{row.steps:>7}"
            f"{searches:>9}{row.run:>10.2f}{gradient:>14}{error:>10}"
        )
    for method, bound in BOUNDS:
        print(f"bound: {bound:g} ms for one jump, tracked, by {method}")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
