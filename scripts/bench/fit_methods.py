"""Runs and sweeps that fits of the zoo take by different methods; counts, no times.

python scripts/bench/fit_methods.py [--output results.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from zoo import FITS
from zoo.fits import FitCase

import daeosens as ds

METHODS: dict[str, dict[str, Any]] = {
    "L-BFGS": {"method": "lmvm"},
    "Newton": {"method": "bntr", "hessian": "exact"},
    "Gauss-Newton": {},
}


def fit(case: FitCase, **method: Any) -> ds.optimize.Result:
    """Return how a fit of a traced model went."""
    problem = ds.trace(case.rhs, size=len(case.u0), parameters=list(case.guess))
    guess = {name: ds.Parameter(value, scale=case.scale) for name, value in case.guess.items()}
    parameters = ds.Parameters(guess, initial_state=case.u0)
    stepping = ds.Stepping(case.span, case.method, rtol=case.rtol)
    return ds.fit(
        problem, case.data, parameters, stepping, observe=list(case.observe), **method
    ).result


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description="Runs and sweeps of fits by different methods.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=1, help="of no effect: nothing is timed")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for case in FITS:
        results = {name: fit(case, **method) for name, method in METHODS.items()}
        values = [result.value for result in results.values()]
        assert max(values) - min(values) < 1e-6 * (1.0 + abs(min(values))), "another minimum"
        counts: dict[str, Any] = {
            "data": case.name.partition(",")[0],
            "parameters": len(case.guess),
            "L-BFGS, runs": results["L-BFGS"].evaluations,
        }
        for name, product in (("Newton", "products"), ("Gauss-Newton", "tangents")):
            counts[f"{name}, runs"] = results[name].evaluations
            counts[f"{name}, {product}"] = results[name].hessian_products
        rows.append(counts)
        print(*counts.values(), sep="  ", flush=True)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
