"""Estimation from starts anywhere: how often it succeeds, and how long it takes.

    python scripts/bench/bilevel.py [STUDY ...] [--starts 20] [--first 0] [--noise ...] [--ways ...]
        [--limit 120]

For each problem and noise level, from the same random starts and the same data: ``fit`` with
start="bilevel", ``fit`` with windows of five samples (multiple shooting), and ``fit`` alone (single
shooting); for some also fits of runs that grow, first of inverse hyperbolic sines.  Each start has
its own realisation of the noise, whose standard deviation is the level times that of each column;
without noise ``fit`` is told 1e-4 of it.

A start is right if all parameters are within 5 % of the truth.  It is likeliest if it came to the
minimum that a fit from the true parameters comes to, to half a unit of the negative
log-likelihood: with noise that is all that an estimate can be.  How many parameters data of this
noise determine to 5 %, by their standard deviation at the truth (Cramer and Rao), stands in the
table too.

Starts of nonlinear parameters are those of the problem; linear ones begin within a factor of ten of
the truth, which the bi-level estimate does not use.  A start that has not ended after 120 seconds
of processor time has failed; the table says how many did.  Writes
docs/benchmarks/estimation/bilevel.json, where rows of other problems stay, and the table of
docs/bilevel.md, after each start; --page writes the table alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import daeosens as ds
from bilevel_problems import STUDIES, Study, exact, measured
from daeosens import Experiment, Parameter, Parameters
from daeosens.costs.prior import Prior
from daeosens.errors import DaeosensError
from daeosens.inverse import Fit, Normal, likelihood
from daeosens.petsc.vectors import Array
from machine import describe
from tables import markdown, number, put_between, with_sources

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = ROOT / "docs" / "benchmarks" / "estimation" / "bilevel.json"
PAGE = ROOT / "docs" / "bilevel.md"

WAYS: dict[str, dict[str, Any]] = {
    "bi-level": {"start": "bilevel"},
    "windows": {"windows": 5},
    "single shooting": {},
    "growing runs": {},
}
LIMIT = 120.0
"""Of a start, in seconds of processor time."""

MOST_ITERATIONS = 100
"""Of a fit: those that arrive take fewer than thirty."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes
    ----------
    study, noise, way
    starts : int
    right, likeliest, failed : int
        How many starts ended so.
    stopped : int
        How many of those that failed had not ended within the limit.
    limit : float or None
        Of a start, in seconds of processor time.
    error : float or None
        The largest relative error of a parameter, in the median start.
    seconds : float
        Of processor time, in the median start.
    determined, parameters : int
        How many parameters have a standard deviation below 5 % at the truth, and how many there
        are.
    command, date, processor : str
    """

    study: str
    noise: float
    way: str
    starts: int
    right: int
    likeliest: int
    failed: int
    error: float | None
    seconds: float
    determined: int
    parameters: int
    command: str
    date: str
    processor: str
    stopped: int = 0
    limit: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What one start came to."""

    error: float
    excess: float
    seconds: float
    stopped: bool = False


def limited(seconds: float, work: Callable[[], Outcome]) -> Outcome:
    """Return what work in a process of its own comes to, or that it was stopped."""
    # a copy of this process: nothing is compiled or measured again
    context = multiprocessing.get_context("fork")
    end, other = context.Pipe(duplex=False)

    def child() -> None:
        limit = int(np.ceil(seconds))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        other.send(work())

    process = context.Process(target=child, daemon=True)
    process.start()
    other.close()
    try:
        return end.recv()
    except EOFError:
        return Outcome(np.inf, np.inf, seconds, stopped=True)
    finally:
        process.join()


def ways_of(study: Study, ways: Sequence[str]) -> list[str]:
    """Return those ways that a study can go: a bi-level estimate needs data of all states."""
    without = ["bi-level"] if study.observed else []
    without += [] if study.growing else ["growing runs"]
    return [way for way in ways if way not in without]


def starts_of(study: Study, seed: int) -> dict[str, Parameter]:
    """Return random first values of all parameters."""
    rng = np.random.default_rng(seed)
    values = {name: 10.0 ** rng.uniform(*span) for name, span in study.spans.items()}
    values |= {name: study.truth[name] * 10.0 ** rng.uniform(-1.0, 1.0) for name in study.linear}
    return {name: Parameter(values[name], scale="log") for name in study.truth}


def problem_of(
    study: Study, model: Any, rows: Sequence[Array], values: dict[str, Parameter]
) -> tuple[Any, list[Experiment], Parameters]:
    """Return what ``fit`` and ``likelihood`` take first."""
    times = np.concatenate([study.stepping.t_span[:1], study.times])
    experiments = [
        Experiment(
            {"time": times, **{study.states[k]: states[:, k] for k in study.columns}},
            study.stepping,
            first,
            known,
        )
        for states, first, known in zip(rows, study.starts, study.known, strict=True)
    ]
    return model, experiments, Parameters(values, study.starts[0])


def until(end: float, experiments: Sequence[Experiment]) -> list[Experiment]:
    """Return experiments up to a time."""
    short: list[Experiment] = []
    for experiment in experiments:
        columns: dict[str, Array] = experiment.data
        seen = columns["time"] <= end
        data = {name: column[seen] for name, column in columns.items()}
        stepping = replace(experiment.stepping, t_span=(0.0, end))
        short.append(replace(experiment, data=data, stepping=stepping))
    return short


def grown(study: Study, problem: tuple[Any, list[Experiment], Parameters], sigma: Array) -> Fit:
    """Return a fit of all, from those of runs that grow.

    At first of ``arcsinh(u / sigma)``, which is u beside the noise and its logarithm above: what
    rises over decades is nearly linear in the rates then.  A normal law of logarithms about the
    start, a factor of ten wide, keeps what the first times do not tell.
    """
    model, experiments, parameters = problem
    mean = [np.log(float(entry.value)) for entry in parameters.entries.values()]
    law = Prior(mean, np.log(10.0), names=list(parameters.entries), scale="log")
    short, whole = study.growing[-1], float(study.times[-1])

    def going_on(fit: Fit) -> Parameters:
        values = {name: Parameter(fit.estimate[name], scale="log") for name in study.truth}
        return Parameters(values, parameters.initial_state)

    for end in study.growing:
        seen = [
            replace(
                experiment,
                data={
                    name: column if name == "time" else np.arcsinh(column / level)
                    for (name, column), level in zip(
                        experiment.data.items(), [1.0, *sigma], strict=True
                    )
                },
            )
            for experiment in until(end, experiments)
        ]
        fit = fitted(
            (model, seen, parameters),
            np.ones(len(sigma)),
            observe=lambda _t, u, _p: np.arcsinh(u / sigma),
            priors=law,
        )
        parameters = going_on(fit)
    for end in (short, np.sqrt(short * whole)):
        parameters = going_on(fitted((model, until(end, experiments), parameters), sigma))
    return fitted((model, experiments, parameters), sigma)


def fitted(problem: tuple[Any, list[Experiment], Parameters], sigma: Array, **way: Any) -> Fit:
    """Return a fit of all experiments."""
    return ds.fit(
        *problem,
        noise=Normal(sigma),
        hessian="gauss_newton",
        max_iterations=MOST_ITERATIONS,
        progress=False,
        **way,
    )


def outcomes(
    name: str, noise: float, ways: Sequence[str], seeds: range, limit: float
) -> Iterator[tuple[dict[str, list[Outcome]], int]]:
    """Yield what starts have come to, by way, and how many parameters the data determine.

    After each start, as some take minutes.
    """
    study = STUDIES[name]
    model, states = study.model(), exact(study)
    true_start = {key: Parameter(value, scale="log") for key, value in study.truth.items()}
    results: dict[str, list[Outcome]] = {way: [] for way in ways}
    determined = 0
    for seed in seeds:
        rows, spread = measured(states, noise, seed)
        sigma = max(noise, 1e-4) * spread[study.columns]
        at_truth = problem_of(study, model, rows, true_start)
        reference = fitted(at_truth, sigma)
        if seed == seeds[0]:
            functional: Any = likelihood(*at_truth, noise=Normal(sigma))
            matrix = functional.gauss_newton_matrix(functional.start())
            # of logarithms, which is relative
            errors = np.sqrt(np.diag(np.linalg.inv(matrix)))
            determined = int(np.sum(errors < 0.05))
        problem = problem_of(study, model, rows, starts_of(study, seed))
        for way in ways:
            work = partial(attempt, study, problem, sigma, way, seed, reference.objective)
            outcome = limited(limit, work)
            results[way].append(outcome)
            print(
                f"{name}, noise {noise:g}, start {seed}, {way}: error {outcome.error:.2g}, "
                f"excess {outcome.excess:.2g}, {outcome.seconds:.1f} s",
                flush=True,
            )
        yield results, determined


def attempt(
    study: Study,
    problem: tuple[Any, list[Experiment], Parameters],
    sigma: Array,
    way: str,
    seed: int,
    least: float,
) -> Outcome:
    """Return what one way comes to from one start; ``least`` is the best objective there is."""
    truth = np.array(list(study.truth.values()))
    begin = time.process_time()
    try:
        if way == "growing runs":
            fit = grown(study, problem, sigma)
        else:
            fit = fitted(problem, sigma, seed=seed, **WAYS[way])
        values = np.array([fit.estimate[key] for key in study.truth])
        error, excess = float(np.abs(values / truth - 1.0).max()), fit.objective - least
    except DaeosensError as failure:
        print(" ".join(str(failure).split())[:120])
        error, excess = np.inf, np.inf
    return Outcome(error, excess, time.process_time() - begin)


def summary(
    name: str,
    noise: float,
    way: str,
    results: Sequence[Outcome],
    determined: int,
    limit: float,
    command: str,
) -> Row:
    """Return the line of one way."""
    machine = describe()
    middle = median(result.error for result in results)
    return Row(
        name,
        noise,
        way,
        len(results),
        sum(result.error < 0.05 for result in results),
        sum(result.excess < 0.5 for result in results),
        sum(result.error == np.inf for result in results),
        middle if np.isfinite(middle) else None,
        median(result.seconds for result in results),
        determined,
        len(STUDIES[name].truth),
        command,
        machine["date"],
        machine["processor"],
        sum(result.stopped for result in results),
        limit,
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of the page, with what it was measured on."""
    lines = [
        [
            STUDIES[row["study"]].title,
            f"{row['noise']:.0%}",
            f"{row['determined']} of {row['parameters']}",
            row["way"],
            f"{row['right']}/{row['starts']}",
            f"{row['likeliest']}/{row['starts']}",
            number(row["error"], ".2g") if row["error"] is not None else "",
            f"{row['stopped']}/{row['starts']}" if row.get("stopped") else "",
            number(row["seconds"], ".2g"),
        ]
        for row in rows
    ]
    headings = ["problem", "noise", "determined to 5 %", "way"]
    headings += ["right", "likeliest", "median error", "not ended", "s"]
    return with_sources(markdown(headings, lines), rows)


def write_page(rows: Sequence[dict[str, Any]]) -> None:
    """Write the table between its marks in the page."""
    put_between(PAGE, "scripts/bench/bilevel.py", table(rows))


def main() -> None:
    """Measure what was asked for; keep what was measured before."""
    parser = argparse.ArgumentParser(description="Estimation from starts anywhere.")
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first start")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.01, 0.05])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a start")
    parser.add_argument("--page", action="store_true", help="the table from the numbers there are")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.studies if name not in STUDIES]
    if unknown:
        parser.error(f"no study {', '.join(unknown)}; there are: {', '.join(STUDIES)}")
    rows: list[dict[str, Any]] = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else []
    warnings.simplefilter("ignore")  # trials of an optimiser go anywhere
    studies: list[str] = [] if arguments.page else list(arguments.studies or STUDIES)
    for name in studies:
        ways = ways_of(STUDIES[name], arguments.ways)
        chosen = (
            f"--noise {' '.join(map(str, arguments.noise))} --ways {shlex.join(arguments.ways)}"
        )
        of_starts = f"--starts {arguments.starts} --first {arguments.first}"
        command = f"python scripts/bench/bilevel.py {name} {of_starts} {chosen}"
        if arguments.limit != LIMIT:
            command += f" --limit {arguments.limit:g}"
        seeds = range(arguments.first, arguments.first + arguments.starts)
        for noise in arguments.noise:
            for results, determined in outcomes(name, noise, ways, seeds, arguments.limit):
                for way in ways:
                    row = summary(
                        name, noise, way, results[way], determined, arguments.limit, command
                    )
                    key = (name, noise, way)
                    rows = [old for old in rows if (old["study"], old["noise"], old["way"]) != key]
                    rows.append(asdict(row))
                order = {key: k for k, key in enumerate((*STUDIES, *WAYS))}
                rows.sort(key=lambda row: (order[row["study"]], row["noise"], order[row["way"]]))
                NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
                write_page(rows)
    if arguments.page:
        write_page(rows)


if __name__ == "__main__":
    main()
