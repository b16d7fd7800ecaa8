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
