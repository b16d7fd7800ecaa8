"""Delay equations: work against precision, beside other packages in Python.

    python scripts/bench/delays.py [--peers peers/bin/python] [--repeat 3]

Problems with constant delays of the test sets of Enright and Hayashi (A1, A2; their other groups
have delays that depend on time or state, or are neutral) and of SciML's library, the first example
of dde23, and Kermack and McKendrick's epidemic.  Errors are the largest, relative, of the state at
the end against 30 digits (tests/references/delay_equations.py).  Times are of processor, the least
of some runs, without compilation; gradients are those of the first state at the end in all delays.
The peers are ddeint and JiTCDDE, as their manuals say: the one on points as dense as its linear
interpolation needs, the other compiled and with steps at discontinuities.  What DelayDiffEq.jl's
tests print of its own errors stands beside ours at its default tolerances.  Writes
docs/benchmarks/estimation/delays.json and the table of docs/delays.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import daeosens as ds
from daeosens.petsc.vectors import Array
from delay_problems import PROBLEMS, DelayProblem
from machine import describe
from tables import markdown, number, put_between, with_sources

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = ROOT / "docs" / "benchmarks" / "estimation" / "delays.json"
PAGE = ROOT / "docs" / "delays.md"

SETTINGS = (("rk5ts", 1e-4), ("rk5ts", 1e-7), ("rk8vr", 1e-7), ("rk8vr", 1e-10))
"""Methods and relative tolerances; the absolute ones are a thousandth of them."""

PRINTED = {"one delay": 2.1e-5, "two delays": 1.5e-6}
"""Bounds of absolute errors at the end that DelayDiffEq.jl's test/interface/constrained.jl asserts:
BS3, relative tolerance 1e-3, absolute 1e-6, first step 0.1."""


def least(repeat: int, task: Callable[[], Any]) -> float:
    """Return milliseconds of processor time."""
    times: list[float] = []
    for _ in range(repeat):
        begin = time.process_time()
        task()
        times.append(1e3 * (time.process_time() - begin))
    return min(times)


def error_of(end: Array, problem: DelayProblem) -> float:
    """Return the largest relative error of a state [n] at the end."""
    return float(np.abs(np.asarray(end) / problem.truth - 1.0).max())


def ours(problem: DelayProblem, repeat: int) -> list[dict[str, Any]]:
    """Return a row for each setting, of NumPy and traced right-hand sides."""
    names = [f"tau{k}" for k in range(len(problem.delays))]
    size, past, start = len(problem.start), np.array(problem.history), np.array(problem.start)

    def rhs(_t: float, u: Any, z: Any, _p: Any) -> Any:
        return np.array(problem.rhs(u, z))

    plain = ds.DDE(rhs, size, names, delays=names, history=past)
    traced = ds.trace(rhs, size, names, delays=names, history=past)
    cost = ds.Terminal(lambda _t, u, _p: u[0])
    rows: list[dict[str, Any]] = []
    settings = [(method, rtol, 1e-3 * rtol) for method, rtol in SETTINGS]
    if problem.name in PRINTED:
        settings.append(("rk3bs", 1e-3, 1e-6))
    for method, rtol, atol in settings:
        stepping = ds.Stepping((0.0, problem.end), method, rtol=rtol, atol=atol)
        run = ds.solve(traced, start, problem.delays, stepping)
        ds.adjoint(run, cost)  # compiles
        row = {
            "problem": problem.name,
            "package": "daeosens",
            "setting": f"{method}, {number(rtol)}",
        }
        row |= {"steps": run.n_steps, "error": error_of(run.u[-1], problem)}
        for model, key in ((traced, "ms"), (plain, "numpy_ms")):
            row[key] = least(repeat, lambda: ds.solve(model, start, problem.delays, stepping))  # noqa: B023
        row["gradient_ms"] = least(repeat, lambda: ds.adjoint(run, cost))  # noqa: B023
        if method == "rk3bs":
            row["printed"] = PRINTED[problem.name] / abs(problem.truth[0])  # relative, as ours
        rows.append(row)
    return rows


def main() -> None:
    """Measure all problems, and write the table."""
    parser = argparse.ArgumentParser(description="Delay equations beside other packages.")
    parser.add_argument("--peers", help="an interpreter that has ddeint and jitcdde")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for problem in PROBLEMS:
        measured = ours(problem, arguments.repeat)
        if arguments.peers:
            program = Path(__file__).with_name("delay_peers.py")
            command = [arguments.peers, str(program), problem.name, str(arguments.repeat)]
            # where no pyproject.toml lies that its compilation would read
            with TemporaryDirectory() as folder:
                answer = subprocess.run(command, stdout=PIPE, text=True, check=True, cwd=folder)
            for row in json.loads(answer.stdout.splitlines()[-1]):
                row["error"] = error_of(np.array(row.pop("state")), problem)
                measured.append({"problem": problem.name, **row})
        for row in measured:
            print(row, flush=True)
        rows += measured
    machine = describe()
    peers = " --peers peers/bin/python" if arguments.peers else ""
    command = f"python scripts/bench/delays.py{peers} --repeat {arguments.repeat}"
    sources = {"command": command, "date": machine["date"], "processor": machine["processor"]}
    rows = [{**row, **sources} for row in rows]
    NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
    put_between(PAGE, "scripts/bench/delays.py", with_sources(table(rows), rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = [
        [
            row["problem"],
            row["package"],
            row["setting"],
            number(row.get("steps")),
            number(row["error"], ".1e")
            + (f" (DelayDiffEq.jl: {number(row['printed'], '.1e')})" if "printed" in row else ""),
            number(row["ms"], ".2g"),
            number(row.get("numpy_ms"), ".2g"),
            number(row.get("gradient_ms"), ".2g"),
        ]
        for row in rows
    ]
    headings = [
        "problem",
        "package",
        "method, tolerance",
        "steps",
        "error",
        "ms",
        "NumPy",
        "gradient",
    ]
    return markdown(headings, lines)


if __name__ == "__main__":
    main()
