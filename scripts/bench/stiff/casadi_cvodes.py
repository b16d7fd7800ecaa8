"""CasADi: CVODES (BDF; Adams where not stiff) and IDAS; "full" forward, "scalar" by the adjoint.

"hessian" is the adjoint of the forward sensitivity along the direction: other orders take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import casadi as ca
import numpy as np

from stiff import SYSTEMS, direction, second_order


def tasks(
    setting: dict[str, Any], solver: str, more: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Callable[[], Any]]:
    """Return all tasks by CVODES or IDAS, with further options of the integrator."""
    system, tolerance = SYSTEMS[setting["problem"]], setting["tolerance"]
    n, m = len(system.start), len(system.parameters)
    u, p = ca.SX.sym("u", n), ca.SX.sym("p", m)
    rates = system.rhs(ca.vertsplit(u), ca.vertsplit(p))
    options = {
        "reltol": tolerance,
        "abstol": tolerance * system.scale,
        "max_num_steps": 1000000,
        **more,
    }
    if solver == "cvodes" and not system.stiff:
        options |= {"linear_multistep_method": "adams", "nonlinear_solver_iteration": "functional"}
    start: dict[str, Any] = {"x0": list(system.start)}
    if solver == "idas" and system.conserved:
        equations = {
            "x": u[:-1],
            "z": u[-1],
            "p": p,
            "ode": ca.vertcat(*rates[:-1]),
            "alg": ca.sum1(u) - 1.0,
        }
        start = {"x0": list(system.start[:-1]), "z0": system.start[-1]}
    else:
        equations = {"x": u, "p": p, "ode": ca.vertcat(*rates)}
        if solver == "idas":
            options |= {"calc_ic": False, "step0": 1e-9 * system.end}
    run = ca.integrator("run", solver, equations, 0.0, system.end, options)
    symbol = ca.MX.sym("p", m)
    ends = run(**start, p=symbol)
    final = ca.vertcat(ends["xf"], ends["zf"])
    # in units of each parameter, which is also what their tolerances mean
    scaled = ca.DM(system.parameters)
    full = ca.Function("full", [symbol], [ca.jtimes(final, symbol, ca.diag(scaled))])
    scalar = ca.Function("scalar", [symbol], [ca.jtimes(final[0], symbol, ca.DM(1), True)])
    found_tasks = {
        "full": lambda: np.asarray(full(scaled)),
        "scalar": lambda: np.asarray(scalar(scaled) * scaled).ravel(),
    }
    if second_order(system):
        along = ca.jtimes(final[0], symbol, scaled * ca.DM(direction(system)))
        hessian = ca.Function("hessian", [symbol], [ca.jtimes(along, symbol, ca.DM(1), True)])
        found_tasks["hessian"] = lambda: np.asarray(hessian(scaled) * scaled).ravel()
    return found_tasks


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks by CVODES."""
    return tasks(setting, "cvodes")
