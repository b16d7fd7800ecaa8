"""Milliseconds of a run and its derivatives, for the ways to write a right-hand side.

    python scripts/bench/styles.py [--output results.json] [--repeat 20]

Generalised Lotka-Volterra with 10 species and 110 parameters, rk6vr with rtol = 1e-6; medians of
processor time.  The table is in docs/speed.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import daeosens as ds

N = 10
STEPPING = ds.Stepping((0.0, 10.0), "rk6vr", rtol=1e-6)


def rhs(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of competing species; u may have a row for each of many points."""
    return u * (p[:N] + u @ p[N:].reshape(N, N).T)


def rhs_u(_t: float, u: Any, p: Any) -> Any:
    """Return their derivatives [n, n] in the species."""
    matrix = p[N:].reshape(N, N)
    return np.diag(p[:N] + matrix @ u) + u[:, None] * matrix


def rhs_p(_t: float, u: Any, _p: Any) -> Any:
    """Return their derivatives [n, m] in the parameters."""
    return np.hstack([np.diag(u), np.kron(np.diag(u), u)])


def traced(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of competing species."""
    return u * (p.rate + p.A @ u)


def milliseconds(function: Callable[[], object], repeat: int) -> float:
    """Return the median of some calls after a first one."""
    function()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return 1e3 * median(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Ways to write a right-hand side.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    repeat = max(20, arguments.repeat)
    rng = np.random.default_rng(N)
    matrix = rng.normal(scale=0.5 / np.sqrt(N), size=(N, N))
    np.fill_diagonal(matrix, -1.0)
    start, p = np.full(N, 0.1), np.concatenate([np.full(N, 0.1), matrix.ravel()])
    compiled = ds.trace(traced, N, {"rate": (N,), "A": (N, N)})
    total = ds.Terminal(lambda _t, u, _p: u.sum(), lambda _t, u, _p: np.ones_like(u), "independent")
    styles = {
        "NumPy, automatic derivatives": ds.ODE(rhs, N, len(p)),
        "NumPy, with `jacobian` and `jacobian_p`": ds.ODE(
            rhs, N, len(p), jacobian=rhs_u, jacobian_p=rhs_p
        ),
        "NumPy, `batched=True`": ds.ODE(rhs, N, len(p), batched=True),
        "`trace`": compiled,
    }
    rows: list[dict[str, Any]] = []
    print(f"{'':<40}{'run':>8}{'gradient':>10}{'all':>8}")
    for name, problem in styles.items():
        run = ds.solve(problem, start, p, STEPPING)
        cost = compiled.terminal(lambda _t, u, _p: u.sum()) if problem is compiled else total
        times = (
            milliseconds(lambda problem=problem: ds.solve(problem, start, p, STEPPING), repeat),
            milliseconds(lambda run=run, cost=cost: ds.adjoint(run, cost), repeat),
            milliseconds(lambda run=run: ds.sensitivities(run), repeat),
        )
        rows.append(
            {"style": name, **dict(zip(("run", "gradient", "sensitivities"), times, strict=True))}
        )
        print(f"{name:<40}" + "".join(f"{taken:>9.3g}" for taken in times))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
