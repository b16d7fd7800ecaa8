"""CasADi's interface to CVODES (Adams), and its adjoint and forward sensitivities."""

from __future__ import annotations

from typing import Any

import casadi as ca

from lotka_volterra import T, interactions, start

ADAMS = {"linear_multistep_method": "adams", "nonlinear_solver_iteration": "functional"}


def final_state(setting: dict[str, Any]) -> tuple[Any, Any]:
    """Return x(T) and r, symbols; sensitivities and quadratures have the same tolerances."""
    n, tolerance = setting["N"], setting["tolerance"]
    x, r = ca.MX.sym("x", n), ca.MX.sym("r", n)
    equations = {"x": x, "p": r, "ode": x * (r + ca.mtimes(ca.DM(interactions(n)), x))}
    options = {"abstol": tolerance, "reltol": tolerance, "max_num_steps": 100000, **ADAMS}
    run = ca.integrator("run", "cvodes", equations, 0.0, T, options)
    return run(x0=start(n)[0], p=r)["xf"], r
