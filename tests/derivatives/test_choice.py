"""Which engine sweeps: chosen by what the problem is, reported, and refused where it cannot be."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from petsc4py import PETSc
from scipy import sparse

import daeosens as ds
from daeosens.derivatives import HessianProduct, gauss_newton_product
from daeosens.derivatives.engines.choice import choose_engine, choose_sweep
from daeosens.derivatives.engines.limits import MANY_POINTS, POINT_BY_POINT, SPARSE_SOLVES
from daeosens.problem import Problem, Products
from daeosens.problem.grids import Grid
from daeosens.timestepping import Trajectory
from tests.support import batched, forms

LARGE, SMALL = MANY_POINTS, POINT_BY_POINT
STEPPING = ds.Stepping((0.0, 0.2), "cn", dt=0.1)
COST = ds.Terminal(lambda t, u, p: u[0], lambda t, u, p: np.eye(len(u))[0], "independent")
DECAY = ds.ODE(lambda t, u, p: -p[0] * u, 1, 1)


def hessian_product_of_cost(run: Trajectory, engine: Any) -> HessianProduct:
    return ds.hessian_product(run, COST, [1.0], engine=engine)


def run_of(problem: Problem, n: int = 1, m: int = 1) -> Trajectory:
    return ds.solve(problem, np.ones(n), np.full(m, 0.5), STEPPING)


def by_products() -> Problem:
    by_u = Products(lambda t, u, p, v: -p[0] * v, lambda t, u, p, w: -p[0] * w)
    return ds.ODE(lambda t, u, p: -p[0] * u, 1, 1, jacobian=by_u)


def with_event() -> Problem:
    halved = ds.Event(0.1, lambda t, u, p: 0.5 * u)
    return ds.ODE(lambda t, u, p: -p[0] * u, 1, 1, events=[halved])


def with_modes() -> Problem:
    hot = ds.Event(lambda t, u, p: u[0] - 9.0, mode="on", name="hot")
    return ds.hybrid({"on": DECAY, "off": DECAY}, "off", [hot])


EVENTS = {"a run through events": with_event, "equations with modes": with_modes}
IMPOSSIBLE = {
    r"F\(t, u, u', p\) = 0": lambda: ds.DAE(lambda t, u, udot, p: udot + p[0] * u, 1, 1),
    "a mass that depends on the parameters": lambda: ds.ODE(
        lambda t, u, p: -u, 1, 1, mass=lambda p: np.array([[p[0]]])
    ),
    "a jacobian that is given by products": by_products,
}


@pytest.mark.parametrize("reason", IMPOSSIBLE)
def test_blocks_are_refused_with_the_reason_and_auto_takes_steps(reason: str):
    run = run_of(IMPOSSIBLE[reason]())
    match = rf'engine = "arrays" for {reason}\n  expected: M u.*\n  try: engine="vectors"'
    with pytest.raises(ds.UnsupportedError, match=match):
        ds.adjoint(run, COST, "arrays")
    with pytest.raises(ds.UnsupportedError, match=match):
        ds.sensitivities(run, engine="arrays")
    assert ds.adjoint(run, COST).engine == "vectors"


@pytest.mark.parametrize("kind", EVENTS)
def test_windows_between_events_go_in_blocks(kind: str):
    run = run_of(EVENTS[kind]())
    assert ds.adjoint(run, COST).engine == ds.adjoint(run, COST, "arrays").engine == "arrays"
    assert hessian_product_of_cost(run, engine="arrays").engine == "arrays"
    assert hessian_product_of_cost(run, engine="auto").engine == "arrays"
    assert ds.tangent(run, [1.0], None).engine == "arrays"


def test_blocks_are_refused_for_petsc_style_callbacks():
    def fill(t: float, u: Any, p: Any, out: Any) -> None:
        out.zeroEntries()
        out.shift(-p[0])

    template = PETSc.Vec().createSeq(2, comm=PETSc.COMM_SELF)
    problem = ds.ODE(
        lambda t, u, p, out: out.axpby(-p[0], 0.0, u),
        state=template,
        parameters=1,
        jacobian=fill,
        jacobian_p=lambda t, u, p, out: out.setValues([0, 1], [0], -u.array) or out.assemble(),
    )
    run = run_of(problem, 2)
    with pytest.raises(ds.UnsupportedError, match='engine = "arrays" for PETSc-style callbacks'):
        choose_engine(run, "arrays")
    assert choose_engine(run, "auto") == ("vectors", "not arrays: PETSc-style callbacks")


@pytest.mark.parametrize(
    ("many", "n", "expected"),
    [
        (False, SMALL, "arrays"),
        (False, SMALL + 1, "vectors"),
        (True, SMALL + 1, "arrays"),
        (True, LARGE + 1, "vectors"),
    ],
)
def test_auto_chooses_by_size_and_blocks_can_be_forced(many: bool, n: int, expected: str):
    problem = ds.ODE(lambda t, u, p: -p[0] * u, n, 1, jacobian=lambda t, u, p: u, batched=many)
    stepping = ds.Stepping((0.0, 0.2), "rk4", dt=0.1)
    run = ds.solve(problem, np.ones(n), [0.5], stepping)
    assert choose_engine(run, "auto").engine == expected
    for engine in ("arrays", "vectors"):
        assert choose_engine(run, engine) == (engine, "asked for")


@pytest.mark.parametrize(
    ("function", "method", "expected"),
    [
        (lambda t, u, p: p.A @ u, "rk4", ("arrays", "arrays")),
        (lambda t, u, p: p.A @ u, "cn", ("arrays", "arrays")),
        (lambda t, u, p: np.roll(u, 1) - u**3 + p.A[0, 0], "rk4", ("arrays", "vectors")),
        (lambda t, u, p: np.roll(u, 1) - u**3 + p.A[0, 0], "cn", ("vectors", "vectors")),
    ],
)
def test_large_traced_models_sweep_adjoints_in_blocks_unless_steps_solve_with_sparse_matrices(
    function: Callable[..., Any], method: str, expected: tuple[str, str]
):
    n = SPARSE_SOLVES + 1
    model = ds.trace(function, n, {"A": (n, n)})
    run = ds.solve(model, np.ones(n), np.zeros(n * n), ds.Stepping((0.0, 0.2), method, dt=0.1))
    chosen = choose_engine(run, "auto"), choose_sweep(run, "auto", rows=100)
    assert tuple(choice.engine for choice in chosen) == expected
    assert choose_sweep(run, "arrays").engine == "arrays"


@pytest.mark.parametrize("engine", ["auto", "vectors", "arrays", "tsadjoint"])
def test_gradients_say_what_swept(engine: Any):
    run = run_of(DECAY)
    gradient = ds.adjoint(run, COST, engine)
    assert gradient.engine == ("arrays" if engine == "auto" else engine)
    factor = (1 - 0.025) / (1 + 0.025)
    assert abs(gradient.u0[0] - factor**2) < 1e-13


def test_results_say_why_an_engine_swept():
    """What was asked for, the measured limit, or what the others cannot; the same in print."""
    squares = ds.LeastSquares([0.2], [[0.0]], 1.0)
    few = f"up to {SMALL} unknowns ({POINT_BY_POINT.measured})"
    run = run_of(DECAY)
    assert ds.adjoint(run, COST).why == few
    assert (
        ds.adjoint(run, COST, "vectors").why
        == ds.adjoint(run, COST, "tsadjoint").why
        == "asked for"
    )
    assert repr(ds.adjoint(run, COST)).endswith(f"u0: [1], p: [1]; arrays: {few})")
    product = ds.hessian_product(run, COST, [1.0])
    assert product.gradient is not None
    assert product.why == product.gradient.why == few
    assert repr(product) == f"HessianProduct(u0: [1], p: [1]; arrays: {few})"
    assert ds.sensitivities(run).why == few
    assert repr(ds.tangent(run, [1.0])).endswith(f" (arrays: {few})")
    assert gauss_newton_product(run, squares, [1.0]).why == few
    implicit = run_of(IMPOSSIBLE[r"F\(t, u, u', p\) = 0"]())
    assert ds.adjoint(implicit, COST).why == "not arrays: F(t, u, u', p) = 0"


def test_results_say_why_nothing_was_swept_in_c():
    model = ds.trace(lambda t, u, p: -p[0] * u, 1, ["k"])
    run = ds.solve(model, [1.0], [0.5], ds.Stepping((0.0, 0.2), "rk4", dt=0.1))
    in_c, not_in_c = model.terminal(lambda t, u, p: u[0]), ds.Running(lambda t, u, p: u[0])
    assert ds.adjoint(run, in_c).why == ds.tangent(run, [1.0]).why == "all functions are in C"
    told = "; not compiled: running costs that are not in C, or through events"
    assert ds.adjoint(run, not_in_c).why.endswith(told)
    assert ds.hessian_product(run, not_in_c, [1.0]).why.endswith("; not compiled: running costs")
    run = ds.solve(model, [1.0], [0.5], STEPPING)
    told = "; not compiled: directions along steps of cn"
    assert ds.hessian_product(run, in_c, [1.0]).why.endswith(told)


def test_results_on_grids_say_so():
    grid = Grid(((0.0, 1.0),), (8,), "zero")
    model = ds.trace_stencil(lambda t, u, p: p.k * u.laplacian(), grid, ["k"])
    run = ds.solve(model, grid.create_vec(), [0.1], STEPPING)
    told = "not arrays: equations on a grid; not compiled: steps of cn on a grid"
    cost = ds.Terminal(lambda t, u, p: u.sum(), lambda t, u, p, out: out.set(1.0), "independent")
    assert ds.adjoint(run, cost).why == told


def test_a_reduced_functional_takes_any_engine():
    problem = batched.batched_problem("rhs", "products")
    stepping = forms.make_stepping("rk5dp")
    entries = {name: ds.Parameter(value) for name, value in zip(forms.NAMES, forms.P0, strict=True)}
    control = ds.Parameters(entries, initial_state=forms.U0)
    gradients = [
        ds.Reduced(problem, forms.ANALYTIC_COST, stepping, control, engine=engine).gradient(
            forms.P0
        )
        for engine in ("auto", "arrays", "vectors")
    ]
    first, *others = (np.asarray(gradient.array, float) for gradient in gradients)
    for other in others:
        assert np.abs(other - first).max() < 1e-13 * np.abs(first).max()


def test_unknown_engines_are_named():
    unknown: Any = "blocks"
    of_adjoints_alone: Any = "tsadjoint"
    with pytest.raises(ds.InputError, match=r'engine = .blocks.\n  expected: "auto", "vectors"'):
        ds.adjoint(run_of(DECAY), COST, unknown)
    with pytest.raises(ds.InputError, match=r'engine = .tsadjoint.\n  expected: "auto", "vectors"'):
        ds.sensitivities(run_of(DECAY), engine=of_adjoints_alone)


KURAMOTO = ds.trace(
    lambda t, u, p: p.w + p.k / 40 * np.sin(u[None, :] - u[:, None]).sum(axis=1),
    40,
    {"w": (40,), "k": ()},
)


def test_one_cost_of_a_compiled_model_is_swept_in_c_at_any_size():
    """Blocks would form a Jacobian at each point."""
    u0, p = np.linspace(0.0, 1.0, 40), np.append(np.linspace(-1.0, 1.0, 40), 1.5)
    cost = KURAMOTO.terminal(lambda t, u, p: np.cos(u).sum())
    run = ds.solve(KURAMOTO, u0, p, ds.Stepping((0.0, 0.5), "rk4", dt=0.1))
    by_name = {engine: ds.adjoint(run, cost, engine) for engine in ("auto", "compiled", "arrays")}
    names = [by_name[engine].engine for engine in ("auto", "compiled", "arrays")]
    assert names == ["compiled", "compiled", "arrays"]
    for gradient in by_name.values():
        np.testing.assert_allclose(gradient.u0, by_name["arrays"].u0, rtol=1e-12)
        np.testing.assert_allclose(gradient.p, by_name["arrays"].p, rtol=1e-12, atol=1e-14)
    assert ds.tangent(run, u0, engine="compiled").engine == "compiled"
    assert ds.hessian_product(run, cost, u0, engine="compiled").engine == "compiled"
    assert {item.engine for item in ds.adjoint(run, [cost] * 5)} == {"arrays"}


def test_what_cannot_be_compiled_says_why():
    run = run_of(DECAY)
    cases: dict[str, Callable[[], object]] = {
        r"jacobian and rhs not in C": lambda: ds.adjoint(run, COST, "compiled"),
        r"hessian_product, pull, push, rhs not in C": lambda: ds.tangent(
            run, [1.0], None, "compiled"
        ),
    }
    model = ds.trace(lambda t, u, p: -p[0] * u, 1, ["k"])
    compiled = ds.solve(model, [1.0], [0.5], ds.Stepping((0.0, 0.2), "rk4", dt=0.1))
    costs = [model.terminal(lambda t, u, p: u[0])] * 3
    cases["3 rows: 2 are carried one beside"] = lambda: ds.adjoint(compiled, costs, "compiled")
    integral = ds.Running(lambda t, u, p: u[0])
    cases["running costs that are not in C"] = lambda: ds.adjoint(compiled, integral, "compiled")
    cases["running costs"] = lambda: ds.hessian_product(
        compiled, integral, [1.0], engine="compiled"
    )
    for reason, sweep in cases.items():
        with pytest.raises(ds.UnsupportedError, match=f'engine = "compiled" for {reason}'):
            sweep()


@pytest.mark.slow
def test_sparse_models_are_sparse_in_every_engine(rng: np.random.Generator):
    """Couplings as a constant matrix: no Jacobian is formed row by row, and its zeros are left."""
    n = 300
    couplings: Any = sparse.random_array((n, n), density=0.01, rng=rng, format="csr")
    model = ds.trace(lambda t, u, p: couplings @ u - p.k * u**3, n, {"k": ()})
    pattern = model.native["jacobian"].pattern
    assert pattern is not None
    assert len(pattern[1]) < couplings.nnz + n + 1
    u0, p = np.linspace(0.1, 1.0, n), [0.7]
    cost = model.terminal(lambda t, u, p: u @ u)
    for method in ("rk4", "cn"):
        run = ds.solve(model, u0, p, ds.Stepping((0.0, 0.2), method, dt=0.1))
        ours, others = (
            ds.adjoint(run, cost),
            [ds.adjoint(run, cost, value) for value in ("arrays", "vectors")],
        )
        for other in others:
            np.testing.assert_allclose(ours.u0, other.u0, rtol=1e-12)
            np.testing.assert_allclose(ours.p, other.p, rtol=1e-12)


@pytest.mark.slow
def test_factors_that_fill_up_are_dense(rng: np.random.Generator):
    n = 150
    couplings: Any = sparse.random_array((n, n), density=0.1, rng=rng, format="csr")
    model = ds.trace(lambda t, u, p: p.k * (couplings @ np.tanh(u)) - u, n, {"k": ()})
    matrix = model.rhs_u.create(0.0, model.create_state(), np.ones(1))
    assert matrix.getType() == PETSc.Mat.Type.SEQDENSE
    chain = ds.trace(lambda t, u, p: p.k * (np.roll(u, 1) - u), n, {"k": ()})
    assert chain.rhs_u.create(0.0, chain.create_state(), np.ones(1)).getType() != matrix.getType()
    u = rng.uniform(0.1, 1.0, n)
    state = model.admit_state(u)
    model.rhs_u.fill(0.0, state, np.array([0.5]), matrix)
    expected: Any = 0.5 * couplings.toarray() / np.cosh(u) ** 2 - np.eye(n)
    np.testing.assert_allclose(matrix.getDenseArray(), expected, rtol=1e-12, atol=1e-14)
    run = ds.solve(model, u, [0.5], ds.Stepping((0.0, 0.2), "cn", dt=0.1))
    cost = model.terminal(lambda t, u, p: u @ u)
    ours, other = ds.adjoint(run, cost), ds.adjoint(run, cost, "arrays")
    np.testing.assert_allclose(ours.u0, other.u0, rtol=1e-11)


@pytest.mark.parametrize(("sparse", "engine"), [(False, "arrays"), (True, "vectors")])
def test_stages_are_swept_by_arrays_unless_their_matrices_are_sparse(sparse, engine):
    n = 130
    coupling = np.ones((n, n)) / n

    def rhs(t, u, p):
        near = np.concatenate([u[1:], u[:1]]) if sparse else coupling @ u
        return -p[0] * u + 0.1 * near * u

    run = ds.solve(
        ds.ODE(rhs, n, 1), np.ones(n), [0.5], ds.Stepping((0.0, 1.0), "esdirk4", dt=0.25)
    )
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    assert gradient.engine == engine


def test_rows_of_stages_in_c_are_few_where_each_goes_through_a_long_graph(rng):
    """All-to-all oscillators: blocks take a fifth of the time for all; reactions the other way."""
    stepping = ds.Stepping((0.0, 0.2), "esdirk4", dt=0.1)
    n = 33

    def oscillators(t, u, p):
        return p.w + p.k / n * np.sin(u[None, :] - u[:, None]).sum(axis=1)

    pairs = ds.trace(oscillators, n, {"w": (n,), "k": ()})
    run = ds.solve(pairs, rng.uniform(0.1, 0.5, n), np.append(rng.normal(size=n), 1.5), stepping)
    matrices = ds.sensitivities(run)
    assert matrices.engine == "arrays"
    expected = ds.sensitivities(run, engine="compiled")
    for ours, other in ((matrices.u0, expected.u0), (matrices.p, expected.p)):
        np.testing.assert_allclose(ours, other, rtol=0.0, atol=1e-13 * np.abs(other).max())
    costs = [pairs.terminal(lambda t, u, p, k=k: u[k] ** 2) for k in range(3)]
    assert [gradient.engine for gradient in ds.adjoint(run, costs)] == ["compiled"] * 3
    # as many rows of as many unknowns, dense as well, each of few operations
    taking_part = rng.integers(0, 20, (30, 4)).tolist()

    def reactions(t, u, p):
        out = [-0.1 * u[k] for k in range(20)]
        for k, (a, b, c, d) in enumerate(taking_part):
            rate = p.k[k] * u[a] * u[b]
            for i, sign in ((a, -1), (b, -1), (c, 1), (d, 1)):
                out[i] = out[i] + sign * rate
        return np.array(out)

    kinetics = ds.trace(reactions, 20, {"k": (30,)})
    assert kinetics.native["jacobian"].pattern is None
    run = ds.solve(kinetics, rng.uniform(0.1, 0.5, 20), rng.uniform(0.2, 1.0, 30), stepping)
    assert ds.sensitivities(run).engine == "compiled"
    # sparse matrices stay sparse in C, for any number of rows
    chain = ds.trace(lambda t, u, p: p.k * (np.roll(u, 1) - u), 60, {"k": ()})
    run = ds.solve(chain, rng.uniform(0.1, 0.5, 60), [1.0], stepping)
    assert ds.sensitivities(run).engine == "compiled"
    # products with dense matrices, by BLAS for many rows of many unknowns
    network = ds.trace(lambda t, u, p: np.tanh(p.W @ u) - u, 40, {"W": (40, 40)})
    run = ds.solve(network, rng.uniform(0.1, 0.5, 40), 0.1 * rng.normal(size=1600), stepping)
    assert ds.sensitivities(run).engine == "arrays"
    costs = [network.terminal(lambda t, u, p, k=k: u[k] ** 2) for k in range(8)]
    assert ds.adjoint(run, costs)[0].engine == "compiled"
