"""Generalised Lotka-Volterra: x_i' = x_i (r_i + sum_j A_ij x_j), t in [0, 10].

Parameters are the N growth rates r.  Tasks: "full", d x(T) / d r [N, N]; "scalar", the gradient of
sum_i x_i(T) in r [N].
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


def start(n: int) -> tuple[Any, Any]:
    """Return x(0) [n] and r [n]."""
    return np.full(n, 0.1), np.full(n, 0.1)
