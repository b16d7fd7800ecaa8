"""Generalised Lotka-Volterra: x_i' = x_i (r_i + sum_j A_ij x_j), t in [0, 10].

The parameters are p = (r, A by rows) [N + N^2].  Tasks: "full", d x(T) / d p [N, N + N^2];
"scalar", the gradient of sum_i x_i(T) in p [N + N^2]; "ten", the first ten rows of "full", where
all of them would not fit into memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

T = 10.0


def interactions(n: int) -> Any:
    """Return A [n, n]."""
    a = np.random.default_rng(n).normal(0.0, 0.5 / np.sqrt(n), (n, n))
    np.fill_diagonal(a, -1.0)
    return a


def rates(n: int) -> Any:
    """Return r [n]."""
    return np.full(n, 0.1)


def parameters(n: int) -> Any:
    """Return p [n + n^2]."""
    return np.concatenate([rates(n), interactions(n).ravel()])


def start(n: int) -> Any:
    """Return x(0) [n]."""
    return np.full(n, 0.1)


LARGE = 500
"""From here on the derivatives of all outputs are too many numbers."""


def tasks(n: int) -> tuple[str, ...]:
    """Return the names of the tasks."""
    return ("ten", "scalar") if n >= LARGE else ("full", "scalar")


def seeds(task: str, n: int) -> Any:
    """Return the combinations [m, n] of the outputs that a task differentiates."""
    return {"full": np.eye(n), "ten": np.eye(10, n), "scalar": np.ones((1, n))}[task]
