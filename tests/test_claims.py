"""What the pages say of measured times is what the results beside them hold."""

from __future__ import annotations

import json
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


def test_results_say_where_when_and_how_they_were_measured():
    for path in sorted((DOCS / "benchmarks").glob("*.json")):
        results = json.loads(path.read_text())
        assert results["command"].startswith(f"python scripts/bench/run.py {path.stem}")
        assert results["machine"]["processor"]
        assert results["machine"]["date"].endswith("UTC")
        assert results["rows"]
