"""How fast equations oscillate."""

import numpy as np
import pytest

import daeosens as ds
from daeosens.timestepping.stiffness import fastest_oscillation


def test_the_fastest_of_many_modes_is_known_without_all_of_them():
    count = 100
    stiffness = 2.0 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)
    model = ds.ODE(
        lambda t, u, p: np.concatenate([u[count:], -p[0] * (stiffness @ u[:count])]), 2 * count, 1
    )
    state = model.create_state()
    state.set(0.1)
    fastest = 2.0 * np.sqrt(3.0) * np.sin(0.5 * np.pi * count / (count + 1))
    assert fastest_oscillation(model, 0.0, state, np.array([3.0])) == pytest.approx(fastest, 0.02)
    assert fastest_oscillation(model, 0.0, state, np.array([3.0]), least=100.0) == 0.0


@pytest.mark.parametrize("size", [20, 60])
def test_bounds_hide_no_oscillation(size, rng):
    matrix = 0.05 * rng.normal(size=(size, size))
    matrix[:2, :2] += [[0.0, 7.0], [-7.0, 0.0]]
    model = ds.ODE(lambda t, u, p: matrix @ u, size, 0)
    state, fastest = model.create_state(), np.abs(np.linalg.eigvals(matrix).imag).max()
    known = fastest_oscillation(model, 0.0, state, np.empty(0))
    assert known == pytest.approx(fastest, 1e-8)
    assert fastest_oscillation(model, 0.0, state, np.empty(0), least=0.999 * known) == known
    assert fastest_oscillation(model, 0.0, state, np.empty(0), least=2.0 * known) == 0.0


def test_few_modes_of_many_unknowns_are_told_exactly():
    # Arnoldi's method ends where its space is invariant
    matrix = np.kron(np.eye(30), [[-0.1, 3.0], [-3.0, -0.1]])
    model = ds.ODE(lambda t, u, p: matrix @ u, 60, 0)
    rate = fastest_oscillation(model, 0.0, model.create_state(), np.empty(0))
    assert rate == pytest.approx(3.0, 1e-12)
