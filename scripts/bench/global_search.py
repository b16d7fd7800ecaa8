"""What a search for all minimisers with proof costs.

    python scripts/bench/global_search.py [--output results.json] [--repeat 50]

h = (x - y)^2 + sin(5y) on [-20, 20] has five minimisers at x = 1.  Timed are the search, the proof
that the minimisers only move while x runs through [0.999, 1.001], and both for sums of h over two
and three variables, with 25 and 125 minimisers; least processor times in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daeosens.tracing.daeo.intervals import interval_function
from daeosens.tracing.daeo.search import Search

BOUND = 5.0
"""Milliseconds, of the first search."""


@dataclass(frozen=True)
class Row:
    """One line of the table: milliseconds."""

    n_y: int
    minimisers: int
    boxes: int
    lowest_only: float
    all: float
    proof: float


def waves(_t: Any, x: Any, y: Any, _p: Any) -> Any:
    """Return a parabola with a wave on it, in every variable."""
    return np.sum((x[0] - y) ** 2 + np.sin(5.0 * y))


def measure(n: int, repeat: int) -> Row:
    """Time the searches of n variables."""
    search = Search(interval_function(waves, 1, n), [[-20.0, 20.0]] * n)
    times: list[list[float]] = []
    minimizers = search.find(0.0, [1.0])
    for _ in range(repeat):
        start = time.process_time()
        search.find(0.0, [1.0], mode="global")
        first = time.process_time()
        search.find(0.0, [1.0])
        second = time.process_time()
        if not search.unchanged(0.0, [[0.999, 1.001]], (), minimizers):
            raise AssertionError(
                "the minimisers move while x runs through [0.999, 1.001], not more"
            )
        times.append([first - start, second - first, time.process_time() - second])
    lowest, everything, proof = (1e3 * np.min(times, axis=0)).tolist()
    return Row(n, len(minimizers), minimizers.boxes, lowest, everything, proof)


def main() -> None:
    """Print the table and write the numbers."""
    parser = argparse.ArgumentParser(description="Searches for all minimisers.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=50)
    arguments = parser.parse_args()
    print(
        f"{'n_y':>4}{'minimisers':>12}{'boxes':>8}{'lowest, ms':>12}{'all, ms':>9}{'proof, ms':>11}"
    )
    rows: list[Row] = []
    for n in (1, 2, 3):
        row = measure(n, arguments.repeat)
        rows.append(row)
        print(
            f"{row.n_y:>4}{row.minimisers:>12}{row.boxes:>8}{row.lowest_only:>12.3f}"
            f"{row.all:>9.3f}{row.proof:>11.3f}",
            flush=True,
        )
    print(f"bound: {BOUND:g} ms for the five minimisers of one variable")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
