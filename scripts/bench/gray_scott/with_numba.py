"""Kernels written by hand for numba: RK4 and its adjoint, one pass over the grid for each stage."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from gray_scott import D1, D2, GAMMA, KAPPA, SIDE, explicit_only, parts, spots

FAST = {"fastmath": True, "error_model": "numpy"}


@njit(inline="always", **FAST)
def rate(
    y: Any, i: int, above: int, below: int, j: int, left: int, right: int, scale: float
) -> Any:
    """Return f at a point."""
    u, v = y[0, i, j], y[1, i, j]
    around_u = y[0, above, j] + y[0, below, j] + y[0, i, left] + y[0, i, right] - 4.0 * u
    around_v = y[1, above, j] + y[1, below, j] + y[1, i, left] + y[1, i, right] - 4.0 * v
    reaction = u * v * v
    return (
        D1 * scale * around_u - reaction + GAMMA * (1.0 - u),
        D2 * scale * around_v + reaction - (GAMMA + KAPPA) * v,
    )


@njit(inline="always", **FAST)
def pulled(
    y: Any, w: Any, i: int, above: int, below: int, j: int, left: int, right: int, scale: float
) -> Any:
    """Return f_y^T w at a point; the stencil is symmetric."""
    u, v = y[0, i, j], y[1, i, j]
    a, b = w[0, i, j], w[1, i, j]
    around_a = w[0, above, j] + w[0, below, j] + w[0, i, left] + w[0, i, right] - 4.0 * a
    around_b = w[1, above, j] + w[1, below, j] + w[1, i, left] + w[1, i, right] - 4.0 * b
    gain = b - a
    return (
        D1 * scale * around_a + v * v * gain - GAMMA * a,
        D2 * scale * around_b + 2.0 * u * v * gain - (GAMMA + KAPPA) * b,
    )


@njit(**FAST)
def advance(base: Any, y: Any, c: float, b: float, following: Any, total: Any) -> None:
    """Fill ``following`` = base + c f(y) and add b f(y) to ``total``."""
    n = y.shape[1]
    scale = (n / SIDE) ** 2
    for i in range(n):
        above, below = (i - 1) % n, (i + 1) % n
        for j in range(1, n - 1):  # no wrapped index in the long loop
            f, g = rate(y, i, above, below, j, j - 1, j + 1, scale)
            following[0, i, j] = base[0, i, j] + c * f
            following[1, i, j] = base[1, i, j] + c * g
            total[0, i, j] += b * f
            total[1, i, j] += b * g
        for j in (0, n - 1):
            f, g = rate(y, i, above, below, j, (j - 1) % n, (j + 1) % n, scale)
            following[0, i, j] = base[0, i, j] + c * f
            following[1, i, j] = base[1, i, j] + c * g
            total[0, i, j] += b * f
            total[1, i, j] += b * g


@njit(inline="always", **FAST)
def in_rates(y: Any, w: Any, i: int, above: int, below: int, j: int, left: int, right: int) -> Any:
    """Return f_p^T w at a point, but for the scale of the diffusivities."""
    u, v = y[0, i, j], y[1, i, j]
    a, b = w[0, i, j], w[1, i, j]
    around_u = y[0, above, j] + y[0, below, j] + y[0, i, left] + y[0, i, right] - 4.0 * u
    around_v = y[1, above, j] + y[1, below, j] + y[1, i, left] + y[1, i, right] - 4.0 * v
    return a * around_u, b * around_v, a * (1.0 - u) - b * v, -b * v


@njit(**FAST)
def add_row_of_rates(y: Any, w: Any, i: int, above: int, below: int, mu: Any) -> None:
    """Add f_p^T w of a row, which is in the cache, to ``mu`` [4]."""
    n = y.shape[1]
    scale = (n / SIDE) ** 2
    p, q, r, s = in_rates(y, w, i, above, below, 0, n - 1, 1)
    for j in range(1, n - 1):
        dp, dq, dr, ds = in_rates(y, w, i, above, below, j, j - 1, j + 1)
        p, q, r, s = p + dp, q + dq, r + dr, s + ds
    dp, dq, dr, ds = in_rates(y, w, i, above, below, n - 1, n - 2, 0)
    mu[0] += scale * (p + dp)
    mu[1] += scale * (q + dq)
    mu[2] += r + dr
    mu[3] += s + ds


@njit(**FAST)
def retreat(
    y: Any, w: Any, lam: Any, b: float, c: float, following: Any, total: Any, mu: Any
) -> None:
    """Fill ``following`` = b lam + c f_y^T w, add f_y^T w to ``total`` and f_p^T w to ``mu``."""
    n = y.shape[1]
    scale = (n / SIDE) ** 2
    for i in range(n):
        above, below = (i - 1) % n, (i + 1) % n
        for j in range(1, n - 1):
            f, g = pulled(y, w, i, above, below, j, j - 1, j + 1, scale)
            following[0, i, j] = b * lam[0, i, j] + c * f
            following[1, i, j] = b * lam[1, i, j] + c * g
            total[0, i, j] += f
            total[1, i, j] += g
        for j in (0, n - 1):
            f, g = pulled(y, w, i, above, below, j, (j - 1) % n, (j + 1) % n, scale)
            following[0, i, j] = b * lam[0, i, j] + c * f
            following[1, i, j] = b * lam[1, i, j] + c * g
            total[0, i, j] += f
            total[1, i, j] += g
        if mu.size:
            add_row_of_rates(y, w, i, above, below, mu)


@njit(**FAST)
def steps_forward(stages: Any, dt: float) -> None:
    """Fill ``stages`` [steps + 1, 4, 2, n, n]; the first of all is given."""
    spare = np.empty_like(stages[0, 0])
    for k in range(stages.shape[0] - 1):
        y, following = stages[k], stages[k + 1, 0]
        following[:] = y[0]
        advance(y[0], y[0], dt / 2.0, dt / 6.0, y[1], following)
        advance(y[0], y[1], dt / 2.0, dt / 3.0, y[2], following)
        advance(y[0], y[2], dt, dt / 3.0, y[3], following)
        advance(y[0], y[3], 0.0, dt / 6.0, spare, following)


@njit(**FAST)
def steps_back(stages: Any, dt: float, lam: Any, mu: Any) -> None:
    """Carry ``lam`` [2, n, n] from the last state to the first; ``mu`` [4], or [0] for no rates."""
    stage, next_stage, total = np.empty_like(lam), np.empty_like(lam), np.empty_like(lam)
    for k in range(stages.shape[0] - 2, -1, -1):
        y = stages[k]
        total[:] = lam
        stage[:] = dt / 6.0 * lam
        retreat(y[3], stage, lam, dt / 3.0, dt, next_stage, total, mu)
        retreat(y[2], next_stage, lam, dt / 3.0, dt / 2.0, stage, total, mu)
        retreat(y[1], stage, lam, dt / 6.0, dt / 2.0, next_stage, total, mu)
        retreat(y[0], next_stage, lam, 0.0, 0.0, stage, total, mu)
        lam[:] = total


def prepare(setting: dict[str, Any]) -> dict[str, Any]:
    """Return all tasks by RK4; "forward" keeps the stages too."""
    explicit_only(setting["method"])
    dt, points = setting["dt"], setting["points"]
    stages = np.zeros((setting["steps"] + 1, 4, 2, points, points))
    stages[0, 0] = np.moveaxis(spots(points), 2, 0)

    def run() -> Any:
        steps_forward(stages, dt)
        return stages[-1, 0]

    def final(state: Any) -> Any:
        return np.moveaxis(state, 0, 2)

    def back(state: Any) -> Any:
        lam = state.copy()
        steps_back(stages, dt, lam, np.empty(0))
        return np.moveaxis(lam, 0, 2)

    def gradient_in_rates() -> Any:
        mu = np.zeros(4)
        steps_back(stages, dt, run().copy(), mu)
        return mu

    return {
        "forward": lambda: final(run()),
        **parts(run, final, back),
        "gradient, rates too": gradient_in_rates,
    }
