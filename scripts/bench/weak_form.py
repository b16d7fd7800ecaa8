"""Bi-level estimates by integrals and by the weak form, of noisy measurements.

    python scripts/bench/weak_form.py [--seeds 20] [--noise 0.05]

Errors are |p - truth| / |truth| of all parameters, in the median and in the worst of the seeds.
Noise is normal, its standard deviation the level times that of each unknown.  Writes
docs/benchmarks/estimation/weak_form.json and the table of docs/bilevel.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import daeosens as ds
from daeosens import Parameter
from daeosens.inverse import bilevel
from daeosens.petsc.vectors import Array
from machine import describe
from tables import markdown, number, put_between, with_sources

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = ROOT / "docs" / "benchmarks" / "estimation" / "weak_form.json"
PAGE = ROOT / "docs" / "bilevel.md"

WAYS: dict[str, dict[str, Any]] = {
    "integral": {},
    "integral, smooth": {"interpolant": "smooth"},
    "blocks of 10": {"block": 10},
    "weak": {"form": "weak"},
    "weak, smooth": {"form": "weak", "interpolant": "smooth"},
}


@dataclass(frozen=True)
class Case:
    """A model that is measured."""

    rhs: Callable[..., Any]
    states: list[str]
    truth: dict[str, float]
    start: list[float]
    times: Array
    nonlinear: tuple[str, ...] = ()


def logistic(_t: Any, u: Any, p: Any) -> Any:
    """Return the rates of a population that limits itself."""
    return np.array([p.r * u[0] - p.k * u[0] ** 2])


def predators(_t: Any, u: Any, p: Any) -> Any:
    """Return the rates of prey and predators."""
    return np.array([p.a * u[0] - p.b * u[0] * u[1], p.d * u[0] * u[1] - p.c * u[1]])


def spikes(_t: Any, u: Any, p: Any) -> Any:
    """Return the rates of a membrane that spikes."""
    return np.array([p.c * (u[0] - u[0] ** 3 / 3.0 + u[1]), -(p.d * u[0] - p.a + p.b * u[1])])


def saturated(_t: Any, u: Any, p: Any) -> Any:
    """Return the rates of predators that eat no more than they can."""
    eaten = p.eat * u[0] * u[1] / (p.half + u[0])
    return np.array([p.grow * u[0] * (1.0 - 0.3 * u[0]) - eaten, 0.8 * eaten - p.die * u[1]])


CASES = {
    "Logistic growth": Case(
        logistic, ["u"], {"r": 1.0, "k": 1.0}, [0.01], np.linspace(0.0, 10.0, 101)
    ),
    "Lotka and Volterra": Case(
        predators,
        ["x", "y"],
        {"a": 3.0, "b": 1.0, "c": 6.0, "d": 1.0},
        [1.0, 1.0],
        np.linspace(0.0, 5.0, 101),
    ),
    "FitzHugh and Nagumo": Case(
        spikes,
        ["V", "R"],
        {"c": 3.0, "d": 1.0 / 3.0, "a": 0.2 / 3.0, "b": 0.2 / 3.0},
        [0.0, 0.1],
        np.linspace(0.0, 25.0, 251),
    ),
    "Rosenzweig and MacArthur": Case(
        saturated,
        ["x", "y"],
        {"grow": 1.1, "eat": 1.6, "half": 0.6, "die": 0.7},
        [1.0, 0.5],
        np.linspace(0.0, 15.0, 151),
        ("half",),
    ),
}


def errors(case: Case, noise: float, seeds: int) -> dict[str, list[float]]:
    """Return the errors of each way, by seed."""
    model = ds.trace(case.rhs, case.states, list(case.truth))
    span = float(case.times[0]), float(case.times[-1])
    stepping = ds.Stepping(span, "rk6vr", rtol=1e-10)
    exact = ds.solve(model, case.start, case.truth, stepping, case.times).at(case.times)
    truth = np.array(list(case.truth.values()))
    start = {
        name: Parameter(1.0, scale="log" if name in case.nonlinear else "linear")
        for name in case.truth
    }
    results: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(seeds):
        normal = np.random.default_rng(seed).standard_normal(exact.shape)
        seen = exact + noise * exact.std(axis=0) * normal
        data = {"t": case.times, **dict(zip(case.states, seen.T, strict=True))}
        for way, arguments in WAYS.items():
            result = bilevel(model, data, start, **arguments)
            p = np.array([result.estimate[name] for name in case.truth])
            results[way].append(float(np.linalg.norm(p - truth) / np.linalg.norm(truth)))
    return results


def main() -> None:
    """Measure all cases, and write the table."""
    parser = argparse.ArgumentParser(description="Integrals or the weak form.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.05)
    arguments = parser.parse_args()
    seeds, noise = int(arguments.seeds), float(arguments.noise)
    machine = describe()
    rows: list[dict[str, Any]] = []
    for name, case in CASES.items():
        for way, values in errors(case, noise, seeds).items():
            rows.append(
                {
                    "case": name,
                    "way": way,
                    "median": median(values),
                    "worst": max(values),
                    "command": f"python scripts/bench/weak_form.py --seeds {seeds} --noise {noise}",
                    "date": machine["date"],
                    "processor": machine["processor"],
                }
            )
            print(name, way, rows[-1]["median"], rows[-1]["worst"], flush=True)
    NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
    cells = {(row["case"], row["way"]): (row["median"], row["worst"]) for row in rows}
    lines = [
        [name, *(" / ".join(number(e, ".2g") for e in cells[name, way]) for way in WAYS)]
        for name in CASES
    ]
    table = markdown(["problem", *WAYS], lines)
    put_between(PAGE, "scripts/bench/weak_form.py", with_sources(table, rows))


if __name__ == "__main__":
    main()
