"""Circuits, machines and power grids."""

import numpy as np

from zoo.case import Case

BARI = "Bari test set for IVP solvers"


def ring_modulator(t, y, p):
    gamma, delta, r, lh = p
    c, cs, cp = 1.6e-8, 2e-12, 1e-8
    ls1, ls2, ls3, rp = 0.002, 5e-4, 5e-4, 50.0
    rg1, rg2, rg3, ri, rc = 36.3, 17.3, 17.3, 50.0, 600.0
    uin1 = 0.5 * np.sin(2e3 * np.pi * t)
    uin2 = 2 * np.sin(2e4 * np.pi * t)
    ud1 = y[2] - y[4] - y[6] - uin2
    ud2 = -y[3] + y[5] - y[6] - uin2
    ud3 = y[3] + y[4] + y[6] + uin2
    ud4 = -y[2] - y[5] + y[6] + uin2
    q1, q2, q3, q4 = gamma * (np.exp(delta * np.array([ud1, ud2, ud3, ud4])) - 1)
    return np.array(
        [
            (y[7] - 0.5 * y[9] + 0.5 * y[10] + y[13] - y[0] / r) / c,
            (y[8] - 0.5 * y[11] + 0.5 * y[12] + y[14] - y[1] / r) / c,
            (y[9] - q1 + q4) / cs,
            (-y[10] + q2 - q3) / cs,
            (y[11] + q1 - q3) / cs,
            (-y[12] - q2 + q4) / cs,
            (-y[6] / rp + q1 + q2 - q3 - q4) / cp,
            -y[0] / lh,
            -y[1] / lh,
            (0.5 * y[0] - y[2] - rg2 * y[9]) / ls2,
            (-0.5 * y[0] + y[3] - rg3 * y[10]) / ls3,
            (0.5 * y[1] - y[4] - rg2 * y[11]) / ls2,
            (-0.5 * y[1] + y[5] - rg3 * y[12]) / ls3,
            (-y[0] + uin1 - (ri + rg1) * y[13]) / ls1,
            (-y[1] - (rc + rg1) * y[14]) / ls1,
        ]
    )


def transistor_amplifier(t, y, p):
    alpha, beta, uf = p
    ub, r0, r = 6.0, 1000.0, 9000.0
    ue = 0.1 * np.sin(200 * np.pi * t)
    g23 = beta * (np.exp((y[1] - y[2]) / uf) - 1)
    g56 = beta * (np.exp((y[4] - y[5]) / uf) - 1)
    return np.array(
        [
            (y[0] - ue) / r0,
            -ub / r + 2 * y[1] / r - (alpha - 1) * g23,
            -g23 + y[2] / r,
            -ub / r + y[3] / r + alpha * g23,
            -ub / r + 2 * y[4] / r - (alpha - 1) * g56,
            -g56 + y[5] / r,
            -ub / r + y[6] / r + alpha * g56,
            y[7] / r,
        ]
    )


CAPACITORS = 1e-6 * np.arange(1, 6)
AMPLIFIER = np.zeros((8, 8))
for i, c in ((0, CAPACITORS[0]), (3, CAPACITORS[2]), (6, CAPACITORS[4])):
    AMPLIFIER[i : i + 2, i : i + 2] = [[-c, c], [c, -c]]
AMPLIFIER[2, 2], AMPLIFIER[5, 5] = -CAPACITORS[1], -CAPACITORS[3]


def chua(t, u, p):
    alpha, beta, m0, m1 = p
    x, y, z = u
    diode = m0 * x + m1 * x**3
    return np.array([alpha * (y - x - diode), x - y + z, -beta * y])


def rlc(t, u, p):
    r, inductance, capacity = p
    return np.array([(np.sin(t) - r * u[0] - u[1]) / inductance, u[0] / capacity])


def rectifier(t, u, p):  # a diode, its node voltage algebraic
    resistance, saturation, load = p
    charge, node = u
    diode = saturation * (np.exp((node - charge) / 0.1) - 1)
    return np.array([diode - charge / load, (np.sin(5 * t) - node) / resistance - diode])


def swing(t, u, p):  # one machine at an infinite bus, PETSc power_grid ex2
    pmax, inertia, damping = p
    theta, omega = u
    return np.array([omega - 1.0, (0.9 - pmax * np.sin(theta) - damping * (omega - 1.0)) / inertia])


def swing_network(t, u, p):
    n = 4
    theta, omega = u[:n], u[n:]
    coupling = p[0] * np.array(
        [[0, 1, 0.5, 0.2], [1, 0, 0.8, 0.1], [0.5, 0.8, 0, 0.6], [0.2, 0.1, 0.6, 0]]
    )
    power = np.array([0.5, -0.2, 0.1, -0.4]) * p[1]
    flows = coupling * np.sin(theta[:, None] - theta[None, :])
    return np.concatenate([omega, power - p[2] * omega - flows.sum(axis=1)])


def dc_motor(t, u, p):
    r, inductance, k, j, b = p
    current, speed = u
    voltage = 1.0 + 0.5 * np.tanh(5 * (t - 1))
    return [(voltage - r * current - k * speed) / inductance, (k * current - b * speed) / j]


def ladder(t, u, p):  # 40 cells of resistance and capacity
    r, c = p
    driven = np.concatenate([[np.sin(t)], u])
    currents = -np.diff(driven) / r
    out = np.zeros_like(u)
    out[:-1] = currents[:-1] - currents[1:]
    out[-1] = currents[-1]
    return out / c


def josephson(t, u, p):
    beta, bias = p
    return np.array([u[1], (bias - u[1] - np.sin(u[0])) / beta])


def two_phase_loads(t, u, p):  # power balance: algebraic voltage of a load behind a line
    inertia, reactance, load = p
    delta, omega, v, phi = u
    flow = v * np.sin(delta - phi) / reactance
    return np.array(
        [
            omega,
            (load * (1 + 0.1 * np.sin(t)) - flow - 0.5 * omega) / inertia,
            flow - load - 0.2 * (phi),
            (v**2 - v * np.cos(delta - phi)) / reactance + 0.1 * load,
        ]
    )


def magnetisation(t, u, p):  # Landau, Lifshitz, Gilbert: a field that turns, an easy axis
    gyro, damping, anisotropy, applied = p
    field = np.stack([applied * np.cos(0.8 * t), applied * np.sin(0.8 * t), anisotropy * u[2]])
    turn = np.cross(u, field)
    return -gyro / (1 + damping**2) * (turn + damping * np.cross(u, turn))


def memristor(t, u, p):  # where its doped part ends, and the charge; Joglekar's window
    mobility, least, most, voltage = p
    w, _ = u
    current = voltage * np.sin(2 * np.pi * t) / (least * w + most * (1 - w))
    return np.array([mobility * current * (1 - (2 * w - 1) ** 2), current])


def saturating(t, u, udot, p):
    """A resonant circuit whose inductance falls with its current: F(t, u, u', p) = 0."""
    inductance = p[0] / (1 + (u[0] / p[1]) ** 2)
    return np.array(
        [inductance * udot[0] + p[2] * u[0] + u[1] - 10 * np.sin(3 * t), p[3] * udot[1] - u[0]]
    )


CASES = [
    Case(
        "Ring modulator",
        BARI + ", a fiftieth of the time",
        rhs=ring_modulator,
        u0=np.zeros(15),
        p={"gamma": 40.67286402e-9, "delta": 17.7493332, "R": 25000.0, "Lh": 4.45},
        span=(0.0, 2e-5),
        method="esdirk5",
        rtol=1e-6,
        fixed_start=True,
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Transistor amplifier",
        BARI,
        rhs=transistor_amplifier,
        mass=AMPLIFIER,
        u0=[0.0, 3.0, 3.0, 6.0, 3.0, 3.0, 6.0, 0.0],
        p={"alpha": 0.99, "beta": 1e-6, "UF": 0.026},
        span=(0.0, 0.2),
        method="esdirk5",
        rtol=1e-6,
        fixed_start=True,
        terminal=lambda t, u, p: u[7],
        published={
            0: -0.5562145012262709e-2,
            1: 0.3006522471903042e1,
            2: 0.2849958788608128e1,
            6: 0.4770927631616772e1,
            7: 0.1236995868091548e1,
        },
        published_digits=1e-7,
    ),
    Case(
        "Chua's circuit with a cubic",
        "SciML; text book",
        rhs=chua,
        u0=[0.7, 0.0, 0.0],
        p={"alpha": 15.6, "beta": 28.0, "m0": -1.2, "m1": 0.05},
        span=(0.0, 2.0),
        terminal=lambda t, u, p: u[2],
    ),
    Case(
        "Series circuit",
        "text book",
        rhs=rlc,
        u0=[0.0, 1.0],
        p={"R": 0.5, "L": 0.3, "C": 0.8},
        span=(0.0, 6.0),
        running=lambda t, u, p: p[0] * u[0] ** 2,
    ),
    Case(
        "Rectifier, index 1",
        "text book",
        rhs=rectifier,
        mass=np.diag([1.0, 0.0]),
        u0=[0.0, 0.0],
        p={"resistance": 0.1, "saturation": 1e-3, "load": 5.0},
        span=(0.0, 5.0),
        method="esdirk4",
        rtol=1e-7,
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Machine at an infinite bus",
        "PETSc, power_grid",
        rhs=swing,
        u0=[np.arcsin(0.9 / 2.0) + 0.5, 1.02],
        p={"pmax": 2.0, "inertia": 0.3, "damping": 0.2},
        span=(0.0, 5.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Swing equations of four machines",
        "text book",
        rhs=swing_network,
        u0=[0.1, 0.0, -0.2, 0.05, 0.0, 0.0, 0.0, 0.0],
        p={"coupling": 3.0, "power": 1.0, "damping": 0.3},
        span=(0.0, 8.0),
        running=lambda t, u, p: np.sum(u[4:] ** 2),
    ),
    Case(
        "Motor with a smooth switch",
        "text book",
        rhs=dc_motor,
        u0=[0.0, 0.0],
        p={"R": 1.0, "L": 0.05, "k": 0.3, "J": 0.02, "b": 0.05},
        span=(0.0, 3.0),
        method="esdirk4",
        rtol=1e-7,
        terminal=lambda t, u, p: u[1],
    ),
    Case(
        "Ladder of 40 cells",
        "text book",
        rhs=ladder,
        u0=np.zeros(40),
        p={"R": 0.2, "C": 0.1},
        span=(0.0, 5.0),
        method="esdirk4",
        rtol=1e-7,
        n_directions=2,
        terminal=lambda t, u, p: u[-1],
    ),
    Case(
        "Josephson junction",
        "Strogatz",
        rhs=josephson,
        u0=[0.0, 0.0],
        p={"beta": 0.6, "bias": 1.3},
        span=(0.0, 12.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Load behind a line, index 1",
        "text book",
        rhs=two_phase_loads,
        mass=np.diag([1.0, 1.0, 0.0, 0.0]),
        u0=[0.3, 0.0, 0.9, 0.05],
        p={"inertia": 0.5, "reactance": 0.3, "load": 0.6},
        span=(0.0, 4.0),
        method="cn",
        rtol=None,
        dt=2e-3,
        accuracy=(1e-4, 1e-4, 1e-4),
        terminal=lambda t, u, p: u[2],
    ),
    Case(
        "Magnetisation in a rotating field",
        "Landau, Lifshitz, Gilbert; OOMMF, mumax",
        rhs=magnetisation,
        u0=[0.6, 0.0, 0.8],
        p={"gyro": 1.76, "damping": 0.05, "anisotropy": 0.5, "applied": 0.3},
        span=(0.0, 8.0),
        terminal=lambda t, u, p: u[2],
    ),
    Case(
        "Memristor",
        "Strukov and others 2008; LTspice",
        rhs=memristor,
        u0=[0.3, 1e-6],
        p={"mobility": 5e3, "least": 100.0, "most": 1.6e4, "voltage": 1.2},
        span=(0.0, 3.3),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Inductor that saturates, F(t, u, u')",
        "text book",
        residual=saturating,
        u0=[0.5, 0.2],
        p={"inductance": 1.0, "saturation": 3.0, "resistance": 0.5, "capacitance": 0.4},
        span=(0.0, 4.0),
        method="cn",
        rtol=None,
        dt=0.002,
        accuracy=(1e-4, 1e-3, 1e-2),
        terminal=lambda t, u, p: u[0] + u[1],
    ),
]
