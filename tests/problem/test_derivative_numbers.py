"""Numbers in C that carry derivatives do what arrays of no axes do."""

import math

import numpy as np
import pytest

from daeosens.problem.derivative_arrays import DerivativeArray, evaluate
from daeosens.problem.derivative_arrays.arrays import DerivativeNumber

RNG = np.random.default_rng(2)
ONE = [
    *(np.sin, np.cos, np.tan, np.exp, np.expm1, np.log, np.log1p, np.log10, np.sqrt, np.sinh),
    *(np.cosh, np.tanh, np.arctan, np.square, np.reciprocal, np.absolute, np.negative, abs),
    *(lambda x: x**2, lambda x: x**1, lambda x: x**0, lambda x: x**-1.5, lambda x: x**x),
    *(lambda x: 2.0 / x, lambda x: 3 - x, lambda x: x % 0.3, lambda x: 2.0**x, math.floor),
    *(lambda x: np.maximum(x, 0.1), lambda x: np.float64(2.0) * x - np.float64(1.0), np.arcsinh),
]
TWO = [
    *(lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y),
    *(lambda x, y: x**y, np.hypot, np.maximum, lambda x, y: x if x > y else y),
    *(lambda x, y: np.array([x, y, 1.0]) @ np.ones(3), lambda x, y: np.sum([x, 2 * y])),
]


def variables(count, second, values):
    value, slopes = np.array(values), RNG.normal(size=(len(values), count))
    if not second:
        return DerivativeArray(value, slopes)
    changes, mixed = RNG.normal(size=(len(values), 1)), RNG.normal(size=(len(values), count, 1))
    return DerivativeArray(DerivativeArray(value, changes), DerivativeArray(slopes, mixed))


def flat(x):
    """Return all numbers of a result."""
    if isinstance(x, DerivativeArray):
        return np.concatenate([flat(x.value), flat(x.slopes)])
    return np.ravel(x)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_numbers_agree_with_arrays(count, second):
    for value in (0.7, 2.5):
        x, y = (variables(count, second, [value, 1.2])[k] for k in (0, 1))
        assert type(x) is DerivativeNumber
        directions = (count, 1) if second else (count,)
        for function in ONE:
            ours = evaluate(function, [x], directions)
            exact = evaluate(function, [x.whole()], directions)
            np.testing.assert_allclose(flat(ours), flat(exact), rtol=1e-13, atol=1e-14)
        for function in TWO:
            ours = evaluate(function, [x, y], directions)
            exact = evaluate(function, [x.whole(), y.whole()], directions)
            np.testing.assert_allclose(flat(ours), flat(exact), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("function", [np.sqrt, np.log, np.log1p, np.reciprocal, lambda x: x**0.5])
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_edges_of_domains_are_those_of_arrays(function, value):
    x = variables(2, False, [value, 1.0])[0]
    ours, exact = (evaluate(function, [number], (2,)) for number in (x, x.whole()))
    np.testing.assert_array_equal(flat(ours), flat(exact))


def test_numbers_refuse_what_arrays_refuse():
    x = variables(2, False, [0.5])[0]
    for lost in (float, complex, lambda x: x == 0.5, lambda x: bool(x - 0.5)):
        with pytest.raises(TypeError, match="no derivative"):
            lost(x)
    with pytest.raises(TypeError):
        hash(x)
    with pytest.raises(TypeError, match="0-d"):
        iter(x)
    assert (int(x), round(x, 0), x < 1.0, x > 1.0, x == 0.4, x != 0.4) == (0, 0.0, 1, 0, 0, 1)
    with pytest.raises(IndexError, match="out of bounds"):
        variables(2, False, [0.5])[1]
