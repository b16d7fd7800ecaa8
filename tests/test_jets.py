"""Forward-mode numbers: every function's slope, and second derivatives by complex step."""

import numpy as np
import pytest

from daeosens import ODE, DaeosensError, Parameter, Parameters, Stepping, fit
from daeosens.jets import Jet, slopes_of, variables

FUNCTIONS = [
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "arcsinh"),
    *("arctanh", "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt"),
    *("square", "reciprocal", "negative", "positive"),
]
STEP = 1e-40


def second(function, x):
    """Return f'(x) and f''(x)."""
    argument = variables(np.array([x + 1j * STEP]), 0, 1)
    slope = slopes_of([function(argument[0])], 1)[0, 0]
    return slope.real, slope.imag / STEP


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_derivatives_of_functions(name):
    function, x, h = getattr(np, name), 0.4, 1e-3
    points = [function(x + k * h) for k in (-2, -1, 0, 1, 2)]
    by_one = np.dot([1, -8, 0, 8, -1], points) / (12 * h)
    by_two = np.dot([-1, 16, -30, 16, -1], points) / (12 * h**2)
    first, bend = second(function, x)
    assert first == pytest.approx(by_one, rel=1e-9)
    assert bend == pytest.approx(by_two, rel=1e-6, abs=1e-8)


def test_arccosh_beyond_one():
    assert second(np.arccosh, 1.5) == pytest.approx((1.25**-0.5, -1.5 * 1.25**-1.5))


@pytest.mark.parametrize(
    ("function", "slope", "bend"),
    [
        (lambda x: x**3, 12.0, 12.0),
        (lambda x: x**-2, -0.25, 0.375),
        (lambda x: x**0, 0.0, 0.0),
        (lambda x: 2**x, 4 * np.log(2), 4 * np.log(2) ** 2),
        (lambda x: x**x, 4 * (1 + np.log(2)), 4 * (1 + np.log(2)) ** 2 + 2),
        (lambda x: 3 / x + x / 3 - x / (x + 1), -0.75 + 1 / 3 - 1 / 9, 0.75 + 2 / 27),
        (lambda x: 1 - x - (x - 1) + 2 * (x + 1) - +x, -1.0, 0.0),
        (lambda x: np.float64(2.0) * x * x + np.float64(1.0) - -x, 9.0, 4.0),
        (lambda x: np.maximum(x, 1.0) * np.minimum(x, 5.0), 4.0, 2.0),
        (lambda x: np.where(x >= 1.0, x * x, x) if x > 0 and x < 3 and x <= 2 else x, 4.0, 2.0),
        (lambda x: x * x if x == x and x and x != 0 and x != 3.0 else x, 4.0, 2.0),
        (lambda x: np.where(x == 0.0, 1.0, x * x), 4.0, 2.0),
        (lambda x: (np.array([[0.0, 1.0], [2.0, 0.0]]) @ np.array([x * x, 1.0]))[1], 8.0, 4.0),
    ],
)
def test_operators(function, slope, bend):
    def call(x):
        return np.asarray(function(x), dtype=object).item()

    assert second(call, 2.0) == pytest.approx((slope, bend), rel=1e-14)


def test_negative_base_of_an_integer_power_keeps_its_second_derivative():
    assert second(lambda x: x**3, -2.0) == pytest.approx((12.0, -12.0), rel=1e-14)


def test_real_parts_decide_branches_and_carry_nothing():
    assert second(lambda x: x**2 if x.real > 1.0 else -x, 3.0) == (6.0, 2.0)
    assert isinstance(Jet(1.0 + 2.0j, np.ones(1)).real, float)


def test_constants_have_no_slopes():
    np.testing.assert_array_equal(slopes_of([1.0, 2], 3), np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (abs, TypeError, "abs is not analytic"),
        (float, TypeError, "float"),
        (np.cbrt, TypeError, "cbrt"),
        (np.conj, TypeError, "conj"),
        (lambda x: x.floor(), AttributeError, "no derivative of 'floor' is known"),
    ],
)
def test_what_would_lose_the_derivative_is_an_error(function, error, message):
    with pytest.raises(error, match=message):
        function(Jet(1.0, np.ones(1)))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, u: a * u,
        lambda a, u: u * a,
        lambda a, u: a + u,
        lambda a, u: a - u,
        lambda a, u: u - a,
        lambda a, u: a / u,
        lambda a, u: u / a,
        lambda a, u: a**u,
        lambda a, u: -a * u * np.array([2.0, 3.0]),
    ],
)
def test_a_number_goes_with_every_entry_of_an_array(function):
    point = np.array([1.3, 0.7, 0.4])
    x = variables(point, 0, 3)
    slopes = slopes_of(function(x[0], x[1:]), 3)
    h = 1e-6
    for j, unit in enumerate(np.eye(3)):
        above, below = point + h * unit, point - h * unit
        by_differences = (function(above[0], above[1:]) - function(below[0], below[1:])) / (2 * h)
        np.testing.assert_allclose(slopes[:, j], by_differences, rtol=1e-8, atol=1e-9)


def test_assignment_to_an_array_of_numbers_says_what_to_write():
    def rhs(t, u, p):
        out = np.zeros(1)
        out[0] = -p[0] * u[0]
        return out

    data, rates = [0.6, 0.4, 0.2], Parameters({"rate": Parameter(1.0)}, [1.0])
    stepping = Stepping((0.0, 3.0), "rk4", dt=0.5)
    with pytest.raises(DaeosensError, match=r"np\.array\(\[\.\.\.\]\).*gauss_newton"):
        fit(ODE(rhs, 1, ["rate"]), data, rates, stepping, times=[1.0, 2.0, 3.0])
