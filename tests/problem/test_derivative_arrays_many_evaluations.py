"""Functions of libraries that are replaced once for many evaluations."""

import math

import numpy as np
import pytest

import daeosens as ds
from daeosens.problem.clock import Clock, Noted
from daeosens.problem.derivative_arrays import call_at, evaluate, many_evaluations
from daeosens.problem.derivative_arrays.arrays import DerivativeArray
from daeosens.problem.time_formulas import Formula

ORIGINALS = np.zeros, np.array, math.sin, np.vectorize.__call__


def functions():
    return np.zeros, np.array, math.sin, np.vectorize.__call__


def rate(u):
    out = np.zeros(2)
    out[0], out[1] = math.sin(u[1]), u[0] * u[1]
    return out


def point():
    return DerivativeArray(np.array([2.0, 3.0]), np.eye(2))


def test_functions_are_put_back_after_the_loop():
    expected = [[0.0, math.cos(3.0)], [3.0, 2.0]]
    with many_evaluations():
        for _ in range(3):
            slopes = evaluate(rate, [point()], (2,)).slopes
            assert slopes.tolist() == expected
        # what is called beside callbacks gets what the functions themselves return
        assert type(np.zeros(2)) is np.ndarray
        assert type(np.array([1.0, 2.0])) is np.ndarray
        assert math.sin(3.0) == ORIGINALS[2](3.0)
        with many_evaluations():
            evaluate(rate, [point()], (2,))
        # the outer loop goes on
        assert functions() != ORIGINALS
    assert functions() == ORIGINALS
    evaluate(rate, [point()], (2,))
    assert functions() == ORIGINALS


def test_functions_are_put_back_where_a_callback_fails():
    def fails(u):
        raise ArithmeticError(u.shape)

    with pytest.raises(ArithmeticError), many_evaluations():
        evaluate(fails, [point()], (2,))
    assert functions() == ORIGINALS


def test_clocks_leave_functions_replaced_for_the_evaluations_that_follow():
    with many_evaluations():
        evaluate(rate, [point()], (2,))
        assert call_at(lambda t: math.sin(2.0 * t), Clock(1.0, Formula(), Noted()), []) == math.sin(
            2.0
        )
        assert evaluate(rate, [point()], (2,)).slopes[0, 1] == math.cos(3.0)
    assert functions() == ORIGINALS


def test_callbacks_in_a_sweep_get_plain_numbers_where_they_have_own_derivatives():
    seen = set()

    def jacobian(_t, u, p):
        matrix = np.zeros((2, 2))
        seen.add(type(matrix))
        matrix[0, 1], matrix[1, 0] = 1.0, -p[0] * math.cos(u[0])
        return matrix

    problem = ds.ODE(
        lambda t, u, p: np.array([u[1], -p[0] * math.sin(u[0])]), 2, 1, jacobian=jacobian
    )
    run = ds.solve(problem, [1.0, 0.0], [2.0], ds.Stepping((0.0, 1.0), "cn", dt=0.1))
    cost = ds.Terminal(lambda t, u, p: u[0])
    by_vectors, by_arrays = (ds.adjoint(run, cost, engine) for engine in ("vectors", "arrays"))
    assert seen == {np.ndarray}
    np.testing.assert_allclose(by_vectors.p, by_arrays.p, rtol=1e-12)
    assert functions() == ORIGINALS
