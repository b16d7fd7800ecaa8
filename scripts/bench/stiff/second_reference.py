"""The second-order variational equations by SciPy's Radau, derivatives by CasADi.

At tolerance 1e-11 the results are right to 1e-10: so far esdirk6 and Kvaerno5 agree with them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import casadi as ca
import numpy as np
from scipy import sparse
from scipy.integrate import solve_ivp

from stiff import SYSTEMS, direction

TOLERANCE = 1e-11


@cache
def product(name: str, tolerance: float = TOLERANCE) -> Any:
    """Return the Hessian of the first unknown at T in the factors of p, times the direction [m].

    With X = u_q the tangents in all factors q and Y = X_q d: X' = f_u X + f_q, and Y' is the
    derivative of that along (X d, Y, d) in (u, X, q).
    """
    system = SYSTEMS[name]
    n, m = len(system.start), len(system.parameters)
    u, q = ca.SX.sym("u", n), ca.SX.sym("q", m)
    first, second = ca.SX.sym("X", n, m), ca.SX.sym("Y", n, m)
    d = direction(system)
    scaled = [q[k] * p for k, p in enumerate(system.parameters)]
    rates = ca.vertcat(*system.rhs(ca.vertsplit(u), scaled))
    rates_first = ca.mtimes(ca.jacobian(rates, u), first) + ca.jacobian(rates, q)
    moved = ca.vertcat(ca.mtimes(first, d), ca.vec(second), d)
    point = ca.vertcat(u, ca.vec(first), q)
    rates_second = ca.jtimes(ca.vec(rates_first), point, moved)
    y = ca.vertcat(u, ca.vec(first), ca.vec(second))
    change = ca.vertcat(rates, ca.vec(rates_first), rates_second)
    rhs = ca.Function("rhs", [y, q], [change])
    slope = ca.Function("slope", [y, q], [ca.jacobian(change, y)])
    solution = solve_ivp(
        lambda _t, y: np.asarray(rhs(y, np.ones(m))).ravel(),
        (0.0, system.end),
        np.concatenate([system.start, np.zeros(2 * n * m)]),
        "Radau",
        rtol=tolerance,
        atol=tolerance * system.scale,
        jac=lambda _t, y: sparse.csc_matrix(slope(y, np.ones(m)).sparse()),
    )
    return solution.y[n + n * m :, -1].reshape(m, n).T[0]
