"""Hybrid systems: published derivatives through events are found again."""

import numpy as np
import pytest

from daeosens import Terminal, adjoint, hessian_product, solve, tangent
from daeosens.costs import AtEvent, EventTime
from reproduction import hybrid
from reproduction.hybrid import BALL, OSCILLATOR

START = BALL.Config(BALL.ds.Stepping((0.0, 1.9), "rk4", dt=0.4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "end", "bounces"),
    [
        *(("rk4", end, bounces) for end, bounces in [(1.9, 1), (4.3, 3), (6.2, 5)]),
        *((method, 8.885, 20) for method in ("rk4", "rk8vr", "cn", "midpoint")),
    ],
)
def test_ball_has_the_derivatives_of_the_closed_form(method, end, bounces):
    exact, second = BALL.closed_form(START, end)
    for output, row, matrix in zip(("height", "speed"), exact, second, strict=True):
        functional = hybrid.ball(end, method, output=output)
        x = functional.start()
        assert len(functional.trajectory(x).crossings) == bounces
        by_adjoint = functional.gradient(x).array
        by_tangent = [functional.derivative(x, unit) for unit in np.eye(4)]
        np.testing.assert_allclose(by_adjoint, row, rtol=0, atol=1e-10 * abs(exact).max())
        np.testing.assert_allclose(by_tangent, row, rtol=0, atol=1e-10 * abs(exact).max())
        hessian = functional.hessian(x)
        np.testing.assert_allclose(hessian, matrix, rtol=0, atol=1e-10 * abs(second).max())


def test_published_digits_of_the_ball_with_moving_and_with_pinned_impacts():
    run = solve(BALL.BALL, START.values[:2], START.values, START.stepping)
    impact = (-0.1 + np.sqrt(0.1**2 + 2 * 10 * 5)) / 10
    assert run.crossings[0].t == pytest.approx(impact, rel=1e-15)
    pinned = solve(BALL.ball(run.crossings[0].t), START.values[:2], START.values, START.stepping)
    values = {}
    for name, number in (("moving", run), ("pinned", pinned)):
        by_height = tangent(number, du0=[1.0, 0.0])
        by_gravity = tangent(number, dp=[0.0, 0.0, 1.0, 0.0])
        step = number.crossings[0].step
        row = [by_height.final.array[0], by_height.states[step].array[1]]
        values[name] = [f"{value:.8f}" for value in (*row, by_gravity.states[step].array[1])]
    # the speed before the impact is -sqrt(v0^2 + 2 g z0), and at a pinned time v0 - g t
    assert values["moving"] == ["0.83782811", "-0.99995000", "-0.49997500"]
    assert values["pinned"] == ["1.00000000", "0.00000000", "-0.99005000"]


def test_oscillator_by_fine_steps_has_all_published_digits():
    run = hybrid.oscillator("rk8vr", 1e-3)
    np.testing.assert_allclose(run.final.array, OSCILLATOR.FINAL, rtol=1e-12)
    np.testing.assert_allclose(
        [crossing.t for crossing in run.crossings], OSCILLATOR.TIMES, rtol=1e-13
    )
    exact = np.hstack([hybrid.EXACT_START, OSCILLATOR.BY_SLOPES])
    np.testing.assert_allclose(hybrid.oscillator_derivatives("rk8vr", 1e-3), exact, atol=1e-12)
    switches = adjoint(run, [EventTime("steep"), EventTime("flat")])
    rows = [np.concatenate([switch.u0, switch.p]) for switch in switches]
    np.testing.assert_allclose(rows, hybrid.EXACT_SWITCHES, rtol=1e-11, atol=1e-13)


@pytest.mark.slow
def test_oscillator_by_fine_steps_has_all_published_second_derivatives():
    run = hybrid.oscillator("rk8vr", 1e-3)
    costs = [Terminal(lambda t, u, p, k=k: u[k]) for k in range(2)]
    costs += [EventTime("steep"), EventTime("flat")]
    units = np.eye(4)
    for cost, exact in zip(costs, hybrid.EXACT_HESSIANS, strict=True):
        products = hessian_product(run, cost, units[:, :2], units[:, 2:])
        ours = np.array([np.concatenate([product.u0, product.p]) for product in products])
        np.testing.assert_allclose(ours, exact, rtol=0, atol=6e-11)


def test_oscillator_by_coarse_steps_has_the_published_derivative_of_the_program():
    derivatives = hybrid.oscillator_derivatives()
    np.testing.assert_allclose(derivatives, hybrid.DISCRETE, rtol=0, atol=5.1e-9)
    for row, printed in zip(derivatives, hybrid.EX1FD, strict=True):
        # by differences with one digit lost
        np.testing.assert_allclose(row[:3], np.array(printed, dtype=float), rtol=0, atol=1.5e-6)
    # what the jump of the continuous problem gives for the same steps is another number
    assert abs(derivatives[:, 2] - np.array(hybrid.EX1ADJ, dtype=float)).min() > 1e-5


@pytest.mark.parametrize("method", ["beuler", "cn", "rk2a", "rk3bs", "rk4", "rk5dp"])
def test_derivatives_of_the_oscillator_converge_with_the_order_of_the_method(method):
    exact = np.hstack([hybrid.EXACT_START, OSCILLATOR.BY_SLOPES])
    errors = [
        abs(hybrid.oscillator_derivatives(method, dt) - exact).max() for dt in (1 / 256, 1 / 1024)
    ]
    order = BALL.ds.Stepping((0.0, 1.0), method, dt=0.1).resolved_method.order
    # the fraction of a step at which a switch happens is another for each step size
    assert np.log2(errors[0] / errors[1]) / 2 > order - 0.15


def test_slope_of_the_oscillator_at_a_switch_is_its_parameter():
    """The ratio y / x where "steep" happens is the threshold itself."""
    run = hybrid.oscillator()
    ratio = AtEvent(lambda t, u, p: u[1] / u[0], "steep")
    gradient = adjoint(run, ratio)
    np.testing.assert_allclose(gradient.p, [1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(gradient.u0, 0.0, atol=1e-12)
