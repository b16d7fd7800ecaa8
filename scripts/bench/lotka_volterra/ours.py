"""daeosens: rk5dp, discrete adjoint, NumPy callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens import ODE, Stepping, Terminal, adjoint, sensitivities, solve
from daeosens.problem import Problem
from lotka_volterra import T, interactions, start


def ours(n: int) -> Problem:
    """Describe the equations.  Extend here: other ways of giving them are further contestants."""
    a = interactions(n)

    def jacobian(_t: float, x: Any, r: Any) -> Any:
        return np.diag(r + a @ x) + x[:, None] * a

    return ODE(
        lambda _t, x, r: x * (r + a @ x),
        n,
        n,
        jacobian=jacobian,
        jacobian_p=lambda _t, x, _r: np.diag(x),
        rhs_t="autonomous",
    )


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks."""
    n, tolerance = setting["N"], setting["tolerance"]
    problem = ours(n)
    x0, r = start(n)
    stepping = Stepping((0.0, T), "rk5dp", rtol=tolerance, atol=tolerance)
    total = Terminal(lambda _t, x, _r: x.sum(), lambda _t, x, _r: np.ones_like(x), "independent")
    return {
        "full": lambda: sensitivities(solve(problem, x0, r, stepping), with_respect_to=("p",)).p,
        "scalar": lambda: adjoint(solve(problem, x0, r, stepping), total).p,
    }
