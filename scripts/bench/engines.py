"""Whether engine="auto" takes the quickest engine: 100 seeded random settings, every engine each.

    python scripts/bench/engines.py [--output results.json] [--repeat 3] [--settings 100]

A setting is a model (dense, a network, sparse, a chain, all-to-all oscillators), how it is
written (traced, NumPy with Jacobians, NumPy for many points), its size, the method, the number of
steps, and what is asked for.  Engines are timed in turn, in processor time; minima are compared.
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
from scipy import sparse

from daeosens import (
    ODE,
    Stepping,
    Terminal,
    UnsupportedError,
    adjoint,
    hessian_product,
    sensitivities,
    solve,
    tangent,
    trace,
)
from daeosens.timestepping.trajectory.trajectory import Trajectory

ENGINES = ("compiled", "arrays", "vectors")
METHODS = ("rk4", "rk5dp", "cn", "beuler", "esdirk4")
TASKS = ("gradient", "gradients", "sensitivities", "tangent", "hessian")
LONG = 1.0
"""Seconds that are not measured again."""


@dataclass(frozen=True)
class Row:
    """One line of the table: milliseconds by engine, and those of the choice over the least."""

    setting: str
    task: str
    compiled: float | None
    arrays: float | None
    vectors: float | None
    auto: float
    chosen: str
    ratio: float


@dataclass(frozen=True, eq=False)
class Model:
    """A right-hand side with its start, parameters, and the costs that may be asked for."""

    name: str
    problem: Any
    u0: Any
    p: Any
    cost: Callable[[int], Any]


def drawn(rng: np.random.Generator) -> Model:
    """Return a random model."""
    style = str(rng.choice(["trace", "trace", "trace", "NumPy", "batched"]))
    kinds = (
        ["dense", "network", "sparse", "chain", "oscillators"] if style == "trace" else ["dense"]
    )
    kind = str(rng.choice(kinds))
    most = {"dense": 150, "network": 100, "sparse": 1000, "chain": 1000, "oscillators": 60}[kind]
    n = int(np.exp(rng.uniform(np.log(2), np.log(most))))
    u0 = rng.uniform(0.1, 0.5, n)
    name = f"{kind}, n = {n}, {style}"
    if kind == "dense":
        matrix = rng.normal(size=(n, n)) * 0.5 / np.sqrt(n) - np.eye(n)
        p = np.concatenate([np.full(n, 0.1), matrix.ravel()])
        if style == "trace":
            shapes: Any = {"r": (n,), "A": (n, n)}
            model = trace(lambda _t, u, p: u * (p.r + p.A @ u), n, shapes)
        else:
            model = competition(n, batched=style == "batched")
            return Model(name, model, u0, p, lambda k: component(k, n, p.size))
    elif kind == "network":
        p = rng.normal(size=n * n + n) * 0.5 / np.sqrt(n)
        model = trace(lambda _t, u, p: np.tanh(p.W @ u + p.b) - u, n, {"W": (n, n), "b": (n,)})
    elif kind == "sparse":
        entries = sparse.random_array((n, n), density=min(1.0, 5.0 / n), rng=rng, format="csr")
        model = trace(lambda _t, u, p: entries @ u - p.k * u**3, n, {"k": ()})
        p = np.array([0.7])
    elif kind == "chain":
        p = np.array([0.5, 1.0])

        def chain(_t: Any, u: Any, p: Any) -> Any:
            return p.d * (np.roll(u, 1) - 2.0 * u + np.roll(u, -1)) + p.k * u * (1.0 - u)

        model = trace(chain, n, {"d": (), "k": ()})
    else:
        p = np.append(rng.normal(size=n), 1.5)

        def oscillators(_t: Any, u: Any, p: Any) -> Any:
            return p.w + p.k / n * np.sin(u[None, :] - u[:, None]).sum(axis=1)

        model = trace(oscillators, n, {"w": (n,), "k": ()})
    return Model(name, model, u0, p, lambda k: model.terminal(lambda _t, u, _p: u[k % n] ** 2))


def competition(n: int, *, batched: bool) -> Any:
    """Return u_i (r_i + sum_j A_ij u_j) in NumPy, with its Jacobians."""
    eye = np.eye(n)

    def rhs(_t: Any, u: Any, p: Any) -> Any:
        return u * (p[:n] + u @ p[n:].reshape(n, n).T)

    def by_u(_t: Any, u: Any, p: Any) -> Any:
        matrix = p[n:].reshape(n, n)
        growth = p[:n] + u @ matrix.T
        return u[..., None] * matrix + growth[..., None] * eye

    def by_p(_t: Any, u: Any, _p: Any) -> Any:
        scaled = u[..., None] * eye
        products = scaled[..., None] * u[..., None, None, :]
        return np.concatenate([scaled, products.reshape(*u.shape, n * n)], axis=-1)

    return ODE(rhs, n, n + n * n, jacobian=by_u, jacobian_p=by_p, batched=batched)


def component(k: int, n: int, m: int) -> Terminal:
    """Return u_k^2 in NumPy, with its derivatives."""
    unit, nothing = np.eye(n)[k % n], np.zeros(m)
    return Terminal(
        lambda _t, u, _p: u[k % n] ** 2,
        lambda _t, u, _p: 2.0 * u[k % n] * unit,
        "independent",
        hessian_product=lambda _t, _u, _p, du, _dp: (2.0 * du[k % n] * unit, nothing),
    )


def asked(
    task: str, run: Trajectory, model: Model, rng: np.random.Generator
) -> Callable[[Any], Any]:
    """Return what computes the task with an engine."""
    n = len(model.u0)
    costs = [model.cost(k) for k in range(int(rng.integers(2, 9)) if task == "gradients" else 1)]
    du, dp = rng.normal(size=n), rng.normal(size=len(model.p))
    tasks: dict[str, Callable[[Any], Any]] = {
        "gradient": lambda engine: adjoint(run, costs[0], engine),
        "gradients": lambda engine: adjoint(run, costs, engine),
        "sensitivities": lambda engine: sensitivities(run, engine=engine),
        "tangent": lambda engine: tangent(run, du, dp, engine),
        "hessian": lambda engine: hessian_product(run, costs[0], du, dp, engine),
    }
    return tasks[task]


def measure(seed: int, repeat: int) -> Row:
    """Time all engines in one setting, in turn."""
    rng = np.random.default_rng(seed)
    model = drawn(rng)
    method, task = str(rng.choice(METHODS)), str(rng.choice(TASKS))
    if task == "sensitivities" and len(model.u0) > 60:
        task = "gradient"
    steps = int(np.exp(rng.uniform(np.log(5), np.log(60))))
    run = solve(model.problem, model.u0, model.p, Stepping((0.0, 1.0), method, dt=1.0 / steps))
    compute = asked(task, run, model, rng)
    chosen = ""
    first: dict[str, float] = {}
    for engine in (*ENGINES, "auto"):
        try:
            first[engine], outcome = timed(compute, engine, 1)
        except UnsupportedError:
            continue
        chosen = (outcome[0] if isinstance(outcome, list) else outcome).engine
    took = {engine: seconds for engine, seconds in first.items() if seconds > LONG}
    short = {engine: seconds for engine, seconds in first.items() if seconds <= LONG}
    for _ in range(repeat):
        for engine, seconds in short.items():
            calls = max(1, min(20, int(0.01 / max(seconds, 1e-5))))
            took[engine] = min(timed(compute, engine, calls)[0], took.get(engine, np.inf))
    # what was chosen is measured twice: by its name, and by the choice
    auto = min(took["auto"], took[chosen])
    milliseconds = {engine: 1e3 * took[engine] if engine in took else None for engine in ENGINES}
    return Row(
        f"{model.name}, {steps} steps of {method}",
        task,
        **milliseconds,
        auto=1e3 * auto,
        chosen=chosen,
        ratio=auto / min(took.values()),
    )


def timed(compute: Callable[[Any], Any], engine: str, calls: int) -> tuple[float, Any]:
    """Return the processor time of a call [s], and its result."""
    begin, outcome = time.process_time(), None
    for _ in range(calls):
        outcome = compute(engine)
    return (time.process_time() - begin) / calls, outcome


def main() -> None:
    """Print one line a setting as it is measured; write them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--settings", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    rows: list[Row] = []
    print("| setting | task | compiled | arrays | vectors | chosen | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for seed in range(arguments.first, arguments.first + arguments.settings):
        row = measure(seed, arguments.repeat)
        rows.append(row)
        cells = [row.setting, row.task]
        cells += ["" if x is None else f"{x:.3g}" for x in (row.compiled, row.arrays, row.vectors)]
        print(f"| {' | '.join([*cells, row.chosen, f'{row.ratio:.2f}'])} |", flush=True)
    ratios = sorted(row.ratio for row in rows)
    print(f"\nlargest ratio {ratios[-1]:.2f}, median {ratios[len(ratios) // 2]:.2f}")
    if arguments.output:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
