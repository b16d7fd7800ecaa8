"""What own code for speed gains: the same calls with it and without it.

    python scripts/bench/own_paths.py [--output results.json] [--repeat 15] [--only WORD]

With and without are timed in turn in one process; the table has the least milliseconds of processor
time, for threads those of the clock, and their ratio.  Compilation is timed without a cache.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from petsc4py import PETSc
from threadpoolctl import threadpool_limits

import daeosens as ds
from daeosens.problem.grids import Grid

Calls = dict[str, Callable[..., Any]]


@dataclass(frozen=True)
class Row:
    """One line of the table; times in milliseconds."""

    what: str
    case: str
    call: str
    own: float
    without: float
    ratio: float


@dataclass(frozen=True)
class Switch:
    """What is replaced to do without own code, by what, and the calls that use it.

    ``prepare`` returns calls; it is done once with and once without the replacements, as are the
    calls.
    """

    what: str
    case: str
    prepare: Callable[[], Calls]
    replaced: Sequence[tuple[str, Any]]
    clock: Callable[[], float] = time.process_time
    threads: int = 1


def unchanged(code: str, *_: Any) -> str:
    """Return generated C as it is."""
    return code


def lotka_volterra(n: int) -> Calls:
    """Return a model's tasks of the case of that name."""
    a = np.random.default_rng(n).normal(0.0, 0.5 / np.sqrt(n), (n, n))
    np.fill_diagonal(a, -1.0)
    model = ds.trace(lambda _t, x, p: x * (p.r + p.A @ x), n, {"r": (n,), "A": (n, n)})
    p, start = model.pack(r=np.full(n, 0.1), A=a), np.full(n, 0.1)
    stepping = ds.Stepping((0.0, 10.0), "rk5bs", rtol=1e-7, atol=1e-7)
    total = model.terminal(lambda _t, x, _p: x.sum())

    def run() -> Any:
        return ds.solve(model, start, p, stepping, checkpoint="stages" if n > 12 else "states")

    return {
        "full": lambda: ds.sensitivities(run(), with_respect_to=("p",)).p,
        "scalar": lambda: ds.adjoint(run(), total).p,
    }


def gray_scott(points: int, method: str) -> Calls:
    """Return the tasks of the case of that name."""
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (points, points), dof=2, comm=PETSc.COMM_SELF)

    def reaction(_t: Any, u: Any, _p: Any) -> Any:
        a, b = u.center
        of_a, of_b = u.laplacian()
        growth = a * b * b
        return [8e-5 * of_a - growth + 0.024 * (1.0 - a), 4e-5 * of_b + growth - 0.084 * b]

    problem = ds.trace_stencil(reaction, grid, jacobian="products")
    x, y = np.meshgrid(*2 * [np.linspace(0.0, 2.5, points, endpoint=False)])
    inside = (abs(x - 1.25) <= 0.25) & (abs(y - 1.25) <= 0.25)
    b = np.where(inside, np.sin(4 * np.pi * x) ** 2 * np.sin(4 * np.pi * y) ** 2 / 4, 0.0)
    start = grid.create_vec()
    start.getArray()[...] = np.stack([1.0 - 2.0 * b, b], axis=-1).ravel()
    krylov = {"ksp_type": "bcgs", "pc_type": "none", "ksp_rtol": 1e-10, "snes_rtol": 1e-10}
    explicit = method.startswith("rk")
    dt = 0.25 if explicit else 0.5
    options = {} if explicit else krylov
    stepping = ds.Stepping((0.0, 10 * dt), method, dt=dt, options=options)
    cost = ds.Terminal(
        lambda _t, u, _p: 0.5 * u.dot(u), lambda _t, u, _p, out: u.copy(out), "independent"
    )

    def run(kept: Any = "states") -> Any:
        return ds.solve(problem, start, None, stepping, checkpoint=kept)

    return {
        "forward": run,
        "gradient": lambda: ds.adjoint(run("stages"), cost).u0_vec,
        "kept": lambda: run("stages"),
        "adjoint of": lambda trajectory: ds.adjoint(trajectory, cost).u0_vec,
    }


def whole(points: int, method: str) -> Calls:
    """Return the run of that case, and the run with the gradient."""
    calls = gray_scott(points, method)
    return {"forward": calls["forward"], "gradient": calls["gradient"]}


def sweeps(points: int, method: str) -> Calls:
    """Return a run of that case and, apart from it, its adjoint."""
    calls = gray_scott(points, method)
    kept = calls["kept"]()
    return {"run": calls["kept"], "adjoint": lambda: calls["adjoint of"](kept)}


def oscillator(method: str) -> Calls:
    """Return a run of van der Pol's oscillator, and its gradient."""
    model = ds.trace(lambda _t, u, p: np.array([u[1], p[0] * (1 - u[0] ** 2) * u[1] - u[0]]), 2, 1)
    total = model.terminal(lambda _t, u, _p: u @ u)
    stepping = ds.Stepping((0.0, 10.0), method, rtol=1e-6, atol=1e-6)

    def run() -> Any:
        return ds.solve(model, [2.0, 0.0], [1.0], stepping)

    return {"forward": run, "gradient": lambda: ds.adjoint(run(), total).p}


def glycolysis(method: str) -> Calls:
    """Return the tasks of glycolysis in yeast (Ruoff et al. 2003), entry by entry in NumPy."""
    p = [2.5, 100.0, 6.0, 16.0, 100.0, 1.28, 12.0, 1.8, 13.0, 4.0, 0.52, 0.1, 1.0, 4.0]
    start = [1.6, 1.5, 0.2, 0.35, 0.3, 2.67, 0.1]

    def rhs(_t: float, s: Any, p: Any) -> Any:
        v1 = p[1] * s[0] * s[5] / (1.0 + (s[5] / p[10]) ** p[9])
        v2, v3 = p[2] * s[1] * (p[12] - s[4]), p[3] * s[2] * (p[13] - s[5])
        v4, v5, v6 = p[4] * s[3] * s[4], p[5] * s[5], p[6] * s[1] * s[4]
        v7, v8 = p[7] * s[6], p[8] * (s[3] - s[6])
        first = [p[0] - v1, 2.0 * v1 - v2 - v6, v2 - v3, v3 - v4 - v8]
        return np.array([*first, v2 - v4 - v6, 2.0 * (v3 - v1) - v5, p[11] * v8 - v7])

    problem = ds.ODE(rhs, size=7, parameters=14)
    stepping = ds.Stepping((0.0, 2.0), method, rtol=1e-6, atol=1e-6)
    total = ds.Terminal(lambda _t, s, _p: s[0])

    def run() -> Any:
        return ds.solve(problem, start, p, stepping)

    return {"forward": run, "gradient": lambda: ds.adjoint(run(), total).p}


def compiled(make: Callable[[], Any]) -> Callable[[], None]:
    """Return a call that traces a model and compiles it, as no cache has it."""

    def call() -> None:
        with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, XDG_CACHE_HOME=folder):
            make()

    return call


def first_gradient(n: int) -> Calls:
    """Return what makes a model of that case, with a gradient."""

    def make() -> None:
        lotka_volterra(n)["scalar"]()

    return {"compile": compiled(make)}


def neural(width: int) -> Calls:
    """Return what makes a neural ODE of four unknowns and one hidden layer, with a gradient."""

    def make() -> None:
        shapes = {"W": (width, 4), "b": (width,), "V": (4, width)}
        model = ds.trace(lambda _t, u, p: p.V @ np.tanh(p.W @ u + p.b), 4, shapes)
        total = model.terminal(lambda _t, u, _p: u @ u)
        p = np.cos(np.arange(model.n_parameters)) / width
        run = ds.solve(model, np.ones(4), p, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
        ds.hessian_product(run, total, dp=p)

    return {"compile": compiled(make)}


POOL = "daeosens.tracing.stencil.problem.pool_memory"
PASSES: list[tuple[str, Any]] = [
    (f"daeosens.{module}.take_passes", lambda *_: None)
    for module in ("methods.linear_solver", "timestepping.ts_defaults")
]
LOOPS = "daeosens.tracing.c_source.rolled"
PRODUCTS = "daeosens.tracing.c_source.with_fast_products"
THREADS = "daeosens.derivatives.engines.arrays.adjoint.thread_count"

SWITCHES = [
    Switch(
        "explicit steps without TSRK",
        "van der Pol, rk5dp",
        lambda: oscillator("rk5dp"),
        [("daeosens.timestepping.ts.FEW", 0)],
    ),
    Switch(
        "ESDIRK steps without SNES",
        "van der Pol, esdirk4",
        lambda: oscillator("esdirk4"),
        [("daeosens.timestepping.ts.dense_steps", lambda *_: None)],
    ),
    Switch(
        "callbacks in steps in C",
        "glycolysis, esdirk4",
        lambda: glycolysis("esdirk4"),
        [
            (f"daeosens.{module}", lambda *_, **__: None)
            for module in (
                "timestepping.ts.python_functions",
                "timestepping.dense_ts.callback_steps",
                "methods.esdirk.stages.callback_steps",
            )
        ],
    ),
    Switch(
        "numbers with derivatives",
        "glycolysis, esdirk4",
        lambda: glycolysis("esdirk4"),
        [("daeosens.problem.derivative_arrays.arrays.entry", lambda *_: None)],
    ),
    *(
        Switch(
            "stages of grids in one pass",
            f"Gray-Scott, {points} x {points}, rk4",
            lambda points=points: sweeps(points, "rk4"),
            [("daeosens.methods.rk.tableau.Tableau.chained", property(lambda _: False))],
        )
        for points in (64, 256)
    ),
    *(
        Switch(
            "theta steps of grids in C",
            f"Gray-Scott, {points} x {points}, cn",
            lambda points=points: sweeps(points, "cn"),
            [("daeosens.derivatives.engines.compiled.adjoint._of_ends", lambda *_: None)],
        )
        for points in (64, 256)
    ),
    *(
        Switch(
            "thread pool",
            f"Lotka-Volterra, N = {n}, 2 cores",
            lambda n=n: {"full": lotka_volterra(n)["full"]},
            [(THREADS, lambda: 1)],
            time.perf_counter,
            2,
        )
        for n in (10, 55, 100, 200)
    ),
    *(
        Switch(
            "vector pool",
            f"Gray-Scott, {points} x {points}, {method}",
            lambda points=points, method=method: whole(points, method),
            [(POOL, lambda *_: None)],
        )
        for points in (64, 256)
        for method in ("rk4", "cn")
    ),
    *(
        Switch(
            "Krylov method",
            f"Gray-Scott, {points} x {points}, {method}",
            lambda points=points, method=method: whole(points, method),
            PASSES,
        )
        for points in (64, 256)
        for method in ("cn", "beuler")
    ),
    *(
        Switch("loops in generated C", case, prepare, [(LOOPS, unchanged)])
        for case, prepare in (
            (
                "Lotka-Volterra, N = 100",
                lambda: first_gradient(100),
            ),
            ("neural ODE, 64 neurons", lambda: neural(64)),
            ("neural ODE, 256 neurons", lambda: neural(256)),
        )
    ),
    *(
        Switch(
            "products in generated C",
            f"Lotka-Volterra, N = {n}",
            lambda n=n: {"scalar": lotka_volterra(n)["scalar"]},
            [(PRODUCTS, unchanged)],
        )
        for n in (55, 100, 200)
    ),
]


@contextmanager
def doing_without(switch: Switch) -> Generator[None]:
    """Replace the own code."""
    patches = [patch(name, value) for name, value in switch.replaced]
    for replacement in patches:
        replacement.start()
    try:
        yield
    finally:
        for replacement in patches:
            replacement.stop()


def measure(switch: Switch, repeat: int) -> list[Row]:
    """Time the calls in turn."""
    own = switch.prepare()
    with doing_without(switch):
        without = switch.prepare()
    rows: list[Row] = []
    for call in own:
        times: tuple[list[float], list[float]] = ([], [])
        turns = min(repeat, 3) if call == "compile" else repeat
        for _ in range(turns + 1):
            times[0].append(timed(own[call], switch.clock))
            with doing_without(switch):
                times[1].append(timed(without[call], switch.clock))
        first, second = (min(log[1:]) for log in times)
        rows.append(Row(switch.what, switch.case, call, first, second, second / first))
    return rows


def timed(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Return the milliseconds of a call."""

    def now() -> float:
        if clock is time.process_time:  # compilers are other processes
            spent = os.times()
            return clock() + spent.children_user + spent.children_system
        return clock()

    begin = now()
    call()
    return 1e3 * (now() - begin)


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="What own code for speed gains.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--only", default="", help="part of the name of what is measured")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for switch in SWITCHES:
        if arguments.only not in switch.what:
            continue
        with threadpool_limits(switch.threads):
            for row in measure(switch, arguments.repeat):
                rows.append(row)
                print(
                    f"{row.what:<29}{row.case:<34}{row.call:<10}{row.own:>10.3f}"
                    f"{row.without:>10.3f}{row.ratio:>8.2f}",
                    flush=True,
                )
    if arguments.output is not None:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
