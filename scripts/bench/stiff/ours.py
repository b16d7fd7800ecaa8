"""daeosens: Crank-Nicolson (rk5dp where not stiff), NumPy callbacks, Jacobians by complex step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens import ODE, Problem, Stepping, Terminal, adjoint, sensitivities, solve
from stiff import SYSTEMS, System

FINEST = 1e-6
"""Smallest tolerance for which a method of second order is tried."""


def ours(system: System) -> Problem:
    """Describe the equations.  Extend here: other ways of giving them are further contestants."""
    return ODE(
        lambda _t, u, p: np.array(system.rhs(u, p)),
        len(system.start),
        len(system.parameters),
        rhs_t="autonomous",
    )


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks."""
    system, tolerance = SYSTEMS[setting["problem"]], setting["tolerance"]
    if system.stiff and tolerance < FINEST:
        raise NotImplementedError(f"Crank-Nicolson only down to a tolerance of {FINEST:g}")
    problem = ours(system)
    p = np.array(system.parameters)
    method = "cn" if system.stiff else "rk5dp"
    tolerances = {"rtol": tolerance, "atol": tolerance * system.scale}
    stepping = Stepping((0.0, system.end), method, **tolerances)
    first = np.eye(len(system.start))[0]
    cost = Terminal(lambda _t, u, _p: u[0], lambda _t, _u, _p: first, "independent")

    def full() -> Any:
        run = solve(problem, system.start, p, stepping)
        return sensitivities(run, with_respect_to=("p",)).p * p

    return {
        "full": full,
        "scalar": lambda: adjoint(solve(problem, system.start, p, stepping), cost).p * p,
    }
