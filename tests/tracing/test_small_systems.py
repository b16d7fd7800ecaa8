"""Equations of motion with a mass matrix that depends on the position, solved in the function."""

import casadi
import numpy as np
import pytest

from daeosens import ODE, Stepping, Terminal, adjoint, hessian_product, solve, trace
from daeosens.errors import SolveError
from daeosens.tracing.named_parameters import admit_shapes
from daeosens.tracing.small_systems import LARGEST
from daeosens.tracing.tracer import Tracer

LENGTHS, GRAVITY = np.array([0.5, 0.4, 0.3]), 9.81
NAMES = ["m0", "m1", "m2", "damping"]


def chain(t, u, p):
    """Three pendulums, one below the other: M(q) q'' = -C(q) q'^2 - G(q) - d q'."""
    q, w = u[:3], u[3:]
    below = np.array([p[0] + p[1] + p[2], p[1] + p[2], p[2]])
    mass = np.array(
        [
            [below[max(i, j)] * LENGTHS[i] * LENGTHS[j] * np.cos(q[i] - q[j]) for j in range(3)]
            for i in range(3)
        ]
    )
    turning = np.array(
        [
            sum(
                below[max(i, j)] * LENGTHS[i] * LENGTHS[j] * np.sin(q[i] - q[j]) * w[j] ** 2
                for j in range(3)
            )
            for i in range(3)
        ]
    )
    weight = GRAVITY * below * LENGTHS * np.sin(q)
    return np.concatenate([w, np.linalg.solve(mass, -turning - weight - p[3] * w)])


def energy(t, u, p):
    return 0.5 * u[3:] @ u[3:] - np.sum(np.cos(u[:3]))


@pytest.mark.slow
def test_a_traced_chain_is_that_of_numpy():
    """Value, gradient and Hessian product: NumPy's solver pivots, the traced one does not."""
    p, start = np.array([1.0, 0.8, 0.5, 0.05]), [1.0, 0.3, -2.0, 0.0, 0.0, 0.5]
    stepping = Stepping((0.0, 2.0), "rk8vr", dt=0.02)
    model = trace(chain, 6, NAMES)
    plain, compiled = (solve(value, start, p, stepping) for value in (ODE(chain, 6, NAMES), model))
    np.testing.assert_allclose(compiled.u, plain.u, rtol=0, atol=1e-11)
    direction = np.linspace(1.0, 2.0, 6), np.linspace(-1.0, 1.0, 4)
    products = [
        hessian_product(run, cost, *direction)
        for run, cost in ((plain, Terminal(energy)), (compiled, model.terminal(energy)))
    ]
    for part in ("u0", "p"):
        gradients = [getattr(product.gradient, part) for product in products]
        np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-9)
        seconds = [getattr(product, part) for product in products]
        np.testing.assert_allclose(seconds[1], seconds[0], rtol=1e-8)


@pytest.mark.parametrize("size", [1, 2, 3, LARGEST])
def test_solutions_are_as_accurate_as_those_of_numpy(size):
    """Also of rows that need pivots, and of condition numbers up to 1e8."""
    shapes = admit_shapes({"A": (size, size), "b": (size,)})
    graph = Tracer(size, shapes, comm=None).graph(
        lambda t, u, p: np.linalg.solve(p.A, p.b), "f", (size,)
    )
    evaluate = casadi.Function("f", [graph.t, graph.u, graph.p], [graph.value])
    rng = np.random.default_rng(size)
    left, right = (np.linalg.qr(rng.normal(size=(size, size)))[0] for _ in range(2))
    right_side = rng.normal(size=size)
    for condition in (1.0, 1e4, 1e8):
        matrix = (left * np.geomspace(1.0, 1.0 / condition, size)) @ right
        matrix[0, 0] = 0.0 if size > 1 else matrix[0, 0]
        point = 0.0, np.zeros(size), shapes.pack({"A": matrix, "b": right_side})
        values = np.array(evaluate(*point))[:, 0]
        expected = np.linalg.solve(matrix, right_side)
        error = np.abs(values - expected).max() / np.abs(expected).max()
        assert error < 1e-14 * size * np.linalg.cond(matrix)


def test_a_singular_matrix_is_an_error_of_the_run():
    model = trace(lambda t, u, p: np.linalg.solve(np.outer(p, p), u), 2, 2)
    with pytest.raises(SolveError, match="'rhs' returned nan"):
        solve(model, [1.0, 2.0], [1.0, 2.0], Stepping((0.0, 1.0), "rk4", dt=0.1))


def test_a_gradient_agrees_with_differences_of_runs():
    model = trace(chain, 6, NAMES)
    stepping, cost = Stepping((0.0, 1.0), "rk4", dt=0.05), model.terminal(energy)
    start, p = [1.0, 0.3, -2.0, 0.0, 0.0, 0.5], np.array([1.0, 0.8, 0.5, 0.05])

    def value(p):
        return adjoint(solve(model, start, p, stepping), cost).value

    gradient = adjoint(solve(model, start, p, stepping), cost).p
    for k, move in enumerate(1e-5 * np.eye(4)):
        assert gradient[k] == pytest.approx((value(p + move) - value(p - move)) / 2e-5, rel=1e-6)
