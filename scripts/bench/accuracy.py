"""Steps and errors of some runs that docs/stepping.md and docs/daeo.md have tables of; no times.

    python scripts/bench/accuracy.py [--output results.json]

What is exact comes from elsewhere: SciPy's Radau, with variational equations for derivatives, and
quadrature.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import quad, solve_ivp
from scipy.optimize import brentq

import daeosens as ds

STIFF_METHODS = ("esdirk3", "kencarp3", "esdirk4", "esdirk5", "esdirk6")
TOLERANCES = (1e-5, 1e-7, 1e-9)
STIFF_START = (2.0, -0.66)

MU = 1e3
SLOW_START = (2.0, -2 / 3e3)
SLOW_END = 500.0

JUMP_STEPS = (0.25, 0.025, 0.0025, 0.00025)
RATE, WELL, SWITCH = 2.0, 1.0, 0.5


def row(what: str, run: str, setting: str, steps: int, of: str, error: float) -> dict[str, Any]:
    """Return a line of the table."""
    return {
        "what": what,
        "run": run,
        "setting": setting,
        "steps": steps,
        "of": of,
        "error": float(abs(error)),
    }


def stiff_steps() -> Iterator[dict[str, Any]]:
    """Take van der Pol's oscillator over one jump."""
    exact = solve_ivp(
        lambda _t, u: [u[1], MU**2 * ((1 - u[0] ** 2) * u[1] - u[0])],
        (0.0, 2.0),
        STIFF_START,
        "Radau",
        rtol=1e-12,
        atol=1e-14,
        jac=lambda _t, u: [[0, 1], [-(MU**2) * (2 * u[0] * u[1] + 1), MU**2 * (1 - u[0] ** 2)]],
    ).y[0, -1]
    model = ds.trace(
        lambda _t, u, p: np.stack([u[1], p[0] ** 2 * ((1 - u[0] ** 2) * u[1] - u[0])]), 2, ["mu"]
    )
    for method in STIFF_METHODS:
        for tolerance in TOLERANCES:
            stepping = ds.Stepping((0.0, 2.0), method, rtol=tolerance, atol=tolerance)
            run = ds.solve(model, STIFF_START, [MU], stepping)
            error = run.u[-1, 0] - exact
            yield row("stiff", method, f"{tolerance:.0e}", run.n_steps, "u(2)", error)


def slow_manifold() -> Iterator[dict[str, Any]]:
    """Take the same oscillator from its slow manifold, with steps for states and derivatives."""

    def augmented(_t: float, y: Any) -> Any:
        x, v, dx, dv, ddx, ddv = y
        by_x, by_v = -2 * MU * x * v - 1, MU * (1 - x**2)
        second = -2 * MU * v * dx**2 - 4 * MU * x * dx * dv
        return [
            v,
            MU * (1 - x**2) * v - x,
            dv,
            by_x * dx + by_v * dv,
            ddv,
            by_x * ddx + by_v * ddv + second,
        ]

    start = [*SLOW_START, 0.0, 1.0, 0.0, 0.0]
    exact = solve_ivp(augmented, (0.0, SLOW_END), start, "Radau", rtol=1e-12, atol=1e-25).y[::2, -1]
    model = ds.trace(
        lambda _t, u, p: np.stack([u[1], p[0] * (1.0 - u[0] ** 2) * u[1] - u[0]]), 2, ["mu"]
    )
    end = model.terminal(lambda _t, u, _p: u[0])
    for control in ("states", "sensitivities"):
        stepping = ds.Stepping((0.0, SLOW_END), "esdirk5", rtol=1e-8, control=control)
        run = ds.solve(model, SLOW_START, [MU], stepping)
        product = ds.hessian_product(run, end, du0=[0.0, 1.0])
        ours = (run.u[-1, 0], ds.adjoint(run, end).u0[1], product.u0[1])
        names = ("x", "dx/dv0", "d2x/dv0^2")
        for name, value, truth in zip(names, ours, exact, strict=True):
            error = (value - truth) / truth
            yield row("slow manifold", control, "1e-08", run.n_steps, name, error)


def lowest(x: float) -> float:
    """Return the global minimiser of (well - y^2)^2 - (x - switch) sin(pi y / 2)."""
    y = 1.0 if x > SWITCH else -1.0
    for _ in range(6):
        slope = -4 * y * (WELL - y**2) - (x - SWITCH) * np.pi / 2 * np.cos(np.pi / 2 * y)
        y -= slope / (12 * y**2 - 4 * WELL + (x - SWITCH) * np.pi**2 / 4 * np.sin(np.pi / 2 * y))
    return y


def jump() -> Iterator[dict[str, Any]]:
    """Take the DAEO of docs/daeo.md, whose optimiser jumps where x = switch, as h is even there."""

    def lasts(low: float, high: float) -> float:
        def time(x: float) -> float:
            return 1.0 / ((RATE + lowest(x)) * x)

        return quad(time, low, high, epsabs=1e-14, epsrel=1e-14)[0]

    above = np.nextafter(SWITCH, 1.0)
    moment = lasts(above, 1.0)
    end = brentq(lambda x: lasts(x, SWITCH) - (1.0 - moment), 0.05, SWITCH, xtol=1e-16, rtol=1e-15)

    def h(_t: float, x: Any, y: Any, p: Any) -> Any:
        return (p.well - y[0] ** 2) ** 2 - (x[0] - p.switch) * np.sin(0.5 * np.pi * y[0])

    model = ds.DAEO(
        lambda _t, x, y, p: -(p.rate + y) * x,
        h,
        size=(["x"], ["y"]),
        parameters=["rate", "well", "switch"],
        box=[(-6, 6)],
    )
    p = model.pack(rate=RATE, well=WELL, switch=SWITCH)
    plain = ds.ODE(lambda _t, u, _p: -(RATE + lowest(u[0])) * u, 1, jacobian="differences")
    for dt in JUMP_STEPS:
        for method in ("rk4", "cn"):
            run = ds.solve(model, [1.0], p, ds.Stepping((0.0, 1.0), method, dt=dt))
            (found,) = run.report.jumps
            yield row("jump", method, f"{dt:g}", run.n_steps, "x(1)", run.u[-1, 0] - end)
            yield row("jump", method, f"{dt:g}", run.n_steps, "jump", found.t - moment)
        run = ds.solve(plain, [1.0], [], ds.Stepping((0.0, 1.0), "rk4", dt=dt))
        yield row("jump", "rk4, not located", f"{dt:g}", run.n_steps, "x(1)", run.u[-1, 0] - end)


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description="Steps and errors that pages have tables of.")
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--repeat", type=int, default=1, help="of no effect: nothing is timed")
    arguments = parser.parse_args()
    rows = []
    for part in (stiff_steps, slow_manifold, jump):
        for entry in part():
            print(*entry.values(), sep="  ", flush=True)
            rows.append(entry)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
