"""docs/zoo.md: what worked at the first call, how accurate it was."""

from __future__ import annotations

import json
import multiprocessing
import resource
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from zoo import CASES, FIELDS, FITS, WAITING
from zoo.case import Case
from zoo.fits import FitCase
from zoo.runner import Outcome, run

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
PEERS = Path(__file__).with_name("peers.json")
MARKS_OF = {case.name: [*case.marks.values()] for case in CASES}
LIMIT = 15  # seconds of the processor for one run
FIXED = 5  # columns that no clock has a part in

HEAD = """# A zoo of ordinary problems

What other tools use as tests and examples, written as their users would: one NumPy function, given
to `ds.ODE` and to `ds.trace` unchanged (some also as `ds.trace_stencil`), a method and a tolerance,
and nothing else said.  Value, gradient and Hessian product in all parameters and starting values
are compared with truth that no code of this package has a part in: closed forms, or a Radau method
of order 9 with variational equations, which agrees with published digits where there are some
(`tests/zoo/truth.py`, `tests/zoo/truth.json`).

Values count as right if their error is below 100 rtol, gradients and Hessian products below 1000
rtol: the largest error of an entry, by a relative change of each parameter and starting value (of
fields along random directions), relative to the entry or, of small ones, to a hundredth of the
largest.  A norm of all entries would be kinder, by up to a hundred times; but users read
sensitivities one by one.  Fits count as right if estimates are right to 1 % of their standard
errors, and these to 1 %.

`scripts/zoo` runs all and writes this page; `tests/test_zoo.py` runs a sample each time, all of
them with `pytest --all`, and holds each to its mark.  Errors are the largest of the styles that
ran: of value, gradient and Hessian product; of fits those of estimates, beside their standard
errors, and of these.
"""
PEERS_HEAD = """
What the inaccurate ones have in common: perturbations need shorter steps than the state does, of
which alone the error is controlled.  Others with the same tolerances (`tests/zoo/peers.py`; errors
of gradient and Hessian product): SciPy's DOP853, for stiff equations Radau, with variational
equations and the errors of states in control, as of any tool that differentiates the steps of a
run, or those of all unknowns; and CVODES by CasADi, whose adjoint equations take steps of their
own, and whose methods of lower order take more of them.  In the second column,
`control="sensitivities"`, or of a hundred unknowns and more that of the parameters and three of the
unknowns.  What is missing was too large to be computed.
"""
LEVERS = """
What would make more of them right was measured over the compiled problems with adaptive steps.
That ESDIRK methods compare their error estimates with a part of the tolerance
([why](stepping.md)) makes four of them right (OREGO, Gas pipeline, Kuramoto-Sivashinsky, Motor
with a smooth switch), for 1.6 times the steps of these methods, and half of it for `rk8vr` one
more (DETEST D4), for 1.07 times the steps.  Both are the default, and so are steps of 0.8 times
what the estimates allow: by PETSc's 0.9 explicit methods reject twice as many, for as many
evaluations, and errors are one and a half times as large; one more is right (Orbit raised by a weak
thrust).  Runs that stability holds, Dialysis and the Van de Vusse reactor, are right by steps
that damp what decays, 1.06 times as many.  None of the rest is the default.  A tenth of
`rtol` for explicit methods: two more, for a third more steps; a quarter of it: one more and one
less, which was right by luck, for a fifth more steps.  `control="sensitivities"` takes nearly
twice the steps and seven times the time; who reads the warning asks for it where it is needed.
At these tolerances `rk8vr` in the place of `rk6vr` takes a fifth fewer evaluations, with about the
same errors, and two others are right no more.  That each unknown satisfies its own tolerance, and
not their mean, is the default.

By SciPy's steps for the states with the same tolerances errors of value, gradient and product are,
in the geometric mean, 0.7, 1.3 and 1.9 times those of `rk6vr` (47 problems, DOP853), 2.7, 5.9 and
3.2 times those of `rk8vr` (5), and half of those of `esdirk5` (11, Radau), with 1.2 times the
steps.
"""
EXPLAINED = {
    "inaccurate": "the error of the steps, which falls with `rtol` and `atol`; larger than hoped",
    "wrong": "a wrong result without a word: a defect",
    "warned": "a wrong result with a warning that says what to do instead",
    "refused": "an error that says what to do instead",
    "failed": "an error that helps nobody: a defect",
    "slow": f"took more than {LIMIT} s",
}
TITLES = ("problem", "from", "size, method", "NumPy", "compiled", "errors")


def fixed_cells(case: Case | FitCase) -> list[str]:
    """Return the cells of a row that follow from the case alone."""
    if isinstance(case, FitCase):
        size = f"{len(case.u0)} + {len(case.guess)}, fit"
    else:
        steps = f"rtol {case.rtol:g}" if case.rtol is not None else f"dt {case.dt:g}"
        size = f"{len(case.u0)} + {len(case.p)}, {case.method}, {steps}"
    compiled = [case.marks[style] for style in case.styles[1:]]
    if len(set(compiled)) == 2:
        compiled = [f"{style}: {case.marks[style]}" for style in case.styles[1:]]
    compiled_cell = "; ".join(dict.fromkeys(compiled)) or "not taken by `trace`"
    return [case.name, case.source, size, case.marks["numpy"], compiled_cell]


def measured_cells(outcomes: list[Outcome]) -> list[str]:
    """Return the largest errors."""
    errors = [outcome.errors for outcome in outcomes if outcome.errors]
    worst = " ".join(f"{max(item):.0e}" for item in zip(*errors, strict=True))
    return [worst or "-"]


def rows_of(text: str) -> dict[str, list[str]]:
    """Return the rows of all tables of the page by the name of the problem."""
    rows: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == len(TITLES) and cells[0] != TITLES[0]:
            rows[cells[0]] = cells
    return rows


def page(measured: dict[str, list[str]]) -> str:
    """Return the page with the measured cells of each case."""
    tables, everything = {**FIELDS, "fits": FITS}, (*CASES, *FITS)
    marks = [mark for case in everything for mark in case.marks.values()]
    works = ["right" in case.marks.values() for case in everything]
    lines = [HEAD]
    lines.append(
        f"{len(everything)} problems, {sum(works)} right in at least one style; of "
        f"{len(marks)} runs {marks.count('right')} are right.  The others:\n"
    )
    for word, meaning in EXPLAINED.items():
        count = sum(mark.startswith(word) for mark in marks)
        lines.append(f"- {word}: {count}; {meaning}")
    lines += [*peers_section(), LEVERS.rstrip()]
    if WAITING:
        names = ", ".join(case.name for case in WAITING)
        lines.append(f"\nWritten, but without truth as yet, and therefore not run: {names}.")
    for field, cases in tables.items():
        lines += [f"\n## {field[0].upper()}{field[1:]}\n", "| " + " | ".join(TITLES) + " |"]
        lines.append("|" + "---|" * len(TITLES))
        for case in cases:
            cells = fixed_cells(case) + measured.get(case.name, ["-"])
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def peers_section() -> list[str]:
    """Return what others reach where derivatives are less accurate than hoped (``zoo.peers``)."""
    stored = json.loads(PEERS.read_text())
    rows = {case.name: stored[case.name] for case in CASES if case.name in stored}
    marked = {name for name in rows if set(MARKS_OF[name]) - {"right"}}
    as_good = [name for name, row in rows.items() if as_good_as_cvodes(row) and name in marked]
    titles = ("problem", *next(iter(rows.values())))
    lines = [PEERS_HEAD, "| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for name, row in rows.items():
        cells = [shown(errors) for errors in row.values()]
        if name in marked:
            lines.append("| " + " | ".join([name, *cells]) + " |")
    lines.append(
        f"\nGradient and Hessian product of CVODES are no more accurate than ours in "
        f"{len(as_good)} of the {len(marked)}: {', '.join(as_good)}."
    )
    return lines


def shown(errors: list[float] | None) -> str:
    """Return the errors of gradient and Hessian product."""
    return " ".join(f"{error:.0e}" for error in errors[1:]) if errors else "-"


def as_good_as_cvodes(row: dict[str, list[float]]) -> bool:
    """Return whether neither gradient nor Hessian product of CVODES is more accurate than ours."""
    return all(a <= b for a, b in zip(row["ours"][1:], row["CVODES"][1:], strict=True))


def within_limit(case: Case | FitCase, style: str) -> Outcome:
    """Run a case in a process of its own, which is ended if it takes too long."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
        results.put(run(case, style))

    process = context.Process(target=work)
    process.start()
    while process.is_alive() and results.empty():
        time.sleep(0.02)
    if results.empty():
        if process.exitcode == -signal.SIGXCPU:
            return Outcome("slow", None, LIMIT)
        return Outcome("failed", None, 0.0, f"the process ended with code {process.exitcode}")
    outcome = results.get()
    process.join()
    return outcome


def main(names: list[str]) -> int:
    """Run the cases whose names contain one of the given parts, and write the page."""
    surprises = 0
    for case in (*CASES, *FITS):
        if names and not any(part in case.name for part in names):
            continue
        outcomes = []
        for style in case.styles:
            outcome = within_limit(case, style)
            outcomes.append(outcome)
            mark = case.marks[style]
            surprise = "" if mark.partition(":")[0] == outcome.verdict else f"   MARKED {mark}"
            surprises += bool(surprise)
            errors = " ".join(f"{error:.1e}" for error in outcome.errors or ())
            message = " / ".join(outcome.message.splitlines())
            print(
                f"{case.name:40s} {style:8s} {outcome.verdict:10s} {errors:24s} "
                f"{outcome.seconds:6.2f} s {message}{surprise}",
                flush=True,
            )
        record(case.name, measured_cells(outcomes))
    record()
    return surprises


def record(name: str = "", cells: Sequence[str] = ()) -> None:
    """Write the page with new measured cells of one problem."""
    known = rows_of(PAGE.read_text()) if PAGE.exists() else {}
    measured = {name: cells[FIXED:] for name, cells in known.items()}
    if name:
        measured[name] = list(cells)
    new = PAGE.with_suffix(".new")
    new.write_text(page(measured))
    new.replace(PAGE)
