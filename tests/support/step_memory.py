"""A program for test_memory.py and ``scripts/bench/run.py``: memory and time of a long run in NumPy.

``python step_memory.py STEPS [automatic]`` prints, as JSON, the resident bytes a step that a run of ten
unknowns and its gradient take besides those of a short run and its gradient before, at their ends and at
their most, and processor seconds.  Derivatives are given, or automatic.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path

import numpy as np

import daeosens as ds

N = 10
SHORT = 2000
"""Steps of a run before, whose sweep has had a block of full size."""


def rhs(_t, u, p):
    """Advect on a ring, and decay by collisions."""
    out = np.empty(N)
    out[0] = p[0] * (u[-1] - u[0])
    out[1:] = p[0] * (u[:-1] - u[1:])
    return out - p[1] * u * u


def jacobian(_t, u, p):
    matrix = np.zeros((N, N))
    rows = np.arange(N)
    matrix[rows, rows] = -p[0] - 2.0 * p[1] * u
    matrix[rows, rows - 1] = p[0]
    return matrix


def jacobian_p(_t, u, _p):
    columns = np.empty((N, 2))
    columns[0, 0] = u[-1] - u[0]
    columns[1:, 0] = u[:-1] - u[1:]
    columns[:, 1] = -u * u
    return columns


def resident(line: str) -> int:
    """Return VmRSS (now) or VmHWM (at most) in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{line}:")[2].split()[0])


def measured(steps: int, *, automatic: bool) -> dict[str, float]:
    """Return bytes a step and seconds."""
    given = {} if automatic else {"jacobian": jacobian, "jacobian_p": jacobian_p}
    problem = ds.ODE(rhs, size=N, parameters=["speed", "rate"], **given)
    start, p = 1.0 + np.arange(N) / N, [1.0, 0.1]
    cost = ds.Terminal(lambda t, u, p: u @ u, lambda t, u, p: 2.0 * u)

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
        "steps": run.n_steps,
        "run": (after - idle) / steps,
        "run at most": (most - idle) / steps,
        "adjoint": (resident("VmRSS") - idle) / steps,
        "adjoint at most": (resident("VmHWM") - idle) / steps,
        "seconds of the run": seconds,
        "seconds": total,
    }


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]), automatic="automatic" in sys.argv)))
