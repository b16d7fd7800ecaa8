"""The results page, from the JSON files of all cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cases import CASES, Case
from contest import Row
from figures import draw
from tables import accuracy_table, contest_table, notes, plain_table, quotient_table

HEAD = """# Benchmarks

Written by `python scripts/bench/run.py` from the files in [benchmarks](benchmarks); do not edit.

All contestants of a case run in turn, each in a process of its own, on one core unless the case
says otherwise; numbers are medians of milliseconds, then the ratio to the first contestant, then
the relative error.  Compilation and the first call are not counted.
`python scripts/bench/run.py CASE` measures one case, `--quick` tries it on tiny problems; other
packages are installed by hand (`scripts/bench/requirements.txt`), and what is missing is named
below its table.

Most of the time of dense models is that of OpenBLAS, whose kernels each case names: for AMD's Zen 5
the fast ones have to be asked for, by `OPENBLAS_CORETYPE=SkylakeX` (`daeosens doctor`).
"""

EQUAL = """At equal accuracy: the least milliseconds to an error or a smaller one, with lines
between measured points as in the figures, and the ratio to the first contestant.  Blank: no
tolerance gave that accuracy.
"""


def write_page(folder: Path) -> None:
    """Write ``folder``/benchmarks.md and the figures from ``folder``/benchmarks/*.json."""
    parts = [HEAD]
    for name, case in CASES.items():
        path = folder / "benchmarks" / f"{name}.json"
        if path.exists():
            results = json.loads(path.read_text())
            parts.append(_section(case.title, case.about, results))
            if isinstance(case, Case):
                parts += _contest(case, results["rows"], folder)
            else:
                parts.append(plain_table(results["rows"]))
    (folder / "benchmarks.md").write_text("\n".join(parts))


def _contest(case: Case, entries: list[dict[str, Any]], folder: Path) -> list[str]:
    rows = [Row(**entry) for entry in entries]
    parts = [contest_table(rows, case.quantity)]
    parts += [quotient_table(rows, *quotient) for quotient in case.quotients]
    panels = dict.fromkeys(figure.panels for figure in case.figures if figure.x == "error")
    for panel in panels:
        parts += [EQUAL, accuracy_table(rows, panel)]
    for figure in case.figures:
        image = Path("images") / f"benchmark_{case.name}_{figure.name}.png"
        if draw(figure, rows, folder / image):
            words = f"{case.title}: {figure.task}, {figure.y} against {figure.x}"
            parts.append(f"![{words}]({image})\n")
    remarks = notes(rows)
    if remarks:
        parts.append("Not measured:\n\n" + "".join(f"- {note}\n" for note in remarks))
    return parts


def _section(title: str, about: str, results: dict[str, Any]) -> str:
    machine = results["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    busy = ", times are beside other work" if machine["load"] > machine["cores"] else ""
    return (
        f"## {title}\n\n{about}\n\n"
        f"`{results['command']}`, {machine['date']}: {machine['processor']}, {machine['cores']} "
        f"cores, {machine['memory']} GiB, {machine['system']}, load {machine['load']} at the "
        f"start{busy}; {machine['blas']}; {packages}.\n"
    )
