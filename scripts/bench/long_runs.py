"""Memory and time of long runs of ten unknowns in NumPy, and of their gradients.

    python scripts/bench/long_runs.py [--output results.json] [--steps 100000] [--repeat 1]

Resident bytes a step besides those of a short run and its gradient before, at the ends of the run
and of the sweep and at their most, and processor seconds.  The ten unknowns are 80 bytes, time and
size of a step 16.  Derivatives are given, or automatic.  Each case has a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import daeosens as ds

Array = npt.NDArray[np.float64]
N = 10
SHORT = 2000
"""Steps of a run before, whose sweep has had a block of full size."""


def rhs(_t: float, u: Array, p: Array) -> Array:
    """Advect on a ring, and decay by collisions."""
    out = np.empty(N)
    out[0] = p[0] * (u[-1] - u[0])
    out[1:] = p[0] * (u[:-1] - u[1:])
    return out - p[1] * u * u


def jacobian(_t: float, u: Array, p: Array) -> Array:
    """Return f_u [n, n]."""
    matrix = np.zeros((N, N))
    rows = np.arange(N)
    matrix[rows, rows] = -p[0] - 2.0 * p[1] * u
    matrix[rows, rows - 1] = p[0]
    return matrix


def jacobian_p(_t: float, u: Array, _p: Array) -> Array:
    """Return f_p [n, 2]."""
    columns = np.empty((N, 2))
    columns[0, 0] = u[-1] - u[0]
    columns[1:, 0] = u[:-1] - u[1:]
    columns[:, 1] = -u * u
    return columns


def resident(line: str) -> int:
    """Return VmRSS (now) or VmHWM (at most) in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{line}:")[2].split()[0])


def measured(steps: int, *, automatic: bool) -> dict[str, Any]:
    """Return bytes a step and seconds."""
    given: dict[str, Any] = {} if automatic else {"jacobian": jacobian, "jacobian_p": jacobian_p}
    problem = ds.ODE(rhs, size=N, parameters=["speed", "rate"], **given)
    start, p = 1.0 + np.arange(N) / N, [1.0, 0.1]
    cost = ds.Terminal(lambda _t, u, _p: u @ u, lambda _t, u, _p: 2.0 * u)

    def run_of(count: int) -> ds.timestepping.Trajectory:
        return ds.solve(problem, start, p, ds.Stepping((0.0, 1e-3 * count), "rk4", dt=1e-3))

    short = run_of(SHORT)
    ds.adjoint(short, cost)
    gc.collect()
    idle, begin = resident("VmRSS"), time.process_time()
    run = run_of(steps)
    seconds, most = time.process_time() - begin, resident("VmHWM")
    gc.collect()
    after = resident("VmRSS")
    ds.adjoint(run, cost)
    total = time.process_time() - begin
    gc.collect()
    return {
        "derivatives": "automatic" if automatic else "given",
        "steps": run.n_steps,
        "run": (after - idle) / steps,
        "run at most": (most - idle) / steps,
        "gradient": (resident("VmRSS") - idle) / steps,
        "gradient at most": (resident("VmHWM") - idle) / steps,
        "seconds of the run": seconds,
        "seconds of both": total,
    }


def main() -> None:
    """Measure, print, and write the results if wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=1, help="the least seconds of so many")
    parser.add_argument("--derivatives", choices=("given", "automatic"))
    arguments = parser.parse_args()
    if arguments.derivatives:
        automatic = arguments.derivatives == "automatic"
        print(json.dumps(measured(arguments.steps, automatic=automatic)))
        return
    rows: list[dict[str, Any]] = []
    for derivatives in ("given", "automatic"):
        options = ["--steps", str(arguments.steps), "--derivatives", derivatives]
        turns = [
            json.loads(
                subprocess.run(
                    [sys.executable, __file__, *options], capture_output=True, check=True, text=True
                ).stdout
            )
            for _ in range(arguments.repeat)
        ]
        rows.append(min(turns, key=lambda turn: turn["seconds of both"]))
    print("  ".join(rows[0]))
    for row in rows:
        told = (f"{v:>{len(k)}.3g}" if isinstance(v, float) else str(v) for k, v in row.items())
        print("  ".join(told))
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
