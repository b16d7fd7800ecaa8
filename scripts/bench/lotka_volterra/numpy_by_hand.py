"""NumPy, by hand: explicit steps whose stages are kept, and the adjoint of all of them in blocks.

What an expert writes in an afternoon: the pair of Dormand and Prince, 5(4), or 8(5,3) for tight
tolerances, with SciPy's coefficients; the recurrence back carries the seeds of all outputs at once,
and what the stages add to d / dA is one matrix product after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import DOP853, RK45

from lotka_volterra import T, interactions, rates, seeds, start, tasks


def forward(a: Any, r: Any, x: Any, tolerance: float) -> tuple[Any, Any, Any]:
    """Return sizes [steps] and stages [steps, s, n] of the accepted steps, and (a_ij, b_i)."""
    pair = RK45 if tolerance > 1e-8 else DOP853
    s, order = pair.n_stages, pair.error_estimator_order + 1
    t, h = 0.0, 0.1
    sizes, stages = [], []
    k, points = np.empty((s + 1, len(x))), np.empty((s, len(x)))
    k[0] = x * (r + a @ x)
    while t < T:
        h = min(h, T - t)
        points[0] = x
        for i in range(1, s):
            point = points[i] = x + h * (pair.A[i, :i] @ k[:i])
            k[i] = point * (r + a @ point)
        ahead = x + h * (pair.B @ k[:s])
        k[s] = ahead * (r + a @ ahead)
        scale = tolerance * (1.0 + np.maximum(np.abs(x), np.abs(ahead)))
        if pair is RK45:
            error = h * np.linalg.norm((pair.E @ k) / scale) / np.sqrt(len(x))
        else:
            fifth = np.linalg.norm((pair.E5 @ k) / scale)
            third = np.linalg.norm((pair.E3 @ k) / scale)
            error = h * fifth**2 / np.sqrt((fifth**2 + 0.01 * third**2) * len(x))
        if error < 1.0:
            sizes.append(h)
            stages.append(points.copy())
            t, x, k[0] = t + h, ahead, k[s]
            if T - t < 1e-12 * T:
                break
        h *= min(5.0, max(0.2, 0.9 * error ** (-1.0 / order)))
    return np.array(sizes), np.array(stages), (pair.A[:s, :s], pair.B)


def backward(a: Any, r: Any, run: tuple[Any, Any, Any], outputs: Any) -> Any:
    """Return the derivatives of m combinations [m, n] of x(T) in p [m, n + n^2]."""
    sizes, stages, (inner, outer) = run
    steps, s, n = stages.shape
    m = len(outputs)
    growth = r + stages @ a.T
    moved = np.empty((steps, s, m, n))  # h b_i lambda + h sum_j a_ji theta_j, times x
    carried = np.array(outputs)
    for step in range(steps - 1, -1, -1):
        h, pulled = sizes[step], np.zeros((s, m, n))
        for i in range(s - 1, -1, -1):
            weight = h * (outer[i] * carried)
            if i < s - 1:
                weight += h * np.tensordot(inner[i + 1 :, i], pulled[i + 1 :], 1)
            by_x = np.multiply(weight, stages[step, i], out=moved[step, i])
            pulled[i] = growth[step, i] * weight + by_x @ a
        carried += pulled.sum(axis=0)
    flat = moved.reshape(steps * s, m * n)
    result = np.empty((m, n + n * n))
    result[:, :n] = flat.sum(axis=0).reshape(m, n)
    result[:, n:] = (flat.T @ stages.reshape(steps * s, n)).reshape(m, n * n)
    return result


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return all tasks."""
    n, tolerance = setting["N"], setting["tolerance"]
    a, r, x0 = interactions(n), rates(n), start(n)

    def derivatives(task: str) -> Any:
        result = backward(a, r, forward(a, r, x0, tolerance), seeds(task, n))
        return result[0] if task == "scalar" else result

    return {task: (lambda task=task: derivatives(task)) for task in tasks(n)}
