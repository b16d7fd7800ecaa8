"""PETSc's nine-bus tutorials: what they print is found again, and what it should have been."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from daeosens import Stepping, Terminal, adjoint, taylor
from daeosens.costs import AtEvent, EventTime
from daeosens.verify import duality
from reproduction import nine_bus

DRIVER, NETWORK = nine_bus.DRIVER, nine_bus.NETWORK
first_state = cache(nine_bus.first_state)


def printed(value):
    return f"{value:.6g}"


# ---- load flow and start -------------------------------------------------------------------------


def test_load_flow_is_the_published_one():
    """Of the book, with transformers without losses; and of PETSc's data file, with them."""
    book = DRIVER.Network((0.0, 0.0))
    sizes, angles = abs(book.voltages), np.degrees(np.angle(book.voltages))
    np.testing.assert_allclose(
        sizes, [1.04, 1.025, 1.025, 1.026, 0.996, 1.013, 1.026, 1.016, 1.032], atol=5e-4
    )
    np.testing.assert_allclose(angles, [0, 9.3, 4.7, -2.2, -4.0, -3.7, 3.7, 0.7, 2.0], atol=0.05)
    powers = book.powers[:3]
    np.testing.assert_allclose(powers.real, [0.716, 1.63, 0.85], atol=5e-4)
    np.testing.assert_allclose(powers.imag, [0.270, 0.067, -0.109], atol=6e-4)
    theirs = [0.716786142395021, 1.63, 0.85]
    np.testing.assert_allclose(NETWORK.powers[:3].real, theirs, rtol=0, atol=2e-11)
    theirs = [0.270702180178785, 0.066120127797275, -0.108402221791588]
    np.testing.assert_allclose(NETWORK.powers[:3].imag, theirs, rtol=0, atol=2e-11)


@pytest.mark.parametrize("powers", [(1.63, 0.85), (1.5, 0.9), nine_bus.POWERS, (0.69, 1.59, 0.69)])
def test_start_is_consistent_and_at_rest_where_machine_1_balances(powers):
    start = NETWORK.start(powers)
    rates = DRIVER.residual(NETWORK.real, start.state, start.torques, start.references)
    assert abs(rates[DRIVER.ALGEBRAIC]).max() < 1e-13
    at_rest = abs(rates).max() < 1e-9
    assert at_rest == (len(powers) == 2 or powers == nine_bus.POWERS)


@pytest.mark.parametrize("powers", [(1.5, 0.9), (0.69, 1.59, 0.69)])
def test_derivatives_of_the_start(powers):
    start, h = NETWORK.start(powers), 1e-5
    for k, unit in enumerate(np.eye(len(powers))):
        near = [NETWORK.start(tuple(powers + side * h * unit)) for side in (1.0, -1.0)]
        for name in ("state", "torques", "references"):
            difference = (getattr(near[0], name) - getattr(near[1], name)) / (2 * h)
            exact = getattr(start, f"{name}_p")[:, k]
            np.testing.assert_allclose(exact, difference, rtol=1e-7, atol=1e-8)


def test_jacobian_is_that_of_the_residual(rng):
    u = NETWORK.start((1.63, 0.85)).state * (1 + 0.1 * rng.normal(size=45))
    steps = 1e-30j * np.eye(45)
    columns = [DRIVER.residual(NETWORK.real, u + step, 0.7, 1.0).imag / 1e-30 for step in steps]
    expected = np.column_stack(columns)
    np.testing.assert_allclose(DRIVER.residual_u(NETWORK.real, u), expected, rtol=1e-12, atol=1e-12)


# ---- ex9bus --------------------------------------------------------------------------------------


@cache
def with_ceiling():
    setting = nine_bus.config(1.6, (1.63, 0.85), ceilings=(3,))
    reduced = DRIVER.functional(setting, NETWORK)
    return reduced.trajectory(reduced.start())


def test_ceiling_is_reached_at_the_published_time_and_left_when_the_fault_is_cleared():
    run = with_ceiling()
    names = [crossing.name for crossing in run.crossings]
    assert names == ["fault", "ceiling 3", "cleared"]
    assert f"{run.crossings[1].t:.5f}" == nine_bus.EX9BUS_CEILING
    regulator = DRIVER.REGULATOR[2]
    assert run.u[:, regulator].max() == pytest.approx(7.0, abs=1e-12)
    # the fault lowers the voltage of its bus to nothing, at once; clearing brings it back
    fault, _, cleared = run.crossings
    voltages = [np.hypot(*value.array[-2:]) for value in (fault.before, fault.after, cleared.after)]
    np.testing.assert_allclose(voltages, [1.0323, 0.0, 0.713], atol=2e-3)
    rates = DRIVER.residual(NETWORK.real, cleared.after.array, *two(NETWORK.start((1.63, 0.85))))
    assert rates[regulator] < 0.0


def two(start):
    return start.torques, start.references


@pytest.mark.slow
def test_time_and_state_at_the_ceiling_are_differentiated():
    run = with_ceiling()
    costs = [EventTime("ceiling 3"), AtEvent(lambda t, u, p: u[44], "cleared", 0, "after")]
    gradients = adjoint(run, costs)
    for cost in costs:
        assert duality(run, cost) < 1e-12
    setting = nine_bus.config(1.6, (1.63, 0.85), ceilings=(3,))
    h = 1e-2  # of a small resistance: rounding would hide smaller changes
    for k in range(2):
        values = []
        for side in (1.0, -1.0):
            fault = replace(setting.fault, resistance=1e-4 * (1 + side * h))
            reduced = DRIVER.functional(replace(setting, fault=fault), NETWORK)
            other = reduced.trajectory(reduced.start())
            values.append((other.crossings[1].t, other.crossings[2].after.array[44])[k])
        difference = (values[0] - values[1]) / (2e-4 * h)
        assert gradients[k].p[2] == pytest.approx(difference, rel=1e-8)


# ---- ex9busadj -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cn", "beuler"])
def test_ex9busadj_sweeps_another_run_back_without_fault_or_jumps(method):
    expected = [float(number) for number in nine_bus.EX9BUSADJ[method].split()]
    result = nine_bus.as_ex9busadj(method)[: len(expected)]
    np.testing.assert_allclose(result, expected, rtol=5.1e-6, atol=1e-12)


@pytest.mark.slow
def test_derivative_of_the_run_that_ex9busadj_describes():
    gradient = first_state("cn")
    np.testing.assert_allclose(
        gradient.u0[:4], [-0.0453282963, 0.0196305612, -0.0173554466, 0.00196926793], rtol=1e-8
    )
    setting = nine_bus.config(5.0, nine_bus.POWERS)
    reduced = DRIVER.functional(setting, NETWORK)
    start = NETWORK.start(nine_bus.POWERS)
    h, values = 1e-6, []  # starts that are further from the constraints are refused
    for side in (1.0, -1.0):
        moved = start.state.copy()
        moved[0] += side * h
        control = replace(reduced.control, initial_state=moved, initial_state_p=None)
        other = replace_control(reduced, control)
        values.append(other.trajectory(other.start()).final.array[0])
    assert gradient.u0[0] == pytest.approx((values[0] - values[1]) / (2 * h), rel=1e-4)


def replace_control(reduced, control):
    return type(reduced)(reduced.problem, reduced.objective, reduced.stepping, control)


# ---- ex9busopt -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_ex9busopt_prints_this_value_and_a_gradient_that_is_off():
    value, theirs, with_monitor = nine_bus.as_ex9busopt()
    ours, gradient = nine_bus.excess()
    assert printed(value) == printed(ours) == nine_bus.EX9BUSOPT["value"]
    assert printed(np.linalg.norm(theirs)) == nine_bus.EX9BUSOPT["norm"]
    assert np.linalg.norm(gradient) == pytest.approx(0.0151909268, rel=1e-8)
    assert printed(with_monitor) == nine_bus.EX9BUSOPTFD["value"]
    h = 1e-6
    for k, slope in enumerate(gradient):
        moved = [np.array(nine_bus.DISPATCH) + side * h * np.eye(3)[k] for side in (1.0, -1.0)]
        difference = np.subtract(*(nine_bus.excess(tuple(item))[0] for item in moved)) / (2 * h)
        assert slope == pytest.approx(difference, rel=1e-7)


@pytest.mark.slow
def test_values_where_both_optimisations_stop_after_one_iteration():
    """Their powers are printed with six digits, the second one to 5e-6: that decides on three."""
    value, _ = nine_bus.excess(nine_bus.EX9BUSOPT_POWERS)
    assert value == pytest.approx(nine_bus.EX9BUSOPT["next"], rel=5e-4)
    _, _, with_monitor = nine_bus.as_ex9busopt(nine_bus.EX9BUSOPTFD_POWERS)
    assert with_monitor == pytest.approx(nine_bus.EX9BUSOPTFD["next"], rel=5e-4)


@pytest.mark.slow
def test_finite_difference_variant_has_the_gradient_of_its_own_value():
    h = 1e-6
    moved = [
        [np.array(nine_bus.DISPATCH) + side * h * unit for side in (1.0, -1.0)]
        for unit in np.eye(3)
    ]
    values = [[nine_bus.as_ex9busopt(tuple(item))[2] for item in pair] for pair in moved]
    slopes = [(plus - minus) / (2 * h) for plus, minus in values]
    assert printed(np.linalg.norm(slopes)) == nine_bus.EX9BUSOPTFD["norm"]


@pytest.mark.slow
@pytest.mark.parametrize("powers", [(1.63, 0.85), nine_bus.DISPATCH])
def test_gradient_by_powers_resistance_and_clearing_off_the_grid(powers):
    """Where clearing is at the end of a step the discrete program has a kink."""
    setting = nine_bus.config(1.6, powers, ceilings=(3,))
    setting = replace(setting, stepping=Stepping((0.0, 1.6), "cn", dt=0.0199))
    reduced = DRIVER.functional(setting, NETWORK, all_free=True)
    orders = taylor(reduced, epsilons=[4e-5 * 0.5**k for k in range(4)])
    assert orders.order > 1.9, orders


def test_terminal_value_of_a_voltage():
    """An algebraic variable at the end, by adjoint and tangent."""
    run = with_ceiling()
    assert duality(run, Terminal(lambda t, u, p: u[44] ** 2)) < 1e-12
