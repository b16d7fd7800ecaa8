"""Time to trace and compile models, first and again, with the size of their code.

    python scripts/bench/tracing.py [--output results.json] [--repeat 3]

The bounds: 3 s for the first compilation of ten states, and for the dense model of 200 states with
40 200 parameters, whose code must not grow with its matrices.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import daeosens as ds

BOUND = 3.0


@dataclass(frozen=True)
class Row:
    """One line of the table: seconds, and kilobytes of the library."""

    model: str
    parameters: int
    first: float
    again: float
    library: float


def competition(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of competing species."""
    return u * (p.rate + p.A @ u)


def network(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of a dense network."""
    return -u + np.tanh(p.A @ u + p.rate)


def measure(name: str, rhs: Callable[..., Any], size: int, repeat: int) -> Row:
    """Trace a model with an empty cache, and with a full one; the quickest of several times."""
    shapes: Mapping[str, Any] = {"rate": (size,), "A": (size, size)}
    first, again = [], []
    library = 0.0
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            for times in (first, again):
                start = time.perf_counter()
                model = ds.trace(rhs, size, shapes)
                times.append(time.perf_counter() - start)
            library = sum(file.stat().st_size for file in Path(folder).rglob("*.so")) / 1000
    return Row(name, model.n_parameters, min(first), min(again), library)


def main() -> None:
    """Measure, print, and write the results if wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    cases = (("10 states", competition, 10), ("200 states, dense", network, 200))
    measure("warm-up", competition, 2, 1)  # imports CasADi
    rows = [measure(*case, arguments.repeat) for case in cases]
    print(f"{'model':<20} {'parameters':>10} {'first [s]':>10} {'again [s]':>10} {'kB':>8}")
    for row in rows:
        print(
            f"{row.model:<20} {row.parameters:>10} {row.first:>10.2f} {row.again:>10.3f} "
            f"{row.library:>8.0f}"
        )
    print(f"first compilation below {BOUND:g} s: {all(row.first < BOUND for row in rows)}")
    if arguments.output:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=2))


if __name__ == "__main__":
    main()
