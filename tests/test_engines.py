"""Which engine sweeps: chosen by what the problem is, reported, and refused where it cannot be."""

import batched
import forms
import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import (
    DAE,
    ODE,
    Event,
    InputError,
    Parameter,
    Parameters,
    Products,
    Reduced,
    Stepping,
    Terminal,
    UnsupportedError,
    adjoint,
    hessian_product,
    hybrid,
    sensitivities,
    solve,
    trace,
)
from daeosens.engines import LARGE, SMALL, choose_engine, choose_sweep

STEPPING = Stepping((0.0, 0.2), "cn", dt=0.1)
COST = Terminal(lambda t, u, p: u[0], lambda t, u, p: np.eye(len(u))[0], "independent")
DECAY = ODE(lambda t, u, p: -p[0] * u, 1, 1)


def hessian_product_of_cost(run, engine):
    return hessian_product(run, COST, [1.0], engine=engine)


def run_of(problem, n=1, m=1):
    return solve(problem, np.ones(n), np.full(m, 0.5), STEPPING)


def by_products():
    by_u = Products(lambda t, u, p, v: -p[0] * v, lambda t, u, p, w: -p[0] * w)
    return ODE(lambda t, u, p: -p[0] * u, 1, 1, jacobian=by_u)


def with_event():
    halved = Event(0.1, lambda t, u, p: 0.5 * u)
    return ODE(lambda t, u, p: -p[0] * u, 1, 1, events=[halved])


def with_modes():
    hot = Event(lambda t, u, p: u[0] - 9.0, mode="on", name="hot")
    return hybrid({"on": DECAY, "off": DECAY}, "off", [hot])


SECOND_ORDER_ONLY = {
    "a run through events": with_event,
    "equations with modes": with_modes,
}
IMPOSSIBLE = {
    r"F\(t, u, u', p\) = 0": lambda: DAE(lambda t, u, udot, p: udot + p[0] * u, 1, 1),
    "a mass that depends on the parameters": lambda: ODE(
        lambda t, u, p: -u, 1, 1, mass=lambda p: np.array([[p[0]]])
    ),
    "a jacobian that is given by products": by_products,
}


@pytest.mark.parametrize("reason", IMPOSSIBLE)
def test_blocks_are_refused_with_the_reason_and_auto_takes_steps(reason):
    run = run_of(IMPOSSIBLE[reason]())
    match = rf'engine = "block" for {reason}\n  expected: M u.*\n  try: engine="steps"'
    with pytest.raises(UnsupportedError, match=match):
        adjoint(run, COST, "block")
    with pytest.raises(UnsupportedError, match=match):
        sensitivities(run, engine="block")
    assert adjoint(run, COST).engine == "steps"


@pytest.mark.parametrize("reason", SECOND_ORDER_ONLY)
def test_events_are_for_adjoints_in_blocks_only(reason):
    run = run_of(SECOND_ORDER_ONLY[reason]())
    assert adjoint(run, COST).engine == adjoint(run, COST, "block").engine == "block"
    for function in (sensitivities, hessian_product_of_cost):
        with pytest.raises(UnsupportedError, match=rf'engine = "block" for {reason}\n'):
            function(run, engine="block")
    assert hessian_product_of_cost(run, engine="auto").engine == "steps"


def test_blocks_are_refused_for_petsc_style_callbacks():
    def fill(t, u, p, out):
        out.zeroEntries()
        out.shift(-p[0])

    template = PETSc.Vec().createSeq(2, comm=PETSc.COMM_SELF)
    problem = ODE(
        lambda t, u, p, out: out.axpby(-p[0], 0.0, u),
        state=template,
        parameters=1,
        jacobian=fill,
        jacobian_p=lambda t, u, p, out: out.setValues([0, 1], [0], -u.array) or out.assemble(),
    )
    run = run_of(problem, 2)
    with pytest.raises(UnsupportedError, match='engine = "block" for PETSc-style callbacks'):
        choose_engine(run, "block")
    assert choose_engine(run, "auto") == "steps"


@pytest.mark.parametrize(
    ("many", "n", "expected"),
    [
        (False, SMALL, "block"),
        (False, SMALL + 1, "steps"),
        (True, SMALL + 1, "block"),
        (True, LARGE + 1, "steps"),
    ],
)
def test_auto_chooses_by_size_and_blocks_can_be_forced(many, n, expected):
    problem = ODE(lambda t, u, p: -p[0] * u, n, 1, jacobian=lambda t, u, p: u, batched=many)
    stepping = Stepping((0.0, 0.2), "rk4", dt=0.1)
    run = solve(problem, np.ones(n), [0.5], stepping)
    assert choose_engine(run, "auto") == expected
    assert choose_engine(run, "block") == "block"
    assert choose_engine(run, "steps") == "steps"


@pytest.mark.parametrize(
    ("function", "method", "expected"),
    [
        (lambda t, u, p: p.A @ u, "rk4", ("block", "block")),
        (lambda t, u, p: p.A @ u, "cn", ("block", "block")),
        (lambda t, u, p: np.roll(u, 1) - u**3 + p.A[0, 0], "rk4", ("block", "steps")),
        (lambda t, u, p: np.roll(u, 1) - u**3 + p.A[0, 0], "cn", ("steps", "steps")),
    ],
)
def test_large_traced_models_sweep_adjoints_in_blocks_unless_steps_solve_with_sparse_matrices(
    function, method, expected
):
    n = SMALL + 1
    model = trace(function, n, {"A": (n, n)})
    run = solve(model, np.ones(n), np.zeros(n * n), Stepping((0.0, 0.2), method, dt=0.1))
    assert (choose_engine(run, "auto"), choose_sweep(run, "auto")) == expected
    assert choose_sweep(run, "auto", first_adjoints=True) == expected[0]
    assert choose_sweep(run, "block") == "block"


@pytest.mark.parametrize("engine", ["auto", "steps", "block", "tsadjoint"])
def test_gradients_say_what_swept(engine):
    run = run_of(DECAY)
    gradient = adjoint(run, COST, engine)
    assert gradient.engine == ("block" if engine == "auto" else engine)
    factor = (1 - 0.025) / (1 + 0.025)
    assert abs(gradient.u0[0] - factor**2) < 1e-13


def test_a_reduced_functional_takes_any_engine():
    problem = batched.batched_problem("rhs", "products")
    stepping = forms.make_stepping("rk5dp")
    entries = {name: Parameter(value) for name, value in zip(forms.NAMES, forms.P0, strict=True)}
    control = Parameters(entries, initial_state=forms.U0)
    gradients = [
        Reduced(problem, forms.ANALYTIC_COST, stepping, control, engine=engine).gradient(forms.P0)
        for engine in ("auto", "block", "steps")
    ]
    for gradient in gradients:
        assert (
            abs(gradient.array - gradients[2].array).max() < 1e-13 * abs(gradients[2].array).max()
        )


def test_unknown_engines_are_named():
    with pytest.raises(InputError, match=r'engine = .blocks.\n  expected: "auto", "steps"'):
        adjoint(run_of(DECAY), COST, "blocks")
    with pytest.raises(InputError, match=r'engine = .tsadjoint.\n  expected: "auto", "steps"'):
        sensitivities(run_of(DECAY), engine="tsadjoint")
