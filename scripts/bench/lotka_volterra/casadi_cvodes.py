"""CasADi's interface to CVODES (Adams), and its adjoint and forward sensitivities."""

from __future__ import annotations

from typing import Any

import casadi as ca

from lotka_volterra import T, start

ADAMS = {"linear_multistep_method": "adams", "nonlinear_solver_iteration": "functional"}


def final_state(setting: dict[str, Any]) -> tuple[Any, Any]:
    """Return x(T) and p, symbols; sensitivities and quadratures have the same tolerances."""
    n, tolerance = setting["N"], setting["tolerance"]
    x, p = ca.MX.sym("x", n), ca.MX.sym("p", n + n * n)
    by_rows = ca.reshape(p[n:], n, n)  # the transpose: CasADi stores columns
    equations = {"x": x, "p": p, "ode": x * (p[:n] + ca.mtimes(by_rows.T, x))}
    options = {"abstol": tolerance, "reltol": tolerance, "max_num_steps": 100000, **ADAMS}
    run = ca.integrator("run", "cvodes", equations, 0.0, T, options)
    return run(x0=start(n), p=p)["xf"], p
