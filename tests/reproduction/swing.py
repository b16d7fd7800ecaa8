"""Swing equation with a fault (PETSc's ts/tutorials/power_grid), by drivers/swing_equation.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from driver_modules import driver

from daeosens import ODE, Running, Stepping, adjoint, minimize, solve, tangent
from daeosens.optimize import Result
from daeosens.problem import Problem
from reproduction.tutorials import PRINTED

Array = npt.NDArray[np.float64]

DT, START, FAULT, WEIGHT, DAMPING = 0.03125, 1.1, (0.1, 0.2), 1e4, 5.0
EXACT: dict[str, Any] = {"snes_rtol": 1e-14}


DRIVER: Any = driver("swing_equation")


def config(stepping: Stepping | None = None, **keys: Any) -> Any:
    """Return the driver's configuration, with the tutorial's steps by default."""
    return DRIVER.Config(stepping=stepping or Stepping((0.0, 1.0), "cn", dt=DT), **keys)


@dataclass(frozen=True)
class Found:
    """The integral of the overshoot and its derivatives.

    ``lam`` [2] in the initial state, ``mu`` in P alone, ``gradient`` in P with the initial state
    following; ``along`` [2] that of the final state (NaN beyond T = 1).
    """

    integral: float
    lam: Array
    mu: float
    gradient: float
    final: Array
    along: Array


def differentiated(
    stepping: Stepping, power: float = START, times: Any = (), problem: Problem | None = None
) -> Found:
    """Run, with ends of steps at the times too, and differentiate."""
    p = np.array([power, *FAULT])
    start = DRIVER.rest(p)
    run = solve(problem or DRIVER.machine(config(stepping)), start, p, stepping, times)
    overshoot = Running(lambda t, u, p: WEIGHT * np.maximum(0.0, u[0] - 1.0) ** 2)
    sensitivity = adjoint(run, overshoot)
    follows = np.array([1.0 / np.sqrt(DRIVER.P_MAX**2 - power**2), 0.0])
    gradient = float(sensitivity.u0 @ follows + sensitivity.p[0])
    final = run.final.array.copy()
    if stepping.t_span[1] > 1.0:  # long
        return Found(
            sensitivity.value, sensitivity.u0, sensitivity.p[0], gradient, final, np.full(2, np.nan)
        )
    along = tangent(run, follows, [1.0, 0.0, 0.0])
    assert abs(along.derivative(overshoot) - gradient) < 1e-11 * abs(gradient)
    return Found(
        sensitivity.value, sensitivity.u0, sensitivity.p[0], gradient, final, along.final.array
    )


def ex3sa(case: str) -> Found:
    """Repeat ex3sa: Crank-Nicolson, or its adaptive RK2a by the times of the steps it took."""
    if case == "rk2a":
        times = [float(text) for text in PRINTED["power_grid"]["ex3sa, rk2a"]["times"]]
        return differentiated(Stepping((0.0, 1.0), "rk2a", dt=1.0), times=times[1:-1])
    return differentiated(Stepping((0.0, 1.0), "cn", dt=DT, options=EXACT))


def ex3adj_events() -> Found:
    """Repeat ex3adj_events of 2015: Crank-Nicolson, h = 0.01."""
    return differentiated(Stepping((0.0, 1.0), "cn", dt=0.01, options=EXACT))


def ex9adj(end: float = 10.0, power: float = START, *, resolved: bool = False) -> Found:
    """Repeat ex9adj (RK3BS, h = 0.01), whose right-hand side asks for the time; or resolve it."""
    stepping = Stepping((0.0, end), "rk3bs", dt=0.01)
    return differentiated(stepping, power, problem=None if resolved else asks_for_the_time())


def asks_for_the_time() -> Problem:
    """Return the fault as a test of the time, of which the steps know nothing."""

    def p_max(t: float) -> float:
        return 0.0 if FAULT[0] < t < FAULT[1] else DRIVER.P_MAX

    def rhs(t: float, u: Any, p: Any) -> Any:
        pull = p[0] - p_max(t) * np.sin(u[0]) - DAMPING * (u[1] - 1.0)
        return np.array([DRIVER.BASE * (u[1] - 1.0), 0.5 / DRIVER.INERTIA * pull])

    def jacobian(t: float, u: Any, p: Any) -> Any:
        pull = np.array([-p_max(t) * np.cos(u[0]), -DAMPING])
        return np.array([[0.0, DRIVER.BASE], 0.5 / DRIVER.INERTIA * pull])

    def jacobian_p(t: float, u: Any, p: Any) -> Any:
        return np.array([[0.0, 0.0, 0.0], [0.5 / DRIVER.INERTIA, 0.0, 0.0]])

    return ODE(rhs, 2, DRIVER.NAMES, jacobian=jacobian, jacobian_p=jacobian_p, rhs_t="autonomous")


def converged(end: float = 1.0, power: float = START, n_steps: int = 97) -> Found:
    """Return what all of them approach, with so many steps a second."""
    return differentiated(Stepping((0.0, end), "rk4", dt=1.0 / n_steps), power)


def ex3opt() -> tuple[Result, list[float]]:
    """Find the best P as ex3opt does, from 1.06; and the norm of dJ/dP at each iterate."""
    reduced = DRIVER.functional(config(Stepping((0.0, 1.0), "cn", dt=DT, options=EXACT)), "power")
    points: list[float] = []
    result = minimize(
        reduced,
        method="blmvm",
        gradient_tolerance=1e-11,
        progress=lambda _iterate, x: points.append(float(x[0])),
    )
    return result, [reduced.gradient([point]).norm() for point in points]


def optimum(stepping: Stepping) -> Result:
    """Return the best P for other steps."""
    return minimize(DRIVER.functional(config(stepping), "power"), method="blmvm")


def equal_area(power: float, angle: float) -> float:
    """Return when an undamped fault has to be cleared for the peak to be at ``angle``.

    Up to there the area of P_max sin theta - P after the clearing equals that of P before it.
    """
    first = np.arcsin(power / DRIVER.P_MAX)
    cleared = np.arccos(power / DRIVER.P_MAX * (angle - first) + np.cos(angle))
    return FAULT[0] + float(
        np.sqrt(4.0 * DRIVER.INERTIA * (cleared - first) / (DRIVER.BASE * power))
    )


def latest_clearing(power: float, goal: str, damping: float, stepping: Stepping) -> float:
    """Return the driver's latest clearing time."""
    chosen = replace(config(stepping), damping=damping)
    return DRIVER.latest_clearing(chosen, power, goal)[0]
