"""Central differences of runs by SciPy's RK45 with the same tolerance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from lotka_volterra import T, interactions, start


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks; they cost the same."""
    n, tolerance = setting["N"], setting["tolerance"]
    a = interactions(n)
    x0, r = start(n)
    # noise of the size of the tolerance against an error of second order in the step
    h = tolerance ** (1 / 3) * r[0]

    def final(rates: Any) -> Any:
        found = solve_ivp(
            lambda _t, x: x * (rates + a @ x), (0.0, T), x0, "RK45", rtol=tolerance, atol=tolerance
        )
        return found.y[:, -1]

    def full() -> Any:
        moves = h * np.eye(n)
        return np.column_stack([(final(r + move) - final(r - move)) / (2 * h) for move in moves])

    return {"full": full, "scalar": lambda: full().sum(axis=0)}
