"""What it takes to find an initial state of the Gray-Scott system, by method and form of Jacobian.

    python scripts/bench/initial_state.py [--output results.json] [--repeat 5] [--points 100]

As published for another code: points x points x 2 unknowns, dt = 0.5 on [0, 5], L-BFGS from one
broad spot to the four of PETSc's tutorial, whose state at the end is the data.  Milliseconds of
processor time of a run and of the adjoint, least of laps in turn; iterations and evaluations until
the misfit has fallen to 1e-10 of itself, and their seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens import ODE, LeastSquares, Reduced, Stepping, adjoint, minimize, solve, trace_stencil
from daeosens.functional import InitialState
from daeosens.problem import Problem
from daeosens.problem.grids import Grid
from daeosens.tracing.pdes import spots
from gray_scott import D1, D2, GAMMA, KAPPA, SIDE
from gray_scott.ours import reaction

END, DT = 5.0, 0.5
REDUCTION = 1e-10
PUBLISHED = {"beuler": 0.40, "cn": 0.41, "rk4": 1.11}
"""Seconds of an adjoint over those of a run, of another code with products."""

FORMS = ("assembled", "colored", "products")
"""Of Jacobians: traced and assembled; by colors of directions, of NumPy code; never formed."""


def on_arrays(points: int) -> Any:
    """Return f(t, u) of all points at once in NumPy."""
    scale = (points / SIDE) ** 2

    def rhs(_t: float, u: Any, _p: Any) -> Any:
        a, b = u.reshape(points, points, 2)[..., 0], u.reshape(points, points, 2)[..., 1]
        of_a, of_b = (
            scale * (sum(np.roll(v, k, axis) for k in (-1, 1) for axis in (0, 1)) - 4.0 * v)
            for v in (a, b)
        )
        growth = a * b * b
        by_a = D1 * of_a - growth + GAMMA * (1.0 - a)
        by_b = D2 * of_b + growth - (GAMMA + KAPPA) * b
        return np.stack([by_a, by_b], axis=-1).ravel()

    return rhs


def problem_of(form: str, grid: Grid) -> Problem:
    """Return the equations."""
    if form == "colored":
        return ODE(on_arrays(grid.shape[0]), size=grid.dof * prod(grid.shape))
    return trace_stencil(reaction, grid, jacobian=form)


def measured(form: str, method: str, points: int, repeat: int) -> dict[str, Any]:
    """Return one line of the table."""
    grid = Grid(((0.0, SIDE), (0.0, SIDE)), (points, points), dof=2, comm=PETSc.COMM_SELF)
    problem = problem_of(form, grid)
    stepping = Stepping((0.0, END), method, dt=DT)
    guess = spots(grid, waves=2.0)
    misfit = LeastSquares([END], [solve(problem, spots(grid), None, stepping).final])
    forward, back = [], []
    for _ in range(1 + repeat):  # the first one compiles
        begin = time.process_time()
        run = solve(problem, guess, None, stepping, checkpoint="stages")  # as Reduced does
        between = time.process_time()
        adjoint(run, misfit)
        forward.append(between - begin)
        back.append(time.process_time() - between)
    run_time, sweep = min(forward[1:]), min(back[1:])
    timed = {
        "method": method,
        "Jacobian": form,
        "run": 1e3 * run_time,
        "adjoint": 1e3 * sweep,
        "ratio": sweep / run_time,
        "published": PUBLISHED[method] if form == "products" else None,
        "iterations": None,
        "evaluations": None,
        "seconds": None,
    }
    if form == "colored":  # the numbers are those of what is assembled, and so are the iterates
        return timed
    functional = Reduced(problem, misfit, stepping, InitialState(guess))
    goal = REDUCTION * functional.value(guess)
    begin = time.process_time()
    optimum = minimize(functional, gradient_tolerance=0.0, options={"tao_fmin": goal})
    seconds = time.process_time() - begin
    assert optimum.value <= goal
    return timed | {
        "iterations": optimum.iterations,
        "evaluations": optimum.evaluations,
        "seconds": seconds,
    }


def main() -> None:
    """Measure, print, and write the results if wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--points", type=int, default=100)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for method in PUBLISHED:
        for form in FORMS:
            rows.append(measured(form, method, arguments.points, arguments.repeat))
            print(*rows[-1].values(), sep="  ", flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
