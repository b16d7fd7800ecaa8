"""What is supported: every method x form x cost x parameters x steps x engine, proved or refused.

Each cell of docs/support.md either passes (independent program, adjoint against tangent, Taylor
tests; for second derivatives symmetry, a Taylor test and the adjoint of the augmented system) or
raises an error that names an alternative.  Runs through events have a table of their own
(event_support.py).  The test writes the page, and fails if the committed one differs by more than
measured numbers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import event_support
import frozen
import numpy as np
import oracle
import pytest
from forms import (
    ADDITIVE,
    COSTS,
    DIAGONAL,
    EXPLICIT,
    NAMES,
    NO_ESTIMATE,
    P0,
    T_END,
    U0,
    initial_state,
    make_stepping,
)
from forms import FORMS as WRITTEN
from forms import METHODS as OF_ONE_PART
from forms import OBSERVATION_TIMES as TIMES

import daeosens as ds
from daeosens.derivatives import evaluate
from daeosens.petsc import read
from daeosens.tracing import trace_residual

# What is proved is what the steps make of states, costs and derivatives; a start off the algebraic
# equations of "M singular", or a parameter that moves them, is a layer that few steps see.
pytestmark = [
    pytest.mark.filterwarnings("ignore:a running cost varies faster"),
    pytest.mark.filterwarnings("ignore:the steps follow the states"),
]


FORMS = {
    **WRITTEN,
    **{
        f"{name} traced": replace(
            WRITTEN[name],
            name=f"{name} traced",
            heading=f"{WRITTEN[name].heading}, traced",
            analytic=trace_residual(WRITTEN[name].residual, 3, NAMES),
        )
        for name in ("F", "F linear")
    },
}

METHODS = OF_ONE_PART + ADDITIVE

PAGE = Path(__file__).parents[1] / "docs" / "support.md"
CASES = list(COSTS.values())
OBJECTIVES = [case.objective for case in CASES]
TARGETS = ("u0", "p", "u0(p)")
ENGINES = ("vectors", "tsadjoint")
STEPS = ("fixed", "adaptive")
DIRECTION = np.array([0.3, -0.5, 0.8])
FOLLOWING = ds.Parameters(
    {name: ds.Parameter(value, scale="log") for name, value in zip(NAMES, P0, strict=True)},
    initial_state=initial_state,
)


def error(ours, reference):
    return abs(ours - reference).max() / max(abs(reference).max(), 1e-3)


def reference(form, method, run):
    """Values of all costs, gradients in u0, p and x (u0 following p), by an independent program."""
    log = (run.times, run.step_sizes)
    values = frozen.values(form, method, log, CASES, U0, P0)
    by_u0, by_p = frozen.gradients(form, method, log, CASES, U0, P0)
    by_x = np.empty((len(CASES), 3))
    for j in range(3):
        p = P0 * np.exp(1j * frozen.STEP * np.eye(3)[j])
        by_x[:, j] = frozen.values(form, method, log, CASES, initial_state(p), p).imag
    return {"value": values, "u0": by_u0, "p": by_p, "u0(p)": by_x / frozen.STEP}


def dualities(run, gradients):
    """Return how far each gradient is from the tangent, along one direction."""
    rng = np.random.default_rng(7)
    du0, dp = rng.normal(size=3), rng.normal(size=3)
    along = ds.tangent(run, du0, dp, "vectors")
    result = []
    for case, gradient in zip(CASES, gradients, strict=True):
        forward = along.derivative(case.objective)
        backward = gradient.u0 @ du0 + gradient.p @ dp
        scale = np.linalg.norm(gradient.u0) * np.linalg.norm(du0) + np.linalg.norm(
            gradient.p
        ) * np.linalg.norm(dp)
        result.append(abs(forward - backward) / scale)
    return result


@cache
def values_at(name, method, steps, eps):
    """Return J(x + eps d) of all costs: the whole program, or (adaptive) the steps of the run."""
    form = FORMS[name]
    p = P0 * np.exp(eps * DIRECTION)
    if steps == "fixed":
        again = ds.solve(form.analytic, initial_state(p), p, make_stepping(method), TIMES)
        return [evaluate(again, case.objective) for case in CASES]
    taken = run_of(name, method, steps)
    log = (taken.times, taken.step_sizes)
    return frozen.values(form, method, log, CASES, initial_state(p), p)


def taylor_orders(values, k, slope, curvature=None):
    """Return the observed orders of the remainders with the gradient and with the Hessian."""
    value = values(0.0)[k]
    orders = []
    for sizes, terms in (((4e-3, 2e-3), 1), ((2e-2, 1e-2), 2)):
        if terms == 2 and curvature is None:
            break
        remainders = [
            abs(values(eps)[k] - value - eps * slope - (terms > 1 and eps**2 / 2 * curvature))
            for eps in sizes
        ]
        # the cost is a polynomial of too low a degree, or does not see the direction
        flat = remainders[1] < 1e-12 * abs(value)
        orders.append(terms + 1.0 if flat else float(np.log2(remainders[0] / remainders[1])))
    return orders


def pulled_back(problem, gradient):
    return FOLLOWING.pull_back(problem, FOLLOWING.start(problem), gradient).getArray()


def second_derivatives(form, run, case, directions, oracle_product):
    """Return d.H d in x, or None where symmetry, or the oracle along the first direction, fails."""
    x = FOLLOWING.start(form.analytic)
    dx = x.duplicate()
    dx.setArray(DIRECTION)
    pushed = FOLLOWING.push_forward(form.analytic, x, dx)
    rows = np.array([*directions, np.concatenate([read(part) for part in pushed])])
    du0, dp = rows[:, :3], rows[:, 3:]
    *products, along = ds.hessian_product(run, case.objective, du0, dp, engine="vectors")
    rows = np.array([np.concatenate([product.u0, product.p]) for product in products])
    if error(rows[0], oracle_product) > 1e-10:
        return None
    scale = np.linalg.norm(rows) * np.linalg.norm(directions)
    if abs(rows[0] @ directions[1] - rows[1] @ directions[0]) > 1e-12 * max(scale, 1e-3):
        return None
    return FOLLOWING.pull_back_second(form.analytic, x, dx, along).dot(dx)


@cache
def run_of(name, method, steps):
    """Return the run of a cell, or the error that refuses it."""
    try:
        stepping = make_stepping(method, adaptive=steps == "adaptive")
        return ds.solve(FORMS[name].analytic, U0, P0, stepping, TIMES)
    except (ds.UnsupportedError, ds.InputError) as refusal:
        return refusal


@cache
def gradients_of(name, method, steps, engine):
    """Return the gradients of all costs, or the error that refuses the cell."""
    run = run_of(name, method, steps)
    if isinstance(run, Exception):
        return run
    try:
        return ds.adjoint(run, OBJECTIVES, engine)
    except (ds.UnsupportedError, ds.InputError) as refusal:
        return refusal


def proofs(name, method, steps):
    """Yield for each engine the (cost, target) pairs that are proved, or the error that refuses."""
    form, run = FORMS[name], run_of(name, method, steps)
    exact = None if isinstance(run, Exception) else reference(form, method, run)
    for engine in ENGINES:
        gradients = gradients_of(name, method, steps, engine)
        if isinstance(gradients, Exception):
            yield engine, gradients
            continue
        curvatures = [None] * len(CASES)
        if engine == "vectors":
            directions = np.random.default_rng(3).normal(size=(2, 6))
            products = oracle.products(form, run, CASES, directions[0, :3], directions[0, 3:])
            curvatures = [
                second_derivatives(form, run, case, directions, product)
                for case, product in zip(CASES, products, strict=True)
            ]
        proved = set()
        dual = dualities(run, gradients)
        for k, (case, gradient, curvature) in enumerate(
            zip(CASES, gradients, curvatures, strict=True)
        ):
            by_x = pulled_back(form.analytic, gradient)
            orders = [2.0]
            if engine == "vectors":
                values = partial(values_at, name, method, steps)
                orders = taylor_orders(values, k, by_x @ DIRECTION, curvature)
            missed = abs(gradient.value - exact["value"][k]) > 1e-12 * abs(gradient.value)
            if missed or dual[k] > 1e-12 or orders[0] < 1.9:
                continue
            ours = {"u0": gradient.u0, "p": gradient.p, "u0(p)": by_x}
            proved |= {
                (case.name, target)
                for target in TARGETS
                if error(ours[target], exact[target][k]) < 1e-12
            }
            if curvature is not None and orders[1] > 2.9:
                proved |= {(case.name, f"Hessian in {target}") for target in TARGETS}
        yield engine, proved


GRADIENTS = frozenset((case.name, target) for case in CASES for target in TARGETS)
HESSIANS = frozenset((case.name, f"Hessian in {target}") for case in CASES for target in TARGETS)
EVERYTHING = {"vectors": GRADIENTS | HESSIANS, "tsadjoint": GRADIENTS}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_each_cell_is_proved_or_refused_with_an_alternative(name, method):
    for steps in STEPS:
        for engine, result in proofs(name, method, steps):
            if isinstance(result, Exception):
                assert "try:" in str(result), result
            else:
                missing = EVERYTHING[engine] - result
                assert not missing, (steps, engine, missing)


@pytest.mark.parametrize("events", event_support.design(), ids=str)
def test_derivatives_through_events(events):
    proof = event_support.prove(events)
    assert proof.names == ("first", "event")
    assert proof.program < 1e-12
    assert proof.duality < 1e-12
    assert proof.symmetry < 1e-12
    assert proof.gradient < 1e-12
    assert proof.hessian < 1e-10
    assert proof.orders[0] > 1.9
    assert proof.orders[1] > 2.9
    assert proof.rest < 1e-12


def test_any_two_values_meet_in_some_cell_with_events():
    """But those that notes of the page refuse."""
    met = {pair for item in event_support.design() for pair in item.pairs}
    # Runge-Kutta with a mass or F, ESDIRK with M(p) or F, steps without an estimate
    refused = len(EXPLICIT) * 4 + len(DIAGONAL) * 2 + len({*NO_ESTIMATE} & {*OF_ONE_PART})
    sizes = [len(values) for values in event_support.AXES.values()]
    assert len(met) == (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2 - refused


UNMEASURED = event_support.Proof((), 0.0, 0.0, 0.0, 0.0, 0.0, (0.0, 0.0), 0.0)


@pytest.mark.slow
def test_the_page_is_up_to_date(tmp_path):
    """Other processes may have proved what it says: here the cells are only asked for refusals."""
    before = PAGE.read_text() if PAGE.exists() else ""
    if without_numbers(write_page(lambda _cell: UNMEASURED)) != without_numbers(before):
        new = tmp_path / "support.md"
        new.write_text(write_page(event_support.prove))
        pytest.fail(f"docs/support.md is to be the one that was written now: {new}")


def without_numbers(page):
    """Leave out measured orders and errors, which depend on the machine."""
    return re.sub(r"\d\.\d / \d\.\d|\de[+-]\d\d", "#", page)


# ---- the page ------------------------------------------------------------------------------------


HEAD = """\
# Support

Written by `tests/test_support.py`, which proves every cell on a nonlinear, non-autonomous problem
with three states and three parameters, over (0, {end}) with a last step that is cut short.

"yes" stands for {proofs} proofs of gradients: {n_costs} costs ({costs}) times
derivatives with respect to u0, p, and parameters that u0 follows.  Each agrees with an independent
program to 1e-12 and with the tangent to 1e-12, and its Taylor remainder is of second order.

With the engine `vectors` it stands for as many proofs of Hessian products: symmetric to 1e-12,
equal to 1e-10 to the first-order adjoint (PETSc's TSAdjoint where that is exact) of the system
augmented by its tangent, and with a Taylor remainder of third order.  Taylor tests of adaptive
steps are made with the steps that were taken.  "no (k)" is refused with the message of note k.
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
        for known, short in (
            (f'method = "{method}"', "the method"),
            (f'"{method}" has', "it has"),
            (f'"tsadjoint" with "{method}"', '"tsadjoint" with the method'),
        ):
            text = text.replace(known, short)
    if text not in notes:
        notes.append(text)
    return f"no ({notes.index(text) + 1})"


def write_page(prove):
    notes = []
    rows = {
        (name, method): {
            (steps, engine): words(gradients_of(name, method, steps, engine), notes)
            for steps in STEPS
            for engine in ENGINES
        }
        for name in FORMS
        for method in METHODS
    }
    costs = ", ".join(case.name for case in CASES)
    lines = [
        *HEAD.format(proofs=len(GRADIENTS), n_costs=len(CASES), costs=costs, end=T_END).split("\n"),
        "## Summary: engine `vectors`, fixed steps",
        "",
        "| method | " + " | ".join(form.heading for form in FORMS.values()) + " |",
        "|---|" + "---|" * len(FORMS),
    ]
    for method in METHODS:
        cells = [rows[name, method]["fixed", "vectors"] for name in FORMS]
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
        if METHODS[0] not in form.methods and name != "parts":
            text = rows[name, METHODS[0]]["fixed", "vectors"]
            lines.append("| rk1fe ... rk8vr | " + " | ".join([text] * 4) + " |")
    lines += ["", "## Notes", ""]
    lines += [f"{k}. {note}" for k, note in enumerate(notes, start=1)]
    lines += ["", *event_support.section(prove).splitlines()]
    return "\n".join(lines) + "\n"
