"""Circuits of the test set for initial value problems: its answers, and derivatives.

Mazzia, Magherini, Test Set for Initial Value Problem Solvers, release 2.4, Bari, 2008.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from daeosens import (
    DAE,
    ODE,
    Parameter,
    Parameters,
    Reduced,
    Stepping,
    Terminal,
    UnsupportedError,
    adjoint,
    consistent_state,
    hessian_product,
    solve,
    taylor,
    trace,
)
from daeosens.methods.esdirk.tableau import TABLEAUX
from daeosens.verify import duality

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


@pytest.mark.slow
@pytest.mark.parametrize("method", TABLEAUX)
def test_transistor_amplifier(traced_amplifier, method):
    p = [*AMPLIFIER_P.values()]
    rtol = 5e-6 if method == "kencarp3" else 1e-5  # its estimate follows the error most closely
    run = solve(traced_amplifier, AMPLIFIER_START, p, Stepping((0.0, 0.2), method, rtol=rtol))
    np.testing.assert_allclose(run.u[-1], AMPLIFIER_END, rtol=2e-5)
    # rounding of the solves adds up over the steps, 2600 of esdirk3 in all, 640 here
    short = solve(traced_amplifier, AMPLIFIER_START, p, Stepping((0.0, 0.05), method, rtol=rtol))
    assert duality(short, Terminal(lambda t, u, p: u[7])) < 1e-12


@pytest.mark.slow
def test_derivatives_of_the_amplifier_are_exact(traced_amplifier):
    """At steps of 0.2 ms; traced and by NumPy callbacks alike."""
    by_name = {name: Parameter(value, scale="log") for name, value in AMPLIFIER_P.items()}
    stepping, values = Stepping((0.0, 4e-3), "esdirk4", dt=2e-4), []
    output = Terminal(lambda t, u, p: u[7] ** 2)
    for problem in (traced_amplifier, ODE(amplifier, 8, [*AMPLIFIER_P], mass=capacitances())):
        control = Parameters(by_name, AMPLIFIER_START, consistent=True)
        functional = Reduced(problem, output, stepping, control)
        values.append(functional.gradient(functional.start()))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-7)
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

    value, two = diode(u[2] - u[4] - u[6] - high), diode(-u[3] + u[5] - u[6] - high)
    three, four = diode(u[3] + u[4] + u[6] + high), diode(-u[2] - u[5] + u[6] + high)
    return np.array(
        [
            (u[7] - 0.5 * u[9] + 0.5 * u[10] + u[13] - u[0] / 25e3) / 1.6e-8,
            (u[8] - 0.5 * u[11] + 0.5 * u[12] + u[14] - u[1] / 25e3) / 1.6e-8,
            (u[9] - value + four) / small,
            (-u[10] + two - three) / small,
            (u[11] + value - three) / small,
            (-u[12] - two + four) / small,
            (-u[6] / 50 + value + two - three - four) / 1e-8,
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


@pytest.mark.slow
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


# ---- a junction between two nodes: C(v - w) (v - w)' ---------------------------------------------


def junction(t, z, p):
    """Return currents of two nodes, and what the charge between them is of the voltage."""
    (v, w), q = z[:2], z[2]
    return np.array([np.sin(3 * t) - v, -w - 0.2 * w**3, q - p[0] * np.arcsinh(v - w)])


def of_the_charge_alone(c):
    """Return the voltages at t = 1 by the one differential equation that is behind it."""

    def node(t, q):
        return brentq(
            lambda w: 2 * w + np.sinh(q / c) + 0.2 * w**3 - np.sin(3 * t), -9, 9, xtol=1e-15
        )

    def rate(t, q):
        return [np.sin(3 * t) - node(t, q[0]) - np.sinh(q[0] / c)]

    (q,) = solve_ivp(rate, (0.0, 1.0), [0.0], rtol=1e-12, atol=1e-13).y[:, -1]
    w = node(1.0, q)
    return np.array([w + np.sinh(q / c), w])


@pytest.mark.slow
@pytest.mark.parametrize("make", [ODE, trace])
def test_charges_as_unknowns_make_a_mass_that_depends_on_voltages_constant(make):
    incidence = np.zeros((3, 3))
    incidence[:2, 2] = 1.0, -1.0
    model = make(junction, 3, ["c"], mass=incidence)
    start = consistent_state(model, np.zeros(3), [0.3])
    run = solve(model, start, [0.3], Stepping((0.0, 1.0), "esdirk5", rtol=1e-8))
    np.testing.assert_allclose(run.u[-1][:2], of_the_charge_alone(0.3), rtol=1e-6)
    output, e = Terminal(lambda t, z, p: z[0]), 1e-4
    slope = (of_the_charge_alone(0.3 + e) - of_the_charge_alone(0.3 - e))[0] / (2 * e)
    assert adjoint(run, output).p[0] == pytest.approx(slope, rel=1e-6)
    assert duality(run, output) < 1e-12
    assert run.n_steps < 60


def test_masses_that_depend_on_voltages_are_refused_with_the_charges_that_help():
    def currents(t, u, udot, p):
        i = p[0] / np.sqrt(1 + (u[0] - u[1]) ** 2) * (udot[0] - udot[1])
        return np.array([i + u[0] - np.sin(3 * t), -i + u[1] + 0.2 * u[1] ** 3])

    problem = DAE(currents, 2, ["c"])
    with pytest.raises(
        UnsupportedError, match=r"residual form(.|\n)*0 = q - Q\(u\), such as charges"
    ):
        solve(problem, np.zeros(2), [0.3], Stepping((0.0, 1.0), "esdirk5", rtol=1e-6))
    with pytest.raises(UnsupportedError, match=r"singular mass(.|\n)*A q' = f and 0 = q - Q\(u\)"):
        consistent_state(problem, np.zeros(2), [0.3])


@pytest.mark.slow
@pytest.mark.parametrize("make", [ODE, trace])
def test_adaptive_steps_of_index_three_are_refused_and_fixed_ones_work(make):
    """They ended at a singular matrix, and its remedy at another refusal."""

    def pendulum(t, u, p):
        x, y, vx, vy, force = u
        return np.array([vx, vy, -force * x, -force * y - p[0], x * x + y * y - 1.0])

    model = make(pendulum, 5, ["g"], mass=np.diag([1.0, 1.0, 1.0, 1.0, 0.0]))
    angle, g = 0.7, 9.81
    start = [np.sin(angle), -np.cos(angle), 0.0, 0.0, g * np.cos(angle)]
    for method in ("beuler", "theta:0.7"):
        with pytest.raises(UnsupportedError, match=r"adaptive .* of index 3(.|\n)*try: .*dt alone"):
            solve(model, start, [g], Stepping((0.0, 0.5), method, rtol=1e-5))
    true = solve_ivp(
        lambda t, y: [y[1], -g * np.sin(y[0])], (0.0, 0.5), [angle, 0.0], rtol=1e-10
    ).y[0, -1]
    errors = []
    for dt in (2e-3, 1e-3):
        run = solve(model, start, [g], Stepping((0.0, 0.5), "beuler", dt=dt))
        errors.append(run.u[-1][0] - np.sin(true))
        assert duality(run, Terminal(lambda t, u, p: u[0])) < 1e-12
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.05)


def swinging(t, u, p):
    """Return the rates of pendula, whose rods hold the speed along them (index 2)."""
    x, y, vx, vy, force = u.reshape(5, -1)
    return np.concatenate([vx, vy, force * x, force * y - p[0], x * vx + y * vy])


@pytest.mark.parametrize("method", ["esdirk5", "beuler"])
def test_constraints_are_eliminated_after_what_they_hold(method):
    """The usual order of a sparse LU came to their zeros first, in a matrix that is regular."""
    numbers = []
    for angles in (np.array([1.0]), np.array([0.1, 1.0, 0.5, 1.3, 0.3, 0.9, 1.4, 0.2])):
        n, still, place = angles.size, np.zeros(angles.size), angles.tolist().index(1.0)
        mass = np.diag([*np.ones(4 * n), *np.zeros(n)])
        model = trace(swinging, 5 * n, ["g"], mass=mass)
        start = [np.sin(angles), -np.cos(angles), still, still, -9.81 * np.cos(angles)]
        run = solve(model, np.concatenate(start), [9.81], Stepping((0.0, 0.5), method, dt=0.02))
        output = Terminal(lambda t, u, p, place=place: u[place] ** 2)
        assert duality(run, output) < 1e-12
        product = hessian_product(run, output, np.zeros(5 * n), [1.0]).p
        numbers.append([run.u[-1][place], adjoint(run, output).p[0], product[0]])
    # each pendulum swings by itself: as that which is alone, whose matrix is dense
    np.testing.assert_allclose(numbers[1], numbers[0], rtol=1e-10)


def crossed(t, u, p):
    """Rates of a capacitor between two nodes, the second of which holds an equation."""
    x, y = u[0] - u[1], u[1]
    held = p[0] * y + y**3 - np.sin(2 * x) - np.cos(3 * t)
    return np.array([y - x, held - (y - x)])


@pytest.mark.parametrize("make", [ODE, trace])
@pytest.mark.parametrize(("method", "most"), [("esdirk5", 30), ("esdirk6", 250)])
def test_sums_of_rows_are_solved_as_well_as_rows_however_short_the_step(method, most, make):
    """What one iteration left of them, O(h^2), held the steps that begin a run: more than 5000."""
    capacitor = make(crossed, 2, ["g"], mass=np.array([[1.0, -1.0], [-1.0, 1.0]]))
    held = brentq(lambda y: crossed(0.0, [1.0 + y, y], [1.5]).sum(), 0.0, 5.0)
    stepping = Stepping((0.0, 0.5), method, rtol=1e-10, max_steps=1000)
    run = solve(capacitor, [1.0 + held, held], [1.5], stepping)
    assert run.n_steps < most

    # x' = y - x, 0 = held(t, x, y): the derivative of the equation in the place of it
    def reduced(t, u, p):
        x, y = u
        rate = y - x
        slope = 2 * np.cos(2 * x) * rate - 3 * np.sin(3 * t)
        return np.array([rate, slope / (p[0] + 3 * y**2)])

    fine = Stepping((0.0, 0.5), "rk8vr", rtol=1e-12)
    exact = solve(ODE(reduced, 2, ["g"]), [1.0, held], [1.5], fine).final
    np.testing.assert_allclose(run.final, [exact[0] + exact[1], exact[1]], rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "steps", "errors"),
    [
        ("esdirk4", (37, 90, 259), (5e-7, 8e-9, 1e-10)),
        ("esdirk5", (29, 54, 118), (7e-8, 1e-9, 2e-11)),
        ("esdirk6", (175, 761, 3504), (5e-12, 2e-14, 2e-14)),
    ],
)
def test_what_steps_of_a_dae_are_as_the_page_on_steps_tells(method, steps, errors):
    def held(t, u, p):
        x, y = u[0], u[1]
        return np.stack([y - x, p[0] * y + y**3 - np.sin(2 * x) - np.cos(3 * t)])

    def reduced(t, u, p):
        x, y = u
        slope = 2 * np.cos(2 * x) * (y - x) - 3 * np.sin(3 * t)
        return np.array([y - x, slope / (p[0] + 3 * y**2)])

    start = [1.0, brentq(lambda y: held(0.0, [1.0, y], [1.5])[1], 0.0, 5.0)]
    fine = Stepping((0.0, 2.0), "rk8vr", rtol=1e-13)
    exact = solve(ODE(reduced, 2, ["g"]), start, [1.5], fine).final
    model = trace(held, 2, ["g"], mass=np.diag([1.0, 0.0]))
    for rtol, count, error in zip((1e-6, 1e-8, 1e-10), steps, errors, strict=True):
        run = solve(model, start, [1.5], Stepping((0.0, 2.0), method, rtol=rtol))
        assert run.n_steps == pytest.approx(count, rel=0.1)
        assert np.abs(run.final - exact).max() < 1.2 * error
