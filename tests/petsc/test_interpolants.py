"""Polynomials through values and slopes."""

import numpy as np
import pytest

from daeosens.petsc._kernels import interpolate

CUBIC = np.polynomial.Polynomial([0.3, -2.0, 1.0, 1.5])
SLOPE = CUBIC.deriv()
POINTS = {
    "values": [(-0.5, None), (0.0, None), (0.4, None), (1.0, None)],
    "slopes at both ends": [(0.0, True), (1.0, True)],
    "slope at one end": [(-0.5, None), (0.0, None), (1.0, True)],
}


@pytest.mark.parametrize("points", POINTS.values(), ids=POINTS)
def test_cubic_is_reproduced(points):
    curve = interpolate([(x, CUBIC(x), slope and SLOPE(x)) for x, slope in points])
    for x in (-1.0, 0.2, 0.77, 2.0):
        np.testing.assert_allclose(curve.at(x), (CUBIC(x), SLOPE(x)), rtol=1e-13, atol=1e-13)
    expected = [x for x in SLOPE.roots() if 0 < x < 1]
    np.testing.assert_allclose(curve.extrema(), expected, rtol=1e-13)
    root = curve.root(0.0, curve.extrema()[0])
    assert CUBIC(root) == pytest.approx(0.0, abs=1e-15)


def test_two_extrema_come_in_order():
    wave = np.polynomial.Polynomial.fromroots([0.2, 0.5, 0.9])
    slope = wave.deriv()
    curve = interpolate([(x, wave(x), slope(x)) for x in (0.0, 1.0)])
    np.testing.assert_allclose(curve.extrema(), np.sort(slope.roots()), rtol=1e-12)
    monotone = interpolate([(0.0, 0.0, 1.0), (1.0, 2.0, 3.0)])
    assert monotone.extrema() == []


def test_more_points_improve_a_curve():
    points = [(x, np.cos(5 * x), -5 * np.sin(5 * x)) for x in (0.0, 1.0)]
    curve, errors = interpolate(points), []
    for x in (0.5, 0.3, 0.7, 0.15, 0.85):
        errors.append(abs(curve.extrema()[0] - np.pi / 5))
        curve = curve.add(x, np.cos(5 * x))
    assert errors[0] > 1e-2
    assert abs(curve.extrema()[0] - np.pi / 5) < 1e-3
    assert curve.root(0.2, 0.5) == pytest.approx(np.pi / 10, abs=1e-3)


def test_a_zero_where_the_curve_begins_is_divided_out():
    flight = interpolate([(0.0, 0.0, 2.0), (1.0, -3.0, None)])  # 2 x - 5 x^2
    rest = flight.deflated()
    np.testing.assert_allclose(rest.at(0.3), (0.5, -5.0), rtol=1e-14)
    assert rest.root(0.0, 1.0) == pytest.approx(0.4, rel=1e-15)


def test_root_without_a_change_of_sign_is_the_end_nearer_to_zero():
    """Rounding may hide a zero at the very end."""
    line = interpolate([(0.0, 1.0, None), (1.0, 1e-17, None)])
    assert line.root(0.0, 1.0) == 1.0
    assert line.root(-1.0, 0.0) == 0.0


def test_distance_to_the_nearest_node():
    curve = interpolate([(-0.5, 1.0, None), (0.0, 2.0, None), (1.0, 0.0, 1.0)])
    values = [curve.nearest(x) for x in (-1.0, -0.1, 0.25, 1.0 + 1e-5)]
    np.testing.assert_allclose(values, [0.5, 0.1, 0.25, 1e-5], rtol=1e-10)
