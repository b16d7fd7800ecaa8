"""Continuous extensions of explicit Runge-Kutta methods."""

import numpy as np
import pytest

from daeosens.methods.rk.continuous import continuous
from daeosens.methods.rk.method import EXPLICIT


def rate(t, u):
    return np.array([-u[0] * np.cos(t) + u[1], 0.5 * u[0] * u[1] - np.sin(2 * t)])


def step(tableau, t, h, u):
    rates = np.zeros((len(tableau.b), len(u)))
    for i, c in enumerate(tableau.c):
        rates[i] = rate(t + c * h, u + h * (tableau.a[i] @ rates))
    return rates


@pytest.mark.parametrize("method", EXPLICIT, ids=lambda method: method.name)
def test_errors_inside_a_step_fall_with_the_power_of_the_order(method):
    tableau = continuous(method.kind, method.order, estimated=method.estimated)
    fine = continuous("8vr", 8, estimated=False)
    parts = np.array([0.13, 0.4, 0.71, 0.95])
    errors = []
    for h in (0.2, 0.1) if method.order < 7 else (0.4, 0.2):
        u = np.array([0.8, 0.3])
        inside = u + h * tableau.at(parts) @ step(tableau, 0.3, h, u)
        errors.append(0.0)
        for part, value in zip(parts, inside, strict=True):
            exact = u.copy()
            for k in range(8):
                small = part * h / 8
                exact = exact + small * fine.b @ step(fine, 0.3 + k * small, small, exact)
            errors[-1] = max(errors[-1], np.abs(value - exact).max())
    assert np.log2(errors[0] / errors[1]) > method.order - 0.35


@pytest.mark.parametrize("method", EXPLICIT, ids=lambda method: method.name)
def test_ends_are_states_and_rates_of_the_step(method):
    tableau = continuous(method.kind, method.order, estimated=method.estimated)
    first, last = np.eye(len(tableau.b))[[0, tableau.end]]
    np.testing.assert_allclose(tableau.at([0.0, 1.0]), [0.0 * first, tableau.b], atol=1e-12)
    np.testing.assert_allclose(tableau.at([0.0, 1.0], 1), [first, last], atol=1e-11)
    middle, h = np.array([0.37]), 1e-5
    for k in (1, 2):
        slope = (tableau.at(middle + h, k - 1) - tableau.at(middle - h, k - 1)) / (2 * h)
        np.testing.assert_allclose(tableau.at(middle, k), slope, atol=1e-6)
    if tableau.b_error is not None:
        assert abs(tableau.b_error.sum()) < 1e-13
    assert (tableau.c >= 0.0).all()
    assert (tableau.c <= 1.0 + 1e-12).all()
