"""Second order, tangents and Jacobians in blocks: the numbers of the sweeps by steps."""

from functools import cache

import batched
import forms
import numpy as np
import pytest

import daeosens as ds
from daeosens.derivatives import gauss_newton_product
from daeosens.derivatives.engines.arrays import hessian as block_second_order
from daeosens.derivatives.engines.arrays import step_blocks as blocks
from daeosens.derivatives.hessian import Memory, hessian_sweep
from daeosens.derivatives.tangent import tangent_sweep
from daeosens.functional import InitialState
from daeosens.methods import find_method
from daeosens.problem import Products

# the running costs are part of what is proved, whatever the steps for the states make of them
pytestmark = pytest.mark.filterwarnings("ignore:a running cost varies faster")


RNG = np.random.default_rng(17)
DIRECTIONS = [
    *(tuple(pair) for pair in RNG.normal(size=(3, 2, 3))),
    (None, [0.0, 1.0, 0.0]),
    ([0.0, 0.0, 1.0], None),
]
RUNS = [
    run
    for run in forms.RUNS
    if run[0] in batched.MASSES and not (find_method(run[1]).stagewise and run[0] != "rhs")
]
each_run = pytest.mark.parametrize(
    ("name", "method", "adaptive"),
    RUNS,
    ids=[f"{name} {method} {'adaptive' if ad else 'fixed'}" for name, method, ad in RUNS],
)
FEW = [("rhs", "rk5dp"), ("rhs", "rk4"), ("M", "cn"), ("M singular", "beuler"), ("M", "midpoint")]


def trajectory(problem, method, adaptive=False, checkpoint="states"):
    stepping = forms.make_stepping(method, adaptive=adaptive)
    return ds.solve(
        problem, forms.U0, forms.P0, stepping, forms.OBSERVATION_TIMES, checkpoint=checkpoint
    )


def flat(products):
    return np.array([np.concatenate([product.u0, product.p]) for product in products])


def difference(ours, reference):
    return abs(ours - reference).max() / abs(reference).max()


@cache
def by_steps(name, method, adaptive):
    run = trajectory(forms.FORMS[name].analytic, method, adaptive)
    products = hessian_sweep(run, forms.ANALYTIC_COST, DIRECTIONS, engine="vectors")
    assert {product.engine for product in products} == {"vectors"}
    return flat(products), products[0].gradient


def assert_equal(products, reference):
    expected, gradient = reference
    assert {product.engine for product in products} == {"arrays"}
    assert difference(flat(products), expected) < 1e-12
    assert products[0].gradient.value == gradient.value
    assert difference(products[0].gradient.u0, gradient.u0) < 1e-13
    assert difference(products[0].gradient.p, gradient.p) < 1e-13


# ---- the numbers of the sweep by steps -----------------------------------------------------------


@each_run
def test_products_in_blocks_are_those_by_steps(name, method, adaptive):
    run = trajectory(forms.FORMS[name].analytic, method, adaptive)
    products = hessian_sweep(run, forms.ANALYTIC_COST, DIRECTIONS, engine="arrays")
    assert_equal(products, by_steps(name, method, adaptive))


@pytest.mark.slow
@pytest.mark.parametrize("value", batched.GIVEN)
@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(("name", "method"), [*FEW, ("M singular", "theta:0.7")])
def test_products_by_batched_callbacks_are_those_by_steps(name, method, adaptive, value):
    adaptive = adaptive and forms.can_adapt(name, method)
    run = trajectory(batched.batched_problem(name, value), method, adaptive)
    products = hessian_sweep(run, forms.ANALYTIC_COST, DIRECTIONS)
    reference = hessian_sweep(run, forms.ANALYTIC_COST, DIRECTIONS, engine="vectors")
    assert_equal(products, (flat(reference), reference[0].gradient))


@pytest.mark.parametrize("cost", forms.COSTS)
@pytest.mark.parametrize(("name", "method"), FEW)
def test_each_kind_of_cost(name, method, cost):
    run = trajectory(batched.batched_problem(name, "second derivatives"), method)
    objective = forms.COSTS[cost].objective
    block, steps = (
        flat(hessian_sweep(run, objective, DIRECTIONS, engine=engine))
        for engine in ("arrays", "vectors")
    )
    assert difference(block, steps) < 1e-12


@pytest.mark.parametrize("method", ["rk3bs", "rk5dp", "rk8vr"])
def test_stages_that_were_kept_are_used(method):
    run = trajectory(forms.FORMS["rhs"].analytic, method, checkpoint="stages")
    products = hessian_sweep(run, forms.ANALYTIC_COST, DIRECTIONS, engine="arrays")
    assert_equal(products, by_steps("rhs", method, False))


@pytest.mark.parametrize("method", ["rk4", "rk5dp", "beuler", "cn", "midpoint"])
def test_equations_that_jump_are_seen_from_the_inside_of_each_step(method):
    def rhs(t, u, p):
        return np.where(t < 0.5, -p[0] * u, p[1] * u**2)

    problem = ds.ODE(rhs, 1, 2, breakpoints=[0.5])
    run = ds.solve(problem, [0.7], [0.4, 1.1], ds.Stepping((0.0, 1.0), method, dt=0.1))
    cost = ds.Terminal(lambda t, u, p: u[0] ** 2) + ds.Running(
        lambda t, u, p: u[0] ** 2 * (t < 0.5)
    )
    block, steps = (
        ds.hessian_product(run, cost, [0.3], [1.0, -0.4], engine)
        for engine in ("arrays", "vectors")
    )
    assert difference(flat([block]), flat([steps])) < 1e-13


def test_a_problem_without_parameters():
    """The closed form of u' = -u^2: u(T) = u0 / (1 + u0 T), d2u/du0^2 = -2 T / (1 + u0 T)^3."""
    problem = ds.ODE(lambda t, u, p: -(u**2), 1)
    run = ds.solve(problem, [0.8], None, ds.Stepping((0.0, 1.0), "rk8vr", dt=0.05))
    product = ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[0]), [1.0], engine="arrays")
    assert product.u0[0] == pytest.approx(-2 / 1.8**3, rel=1e-11)
    assert product.p.size == 0


# ---- independent evidence ------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["beuler", "cn", "midpoint", "theta:0.7", "rk4"])
def test_closed_form_of_decay(method):
    """u_N = u0 R(-a h)^N, R the method's rational function: second derivatives in u0 and a."""
    a, h, count, u0 = 0.8, 0.1, 12, 1.3
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 1, 1, batched=True)
    run = ds.solve(
        problem, [u0], [a], ds.Stepping((0.0, h * count), method, dt=h, options=forms.TIGHT)
    )
    growth = {
        "beuler": lambda z: 1 / (1 - z),
        "cn": lambda z: (1 + z / 2) / (1 - z / 2),
        "midpoint": lambda z: (1 + z / 2) / (1 - z / 2),
        "theta:0.7": lambda z: (1 + 0.3 * z) / (1 - 0.7 * z),
        "rk4": lambda z: 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24,
    }[method]
    x = np.exp(2j * np.pi * np.arange(32) / 32) * 0.1  # derivatives by Cauchy's formula
    values = growth(-(a + x) * h) ** count
    _, first, second = (
        np.mean(values * x.astype(complex) ** -k).real * factor
        for k, factor in enumerate((1, 1, 2))
    )
    cost = ds.Terminal(lambda t, u, p: u[0])
    by_u0, by_a = hessian_sweep(run, cost, [([1.0], None), (None, [1.0])], engine="arrays")
    assert by_u0.u0[0] == pytest.approx(0.0, abs=1e-14)
    assert by_u0.p[0] == pytest.approx(first, rel=1e-11)
    assert by_a.u0[0] == pytest.approx(first, rel=1e-11)
    assert by_a.p[0] == pytest.approx(u0 * second, rel=1e-10)


@pytest.mark.parametrize("value", batched.GIVEN)
@pytest.mark.parametrize(("name", "method"), FEW)
def test_products_are_symmetric(name, method, value):
    run = trajectory(batched.batched_problem(name, value), method)
    unit = np.eye(6)
    pairs = [(row[:3], row[3:]) for row in unit]
    matrix = flat(hessian_sweep(run, forms.ANALYTIC_COST, pairs, engine="arrays"))
    assert difference(matrix, matrix.T) < 1e-12


FOLLOWING = ds.Parameters(
    {
        "a": ds.Parameter(forms.P0[0], scale="log"),
        "b": ds.Parameter(forms.P0[1], scale="log"),
        "c": ds.Parameter(forms.P0[2]),
    },
    forms.initial_state,
)


@pytest.mark.parametrize(("name", "method"), FEW)
def test_reduced_hessians_pass_the_taylor_test(name, method):
    problem = batched.batched_problem(name, "second derivatives")
    stepping = forms.make_stepping(method)
    functionals = [
        ds.Reduced(problem, forms.ANALYTIC_COST, stepping, FOLLOWING, engine=engine)
        for engine in ("arrays", "vectors")
    ]
    orders = ds.taylor(functionals[0], hessian=True)
    assert min(orders) > 2.9, orders
    x = functionals[0].start()
    ours, reference = (functional.hessian(x) for functional in functionals)
    assert difference(ours, reference) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk5dp", "cn"])
def test_the_full_hessian_of_lotka_volterra(method):
    """By 24 initial values and rates, more than share a sweep here: also chunks are right."""
    n = 12
    problem = batched.lotka_volterra(n)
    start = np.full(n, 0.1)
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.2, rtol=1e-5, atol=1e-5)
    run = ds.solve(problem, start, batched.lotka_volterra_parameters(n), stepping)
    unit = np.eye(n, n + n * n)
    pairs = [(row, None) for row in np.eye(n)] + [(None, row) for row in unit]
    cost = ds.Terminal(lambda t, u, p: (u**2).sum(), lambda t, u, p: 2 * u, "independent")
    block, steps = (
        flat(hessian_sweep(run, cost, pairs, engine=engine)) for engine in ("arrays", "vectors")
    )
    assert difference(block, steps) < 1e-12
    square = block[:, : 2 * n]
    assert difference(square, square.T) < 1e-12


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_at_once", [1, 3, 7, 1000])
@pytest.mark.parametrize("together", [2, 64])
@pytest.mark.parametrize(("name", "method"), FEW)
def test_memory_is_bounded(name, method, steps_at_once, together, monkeypatch):
    run = trajectory(batched.batched_problem(name, "matrices"), method)
    count = min(together, len(DIRECTIONS))
    bytes_of_a_step = blocks.bytes_of_a_step(run, blocks.block_steps(run), 6 * count + 2)
    seen = []
    jacobian = run.problem.batch.jacobian

    def counted(t, u, p):
        seen.append(len(t))
        return jacobian(t, u, p)

    monkeypatch.setattr(run.problem.batch, "jacobian", counted)
    monkeypatch.setattr(blocks, "BLOCK_MEMORY", steps_at_once * bytes_of_a_step + 1)
    monkeypatch.setattr(block_second_order, "DIRECTIONS", together)
    products = hessian_sweep(run, forms.ANALYTIC_COST, DIRECTIONS, engine="arrays")
    assert_equal(products, by_steps(name, method, False))
    shared = 1 if method == "cn" else 0  # neighbouring steps share a point
    points_per_step = blocks.block_steps(run).points_per_step
    if steps_at_once < run.n_steps:
        assert max(seen) <= max(points_per_step * (steps_at_once * 2), 2) + shared
    else:
        assert len(seen) == 1  # once for tangents, adjoints and all directions


@pytest.mark.parametrize(("name", "method"), FEW)
def test_products_at_the_same_point_share_the_first_order_adjoint(name, method, monkeypatch):
    run = trajectory(batched.batched_problem(name, "matrices"), method)
    memory = Memory()
    first = hessian_sweep(run, forms.ANALYTIC_COST, DIRECTIONS[:2], memory, "arrays")
    monkeypatch.setattr(run.problem.batch, "jacobian", None)
    second = hessian_sweep(run, forms.ANALYTIC_COST, DIRECTIONS[2:], memory, "arrays")
    assert_equal([*first, *second], by_steps(name, method, False))
    assert_equal(second + first, (flat(second + first), second[0].gradient))
    assert memory.value == first[0].gradient.value


def test_what_blocks_remember_does_not_mislead_steps():
    run = trajectory(forms.FORMS["rhs"].analytic, "rk4")
    memory = Memory()
    for engine in ("arrays", "vectors", "arrays", "vectors"):
        products = hessian_sweep(run, forms.ANALYTIC_COST, DIRECTIONS, memory, engine)
        assert {product.engine for product in products} == {engine}
        assert difference(flat(products), by_steps("rhs", "rk4", False)[0]) < 1e-12


# ---- tangents and Jacobians ----------------------------------------------------------------------


@each_run
def test_tangents_in_blocks_are_those_by_steps(name, method, adaptive):
    run = trajectory(batched.batched_problem(name, "products"), method, adaptive)
    block, steps = (tangent_sweep(run, DIRECTIONS, engine) for engine in ("arrays", "vectors"))
    for ours, reference in zip(block, steps, strict=True):
        assert (ours.engine, reference.engine) == ("arrays", "vectors")
        assert difference(ours.u, reference.u) < 1e-12
    slopes = [item.derivative(forms.ANALYTIC_COST) for item in block]
    gradient = ds.adjoint(run, forms.ANALYTIC_COST)
    for slope, (du0, dp) in zip(slopes, DIRECTIONS, strict=True):
        along = sum(
            part @ np.asarray(value)
            for part, value in ((gradient.u0, du0), (gradient.p, dp))
            if value is not None
        )
        assert abs(slope - along) < 1e-12 * np.abs(gradient.p).max()


@each_run
def test_few_columns_are_tangents_in_blocks(name, method, adaptive):
    run = trajectory(batched.batched_problem(name, "matrices"), method, adaptive)
    for wanted in ("u0", "p"):
        block, steps = (
            ds.sensitivities(run, forms.OBSERVATION_TIMES[1], [wanted], engine)
            for engine in ("arrays", "vectors")
        )
        assert (block.sweep, block.engine) == ("tangent", "arrays")
        assert (steps.sweep, steps.engine) == ("tangent", "vectors")
        assert difference(getattr(block, wanted), getattr(steps, wanted)) < 1e-12
        assert getattr(block, "p" if wanted == "u0" else "u0") is None


@pytest.mark.parametrize(("name", "method"), FEW)
def test_gauss_newton_and_jacobians_of_residuals(name, method):
    run = trajectory(batched.batched_problem(name, "matrices"), method)
    objective = forms.COSTS["observations"].objective + 2.5 * forms.COSTS["prior"].objective
    block, steps = (
        gauss_newton_product(run, objective, *DIRECTIONS[0], engine)
        for engine in ("arrays", "vectors")
    )
    assert (block.engine, steps.engine) == ("arrays", "vectors")
    assert difference(flat([block]), flat([steps])) < 1e-12
    ours, reference = (
        batched.residual_rows(run, objective, engine) for engine in ("arrays", "vectors")
    )
    assert difference(ours, reference) < 1e-12


@pytest.mark.parametrize("sweep", ["tangent", "adjoint"])
def test_jacobians_of_a_reduced_functional(sweep):
    objective = forms.COSTS["observations"].objective + forms.COSTS["prior"].objective
    problem, stepping = batched.batched_problem("rhs", "matrices"), forms.make_stepping("rk5dp")
    matrices = []
    for engine in ("arrays", "vectors"):
        functional = ds.Reduced(problem, objective, stepping, FOLLOWING, engine=engine)
        functional.sweep_for = lambda _rows, _columns: sweep
        matrices.append(functional.residual_jacobian(functional.start()).getDenseArray())
    assert difference(*matrices) < 1e-12


# ---- which engine --------------------------------------------------------------------------------


def test_the_engine_is_chosen_and_reported_and_can_be_forced():
    run = trajectory(forms.FORMS["rhs"].analytic, "rk4")
    assert ds.hessian_product(run, forms.ANALYTIC_COST, forms.U0).engine == "arrays"
    assert (
        ds.hessian_product(run, forms.ANALYTIC_COST, forms.U0, engine="vectors").engine == "vectors"
    )
    general = trajectory(forms.FORMS["F"].analytic, "cn")
    assert ds.hessian_product(general, forms.ANALYTIC_COST, forms.U0).engine == "vectors"
    for function in (ds.hessian_product, gauss_newton_product):
        with pytest.raises(ds.UnsupportedError, match=r'engine = "arrays" for F\(t, u, u'):
            function(general, ds.LeastSquares([0.3], [[0.0] * 3]), forms.U0, engine="arrays")
        with pytest.raises(
            ds.InputError, match=r"engine = .tsadjoint.\n  expected: .auto., .vectors."
        ):
            function(run, forms.ANALYTIC_COST, forms.U0, engine="tsadjoint")


def test_a_functional_with_petsc_s_adjoint_has_second_order_by_steps():
    control = InitialState(forms.U0, forms.P0)
    stepping, problem = forms.make_stepping("rk4"), forms.FORMS["rhs"].analytic
    functional = ds.Reduced(problem, forms.ANALYTIC_COST, stepping, control, engine="tsadjoint")
    reference = ds.Reduced(problem, forms.ANALYTIC_COST, stepping, control)
    assert difference(functional.hessian(forms.U0), reference.hessian(forms.U0)) < 1e-12


def test_second_derivatives_that_are_missing_are_named():
    def rhs(t, u, p):
        return np.array([float(u[0]) * p[0]])

    def by_u(t, u, p):
        return np.array([[float(p[0])]])

    problem = ds.ODE(rhs, 1, ["a"], jacobian=by_u, jacobian_p=lambda t, u, p: np.array([[u[0]]]))
    run = ds.solve(problem, [1.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    with pytest.raises(ds.UnsupportedError, match="second derivatives of callback 'rhs'"):
        ds.hessian_product(
            run, ds.Prior([0.0]) + ds.Terminal(lambda t, u, p: u[0]), [1.0], [1.0], engine="arrays"
        )


def test_products_in_the_parameters_may_be_given_by_their_action_only():
    by_p = Products(lambda t, u, p, v: -u * v[0], lambda t, u, p, w: [-(u @ w)])
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 2, 1, jacobian_p=by_p)
    run = ds.solve(problem, [1.0, 2.0], [0.5], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    cost = ds.Terminal(lambda t, u, p: u[0] * u[1])
    block, steps = (
        ds.hessian_product(run, cost, [1.0, 0.0], [1.0], engine) for engine in ("arrays", "vectors")
    )
    assert difference(flat([block]), flat([steps])) < 1e-13


def test_no_direction_is_an_error():
    run = trajectory(forms.FORMS["rhs"].analytic, "rk4")
    with pytest.raises(ds.InputError, match="no direction given"):
        tangent_sweep(run, [])
