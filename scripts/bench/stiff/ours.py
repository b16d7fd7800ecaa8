"""daeosens: traced models; an explicit method, or an ESDIRK one by the tolerance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens import Stepping, adjoint, hessian_product, sensitivities, solve, trace
from daeosens.tracing import Model
from stiff import SYSTEMS, System, direction, second_order


def ours(system: System) -> Model:
    """Describe the equations.  Extend here: other ways of giving them are further contestants."""
    return trace(
        lambda _t, u, p: np.array(system.rhs(u, p)),
        len(system.start),
        len(system.parameters),
    )


def method(system: System, tolerance: float) -> str:
    """Name the cheapest method for the accuracy of a tolerance, as measured."""
    if not system.stiff:
        return "rk6vr" if tolerance > 3e-9 else "rk8vr"
    return "esdirk4" if tolerance > 3e-4 else "esdirk6"


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks."""
    system, tolerance = SYSTEMS[setting["problem"]], setting["tolerance"]
    problem = ours(system)
    p = np.array(system.parameters)
    tolerances = {"rtol": tolerance, "atol": tolerance * system.scale}
    stepping = Stepping((0.0, system.end), method(system, tolerance), **tolerances)
    cost = problem.terminal(lambda _t, u, _p: u[0])
    along = np.array(direction(system)) * p

    # explicit stages of so few unknowns are sooner computed again than kept
    kept = "stages" if system.stiff else "states"

    def run() -> Any:
        return solve(problem, system.start, p, stepping, checkpoint=kept)

    tasks = {
        "full": lambda: sensitivities(run(), with_respect_to=("p",)).p * p,
        "scalar": lambda: adjoint(run(), cost).p * p,
    }
    if second_order(system):
        tasks["hessian"] = lambda: hessian_product(run(), cost, dp=along).p * p
    return tasks
