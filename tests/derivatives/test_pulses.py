"""Pulses in time between the stages of a step are seen: runs and gradients are right."""

import math
import warnings

import numpy as np
import pytest

from daeosens import DAE, ODE, Stepping, Terminal, adjoint, solve, trace
from daeosens.derivatives.step_placement import pulses
from daeosens.errors import DiscretizationWarning

LAST = Terminal(lambda t, u, p: u[0])


def by_where(t, u, p):
    return np.array([-0.2 * u[0] + np.where((t >= 10.0) & (t < 11.0), p[0], 0.0)])


def by_branch(t, u, p):
    return np.array([-0.2 * u[0] + (p[0] if 10.0 <= t < 11.0 else 0.0)])


def by_list(t, u, p):
    on = sum(1.0 if start <= t < start + 0.25 else 0.0 for start in (9.0, 30.0, 31.0))
    return np.array([-0.2 * u[0] + on * p[0]])


def answer(first, last, end):
    """What a pulse of size 1 leaves at the end."""
    return (np.exp(-0.2 * (end - last)) - np.exp(-0.2 * (end - first))) / 0.2


@pytest.mark.parametrize("method", ["auto", "rk6vr", "esdirk5"])
@pytest.mark.parametrize("problem", ["where", "branch", "traced"])
def test_a_pulse_between_stages_is_seen(problem, method):
    made = {
        "where": lambda: ODE(by_where, 1, 1),
        "branch": lambda: ODE(by_branch, 1, 1),
        "traced": lambda: trace(by_where, 1, 1),
    }
    run = solve(made[problem](), [0.0], [40.0], Stepping((0.0, 40.0), method, rtol=1e-6))
    gradient = adjoint(run, LAST)
    exact = answer(10.0, 11.0, 40.0)
    assert gradient.value == pytest.approx(40.0 * exact, rel=1e-4)
    assert gradient.p[0] == pytest.approx(exact, rel=1e-4)


def test_several_pulses_in_one_step_are_seen():
    run = solve(ODE(by_list, 1, 1), [0.0], [1.0], Stepping((0.0, 40.0), rtol=1e-7))
    exact = sum(answer(start, start + 0.25, 40.0) for start in (9.0, 30.0, 31.0))
    assert run.u[-1, 0] == pytest.approx(exact, rel=1e-5)


def test_a_pulse_behind_many_steps_is_seen():
    def rhs(t, u, p):
        pulse = np.where((t >= 60.0) & (t < 60.5), p[0], 0.0)
        return np.array([-0.2 * u[0] + pulse, u[2], -25.0 * u[1] - u[2]])

    run = solve(ODE(rhs, 3, 1), [0.0, 1.0, 0.0], [40.0], Stepping((0.0, 80.0), rtol=1e-6))
    assert run.n_steps > 40  # looked at all at once
    gradient = adjoint(run, LAST)
    exact = answer(60.0, 60.5, 80.0)
    assert gradient.value == pytest.approx(40.0 * exact, rel=1e-4)
    assert gradient.p[0] == pytest.approx(exact, rel=1e-4)


def test_what_does_nothing_takes_no_further_steps():
    def idle(t, u, p):
        return np.array([-p[0] * u[0] + np.where((t >= 10.0) & (t < 11.0), 1e-9, 0.0)])

    stepping = Stepping((0.0, 40.0), "rk6vr", rtol=1e-6)
    runs = [solve(ODE(f, 1, 1), [1.0], [0.2], stepping) for f in (idle, lambda t, u, p: -p[0] * u)]
    assert runs[0].n_steps == runs[1].n_steps


def test_times_that_were_asked_for_stay():
    stepping = Stepping((0.0, 40.0), "rk6vr", rtol=1e-6)
    run = solve(ODE(by_where, 1, 1), [0.0], [40.0], stepping, t_eval=[20.0])
    assert run.at(20.0).array[0] == pytest.approx(40.0 * answer(10.0, 11.0, 20.0), rel=1e-4)


PULSES = [(24.0 * day, 24.0 * day + 0.5) for day in range(5)]
"""Of half an hour, at the beginning of each day."""


def left_by(pulses, end):
    """What pulses of size 1 leave at the end, of a decay by 0.5."""
    return sum(np.exp(-0.5 * (end - b)) - np.exp(-0.5 * (end - a)) for a, b in pulses) / 0.5


def daily(on):
    """A rate that a pulse raises at times at which ``on`` holds."""
    return lambda t, u, p: np.array([-0.5 * u[0] + np.where(on(t), p[0], 0.0)])


def by_doses(t):
    starts = 24.0 * np.arange(5)
    return np.any((t >= starts) & (t < starts + 0.5))


@pytest.mark.parametrize("traced", [False, True], ids=["NumPy", "traced"])
@pytest.mark.parametrize(
    "on",
    [
        pytest.param(lambda t: t % 24.0 < 0.5, id="remainder"),
        pytest.param(lambda t: np.mod(t, 24.0) < 0.5, id="mod"),
        pytest.param(lambda t: t - 24.0 * np.floor(t / 24.0) < 0.5, id="floor"),
        pytest.param(lambda t: np.cos(2 * np.pi * (t - 0.25) / 24) > np.cos(np.pi / 48), id="cos"),
    ],
)
def test_pulses_that_come_again_are_seen(on, traced):
    problem = (trace if traced else ODE)(daily(on), 1, 1)
    run = solve(problem, [0.0], [2.0], Stepping((0.0, 119.0), rtol=1e-6))
    gradient = adjoint(run, LAST)
    left = left_by(PULSES, 119.0)
    assert gradient.value == pytest.approx(2.0 * left, rel=1e-4)
    assert gradient.p[0] == pytest.approx(left, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "on",
    [
        pytest.param(by_doses, id="any"),
        pytest.param(lambda t: int(t // 0.5) % 48 == 0, id="int"),
        pytest.param(lambda t: math.fmod(t, 24.0) < 0.5, id="fmod"),
        pytest.param(lambda t: 0 <= t % 24 < 0.5 if t < 200.0 else False, id="branch"),
        pytest.param(lambda t: divmod(t, 24.0)[1] < 0.5, id="divmod"),
        pytest.param(lambda t: np.digitize(t % 24.0, [0.5, 12.0]) == 0, id="digitize"),
        pytest.param(lambda t: np.searchsorted([0.5, 12.0], t % 24.0) == 0, id="searchsorted"),
    ],
)
def test_pulses_by_what_is_no_symbol_are_seen(on):
    run = solve(ODE(daily(on), 1, 1), [0.0], [2.0], Stepping((0.0, 119.0), rtol=1e-6))
    left = left_by(PULSES, 119.0)
    assert adjoint(run, LAST).p[0] == pytest.approx(left, rel=1e-4)


def test_pulses_whose_times_are_parameters_are_seen():
    def rhs(t, u, p):
        return np.array([-0.5 * u[0] + (p[0] if (t - p[1]) % p[2] < 0.5 else 0.0)])

    run = solve(ODE(rhs, 1, 3), [0.0], [2.0, 7.0, 24.0], Stepping((0.0, 80.0), rtol=1e-6))
    pulses = [(7.0, 7.5), (31.0, 31.5), (55.0, 55.5), (79.0, 79.5)]
    left = left_by(pulses, 80.0)
    assert run.u[-1, 0] == pytest.approx(2.0 * left, rel=1e-4)


@pytest.mark.slow
def test_pulses_of_implicit_equations_are_seen():
    def residual(t, u, udot, p):
        return (1.0 + 0.1 * u) * udot + 0.5 * u - np.where(t % 24.0 < 0.5, p[0], 0.0)

    def rhs(t, u, p):
        return (-0.5 * u + np.where(t % 24.0 < 0.5, p[0], 0.0)) / (1.0 + 0.1 * u)

    edges = [t for pulse in PULSES for t in pulse if 0.0 < t < 30.0]
    exact = solve(ODE(rhs, 1, 1, breakpoints=edges), [0.0], [2.0], Stepping((0.0, 30.0), rtol=1e-9))
    run = solve(DAE(residual, 1, 1), [0.0], [2.0], Stepping((0.0, 30.0), "cn", rtol=1e-4))
    gradients = [adjoint(taken, LAST) for taken in (run, exact)]
    assert gradients[0].value == pytest.approx(gradients[1].value, rel=1e-2)
    assert gradients[0].p[0] == pytest.approx(gradients[1].p[0], rel=1e-2)


def test_what_is_compared_with_the_state_or_does_nothing_takes_no_further_steps():
    stepping = Stepping((0.0, 60.0), "rk6vr", rtol=1e-6)

    def idle(t, u, p):
        off = 1e-9 * (t % 5.0 < 0.1) + (t * u[0] > 1e3) + (np.sin(t) > 2.0)
        return np.array([-p[0] * u[0] + np.cos(t) + off])

    plain = ODE(lambda t, u, p: -p[0] * u + np.cos(t), 1, 1)
    runs = [solve(problem, [1.0], [0.2], stepping) for problem in (ODE(idle, 1, 1), plain)]
    assert runs[0].n_steps == runs[1].n_steps


def test_corners_of_a_rough_table_that_cost_some_tolerances_are_not_told(monkeypatch):
    """Whatever steps are tried some lie in others; of a pulse that is missed it is told."""
    monkeypatch.setattr(pulses, "ROUNDS", 0)
    times = np.linspace(0.0, 1.0, 51)
    shaking = np.random.default_rng(0).standard_normal(51)

    def shaken(t, u, p):
        return np.array([u[1], np.interp(t, times, shaking) - p[0] * u[1] - 36.0 * u[0]])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(trace(shaken, 2, 1), [0.0, 0.0], [0.8], Stepping((0.0, 1.0), "rk6vr", rtol=1e-8))
    with pytest.warns(DiscretizationWarning, match="have a pulse near t = 10.5"):
        solve(ODE(by_where, 1, 1), [0.0], [40.0], Stepping((0.0, 40.0), "rk6vr", rtol=1e-6))
