"""Measure daeosens and others; write tables, JSON, figures and the results page.

    python scripts/bench/run.py [CASE ...] [--quick] [--where NAME=VALUE] [--peers PYTHON]

Without a name all cases.  Contestants run in turn, each in a process of its own, on one core or
on all of them, as the case says.  Other packages (requirements.txt) are used where the interpreter
given by --peers has them; what is missing is named in the table.  Writes
FOLDER/benchmarks/CASE.json, FOLDER/images and FOLDER/benchmarks.md; FOLDER (--output) is docs, or
results/quick with --quick.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from cases import CASES, Case, Script
from contest import Limits, Row, hold
from daeosens.cli.doctor import blas
from machine import describe, threads, versions
from page import write_page
from tables import heading, line, number

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
QUICK = Limits(turns=1, budget=0.1)


def chosen(case: Case, where: Sequence[str], *, quick: bool) -> tuple[Mapping[str, Any], ...]:
    """Return the settings that have all the values of ``where`` ("N=10"), as tables write them."""
    pairs = [condition.partition("=") for condition in where]
    return tuple(
        setting
        for setting in (case.quick if quick else case.settings)
        if all(
            value in (str(setting.get(name)), number(setting.get(name))) for name, _, value in pairs
        )
    )


def measure(
    case: Case, settings: tuple[Mapping[str, Any], ...], limits: Limits, peers: str
) -> list[dict[str, Any]]:
    """Hold a contest, print its table as it grows, return its rows."""

    def report(row: Row) -> None:
        print(line(row), flush=True)

    print(heading())
    environment = threads(all_cores=case.all_cores)
    rows = hold(
        case.contestants,
        settings,
        limits,
        case.reference,
        case.tasks,
        peers,
        environment,
        report,
    )
    return [asdict(row) for row in rows]


def run_script(script: Script, turns: int) -> list[dict[str, Any]]:
    """Run a program that prints its own table, return its rows."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "rows.json"
        program = str(HERE / f"{script.program or script.name}.py")
        command = [sys.executable, program, "--output", str(output), "--repeat", str(turns)]
        command += script.arguments
        subprocess.run(command, check=True, env=os.environ | threads(all_cores=False))
        return json.loads(output.read_text())


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description="Measure daeosens and others.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--quick", action="store_true", help="tiny settings, one turn")
    parser.add_argument(
        "--where",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="only settings with all these values: N=10",
    )
    parser.add_argument("--turns", type=int, default=Limits.turns, help="of each contestant")
    parser.add_argument(
        "--minutes", type=float, default=Limits.minutes, help="after which no setting is begun"
    )
    parser.add_argument("--peers", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--output", type=Path, help="folder; docs, or results/quick")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are: {', '.join(CASES)}")
    for name in arguments.cases or CASES:
        case = CASES[name]
        if isinstance(case, Case) and not chosen(case, arguments.where, quick=arguments.quick):
            parser.error(f"no setting of {name} has {' '.join(arguments.where)}")
    folder: Path = arguments.output or ROOT / ("results/quick" if arguments.quick else "docs")
    (folder / "benchmarks").mkdir(parents=True, exist_ok=True)
    limits = Limits(turns=arguments.turns, minutes=arguments.minutes)
    limits = QUICK if arguments.quick else limits
    for name in arguments.cases or CASES:
        case = CASES[name]
        print(f"\n{case.title}")
        results: dict[str, Any] = {
            "command": " ".join(
                [
                    f"python scripts/bench/run.py {name}",
                    *(["--quick"] if arguments.quick else []),
                    *(["--where", *arguments.where] if arguments.where else []),
                    *([f"--turns {arguments.turns}"] if arguments.turns != Limits.turns else []),
                    *([f"--minutes {arguments.minutes:g}"] if arguments.minutes < inf else []),
                ]
            ),
            "machine": describe() | {"blas": blas()},
            "versions": versions(sys.executable, arguments.peers),
        }
        if isinstance(case, Case):
            settings = chosen(case, arguments.where, quick=arguments.quick)
            results["rows"] = measure(case, settings, limits, arguments.peers)
        else:
            results["rows"] = run_script(case, limits.turns)
        path = folder / "benchmarks" / f"{name}.json"
        path.write_text(json.dumps(results, indent=1) + "\n")
        write_page(folder)
    print(f"\n{folder / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
