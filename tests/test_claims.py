"""What the pages say of measured times is what the results beside them hold."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
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
    Claim("speed", "is within {1:.2f} times of the quickest engine", "engines", span("ratio")),
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
    Claim(
        "second_order", "takes a {:.0f}nd to a {:.0f}nd of the time", "hessians", steps_over_blocks
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


def measured(claim: Claim) -> str:
    """Return the sentence with the numbers that were measured."""
    rows = json.loads((DOCS / "benchmarks" / f"{claim.case}.json").read_text())["rows"]
    return claim.sentence.format(*claim.numbers(rows))


def test_sentences_say_what_was_measured():
    pages = {path.stem: " ".join(path.read_text().split()) for path in DOCS.glob("*.md")}
    sentences = [(claim.page, measured(claim)) for claim in CLAIMS]
    assert [(page, words) for page, words in sentences if words not in pages[page]] == []


def rows_of(case: str) -> Rows:
    """Return what was measured."""
    return json.loads((DOCS / "benchmarks" / f"{case}.json").read_text())["rows"]


def test_tables_of_the_page_on_speed_are_what_was_measured():
    page = (DOCS / "speed.md").read_text()
    lines = [
        f"| {row['style']} | {row['run']:.2g} | {row['gradient']:.2g} "
        f"| {row['sensitivities']:.2g} |\n"
        for row in rows_of("styles")
    ]
    lines += [
        f"| {row['model']} | `{row['method']}` | {row['run_ratio']:.1f} "
        f"| {row['gradient_ratio']:.1f} |\n"
        for row in rows_of("numpy_callbacks")
    ]
    assert [line for line in lines if line not in page] == []
    assert table_of_grids(rows_of("grids")) in page


def table_of_grids(rows: Rows) -> str:
    """Return the table as the program that measures it writes it."""
    folder = str(Path(__file__).parents[1] / "scripts" / "bench")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("grids").table(rows)
    finally:
        sys.path.remove(folder)


def test_results_say_where_when_and_how_they_were_measured():
    for path in sorted((DOCS / "benchmarks").glob("*.json")):
        results = json.loads(path.read_text())
        assert results["command"].startswith(f"python scripts/bench/run.py {path.stem}")
        assert results["machine"]["processor"]
        assert results["machine"]["date"].endswith("UTC")
        assert results["rows"]
