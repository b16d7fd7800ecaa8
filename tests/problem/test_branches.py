"""What decides in callbacks, at one point and at many at once."""

import numpy as np
import pytest

from daeosens import ODE, Stepping, solve
from daeosens.problem.branches import FEW_POINTS, Branches

RNG = np.random.default_rng(5)
POINTS = 3 * FEW_POINTS
TIMES = np.sort(RNG.uniform(0.0, 2.0, POINTS))
P = np.array([0.7, 1.3])


def guarded(t, u, p):
    held = np.maximum(u, 0.0)
    return np.array([p[0] * held[0] - held[1], np.abs(u[0] - p[1]) * np.clip(u[1], -1.0, t)])


def stepped(t, u, p):
    return np.floor(3.0 * u) * p[0] + np.sign(u[0] - t)


def filled(t, u, p):
    du = np.zeros_like(u)
    du[0] = np.where(u[0] > t, u[1], p[1])
    du[1] = np.hypot(u[0], u[1]) if p[0] > 0.0 else 0.0
    return du


@pytest.mark.parametrize("function", [guarded, stepped, filled])
def test_many_points_have_the_decisions_of_single_ones(function):
    u = RNG.uniform(-1.0, 2.0, (POINTS, 2))
    many = Branches(function)
    decisions = many.along(TIMES, u, P)
    assert many._at_points
    for decided, t, state in zip(decisions, TIMES.tolist(), u, strict=True):
        single = Branches(function)(t, state, P)
        np.testing.assert_array_equal(decided.whole, single.whole)
        np.testing.assert_allclose(decided.values, single.values, rtol=1e-14, atol=1e-15)


def counting(function):
    count = [0]

    def counted(t, u, p):
        count[0] += 1
        return function(t, u, p)

    return counted, count


def test_few_evaluations_serve_many_points():
    counted, count = counting(guarded)
    Branches(counted).along(TIMES, RNG.uniform(0.1, 1.0, (POINTS, 2)), P)
    assert count[0] <= 4  # one at all points, three to compare with


def test_points_that_go_other_ways_are_asked_one_by_one():
    def split(t, u, p):
        return u if u[0] > 1.0 else -p[0] * u * np.abs(u[1])

    u = np.column_stack([np.linspace(0.5, 1.5, POINTS), np.ones(POINTS)])
    many = Branches(split)
    decisions = many.along(TIMES, u, P)
    assert not many._at_points
    assert {decided.values.size for decided in decisions} == {1, 2}


def test_a_callback_that_remembers_is_asked_one_by_one():
    calls = []

    def remembers(t, u, p):
        calls.append(t)
        return np.maximum(u, 0.1 * len(calls))

    many = Branches(remembers)
    assert len(many.along(TIMES, RNG.uniform(size=(POINTS, 2)), P)) == POINTS
    assert not many._at_points


def test_a_guard_that_never_acts_costs_few_evaluations():
    counted, count = counting(lambda t, u, p: -p[0] * np.maximum(u, 0.0))
    plain, least = counting(lambda t, u, p: -p[0] * (u + 0.0))
    stepping = Stepping((0.0, 5.0), "rk5dp", rtol=1e-8, atol=1e-10)
    runs = [solve(ODE(f, 2, 2), [1.0, 2.0], P, stepping) for f in (counted, plain)]
    np.testing.assert_array_equal(runs[0].u, runs[1].u)
    assert runs[0].n_steps > 2 * FEW_POINTS
    assert count[0] <= least[0] + 8
