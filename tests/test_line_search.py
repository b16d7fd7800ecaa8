"""Tiny steps: Newton's method takes its own in full there, and searches along lines elsewhere."""

import numpy as np
import pytest
from forms import DECAY
from native_model import U0, P, compiled_ode

from daeosens import ODE, Stepping, Terminal, adjoint, consistent_state, solve
from daeosens.line_search import SHORT, SHORTER, search_lines
from daeosens.prepared import prepared_ts

SPAN = (0.0, 1.0)


def tiny(stepping, problem=DECAY.problem, u0=DECAY.u0, p=DECAY.p):
    with prepared_ts(problem, problem.admit_state(u0), p, stepping, "states") as ready:
        return ready.tiny


@pytest.mark.parametrize("method", ["beuler", "cn", "midpoint", "theta:0.7"])
def test_steps_are_tiny_against_fixed_ones_or_the_span(method):
    assert tiny(Stepping((2.0, 5.0), method, dt=0.25)) == SHORT * 0.25
    if method != "midpoint":
        adaptive = Stepping((2.0, 5.0), method, rtol=1e-4, atol=1e-4, dt=0.25)
        assert tiny(adaptive) == pytest.approx(3.0 * SHORTER, rel=1e-15)


def test_no_steps_are_tiny_without_a_line_search(c):
    assert tiny(Stepping(SPAN, "rk4", dt=0.1)) == 0.0
    assert tiny(Stepping(SPAN, "esdirk4", dt=0.1)) == 0.0  # whole Newton steps anyway
    assert tiny(Stepping(SPAN, "esdirk4", dt=0.1), compiled_ode(c), U0, P) == 0.0  # no SNES
    chosen = Stepping(SPAN, "cn", dt=0.1, options={"snes_linesearch_type": "basic"})
    assert tiny(chosen) == 0.0


def test_line_search_is_switched_off_and_on():
    problem, stepping = DECAY.problem, Stepping(SPAN, "cn", dt=0.1)
    with prepared_ts(problem, problem.admit_state(DECAY.u0), DECAY.p, stepping, "states") as ready:
        kinds = []
        for wanted in (False, True):
            search_lines(ready.ts, wanted=wanted)
            kinds.append(ready.ts.getSNES().getLineSearch().getType())
    assert kinds == ["basic", "bt"]


def bound(t, u, p):
    """A rate, and an algebraic equation that is nonlinear in its variable."""
    return np.array(
        [-u[0] + np.cos(3 * t) + 0.3 * u[1], u[0] ** 2 + 0.1 * t * u[0] - u[1] - p[0] * u[1] ** 3]
    )


BOUND = ODE(bound, 2, ["a"], mass=np.diag([1.0, 0.0]))


@pytest.mark.parametrize("start", [0.5, 0.8641])
@pytest.mark.parametrize("method", ["beuler", "cn", "midpoint", "theta:0.7"])
def test_tiny_steps_of_differential_algebraic_equations(method, start):
    """The rounding of u' = (u1 - u0)/h hides from a line search what algebraic equations gain."""
    grid = np.arange(0.05, 0.95, 0.1)
    wanted = np.sort(np.concatenate([grid, grid + 3e-6, grid + 3.4e-6]))
    stepping = Stepping(SPAN, method, dt=0.1)
    first = [1.0, start]
    if method != "beuler":  # the others carry a wrong start along, and refuse it
        first = consistent_state(BOUND, first, [0.2])
    run = solve(BOUND, first, [0.2], stepping, wanted)
    assert run.step_sizes.min() < 1e-6
    coarse = solve(BOUND, first, [0.2], stepping, grid)
    if method == "beuler":
        np.testing.assert_allclose(run.final.array, coarse.final.array, rtol=1e-4)
        gaps = [bound(t, u, [0.2])[1] for t, u in zip(run.times[1:], run.u[1:], strict=True)]
        assert np.abs(gaps).max() < 1e-10
    cost = Terminal(lambda t, u, p: u[0] * u[1])
    recorded = adjoint(run, cost, engine="tsadjoint").p
    np.testing.assert_allclose(recorded, adjoint(run, cost).p, rtol=1e-7)


@pytest.mark.parametrize("method", ["beuler", "cn"])
def test_tiny_first_steps_of_differential_algebraic_equations(method):
    start = consistent_state(BOUND, [1.0, 0.5], [0.2])
    run = solve(BOUND, start, [0.2], Stepping(SPAN, method, rtol=1e-3, atol=1e-3))
    assert run.step_sizes[0] == pytest.approx(1e-6)
