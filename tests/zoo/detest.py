"""DETEST (Hull, Enright, Fellen, Sedgwick, SIAM J. Numer. Anal. 9, 1972), t from 0 to 20.

Numbers of the original equations are parameters here, so that there is something to differentiate.
"""

import numpy as np

from zoo.case import Case

SOURCE = "DETEST"


def a1(t, u, p):
    return -p[0] * u


def a2(t, u, p):
    return -p[0] * u**3 / 2


def a3(t, u, p):
    return p[0] * u * np.cos(t)


def a4(t, u, p):
    return u / 4 * (1 - u / p[0])


def a5(t, u, p):
    return (u - p[0] * t) / (u + t)


def b1(t, u, p):
    return np.array([p[0] * (u[0] - u[0] * u[1]), -(u[1] - p[1] * u[0] * u[1])])


def b2(t, u, p):
    return p[0] * np.array([-u[0] + u[1], u[0] - 2 * u[1] + u[2], u[1] - u[2]])


def b3(t, u, p):
    return np.array([-p[0] * u[0], p[0] * u[0] - p[1] * u[1] ** 2, p[1] * u[1] ** 2])


def b4(t, u, p):
    r = np.sqrt(u[0] ** 2 + u[1] ** 2)
    return np.array([-u[1] - p[0] * u[0] * u[2] / r, u[0] - p[0] * u[1] * u[2] / r, u[0] / r])


def b5(t, u, p):
    return np.array([u[1] * u[2], -u[0] * u[2], -p[0] * u[0] * u[1]])


def c1(t, u, p):
    rate = p[0] * u
    rate[-1] = 0.0
    return np.concatenate([[0.0], rate[:-1]]) - rate


def c2(t, u, p):
    flow = p[0] * np.arange(1, 10) * u[:9]
    out = np.zeros(10)
    out[:9] -= flow
    out[1:] += flow
    return out


def c3(t, u, p):
    n = len(u)
    matrix = -2 * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)
    return p[0] * (matrix @ u)


def c4(t, u, p):
    padded = np.pad(u, 1)
    return p[0] * (padded[:-2] - 2 * u + padded[2:])


SUN, K2 = 1.00000597682, 2.95912208286
MASSES = np.array(
    [0.000954786104043, 0.000285583733151, 4.37273164546e-5, 5.17759138449e-5, 2.77777777778e-6]
)
PLACES = np.array(
    [
        [3.42947415189, 3.35386959711, 1.35494901715],
        [6.64145542550, 5.97156957878, 2.18231499728],
        [11.2630437207, 14.6952576794, 6.27960525067],
        [-30.1552268759, 1.65699966404, 1.43785752721],
        [-21.1238353380, 28.4465098142, 15.3882659679],
    ]
)
SPEEDS = np.array(
    [
        [-0.557160570446, 0.505696783289, 0.230578543901],
        [-0.415570776342, 0.365682722812, 0.169143213293],
        [-0.325325669158, 0.189706021964, 0.0877265322780],
        [-0.0240476254170, -0.287659532608, -0.117219543175],
        [-0.176860753121, -0.216393453025, -0.0148647893090],
    ]
)


def c5(t, u, p):  # the outer planets
    k2 = p[0]
    y, v = u[:15].reshape(5, 3), u[15:]
    r3 = np.sum(y**2, axis=1) ** 1.5
    rates = []
    for j in range(5):
        a = -(SUN + MASSES[j]) * y[j] / r3[j]
        for k in range(5):
            if k != j:
                d = y[k] - y[j]
                a = a + MASSES[k] * (d / np.sum(d**2) ** 1.5 - y[k] / r3[k])
        rates.append(k2 * a)
    return np.concatenate([v, np.concatenate(rates)])


def orbit(t, u, p):
    r = np.linalg.norm(u[:2])
    return np.concatenate([u[2:], -p[0] * u[:2] / r**3])


def e1(t, u, p):
    return np.array([u[1], -(u[1] / (t + 1) + (1 - p[0] / (t + 1) ** 2) * u[0])])


def e2(t, u, p):
    return np.array([u[1], p[0] * (1 - u[0] ** 2) * u[1] - u[0]])


def e3(t, u, p):
    return np.array([u[1], u[0] ** 3 / 6 - u[0] + p[0] * np.sin(2.78535 * t)])


def e4(t, u, p):
    return np.array([u[1], p[0] - 0.4 * u[1] ** 2])


def e5(t, u, p):
    return np.array([u[1], p[0] * np.sqrt(1 + u[1] ** 2) / (25 - t)])


def sum_of_squares(t, u, p):
    return np.sum(u**2)


def first(t, u, p):
    return u[0]


def detest(letter, rhs, u0, p, terminal=first, method="rk6vr", **more):
    names = {f"p{i}": value for i, value in enumerate(p)}
    return Case(
        f"DETEST {letter}", SOURCE, u0, names, (0.0, 20.0), rhs, method, terminal=terminal, **more
    )


def kepler(eccentricity):
    e = eccentricity
    return [1 - e, 0.0, 0.0, ((1 + e) / (1 - e)) ** 0.5]


CASES = [
    detest("A1", a1, [1.0], [1.0], None, running=first),
    detest("A2", a2, [1.0], [1.0], method="rk5dp"),
    detest("A3", a3, [1.0], [1.0], method="rk8vr"),
    detest("A4", a4, [1.0], [20.0], method="rk5bs"),
    detest("A5", a5, [4.0], [1.0], method="rk7vr"),
    detest("B1", b1, [1.0, 3.0], [2.0, 1.0], sum_of_squares),
    detest("B2", b2, [2.0, 0.0, 1.0], [1.0], sum_of_squares),
    detest("B3", b3, [1.0, 0.0, 0.0], [1.0, 1.0], lambda t, u, p: u[1]),
    detest("B4", b4, [3.0, 0.0, 0.0], [1.0], method="rk5dp"),
    detest("B5", b5, [0.0, 1.0, 1.0], [0.51], method="rk8vr"),
    detest("C1", c1, [1.0] + [0.0] * 9, [1.0], lambda t, u, p: u[8]),
    detest("C2", c2, [1.0] + [0.0] * 9, [1.0], sum_of_squares, "esdirk5"),
    detest("C3", c3, [1.0] + [0.0] * 9, [1.0], lambda t, u, p: u.sum()),
    detest("C4", c4, [1.0] + [0.0] * 50, [1.0], lambda t, u, p: u[:5].sum(), n_directions=4),
    detest(
        "C5",
        c5,
        np.concatenate([PLACES.ravel(), SPEEDS.ravel()]),
        [K2],
        lambda t, u, p: np.linalg.norm(u[:3]),
        "rk8vr",
        n_directions=4,
    ),
    *(
        detest(f"D{i + 1}", orbit, kepler(e), [1.0], sum_of_squares, "rk8vr", truth_tolerance=1e-9)
        for i, e in enumerate((0.1, 0.3, 0.5, 0.7, 0.9))
    ),
    detest("E1", e1, [0.6713967071418030, 0.09540051444747446], [0.25]),
    detest("E2", e2, [2.0, 0.0], [1.0]),
    detest("E3", e3, [0.0, 0.0], [1.0]),
    detest("E4", e4, [30.0, 0.0], [0.032]),
    detest("E5", e5, [0.0, 0.0], [1.0]),
]
