"""What is supported: every method x form x cost x parameters x steps x engine, proved or refused.

Each cell of docs/support.md either passes (independent program, adjoint against tangent, for fixed
steps a Taylor test) or raises an error that names an alternative.  The test writes the page, and
fails if the committed one differs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import frozen
import numpy as np
import pytest
from zoo import COSTS, FORMS, METHODS, NAMES, P0, T_END, U0, initial_state, make_stepping
from zoo import OBSERVATION_TIMES as TIMES

from daeosens import (
    InputError,
    Parameter,
    Parameters,
    Reduced,
    UnsupportedError,
    adjoint,
    solve,
    tangent,
)

PAGE = Path(__file__).parents[1] / "docs" / "support.md"
CASES = list(COSTS.values())
OBJECTIVES = [case.objective for case in CASES]
TARGETS = ("u0", "p", "u0(p)")
ENGINES = ("steps", "tsadjoint")
STEPS = ("fixed", "adaptive")
FOLLOWING = Parameters(
    {name: Parameter(value, scale="log") for name, value in zip(NAMES, P0, strict=True)},
    initial_state=initial_state,
)


def error(ours, reference):
    return abs(ours - reference).max() / max(abs(reference).max(), 1e-3)


def reference(form, method, run):
    """Gradients of all costs in u0, p and x (u0 following p), by an independent program."""
    log = (run.times, run.step_sizes)
    by_u0, by_p = frozen.gradients(form, method, log, CASES, U0, P0)
    by_x = np.empty((len(CASES), 3))
    for j in range(3):
        p = P0 * np.exp(1j * frozen.STEP * np.eye(3)[j])
        by_x[:, j] = frozen.values(form, method, log, CASES, initial_state(p), p).imag
    return {"u0": by_u0, "p": by_p, "u0(p)": by_x / frozen.STEP}


def duality(run, case, gradient):
    rng = np.random.default_rng(7)
    du0, dp = rng.normal(size=3), rng.normal(size=3)
    forward = tangent(run, du0, dp).derivative(case.objective)
    backward = gradient.u0 @ du0 + gradient.p @ dp
    scale = np.linalg.norm(gradient.u0) * np.linalg.norm(du0) + np.linalg.norm(
        gradient.p
    ) * np.linalg.norm(dp)
    return abs(forward - backward) / scale


def taylor_order(problem, stepping, objective, engine):
    functional = Reduced(problem, objective, stepping, FOLLOWING, engine=engine)
    x, direction = functional.start(), functional.start()
    direction.setArray([0.3, -0.5, 0.8])
    value, gradient = functional.value_and_gradient(x)
    remainders = []
    for eps in (4e-3, 2e-3):
        moved = x.copy()
        moved.axpy(eps, direction)
        remainders.append(abs(functional.value(moved) - value - eps * gradient.dot(direction)))
    if remainders[1] < 1e-12 * abs(value):  # the cost is linear or does not see the direction
        return 2.0
    return float(np.log2(remainders[0] / remainders[1]))


@cache
def cell(name, method, steps, engine):
    """Return the (cost, target) pairs that are proved, or the error that refuses the cell."""
    form = FORMS[name]
    problem = form.analytic
    try:
        stepping = make_stepping(method, adaptive=steps == "adaptive")
        run = solve(problem, U0, P0, stepping, TIMES)
        gradients = adjoint(run, OBJECTIVES, engine)
    except (UnsupportedError, InputError) as refusal:
        return refusal
    exact = reference(form, method, run)
    proved = set()
    for k, (case, gradient) in enumerate(zip(CASES, gradients, strict=True)):
        order = 2.0
        if steps == "fixed" and engine == "steps":
            order = taylor_order(problem, stepping, case.objective, engine)
        if duality(run, case, gradient) > 1e-12 or order < 1.9:
            continue
        ours = {
            "u0": gradient.u0,
            "p": gradient.p,
            "u0(p)": FOLLOWING.pull_back(problem, FOLLOWING.start(problem), gradient).getArray(),
        }
        proved |= {
            (case.name, target)
            for target in TARGETS
            if error(ours[target], exact[target][k]) < 1e-12
        }
    return frozenset(proved)


EVERYTHING = frozenset((case.name, target) for case in CASES for target in TARGETS)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_each_cell_is_proved_or_refused_with_an_alternative(name, method):
    for steps in STEPS:
        for engine in ENGINES:
            result = cell(name, method, steps, engine)
            if isinstance(result, Exception):
                assert "try:" in str(result), result
            else:
                assert result == EVERYTHING, (steps, engine, EVERYTHING - result)


def test_the_page_is_up_to_date():
    before = PAGE.read_text() if PAGE.exists() else ""
    page = write_page()
    PAGE.write_text(page)
    assert page == before, "docs/support.md was rewritten: commit it"


# ---- the page ------------------------------------------------------------------------------------


HEAD = """\
# Support

Written by `tests/test_support.py`, which proves every cell on a nonlinear, non-autonomous problem
with three states and three parameters, over (0, {end}) with a last step that is cut short.

"yes" stands for {proofs} proofs: {n_costs} costs ({costs}) times
derivatives with respect to u0, p, and parameters that u0 follows.  Each agrees with an independent
program to 1e-12 and with the tangent to 1e-12; with fixed steps the Taylor remainder is of second
order.  "no (k)" is refused with the message of note k.
"""


def words(result, notes):
    """Return "yes", or "no" with the number of the note that says why and what to use."""
    if not isinstance(result, Exception):
        return "yes"
    text = " ".join(str(result).split())
    for part in ("Stepping: 1 problem - ", "expected: "):
        text = text.replace(part, "" if part.startswith("Stepping") else "; needs ")
    text = text.replace(" try: ", "; use ").replace(" ;", ";").replace(";;", ";")
    for method in METHODS:
        text = text.replace(f'method = "{method}"', "the method").replace(
            f'"{method}" has', "it has"
        )
    if text not in notes:
        notes.append(text)
    return f"no ({notes.index(text) + 1})"


def write_page():
    notes = []
    rows = {
        (name, method): {
            (steps, engine): words(cell(name, method, steps, engine), notes)
            for steps in STEPS
            for engine in ENGINES
        }
        for name in FORMS
        for method in METHODS
    }
    costs = ", ".join(case.name for case in CASES)
    lines = [
        *HEAD.format(proofs=len(EVERYTHING), n_costs=len(CASES), costs=costs, end=T_END).split(
            "\n"
        ),
        "## Summary: engine `steps`, fixed steps",
        "",
        "| method | " + " | ".join(form.heading for form in FORMS.values()) + " |",
        "|---|" + "---|" * len(FORMS),
    ]
    for method in METHODS:
        cells = [rows[name, method]["fixed", "steps"] for name in FORMS]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    for name, form in FORMS.items():
        lines += [
            "",
            f"## {form.heading}",
            "",
            "| method | " + " | ".join(f"{s} steps, `{e}`" for e in ENGINES for s in STEPS) + " |",
            "|---|" + "---|" * 4,
        ]
        for method in form.methods:
            cells = [rows[name, method][s, e] for e in ENGINES for s in STEPS]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
        if METHODS[0] not in form.methods:
            text = rows[name, METHODS[0]]["fixed", "steps"]
            lines.append("| rk1fe ... rk8vr | " + " | ".join([text] * 4) + " |")
    lines += ["", "## Notes", ""]
    lines += [f"{k}. {note}" for k, note in enumerate(notes, start=1)]
    return "\n".join(lines) + "\n"
