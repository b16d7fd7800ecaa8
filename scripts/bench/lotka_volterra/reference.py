"""The variational equations by SciPy's DOP853 at tolerances of 1e-13, and Gauss quadrature.

With the fundamental matrix S(t) = d x(t) / d x(0), d x(T) / d p is the integral of
S(T) S(t)^-1 f_p(t), which is smooth: eight Gauss points in each of 40 intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from lotka_volterra import T, interactions, rates, start

INTERVALS, POINTS = 40, 8


@cache
def matrix(n: int) -> Any:
    """Return d x(T) / d p [n, n + n^2]."""
    a, r = interactions(n), rates(n)

    def rhs(_t: float, y: Any) -> Any:
        x, s = y[:n], y[n:].reshape(n, n)
        growth = r + a @ x
        return np.concatenate([x * growth, (growth[:, None] * s + x[:, None] * (a @ s)).ravel()])

    nodes, shares = np.polynomial.legendre.leggauss(POINTS)
    width = T / INTERVALS
    times = (width * (np.arange(INTERVALS)[:, None] + 0.5 * (1.0 + nodes))).ravel()
    y, t, states = np.concatenate([start(n), np.eye(n).ravel()]), 0.0, list[Any]()
    for time in (*times, T):  # steps end there: dense output is of lower order
        y = solve_ivp(rhs, (t, time), y, "DOP853", rtol=1e-13, atol=1e-15).y[:, -1]
        t = time
        states.append(y)
    final = states.pop()[n:].reshape(n, n)
    result = np.zeros((n, n + n * n))
    for share, y in zip(np.tile(0.5 * width * shares, INTERVALS), states, strict=True):
        x = y[:n]
        weights = share * np.linalg.solve(y[n:].reshape(n, n).T, final.T).T * x
        result[:, :n] += weights
        result[:, n:] += (weights[:, :, None] * x).reshape(n, -1)
    return result


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks."""
    n = setting["N"]
    return {"full": lambda: matrix(n), "scalar": lambda: matrix(n).sum(axis=0)}
