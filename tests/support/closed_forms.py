"""Functionals with closed-form statistics: a quadratic on any number of ranks, formulas, decays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from closed import Closed

from daeosens import ODE, Parameter, Parameters, Stepping
from daeosens.petsc import gather
from daeosens.problem import Problem


class Formula(Closed):
    """J, dJ, H from formulas on the whole of x [k], which is distributed over ``comm``."""

    def __init__(
        self,
        value: Callable[[np.ndarray], float],
        gradient: Callable[[np.ndarray], np.ndarray],
        hessian: Callable[[np.ndarray], np.ndarray],
        start: Sequence[float],
        *,
        control: Any = None,
        **extra: Any,
    ) -> None:
        super().__init__(lambda x: (value(x), gradient(x)), start, **extra)
        self._hessian = hessian
        if control is not None:
            self.control = control

    def hessian(self, x):
        return self._hessian(gather(x))

    def hessian_product(self, x, dx):
        return self.vector(self.hessian(x) @ gather(dx))


def quadratic(matrix, minimum, **extra) -> Formula:
    """J = 1/2 (x - minimum)^T matrix (x - minimum), started at its minimum."""
    matrix, minimum = np.asarray(matrix, dtype=float), np.asarray(minimum, dtype=float)
    return Formula(
        lambda x: 0.5 * (x - minimum) @ matrix @ (x - minimum),
        lambda x: matrix @ (x - minimum),
        lambda x: matrix,
        minimum,
        **extra,
    )


def cubic(error=0.0, noise=lambda: 0.0, **extra) -> Formula:
    """J = sum x_i^3 + x_0 x_1 of three numbers; gradient off by ``error`` in each entry."""
    return Formula(
        lambda x: (x**3).sum() + x[0] * x[1] + noise(),
        lambda x: 3 * x**2 + np.array([x[1], x[0], 0.0]) + error,
        lambda x: np.diag(6 * x) + np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]),
        [0.7, -0.4, 1.3],
        **extra,
    )


# ---- u' = -rate u, u(0) = amount: straight lines in the logarithm --------------------------------


def decay() -> Problem:
    return ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate", "amount"])


def decay_control(rate=0.5, amount=2.0, **extra) -> Parameters:
    return Parameters(
        {"rate": Parameter(rate, **extra), "amount": Parameter(amount, scale="log")},
        initial_state=lambda p: p[1:2],
    )


DECAY_STEPPING = Stepping((0.0, 2.0), "rk8vr", dt=0.1)
