"""Verdicts of Taylor tests: wrong derivatives are seen, right ones not blamed, noise is told."""

import numpy as np
import pytest
from closed_forms import Formula, cubic
from reproduction.explicit_methods import orbit

from daeosens import Parameter, Parameters, Reduced, Stepping, trace
from daeosens.verify.taylor import taylor


@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_wrong_gradient_has_order_one(size):
    """Also where only the smallest steps can see the error."""
    orders = taylor(cubic(size))
    assert min(orders) == orders.order < 1.9
    assert not orders.passed
    assert "WRONG" in str(orders)


def test_gradient_with_a_right_hessian_is_right_before_its_own_order_shows():
    def bent(error):
        return Formula(
            lambda x: (x + x**2 - 20 * x**3).sum(),
            lambda x: 1 + 2 * x - 60 * x**2 + error,
            lambda x: np.diag(2 - 120 * x),
            np.zeros(1),
        )

    orders = taylor(bent(0.0), None, [1.0], [2e-2, 1e-2, 5e-3], hessian=True)
    assert orders.order < 1.9
    assert min(orders) > 2.99
    assert orders.passed
    assert "WRONG" not in str(orders)
    wrong = taylor(bent(1e-6), direction=[1.0], hessian=True)
    assert not wrong.passed
    assert "the gradient is WRONG" in str(wrong)


def curved(value, slope, bend, part):
    """Return a function of one number at 1, its second derivative off by a part."""
    return Formula(lambda x: value(x).sum(), slope, lambda x: (1 + part) * np.diag(bend(x)), [1.0])


def wave(part):
    """Return cos(300 x + 1): the first step of a test may span a third of a period."""
    return curved(
        lambda x: np.cos(300 * x + 1),
        lambda x: -300 * np.sin(300 * x + 1),
        lambda x: -9e4 * np.cos(300 * x + 1),
        part,
    )


def parabola(part):
    """Return nearly a parabola, so that small errors of the Hessian are seen above the rounding."""
    return curved(
        lambda x: x**2 + 1e-4 * x**3, lambda x: 2 * x + 3e-4 * x**2, lambda x: 2 + 6e-4 * x, part
    )


def scales(part):
    """Return a sum of exponentials whose rates differ by a factor of 1e4."""
    rates = np.array([0.05, 5.0, 500.0])
    weights = np.array([1.0, 1e-2, 1e-4])

    def derivative(order):
        return lambda x: (weights * rates**order * np.exp(-rates * (x[:, None] - 1))).sum(1)

    return curved(derivative(0), lambda x: -derivative(1)(x), derivative(2), part)


@pytest.mark.parametrize("size", [0.31, 0.57, 0.83, 1.37])
@pytest.mark.parametrize("function", [wave, parabola, scales])
def test_right_hessian_is_right_however_late_its_order_shows(function, size):
    orders = taylor(function(0.0), direction=[size], hessian=True)
    assert 2.95 < min(orders) < 3.05
    assert orders.passed
    assert "WRONG" not in str(orders)


@pytest.mark.parametrize("size", [0.31, 0.57, 0.83, 1.37])
@pytest.mark.parametrize(
    ("function", "part"), [(wave, 1e-3), (scales, 1e-3), (parabola, 1e-3), (parabola, 1e-6)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_hessian_that_is_wrong_by_a_small_part_is_wrong(function, part, sign, size):
    orders = taylor(function(sign * part), direction=[size], hessian=True)
    assert min(orders) == orders.hessian_order < 2.9
    assert not orders.passed
    assert "the Hessian is WRONG" in str(orders)


def test_large_steps_of_a_wave_have_no_order():
    orders = taylor(wave(0.0), direction=[1.0], hessian=True)
    assert np.nanmin(orders.orders[2]) < 2
    assert orders.passed
    assert not taylor(wave(0.0), None, [1.0], [8e-3, 4e-3, 2e-3], hessian=True).passed


@pytest.mark.slow
@pytest.mark.parametrize(("end", "seen"), [(20.0, 1e-3), (100.0, 1e-2)])
def test_hessian_of_an_orbit_over_many_revolutions(end, seen):
    """Smaller errors drown in the rounding, which the orbit amplifies, before they show."""
    model = trace(orbit, 4, {"mass": ()})
    functional = Reduced(
        model,
        model.terminal(lambda t, u, p: 0.5 * (u @ u) + u[0]),
        Stepping((0.0, end), "rk8vr", dt=0.02),
        Parameters({"mass": Parameter(1.0)}, initial_state=[0.5, 0.0, 0.0, 3**0.5]),
    )
    right = functional.hessian_product
    for seed in range(4):
        assert taylor(functional, seed=seed, hessian=True).passed
        for part in (seen, -seen):

            def wrong(x, dx, part=part):
                product = right(x, dx)
                product.scale(1 + part)
                return product

            functional.hessian_product = wrong
            assert taylor(functional, seed=seed, hessian=True).hessian_order < 2.9
            functional.hessian_product = right


def flat(value, slope):
    """Return J as given, with a constant gradient [3]."""
    return Formula(value, lambda x: slope, lambda x: np.zeros((3, 3)), np.array([0.7, -0.4, 1.3]))


def test_order_of_a_linear_functional_is_infinite():
    weights = np.array([1.0, 2.0, 3.0])
    orders = taylor(flat(lambda x: weights @ x, weights))
    assert orders.order == np.inf
    assert list(orders) == [np.inf]
    assert "is right" in str(orders)


def test_order_of_a_constant_is_infinite():
    assert taylor(flat(lambda x: 3.0, np.zeros(3))).order == np.inf


def test_pairs_dominated_by_rounding_are_left_out():
    """With steps down to 1e-12 the remainder turns to noise; what is left is still of order 2."""
    orders = taylor(cubic(), epsilons=0.5 ** np.arange(3, 40))
    assert np.isnan(orders.orders[1][-15:]).all()
    assert 1.9 < orders.order < 2.1
    assert sum(np.isfinite(orders.orders[1])) > 10


def test_functional_that_is_all_noise_cannot_be_judged(rng):
    orders = taylor(flat(lambda x: rng.normal(), np.ones(3)))
    assert np.isnan(orders.order)
    assert not orders.passed
    assert "cannot be judged" in str(orders)
