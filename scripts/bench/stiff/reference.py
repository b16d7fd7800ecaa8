"""The variational equations by SciPy's Radau, tolerance 1e-10, derivatives by complex step.

Those of hundreds of parameters take it many minutes: our own steps at a tolerance out of the
others' reach are in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import Radau, solve_ivp
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse import csc_matrix

from daeosens import Stepping, sensitivities, solve
from stiff import SYSTEMS, second_order
from stiff.ours import ours
from stiff.second_reference import product

MANY = 100
"""Beyond so many parameters our own steps are the reference."""

TIGHT = 3e-12


class BlockRadau(Radau):
    """SciPy's Radau for m+1 groups of n equations that share one Jacobian [n, n] for Newton.

    ``block(y)`` is that of the first group; the others are linear with the same matrix but for the
    derivative of f_u itself, which Newton's method can do without.
    """

    def __init__(self, *arguments: Any, block: Callable[[Any], Any], **options: Any) -> None:
        """Put the small matrix in the place of the large one, which is never made."""
        size = len(arguments[2])
        super().__init__(*arguments, jac=csc_matrix((size, size)), **options)
        self.J = block(self.y)
        n = len(self.J)
        self.I = np.eye(n)
        self.jac = lambda _t, y, _rates: block(y)
        self.lu = lu_factor
        self.solve_lu = lambda factors, right: lu_solve(factors, right.reshape(-1, n).T).T.ravel()


@cache
def matrix(name: str) -> Any:
    """Return d u(T) / d p [n, m], in units of each parameter."""
    system = SYSTEMS[name]
    p = np.array(system.parameters)
    n, m = len(system.start), p.size
    if m > MANY:
        tight = {"rtol": TIGHT, "atol": TIGHT * system.scale}
        stepping = Stepping((0.0, system.end), "esdirk6", **tight)
        run = solve(ours(system), system.start, p, stepping, checkpoint="stages")
        return sensitivities(run, with_respect_to=("p",)).p * p

    def derivative(rates: list[Any], columns: int) -> Any:
        return np.array([np.imag(rate) * np.ones(columns) for rate in rates]) * 1e100

    def jacobian(u: Any) -> Any:
        return derivative(system.rhs(u[:, None] + 1e-100j * np.eye(n), p), n)

    def rhs(_t: float, y: Any) -> Any:
        u, s = y[:n], y[n:].reshape(m, n)
        by_p = derivative(system.rhs(u, p[:, None] + 1e-100j * np.eye(m)), m)
        change = s @ jacobian(u).T + by_p.T
        return np.concatenate([np.array(system.rhs(u, p)), change.ravel()])

    y0 = np.concatenate([system.start, np.zeros(n * m)])
    # each parameter's column in the units of that parameter
    atol = 1e-10 * system.scale * np.concatenate([np.ones(n), np.repeat(1.0 / p, n)])
    solution = solve_ivp(
        rhs,
        (0.0, system.end),
        y0,
        BlockRadau,
        rtol=1e-10,
        atol=atol,
        block=lambda y: jacobian(y[:n]),
    )
    return solution.y[n:, -1].reshape(m, n).T * p


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks."""
    name = setting["problem"]
    tasks = {"full": lambda: matrix(name), "scalar": lambda: matrix(name)[0]}
    return tasks | ({"hessian": lambda: product(name)} if second_order(SYSTEMS[name]) else {})
