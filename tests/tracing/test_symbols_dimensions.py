"""Traced arrays of more than two dimensions do what NumPy's do."""

import numpy as np
import pytest

from daeosens import ODE, Parameter, Parameters, Reduced, Stepping, Terminal, solve, taylor, trace
from daeosens.tracing.casadi import casadi
from daeosens.tracing.symbols import Symbol
from daeosens.tracing.tracer import traced_value

RNG = np.random.default_rng(0)
A, B, STACK = (RNG.standard_normal(shape) for shape in ((2, 3, 4), (3, 4), (2, 4, 5)))
V, M, FOUR = (RNG.standard_normal(shape) for shape in ((4,), (3, 3), (2, 3, 4, 2)))
KNOTS = np.array([0.0, 1.0, 3.0])


def assigned(a):
    out = np.zeros_like(a)
    out[:, 1] = a[:, 0] ** 2
    out[1, :, 2] = a[0, :, 1]
    view = out[0]
    view[2] += a[1, 2]
    out[:, :, 0] *= 2.0
    return out


CASES = {
    "pairs": (lambda b: b[:, None, :] - b[None, :, :], B),
    "axes added": (lambda a: a[..., None] * a[:, :, None, :], A),
    "of fewer": (lambda a, b, v: a + b * v - a[:1] / b[:, :1], A, B, V),
    "constants": (lambda a: a * np.arange(24.0).reshape(2, 3, 4) + np.eye(4)[:3], A),
    "broadcast": (lambda b: np.broadcast_to(b, (2, 3, 4)), B),
    "outer": (lambda b: np.subtract.outer(b, b[0]), B),
    "sums": (lambda a: a.sum(axis=0) + np.sum(a, -3) + a.sum(), A),
    "sum of rows": (lambda a: np.sum(a, 1, keepdims=True) + a.sum(axis=(0, 1)), A),
    "sums of several": (lambda a: a.sum(axis=(0, -1), keepdims=True) + a.sum(axis=(0, 1, 2)), A),
    "sums of four": (lambda x: x.sum(axis=(1, 3)) + np.add.reduce(x, axis=1)[:, :, 0], FOUR),
    "sums of none": (lambda a: a.sum(axis=()) + a[:0].sum(axis=0), A),
    "means": (lambda a: np.mean(a, axis=(1, 2)) + np.var(a, axis=(0, 1), ddof=1)[:2], A),
    "deviations": (lambda a: np.std(a, axis=(0, 2), keepdims=True), A),
    "extremes": (lambda a: np.max(a, axis=1) - a.min(axis=(0, 1)) + a.max(), A),
    "products": (lambda a: np.prod(a, axis=0) * a.max(axis=2, keepdims=True), A),
    "norms": (lambda a: np.linalg.norm(a, axis=2) + np.linalg.norm(a, 1, axis=-1), A),
    "a norm": (lambda a: np.linalg.norm(a, axis=1, keepdims=True) + np.linalg.norm(a), A),
    "transposes": (lambda a: a.T + np.transpose(a, (2, 1, 0)) + np.swapaxes(a, 0, 2), A),
    "moved axes": (lambda a: np.moveaxis(a, 0, -1), A),
    "indices": (lambda a: a[1, :, 2] + a[:, [0, 2]][..., ::-1][0, 0, :3], A),
    "rows": (lambda a: np.stack([matrix.T for matrix in a]), A),
    "rolled": (lambda a: np.roll(a, 1, axis=1)[:, 1:] + np.diff(a, axis=1), A),
    "padded": (lambda a: np.pad(a, 1) + np.repeat(np.flip(np.pad(a, 1), axis=1), 1, axis=2), A),
    "joined": (lambda a, b: np.concatenate([a, np.stack([b, 2.0 * b])], axis=1), A, B),
    "shapes": (lambda a: np.squeeze(a[:, :1]) + a.reshape(4, -1)[:2, :4] + a.ravel()[::6], A),
    "diagonals": (lambda x: np.diagonal(x, axis1=0, axis2=3), FOUR),
    "choices": (lambda a, b: np.where(a > b, a, b) + np.clip(a, -0.3, 0.3) * (a > 0), A, B),
    "integrals": (lambda a: np.trapezoid(a, dx=0.1, axis=1) + np.trapezoid(a, KNOTS, axis=1), A),
    "stacks times vector": (lambda a, v: a @ v + np.dot(a, v), A, V),
    "stacks times matrix": (lambda a, b: a @ b.T + np.inner(a, b), A, B),
    "matrix times stacks": (lambda b, s: b @ s, B, STACK),
    "vector times stacks": (lambda v, s: v @ s, V, STACK),
    "stacks times stacks": (lambda a, s: a @ s, A, STACK),
    "contracted": (
        lambda a, b: np.einsum("ijk,jk->ij", a, b) + np.einsum("ijk,jl->i", a, b)[:, None],
        A,
        B,
    ),
    "contracted whole": (
        lambda a, b: np.einsum("ijk, ljk ->", a, a) + np.einsum("jk,jk", b, b),
        A,
        B,
    ),
    "reordered": (lambda a, b: np.einsum("ijk->ki", a)[:, 0] + np.einsum("ji", b)[:, 0], A, B),
    "traces": (lambda m: np.einsum("ii", m) + np.einsum("ii->i", m), M),
    "three factors": (lambda m, b, v: np.einsum("ij,jk,k->i", m, b, v), M, B, V),
    "of a name more": (lambda x, v: np.einsum("ijkl,k->lij", x, v), FOUR, V),
    "assigned": (assigned, A),
}


@pytest.mark.whole
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_arrays_of_many_dimensions_give_what_numpy_gives(case):
    function, *arrays = case
    graphs = [casadi.MX.sym(f"x{k}", array.size) for k, array in enumerate(arrays)]
    symbols = [
        Symbol(graph, (array.size,)).reshape(array.shape)
        for graph, array in zip(graphs, arrays, strict=True)
    ]
    traced, expected = traced_value(function, "f", *symbols), np.asarray(function(*arrays))
    assert traced.shape == expected.shape
    evaluate = casadi.Function("f", graphs, [casadi.vec(casadi.densify(traced.graph))])
    values = np.array(evaluate.call([casadi.DM(array.ravel()) for array in arrays])[0])
    np.testing.assert_allclose(values.ravel(), expected.ravel(), rtol=1e-13, atol=1e-14)


def repelled(t, u, p):
    """Points on a sphere that repel each other, as they are written in NumPy."""
    points = u.reshape(4, 3)
    apart = points[:, None, :] - points[None, :, :]
    distances = np.linalg.norm(apart, axis=2) + np.eye(4)
    force = p[0] * np.sum(apart / distances[..., None] ** 3, axis=1)
    return (force - np.einsum("ij,ij->i", force, points)[:, None] * points).ravel()


def test_derivatives_of_points_that_repel_each_other():
    start = RNG.standard_normal((4, 3))
    start = (start / np.linalg.norm(start, axis=1, keepdims=True)).ravel()
    stepping, cost = Stepping((0.0, 1.0), "rk6vr", dt=0.1), Terminal(lambda t, u, p: u[0] * u[5])
    values = {"strength": Parameter(0.3)}
    compiled, written = (
        Reduced(
            make(repelled, 12, ["strength"]),
            cost,
            stepping,
            Parameters(values, initial_state=start),
        )
        for make in (trace, ODE)
    )
    x = compiled.start()
    np.testing.assert_allclose(
        compiled.gradient(x).array, written.gradient(x).array, rtol=1e-12, atol=1e-13
    )
    assert taylor(compiled).passed
    run = solve(compiled.problem, start, [0.3], stepping)
    lengths = np.linalg.norm(run.u[-1].reshape(4, 3), axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-6)
