"""Times at which what a callback compares with t changes: closed forms."""

import math

import numpy as np
import pytest
from scipy.interpolate import interp1d, make_interp_spline

from daeosens.problem.branches import Branches
from daeosens.problem.clock import MOST_FORMULAS, Clock, Noted
from daeosens.problem.derivative_arrays import call_at
from daeosens.problem.time_formulas import Formula, bends, changes

STARTS = np.array([9.0, 30.0, 31.0])


def times(function, end=50.0, at=3.3):
    noted = Noted()
    call_at(function, Clock(at, Formula(), noted), ())
    return changes(noted.switches, 0.0, end)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda t: t < 7.0, [7.0]),
        (lambda t: t > 7.0, [7.0]),
        (lambda t: 2.0 - 3.0 * t >= -7.0, [3.0]),
        (lambda t: t % 24 < 0.5, [0.5, 24.0, 24.5, 48.0, 48.5]),
        (lambda t: math.fmod(t, 24) < 0.5, [0.5, 24.0, 24.5, 48.0, 48.5]),
        (lambda t: t - 24 * np.floor(t / 24) < 0.5, [0.5, 24.0, 24.5, 48.0, 48.5]),
        (lambda t: int(t // 24) % 2, [24.0, 48.0]),
        (lambda t: math.floor(t / 24), [24.0, 48.0]),
        (lambda t: np.rint(t / 20), [10.0, 30.0]),
        (lambda t: (t >= STARTS) & (t < STARTS + 0.25), [9, 9.25, 30, 30.25, 31, 31.25]),
        (lambda t: (t - STARTS) % 40 < 0.5, [9, 9.5, 30, 30.5, 31, 31.5, 49, 49.5]),
        (lambda t: max(0.0, 1 - abs(t - 5) / 0.1), [4.9, 5.0, 5.1]),
        (lambda t: np.heaviside(t - 5, 1.0), [5.0]),
        (lambda t: np.digitize(t, [1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]),
        (lambda t: np.searchsorted([1.0, 2.0, 3.0], t), [1.0, 2.0, 3.0]),
        (lambda t: np.clip(t - 3, 0, 1), [3.0, 4.0]),
        (lambda t: t**2 > 5, [math.sqrt(5.0)]),
        (lambda t: np.sin(t / 10) > 0.5, [10 * math.pi / 6, 50 * math.pi / 6]),
        (lambda t: math.sin(t) > 2.0, []),
        (lambda t: 2 * t + np.interp(t, [0.0, 1.0], [0.0, 1.0]), []),
    ],
)
def test_changes(function, expected):
    np.testing.assert_allclose(times(function), expected, rtol=1e-9)


def test_a_narrow_peak_of_a_sine_among_many_is_found():
    half = math.acos(0.99999)
    peaks = np.pi / 2 + 2 * np.pi * np.arange(1000)
    expected = np.ravel([peaks - half, peaks + half], order="F")
    found = times(lambda t: np.sin(t) > 0.99999, end=2 * np.pi * 1000)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_iterations_use_their_last_number_many_times_and_long_sums_are_deep():
    def eccentric(t):  # of Kepler's equation, by Newton's method
        angle = t
        for _ in range(30):
            angle = angle - (angle - 0.6 * np.sin(angle) - t) / (1.0 - 0.6 * np.cos(angle))
        return angle > 2.0

    np.testing.assert_allclose(times(eccentric, 6.0), [2.0 - 0.6 * math.sin(2.0)], rtol=1e-9)

    def tide(t):  # constituents of a harmonic analysis
        height = 0.0
        for k in range(1, 600):
            height = height + 0.5**k * np.sin(t)
        return height > 0.5

    np.testing.assert_allclose(times(tide, 3.0), [math.pi / 6, 5 * math.pi / 6], rtol=1e-9)
    noted = Noted()
    call_at(lambda t: sum(k * t for k in range(10_000)), Clock(1.0, Formula(), noted), ())
    assert len(noted.formulas) == MOST_FORMULAS


def test_numbers_are_those_of_a_plain_time():
    def function(t):
        whole = [int(t), math.floor(t), math.ceil(t), round(t), divmod(t, 2), -t, abs(t), +t]
        return [
            *whole,
            2.0**t,
            t**2,
            7 // t,
            t < 3,
            t > 3,
            ~(t < 3),
            math.exp(t),
            np.stack([t, t]).tolist(),
        ]

    assert function(Clock(3.7, Formula(), Noted())) == function(3.7)


def test_ramps_splines_and_tables_that_come_again_bend():
    straight = make_interp_spline([0.0, 2.5, 9.0], [1.0, 2.0, 0.0], k=1)
    older = interp1d([0.0, 3.0, 9.0], [1.0, 2.0, 0.0])
    smooth = make_interp_spline([0.0, 3.5, 6.0, 9.0], [1.0, 2.0, 0.0, 1.0], k=3)

    def rhs(t, u, p):
        ramp = np.clip((t - 2.0) / 3.0, 0.0, 1.0)
        again = np.interp(t, [0.0, 1.5, 4.0], [1.0, 0.0, 1.0], period=5.0)
        return np.array([ramp + again + straight(t) + smooth(t) + older(t) - p[0] * u[0]])

    noted = Branches(rhs).of_time(0.1, np.ones(1), np.ones(1))
    times = changes(bends(noted.formulas), 0.0, 8.0)
    np.testing.assert_allclose(times, [1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.5], rtol=1e-9)
