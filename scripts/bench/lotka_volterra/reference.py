"""The variational equations by SciPy's DOP853 at tolerances of 1e-13."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from lotka_volterra import T, interactions, start


@cache
def matrix(n: int) -> Any:
    """Return d x(T) / d r [n, n]."""
    a = interactions(n)
    x0, r = start(n)

    def rhs(_t: float, y: Any) -> Any:
        x, s = y[:n], y[n:].reshape(n, n)
        growth = r + a @ x
        change = growth[:, None] * s + x[:, None] * (a @ s)
        np.fill_diagonal(change, change.diagonal() + x)
        return np.concatenate([x * growth, change.ravel()])

    y0 = np.concatenate([x0, np.zeros(n * n)])
    found = solve_ivp(rhs, (0.0, T), y0, "DOP853", rtol=1e-13, atol=1e-13)
    return found.y[n:, -1].reshape(n, n)


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks."""
    n = setting["N"]
    return {"full": lambda: matrix(n), "scalar": lambda: matrix(n).sum(axis=0)}
