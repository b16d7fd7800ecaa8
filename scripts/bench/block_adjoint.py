"""Sweeps in blocks against sweeps by steps: one cost and all outputs of Lotka-Volterra.

    python scripts/bench/block_adjoint.py [--output results.json] [--repeat 7]

Generalised: x_i' = x_i (r_i + sum_j A_ij x_j), x_i(0) = 0.1, r_i = 0.1, t in [0, 10], by rk5dp with
tolerances 1e-7; the parameters are r and A.  One cost is the gradient of sum_i x_i(10), all outputs
are the n final states by all n^2 + n parameters.  All sweeps are timed in turn on the same run; the
table has the medians of processor time in milliseconds, and of the ratios of the same turn.
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

from daeosens import ODE, Stepping, Terminal, adjoint, sensitivities, solve
from daeosens.problem import Products
from daeosens.problem.problem import Problem


@dataclass(frozen=True)
class Row:
    """One line of the table; times in milliseconds, ratios of steps to blocks."""

    n: int
    steps_of_the_run: int
    forward: float
    scalar_steps: float
    scalar_block: float
    scalar_ratio: float
    full_steps: float
    full_block: float
    full_ratio: float
    difference: float


def lotka_volterra(n: int) -> Problem:
    """Return n species with the parameters r [n] and A [n, n]; the callbacks take many points."""

    def growth(u: Any, p: Any) -> Any:
        return p[:n] + u @ p[n:].reshape(n, n).T

    def jacobian(_t: Any, u: Any, p: Any) -> Any:
        matrix = u[..., :, None] * p[n:].reshape(n, n)
        matrix[..., range(n), range(n)] += growth(u, p)
        return matrix

    def pull(_t: Any, u: Any, _p: Any, w: Any) -> Any:
        x, wx = np.atleast_2d(u), np.atleast_2d(w * u)
        out = np.empty((*wx.shape[:-2], n + n * n))
        out[..., :n] = wx.sum(-2)
        by_a = out[..., n:].reshape(*wx.shape[:-2], n, n)
        np.matmul(wx.swapaxes(-1, -2), x, out=by_a)
        return out

    by_p = Products(lambda _t, u, _p, v: u * growth(u, v), pull)
    return ODE(
        lambda _t, u, p: u * growth(u, p),
        n,
        n + n * n,
        jacobian=jacobian,
        jacobian_p=by_p,
        batched=True,
    )


def measure(n: int, repeat: int) -> Row:
    """Time one size."""
    a = np.random.default_rng(n).normal(0.0, 0.5 / np.sqrt(n), (n, n))
    np.fill_diagonal(a, -1.0)
    p = np.concatenate([np.full(n, 0.1), a.ravel()])
    problem = lotka_volterra(n)
    stepping = Stepping((0.0, 10.0), "rk5dp", dt=0.1, rtol=1e-7, atol=1e-7)
    run = solve(problem, np.full(n, 0.1), p, stepping)
    cost = Terminal(lambda _t, u, _p: u.sum(), lambda _t, _u, _p: np.ones(n), "independent")
    sweeps: list[Callable[[], Any]] = [
        lambda: solve(problem, np.full(n, 0.1), p, stepping),
        lambda: adjoint(run, cost, "vectors").p,
        lambda: adjoint(run, cost, "arrays").p,
        lambda: sensitivities(run, engine="vectors").p,
        lambda: sensitivities(run, engine="arrays").p,
    ]
    times = np.empty((repeat + 1, len(sweeps)))
    results: list[Any] = []
    for turn in times:
        results = []
        for k, sweep in enumerate(sweeps):
            begin = time.process_time()
            results.append(sweep())
            turn[k] = 1e3 * (time.process_time() - begin)
    forward, *medians = np.median(times[1:], axis=0).tolist()
    ratios = np.median(times[1:, 1::2] / times[1:, 2::2], axis=0).tolist()
    _, *pairs = results
    worst = max(
        abs(ours - theirs).max() / abs(theirs).max() for theirs, ours in (pairs[:2], pairs[2:])
    )
    return Row(
        n, run.n_steps, forward, *medians[:2], ratios[0], *medians[2:], ratios[1], float(worst)
    )


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="Adjoint sweeps in blocks and by steps.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 55, 100, 200])
    arguments = parser.parse_args()
    head = ("vectors", "arrays", "ratio")
    print(f"{'':>27}{'one cost':>27}{'all outputs':>27}")
    print(
        f"{'n':>5}{'taken':>8}{'forward':>14}" + "".join(f"{title:>9}" for title in (*head, *head))
    )
    rows: list[Row] = []
    for n in arguments.sizes:
        row = measure(n, arguments.repeat)
        rows.append(row)
        print(
            f"{row.n:>5}{row.steps_of_the_run:>8}{row.forward:>14.2f}"
            f"{row.scalar_steps:>9.2f}{row.scalar_block:>9.2f}{row.scalar_ratio:>9.1f}"
            f"{row.full_steps:>9.1f}{row.full_block:>9.2f}{row.full_ratio:>9.1f}",
            flush=True,
        )
    print(f"largest relative difference: {max(row.difference for row in rows):.1e}")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
