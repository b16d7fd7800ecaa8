"""Model discovery: how many of the true terms are found, and how well their coefficients.

    python scripts/bench/discovery.py [CASE ...] [--noise 0.0 ...] [--seeds 1]

For each case and noise level ``Discovery`` looks for the terms among all candidates, and ``fit``
of the model that it has found gives the coefficients from the equations.  With noise
``Discovery.select`` goes on from the terms that were found, by fits.  Errors are the largest of all
true terms.  Memory is what the process has grown by at most, from before the discovery.

Writes docs/benchmarks/estimation/discovery.json, where rows of other cases stay, and the table of
docs/bilevel.md; --page writes the table alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import daeosens as ds
from daeosens import Experiment, Parameter, Parameters
from daeosens.inverse import Discovered, Normal
from discovery_problems import CASES, ENERGY, Case
from machine import describe
from tables import markdown, number, put_between, with_sources

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = ROOT / "docs" / "benchmarks" / "estimation" / "discovery.json"
PAGE = ROOT / "docs" / "bilevel.md"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes
    ----------
    case : str
    noise : float
    seed : int
    candidates, true, found, other : int
        Numbers of candidates, of true terms, of those found, and of others found.
    constants, energies : float or None
        The largest relative errors after discovery.
    fitted_constants, fitted_energies : float or None
        After a fit.  None where a true term was not found.
    selected, selected_other : int or None
        As found and other, after ``select``.
    selected_constants, selected_energies : float or None
    seconds, fit_seconds, select_seconds : float
        Of processor time.
    megabytes : float
    command, date, processor : str
    """

    case: str
    noise: float
    seed: int
    candidates: int
    true: int
    found: int
    other: int
    constants: float | None
    energies: float | None
    fitted_constants: float | None
    fitted_energies: float | None
    selected: int | None
    selected_other: int | None
    selected_constants: float | None
    selected_energies: float | None
    seconds: float
    fit_seconds: float
    select_seconds: float
    megabytes: float
    command: str
    date: str
    processor: str


def peak() -> float:
    """Return the largest size of the process so far in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def steps_of(case: Case) -> ds.Stepping:
    """Return how the equations are integrated."""
    span = (float(case.times[0]), float(case.times[-1]))
    return ds.Stepping(span, "esdirk5", rtol=1e-7, atol=1e-9)


def fitted(case: Case, experiments: Sequence[Experiment], result: Discovered, noise: float) -> Any:
    """Return the fit of a model that was found, from the measured initial states."""
    model = result.model
    low, high = ENERGY.lower, ENERGY.upper
    values: dict[str, Any] = {
        name: Parameter(min(max(result.estimate[name], low), high), lower=low, upper=high)
        if name.endswith(": E")
        else Parameter(result.estimate[name])
        for name in model.parameter_names
        if name != "T"
    }
    listed = [
        Experiment(
            {name: column[1:] for name, column in e.data.items()},
            steps_of(case),
            [e.data[letter][0] for letter in case.species],
            parameters=e.parameters,
        )
        for e in experiments
    ]
    return ds.fit(
        model,
        listed,
        Parameters(values, listed[0].initial_state),
        noise=Normal(max(noise, 1e-4) * case.spread(experiments)),
        hessian="gauss_newton",
        progress=False,
    )


def measured(name: str, noise: float, seed: int, command: str, *, select: bool = True) -> Row:
    """Return what one case came to."""
    case = CASES[name]
    experiments = case.experiments(noise, seed)
    before, begin = peak(), time.process_time()
    search = case.discovery(experiments, noise)
    result = search.fit(case.seen(experiments, noise))
    seconds, megabytes = time.process_time() - begin, peak() - before
    terms = {name for step in result.path[-1:] for name in step.terms}
    true = {flow.name for flow in case.flows}
    complete = terms >= true
    constants, energies = case.errors(result.estimate) if complete else (None, None)
    begin = time.process_time()
    after = (None, None)
    if complete:
        after = case.errors(fitted(case, experiments, result, noise).estimate)
    fit_seconds = time.process_time() - begin
    begin = time.process_time()
    chosen: tuple[Any, ...] = (None,) * 4
    if noise and select:
        levels = Normal(noise * case.spread(experiments))
        selected = search.select(result, experiments, steps_of(case), noise=levels)
        kept = {*selected.terms}
        after_selection = (None, None)
        if kept >= true:
            after_selection = case.errors(selected.fit.estimate)
        chosen = (len(kept & true), len(kept - true), *after_selection)
    select_seconds = time.process_time() - begin
    machine = describe()
    return Row(
        name,
        noise,
        seed,
        len(result.path[0].terms),
        len(true),
        len(terms & true),
        len(terms - true),
        constants,
        energies,
        *after,
        *chosen,
        seconds,
        fit_seconds,
        select_seconds,
        megabytes,
        command,
        machine["date"],
        machine["processor"],
    )


def percent(value: float | None) -> str:
    """Return a relative error in percent, in words of the table."""
    return "" if value is None else f"{number(100.0 * value, '.2g')} %"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of the page, with what it was measured on."""
    lines = [
        [
            CASES[row["case"]].title,
            f"{row['noise']:.0%}",
            str(row["candidates"]),
            f"{row['found']} of {row['true']}",
            str(row["other"]),
            percent(row["constants"]),
            percent(row["energies"]),
            percent(row["fitted_constants"]),
            percent(row["fitted_energies"]),
            number(row["seconds"], ".2g"),
            number(row["megabytes"], ".2g"),
            "" if row["selected"] is None else f"{row['selected']} of {row['true']}",
            "" if row["selected"] is None else str(row["selected_other"]),
            percent(row["selected_constants"]),
            percent(row["selected_energies"]),
            "" if row["selected"] is None else number(row["select_seconds"], ".2g"),
        ]
        for row in rows
    ]
    headings = ["reactions", "noise", "candidates", "true terms", "others"]
    headings += ["constants", "energies", "fitted", "fitted", "s", "MB"]
    headings += ["true terms selected", "others", "constants", "energies", "s"]
    return with_sources(markdown(headings, lines), rows)


def write_page(rows: Sequence[dict[str, Any]]) -> None:
    """Write the table between its marks in the page."""
    put_between(PAGE, "scripts/bench/discovery.py", table(rows))


def main() -> None:
    """Measure what was asked for; keep what was measured before."""
    parser = argparse.ArgumentParser(description="Model discovery.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--no-select", action="store_true", help="without fits that select terms")
    parser.add_argument("--page", action="store_true", help="the table from the numbers there are")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are: {', '.join(CASES)}")
    rows: list[dict[str, Any]] = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else []
    warnings.simplefilter("ignore")  # trials of an optimiser go anywhere
    listed: list[str] = [] if arguments.page else arguments.cases or list(CASES)
    for name in listed:
        chosen = f"--noise {' '.join(map(str, arguments.noise))} --seeds {arguments.seeds}"
        chosen += " --no-select" * arguments.no_select
        command = f"python scripts/bench/discovery.py {shlex.quote(name)} {chosen}"
        for noise in arguments.noise:
            for seed in range(arguments.seeds):
                row = measured(name, noise, seed, command, select=not arguments.no_select)
                print(row, flush=True)
                key = (name, noise, seed)
                rows = [old for old in rows if (old["case"], old["noise"], old["seed"]) != key]
                rows.append(asdict(row))
                order = list(CASES)
                rows.sort(key=lambda row: (order.index(row["case"]), row["noise"], row["seed"]))
                NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
    write_page(rows)


if __name__ == "__main__":
    main()
