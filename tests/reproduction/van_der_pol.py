"""The stiff van der Pol oscillator, mu = 1e3: state and derivatives at t = 0.5.

x' = v, v' = mu ((1 - x^2) v - x), x(0) = 2, v(0) on the slow curve, which follows mu.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import daeosens as ds
from daeosens.petsc import gather
from daeosens.problem import Problem

Array = npt.NDArray[np.float64]

MU = 1e3
T_SPAN = (0.0, 0.5)


def van_der_pol(count: Callable[[], None] = lambda: None) -> Problem:
    """Return the problem; ``count`` is called at each evaluation of f and of f_u."""

    def rhs(t: float, u: Any, p: Any) -> Any:
        count()
        return np.array([u[1], p[0] * ((1 - u[0] ** 2) * u[1] - u[0])])

    def rhs_u(t: float, u: Any, p: Any) -> Any:
        count()
        return np.array([[0.0, 1.0], [-p[0] * (2 * u[0] * u[1] + 1), p[0] * (1 - u[0] ** 2)]])

    def rhs_p(t: float, u: Any, p: Any) -> Any:
        return np.array([[0.0], [(1 - u[0] ** 2) * u[1] - u[0]]])

    return ds.ODE(rhs, 2, ["mu"], jacobian=rhs_u, jacobian_p=rhs_p, rhs_t="autonomous")


def initial_state(p: Any) -> Any:
    """Return (x(0), v(0)) on the slow curve, to third order in 1/mu."""
    mu = p[0]
    return np.array([2.0 + 0 * mu, -2 / 3 + 10 / (81 * mu) - 292 / (2187 * mu**2)])


def initial_state_p(p: Any) -> Any:
    """Return its derivative in mu [2, 1]."""
    mu = p[0]
    return np.array([[0.0], [-10 / (81 * mu**2) + 2 * 292 / (2187 * mu**3)]])


@dataclass(frozen=True)
class Result:
    """State [2] and derivatives [2, 3] in x(0), v(0), mu; the column of mu with v(0) following."""

    u: Array
    held: Array
    following: Array
    evaluations: int = 0
    n_steps: int = 0


@cache
def reference() -> Result:
    """Return the digits of vdp_stiff.json."""
    path = Path(__file__).parents[1] / "references" / "vdp_stiff.json"
    values = json.loads(path.read_text())["values"]

    def rows(case: str) -> Array:
        return np.array([values[case]["dx"], values[case]["dv"]], dtype=float)

    u = np.array([values["v0_fixed"]["x"], values["v0_fixed"]["v"]], dtype=float)
    return Result(u, rows("v0_fixed"), rows("v0_of_mu")[:, 2])


def run(method: str, **stepping: Any) -> Result:
    """Solve, and differentiate the steps that were taken."""
    counter: list[None] = []
    problem = van_der_pol(lambda: counter.append(None))
    p = np.array([MU])
    trajectory = ds.solve(problem, initial_state(p), p, ds.Stepping(T_SPAN, method, **stepping))
    evaluations = len(counter)
    by = ds.sensitivities(trajectory)
    following = by.p + by.u0 @ initial_state_p(p)
    held = np.column_stack([by.u0, by.p])
    return Result(trajectory.u[-1], held, following[:, 0], evaluations, trajectory.n_steps)


def run_reduced(method: str, **stepping: Any) -> Array:
    """Return d(x, v)/dmu, v(0) following mu, by ``Parameters(initial_state=...)`` instead."""
    control = ds.Parameters({"mu": ds.Parameter(MU)}, initial_state, initial_state_p)
    steps = ds.Stepping(T_SPAN, method, **stepping)
    rows = [
        ds.Reduced(van_der_pol(), ds.Terminal(lambda t, u, p, k=k: u[k]), steps, control)
        for k in range(2)
    ]
    return np.array([gather(row.gradient(row.start()))[0] for row in rows])


def errors(result: Result) -> tuple[float, float, float]:
    """Return relative errors of the state, of d/dmu with v(0) held, and with v(0) following."""
    exact = reference()

    def relative(computed: Array, wanted: Array) -> float:
        return float(np.linalg.norm(computed - wanted) / np.linalg.norm(wanted))

    return (
        relative(result.u, exact.u),
        relative(result.held[:, 2], exact.held[:, 2]),
        relative(result.following, exact.following),
    )


# ---- work and precision --------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """One method with several step sizes or tolerances.

    Attributes
    ----------
    name : str
        In the legend.
    method : str
        Of ``Stepping``.
    steps : tuple of int
        Numbers of fixed steps; or
    tolerances : tuple of float
        rtol = atol of adaptive steps.
    first_step : float, optional
        First step of adaptive runs.
    """

    name: str
    method: str
    steps: tuple[int, ...] = ()
    tolerances: tuple[float, ...] = ()
    first_step: float | None = None

    def results(self) -> list[Result]:
        """Run all of them."""
        span = T_SPAN[1] - T_SPAN[0]
        fixed = [run(self.method, dt=span / n) for n in self.steps]
        return fixed + [
            run(self.method, rtol=tolerance, atol=tolerance, dt=self.first_step)
            for tolerance in self.tolerances
        ]


SERIES = (
    Series("rk4, fixed", "rk4", steps=(512, 1024, 2048, 4096, 8192)),
    Series("rk5dp, fixed", "rk5dp", steps=(512, 1024, 2048, 4096)),
    Series("rk5dp, adaptive", "rk5dp", tolerances=tuple(10.0**-k for k in range(3, 13))),
    Series("rk3bs, adaptive", "rk3bs", tolerances=tuple(10.0**-k for k in range(8, 12))),
    Series("cn, fixed", "cn", steps=(8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
    Series("cn, adaptive", "cn", tolerances=tuple(10.0**-k for k in range(3, 10)), first_step=1e-6),
)
"""What the picture shows."""


def steps_outside(tolerance: float) -> float:
    """Return the share of accepted rk5dp steps that lie outside its stability interval.

    |R(z)| > 1 at z = h mu (1 - x^2), the rate of the fast mode; stable for |z| < 3.3.
    """
    p = np.array([MU])
    stepping = ds.Stepping(T_SPAN, "rk5dp", rtol=tolerance, atol=tolerance)
    trajectory = ds.solve(van_der_pol(), initial_state(p), p, stepping)
    z = trajectory.step_sizes * MU * (1 - trajectory.u[:-1, 0] ** 2)
    growth = np.abs(np.polynomial.Polynomial([1, 1, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 600])(z))
    return float((growth > 1).mean())
