"""Central differences of runs by SciPy's RK45 with the same tolerance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from lotka_volterra import T, parameters, start

LARGEST = 10


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return both tasks; they cost the same."""
    n, tolerance = setting["N"], setting["tolerance"]
    if n > LARGEST:
        raise NotImplementedError(f"{2 * (n + n * n)} runs take minutes")
    x0, values = start(n), parameters(n)
    # noise of the size of the tolerance against an error of second order in the step
    h = tolerance ** (1 / 3) * 0.1

    def final(p: Any) -> Any:
        r, a = p[:n], p[n:].reshape(n, n)
        solution = solve_ivp(
            lambda _t, x: x * (r + a @ x), (0.0, T), x0, "RK45", rtol=tolerance, atol=tolerance
        )
        return solution.y[:, -1]

    def full() -> Any:
        moves = h * np.eye(len(values))
        pairs = ((final(values + move), final(values - move)) for move in moves)
        return np.column_stack([(ahead - behind) / (2 * h) for ahead, behind in pairs])

    return {"full": full, "scalar": lambda: full().sum(axis=0)}
