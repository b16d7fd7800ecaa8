"""Pulses in time between the stages of a step are seen: runs and gradients are right."""

import numpy as np
import pytest

from daeosens import ODE, Stepping, Terminal, adjoint, solve, trace

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
