"""Whether noisy data tell the true terms of a model at all, by maximum likelihood.

    python scripts/bench/discovery_truth.py [--case esters] [--noise 0.01] [--count 5] [--page]

The equations are fitted with the true terms and unknown initial states.  Score tests then say by
how much chi-square would fall with each other candidate; one pays if that is more than Schwarz's
criterion asks for its two parameters.  Where none pays, and each true term is many standard errors
from zero, data determine the terms among all sets that differ by one.

Writes docs/benchmarks/estimation/discovery_truth.json and the table of docs/bilevel.md; --page
writes the table alone.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from daeosens.inverse import Normal
from daeosens.inverse.term_selection import TermSelection, with_steppings
from daeosens.petsc.vectors import Array
from discovery import steps_of
from discovery_problems import CASES
from machine import describe
from tables import markdown, number, put_between, with_sources

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = ROOT / "docs" / "benchmarks" / "estimation" / "discovery_truth.json"
PAGE = ROOT / "docs" / "bilevel.md"


def measured(name: str, noise: float, count: int, command: str) -> dict[str, Any]:
    """Return what the fit of the true terms of a case comes to, in so many experiments."""
    case = CASES[name]
    experiments = with_steppings(case.experiments(noise, 0, count), steps_of(case))
    search = case.discovery(experiments, noise)
    matrix, rates = search._rates(list(case.species))
    selection = TermSelection(
        list(case.species),
        matrix,
        search._coefficients(rates),
        search.parameters,
        search._shared(experiments),
        experiments,
        Normal(noise * case.spread(experiments)),
    )
    true = frozenset(flow.name for flow in case.flows)
    truth = {flow.name: flow.constant for flow in case.flows}
    truth |= {f"{flow.name}: E": flow.energy for flow in case.flows}
    begin = time.process_time()
    fit = selection._fitted(true, truth)
    gains = selection._gains(true, fit)
    functional: Any = fit.functional
    normal: Array = functional.gauss_newton_matrix(fit.result.x)
    sizes = np.sqrt(np.diag(normal))
    errors = np.sqrt(np.diag(np.linalg.inv(normal / np.outer(sizes, sizes)))) / sizes
    places = list(fit.parameters.free_names)
    constants, energies = case.errors(fit.estimate)
    return {
        "case": name,
        "noise": noise,
        "experiments": count,
        "degrees": fit.data.count - len(places),
        "chi_square": 2.0 * fit.objective,
        "certain": min(abs(fit.estimate[term]) / errors[places.index(term)] for term in true),
        "others": len(gains),
        "gain": max(gains.values()),
        "price": 2.0 * float(np.log(fit.data.count)),
        "constants": constants,
        "energies": energies,
        "seconds": time.process_time() - begin,
        "command": command,
        **{key: describe()[key] for key in ("date", "processor")},
    }


def write_page(rows: list[dict[str, Any]]) -> None:
    """Write the table between its marks in the page."""
    headings = ["reactions", "noise", "experiments", "chi-square", "degrees of freedom"]
    headings += ["least term, in standard errors", "other terms", "most that one gains"]
    headings += ["its price", "constants", "energies", "s"]
    lines = [
        [
            CASES[row["case"]].title,
            f"{row['noise']:.0%}",
            str(row["experiments"]),
            number(row["chi_square"], ".0f"),
            str(row["degrees"]),
            number(row["certain"], ".0f"),
            str(row["others"]),
            number(row["gain"], ".2g"),
            number(row["price"], ".2g"),
            f"{100.0 * row['constants']:.2g} %",
            f"{100.0 * row['energies']:.2g} %",
            number(row["seconds"], ".2g"),
        ]
        for row in rows
    ]
    table = with_sources(markdown(headings, lines), rows)
    put_between(PAGE, "scripts/bench/discovery_truth.py", table)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="What data tell of terms.")
    parser.add_argument("--case", choices=list(CASES), default="esters")
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--count", type=int, default=5, help="experiments")
    parser.add_argument("--page", action="store_true", help="the table from the numbers there are")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else []
    if not arguments.page:
        warnings.simplefilter("ignore")  # trials of an optimiser go anywhere
        chosen = f"--case {arguments.case} --noise {arguments.noise} --count {arguments.count}"
        command = f"python scripts/bench/discovery_truth.py {chosen}"
        row = measured(arguments.case, arguments.noise, arguments.count, command)
        keys = ("case", "noise", "experiments")
        rows = [old for old in rows if any(old[key] != row[key] for key in keys)] + [row]
        NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
    write_page(rows)


if __name__ == "__main__":
    main()
