"""Gradients and Hessian products against Richardson differences of the whole program.

Everything of docs/support.md with fixed steps: methods, forms, costs, kinds of events, and
derivatives in u0, p, and parameters that u0 follows.  The program is solved anew at each displaced
point: it finds its own steps, stages and events.  Adaptive runs would choose other step sizes
there; they are compared with the program in NumPy that takes the same ones (tests/test_support.py).
"""

import event_support
import numpy as np
import pytest
from forms import (
    ALL_OBJECTIVES,
    CELLS,
    FORMS,
    OBSERVATION_TIMES,
    P0,
    U0,
    initial_state,
    make_stepping,
)

import daeosens as ds

# what is asked here is the derivative of the program, however coarse its steps are
pytestmark = pytest.mark.filterwarnings("ignore:the steps follow the states")

SIZES = (1e-3, 2e-3, 4e-3)


def richardson(function):
    """Return f'(0), of which the error is of sixth order."""
    first, second, third = ((function(h) - function(-h)) / (2 * h) for h in SIZES)
    return (64 * first - 20 * second + third) / 45


def on_the_equation(u, p):
    """Return u with the last state by 0 = f_3 at t = 0, which a singular mass asks for."""
    return np.array([u[0], u[1], p[0] * p[1] * u[0] - p[2] * u[1] ** 3])


@pytest.mark.parametrize("target", ["u0", "p", "u0(p)"])
@pytest.mark.parametrize(("name", "method"), CELLS, ids=map(" ".join, CELLS))
def test_of_all_costs(name, method, target, rng):
    problem, stepping = FORMS[name].analytic, make_stepping(method)
    du0, dp = rng.normal(size=(2, 3))

    def point(eps):
        p = P0 if target == "u0" else P0 + eps * dp
        if target == "u0(p)":
            return np.concatenate([initial_state(p), p])
        moved = U0 + eps * du0 if target == "u0" else U0
        u0 = on_the_equation(moved, p) if name == "M singular" else moved
        return np.concatenate([u0, p])

    def gradients(eps):
        u0, p = np.split(point(eps), 2)
        run = ds.solve(problem, u0, p, stepping, OBSERVATION_TIMES)
        rows = ds.adjoint(run, ALL_OBJECTIVES)
        return np.array([[row.value, *row.u0, *row.p] for row in rows])

    expected = richardson(gradients)  # along the curve of the points
    direction = richardson(point)
    ours = gradients(0.0)[:, 1:] @ direction
    np.testing.assert_allclose(ours, expected[:, 0], rtol=1e-9, atol=1e-10)
    run = ds.solve(problem, *np.split(point(0.0), 2), stepping, OBSERVATION_TIMES)
    for objective, row in zip(ALL_OBJECTIVES, expected[:, 1:], strict=True):
        product = ds.hessian_product(run, objective, direction[:3], direction[3:])
        product = np.concatenate([product.u0, product.p])
        np.testing.assert_allclose(product, row, rtol=1e-8, atol=1e-9)


EVENTS = [cell for cell in event_support.design() if cell.steps == "fixed"]


@pytest.mark.parametrize("cell", EVENTS, ids=str)
def test_through_events(cell, rng):
    problem, _ = event_support.hybrid_of(cell)
    cost, _ = event_support.cost_of(cell)
    control, x, _ = event_support.control_of(cell)
    functional = ds.Reduced(problem, cost, event_support.stepping_of(cell), control)
    dx = rng.normal(size=len(x)) * abs(x)

    def point(eps):
        moved = x + eps * dx
        if cell.form == "M singular" and cell.derivative == "u0":
            # the real root of 0 = u0^2 - y - y^3/5, the algebraic equation at t = 0
            angle = np.arcsinh(1.5 * np.sqrt(0.6) * moved[0] ** 2) / 3
            moved[2] = 2 * np.sqrt(5 / 3) * np.sinh(angle)
        return moved

    def gradient(eps):
        value, by_x = functional.value_and_gradient(point(eps))
        return np.array([value, *by_x.array])

    expected = richardson(gradient)
    direction = richardson(point)
    by_x = gradient(0.0)[1:]
    size = np.linalg.norm(by_x) * np.linalg.norm(direction)
    assert by_x @ direction == pytest.approx(expected[0], rel=1e-9, abs=1e-9 * size)
    product = functional.hessian_product(x, direction).array
    size = max(abs(product).max(), np.linalg.norm(by_x) / np.linalg.norm(x))
    np.testing.assert_allclose(product, expected[1:], rtol=0, atol=1e-8 * size)
