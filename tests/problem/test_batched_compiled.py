"""C functions at many points: the loop is in C, the values are those at single points."""

import numpy as np
import pytest

import daeosens as ds
from daeosens import SolveError

K, M = 11, 3


def chain(_t, u, p):
    """A sparse Jacobian in u, a sparse one in p."""
    return -p.k * u**3 + np.roll(u, 1) * p.r


def competition(t, u, p):
    return u * (p.r + p.A @ u) + 0.1 * np.sin(t)


def layers(t, u, p):
    """Two layers, one matrix twice, once transposed; its first row on its own; means of all."""
    inner = np.tanh(p.A @ u + p.b * np.cos(t))
    return p.A.T @ (inner * inner) - u * u.mean() + p.A[0] * (p.w @ u) + p.B @ (p.A @ inner)


def halves(_t, u, p):
    """Two matrices that share parameters, one of them constant in between."""
    mixed = np.cos(np.add.outer(np.arange(12.0), np.arange(12.0))) @ u
    return p.A[:12] @ u + p.A[4:] @ np.tanh(mixed)


def pair(t, u, p):
    return np.array([p.a * u[1], t * u[0]])


MODELS = {
    "sparse": (chain, 40, {"k": (), "r": (40,)}, "CompiledBatch"),
    "few scalars": (
        pair,
        2,
        {"a": ()},
        "CompiledBatch",
    ),
    "no parameters": (lambda t, u, p: -(u**3), 3, {}, "CompiledBatch"),
    "a product": (competition, 9, {"r": (9,), "A": (9, 9)}, "FactoredBatch"),
    "a large product": (competition, 70, {"r": (70,), "A": (70, 70)}, "FactoredBatch"),
    "layers": (
        layers,
        12,
        {"A": (12, 12), "b": (12,), "w": (12,), "B": (12, 12)},
        "FactoredBatch",
    ),
    "large layers": (
        layers,
        61,
        {"A": (61, 61), "b": (61,), "w": (61,), "B": (61, 61)},
        "FactoredBatch",
    ),
    "shared entries": (halves, 12, {"A": (16, 12)}, "FactoredBatch"),
}


@pytest.fixture(params=MODELS)
def traced(request):
    function, n, shapes, kind = MODELS[request.param]
    model = ds.trace(function, n, shapes)
    assert type(model.batch).__name__ == kind
    return model


@pytest.fixture
def values(traced, rng):
    n, m = traced.size, traced.n_parameters
    t, u = rng.uniform(0.0, 1.0, K), rng.uniform(0.3, 1.0, (K, n))
    return t, u, rng.normal(size=m) / n


def at_single_points(model, t, u, p):
    """f, f_u and f_p by complex steps of the symbolic functions' own C versions, one by one."""
    by_u, by_p, rates = [], [], []
    for time, state in zip(t, u, strict=True):
        vectors = model.admit_state(state), model.create_state()
        model.rhs(time, vectors[0], p, vectors[1])
        rates.append(vectors[1].array.copy())
        for derivative, value in ((model.rhs_u, by_u), (model.rhs_p, by_p)):
            matrix = derivative.create(time, vectors[0], p)
            derivative.fill(time, vectors[0], p, matrix)
            units = np.eye(model.size)
            rows = []
            for unit in units:
                left, right = matrix.createVecs()
                right.array[:] = unit
                matrix.multTranspose(right, left)
                rows.append(left.array.copy())
            value.append(rows)
    return np.array(rates), np.array(by_u), np.array(by_p)


def near(ours, reference):
    return abs(ours - reference).max(initial=0.0) <= 1e-13 * abs(reference).max(initial=1.0)


@pytest.mark.slow
def test_many_points_give_what_each_of_them_gives(traced, values, rng):
    t, u, p = values
    w = rng.normal(size=(M, K, traced.size))
    rates, by_u, by_p = at_single_points(traced, t, u, p)
    assert near(traced.batch.rhs(t, u, p), rates)
    assert near(traced.batch.jacobian(t, u, p), by_u)
    expected = np.einsum("mki,kij->mj", w, by_p)
    assert near(traced.batch.pull_parameters(t, u, p, w), expected)
    assert traced.batch.at_once


def test_products_along_many_directions_are_those_at_each_point(traced, values, rng):
    t, u, p = values
    n, m = traced.size, traced.n_parameters
    w, du, dp = rng.normal(size=(K, n)), rng.normal(size=(M, K, n)), rng.normal(size=(M, m))
    _, _, by_p = at_single_points(traced, t, u, p)
    rates = traced.batch.push_parameters(t, u, p, dp)
    assert near(rates, np.einsum("kij,mj->mki", by_p.reshape(K, n, m), dp))
    found_u, found_p = traced.batch.hessian_product(t, u, p, w, du, dp)
    assert (found_u.shape, found_p.shape) == ((M, K, n), (M, m))
    sums = np.zeros((M, m))
    vecs = [traced.create_state() for _ in range(4)]
    out_p = traced.create_parameters()
    for k, d in np.ndindex(K, M):
        for vec, value in zip(vecs, (u[k], w[k], du[d, k]), strict=False):
            vec.array[:] = value
        point = (t[k], vecs[0], p)
        traced.rhs_hessian(point, vecs[1], (vecs[2], dp[d]), (vecs[3], out_p))
        assert near(found_u[d, k], vecs[3].array)
        sums[d] += out_p.array
    assert near(found_p, sums)


def test_second_order_in_blocks_is_that_by_steps(traced, values, rng):
    _, u, p = values
    n, m = traced.size, traced.n_parameters
    cost = traced.terminal(lambda t, u, p: u @ u)
    rows = rng.normal(size=(M, n)), rng.normal(size=(M, m))
    for method in ("rk5dp", "cn"):
        run = ds.solve(traced, u[0], p, ds.Stepping((0.0, 0.2), method, dt=0.05))
        block, steps = (
            ds.hessian_product(run, cost, *rows, engine=engine) for engine in ("arrays", "vectors")
        )
        for ours, theirs in zip(block, steps, strict=True):
            assert (ours.engine, theirs.engine) == ("arrays", "vectors")
            assert abs(ours.u0 - theirs.u0).max() < 1e-12 * abs(theirs.u0).max()
            assert abs(ours.p - theirs.p).max(initial=0.0) <= 1e-12 * abs(theirs.p).max(initial=0.0)


@pytest.mark.slow
def test_sweeps_in_blocks_are_those_by_steps(traced, values):
    _, u, p = values
    for method in ("rk4", "rk5dp", "cn", "midpoint"):
        run = ds.solve(traced, u[0], p, ds.Stepping((0.0, 0.2), method, dt=0.05))
        block, steps = (ds.sensitivities(run, engine=engine) for engine in ("arrays", "vectors"))
        assert near(block.u0, steps.u0)
        assert near(block.p, steps.p)
        cost = traced.terminal(lambda t, u, p: u @ u) + ds.LeastSquares([0.1], u[:1], 0.5)
        ours, theirs = (ds.adjoint(run, cost, engine) for engine in ("arrays", "vectors"))
        assert near(ours.u0, theirs.u0)
        assert near(ours.p, theirs.p)


@pytest.mark.slow
def test_the_block_adjoint_of_products_is_the_transpose_of_the_tangent(rng):
    model = ds.trace(layers, 12, MODELS["layers"][2])
    p, u0 = 0.3 * rng.normal(size=model.n_parameters), rng.uniform(0.3, 1.0, 12)
    run = ds.solve(model, u0, p, ds.Stepping((0.0, 0.5), "rk5dp", rtol=1e-6, atol=1e-6))
    cost = model.terminal(lambda t, u, p: np.sin(u).sum())
    gradient = ds.adjoint(run, cost, "arrays")
    du0, dp = rng.normal(size=12), rng.normal(size=model.n_parameters)
    along = ds.tangent(run, du0, dp).derivative(cost)
    assert abs(gradient.u0 @ du0 + gradient.p @ dp - along) < 1e-12 * abs(along)


def test_taylor_remainders_are_of_second_order(rng):
    model = ds.trace(competition, 9, {"r": (9,), "A": (9, 9)})
    u0, p = rng.uniform(0.3, 1.0, 9), 0.3 * rng.normal(size=90)
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    control = ds.Parameters(dict(zip(model.parameter_names, map(ds.Parameter, p), strict=True)), u0)
    cost = model.terminal(lambda t, u, p: u @ u)
    functional = ds.Reduced(model, cost, stepping, control, engine="arrays")
    assert min(ds.taylor(functional, p)) > 1.9


def test_c_functions_from_elsewhere_are_looped_over(rng):
    numba = pytest.importorskip("numba")
    double = numba.types.CPointer(numba.types.double)
    signature = numba.types.void(numba.types.double, *[double] * 3, numba.types.voidptr)

    @numba.cfunc(signature)
    def rhs(t, u, p, out, _data):
        out[0] = -p[0] * u[0] + t * u[1]
        out[1] = p[1] * u[0] * u[1]

    @numba.cfunc(signature)
    def jacobian(t, u, p, out, _data):
        out[0], out[1], out[2], out[3] = -p[0], t, p[1] * u[1], p[1] * u[0]

    @numba.cfunc(signature)
    def jacobian_p(t, u, p, out, _data):
        out[0], out[1], out[2], out[3] = -u[0], 0.0, 0.0, u[0] * u[1]

    problem = ds.ODE(rhs, 2, 2, jacobian=jacobian, jacobian_p=jacobian_p)
    assert type(problem.batch).__name__ == "CompiledBatch"
    run = ds.solve(problem, [0.5, 0.7], [0.3, 0.2], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    block, steps = (ds.sensitivities(run, engine=engine) for engine in ("arrays", "vectors"))
    assert near(block.p, steps.p)
    fixed = ds.ODE(
        rhs, 2, 2, jacobian=jacobian, jacobian_p=lambda t, u, p: np.diag([-u[0], u[0] * u[1]])
    )
    t, u, p = rng.uniform(size=K), rng.uniform(size=(K, 2)), np.array([0.3, 0.2])
    w = rng.normal(size=(M, K, 2))
    ours, theirs = (value.batch.pull_parameters(t, u, p, w) for value in (problem, fixed))
    assert near(ours, theirs)


def test_a_c_function_without_parameters_needs_no_derivative_in_them():
    model = ds.trace(lambda t, u, p: -(u**3), 2)
    problem = ds.ODE(model.native["rhs"], 2, jacobian=model.native["jacobian"])
    assert type(problem.batch).__name__ == "CompiledBatch"
    run = ds.solve(problem, [1.0, 0.5], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    block, steps = (ds.sensitivities(run, engine=engine).u0 for engine in ("arrays", "vectors"))
    assert near(block, steps)


@pytest.mark.parametrize("name", ["few scalars", "a product"])
def test_values_that_are_not_finite_are_named(name):
    function, n, shapes, _ = MODELS[name]
    model = ds.trace(function, n, shapes)
    t, u = np.zeros(2), np.full((2, n), 0.5)
    u[1, 1] = np.inf
    with pytest.raises(SolveError, match=r"callback 'rhs' returned (inf|nan) in entry"):
        model.batch.rhs(t, u, np.ones(model.n_parameters))
