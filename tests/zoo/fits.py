"""Fits of measurements, with certified or independently computed estimates and standard errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.case import marked
from zoo.chemistry import alpha_pinene, gas_oil


@dataclass(frozen=True)
class FitCase:
    """Columns of data, a model, a guess; all else by default."""

    name: str
    source: str
    rhs: Callable[..., Any]
    u0: Sequence[float]
    guess: Mapping[str, float]
    data: Mapping[str, Sequence[float]]
    """First the time, then what was observed."""
    observe: Sequence[int]
    method: str = "rk6vr"
    rtol: float = 1e-8
    scale: str = "linear"
    certified: Mapping[str, float] = field(default_factory=dict)
    styles: Sequence[str] = ("numpy", "traced")

    tolerances = (1e-2, 1e-2)
    """Of the estimates, beside their standard errors, and of these."""

    @property
    def marks(self) -> dict[str, str]:
        """What each style is expected to do: "right", or what else and why."""
        return {style: marked(self.name, style) for style in self.styles}

    @property
    def span(self) -> tuple[float, float]:
        times = next(iter(self.data.values()))
        return 0.0, float(times[-1])


def saturating(t, u, p):
    return p[1] * (p[0] - u)


def decay(t, u, p):
    return -p[0] * u


def logistic(t, u, p):
    return p[0] * u * (1 - u / p[1])


def sir(t, u, p):
    s, i = u
    return np.array([-p[0] * s * i / 763, p[0] * s * i / 763 - p[1] * i])


def theophylline(t, u, p):
    ka, ke, volume = p
    return np.array([-ka * u[0], ka * u[0] / volume - ke * u[1]])


def lynx(t, u, p):
    hare, lynxes = u
    return np.array([p[0] * hare - p[1] * hare * lynxes, p[2] * hare * lynxes - p[3] * lynxes])


def substrate(t, u, p):
    return -p[0] * u / (p[1] + u)


def pendulum(t, u, p):
    return np.array([u[1], -p[0] * np.sin(u[0]) - p[1] * u[1]])


def isomers(t, u, p):
    return np.array([-p[0] * u[0] + p[1] * u[1], p[0] * u[0] - p[1] * u[1]])


OIL = [
    [0.025, 0.7307, 0.1954], [0.05, 0.5982, 0.2808], [0.075, 0.4678, 0.3175], [0.1, 0.4267, 0.3047],
    [0.125, 0.3436, 0.2991], [0.15, 0.3126, 0.2619], [0.175, 0.2808, 0.2391], [0.2, 0.2692, 0.2210],
    [0.225, 0.2210, 0.1898], [0.25, 0.2122, 0.1801], [0.3, 0.1903, 0.1503], [0.35, 0.1735, 0.1030],
    [0.4, 0.1615, 0.0964], [0.45, 0.1240, 0.0581], [0.5, 0.1190, 0.0471], [0.55, 0.1109, 0.0413],
    [0.65, 0.0890, 0.0367], [0.75, 0.0820, 0.0219], [0.85, 0.0745, 0.0124], [0.95, 0.0639, 0.0089],
]  # fmt: skip
PINENE = [
    [1230, 88.35, 7.3, 2.3, 0.4, 1.75], [3060, 76.4, 15.6, 4.5, 0.7, 2.8],
    [4920, 65.1, 23.1, 5.3, 1.1, 5.8], [7800, 50.4, 32.9, 6.0, 1.5, 9.3],
    [10680, 37.5, 42.7, 6.0, 1.9, 12.0], [15030, 25.9, 49.1, 5.9, 2.2, 17.0],
    [22620, 14.0, 57.4, 5.1, 2.6, 21.0], [36420, 4.5, 63.1, 3.8, 2.9, 25.7],
]  # fmt: skip
PELTS = [
    [0, 30.0, 4.0], [1, 47.2, 6.1], [2, 70.2, 9.8], [3, 77.4, 35.2], [4, 36.3, 59.4],
    [5, 20.6, 41.7],
    [6, 18.1, 19.0], [7, 21.4, 13.0], [8, 22.0, 8.3], [9, 25.4, 9.1], [10, 27.1, 7.4],
    [11, 40.3, 8.0], [12, 57.0, 12.3], [13, 76.6, 19.5], [14, 52.3, 45.7], [15, 19.5, 51.1],
    [16, 11.2, 29.7], [17, 7.6, 15.8], [18, 14.6, 9.7], [19, 16.2, 10.1], [20, 24.7, 8.6],
]  # fmt: skip


def columns(rows, *names):
    table = np.array(rows, dtype=float)
    return dict(zip(("time", *names), table.T.tolist(), strict=True))


def noisy(times, values, sigma, seed):
    return (
        np.asarray(values) + sigma * np.random.default_rng(seed).normal(size=len(times))
    ).tolist()


TIMES = np.linspace(0.5, 10.0, 20)

FITS = [
    FitCase(
        "Misra1a",
        "NIST StRD",
        saturating,
        [0.0],
        {"b1": 250.0, "b2": 5e-4},
        {
            "time": [
                77.6,
                114.9,
                141.1,
                190.8,
                239.9,
                289.0,
                332.8,
                378.4,
                434.8,
                477.3,
                536.8,
                593.1,
                689.1,
                760.0,
            ],
            "y": [
                10.07,
                14.73,
                17.94,
                23.93,
                29.61,
                35.18,
                40.02,
                44.82,
                50.76,
                55.05,
                61.01,
                66.40,
                75.47,
                81.78,
            ],
        },
        [0],
        certified={"b1": 2.3894212918e02, "b2": 5.5015643181e-04},
    ),
    FitCase(
        "BoxBOD",
        "NIST StRD",
        saturating,
        [0.0],
        {"b1": 100.0, "b2": 0.75},
        {"time": [1.0, 2, 3, 5, 7, 10], "y": [109.0, 149, 149, 191, 213, 224]},
        [0],
        certified={"b1": 2.1380940889e02, "b2": 5.4723748542e-01},
    ),
    FitCase(
        "Oxygen demand",
        "Bates and Watts",
        saturating,
        [0.0],
        {"asymptote": 20.0, "rate": 0.24},
        {"time": [1.0, 2, 3, 4, 5, 7], "demand": [8.3, 10.3, 19.0, 16.0, 15.6, 19.8]},
        [0],
        scale="log",
    ),
    FitCase(
        "Radioactive decay",
        "text book",
        decay,
        [1.0],
        {"rate": 1.0},
        {"time": TIMES.tolist(), "activity": noisy(TIMES, np.exp(-0.4 * TIMES), 0.02, 1)},
        [0],
        scale="log",
    ),
    FitCase(
        "Logistic growth of yeast",
        "Carlson 1913",
        logistic,
        [9.6],
        {"r": 0.4, "K": 500.0},
        {
            "time": [1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18],
            "yeast": [
                18.3,
                29.0,
                47.2,
                71.1,
                119.1,
                174.6,
                257.3,
                350.7,
                441.0,
                513.3,
                559.7,
                594.8,
                629.4,
                640.8,
                651.1,
                655.9,
                659.6,
                661.8,
            ],
        },
        [0],
        scale="log",
    ),
    FitCase(
        "Cracking of gas oil, all data",
        "COPS 3.0",
        gas_oil,
        [1.0, 0.0],
        {"theta1": 5.0, "theta2": 5.0, "theta3": 5.0},
        columns(OIL, "oil", "gasoline"),
        [0, 1],
    ),
    FitCase(
        "Isomerisation of alpha-pinene, all data",
        "Box and others, Technometrics 1973",
        alpha_pinene,
        [100.0, 0, 0, 0, 0],
        {"t1": 5e-5, "t2": 3e-5, "t3": 2e-5, "t4": 2e-4, "t5": 4e-5},
        columns(PINENE, "y1", "y2", "y3", "y4", "y5"),
        [0, 1, 2, 3, 4],
        scale="log",
    ),
    FitCase(
        "Influenza in a boarding school",
        "BMJ 1978; Stan, PyMC",
        sir,
        [762.0, 1.0],
        {"beta": 2.0, "gamma": 0.5},
        {
            "time": [1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14],
            "in bed": [3.0, 8, 28, 75, 221, 291, 255, 235, 190, 125, 70, 28, 12, 5],
        },
        [1],
        scale="log",
    ),
    FitCase(
        "Theophylline, first subject",
        "Boeckmann and others; nlme, Pumas",
        theophylline,
        [319.992, 0.0],
        {"ka": 1.0, "ke": 0.1, "V": 30.0},
        {
            "time": [0.25, 0.57, 1.12, 2.02, 3.82, 5.1, 7.03, 9.05, 12.12, 24.37],
            "concentration": [2.84, 6.57, 10.5, 9.66, 8.58, 8.36, 7.47, 6.89, 5.94, 3.28],
        },
        [1],
        scale="log",
    ),
    FitCase(
        "Lynx and hare, all years",
        "Hudson Bay; Stan",
        lynx,
        [34.9, 3.9],
        {"alpha": 0.6, "beta": 0.03, "delta": 0.02, "gamma": 0.9},
        columns(PELTS, "hare", "lynx"),
        [0, 1],
        scale="log",
    ),
    FitCase(
        "Progress of an enzyme reaction",
        "text book",
        substrate,
        [2.0],
        {"vmax": 0.3, "Km": 1.0},
        {
            "time": TIMES.tolist(),
            "substrate": noisy(
                TIMES,
                [
                    1.8174,
                    1.6384,
                    1.4635,
                    1.2935,
                    1.1292,
                    0.9720,
                    0.8234,
                    0.6852,
                    0.5594,
                    0.4481,
                    0.3525,
                    0.2731,
                    0.2091,
                    0.1588,
                    0.1199,
                    0.0902,
                    0.0678,
                    0.0509,
                    0.0382,
                    0.0287,
                ],
                0.02,
                2,
            ),
        },
        [0],
        scale="log",
    ),
    FitCase(
        "Reversible reaction",
        "text book",
        isomers,
        [1.0, 0.0],
        {"forward": 1.0, "backward": 1.0},
        {
            "time": TIMES.tolist(),
            "first": noisy(TIMES, (2 + 3 * np.exp(-0.5 * TIMES)) / 5, 0.01, 3),
            "second": noisy(TIMES, 3 * (1 - np.exp(-0.5 * TIMES)) / 5, 0.01, 4),
        },
        [0, 1],
        scale="log",
    ),
    FitCase(
        "Swinging pendulum",
        "text book",
        pendulum,
        [1.0, 0.0],
        {"stiffness": 1.5, "damping": 0.3},
        {
            "time": TIMES.tolist(),
            "angle": noisy(TIMES, np.exp(-0.1 * TIMES) * np.cos(1.2 * TIMES), 0.02, 5),
        },
        [0],
        scale="log",
    ),
]
