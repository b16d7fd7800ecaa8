"""PETSc's tutorials on sensitivities: the same problems, solved and differentiated by daeosens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens import ODE, Stepping, Terminal, adjoint, sensitivities, solve, tangent
from daeosens.problem import PiecewiseConstant, PiecewiseLinear, Problem, Spline
from daeosens.timestepping import Trajectory
from reproduction.van_der_pol import initial_state, initial_state_p, van_der_pol

Array = npt.NDArray[np.float64]

PRINTED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "references" / "petsc_tutorials.json").read_text()
)
"""What the tutorials print."""


def ex20adj(case: str) -> Array:
    """Return d(y, z)/d(y0, z0, mu) [2, 3] by adjoints, z0 following mu: Crank-Nicolson."""
    mu, n_steps = {
        "mu = 1e5, 500 steps": (1e5, 500),
        "mu = 1e5, 15 steps": (1e5, 15),
        "mu = 1e3, 500 steps": (1e3, 500),
    }[case]
    p = np.array([mu])
    run = solve(van_der_pol(), initial_state(p), p, Stepping((0.0, n_steps * 1e-3), "cn", dt=1e-3))
    rows = adjoint(run, [Terminal(lambda t, u, p, k=k: u[k]) for k in range(2)])
    slope = initial_state_p(p)
    return np.array([[*row.u0, (row.u0 @ slope + row.p)[0]] for row in rows])


def ex16fwd() -> tuple[Array, Array]:
    """Return (y, z) and d(y, z)/d(y0, z0, mu) by tangents: y'' = mu (1 - y^2) y' - y, mu = 1."""

    def rhs(t: float, u: Any, p: Any) -> Any:
        return np.array([u[1], p[0] * (1 - u[0] ** 2) * u[1] - u[0]])

    problem = ODE(rhs, 2, ["mu"])
    run = solve(problem, [2.0, 0.66666654321], [1.0], Stepping((0.0, 0.5), "rk3bs", dt=1e-3))
    units = np.eye(3)
    columns = [tangent(run, unit[:2], unit[2:]).u[-1] for unit in units]
    return run.u[-1], np.column_stack(columns)


def ex20fwd() -> tuple[Array, Array]:
    """Return (y, z) and d(y, z)/d(y0, z0, mu) [2, 3] with z0 held: mu = 1e6, Crank-Nicolson."""
    stepping = Stepping((0.0, 0.5), "cn", dt=1.0 / 1024.0)
    run = solve(van_der_pol(), [2.0, -0.66666654321], [1e6], stepping)
    by = sensitivities(run)
    return run.u[-1], np.column_stack([by.u0, by.p])


def ex23fwdadj(method: str) -> tuple[float, float]:
    """Return x(1) and dx(1)/dc of c x' = b x, x(0) = a; a, b, c = 2, 4, 3; h = 1e-3."""
    problem = ODE(
        lambda t, u, p: p[1] * u,
        1,
        ["a", "b", "c"],
        mass=lambda p: np.array([[p[2]]]),
        mass_p=lambda p, v: np.array([[0.0, 0.0, v[0]]]),
    )
    run = solve(problem, [2.0], [2.0, 4.0, 3.0], Stepping((0.0, 1.0), method, dt=1e-3))
    gradient = adjoint(run, Terminal(lambda t, u, p: u[0]))
    by_tangent = tangent(run, dp=[0.0, 0.0, 1.0]).u[-1, 0]
    assert abs(by_tangent - gradient.p[2]) < 1e-13 * abs(by_tangent)
    return float(run.u[-1, 0]), float(gradient.p[2])


# ---- parameters that change with time ------------------------------------------------------------

MU = (1.25, 1.0e2)
N_INTERVALS = 5
DT = 0.02
NODES = DT * np.arange(N_INTERVALS + 1)
TARGET = np.array([1.5967, -1.02969])
START = np.array([2.0, -2.0 / 3.0])


@dataclass(frozen=True)
class TimeDependent:
    """Final state [2]; gradient in mu1 and mu2 of each interval or node, and in u(0) [2]."""

    u: Array
    mu1: Array
    mu2: Array
    u0: Array


def ex20td() -> TimeDependent:
    """Repeat PETSc's run: mu1 and mu2 constant in each step, and one run for all of them.

    y' = mu1 z, z' = mu2 ((1 - y^2) z - y); cost |u(0.1) - target|^2.
    """
    return _gradient(changing_in_time(PiecewiseConstant(NODES, components=2)), "cn", DT)


def ex20td_by_pieces() -> TimeDependent:
    """Do the same by one short run a step: the adjoint of one is the terminal cost before it."""

    def rhs(t: float, u: Any, p: Any) -> Any:
        return np.array([p[0] * u[1], p[1] * ((1 - u[0] ** 2) * u[1] - u[0])])

    problem = ODE(rhs, 2, ["mu1", "mu2"])
    state, runs = START, list[Trajectory]()
    for k in range(N_INTERVALS):
        stepping = Stepping((k * DT, (k + 1) * DT), "cn", dt=DT)
        runs.append(solve(problem, state, MU, stepping))
        state = runs[-1].u[-1]
    lam, rows = 2 * (state - TARGET), list[Array]()
    for run in reversed(runs):
        gradient = adjoint(run, Terminal(lambda t, u, p, lam=lam: lam @ u))
        lam = gradient.u0
        rows.insert(0, gradient.p)
    by = np.array(rows)
    return TimeDependent(state, by[:, 0], by[:, 1], lam)


def changing_in_time(control: Spline) -> tuple[Problem, Array]:
    """Return the same problem with (mu1(t), mu2(t)) in a basis, and its coefficients."""

    def rhs(t: float, u: Any, p: Any) -> Any:
        mu1, mu2 = control(t, p)
        return np.array([mu1 * u[1], mu2 * ((1 - u[0] ** 2) * u[1] - u[0])])

    problem = ODE(rhs, 2, control.names("mu1_", "mu2_"), breakpoints=control.breakpoints)
    return problem, np.repeat(MU, control.size // 2)


def misfit() -> Terminal:
    """Return |u(T) - target|^2."""
    return Terminal(lambda t, u, p: ((u - TARGET) ** 2).sum())


def nodal_gradient(method: str = "cn", dt: float = DT) -> TimeDependent:
    """Return the gradient in the nodal values of piecewise linear mu1(t) and mu2(t)."""
    return _gradient(changing_in_time(PiecewiseLinear(NODES, components=2)), method, dt)


def _gradient(case: tuple[Problem, Array], method: str, dt: float) -> TimeDependent:
    problem, p = case
    run = solve(problem, START, p, Stepping((0.0, N_INTERVALS * DT), method, dt=dt))
    gradient = adjoint(run, misfit())
    mu1, mu2 = np.split(gradient.p, 2)
    return TimeDependent(run.u[-1], mu1, mu2, gradient.u0)


def nodal_check(method: str) -> Array:
    """Return how far the nodal gradient is from central differences, by the largest entry [12]."""
    dt = DT / 4
    problem, p = changing_in_time(PiecewiseLinear(NODES, components=2))
    gradient = nodal_gradient(method, dt)
    by_p = np.concatenate([gradient.mu1, gradient.mu2])
    stepping = Stepping((0.0, N_INTERVALS * DT), method, dt=dt)

    def value(p: Array) -> float:
        return float(((solve(problem, START, p, stepping).u[-1] - TARGET) ** 2).sum())

    steps = 1e-4 * p
    differences = [
        (value(p + step) - value(p - step)) / (2 * step.sum()) for step in np.diag(steps)
    ]
    scale = np.repeat([np.abs(gradient.mu1).max(), np.abs(gradient.mu2).max()], N_INTERVALS + 1)
    return np.abs(by_p - differences) / scale
