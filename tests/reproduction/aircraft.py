"""Aircraft trajectory control (PETSc's ts/tutorials/optimal_control/ex1), and its closed form.

With piecewise constant controls both aircraft fly along straight lines on each interval, so the
squared distance is a quadratic polynomial there and its integral is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from driver_modules import driver

from daeosens import Reduced, Stepping, minimize
from daeosens.optimize import Result

Array = npt.NDArray[np.float64]

N_INTERVALS = 10
TUNED: dict[str, Any] = {
    "preconditioner": "lmvm",
    "options": {"tao_bnk_init_type": "constant", "tao_trust0": 5.0},
}
SPAN = (0.0, 1.0)


DRIVER: Any = driver("aircraft")


def closed_form(controls: npt.NDArray[Any]) -> Any:
    """Return the integral for (v, w) [20], which may be complex."""
    speeds, headings = np.split(controls, 2)
    h = (SPAN[1] - SPAN[0]) / len(speeds)
    position, total = DRIVER.START + 0 * controls[0], 0.0
    for k, (v, w) in enumerate(zip(speeds, headings, strict=True)):
        velocity = v * np.array([np.cos(w), np.sin(w)])
        gap, closing = position - DRIVER.LEADER * k * h, velocity - DRIVER.LEADER
        total += h * (gap @ gap) + h**2 * (gap @ closing) + h**3 / 3 * (closing @ closing)
        position = position + h * velocity
    return total


def closed_form_gradient(controls: Array) -> Array:
    """Return its gradient [20], by complex step."""
    moves = 1e-30j * np.eye(controls.size)
    return np.array([closed_form(controls + move).imag / 1e-30 for move in moves])


def functional(
    basis: str = "constant", n_steps: int = 10, method: str = "rk3bs", n_intervals: int = 10
) -> Reduced:
    """Return the integral as a function of the controls' coefficients."""
    stepping = Stepping(SPAN, method, dt=(SPAN[1] - SPAN[0]) / n_steps)
    config = DRIVER.Config(stepping=stepping, basis=basis, intervals=n_intervals)
    return DRIVER.functional(config)[1]


def solved(
    basis: str = "constant",
    n_steps: int = 10,
    method: str = "blmvm",
    gradient_tolerance: float = 1e-9,
    scheme: str = "rk3bs",
    max_iterations: int = 1000,
    *,
    tuned: bool = False,
) -> Result:
    """Minimise from v = 2, w = pi/2; ``tuned`` takes the options of configs/aircraft.toml."""
    return minimize(
        functional(basis, n_steps, scheme),
        method=method,
        gradient_tolerance=gradient_tolerance,
        max_iterations=max_iterations,
        **(TUNED if tuned else {}),
    )


@dataclass(frozen=True)
class Optimum:
    """The solution to rounding: value, controls [20], slopes of the integral in the speeds [10]."""

    value: float
    controls: Array
    slopes: Array


def optimum(start: npt.ArrayLike) -> Optimum:
    """Return the optimum with all speeds at their bound, by Newton's method on the closed form."""
    controls = np.concatenate([np.full(N_INTERVALS, 2.0), np.asarray(start, dtype=float)])
    for _ in range(6):
        headings = np.eye(2 * N_INTERVALS)[N_INTERVALS:]
        columns = [
            closed_form_gradient(controls + 1e-5 * d) - closed_form_gradient(controls - 1e-5 * d)
            for d in headings
        ]
        hessian = np.array(columns)[:, N_INTERVALS:] / 2e-5
        gradient = closed_form_gradient(controls)
        controls = controls - headings.T @ np.linalg.solve(hessian, gradient[N_INTERVALS:])
    gradient = closed_form_gradient(controls)
    assert np.abs(gradient[N_INTERVALS:]).max() < 1e-15
    return Optimum(float(closed_form(controls)), controls, gradient[:N_INTERVALS])
