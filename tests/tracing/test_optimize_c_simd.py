"""Several points at once: what lanes compute is what the functions themselves do, bit by bit."""

import platform

import numpy as np
import pytest

import daeosens as ds
from daeosens.petsc._kernels import call_points
from daeosens.tracing.optimize_c import simd as lanes

ROUGH = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-310)


def every_operation(t, u, p):
    """Arithmetic enough to be worth lanes, and one of each kind of statement."""
    x, y = u[:6], u[6:]
    chosen = np.where((x > y) & (x != 1.0) | ~(y <= p.b), x * y, -x / p.b)
    library = np.array([np.exp(-x[0]), np.fmin(x[1], y[1]), np.sign(x[2]), np.arctan2(x[3], y[3])])
    sums = p.A @ u + 2.0 * u - 1.0 / (p.b + u * u)
    return np.concatenate([chosen * t + sums[:6], (np.sum(library) + y * y - p.b) * sums[6:]])


@pytest.fixture(scope="module")
def model():
    return ds.trace(every_operation, 12, {"A": (12, 12), "b": ()})


FUNCTIONS = ("rhs", "jacobian", "jacobian_p", "hessian_product")


def inputs(model, name, t, values):
    """The arrays of a callback, with the same parameters for all points."""
    n, m = model.size, model.n_parameters
    u, w, du = (values[:, k * n : (k + 1) * n].copy() for k in range(3))
    p, dp = np.linspace(0.1, 1.0, m), np.linspace(-1.0, 1.0, m)
    return (u, p, w, du, dp) if name == "hessian_product" else (u, p)


def outputs(model, name, count):
    n, m = model.size, model.n_parameters
    shapes = {"rhs": [(n,)], "jacobian": [(n, n)], "hessian_product": [(n,), (m,)]}
    pattern = model.native[name].pattern
    entries = [(n, m)] if pattern is None else [pattern[1].shape]
    return tuple(np.full((count, *shape), 7.0) for shape in shapes.get(name, entries))


@pytest.mark.parametrize("count", [1, 8, 11, 64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_lanes_are_the_function_point_by_point(model, name, count, rng):
    native = model.native[name]
    assert native.points
    values = rng.normal(size=(count, 3 * model.size))
    t = rng.uniform(size=count)
    given = inputs(model, name, t, values)
    ours, alone = outputs(model, name, count), outputs(model, name, count)
    assert call_points(*native.at_points, t, given, ours)
    assert call_points(native.address, 0, 0, t, given, alone)
    assert all(map(np.array_equal, ours, alone))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_that_are_not_finite_are_the_same_and_found(model, name, rng):
    native, count = model.native[name], 19
    values = rng.choice(ROUGH, size=(count, 3 * model.size))
    given = inputs(model, name, np.ones(count), values)
    ours, alone = outputs(model, name, count), outputs(model, name, count)
    assert not call_points(*native.at_points, np.ones(count), given, ours)
    assert not call_points(native.address, 0, 0, np.ones(count), given, alone)
    for each, expected in zip(ours, alone, strict=True):
        np.testing.assert_array_equal(each, expected)


def test_one_value_among_many_points_is_found(model, rng):
    native, count = model.native["rhs"], 64
    values = rng.normal(size=(count, 3 * model.size))
    values[37, 3] = np.inf
    given, ours = inputs(model, "rhs", np.ones(count), values), outputs(model, "rhs", count)
    assert not call_points(*native.at_points, np.ones(count), given, ours)


def test_inputs_shared_otherwise_are_looped_over(model, rng):
    native, t = model.native["rhs"], np.linspace(0.0, 1.0, 16)
    values = rng.normal(size=(16, 3 * model.size))
    u, p = inputs(model, "rhs", t, values)
    (ours,), (alone,) = outputs(model, "rhs", 16), outputs(model, "rhs", 16)
    for given in ((u[0].copy(), p), (u, np.tile(p, (16, 1)))):
        call_points(*native.at_points, t, given, (ours,))
        call_points(native.address, 0, 0, t, given, (alone,))
        assert np.array_equal(ours, alone)


def test_calls_of_the_library_gain_nothing():
    model = ds.trace(lambda t, u, p: np.exp(u) * p.a, 3, {"a": ()})
    assert not model.native["rhs"].points


def test_large_functions_are_compiled_once(monkeypatch):
    monkeypatch.setattr(lanes, "MOST", 10)
    model = ds.trace(lambda t, u, p: u**3 - p.a * u**2, 5, {"a": ()})
    assert not model.native["rhs"].points


@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of x86-64")
@pytest.mark.parametrize("flag", ["-mno-avx512f", "-mno-avx"])
def test_narrow_vectors_give_the_same(flag, monkeypatch, rng):
    monkeypatch.setenv("CC", f"cc {flag}")
    native = ds.trace(every_operation, 12, {"A": (12, 12), "b": ()}).native["hessian_product"]
    assert native.points
    values, t, p = rng.normal(size=(11, 36)), rng.uniform(size=11), rng.normal(size=(2, 145))
    u, w, du = (values[:, k : k + 12].copy() for k in (0, 12, 24))
    ours, alone = ((np.empty((11, 12)), np.empty((11, 145))) for _ in range(2))
    assert call_points(*native.at_points, t, (u, p[0].copy(), w, du, p[1].copy()), ours)
    assert call_points(native.address, 0, 0, t, (u, p[0].copy(), w, du, p[1].copy()), alone)
    assert all(map(np.array_equal, ours, alone))


def test_another_compiler_has_the_loop(model, monkeypatch, rng):
    monkeypatch.setenv("CC", "cc -D__clang__")
    other = ds.trace(every_operation, 12, {"A": (12, 12), "b": ()})
    assert not other.native["rhs"].points
    t, u = np.linspace(0.0, 1.0, 20), rng.uniform(0.5, 1.0, (20, 12))
    p = np.linspace(0.1, 1.0, model.n_parameters)
    assert np.array_equal(other.batch.rhs(t, u, p), model.batch.rhs(t, u, p))
