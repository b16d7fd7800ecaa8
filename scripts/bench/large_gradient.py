"""A gradient of Gray and Scott's equations on a fine grid, with checkpoints, on all ranks.

    mpiexec -n 2 python scripts/bench/large_gradient.py [--points 2048] [--steps 1000] [--kept 60]

RK4, steps as long as stability allows, four rates as parameters; the gradient of half the square of
the state at the end in the initial state and rates.  Seconds are of a clock; memory is the most
that each rank has had, summed.  Writes docs/benchmarks/fields/large_gradient.json and the table of
docs/checkpoints.md; --page writes the table alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens import Stepping, Terminal, adjoint, solve
from daeosens.problem.grids import Grid
from daeosens.timestepping import Checkpoints
from gray_scott import D1, D2, GAMMA, KAPPA, SIDE
from gray_scott.ours import with_rates
from machine import describe
from tables import markdown, number, put_between, with_sources

DOCS = Path(__file__).parents[2] / "docs"
NUMBERS = DOCS / "benchmarks" / "fields" / "large_gradient.json"
PAGE = DOCS / "checkpoints.md"


def start(grid: Grid) -> PETSc.Vec:
    """Return the published spots."""
    u0, x = grid.create_vec(), SIDE / grid.shape[0] * np.arange(grid.shape[0])
    wave = np.where((x < 1.0) | (x > 1.5), 0.0, np.sin(4.0 * np.pi * x) ** 2)
    (c0, c1), (s0, s1) = grid.dm.getCorners()
    v = 0.25 * wave[c1 : c1 + s1, None] * wave[None, c0 : c0 + s0]
    grid.writable(u0)[...] = np.stack([1.0 - 2.0 * v, v], axis=-1)
    return u0


def main() -> None:
    """Take one gradient, and note time and memory."""
    parser = argparse.ArgumentParser(description="One gradient on a fine grid.")
    parser.add_argument("--points", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--kept", type=int, default=60)
    parser.add_argument("--page", action="store_true", help="the table from the numbers there are")
    arguments = parser.parse_args()
    if arguments.page:
        write_page(json.loads(NUMBERS.read_text()))
        return
    n, steps, kept = arguments.points, arguments.steps, arguments.kept
    grid = Grid(((0.0, SIDE), (0.0, SIDE)), (n, n), dof=2)
    u0 = start(grid)
    dt = min(0.5, 0.2 * (SIDE / n) ** 2 / D1)
    stepping = Stepping((0.0, steps * dt), "rk4", dt=dt)
    cost = Terminal(
        lambda _t, u, _p: 0.5 * u.dot(u), lambda _t, u, _p, out: u.copy(out), "independent"
    )
    times = [time.perf_counter()]
    run = solve(
        with_rates(grid), u0, (D1, D2, GAMMA, KAPPA), stepping, checkpoint=Checkpoints(kept)
    )
    times.append(time.perf_counter())
    gradient = adjoint(run, cost)
    times.append(time.perf_counter())
    comm = PETSc.COMM_WORLD.tompi4py()
    gigabytes = comm.allreduce(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1e6
    machine: dict[str, Any] = describe()
    result = {
        "points": n,
        "steps": steps,
        "kept": kept,
        "ranks": comm.size,
        "taken_again": run.stored.steps,
        "run": round(times[1] - times[0], 1),
        "adjoint": round(times[2] - times[1], 1),
        "gigabytes": round(gigabytes, 2),
        "gradient_p": gradient.p.tolist(),
        "command": f"mpiexec -n {comm.size} python scripts/bench/large_gradient.py "
        f"--points {n} --steps {steps} --kept {kept}",
        "date": machine["date"],
        "processor": machine["processor"],
    }
    if comm.rank == 0:
        print(result)
        NUMBERS.write_text(json.dumps(result, indent=1) + "\n")
        write_page(result)


def write_page(result: dict[str, Any]) -> None:
    """Write the table between its marks in the page."""
    n = result["points"]
    everything = 16e-9 * n**2 * (result["steps"] + 1)
    row = [f"{n} x {n} x 2", result["steps"], result["ranks"], f"{everything:.0f} GB"]
    row += [result["kept"], result["taken_again"], number(result["gigabytes"]) + " GB"]
    row += [number(result["run"]), number(result["adjoint"])]
    headings = ["unknowns", "steps", "ranks", "all states", "kept", "taken again", "memory"]
    headings += ["run, s", "sweep, s"]
    table = with_sources(markdown(headings, [[str(cell) for cell in row]]), [result])
    put_between(PAGE, "scripts/bench/large_gradient.py", table)


if __name__ == "__main__":
    main()
