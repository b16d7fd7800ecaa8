"""Inner problems of bi-level estimation: the package's solver beside quadratic programming solvers.

    python scripts/bench/inner_problems.py [--problems 50]

Random least squares problems with linear constraints: well scaled ones; degenerate ones, with rows
that repeat and rows that hold with a multiplier of zero; and badly scaled ones, whose columns and
rows differ by ten powers of ten and whose columns are nearly dependent.  Other solvers come through
qpsolvers (scripts/bench/requirements.txt); each has columns and rows of length one, and its active
set is solved once more by the same QR.

Failed is a solver that says so, or finds constraints without a solution; wrong is a solution that
violates a row or the conditions of optimality by more than 1e-8, and comes without a word.  Times
are the least of five laps over all problems.  Writes docs/benchmarks/estimation/inner_problems.json
and the table of docs/bilevel.md.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import qpsolvers
import scipy.sparse
from scipy.optimize import nnls

from daeosens.errors import DaeosensError
from daeosens.inverse.bilevel.inner import LinearConstraints, linear_constraints, solve_inner
from daeosens.petsc.vectors import Array
from machine import describe
from tables import markdown, number, put_between, with_sources

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = ROOT / "docs" / "benchmarks" / "estimation" / "inner_problems.json"
PAGE = ROOT / "docs" / "bilevel.md"

TIGHT: dict[str, dict[str, Any]] = {
    "quadprog": {},
    "daqp": {"primal_tol": 1e-12},
    "piqp": {"eps_abs": 1e-13, "eps_rel": 1e-13},
    "clarabel": {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13},
}
"""Tolerances with which each finds most active sets."""

WRONG = 1e-8

Problem = tuple[Array, Array, LinearConstraints]


def problem(seed: int, kind: str) -> Problem:
    """Return matrix, data and constraints of a random problem."""
    rng = np.random.default_rng(seed)
    m, count = int(rng.integers(3, 30)), int(rng.integers(3, 40))
    spread, condition = (5.0, 1e6) if kind == "badly scaled" else (0.0, 10.0)
    columns = 10.0 ** rng.uniform(-spread, spread, m)
    u = np.linalg.qr(rng.standard_normal((60, m)))[0]
    v = np.linalg.qr(rng.standard_normal((m, m)))[0]
    a = (u * np.geomspace(1.0, 1.0 / condition, m)) @ v
    inside = rng.standard_normal(m)  # satisfies all rows, so that there is a solution
    rows = rng.standard_normal((count, m))
    slack = rng.random(count) * np.linalg.norm(rows, axis=1)
    target: Array = a @ (inside + rng.standard_normal(m)) + 0.1 * rng.standard_normal(60)
    if kind == "degenerate":
        # data of which ``inside`` is the solution, with multipliers on a few of the rows that hold
        slack[: count // 2] = 0.0
        rows[1] = rows[0]
        target = a @ inside - np.linalg.pinv(a.T) @ rows[0]
    units = 10.0 ** rng.uniform(-spread, spread, count)
    weights = rows * columns * units[:, None]
    names = [f"p{k}" for k in range(m)]
    entries = [dict(zip(names, row, strict=True)) for row in weights.tolist()]
    values = ((rows @ inside - slack) * units).tolist()
    none = np.full(m, np.inf)
    inequalities = list(zip(entries, values, strict=True))
    return a * columns, target, linear_constraints(names, -none, none, (), inequalities)


def ours(a: Array, b: Array, constraints: LinearConstraints) -> Array:
    """Return the solution of the package."""
    return solve_inner(a, b, constraints).p


def theirs(solver: str) -> Callable[..., Array]:
    """Return a function that finds the active set by a solver."""

    def solution(a: Array, b: Array, constraints: LinearConstraints) -> Array:
        scale = 1.0 / np.linalg.norm(a, axis=0)
        rows = constraints.above * scale
        lengths = np.linalg.norm(rows, axis=1)
        rows, least = rows / lengths[:, None], constraints.least / lengths
        scaled = a * scale
        square, sides = scaled.T @ scaled, -rows
        if solver == "clarabel":
            square, sides = scipy.sparse.csc_array(square), scipy.sparse.csc_array(sides)
        solvers: Any = qpsolvers
        program: Any = solvers.Problem(square, -scaled.T @ b, sides, -least)
        found: Any = solvers.solve_problem(program, solver, **TIGHT[solver])
        if not found.found:
            raise ValueError(f"{solver} found no solution")
        active = np.flatnonzero(found.z > np.maximum(rows @ found.x - least, 0.0))
        held = LinearConstraints(
            constraints.above[active], constraints.least[active], rows[:0], least[:0], ()
        )
        return solve_inner(a, b, held).p

    return solution


def wrong(a: Array, b: Array, constraints: LinearConstraints, p: Array) -> float:
    """Return by how much p violates the rows or the conditions of optimality, relatively."""
    scale = 1.0 / np.linalg.norm(a, axis=0)
    rows = constraints.above * scale
    lengths = np.linalg.norm(rows, axis=1)
    rows, slack = rows / lengths[:, None], (constraints.above @ p - constraints.least) / lengths
    size = 1.0 + float(np.linalg.norm(p / scale))
    gradient = (a * scale).T @ (a @ p - b)
    # the gradient has to be a sum of rows that hold, with weights that are not negative
    near = np.abs(slack) < WRONG * size
    rest = nnls(rows[near].T, gradient)[1] if near.any() else float(np.linalg.norm(gradient))
    return max(-float(slack.min()) / size, float(rest) / float(np.linalg.norm(b)))


def measured(kind: str, problems: list[Problem]) -> list[dict[str, Any]]:
    """Return a row for each solver."""
    solvers: dict[str, Callable[..., Array]] = {"daeosens": ours}
    solvers |= {name: theirs(name) for name in TIGHT if name in qpsolvers.available_solvers}
    errors: dict[str, list[float]] = {name: [] for name in solvers}
    seconds = dict.fromkeys(solvers, np.inf)
    for lap in range(5):
        for name, solve in solvers.items():
            begin = time.perf_counter()
            for one in problems:
                try:
                    p = solve(*one)
                    error = wrong(*one, p) if lap == 0 else 0.0
                except (DaeosensError, ValueError, qpsolvers.exceptions.QPError):
                    error = np.inf
                if lap == 0:
                    errors[name].append(error)
            # the first lap also checks
            seconds[name] = min(seconds[name], time.perf_counter() - begin if lap else np.inf)
    return [
        {
            "kind": kind,
            "solver": name,
            "problems": len(problems),
            "failed": sum(error == np.inf for error in errors[name]),
            "wrong": sum(WRONG < error < np.inf for error in errors[name]),
            "ratio": seconds[name] / seconds["daeosens"],
        }
        for name in solvers
    ]


def main() -> None:
    """Measure all solvers, and write the table."""
    parser = argparse.ArgumentParser(description="Inner problems by several solvers.")
    parser.add_argument("--problems", type=int, default=50)
    count: int = parser.parse_args().problems
    warnings.simplefilter("ignore")
    machine = describe()
    rows: list[dict[str, Any]] = []
    for kind in ("well scaled", "degenerate", "badly scaled"):
        for row in measured(kind, [problem(seed, kind) for seed in range(count)]):
            command = f"python scripts/bench/inner_problems.py --problems {count}"
            machine_of = {key: machine[key] for key in ("date", "processor")}
            rows.append({**row, "command": command, **machine_of})
            print({key: row[key] for key in ("kind", "solver", "failed", "wrong", "ratio")})
    NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
    lines = [
        [
            row["kind"],
            row["solver"],
            f"{row['failed']}/{row['problems']}",
            f"{row['wrong']}/{row['problems']}",
            number(row["ratio"], ".2g"),
        ]
        for row in rows
    ]
    table = markdown(["problems", "solver", "failed", "wrong", "time"], lines)
    put_between(PAGE, "scripts/bench/inner_problems.py", with_sources(table, rows))


if __name__ == "__main__":
    main()
