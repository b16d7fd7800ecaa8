"""Partial differential equations, by lines: arrays of NumPy, and functions of a grid's point."""

import numpy as np

from zoo.case import Case


def mesh(n, length=1.0):
    """Return the inner points of an interval with zeros at its ends."""
    return np.linspace(0.0, length, n + 2)[1:-1]


def heat(t, u, p):
    h = 1.0 / (len(u) + 1)
    padded = np.concatenate([[0.0], u, [0.0]])
    return p[0] * (padded[2:] - 2 * u + padded[:-2]) / h**2


def heat_at_a_point(t, u, p):
    return p[0] * u.laplacian()


def advection_at_a_point(t, u, p):
    speed, diffusion = p
    return -speed * (u.center - u[-1]) / u.spacing[0] + diffusion * u.laplacian()


def burgers_at_a_point(t, u, p):
    return -(u[1] ** 2 - u[-1] ** 2) / (4 * u.spacing[0]) + p[0] * u.laplacian()


def allen_cahn_at_a_point(t, u, p):
    return p[0] * u.laplacian() + p[1] * (u.center - u.center**3)


def insulated_heat(t, u, p):  # Neumann ends, a source in the middle
    h = 1.0 / len(u)
    x = (np.arange(len(u)) + 0.5) * h
    padded = np.pad(u, 1, mode="edge")
    source = p[1] * np.exp(-100 * (x - 0.5) ** 2) * np.cos(t)
    return p[0] * (padded[2:] - 2 * padded[1:-1] + padded[:-2]) / h**2 + source


def advection_diffusion(t, u, p):  # upwind, periodic
    speed, diffusion = p
    h = 1.0 / len(u)
    left, right = np.roll(u, 1), np.roll(u, -1)
    return -speed * (u - left) / h + diffusion * (left - 2 * u + right) / h**2


def burgers(t, u, p):
    h = 1.0 / (len(u) + 1)
    padded = np.pad(u, 1)
    left, right = padded[:-2], padded[2:]
    return -(right**2 - left**2) / (4 * h) + p[0] * (left - 2 * u + right) / h**2


def fisher(t, u, p):
    h = 10.0 / len(u)
    padded = np.pad(u, 1, mode="edge")
    return p[0] * np.diff(padded, 2) / h**2 + p[1] * u * (1 - u)


def allen_cahn(t, u, p):  # two dimensions, periodic
    n = 12
    w = u.reshape(n, n)
    around = np.roll(w, 1, 0) + np.roll(w, -1, 0) + np.roll(w, 1, 1) + np.roll(w, -1, 1)
    return (p[0] * (around - 4 * w) * n**2 + p[1] * (w - w**3)).ravel()


def gray_scott(t, u, p):
    n = len(u) // 2
    a, b = u[:n], u[n:]
    h = 2.5 / n

    def laplacian(w):
        return (np.roll(w, 1) - 2 * w + np.roll(w, -1)) / h**2

    growth = a * b * b
    return np.concatenate(
        [
            8e-3 * laplacian(a) - growth + p[0] * (1 - a),
            4e-3 * laplacian(b) + growth - (p[0] + p[1]) * b,
        ]
    )


def brusselator(t, w, p):  # Hairer and Wanner, BRUSS
    a, b, alpha = p
    n = len(w) // 2
    u, v = w[::2], w[1::2]
    factor = alpha * (n + 1) ** 2
    uu = np.concatenate([[1.0], u, [1.0]])
    vv = np.concatenate([[3.0], v, [3.0]])
    out = np.zeros_like(w)
    out[::2] = a + u**2 * v - (b + 1) * u + factor * (uu[:-2] - 2 * u + uu[2:])
    out[1::2] = b * u - u**2 * v + factor * (vv[:-2] - 2 * v + vv[2:])
    return out


def nerve(t, w, p):  # FitzHugh-Nagumo with diffusion
    n = len(w) // 2
    v, r = w[:n], w[n:]
    padded = np.pad(v, 1, mode="edge")
    return np.concatenate(
        [
            p[0] * (padded[2:] - 2 * v + padded[:-2]) + v * (v - p[1]) * (1 - v) - r,
            p[2] * (v - 0.5 * r),
        ]
    )


def korteweg_de_vries(t, u, p):
    h = 16.0 / len(u)
    u1, u_1 = np.roll(u, -1), np.roll(u, 1)
    u2, u_2 = np.roll(u, -2), np.roll(u, 2)
    return -p[0] * (u1 + u + u_1) / 3 * (u1 - u_1) / (2 * h) - p[1] * (
        u2 - 2 * u1 + 2 * u_1 - u_2
    ) / (2 * h**3)


def wave(t, w, p):
    n = len(w) // 2
    u, v = w[:n], w[n:]
    padded = np.pad(u, 1)
    return np.concatenate(
        [v, p[0] ** 2 * (padded[2:] - 2 * u + padded[:-2]) * (n + 1) ** 2 - p[1] * v]
    )


def cahn_hilliard(t, u, p):
    h = 1.0 / len(u)

    def laplacian(w):
        padded = np.pad(w, 1, mode="edge")
        return (padded[2:] - 2 * w + padded[:-2]) / h**2

    return laplacian(u**3 - u - p[0] * laplacian(u))


def kuramoto_sivashinsky(t, u, p):
    h = p[0] / len(u)
    u1, u_1 = np.roll(u, -1), np.roll(u, 1)
    u2, u_2 = np.roll(u, -2), np.roll(u, 2)
    second = (u1 - 2 * u + u_1) / h**2
    fourth = (u2 - 4 * u1 + 6 * u - 4 * u_1 + u_2) / h**4
    return -second - p[1] * fourth - (u1**2 - u_1**2) / (4 * h)


def porous_medium(t, u, p):
    h = 2.0 / (len(u) + 1)
    padded = np.pad(u, 1)
    flux = p[0] * np.diff(padded ** p[1]) / h
    return np.diff(flux) / h


def schroedinger(t, w, p):  # real and imaginary part
    n = len(w) // 2
    re, im = w[:n], w[n:]
    h = 10.0 / (n + 1)
    potential = p[0] * np.linspace(-5.0, 5.0, n + 2)[1:-1] ** 2 / 2

    def hamiltonian(u):
        padded = np.pad(u, 1)
        return (
            -(padded[2:] - 2 * u + padded[:-2]) / (2 * h**2)
            + (potential + p[1] * (re**2 + im**2)) * u
        )

    return np.concatenate([hamiltonian(im), -hamiltonian(re)])


def medical_akzo(t, y, p):
    k, c = p
    n = len(y) // 2
    zeta = np.arange(1, n + 1) / n
    alpha = 2 * (zeta - 1) ** 3 / c**2
    beta = (zeta - 1) ** 4 / c**2
    phi = np.where(t <= 5.0, 2.0, 0.0)
    u, v = y[::2], y[1::2]
    left = np.concatenate([[phi], u[:-1]])
    right = np.concatenate([u[1:], u[-1:]])
    h = 1.0 / n
    out = np.zeros_like(y)
    out[::2] = alpha * (right - left) / (2 * h) + beta * (left - 2 * u + right) / h**2 - k * u * v
    out[1::2] = -k * u * v
    return out


def by_matrices(t, u, p):  # finite elements: M u' = -K u + load
    return -p[0] * (STIFFNESS @ u) + p[1] * LOAD


def burgers_elements(t, u, p):  # pyadjoint's: linear elements, zero at both ends
    padded = np.concatenate([[0.0], u, [0.0]])
    left, right = padded[:-2], padded[2:]
    transport = (right**2 + u * right - u * left - left**2) / 6
    return -transport - p[0] * (2 * u - left - right) * NODES


def burgers_by_hand(x):
    """Return the cost of the same steps of backward Euler, by Newton's method."""
    u, viscosity = x[:-1].copy(), x[-1]
    h, n = 1 / NODES, NODES - 1
    stiffness = viscosity * (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)) * NODES
    for _ in range(6):
        old = u.copy()
        for _ in range(12):
            w = np.concatenate([[0.0], u, [0.0]])
            f = (w[2:] ** 2 + u * w[2:] - u * w[:-2] - w[:-2] ** 2) / 6
            slope = np.diag((w[2:] - w[:-2]) / 6)
            slope += np.diag((2 * u[1:] + u[:-1]) / 6, 1) - np.diag((2 * u[:-1] + u[1:]) / 6, -1)
            residual = MASS @ (u - old) / h + f + stiffness @ u
            u = u - np.linalg.solve(MASS / h + slope + stiffness, residual)
    return u @ MASS @ u


NODES = 30
MASS = (4 * np.eye(29) + np.eye(29, k=1) + np.eye(29, k=-1)) / 6 / NODES
EDGES = np.linspace(0.0, 2.0, 11)


def controlled_heat(t, u, p):  # pyadjoint's time-distributed control; one source for each interval
    source = np.sum(p * ((t > EDGES[:-1]) & (t <= EDGES[1:])))
    h = 1.0 / (len(u) + 1)
    return 0.1 * np.diff(np.pad(u, 1), 2) / h**2 + source


def misfit(t, u, p):
    x = mesh(20)
    return np.mean((u - 4 * x * (1 - x) * np.sin(np.pi * t)) ** 2) / 2 + 1e-3 * np.mean(p**2)


ELEMENTS = 12
H = 1.0 / (ELEMENTS + 1)
STIFFNESS = (2 * np.eye(ELEMENTS) - np.eye(ELEMENTS, k=1) - np.eye(ELEMENTS, k=-1)) / H
CONSISTENT_MASS = (4 * np.eye(ELEMENTS) + np.eye(ELEMENTS, k=1) + np.eye(ELEMENTS, k=-1)) * H / 6
LOAD = H * np.ones(ELEMENTS)


def mean_square(t, u, p):
    return np.mean(u**2)


X = mesh(50)
XP = np.arange(48) / 48

CASES = [
    Case(
        "Heat equation",
        "every text book",
        rhs=heat,
        u0=np.sin(np.pi * X),
        p={"diffusion": 0.1},
        span=(0.0, 1.0),
        method="esdirk4",
        rtol=1e-6,
        n_directions=3,
        running=mean_square,
    ),
    Case(
        "Heat equation, Crank-Nicolson",
        "every text book",
        rhs=heat,
        u0=np.sin(np.pi * X),
        p={"diffusion": 0.1},
        span=(0.0, 1.0),
        method="cn",
        rtol=None,
        dt=0.01,
        accuracy=(1e-4, 1e-3, 1e-3),
        n_directions=3,
        terminal=mean_square,
        stencil=(heat_at_a_point, {"box": ((0.0, 1.0),), "shape": (50,), "boundary": "zero"}),
    ),
    Case(
        "Heated bar, insulated",
        "text book",
        rhs=insulated_heat,
        u0=np.zeros(40),
        p={"diffusion": 0.05, "source": 3.0},
        span=(0.0, 2.0),
        method="esdirk4",
        rtol=1e-6,
        n_directions=2,
        terminal=lambda t, u, p: u[5],
    ),
    Case(
        "Advection and diffusion, upwind",
        "PyClaw, FiPy; text book",
        rhs=advection_diffusion,
        u0=np.exp(-100 * (XP - 0.3) ** 2),
        p={"speed": 1.0, "diffusion": 2e-3},
        span=(0.0, 0.5),
        method="rk4",
        rtol=None,
        dt=2.5e-3,
        accuracy=(1e-5, 1e-4, 1e-4),
        n_directions=3,
        terminal=lambda t, u, p: np.sum(u**2) / len(u),
        stencil=(
            advection_at_a_point,
            {"box": ((0.0, 1.0),), "shape": (48,), "boundary": "periodic"},
        ),
    ),
    Case(
        "Burgers' equation",
        "pyadjoint, PETSc; text book",
        rhs=burgers,
        u0=np.sin(2 * np.pi * X),
        p={"viscosity": 0.02},
        span=(0.0, 0.4),
        stencil=(burgers_at_a_point, {"box": ((0.0, 1.0),), "shape": (50,), "boundary": "zero"}),
        method="esdirk4",
        rtol=1e-6,
        n_directions=3,
        terminal=mean_square,
    ),
    Case(
        "Fisher's wave",
        "Fisher, KPP; SciML",
        rhs=fisher,
        u0=np.exp(-np.linspace(0, 10, 50)),
        p={"diffusion": 0.1, "growth": 1.0},
        span=(0.0, 4.0),
        method="rk5dp",
        rtol=1e-7,
        n_directions=2,
        terminal=lambda t, u, p: np.mean(u),
    ),
    Case(
        "Allen-Cahn in the plane",
        "FiPy, SciML; text book",
        rhs=allen_cahn,
        u0=0.3 * np.outer(np.sin(2 * np.pi * np.arange(12) / 12), np.cos(np.arange(12))).ravel(),
        p={"diffusion": 0.01, "reaction": 2.0},
        stencil=(allen_cahn_at_a_point, {"box": ((0.0, 1.0), (0.0, 1.0)), "shape": (12, 12)}),
        span=(0.0, 2.0),
        method="esdirk4",
        rtol=1e-6,
        n_directions=2,
        terminal=mean_square,
    ),
    Case(
        "Gray-Scott on a line",
        "PETSc, ex5",
        rhs=gray_scott,
        u0=np.concatenate(
            [1 - 0.5 * np.exp(-20 * (XP - 0.5) ** 2), 0.25 * np.exp(-20 * (XP - 0.5) ** 2)]
        ),
        p={"feed": 0.024, "decay": 0.06},
        span=(0.0, 50.0),
        method="esdirk4",
        rtol=1e-6,
        n_directions=2,
        terminal=lambda t, u, p: np.mean(u[:48]),
    ),
    Case(
        "BRUSS",
        "Hairer and Wanner II; SUNDIALS",
        rhs=brusselator,
        u0=np.column_stack([1 + np.sin(2 * np.pi * mesh(30)), np.full(30, 3.0)]).ravel(),
        p={"A": 1.0, "B": 3.0, "alpha": 0.02},
        span=(0.0, 10.0),
        method="esdirk5",
        rtol=1e-7,
        n_directions=2,
        terminal=lambda t, u, p: u[30],
    ),
    Case(
        "Nerve with diffusion",
        "FitzHugh-Nagumo; text book",
        rhs=nerve,
        u0=np.concatenate([np.exp(-(np.arange(40) ** 2) / 8.0), np.zeros(40)]),
        p={"D": 1.0, "a": 0.1, "eps": 0.01},
        span=(0.0, 60.0),
        method="esdirk4",
        rtol=1e-6,
        n_directions=2,
        running=lambda t, u, p: u[20],
    ),
    Case(
        "Korteweg-de Vries",
        "Zabusky and Kruskal",
        rhs=korteweg_de_vries,
        u0=2 / np.cosh(np.linspace(-8, 8, 48, endpoint=False)) ** 2,
        p={"six": 6.0, "dispersion": 1.0},
        span=(0.0, 1.0),
        method="rk8vr",
        n_directions=2,
        terminal=lambda t, u, p: u[30],
    ),
    Case(
        "Wave equation with damping",
        "text book",
        rhs=wave,
        u0=np.concatenate([np.exp(-50 * (X - 0.4) ** 2), np.zeros(50)]),
        p={"speed": 1.0, "damping": 0.3},
        span=(0.0, 1.5),
        method="rk6vr",
        n_directions=2,
        terminal=lambda t, u, p: u[10],
    ),
    Case(
        "Cahn-Hilliard on a line",
        "FiPy, FEniCS",
        rhs=cahn_hilliard,
        u0=0.1 * np.cos(4 * np.pi * np.arange(40) / 40),
        p={"gamma": 1e-3},
        span=(0.0, 0.02),
        method="esdirk4",
        rtol=1e-6,
        n_directions=2,
        terminal=mean_square,
    ),
    Case(
        "Kuramoto-Sivashinsky",
        "SciML; Kassam and Trefethen",
        rhs=kuramoto_sivashinsky,
        u0=np.cos(2 * np.pi * XP) * (1 + np.sin(2 * np.pi * XP)),
        p={"length": 22.0, "fourth": 1.0},
        span=(0.0, 10.0),
        method="esdirk5",
        rtol=1e-7,
        n_directions=2,
        terminal=lambda t, u, p: u[10],
    ),
    Case(
        "Porous medium",
        "Barenblatt",
        rhs=porous_medium,
        u0=np.maximum(1 - np.linspace(-1.5, 1.5, 42)[1:-1] ** 2, 0.05),
        p={"k": 0.5, "m": 2.0},
        span=(0.0, 0.5),
        method="esdirk4",
        rtol=1e-6,
        n_directions=2,
        terminal=lambda t, u, p: u[20],
    ),
    Case(
        "Nonlinear Schroedinger equation",
        "SciML; text book",
        rhs=schroedinger,
        u0=np.concatenate([np.exp(-((np.linspace(-5, 5, 42)[1:-1] - 1) ** 2)), np.zeros(40)]),
        p={"trap": 1.0, "interaction": 0.5},
        span=(0.0, 2.0),
        method="rk8vr",
        n_directions=2,
        terminal=lambda t, u, p: np.sum(u[:40] ** 2) * 10 / 41,
    ),
    Case(
        "Medical Akzo Nobel",
        "Bari test set for IVP solvers, 50 points",
        rhs=medical_akzo,
        u0=np.column_stack([np.zeros(50), np.ones(50)]).ravel(),
        p={"k": 100.0, "c": 4.0},
        span=(0.0, 20.0),
        method="esdirk4",
        rtol=1e-6,
        breakpoints=[5.0],
        fixed_start=True,
        terminal=lambda t, u, p: u[18],  # u at zeta = 0.2, the 79th in the test set
    ),
    Case(
        "Burgers' equation by finite elements",
        "pyadjoint's tutorial: backward Euler, the start as control",
        rhs=burgers_elements,
        mass=MASS,
        u0=np.sin(2 * np.pi * np.arange(1, NODES) / NODES),
        p={"viscosity": 1e-4},
        span=(0.0, 0.2),
        method="beuler",
        rtol=None,
        dt=1 / NODES,
        accuracy=(1e-8, 1e-7, 1e-6),
        truth=burgers_by_hand,
        exact=False,
        n_directions=3,
        terminal=lambda t, u, p: u @ MASS @ u,
    ),
    Case(
        "Heat controlled in ten intervals",
        "pyadjoint's example of a time-distributed control",
        rhs=controlled_heat,
        u0=np.zeros(20),
        p={f"f{k}": 1.0 - 0.1 * k for k in range(10)},
        span=(0.0, 2.0),
        breakpoints=EDGES[1:-1].tolist(),
        method="esdirk4",
        rtol=1e-6,
        fixed_start=True,
        running=misfit,
    ),
    Case(
        "Finite elements with a mass matrix",
        "FEniCS; text book",
        rhs=by_matrices,
        mass=CONSISTENT_MASS,
        u0=np.sin(np.pi * mesh(ELEMENTS)),
        p={"diffusion": 0.2, "load": 1.0},
        span=(0.0, 1.0),
        method="esdirk4",
        rtol=1e-7,
        terminal=lambda t, u, p: u[3] ** 2,
    ),
]
