"""Circuits of the test set for initial value problems: its answers, and derivatives.

Mazzia, Magherini, Test Set for Initial Value Problem Solvers, release 2.4, Bari, 2008.
"""

from __future__ import annotations

import numpy as np
import pytest

from daeosens import (
    ODE,
    Parameter,
    Parameters,
    Reduced,
    Stepping,
    Terminal,
    duality,
    solve,
    taylor,
    trace,
)

# ---- transistor amplifier: five capacitors between eight nodes, or to the ground -----------------

CAPACITORS = {(0, 1): 1e-6, (2,): 2e-6, (3, 4): 3e-6, (5,): 4e-6, (6, 7): 5e-6}
AMPLIFIER_P = {"supply": 6.0, "thermal": 0.026, "gain": 0.99, "saturation": 1e-6, "load": 9000.0}
AMPLIFIER_START = np.array([0.0, 3.0, 3.0, 6.0, 3.0, 3.0, 6.0, 0.0])
AMPLIFIER_END = np.array(
    [
        *(-0.5562145012262709e-2, 0.3006522471903042e1, 0.2849958788608128e1),
        *(0.2926422536206241e1, 0.2704617865010554e1, 0.2761837778393145e1),
        *(0.4770927631616772e1, 0.1236995868091548e1),
    ]
)


def amplifier(t, u, p):
    supply, thermal, gain, saturation, load = p

    def current(base, emitter):
        return saturation * (np.exp((u[base] - u[emitter]) / thermal) - 1)

    first, second = current(1, 2), current(4, 5)
    return -np.array(
        [
            (u[0] - 0.1 * np.sin(200 * np.pi * t)) / 1000,
            (2 * u[1] - supply) / load + (1 - gain) * first,
            u[2] / load - first,
            (u[3] - supply) / load + gain * first,
            (2 * u[4] - supply) / load + (1 - gain) * second,
            u[5] / load - second,
            (u[6] - supply) / load + gain * second,
            u[7] / load,
        ]
    )


def capacitances():
    mass = np.zeros((8, 8))
    for nodes, value in CAPACITORS.items():
        across = np.zeros(8)
        across[list(nodes)] = (1.0, -1.0)[: len(nodes)]
        mass += value * np.outer(across, across)
    return mass


@pytest.fixture(scope="module")
def traced_amplifier():
    return trace(amplifier, 8, [*AMPLIFIER_P], mass=capacitances())


@pytest.mark.parametrize("method", ["esdirk3", "esdirk4", "esdirk5", "esdirk6"])
def test_transistor_amplifier(traced_amplifier, method):
    p = [*AMPLIFIER_P.values()]
    run = solve(traced_amplifier, AMPLIFIER_START, p, Stepping((0.0, 0.2), method, rtol=1e-5))
    np.testing.assert_allclose(run.u[-1], AMPLIFIER_END, rtol=2e-5)
    # rounding of the solves adds up over the steps, 2600 of esdirk3
    bound = 1e-12 * max(1.0, run.n_steps / 1000)
    assert duality(run, Terminal(lambda t, u, p: u[7])) < bound


def test_derivatives_of_the_amplifier_are_exact(traced_amplifier):
    """At steps of 0.2 ms; traced and by NumPy callbacks alike."""
    given = {name: Parameter(value, scale="log") for name, value in AMPLIFIER_P.items()}
    stepping, found = Stepping((0.0, 4e-3), "esdirk4", dt=2e-4), []
    output = Terminal(lambda t, u, p: u[7] ** 2)
    for problem in (traced_amplifier, ODE(amplifier, 8, [*AMPLIFIER_P], mass=capacitances())):
        control = Parameters(given, AMPLIFIER_START, consistent=True)
        functional = Reduced(problem, output, stepping, control)
        found.append(functional.gradient(functional.start()))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-7)
    orders = taylor(functional, epsilons=[2e-3 * 0.5**k for k in range(4)], hessian=True)
    assert orders.order > 1.95, orders
    assert orders.hessian_order > 2.9, orders


# ---- ring modulator: four diodes, capacitances of 2e-12 ------------------------------------------

RING_END = np.array(
    [
        *(-0.2339057358486745e-1, -0.7367485485540825e-2, 0.2582956709291169),
        *(-0.4064465721283450, -0.4039455665149794, 0.2607966765422943),
        *(0.1106761861269975, 0.2939904342435596e-6, -0.2840029933642329e-7),
        *(0.7267198267264553e-3, 0.7929487196960840e-3, -0.7255283495698965e-3),
        *(-0.7941401968526521e-3, 0.7088495416976114e-4, 0.2390059075236570e-4),
    ]
)


def ring(t, u, p):
    small, factor, exponent = p
    low, high = 0.5 * np.sin(2e3 * np.pi * t), 2.0 * np.sin(2e4 * np.pi * t)

    def diode(voltage):
        return factor * (np.exp(exponent * voltage) - 1)

    one, two = diode(u[2] - u[4] - u[6] - high), diode(-u[3] + u[5] - u[6] - high)
    three, four = diode(u[3] + u[4] + u[6] + high), diode(-u[2] - u[5] + u[6] + high)
    return np.array(
        [
            (u[7] - 0.5 * u[9] + 0.5 * u[10] + u[13] - u[0] / 25e3) / 1.6e-8,
            (u[8] - 0.5 * u[11] + 0.5 * u[12] + u[14] - u[1] / 25e3) / 1.6e-8,
            (u[9] - one + four) / small,
            (-u[10] + two - three) / small,
            (u[11] + one - three) / small,
            (-u[12] - two + four) / small,
            (-u[6] / 50 + one + two - three - four) / 1e-8,
            -u[0] / 4.45,
            -u[1] / 4.45,
            (0.5 * u[0] - u[2] - 17.3 * u[9]) / 5e-4,
            (-0.5 * u[0] + u[3] - 17.3 * u[10]) / 5e-4,
            (0.5 * u[1] - u[4] - 17.3 * u[11]) / 5e-4,
            (-0.5 * u[1] + u[5] - 17.3 * u[12]) / 5e-4,
            (-u[0] + low - (50 + 36.3) * u[13]) / 2e-3,
            (-u[1] - (600 + 36.3) * u[14]) / 2e-3,
        ]
    )


@pytest.fixture(scope="module")
def traced_ring():
    return trace(ring, 15, ["small", "factor", "exponent"])


RING_P = [2e-12, 40.67286402e-9, 17.7493332]


def test_ring_modulator(traced_ring):
    """Of the voltages between the diodes a fast common mode is left."""
    stepping = Stepping((0.0, 1e-3), "esdirk5", rtol=1e-5, atol=1e-10)
    run = solve(traced_ring, np.zeros(15), RING_P, stepping)
    np.testing.assert_allclose(run.u[-1], RING_END, rtol=1e-2)
    smooth = [0, 1, *range(6, 15)]
    np.testing.assert_allclose(run.u[-1][smooth], RING_END[smooth], rtol=1e-4)


def test_derivatives_of_the_ring_modulator(traced_ring):
    stepping = Stepping((0.0, 2e-5), "esdirk5", rtol=1e-6, atol=1e-11)
    run = solve(traced_ring, np.zeros(15), RING_P, stepping)
    assert duality(run, Terminal(lambda t, u, p: u[6])) < 1e-12
