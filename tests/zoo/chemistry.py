"""Kinetics: the stiff problems of the Bari test set, and what text books begin with."""

import mpmath as mp
import numpy as np

from zoo.case import Case

BARI = "Bari test set for IVP solvers"


def hires(t, u, p):
    k1, k2, k3, k4, k5, k6, k_plus, k_minus, k_star, oks = p
    y1, y2, y3, y4, y5, y6, y7, y8 = u
    return np.array(
        [
            -k1 * y1 + k2 * y2 + k6 * y3 + oks,
            k1 * y1 - (k2 + k3) * y2,
            -(k6 + k1) * y3 + k2 * y4 + k5 * y5,
            k3 * y2 + k1 * y3 - (k4 + k2) * y4,
            -(k1 + k5) * y5 + k2 * (y6 + y7),
            -k_plus * y6 * y8 + k4 * y4 + k1 * y5 - k2 * y6 + k_minus * y7,
            k_plus * y6 * y8 - (k2 + k_minus + k_star) * y7,
            -k_plus * y6 * y8 + (k2 + k_minus + k_star) * y7,
        ]
    )


def robertson(t, u, p):
    x, y, z = u
    return [
        -p[0] * x + p[2] * y * z,
        p[0] * x - p[2] * y * z - p[1] * y**2,
        p[1] * y**2,
    ]


def robertson_dae(t, u, p):
    x, y, z = u
    return np.array(
        [-p[0] * x + p[2] * y * z, p[0] * x - p[2] * y * z - p[1] * y**2, x + y + z - 1.0]
    )


def oregonator(t, u, p):
    s, w, q = p[0], p[1], p[2]
    return np.array(
        [
            s * (u[1] + u[0] * (1.0 - q * u[0] - u[1])),
            (u[2] - (1.0 + u[0]) * u[1]) / s,
            w * (u[0] - u[2]),
        ]
    )


def e5(t, u, p):
    a, b, c, m = p
    r1, r2, r3, r4 = a * u[0], b * u[0] * u[2], m * c * u[1] * u[2], c * u[3]
    return np.array([-r1 - r2, r1 - r3, r1 - r2 - r3 + r4, r2 - r4])


POLLUTION = (
    0.35, 26.6, 12300.0, 8.6e-4, 8.2e-4, 15000.0, 1.3e-4, 24000.0, 16500.0, 9000.0, 0.022, 12000.0,
    1.88, 16300.0, 4.8e6, 3.5e-4, 0.0175, 1e8, 4.44e11, 1240.0, 2.1, 5.78, 0.0474, 1780.0, 3.12,
)  # fmt: skip


def pollution(t, y, k):
    r = np.array(
        [
            k[0] * y[0],
            k[1] * y[1] * y[3],
            k[2] * y[4] * y[1],
            k[3] * y[6],
            k[4] * y[6],
            k[5] * y[6] * y[5],
            k[6] * y[8],
            k[7] * y[8] * y[5],
            k[8] * y[10] * y[1],
            k[9] * y[10] * y[0],
            k[10] * y[12],
            k[11] * y[9] * y[1],
            k[12] * y[13],
            k[13] * y[0] * y[5],
            k[14] * y[2],
            k[15] * y[3],
            k[16] * y[3],
            k[17] * y[15],
            k[18] * y[15],
            k[19] * y[16] * y[5],
            k[20] * y[18],
            k[21] * y[18],
            k[22] * y[0] * y[3],
            k[23] * y[18] * y[0],
            k[24] * y[19],
        ]
    )
    dy = np.zeros_like(y)
    dy[0] = (
        -r[0] - r[9] - r[13] - r[22] - r[23] + r[1] + r[2] + r[8] + r[10] + r[11] + r[21] + r[24]
    )
    dy[1] = -r[1] - r[2] - r[8] - r[11] + r[0] + r[20]
    dy[2] = -r[14] + r[0] + r[16] + r[18] + r[21]
    dy[3] = -r[1] - r[15] - r[16] - r[22] + r[14]
    dy[4] = -r[2] + 2 * r[3] + r[5] + r[6] + r[12] + r[19]
    dy[5] = -r[5] - r[7] - r[13] - r[19] + r[2] + 2 * r[17]
    dy[6] = -r[3] - r[4] - r[5] + r[12]
    dy[7] = r[3] + r[4] + r[5] + r[6]
    dy[8] = -r[6] - r[7]
    dy[9] = -r[11] + r[6] + r[8]
    dy[10] = -r[8] - r[9] + r[7] + r[10]
    dy[11] = r[8]
    dy[12] = -r[10] + r[9]
    dy[13] = -r[12] + r[11]
    dy[14] = r[13]
    dy[15] = -r[17] - r[18] + r[15]
    dy[16] = -r[19]
    dy[17] = r[19]
    dy[18] = -r[20] - r[21] - r[23] + r[22] + r[24]
    dy[19] = -r[24] + r[23]
    return dy


POLLUTED = np.zeros(20)
POLLUTED[[1, 3, 6, 7, 8, 16]] = 0.2, 0.04, 0.1, 0.3, 0.01, 0.007


def chemakzo(t, y, p):
    k1, k2, k3, k4, kbig, kla, po2, hen, ks = p
    r1 = k1 * y[0] ** 4 * np.sqrt(y[1])
    r2 = k2 * y[2] * y[3]
    r3 = k2 / kbig * y[0] * y[4]
    r4 = k3 * y[0] * y[3] ** 2
    r5 = k4 * y[5] ** 2 * np.sqrt(y[1])
    fin = kla * (po2 / hen - y[1])
    return np.array(
        [
            -2.0 * r1 + r2 - r3 - r4,
            -0.5 * r1 - r4 - 0.5 * r5 + fin,
            r1 - r2 + r3,
            -r2 + r3 - 2.0 * r4,
            r2 - r3 + r5,
            ks * y[0] * y[3] - y[5],
        ]
    )


def brusselator(t, u, p):
    a, b = p
    x, y = u
    return np.array([a + x * x * y - (b + 1) * x, b * x - x * x * y])


def michaelis_menten(t, u, p):
    kf, kr, kcat = p
    s, e, es, product = u
    bind, unbind, turn = kf * s * e, kr * es, kcat * es
    return np.array([-bind + unbind, -bind + unbind + turn, bind - unbind - turn, turn])


def cstr(t, u, p):  # Seborg: exothermic stirred tank, coolant temperature as parameter
    coolant, feed, e_over_r = p
    c, temperature = u
    rate = 7.2e10 * np.exp(-e_over_r / temperature) * c
    return np.array(
        [
            (1.0 - c) * feed / 100.0 - rate,
            (350.0 - temperature) * feed / 100.0
            + 5e4 / (1000 * 0.239) * rate
            + 5e4 / (100 * 1000 * 0.239) * (coolant - temperature),
        ]
    )


def van_de_vusse(t, u, p):
    k1, k2, k3, dilution = p
    a, b = u
    return np.array(
        [
            -k1 * a - k3 * a**2 + dilution * (10.0 - a),
            k1 * a - k2 * b - dilution * b,
        ]
    )


def gas_oil(t, y, p):
    return np.array([-(p[0] + p[2]) * y[0] ** 2, p[0] * y[0] ** 2 - p[1] * y[1]])


def alpha_pinene(t, y, p):
    return np.array(
        [
            -(p[0] + p[1]) * y[0],
            p[0] * y[0],
            p[1] * y[0] - (p[2] + p[3]) * y[2] + p[4] * y[4],
            p[2] * y[2],
            p[3] * y[2] - p[4] * y[4],
        ]
    )


def autocatalator(t, u, p):  # Petzold and others: thermal runaway of A + B
    rates = p[:3]
    a, b, c, d = u
    r1, r2, r3 = rates[0] * a, rates[1] * a * b, rates[2] * b * c
    return np.stack([-r1 - r2, r1 + r2 - r3, r3 - 0.5 * c, r2 + 0.5 * c - 0.1 * d])


def hydrogen_bromide(t, u, p):  # law of mass action with a stoichiometric matrix
    stoichiometry = np.array(
        [
            [-1, 1, 0, 0, 0],
            [2, -2, -1, 1, -1],
            [0, 0, -1, 0, 0],
            [0, 0, 1, -1, -1 + 2],
            [0, 0, 1, -1, 1],
        ]
    )
    br2, br, h2, h, hbr = u
    k = p
    rates = np.array([k[0] * br2, k[1] * br**2, k[2] * br * h2, k[3] * h * hbr, k[4] * h * br2])
    return stoichiometry @ rates


def arrhenius(t, u, p):
    a1, e1, a2, e2 = p
    temperature = 300.0 + 10.0 * t
    k = np.array(
        [a1 * np.exp(-e1 / (8.314 * temperature)), a2 * np.exp(-e2 / (8.314 * temperature))]
    )
    return np.array([-k[0] * u[0], k[0] * u[0] - k[1] * u[1], k[1] * u[1]])


def polymerisation(t, u, p):  # moments of the chains, with a gel effect
    efficiency, decay, growth, end = p
    monomer, initiator, _, first, second = u
    converted = 1 - monomer / 5.0
    ending = end * np.exp(-2 * (converted + 2 * converted**2))
    radicals = np.sqrt(2 * efficiency * decay * initiator / ending)
    length = growth * monomer / (ending * radicals)
    added = growth * monomer * radicals
    return [
        -added,
        -decay * initiator,
        0.75 * ending * radicals**2,
        added,
        added * (2 * length + 1),
    ]


def crystallisation(t, u, p):  # moments of the sizes, while the liquor cools
    births, order, growth, exponent = p
    m0, m1, m2, m3, dissolved = u
    saturated = 0.062 + 0.0021 * (50.0 - 0.25 * t)
    excess = (dissolved - saturated) / saturated
    rate = growth * excess**exponent
    return [
        births * excess**order * m3,
        rate * m0,
        2 * rate * m1,
        3 * rate * m2,
        -1.5 * rate * m2,
    ]


def tight_binding(t, u, p):  # an inhibitor that binds as much as there is of the enzyme
    turnover, michaelis, dissociation, enzyme, inhibitor = p
    s, e, i, bound, inhibited = u
    return np.array(
        [
            -turnover * bound,
            bound - e * s / michaelis,
            inhibited - e * i / dissociation,
            enzyme - e - bound - inhibited,
            inhibitor - i - inhibited,
        ]
    )


def carbonate(t, u, p):  # carbon of the sea and the air; protons are some 1e-8 mol/kg
    k1, k2, henry, exchange, alkalinity = p
    carbon, air, protons = u
    dissolved = carbon / (1 + k1 / protons + k1 * k2 / protons**2)
    flux = exchange * (air - dissolved / henry)
    charges = dissolved * (k1 / protons + 2 * k1 * k2 / protons**2)
    return np.array([flux / 50.0, 2e-6 - 0.2 * flux, charges - alkalinity])


def titration(t, u, p):  # acid, sodium and pH; the charges are balanced
    acid, sodium, ph = u
    hydrogen = 10.0**-ph
    dissociated = acid * p[0] / (p[0] + hydrogen)
    charge = hydrogen + sodium - 1e-14 / hydrogen - dissociated
    return np.array([-p[1] * acid, p[1] * (0.1 - sodium), charge])


def ph_of(x, end=30):
    acid, sodium, _, dissociation, rate = x
    left = mp.exp(-rate * end)
    acid, sodium = acid * left, mp.mpf("0.1") - (mp.mpf("0.1") - sodium) * left

    def charge(ph):
        hydrogen = mp.mpf(10) ** -ph
        dissociated = acid * dissociation / (dissociation + hydrogen)
        return hydrogen + sodium - mp.mpf("1e-14") / hydrogen - dissociated

    return mp.findroot(charge, (2, 13), solver="anderson")


def ozone(t, u, p):
    """Oxygen atoms, ozone, NO and NO2 in the stratosphere, which the sun splits by day."""
    atoms, o3, no, no2 = u
    split_o2, split_o3, split_no2, joins, meets, oxidised = p
    air = 8e17
    oxygen = 0.21 * air
    height = np.maximum(np.cos(2.0 * np.pi * (t / 86400.0 - 0.5)), 0.0)
    day = np.exp(-0.3 / np.maximum(height, 1e-2)) * np.where(height > 0.0, 1.0, 0.0)
    formed = joins * 1e-34 * air * oxygen * atoms
    lost = meets * 1e-15 * atoms * o3
    nitric, returned = oxidised * 1e-15 * no * o3, 9.7e-12 * atoms * no2
    light = split_no2 * day * no2
    return np.array(
        [
            2.0 * split_o2 * day * oxygen + split_o3 * day * o3 + light - formed - lost - returned,
            formed - split_o3 * day * o3 - lost - nitric,
            returned + light - nitric,
            nitric - returned - light,
        ]
    )


def coagulation(t, u, p):
    gain = np.concatenate([[0.0], np.convolve(u, u)[: len(u) - 1]])
    return p[0] * (0.5 * gain - u * np.sum(u)) - p[1] * np.arange(1.0, len(u) + 1) * u


def decay_chain(t, u, p):
    decays = np.log(2) / p * u
    return np.concatenate([[0.0], decays[:-1]]) - decays


CASES = [
    Case(
        "HIRES",
        BARI,
        rhs=hires,
        u0=[1.0, 0, 0, 0, 0, 0, 0, 0.0057],
        p=dict(
            zip(
                ("k1", "k2", "k3", "k4", "k5", "k6", "k_plus", "k_minus", "k_star", "oks"),
                (1.71, 0.43, 8.32, 0.69, 0.035, 8.32, 280.0, 0.69, 0.69, 0.0007),
                strict=True,
            )
        ),
        span=(0.0, 321.8122),
        method="esdirk5",
        terminal=lambda t, u, p: u[6],
        published={
            0: 0.7371312573325668e-3,
            1: 0.1442485726316185e-3,
            2: 0.5888729740967575e-4,
            3: 0.1175651343283149e-2,
            4: 0.2386356198831331e-2,
            5: 0.6238968252742796e-2,
            6: 0.2849998395185769e-2,
            7: 0.2850001604814231e-2,
        },
    ),
    Case(
        "ROBER",
        BARI,
        rhs=robertson,
        u0=[1.0, 0.0, 0.0],
        p={"k1": 0.04, "k2": 3e7, "k3": 1e4},
        span=(0.0, 1e11),
        method="esdirk5",
        atol=1e-16,
        terminal=lambda t, u, p: u[0],
        published={0: 0.2083340149701255e-7, 1: 0.8333360770334713e-13, 2: 0.9999999791665050},
    ),
    Case(
        "Robertson to t = 40",
        "SUNDIALS, CVODES examples",
        rhs=robertson,
        u0=[1.0, 0.0, 0.0],
        p={"k1": 0.04, "k2": 3e7, "k3": 1e4},
        span=(0.0, 40.0),
        method="esdirk4",
        rtol=1e-6,
        running=lambda t, u, p: u[2],
    ),
    Case(
        "Robertson as a DAE",
        "SUNDIALS, IDA examples; MATLAB hb1dae",
        rhs=robertson_dae,
        mass=np.diag([1.0, 1.0, 0.0]),
        u0=[1.0, 0.0, 0.0],
        p={"k1": 0.04, "k2": 3e7, "k3": 1e4},
        span=(0.0, 400.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[2],
    ),
    Case(
        "OREGO",
        BARI,
        rhs=oregonator,
        u0=[1.0, 2.0, 3.0],
        p={"s": 77.27, "w": 0.161, "q": 8.375e-6},
        span=(0.0, 360.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[2],
        published={0: 0.1000814870318523e1, 1: 0.1228178521549917e4, 2: 0.1320554942846706e3},
        published_digits=1e-7,
    ),
    Case(
        "E5",
        "STIFF DETEST (Enright, Hull, Lindberg)",
        rhs=e5,
        u0=[1.76e-3, 0.0, 0.0, 0.0],
        p={"A": 7.89e-10, "B": 1.1e7, "C": 1.13e3, "M": 1e6},
        span=(0.0, 1000.0),
        method="esdirk5",
        atol=1e-20,
        rtol=1e-7,
        terminal=lambda t, u, p: u[1] * 1e10,
    ),
    Case(
        "Pollution",
        BARI,
        rhs=pollution,
        u0=POLLUTED,
        p={f"k{i + 1}": value for i, value in enumerate(POLLUTION)},
        span=(0.0, 60.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[3],
        published={0: 0.5646255480022769e-1, 1: 0.1342484130422339, 3: 0.5523140207484359e-2},
    ),
    Case(
        "Chemical Akzo Nobel",
        BARI,
        rhs=chemakzo,
        mass=np.diag([1.0, 1, 1, 1, 1, 0]),
        u0=[0.444, 0.00123, 0.0, 0.007, 0.0, 115.83 * 0.444 * 0.007],
        p={
            "k1": 18.7,
            "k2": 0.58,
            "k3": 0.09,
            "k4": 0.42,
            "K": 34.4,
            "klA": 3.3,
            "p_O2": 0.9,
            "H": 737.0,
            "Ks": 115.83,
        },
        span=(0.0, 180.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[0],
        published={
            0: 0.1150794920661702,
            1: 0.1203831471567715e-2,
            2: 0.1611562887407974,
            3: 0.3656156421249283e-3,
            4: 0.1708010885264404e-1,
            5: 0.4873531310307455e-2,
        },
    ),
    Case(
        "Brusselator",
        "Hairer, Norsett, Wanner I; SciML",
        rhs=brusselator,
        u0=[1.5, 3.0],
        p={"A": 1.0, "B": 3.0},
        span=(0.0, 20.0),
        terminal=lambda t, u, p: u[0] + u[1],
        published={0: 0.4986370712683478291402659846476, 1: 4.596780349452011024598321237263},
    ),
    Case(
        "Michaelis-Menten",
        "AMICI, Catalyst.jl",
        rhs=michaelis_menten,
        u0=[0.5, 0.2, 0.0, 0.0],
        p={"kf": 10.0, "kr": 1.0, "kcat": 0.5},
        span=(0.0, 10.0),
        method="rk8vr",
        terminal=lambda t, u, p: u[3],
    ),
    Case(
        "Stirred tank with ignition",
        "Seborg, Process Dynamics; GEKKO",
        rhs=cstr,
        u0=[0.87725294, 324.475443],
        p={"coolant": 302.0, "feed": 100.0, "E_over_R": 8750.0},
        span=(0.0, 5.0),
        method="esdirk5",
        running=lambda t, u, p: (u[1] - 324.0) ** 2,
    ),
    Case(
        "Van de Vusse reactor",
        "CasADi, do-mpc",
        rhs=van_de_vusse,
        u0=[3.0, 1.12],
        p={"k1": 50.0, "k2": 100.0, "k3": 10.0, "dilution": 34.3},
        span=(0.0, 0.5),
        terminal=lambda t, u, p: u[1] ** 2,
    ),
    Case(
        "Cracking of gas oil",
        "COPS 3.0",
        rhs=gas_oil,
        u0=[1.0, 0.0],
        p={"theta1": 11.847, "theta2": 8.3458, "theta3": 1.0010},
        span=(0.0, 0.95),
        observed=(
            [0.025, 0.1, 0.25, 0.45, 0.65, 0.95],
            [0, 1],
            [
                [0.7307, 0.1954],
                [0.4347, 0.2863],
                [0.2439, 0.1898],
                [0.1608, 0.0949],
                [0.1111, 0.0528],
                [0.0760, 0.0215],
            ],
            0.01,
        ),
    ),
    Case(
        "Isomerisation of alpha-pinene",
        "COPS 3.0; Box and others, Technometrics 1973",
        rhs=alpha_pinene,
        u0=[100.0, 0, 0, 0, 0],
        p={"t1": 5.926e-5, "t2": 2.963e-5, "t3": 2.047e-5, "t4": 2.745e-4, "t5": 3.998e-5},
        span=(0.0, 36420.0),
        observed=(
            [1230.0, 7800.0, 36420.0],
            [0, 1, 2, 3, 4],
            [
                [88.35, 7.3, 2.3, 0.4, 1.75],
                [50.4, 32.9, 6.0, 1.5, 9.3],
                [4.5, 62.1, 4.8, 4.5, 25.2],
            ],
            1.0,
        ),
    ),
    Case(
        "Autocatalator",
        "text book",
        rhs=autocatalator,
        u0=[1.0, 0.01, 0.1, 0.0],
        p={"k1": 0.2, "k2": 2.0, "k3": 1.5},
        span=(0.0, 12.0),
        method="rk5dp",
        running=lambda t, u, p: u[1] ** 2,
    ),
    Case(
        "Mass action with a matrix",
        "text book (hydrogen and bromine)",
        rhs=hydrogen_bromide,
        u0=[1.0, 0.1, 1.0, 0.01, 0.0],
        p={"k1": 0.1, "k2": 0.5, "k3": 1.0, "k4": 0.3, "k5": 2.0},
        span=(0.0, 3.0),
        terminal=lambda t, u, p: np.sum(u**2),
    ),
    Case(
        "Arrhenius along a temperature ramp",
        "text book",
        rhs=arrhenius,
        u0=[1.0, 0.0, 0.0],
        p={"A1": 1e7, "E1": 5.0e4, "A2": 1e8, "E2": 6.0e4},
        span=(0.0, 10.0),
        terminal=lambda t, u, p: u[1],
    ),
    Case(
        "Polymerisation by moments",
        "text book (PREDICI)",
        rhs=polymerisation,
        u0=[5.0, 0.02, 0.001, 0.01, 10.0],
        p={"efficiency": 0.6, "decay": 1e-5, "growth": 500.0, "end": 3e7},
        span=(0.0, 2e4),
        method="esdirk5",
        terminal=lambda t, u, p: u[4] / u[2],
    ),
    Case(
        "Crystallisation by moments",
        "text book (population balance)",
        rhs=crystallisation,
        u0=[1.0, 0.1, 0.02, 0.005, 0.174],
        p={"births": 3e3, "order": 1.8, "growth": 0.2, "exponent": 1.1},
        span=(0.0, 80.0),
        terminal=lambda t, u, p: u[3],
    ),
    Case(
        "Inhibitor that binds tightly, index 1",
        "Morrison; COPASI",
        rhs=tight_binding,
        u0=[10.0, 0.01, 0.01, 0.05, 0.05],
        p={
            "turnover": 5.0,
            "michaelis": 4.0,
            "dissociation": 0.01,
            "enzyme": 0.1,
            "inhibitor": 0.08,
        },
        span=(0.0, 60.0),
        mass=np.diag([1.0, 0.0, 0.0, 0.0, 0.0]),
        method="esdirk5",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Carbon of the sea, index 1",
        "text book (box model)",
        rhs=carbonate,
        u0=[2e-3, 4e-4, 4e-9],
        p={"k1": 1e-6, "k2": 7e-10, "henry": 0.035, "exchange": 0.05, "alkalinity": 2.3e-3},
        span=(0.0, 100.0),
        mass=np.diag([1.0, 1.0, 0.0]),
        method="esdirk5",
        atol=1e-14,
        terminal=lambda t, u, p: -np.log10(u[2]),
    ),
    Case(
        "Titration of acetic acid, index 1",
        "text book",
        rhs=titration,
        u0=[0.05, 0.0, 3.0],
        p={"dissociation": 1.8e-5, "rate": 0.02},
        span=(0.0, 30.0),
        mass=np.diag([1.0, 1.0, 0.0]),
        method="auto",
        terminal=lambda t, u, p: u[2],
        truth=ph_of,
    ),
    Case(
        "Ozone and nitrogen over two days",
        "Chapman; text book (atmospheric chemistry)",
        rhs=ozone,
        u0=[1e6, 2e12, 5e8, 1e9],
        p={
            "split_o2": 1e-11,
            "split_o3": 1e-3,
            "split_no2": 1e-2,
            "joins": 6.0,
            "meets": 1.0,
            "oxidised": 5.0,
        },
        span=(0.0, 172800.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[1] / 1e12,
    ),
    Case(
        "Coagulation of twelve sizes",
        "Smoluchowski 1916",
        rhs=coagulation,
        u0=[1.0] + [0.0] * 11,
        p={"rate": 1.0, "settling": 0.02},
        span=(0.0, 5.0),
        method="auto",
        terminal=lambda t, u, p: np.sum(np.arange(1.0, len(u) + 1) ** 2 * u),
    ),
    Case(
        "Decay chain, half-lives of 1e-6 to 1e9 s",
        "Bateman 1910",
        rhs=decay_chain,
        u0=[1e20, 0.0, 0.0, 0.0, 0.0, 0.0],
        p={"a": 1e9, "b": 1e5, "c": 1e-6, "d": 1e2, "e": 1e-3, "f": 1e7},
        span=(0.0, 1e6),
        method="auto",
        terminal=lambda t, u, p: u[5] / 1e17,
    ),
]
