"""Populations, epidemics, nerves, genes, drugs."""

import numpy as np

from zoo.case import Case


def lotka_volterra(t, u, p):
    x, y = u
    return [p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y]


def sir(t, u, p):
    s, i, r = u
    beta, gamma = p
    n = s + i + r
    return np.array([-beta * s * i / n, beta * s * i / n - gamma * i, gamma * i])


def seir(t, u, p):  # with contacts that change in steps
    beta, sigma, gamma, cut = p
    s, e, i, r = u
    contact = beta * np.where(t < 30.0, 1.0, cut)
    return np.array(
        [-contact * s * i, contact * s * i - sigma * e, sigma * e - gamma * i, gamma * i]
    )


def fitzhugh_nagumo(t, u, p):
    a, b, tau, current = p
    v, w = u
    return np.array([v - v**3 / 3 - w + current, (v + a - b * w) / tau])


def hodgkin_huxley(t, u, p):
    g_na, g_k, g_l, current = p
    v, m, h, n = u
    alpha_m = 0.1 * (v + 40.0) / (1.0 - np.exp(-(v + 40.0) / 10.0))
    beta_m = 4.0 * np.exp(-(v + 65.0) / 18.0)
    alpha_h = 0.07 * np.exp(-(v + 65.0) / 20.0)
    beta_h = 1.0 / (1.0 + np.exp(-(v + 35.0) / 10.0))
    alpha_n = 0.01 * (v + 55.0) / (1.0 - np.exp(-(v + 55.0) / 10.0))
    beta_n = 0.125 * np.exp(-(v + 65) / 80.0)
    ionic = g_na * m**3 * h * (v - 50.0) + g_k * n**4 * (v + 77.0) + g_l * (v + 54.387)
    return np.array(
        [
            current - ionic,
            alpha_m * (1.0 - m) - beta_m * m,
            alpha_h * (1.0 - h) - beta_h * h,
            alpha_n * (1.0 - n) - beta_n * n,
        ]
    )


def morris_lecar(t, u, p):
    g_ca, g_k, g_l, current = p
    v, w = u
    m_inf = 0.5 * (1 + np.tanh((v + 1.2) / 18.0))
    w_inf = 0.5 * (1 + np.tanh((v - 2.0) / 30.0))
    tau = 1 / np.cosh((v - 2.0) / 60.0)
    return np.array(
        [
            (current - g_ca * m_inf * (v - 120) - g_k * w * (v + 84) - g_l * (v + 60)) / 20.0,
            0.04 * (w_inf - w) / tau,
        ]
    )


def repressilator(t, u, p):
    alpha, alpha0, beta, n = p
    m, protein = u[:3], u[3:]
    repressor = np.roll(protein, 1)
    return np.concatenate([-m + alpha / (1 + repressor**n) + alpha0, -beta * (protein - m)])


def goodwin(t, u, p):
    k1, k2, k3, n = p
    x, y, z = u
    return np.array([1 / (1 + z**n) - k1 * x, x - k2 * y, y - k3 * z])


def monod(t, u, p):
    mu_max, ks, yield_factor, dilution = p
    biomass, substrate = u
    mu = mu_max * substrate / (ks + substrate)
    return np.array(
        [
            (mu - dilution) * biomass,
            dilution * (10.0 - substrate) - mu * biomass / yield_factor,
        ]
    )


def minimal_model(t, u, p):  # glucose and insulin (Bergman)
    sg, p2, si, k = p
    g, x, i = u
    return np.array([-(sg + x) * g + sg * 90.0, -p2 * x + p2 * si * (i - 10.0), -k * (i - 10.0)])


def hiv(t, u, p):
    lam, d, k, delta, production, c = p
    healthy, infected, virus = u
    return np.array(
        [
            lam - d * healthy - k * virus * healthy,
            k * virus * healthy - delta * infected,
            production * infected - c * virus,
        ]
    )


def gompertz(t, u, p):
    return p[0] * u * np.log(p[1] / u)


def jak_stat(t, u, p):  # with a delay as a chain of eight
    k1, k2, k3, k4 = p
    epo = 2.0 * t * np.exp(-0.2 * t)
    stat, phosphorylated, dimer, *chain = u
    out = np.zeros_like(u)
    out[0] = -k1 * stat * epo + 2 * k4 * chain[-1]
    out[1] = k1 * stat * epo - 2 * k2 * phosphorylated**2
    out[2] = k2 * phosphorylated**2 - k3 * dimer
    out[3] = k3 * dimer - k4 * chain[0]
    for i in range(1, 6):
        out[3 + i] = k4 * (chain[i - 1] - chain[i])
    return out


def steady_state(t, u, p):  # AMICI's example
    p1, p2, p3, p4, p5 = p
    x1, x2, x3 = u
    return np.array(
        [
            -2 * p1 * x1**2 - p2 * x1 * x2 + 2 * p3 * x2 + p4 * x3 + p5,
            p1 * x1**2 - p2 * x1 * x2 - p3 * x2 + p4 * x3,
            p2 * x1 * x2 - p4 * x3 - 1.0 * x3,
        ]
    )


def absorption(t, u, p):
    ka, ke, v = p
    gut, blood = u
    return np.array([-ka * gut, ka * gut / v - ke * blood])


def elimination(t, u, p):  # two compartments, saturable elimination
    vmax, km, k12, k21 = p
    central, peripheral = u
    return np.array(
        [
            -vmax * central / (km + central) - k12 * central + k21 * peripheral,
            k12 * central - k21 * peripheral,
        ]
    )


def target_mediated(t, u, p):
    kon, koff, kint, ksyn, kdeg, kel = p
    drug, receptor, bound = u
    return np.array(
        [
            -kel * drug - kon * drug * receptor + koff * bound,
            ksyn - kdeg * receptor - kon * drug * receptor + koff * bound,
            kon * drug * receptor - (koff + kint) * bound,
        ]
    )


def kuramoto(t, theta, p):
    n = len(theta)
    natural = np.linspace(-1.0, 1.0, n)
    difference = theta[None, :] - theta[:, None]
    return p[1] * natural + p[0] / n * np.sin(difference).sum(axis=1)


def wilson_cowan(t, u, p):
    def gain(x):
        return 1 / (1 + np.exp(-x))

    e, i = u
    return np.array(
        [
            -e + gain(p[0] * e - p[1] * i + p[2]),
            (-i + gain(p[3] * e - 3.0 * i - 2.0)) / 0.8,
        ]
    )


def rosenzweig(t, u, p):
    r, k, a, h, e, m = p
    prey, predator = u
    eaten = a * prey / (1 + a * h * prey) * predator
    return np.array([r * prey * (1 - prey / k) - eaten, e * eaten - m * predator])


def toggle(t, u, p):
    return np.array([p[0] / (1 + u[1] ** p[1]) - u[0], p[0] / (1 + np.power(u[0], p[1])) - u[1]])


def hill_from_zero(t, u, p):  # a product whose Hill function starts at zero
    vmax, k, n, decay = p
    inducer, gene = u
    return np.array([1.0 - decay * inducer, vmax * inducer**n / (k**n + inducer**n) - decay * gene])


def age_groups(t, u, p):  # SIR in three groups with a contact matrix
    contacts = p[:9].reshape(3, 3)
    s, i = u[:3], u[3:6]
    infections = s * (contacts @ i)
    return np.concatenate([-infections, infections - p[9] * i])


def lynx(t, u, p):
    hare, lynxes = u
    alpha, beta, gamma, delta = p
    return np.array([(alpha - beta * lynxes) * hare, (-gamma + delta * hare) * lynxes])


def neural_ode(t, u, p):  # diffrax, torchdiffeq: a small perceptron
    w1, b1 = p[:8].reshape(4, 2), p[8:12]
    w2 = p[12:20].reshape(2, 4)
    return w2 @ np.tanh(w1 @ u**3 + b1)


def stem_cell(t, u, p):  # GATA1 and PU.1
    own, other, decay, threshold = p
    x, y = u
    level = threshold**4
    return [
        own * x**4 / (level + x**4) + other * level / (level + y**4) - decay * x,
        own * y**4 / (level + y**4) + other * level / (level + x**4) - decay * y,
    ]


def bees(t, u, p):  # in the hive and foraging
    laying, half, recruitment, inhibition, death = p
    hive, foragers = u
    total = hive + foragers
    recruited = hive * (recruitment - inhibition * foragers / total)
    return [laying * total / (half + total) - recruited, recruited - death * foragers]


def dialysis(t, u, p):  # four hours in every 48
    clearance, exchange, generation, v1, v2 = p
    on = np.where(t % 48.0 < 4.0, 1.0, 0.0)
    flow = exchange * (u[1] - u[0])
    return np.array([(flow + generation - clearance * on * u[0]) / v1, -flow / v2])


def noble(t, u, p):  # a Purkinje fibre of the heart; milliseconds, millivolts
    sodium, potassium, leak, capacity = p
    v, m, h, n = u
    alpha_m = 0.1 * (v + 48.0) / (1.0 - np.exp(-(v + 48.0) / 15.0))
    beta_m = 0.12 * (v + 8.0) / (np.exp((v + 8.0) / 5.0) - 1.0)
    alpha_h = 0.17 * np.exp(-(v + 90.0) / 20.0)
    beta_h = 1.0 / (1.0 + np.exp(-(v + 42.0) / 10.0))
    alpha_n = 1e-4 * (v + 50.0) / (1.0 - np.exp(-(v + 50.0) / 10.0))
    beta_n = 0.002 * np.exp(-(v + 90.0) / 80.0)
    inward = 1.2 * np.exp(-(v + 90.0) / 50.0) + 0.015 * np.exp((v + 90.0) / 60.0)
    currents = (sodium * m**3 * h + 0.14) * (v - 40.0) + leak * (v + 60.0)
    currents = currents + (inward + potassium * n**4) * (v + 100.0)
    return np.array(
        [
            -currents / capacity,
            alpha_m * (1.0 - m) - beta_m * m,
            alpha_h * (1.0 - h) - beta_h * h,
            alpha_n * (1.0 - n) - beta_n * n,
        ]
    )


WEIGHTS = np.random.default_rng(5).normal(scale=0.5, size=20)


def rock_paper_scissors(t, u, p):  # shares of three kinds
    payoff = np.array([[0.0, -p[0], p[1]], [p[1], 0.0, -p[0]], [-p[0], p[1], 0.0]])
    fitness = payoff @ u
    return u * (fitness - u @ fitness)


def selected(t, u, p):
    """A recessive allele under selection that changes with the seasons, and mutation."""
    advantage = p[0] * (1 + p[3] * np.sin(2 * np.pi * t / 20))
    x = u[0]
    mean = 1 + x * x * advantage + 2 * x * (1 - x) * p[1] * advantage
    gain = x * (1 - x) * advantage * (x + p[1] * (1 - 2 * x)) / mean
    return np.array([gain + p[2] * (1 - 2 * x)])


CASES = [
    Case(
        "Lotka-Volterra",
        "SciPy, diffrax, SciML, CasADi",
        rhs=lotka_volterra,
        u0=[10.0, 5.0],
        p={"a": 1.5, "b": 1.0, "c": 1.0, "d": 3.0},
        span=(0.0, 15.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "SIR",
        "SciML, PyMC",
        rhs=sir,
        u0=[990.0, 10.0, 0.0],
        p={"beta": 0.5, "gamma": 0.25},
        span=(0.0, 40.0),
        observed=([10.0, 20.0, 40.0], [1], [[60.0], [140.0], [40.0]], 10.0),
    ),
    Case(
        "SEIR with a lockdown",
        "text book",
        rhs=seir,
        u0=[0.999, 0.0, 0.001, 0.0],
        p={"beta": 0.6, "sigma": 0.2, "gamma": 0.15, "cut": 0.3},
        span=(0.0, 80.0),
        breakpoints=[30.0],
        terminal=lambda t, u, p: u[3],
    ),
    Case(
        "FitzHugh-Nagumo",
        "SciML, PyMC, Stan",
        rhs=fitzhugh_nagumo,
        u0=[-1.0, 1.0],
        p={"a": 0.7, "b": 0.8, "tau": 12.5, "current": 0.5},
        span=(0.0, 60.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Hodgkin-Huxley",
        "Brian, NEURON, SciML",
        rhs=hodgkin_huxley,
        u0=[-65.0, 0.05, 0.6, 0.32],
        p={"gNa": 120.0, "gK": 36.0, "gL": 0.3, "current": 10.0},
        span=(0.0, 12.0),
        running=lambda t, u, p: u[0] ** 2 / 1000,
    ),
    Case(
        "Morris-Lecar",
        "XPPAUT",
        rhs=morris_lecar,
        u0=[-20.0, 0.1],
        p={"gCa": 4.4, "gK": 8.0, "gL": 2.0, "current": 90.0},
        span=(0.0, 100.0),
        method="rk5dp",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Repressilator",
        "Elowitz and Leibler; Catalyst.jl, AMICI",
        rhs=repressilator,
        u0=[0.0, 1.0, 2.0, 5.0, 0.0, 15.0],
        p={"alpha": 100.0, "alpha0": 0.1, "beta": 1.0, "n": 2.0},
        span=(0.0, 20.0),
        terminal=lambda t, u, p: u[3],
    ),
    Case(
        "Goodwin's oscillator",
        "Goodwin; Stan",
        rhs=goodwin,
        u0=[0.3, 0.9, 1.3],
        p={"k1": 0.12, "k2": 0.1, "k3": 0.15, "n": 9.0},
        span=(0.0, 60.0),
        terminal=lambda t, u, p: u[2],
    ),
    Case(
        "Chemostat",
        "Monod",
        rhs=monod,
        u0=[0.1, 5.0],
        p={"mu_max": 0.8, "Ks": 0.5, "yield": 0.4, "dilution": 0.3},
        span=(0.0, 20.0),
        running=lambda t, u, p: u[0],
    ),
    Case(
        "Minimal model of glucose",
        "Bergman",
        rhs=minimal_model,
        u0=[290.0, 0.0, 360.0],
        p={"SG": 0.03, "p2": 0.02, "SI": 5e-4, "k": 0.3},
        span=(0.0, 180.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Dynamics of HIV",
        "Perelson; AMICI, COPASI",
        rhs=hiv,
        u0=[1000.0, 0.0, 1e-3],
        p={"lambda": 10.0, "d": 0.01, "k": 2.4e-5, "delta": 0.5, "N delta": 500.0, "c": 3.0},
        span=(0.0, 60.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Growth of a tumour",
        "Gompertz",
        rhs=gompertz,
        u0=[1.0],
        p={"rate": 0.2, "capacity": 100.0},
        span=(0.0, 20.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "JAK-STAT",
        "Swameye and others; AMICI, PEtab",
        rhs=jak_stat,
        u0=[0.996, 0, 0, 0, 0, 0, 0, 0, 0.0],
        p={"k1": 0.6, "k2": 1.2, "k3": 0.4, "k4": 1.0},
        span=(0.0, 30.0),
        terminal=lambda t, u, p: u[0] + 2 * u[2],
    ),
    Case(
        "Steady state example",
        "AMICI",
        rhs=steady_state,
        u0=[0.1, 0.4, 0.7],
        p={"p1": 1.0, "p2": 0.5, "p3": 0.4, "p4": 2.0, "p5": 0.1},
        span=(0.0, 100.0),
        method="esdirk4",
        rtol=1e-7,
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Oral dose",
        "Theophylline; Pumas, nlmixr",
        rhs=absorption,
        u0=[320.0, 0.0],
        p={"ka": 1.5, "ke": 0.086, "V": 32.0},
        span=(0.0, 24.0),
        observed=([0.5, 2.0, 7.0, 24.0], [1], [[5.0], [8.0], [6.0], [1.5]], 0.5),
    ),
    Case(
        "Saturable elimination",
        "Pumas, nlmixr",
        rhs=elimination,
        u0=[10.0, 0.0],
        p={"Vmax": 2.0, "Km": 1.0, "k12": 0.3, "k21": 0.2},
        span=(0.0, 12.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Target-mediated disposition",
        "Mager and Jusko",
        rhs=target_mediated,
        u0=[100.0, 10.0, 0.0],
        p={"kon": 1.0, "koff": 0.1, "kint": 0.05, "ksyn": 1.0, "kdeg": 0.1, "kel": 0.1},
        span=(0.0, 20.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Ten Kuramoto oscillators",
        "SciML; text book",
        rhs=kuramoto,
        u0=np.linspace(0.0, 5.0, 10),
        p={"coupling": 1.5, "spread": 1.0},
        span=(0.0, 10.0),
        running=lambda t, u, p: np.cos(u).sum() ** 2 + np.sin(u).sum() ** 2,
    ),
    Case(
        "Wilson-Cowan",
        "Wilson and Cowan",
        rhs=wilson_cowan,
        u0=[0.2, 0.1],
        p={"wEE": 9.6, "wEI": 4.0, "current": -2.0, "wIE": 13.3},
        span=(0.0, 20.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Rosenzweig-MacArthur",
        "text book",
        rhs=rosenzweig,
        u0=[1.0, 0.5],
        p={"r": 1.0, "K": 5.0, "a": 1.0, "h": 0.5, "e": 0.6, "m": 0.4},
        span=(0.0, 40.0),
        method="rk7vr",
        terminal=lambda t, u, p: u[1],
    ),
    Case(
        "Toggle switch",
        "Gardner; AMICI",
        rhs=toggle,
        u0=[1.0, 1.2],
        p={"a": 4.0, "n": 2.5},
        span=(0.0, 8.0),
        terminal=lambda t, u, p: u[1] - u[0],
    ),
    Case(
        "Hill function from zero",
        "text book",
        rhs=hill_from_zero,
        u0=[0.0, 0.0],
        p={"vmax": 2.0, "K": 0.5, "n": 2.3, "decay": 0.4},
        span=(0.0, 6.0),
        terminal=lambda t, u, p: u[1],
    ),
    Case(
        "Epidemic in three age groups",
        "text book",
        rhs=age_groups,
        u0=[0.3, 0.49, 0.2, 0.0, 0.01, 0.0],
        p=dict(
            zip(
                [f"c{i}{j}" for i in range(3) for j in range(3)] + ["gamma"],
                [1.2, 0.5, 0.2, 0.5, 0.9, 0.3, 0.2, 0.3, 0.4, 0.2],
                strict=True,
            )
        ),
        span=(0.0, 25.0),
        terminal=lambda t, u, p: 1.0 - u[:3].sum(),
    ),
    Case(
        "Lynx and hare",
        "Stan (Carpenter)",
        rhs=lynx,
        u0=[34.9, 3.9],
        p={"alpha": 0.55, "beta": 0.028, "gamma": 0.8, "delta": 0.024},
        span=(0.0, 20.0),
        observed=(
            [1.0, 5.0, 10.0, 20.0],
            [0, 1],
            [[47.2, 6.1], [20.6, 41.7], [27.1, 15.2], [24.7, 8.6]],
            5.0,
        ),
    ),
    Case(
        "Neural ODE",
        "diffrax, torchdiffeq",
        rhs=neural_ode,
        u0=[1.0, 0.5],
        p={f"w{i}": w for i, w in enumerate(WEIGHTS)},
        span=(0.0, 3.0),
        method="rk5dp",
        rtol=1e-7,
        observed=([1.0, 2.0, 3.0], [0, 1], [[0.5, 0.3], [0.1, 0.2], [-0.3, 0.4]], 1.0),
    ),
    Case(
        "Decision of a stem cell",
        "Huang and others; text book",
        rhs=stem_cell,
        u0=[0.9, 0.85],
        p={"own": 1.2, "other": 1.0, "decay": 1.0, "threshold": 0.7},
        span=(0.0, 15.0),
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Colony of bees",
        "Khoury, Myerscough, Barron",
        rhs=bees,
        u0=[16000.0, 8000.0],
        p={
            "laying": 2000.0,
            "half": 27000.0,
            "recruitment": 0.25,
            "inhibition": 0.75,
            "death": 0.4,
        },
        span=(0.0, 50.0),
        terminal=lambda t, u, p: u[0] + u[1],
    ),
    Case(
        "Dialysis",
        "text book (urea in two compartments)",
        rhs=dialysis,
        u0=[20.0, 20.0],
        p={"clearance": 12.0, "exchange": 30.0, "generation": 10.0, "v1": 14.0, "v2": 28.0},
        span=(0.0, 120.0),
        breakpoints=[4.0, 48.0, 52.0, 96.0, 100.0],
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Noble's Purkinje fibre",
        "Noble 1962; CellML",
        rhs=noble,
        u0=[-70.0, 0.05, 0.7, 0.3],
        p={"sodium": 400.0, "potassium": 1.2, "leak": 0.075, "capacity": 12.0},
        span=(0.0, 400.0),
        method="esdirk5",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Rock, paper, scissors",
        "replicator equation; Hofbauer and Sigmund",
        rhs=rock_paper_scissors,
        u0=[0.5, 0.3, 0.2],
        p={"loss": 1.0, "gain": 1.5},
        span=(0.0, 20.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
    Case(
        "Allele under selection",
        "text book (population genetics; Haldane)",
        rhs=selected,
        u0=[0.01],
        p={"advantage": 0.1, "dominance": 0.3, "mutation": 1e-4, "season": 0.5},
        span=(0.0, 200.0),
        method="auto",
        terminal=lambda t, u, p: u[0],
    ),
]
