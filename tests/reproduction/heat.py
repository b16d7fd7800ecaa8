"""Derivatives of the 2-D heat equation in its diffusivity, by all methods, against closed forms.

u_t = alpha (u_xx + u_yy) on the unit square, u = 0 on its edge, u(0) = sin(pi x) sin(pi y), T = 0.01.
The initial state is an eigenvector of the five-point Laplacian to -lam, so the derivative of every
component is the same multiple of u(0), and everything has a closed form:

- continuum: lam = 2 pi^2, u(T) = exp(-lam alpha T) u(0);
- semi-discrete: lam = (8/h^2) sin^2(pi h/2);
- discrete: u(T) = R(-lam alpha dt)^N u(0), R the method's stability function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, pi, sin
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from daeosens import INDEPENDENT, ODE, Problem, Stepping, Terminal, adjoint, solve, tangent

Array = npt.NDArray[np.float64]

ALPHA = 1.0
T = 0.01
STABILITY = {
    "rk1fe": np.polynomial.Polynomial([1.0, 1.0]),
    "rk4": np.polynomial.Polynomial([1.0, 1.0, 1 / 2, 1 / 6, 1 / 24]),
}
"""R(z): one step multiplies a mode of rate z/dt by R(z)."""
FORWARD_STEP, CENTRAL_STEP = 1.5e-8, 6e-6
"""Steps of the finite differences: eps^(1/2) and eps^(1/3) for alpha = 1."""


@dataclass(frozen=True)
class Heat:
    """The semi-discretised problem with Np points along each side, those on the edge included."""

    n_points: int
    edge_included: bool = True

    @property
    def n_inside(self) -> int:
        """Unknowns along each side."""
        return self.n_points - 2 if self.edge_included else self.n_points

    @property
    def spacing(self) -> float:
        """Distance h of neighbouring points."""
        return 1.0 / (self.n_inside + 1)

    @cached_property
    def laplacian(self) -> Any:
        """The five-point Laplacian, a sparse matrix [n, n]."""
        n = self.n_inside
        line = sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(n, n))
        unit = sparse.eye_array(n)
        return (sparse.kron(line, unit) + sparse.kron(unit, line)).tocsr() / self.spacing**2

    @cached_property
    def start(self) -> Array:
        """u(0) [n]."""
        x = self.spacing * np.arange(1, self.n_inside + 1)
        return np.outer(np.sin(pi * x), np.sin(pi * x)).ravel()

    @property
    def problem(self) -> Problem:
        """u' = alpha L u."""
        matrix = self.laplacian
        return ODE(
            lambda t, u, p: p[0] * (matrix @ u),
            self.start.size,
            ["alpha"],
            jacobian=lambda t, u, p: p[0] * matrix,
            jacobian_p=lambda t, u, p: (matrix @ u)[:, None],
            rhs_t="autonomous",
        )

    @property
    def rate(self) -> float:
        """Decay rate lam of u(0) for alpha = 1, on the grid."""
        return 8.0 / self.spacing**2 * sin(0.5 * pi * self.spacing) ** 2

    def semi_discrete(self) -> float:
        """Return (du(T)/dalpha) / u(0), exact in time."""
        return closed_form(self.rate)

    def discrete(self, method: str, dt: float) -> float:
        """Return (du(T)/dalpha) / u(0) of the time-stepping scheme itself."""
        polynomial, n_steps = STABILITY[method], round(T / dt)
        z = -self.rate * ALPHA * dt
        return float(
            n_steps * polynomial(z) ** (n_steps - 1) * polynomial.deriv()(z) * (-self.rate * dt)
        )


def closed_form(rate: float) -> float:
    """Return (du(T)/dalpha) / u(0) for the decay exp(-rate alpha T)."""
    return -rate * T * exp(-rate * ALPHA * T)


CONTINUUM = closed_form(2 * pi**2)


def stepping(method: str, dt: float) -> Stepping:
    """Return fixed steps over (0, T)."""
    return Stepping((0.0, T), method, dt=dt)


# ---- the methods: each returns du(T)/dalpha divided by u(0) --------------------------------------


def amplitude(heat: Heat, u: Array) -> float:
    """Return the multiple of u(0) that u [n] is."""
    return float(heat.start @ u / (heat.start @ heat.start))


def by_adjoint(heat: Heat, method: str, dt: float) -> float:
    """Discrete adjoint of the amplitude of u(T)."""
    weights = heat.start / (heat.start @ heat.start)
    objective = Terminal(lambda t, u, p: weights @ u, lambda t, u, p: weights, INDEPENDENT)
    run = solve(heat.problem, heat.start, [ALPHA], stepping(method, dt))
    return float(adjoint(run, objective).p[0])


def by_tangent(heat: Heat, method: str, dt: float) -> float:
    """Discrete tangent."""
    run = solve(heat.problem, heat.start, [ALPHA], stepping(method, dt))
    return amplitude(heat, tangent(run, dp=[1.0]).u[-1])


def by_differences(heat: Heat, method: str, dt: float, *, central: bool) -> float:
    """Forward or central difference."""

    def value(alpha: float) -> float:
        run = solve(heat.problem, heat.start, [alpha], stepping(method, dt))
        return amplitude(heat, run.u[-1])

    if central:
        difference = value(ALPHA + CENTRAL_STEP) - value(ALPHA - CENTRAL_STEP)
        return difference / (2 * CENTRAL_STEP)
    return (value(ALPHA + FORWARD_STEP) - value(ALPHA)) / FORWARD_STEP


def by_continuous_forward(heat: Heat, method: str, dt: float) -> float:
    """Sensitivity equations s' = alpha L s + L u, stepped together with u."""
    matrix, n = heat.laplacian, heat.start.size

    def rhs(t: float, y: Array, p: Array) -> Array:
        u, s = y[:n], y[n:]
        change = matrix @ u
        return np.concatenate([p[0] * change, p[0] * (matrix @ s) + change])

    start = np.concatenate([heat.start, np.zeros(n)])
    run = solve(ODE(rhs, 2 * n, ["alpha"]), start, [ALPHA], stepping(method, dt))
    return amplitude(heat, run.u[-1, n:])


def by_interpolating_adjoint(heat: Heat, method: str, dt: float) -> float:
    """Adjoint equation backward in time, the state interpolated between the stored steps.

    With tau = T - t: lam' = alpha L lam, mu' = lam . L u(T - tau).  Cubic Hermite interpolation.
    """
    matrix, n = heat.laplacian, heat.start.size
    stored = solve(heat.problem, heat.start, [ALPHA], stepping(method, dt))
    states = stored.u
    changes = (matrix @ states.T).T

    def rhs(tau: float, y: Array, p: Array) -> Array:
        position = (T - tau) / dt
        k = min(max(int(position), 0), stored.n_steps - 1)
        s = position - k
        ends = (2 * s**3 - 3 * s**2 + 1, -2 * s**3 + 3 * s**2)
        slopes = (s**3 - 2 * s**2 + s, s**3 - s**2)
        u = ends[0] * states[k] + ends[1] * states[k + 1]
        u += dt * p[0] * (slopes[0] * changes[k] + slopes[1] * changes[k + 1])
        lam = y[:n]
        return np.append(p[0] * (matrix @ lam), lam @ (matrix @ u))

    start = np.append(heat.start / (heat.start @ heat.start), 0.0)
    run = solve(ODE(rhs, n + 1, ["alpha"]), start, [ALPHA], stepping(method, dt))
    return float(run.u[-1, n])


@dataclass(frozen=True)
class Backsolve:
    """What integrating everything backward gives.

    Attributes
    ----------
    derivative : float
        d(amplitude)/dalpha.
    field_error : float
        Relative error of the derivatives in the diffusivities alpha_j of the single points
        (u' = diag(alpha) L u), whose sum ``derivative`` is, against their closed form.
    state_error : float
        Relative error of the state at t = 0.
    """

    derivative: float
    field_error: float
    state_error: float


def by_backsolve(heat: Heat, method: str, dt: float) -> Backsolve:
    """Adjoint equation backward in time, the state integrated backward with it."""
    matrix, start, n = heat.laplacian, heat.start, heat.start.size

    def rhs(tau: float, y: Array, p: Array) -> Array:
        u, lam = y[:n], y[n : 2 * n]
        change = matrix @ u
        return np.concatenate([-p[0] * change, p[0] * (matrix @ lam), lam * change])

    forward = solve(heat.problem, start, [ALPHA], stepping(method, dt))
    weights = start / (start @ start)
    last = np.concatenate([forward.u[-1], weights, np.zeros(n)])
    run = solve(ODE(rhs, 3 * n, ["alpha"]), last, [ALPHA], stepping(method, dt))
    state, _, field = np.split(run.u[-1], 3)
    exact = heat.semi_discrete() * start * weights
    return Backsolve(float(field.sum()), relative(field, exact), relative(state, start))


def relative(computed: Array, exact: Array) -> float:
    """Return the relative error in the Euclidean norm."""
    return float(np.linalg.norm(computed - exact) / np.linalg.norm(exact))


def backward_growth(heat: Heat, method: str, dt: float) -> float:
    """Return by how much N steps back amplify the shortest wave of the grid."""
    shortest = 8.0 / heat.spacing**2 * sin(0.5 * pi * heat.n_inside * heat.spacing) ** 2
    return float(STABILITY[method](shortest * ALPHA * dt) ** round(T / dt))
