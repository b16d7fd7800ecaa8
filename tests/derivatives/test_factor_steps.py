"""Adjoint steps of models with large matrices, in C: the numbers of other ways."""

from contextlib import contextmanager

import numpy as np
import pytest
from support.sweeps import in_c
from threadpoolctl import threadpool_info, threadpool_limits

import daeosens as ds
from daeosens import SolveError, Stepping
from daeosens.derivatives.engines.choice import wants_compiled
from daeosens.derivatives.engines.compiled import adjoint as compiled_adjoint
from daeosens.derivatives.engines.limits import FEW_ROWS as FEW
from daeosens.derivatives.engines.limits import TINY
from tests.problem.test_batched_compiled import competition, layers

SPAN = (0.0, 1.0)
TIMES = (0.3, 0.55)
STEPPINGS = [
    Stepping(SPAN, "rk1fe", dt=0.1),
    Stepping(SPAN, "rk4", dt=0.15),  # the last step is cut
    Stepping(SPAN, "rk5dp", rtol=1e-7, atol=1e-7),
]


def constant(_t, u, p):
    """A constant matrix, and parameters that are entries of two matrices."""
    n = len(u)
    mixed = np.cos(np.add.outer(np.arange(float(n)), 0.5 * np.arange(float(n)))) @ u / n
    return p.A[:n] @ np.tanh(mixed) - p.A[4:] @ u * p.k


MODELS = {
    "a product": (competition, 16, {"r": (16,), "A": (16, 16)}),
    "layers": (layers, 13, {"A": (13, 13), "b": (13,), "w": (13,), "B": (13, 13)}),
    "a constant matrix": (constant, 14, {"A": (18, 14), "k": ()}),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    function, n, shapes = MODELS[request.param]
    assert n > TINY
    return ds.trace(function, n, shapes, running=lambda t, u, p: np.exp(-t) * (u @ u) * p[0])


@pytest.fixture
def start(model, rng):
    return rng.uniform(0.2, 0.6, model.size), rng.normal(size=model.n_parameters) / model.size


def costs_of(model):
    """Return a cost at the end, and one along the way with a running cost."""
    total = model.terminal(lambda t, u, p: (u @ u) * p[1] + u[0] * t)
    data = np.full((len(TIMES), model.size), 0.4)
    return [total, ds.LeastSquares(TIMES, data, sigma=0.5) + 0.7 * model.running]


@pytest.mark.parametrize("checkpoint", ["states", "stages"])
@pytest.mark.parametrize("stepping", STEPPINGS, ids=lambda item: item.method)
def test_the_numbers_of_steps_in_python_and_of_blocks(model, start, stepping, checkpoint):
    run = ds.solve(model, *start, stepping, t_eval=TIMES, checkpoint=checkpoint)
    costs = costs_of(model)
    assert wants_compiled(run, "auto", FEW)
    values = [ds.derivatives.evaluate(run, cost) for cost in costs]
    python = ds.adjoint(run, costs, "vectors")
    every = zip(
        ds.adjoint(run, costs), ds.adjoint(run, costs, "arrays"), python, values, strict=True
    )
    for item, block, expected, value in every:
        assert item.engine == "compiled"
        assert item.value == pytest.approx(value, rel=1e-13)
        for ours, others in ((item.u0, (expected.u0, block.u0)), (item.p, (expected.p, block.p))):
            scale = np.abs(ours).max()
            for other in others:
                np.testing.assert_allclose(ours, other, rtol=0.0, atol=1e-13 * scale)


def test_adjoint_and_tangent_agree(model, start, rng):
    run = ds.solve(model, *start, STEPPINGS[-1], t_eval=TIMES)
    du, dp = rng.normal(size=model.size), rng.normal(size=model.n_parameters)
    along = ds.tangent(run, du, dp)
    for cost, item in zip(costs_of(model), ds.adjoint(run, costs_of(model)), strict=True):
        expected = along.derivative(cost)
        assert item.u0 @ du + item.p @ dp == pytest.approx(expected, rel=1e-12)


def test_gradient_has_taylor_order_two(model, start):
    u0, p = start
    names = model.parameter_names
    entries = {name: ds.Parameter(value) for name, value in zip(names, p, strict=True)}

    def from_parameters(p):
        return u0 * (1.0 + p[0])

    control = ds.Parameters(entries, initial_state=from_parameters)
    functional = ds.Reduced(model, costs_of(model)[1], STEPPINGS[1], control)
    value, gradient = functional.value_and_gradient(p)
    dx, sizes = np.cos(np.arange(p.size)), [0.02 / 2**k for k in range(4)]
    slope = float(gradient.array @ dx)
    rest = [abs(functional.value(p + h * dx) - value - h * slope) for h in sizes]
    assert np.min(np.log2(np.divide(rest[:-1], rest[1:]))) > 1.9


@pytest.mark.slow
def test_long_runs_are_swept_in_several_blocks(rng):
    n = 40
    model = ds.trace(lambda _t, u, p: p.A @ np.tanh(u), n, {"A": (n, n)})
    u0, p = rng.uniform(0.2, 0.6, n), rng.normal(size=n * n) / n
    total = model.terminal(lambda _t, u, _p: u @ u)
    run = ds.solve(model, u0, p, Stepping((0.0, 1.0), "rk4", dt=5e-4))
    values, block = (ds.adjoint(run, total, engine) for engine in ("auto", "arrays"))
    assert values.engine == "compiled"
    np.testing.assert_allclose(values.u0, block.u0, rtol=1e-12)
    np.testing.assert_allclose(values.p, block.p, rtol=1e-11, atol=1e-13)


def test_more_costs_are_swept_in_blocks(model, start):
    run = ds.solve(model, *start, STEPPINGS[1])
    lowered = [costs_of(model)[0].lower(model, 1.0)] * (FEW + 1)
    assert in_c(run, lowered) is None
    several = ds.adjoint(run, [costs_of(model)[0]] * (FEW + 1), "arrays")
    np.testing.assert_allclose(several[0].p, ds.adjoint(run, costs_of(model)[0]).p, atol=1e-13)


@pytest.mark.slow
def test_values_that_are_not_finite_are_named(rng):
    n = 16
    model = ds.trace(lambda _t, u, p: -p.A @ np.sqrt(u), n, {"A": (n, n)})
    run = ds.solve(model, np.zeros(n), np.eye(n).ravel(), STEPPINGS[0])  # the slope is infinite
    total = model.terminal(lambda _t, u, _p: u.sum())
    with pytest.raises(SolveError, match=r"not finite|returned -?(nan|inf)"):
        ds.adjoint(run, total)


@pytest.mark.slow
def test_a_gradient_of_a_running_cost_that_is_not_finite_is_named(rng):
    n = 16
    shapes = {"A": (n, n), "k": ()}
    model = ds.trace(
        lambda _t, u, p: p.A @ np.tanh(u), n, shapes, running=lambda _t, u, p: np.sqrt(p.k) * u[0]
    )
    p = np.append(rng.normal(size=n * n) / n, 0.0)  # the slope of the root is infinite
    run = ds.solve(model, np.full(n, 0.4), p, STEPPINGS[0])
    assert in_c(run, [model.running.lower(model, 1.0)]) is None
    with pytest.raises(SolveError, match=r"gradient_p' returned inf"):
        ds.adjoint(run, model.running)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "dt", "divided"), [(96, 0.25, True), (60, 0.25, False), (60, 0.01, True)]
)
def test_products_that_blas_would_divide_take_one_of_its_threads(n, dt, divided, monkeypatch):
    large = ds.trace(competition, n, {"r": (n,), "A": (n, n)})
    p = large.pack(r=np.full(n, 0.1), A=-np.eye(n))
    run = ds.solve(large, np.full(n, 0.2), p, Stepping((0.0, 1.0), "rk4", dt=dt))
    total, seen = large.terminal(lambda t, u, p: u.sum()), []

    alone = compiled_adjoint.one_blas_thread

    @contextmanager
    def noted():
        with alone():
            seen.append({item["num_threads"] for item in threadpool_info()})
            yield

    monkeypatch.setattr(compiled_adjoint, "one_blas_thread", noted)
    with threadpool_limits(2, user_api="blas"):
        gradient = ds.adjoint(run, total, "compiled")
    assert seen == ([{1}] if divided else [])
    block = ds.adjoint(run, total, "arrays")
    np.testing.assert_allclose(gradient.u0, block.u0, rtol=1e-13)
    np.testing.assert_allclose(gradient.p, block.p, rtol=1e-12, atol=1e-16)
