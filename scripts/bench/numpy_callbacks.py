"""Runs and gradients of plain NumPy callbacks without Jacobians, beside SciPy's solvers.

    python scripts/bench/numpy_callbacks.py [--only kuramoto,hires] [--rtol 1e-6]
    python scripts/bench/numpy_callbacks.py --output results.json [--repeat 7]

The second form measures the table of docs/speed.md.

Explicit methods stand beside RK45 and DOP853, ESDIRK beside Radau and BDF, at equal tolerances.
Gradients are those of the sum of squares of the last state in all parameters and the initial state.
Processor time, minima of several repeats.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

import daeosens as ds


def lotka_volterra(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of prey and predators."""
    return np.array([p[0] * u[0] - p[1] * u[0] * u[1], p[2] * u[0] * u[1] - p[3] * u[1]])


def sir(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of an epidemic."""
    s, i, _ = u
    beta, gamma = p
    return np.array([-beta * s * i, beta * s * i - gamma * i, gamma * i])


def lorenz(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of Lorenz's convection."""
    x, y, z = u
    sigma, rho, beta = p
    return np.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


def double_pendulum(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of two angles and their velocities."""
    a, b, va, vb = u
    m1, m2, l1, l2, g = p
    d = a - b
    den = 2 * m1 + m2 - m2 * np.cos(2 * d)
    wa = (
        -g * (2 * m1 + m2) * np.sin(a)
        - m2 * g * np.sin(a - 2 * b)
        - 2 * np.sin(d) * m2 * (vb**2 * l2 + va**2 * l1 * np.cos(d))
    ) / (l1 * den)
    wb = (
        2
        * np.sin(d)
        * (va**2 * l1 * (m1 + m2) + g * (m1 + m2) * np.cos(a) + vb**2 * l2 * m2 * np.cos(d))
    ) / (l2 * den)
    return np.array([va, vb, wa, wb])


def kuramoto(_t: float, u: Any, p: Any) -> Any:
    """Return the velocities of coupled phases; p are the coupling and the natural frequencies."""
    return p[1:] + p[0] / len(u) * np.sum(np.sin(u[None, :] - u[:, None]), axis=1)


def bodies(_t: float, u: Any, p: Any) -> Any:
    """Return velocities and accelerations of bodies in a plane with the masses p."""
    n = len(u) // 4
    x, v = u[: 2 * n].reshape(n, 2), u[2 * n :]
    d = x[None, :, :] - x[:, None, :]
    r2 = np.sum(d**2, axis=2) + 1e-2
    a = np.sum(p[None, :, None] * d / r2[:, :, None] ** 1.5, axis=1)
    return np.concatenate([v, a.ravel()])


def glycolysis(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of a chain of twelve metabolites with a saturable step each."""
    du = np.zeros_like(u)
    flux = p[0] / (1.0 + (u[11] / p[1]) ** 2)
    du[0] = flux
    for k in range(11):
        flux = p[2 + k] * u[k] / (p[13] + u[k])
        du[k] -= flux
        du[k + 1] += flux
    du[11] -= p[14] * u[11]
    return du


def hires(_t: float, y: Any, p: Any) -> Any:
    """Return the rates of a plant's response to light (Bari test set)."""
    return np.array(
        [
            -p[0] * y[0] + p[1] * y[1] + p[2] * y[2] + p[3],
            p[0] * y[0] - 8.75 * y[1],
            -10.03 * y[2] + p[1] * y[3] + 0.035 * y[4],
            8.32 * y[1] + p[0] * y[2] - 1.12 * y[3],
            -1.745 * y[4] + p[1] * y[5] + p[1] * y[6],
            -p[4] * y[5] * y[7] + 0.69 * y[3] + p[0] * y[4] - p[1] * y[5] + 0.69 * y[6],
            p[4] * y[5] * y[7] - p[5] * y[6],
            -p[4] * y[5] * y[7] + p[5] * y[6],
        ]
    )


def pollution(_t: float, y: Any, k: Any) -> Any:
    """Return the rates of air pollution (Bari test set): 20 species, 25 rate constants."""
    r = [
        *(k[0] * y[0], k[1] * y[1] * y[3], k[2] * y[4] * y[1], k[3] * y[6], k[4] * y[6]),
        *(k[5] * y[6] * y[5], k[6] * y[8], k[7] * y[8] * y[5], k[8] * y[10] * y[1]),
        *(k[9] * y[10] * y[0], k[10] * y[12], k[11] * y[9] * y[1], k[12] * y[13]),
        *(k[13] * y[0] * y[5], k[14] * y[2], k[15] * y[3], k[16] * y[3], k[17] * y[15]),
        *(k[18] * y[15], k[19] * y[16] * y[5], k[20] * y[18], k[21] * y[18]),
        *(k[22] * y[0] * y[3], k[23] * y[18] * y[0], k[24] * y[19]),
    ]
    return np.array(
        [
            -r[0]
            - r[9]
            - r[13]
            - r[22]
            - r[23]
            + r[1]
            + r[2]
            + r[8]
            + r[10]
            + r[11]
            + r[21]
            + r[24],
            -r[1] - r[2] - r[8] - r[11] + r[0] + r[20],
            -r[14] + r[0] + r[16] + r[18] + r[21],
            -r[1] - r[15] - r[16] - r[22] + r[14],
            -r[2] + 2 * r[3] + r[5] + r[6] + r[12] + r[19],
            -r[5] - r[7] - r[13] - r[19] + r[2] + 2 * r[17],
            -r[3] - r[4] - r[5] + r[12],
            r[3] + r[4] + r[5] + r[6],
            -r[6] - r[7],
            -r[11] + r[6] + r[8],
            -r[8] - r[9] + r[7] + r[10],
            r[8],
            -r[10] + r[9],
            -r[12] + r[11],
            r[13],
            -r[17] - r[18] + r[15],
            -r[19],
            r[19],
            -r[20] - r[21] - r[23] + r[22] + r[24],
            -r[24] + r[23],
        ]
    )


RATES = np.array(
    [
        *(0.35, 26.6, 12300.0, 8.6e-4, 8.2e-4, 15000.0, 1.3e-4, 24000.0, 16500.0, 9000.0, 0.022),
        *(12000.0, 1.88, 16300.0, 4800000.0, 3.5e-4, 0.0175, 1e8, 4.44e11, 1240.0, 2.1, 5.78),
        *(0.0474, 1780.0, 3.12),
    ]
)


def robertson(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of Robertson's three species."""
    a, b, c = p[0] * u[0], p[1] * u[1] * u[2], p[2] * u[1] ** 2
    return np.array([-a + b, a - b - c, c])


def heat(_t: float, u: Any, p: Any) -> Any:
    """Return the rates of a rod between ends of temperature zero."""
    padded = np.concatenate([[0.0], u, [0.0]])
    return p[0] * np.diff(padded, 2) * (len(u) + 1) ** 2 + p[1] * u * (1.0 - u)


def medical_akzo(t: float, y: Any, p: Any) -> Any:
    """Return the rates of antibodies in tissue (Bari test set), 200 points."""
    n, k, c = len(y) // 2, p[0], p[1]
    u, v = y[0::2], y[1::2]
    phi = 2.0 if t <= 5.0 else 0.0
    zeta = np.arange(1, n + 1) / n
    alpha, beta = 2 * (zeta - 1) ** 3 / c**2, (zeta - 1) ** 4 / c**2
    wide = np.concatenate([[phi], u, [u[-1]]])
    du = alpha * (wide[2:] - wide[:-2]) * n / 2
    du = du + beta * (wide[2:] - 2 * u + wide[:-2]) * n**2 - k * u * v
    result = np.zeros_like(y)
    result[0::2] = du
    result[1::2] = -k * v * u
    return result


@dataclass(frozen=True)
class Model:
    """A model, its start, parameters, end and methods."""

    rhs: Callable[..., Any]
    u0: Any
    p: Any
    end: float
    stiff: bool = False
    atol: float = 1e-9
    both: bool = False
    breakpoints: tuple[float, ...] = ()


def models() -> dict[str, Model]:
    """Return all models."""
    rng = np.random.default_rng(7)
    angle = 2 * np.pi * np.arange(7) / 7
    ring = 2.0 * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(7, 2))
    speed = 0.6 * np.column_stack([-np.sin(angle), np.cos(angle)])
    y = np.zeros(20)
    y[[1, 3, 6, 7, 8, 16]] = 0.2, 0.04, 0.1, 0.3, 0.01, 0.007
    glucose = np.r_[1.0, 1.0, 1.0 + 0.1 * np.arange(11), 0.5, 0.3]
    tissue = np.zeros(400)
    tissue[1::2] = 1.0
    x = np.arange(1, 201) / 201
    return {
        "lotka_volterra": Model(lotka_volterra, [1.0, 1.0], [1.5, 1.0, 1.0, 3.0], 10.0, both=True),
        "sir": Model(sir, [0.99, 0.01, 0.0], [0.5, 0.1], 60.0, both=True),
        "lorenz": Model(lorenz, [1.0, 1.0, 1.0], [10.0, 28.0, 8 / 3], 3.0),
        "double_pendulum": Model(
            double_pendulum, [1.0, 0.5, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 9.81], 5.0
        ),
        "kuramoto": Model(
            kuramoto, rng.uniform(0, 2 * np.pi, 50), np.r_[1.5, rng.normal(size=50)], 10.0
        ),
        "bodies": Model(bodies, np.r_[ring.ravel(), speed.ravel()], np.ones(7), 3.0),
        "glycolysis": Model(glycolysis, np.full(12, 0.5), glucose, 20.0, both=True),
        "hires": Model(
            hires,
            [1, 0, 0, 0, 0, 0, 0, 0.0057],
            [1.71, 0.43, 8.32, 7e-4, 280, 1.81],
            321.8122,
            True,
        ),
        "pollution": Model(pollution, y, RATES, 60.0, True),
        "robertson": Model(robertson, [1.0, 0.0, 0.0], [0.04, 1e4, 3e7], 1e4, True, 1e-10),
        "heat": Model(heat, np.sin(np.pi * x), [1.0, 1.0], 0.1, True),
        "medical_akzo": Model(medical_akzo, tissue, [100.0, 4.0], 20.0, True, breakpoints=(5.0,)),
    }


def seconds(function: Callable[[], Any], budget: float = 1.0) -> tuple[float, Any]:
    """Return the least processor time of some calls, and what the last returned."""
    best, spent, count, result = np.inf, 0.0, 0, None
    while count < 2 or (spent < budget and count < 30):
        start = time.process_time()
        result = function()
        taken = time.process_time() - start
        best, spent, count = min(best, taken), spent + taken, count + 1
        if taken > 5.0 * budget:
            break
    return best, result


PEERS = {"explicit": ("RK45", "DOP853"), "implicit": ("Radau", "BDF")}
SAME_ORDER = {
    "rk5dp": "RK45",
    "rk6vr": "DOP853",
    "rk8vr": "DOP853",
    "esdirk4": "Radau",
    "esdirk5": "Radau",
}


def by_scipy(model: Model, solver: Any, rtol: float) -> float:
    """Return the seconds of SciPy's solver."""
    p = np.array(model.p, float)

    def run() -> Any:
        return solve_ivp(
            lambda t, u: model.rhs(t, u, p),
            (0.0, model.end),
            np.array(model.u0, float),
            solver,
            rtol=rtol,
            atol=model.atol,
        )

    return seconds(run)[0]


def by_daeosens(model: Model, method: str, rtol: float) -> tuple[float, float]:
    """Return the seconds of a run, and of a gradient beside it."""
    u0, p = np.array(model.u0, float), np.array(model.p, float)
    problem = ds.ODE(model.rhs, len(u0), len(p), breakpoints=model.breakpoints)
    cost = ds.Terminal(lambda _t, u, _p: u @ u)
    stepping = ds.Stepping((0.0, model.end), method, rtol=rtol, atol=model.atol)
    run_time, run = seconds(lambda: ds.solve(problem, u0, p, stepping))
    return run_time, seconds(lambda: ds.adjoint(run, cost))[0]


TABLE = {
    "lotka_volterra": ("Lotka-Volterra, 2 + 4", "rk8vr"),
    "sir": ("epidemic (SIR), 3 + 2", "rk8vr"),
    "lorenz": ("Lorenz, 3 + 3", "rk8vr"),
    "double_pendulum": ("double pendulum, 4 + 5", "rk8vr"),
    "bodies": ("seven bodies in a plane, 28 + 7", "rk8vr"),
    "glycolysis": ("glycolysis, entry by entry, 12 + 15", "rk5dp"),
    "kuramoto": ("Kuramoto oscillators, 50 + 51", "rk8vr"),
    "hires": ("HIRES, 8 + 6", "esdirk5"),
    "pollution": ("Pollution, 20 + 25", "esdirk5"),
    "robertson": ("Robertson, 3 + 3", "esdirk5"),
    "heat": ("reaction and diffusion, 200 + 2", "esdirk5"),
}
"""What models are called in docs/speed.md, with unknowns and parameters, and their method there."""


def table() -> list[dict[str, Any]]:
    """Return the rows of docs/speed.md, rtol = 1e-6."""
    rows: list[dict[str, Any]] = []
    for name, (label, method) in TABLE.items():
        model = models()[name]
        run, gradient = by_daeosens(model, method, 1e-6)
        peer = by_scipy(model, SAME_ORDER[method], 1e-6)
        rows.append(
            {
                "model": label,
                "method": method,
                "run": 1e3 * run,
                "scipy": 1e3 * peer,
                "run_ratio": run / peer,
                "gradient_ratio": gradient / run,
            }
        )
        print(f"{label:<38}{method:<9}{run / peer:6.2f}{gradient / run:6.2f}", flush=True)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, help="JSON file of the table of docs/speed.md")
    parser.add_argument("--repeat", type=int, default=7, help="of no meaning: minima in a second")
    parser.add_argument("--only", default=",".join(models()))
    parser.add_argument("--rtol", default="1e-6,1e-8")
    parser.add_argument("--methods", default=",".join(SAME_ORDER))
    chosen = parser.parse_args()
    if chosen.output is not None:
        chosen.output.write_text(json.dumps(table(), indent=1) + "\n")
        return
    print(
        "| model | rtol | method | run, ms | run / same order | run / quickest | gradient / run |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in chosen.only.split(","):
        model = models()[name]
        for rtol in map(float, chosen.rtol.split(",")):
            beside: dict[str, float] = {}
            for method in chosen.methods.split(","):
                implicit = method.startswith("esdirk")
                if implicit != model.stiff and not (implicit and model.both):
                    continue
                peers = PEERS["implicit" if implicit else "explicit"]
                for peer in peers:
                    if peer not in beside:
                        beside[peer] = by_scipy(model, peer, rtol)
                best = min(peers, key=lambda peer: beside[peer])
                run, gradient = by_daeosens(model, method, rtol)
                same = SAME_ORDER[method]
                print(
                    f"| {name} | {rtol:g} | {method} | {1e3 * run:.3g} "
                    f"| {run / beside[same]:.2f} ({same}) | {run / beside[best]:.2f} ({best}) "
                    f"| {gradient / run:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
