"""What pages say of measurements: sentences and tables, with the numbers that results give.

``python tests/support/claims.py`` writes the numbers of new results into the pages.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from page_numbers import ROOT, words_of

from daeosens.timestepping.trajectory.schedule import repeated_steps

DOCS = ROOT / "docs"
WRITTEN = ("benchmarks", "reliability", "reproduce", "support", "zoo")
"""Pages that programs write, and that other tests, or the last one here, hold to their files."""
PAGES = {
    path.stem: path
    for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
    if path.stem not in WRITTEN
}
Rows = list[dict[str, Any]]


def span(key: str) -> Callable[[Rows], list[float]]:
    """Return the least and the greatest value of a column, as a function of the rows."""
    return lambda rows: [extreme(row[key] for row in rows) for extreme in (min, max)]


def cells(task: str) -> Callable[[Rows], list[float]]:
    """Return our microseconds and those of C for the oscillator's task."""

    def values(rows: Rows) -> list[float]:
        (row,) = (row for row in rows if (row["task"], row["model"]) == (task, "oscillator"))
        return [row["daeosens"], row["c"]]

    return values


def steps_over_blocks(rows: Rows) -> list[float]:
    """Return how many times as long steps take as blocks, at least and at most."""
    ratios = [row["steps"] / row["block"] for row in rows]
    return [min(ratios), max(ratios)]


def of_heat(rows: Rows, points: str) -> list[float]:
    """Return seconds of two steps of the heat equation and its derivatives, and gigabytes."""
    names = ("equation", "points", "ranks", "dt")
    (row,) = (row for row in rows if [row[name] for name in names] == ["heat", points, 1, 1.0])
    return [row[name] for name in ("seconds", "seconds_adjoint", "seconds_hessian", "gigabytes")]


def stages_over_states(rows: Rows) -> list[float]:
    """Return what keeping stages leaves of the time of gradients by RK4, at least and at most."""
    times = {
        (row["setting"]["points"], row["contestant"]): row["milliseconds"]
        for row in rows
        if row["task"] == "gradient" and row["setting"]["method"] == "rk4"
    }
    ratios = [
        taken / times[points, "daeosens, states"]
        for (points, who), taken in times.items()
        if who == "daeosens"
    ]
    return [min(ratios), max(ratios)]


def of_long_runs(rows: Rows) -> list[float]:
    """Return bytes a step of a run and at most of its gradient, rounded as the page does."""
    run, gradient = (max(row[key] for row in rows) for key in ("run", "gradient at most"))
    return [5.0 * round(run / 5.0), 5.0 * round(gradient / 5.0)]


def iterations(rows: Rows, equation: str, points: str) -> list[float]:
    """Return linear iterations of a solve in runs and sweeps with no flux, dt = 1, on one rank."""
    wanted = [equation, "neumann", points, 1, 1.0]
    names = ("equation", "boundary", "points", "ranks", "dt")
    (row,) = (row for row in rows if [row[name] for name in names] == wanted)
    return [row["forward"], row["sweep"]]


def of_upwind(rows: Rows) -> list[float]:
    """Return iterations of runs with upwind differences in three dimensions."""
    return [iterations(rows, "upwind advection", points)[0] for points in ("32x32x32", "64x64x64")]


def of_central(rows: Rows) -> list[float]:
    """Return iterations of central advection in three dimensions."""
    return iterations(rows, "central advection", "64x64x64")


def right_choices(rows: Rows) -> list[float]:
    """Return how often no engine took less than the one chosen by more than a hundredth."""
    return [sum(row["ratio"] <= 1.01 for row in rows)]


@dataclass(frozen=True)
class Claim:
    """A sentence of a page, with places for numbers that a case's rows give."""

    page: str
    sentence: str
    case: str
    numbers: Callable[[Rows], list[float]]


CLAIMS = (
    Claim("speed", "costs {:.0f} to {:.0f} steps forward", "events", span("event")),
    Claim("speed", "and {:.1f} to {:.1f} in the sweep", "events", span("sweep_event")),
    Claim("speed", "surface at most {1:.2f} of a step", "events", span("watching")),
    Claim("speed", "of [{:.0f} random settings]", "engines", lambda rows: [len(rows)]),
    Claim("speed", "was right in {:.0f}", "engines", right_choices),
    Claim(
        "speed",
        "take {:.1f} to {:.1f} times as long for one cost",
        "block_adjoint",
        span("scalar_ratio"),
    ),
    Claim("speed", "{:.0f} to {:.0f} times for all states", "block_adjoint", span("full_ratio")),
    Claim("speed", "in {:.2f} to {:.2f} of the time", "gray_scott", stages_over_states),
    Claim(
        "speed",
        "1024² points take {:.1f} s, their adjoint {:.1f} s, a Hessian product {:.1f} s, with "
        "{:.1f} GB",
        "grids",
        lambda rows: of_heat(rows, "1024x1024"),
    ),
    Claim(
        "speed",
        "with 128³ points {:.0f}, {:.0f} and {:.0f} s, with {:.1f} GB",
        "grids",
        lambda rows: of_heat(rows, "128x128x128"),
    ),
    Claim("speed", "| `solve` | {:.0f} | {:.0f} |", "compiled_steps", cells("run")),
    Claim(
        "speed",
        "| `solve` and `adjoint` | {:.0f} | {:.0f}, by TSAdjoint |",
        "compiled_steps",
        cells("run and gradient"),
    ),
    Claim(
        "speed",
        "| `Reduced.value_and_gradient` | {:.0f} | |",
        "compiled_steps",
        cells("Reduced"),
    ),
    Claim("speed", "in NumPy takes some {:.0f} bytes", "long_runs", of_long_runs),
    Claim("speed", "at most some {1:.0f} (", "long_runs", of_long_runs),
    Claim("speed", "{:.0f} with 32³ points and {:.0f} with 64³", "grids", of_upwind),
    Claim("speed", "{:.0f} / {:.0f} with 64³ points", "grids", of_central),
    Claim(
        "uncertainty",
        "by {:.0f} to {:.0f} % of their reach",
        "lynx_intervals",
        lambda rows: [100 * value for value in span("symmetric_misses")(rows)],
    ),
    Claim(
        "second_order",
        "is {:.0f} to {:.0f} times quicker than by steps",
        "hessians",
        steps_over_blocks,
    ),
    Claim(
        "second_order",
        "whole Hessian {:.0f} to {:.0f} times cheaper",
        "hessians",
        steps_over_blocks,
    ),
    Claim(
        "second_order",
        "a product costs {:.1f} to {:.1f} times as much",
        "second_order",
        span("ratio"),
    ),
    Claim(
        "second_order",
        "{:.1f} to {:.1f} times for each of four directions",
        "second_order",
        span("ratio_of_four"),
    ),
    Claim(
        "flux_balance",
        "are {1:.0f} times as fast as with a programme in every",
        "flux_balance",
        lambda rows: span("ratio")([row for row in rows if "4 objectives" not in row["how"]]),
    ),
    Claim("flux_balance", "{1:.0f} times where four objectives", "flux_balance", span("ratio")),
    Claim(
        "architecture",
        "evaluates f: {:.1f} to {:.1f} times as fast",
        "own_paths",
        lambda rows: span("ratio")(
            [row for row in rows if row["what"] == "stages of grids in one pass"]
        ),
    ),
    Claim(
        "architecture",
        "adjoints {:.1f} to {:.1f} times as fast as from Python",
        "own_paths",
        lambda rows: span("ratio")(
            [
                row
                for row in rows
                if row["what"] == "theta steps of grids in C" and row["call"] == "adjoint"
            ]
        ),
    ),
)


def rows_of(case: str) -> Rows:
    """Return what was measured."""
    return json.loads((DOCS / "benchmarks" / f"{case}.json").read_text())["rows"]


def power(error: float, digits: int = 1) -> str:
    """Return 2.0e-4 for 0.0002."""
    digit, _, exponent = f"{error:.{digits}e}".partition("e")
    return f"{digit}e{int(exponent)}" if error > 1e-13 else "rounding"


def table(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(line)} |" for line in cells]


def styles() -> list[str]:
    """Return a line for each way to write a right-hand side."""
    return table(
        [
            (row["style"], *(f"{row[key]:.2g}" for key in ("run", "gradient", "sensitivities")))
            for row in rows_of("styles")
        ]
    )


def numpy_callbacks() -> list[str]:
    """Return a line for each model beside SciPy's solver."""
    return table(
        [
            (
                row["model"],
                f"`{row['method']}`",
                f"{row['run_ratio']:.1f}",
                f"{row['gradient_ratio']:.1f}",
            )
            for row in rows_of("numpy_callbacks")
        ]
    )


def accuracy(what: str) -> dict[str, Rows]:
    """Return what was computed of a problem, by the name of the run."""
    runs: dict[str, Rows] = {}
    for row in rows_of("accuracy"):
        if row["what"] == what:
            runs.setdefault(row["run"], []).append(row)
    return runs


def stiff() -> list[str]:
    """Return a line for each method: steps and errors at three tolerances."""
    return table(
        [
            (method, *(f"{row['steps']} ({power(row['error'], 0)})" for row in rows))
            for method, rows in accuracy("stiff").items()
        ]
    )


def slow_manifold() -> list[str]:
    """Return a line for each kind of control."""
    return table(
        [
            (
                f'`control="{control}"`',
                str(rows[0]["steps"]),
                *(power(row["error"]) for row in rows),
            )
            for control, rows in accuracy("slow manifold").items()
        ]
    )


def jump() -> list[str]:
    """Return a line for each step size of the run whose optimiser jumps."""
    runs = accuracy("jump")
    lines = []
    for size in dict.fromkeys(row["setting"] for row in runs["rk4"]):
        state, moment = (row["error"] for row in runs["rk4"] if row["setting"] == size)
        others = (
            next(row["error"] for row in runs[name] if row["setting"] == size)
            for name in ("cn", "rk4, not located")
        )
        lines.append((size.replace("0.00025", "2.5e-4"), *map(power, (state, moment, *others))))
    return table(lines)


def fit_methods() -> list[str]:
    """Return a line for each fit of the zoo."""
    return table(
        [
            (
                row["data"],
                str(row["parameters"]),
                str(row["L-BFGS, runs"]),
                f"{row['Newton, runs']}, {row['Newton, products']}",
                f"{row['Gauss-Newton, runs']}, {row['Gauss-Newton, tangents']}",
            )
            for row in rows_of("fit_methods")
        ]
    )


def lynx() -> list[str]:
    """Return a line for each rate of lynx and hare."""

    def both(*ends: float) -> str:
        return ", ".join(f"{end:.3g}" if end < 0.1 else f"{end:.3f}" for end in ends)

    return table(
        [
            (
                row["parameter"],
                f"{row['estimate']:.4g}",
                f"{row['standard_error']:.{3 if row['standard_error'] > 0.01 else 2}g}",
                f"{row['published_deviation']:g}",
                both(row["lower"], row["upper"]),
                both(row["profile_lower"], row["profile_upper"]),
            )
            for row in rows_of("lynx_intervals")
        ]
    )


def tissue() -> list[str]:
    """Return a line for each run of the driver."""

    def known(row: dict[str, Any], rate: str) -> str:
        value = row[rate]
        return f"{value:.3f} ± {value * row[f'deviation of log {rate}']:.3f}"

    return table(
        [
            (
                row["points"].replace("x", " x "),
                str(row["ranks"]),
                f"{row['Gauss-Newton steps']}, {row['products with the Hessian']}",
                f"{row['error beside prior']:.2f}",
                f"{100 * row['within one deviation']:.0f} %, {100 * row['within two']:.0f} %",
                known(row, "eps"),
                known(row, "b"),
                f"{row['processor seconds']:.0f}",
            )
            for row in rows_of("tissue")
        ]
    )


def checkpoints() -> list[str]:
    """Return the lines of both tables, by the schedule itself."""
    lines = [
        (
            f"`Checkpoints({kept})`",
            f"{kept * 8e5 / 1e9:g} GB" if kept > 1000 else f"{kept * 8e5 / 1e6:g} MB",
            f"{repeated_steps(20_000, kept) / 20_000:.2f}",
        )
        for kept in (10_000, 4000, 1000, 200)
    ]
    for steps, kept in ((100, 10), (1000, 50), (100_000, 50), (100_000, 500)):
        again = repeated_steps(steps, kept)
        numbers = [
            str(number) if number < 10_000 else f"{number:,}".replace(",", " ")
            for number in (steps, kept, again)
        ]
        lines.append((*numbers, f"{again / steps:.2f}"))
    return table(lines)


TABLES: tuple[tuple[str, Callable[[], list[str]]], ...] = (
    ("speed", styles),
    ("speed", numpy_callbacks),
    ("speed", lambda: table_of_grids(rows_of("grids")).splitlines()),
    ("stepping", stiff),
    ("stepping", slow_manifold),
    ("daeo", jump),
    ("uncertainty", fit_methods),
    ("uncertainty", lynx),
    ("uncertainty", tissue),
    ("checkpoints", checkpoints),
)


def measured(page: str) -> list[str]:
    """Return the sentences and lines of tables that results have for a page."""
    sentences = [
        claim.sentence.format(*claim.numbers(rows_of(claim.case)))
        for claim in CLAIMS
        if claim.page == page
    ]
    return sentences + [line for name, lines in TABLES if name == page for line in lines()]


def table_of_grids(rows: Rows) -> str:
    """Return the table as the program that measures it writes it."""
    folder = str(ROOT / "scripts" / "bench")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("grids").table(rows)
    finally:
        sys.path.remove(folder)


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?")


def renewed(text: str, line: str) -> str:
    """Return a page in which the numbers of a sentence are new, where it has the sentence once."""
    parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in NUMBER.split(line)]
    old = [*re.finditer(f"({NUMBER.pattern})".join(parts), text)]
    if len(old) != 1:
        return text
    for group, number in reversed([*enumerate(NUMBER.findall(line), 1)]):
        start, end = old[0].span(group)
        text = text[:start] + number + text[end:]
    return text


def main() -> None:
    """Write what is new into the pages; tell what has to be written by hand."""
    for page, path in PAGES.items():
        for line in measured(page):
            if " ".join(line.split()) not in words_of(path):
                path.write_text(renewed(path.read_text(), line))
                done = " ".join(line.split()) in words_of(path)
                print(f"{page}: {line}" + ("" if done else "   (not found: write it by hand)"))


if __name__ == "__main__":
    main()
