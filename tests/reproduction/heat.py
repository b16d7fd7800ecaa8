"""Derivatives of the 2-D heat equation in its diffusivity, by all methods, against closed forms.

u_t = alpha (u_xx + u_yy) on the unit square, u = 0 on its edge, u(0) = sin(pi x) sin(pi y), T =
0.01.  The initial state is an eigenvector of the five-point Laplacian to -lam, so du(T)/dalpha is a
multiple of u(0), and everything has a closed form:

- continuum: lam = 2 pi^2, u(T) = exp(-lam alpha T) u(0);
- semi-discrete: lam = (8/h^2) sin^2(pi h/2);
- discrete: u(T) = R(-lam alpha dt)^N u(0), R the method's stability function.

Each method below returns the multiple, d/dalpha of the amplitude w . u(T), w = u(0)/|u(0)|^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, pi, sin
from typing import Any, Literal

import numpy as np
from continuous_adjoint import continuous_adjoint
from continuous_tangent import continuous_forward
from finite_differences import finite_differences
from petsc4py import PETSc

from daeosens import Parameter, Parameters, Reduced, Stepping, Terminal, adjoint, solve, tangent
from daeosens.problem import INDEPENDENT, Problem
from daeosens.problem.grids import Grid
from daeosens.tracing.pdes import first_mode, heat

ALPHA = 1.0
T = 0.01
STABILITY = {
    "rk1fe": np.polynomial.Polynomial([1.0, 1.0]),
    "rk4": np.polynomial.Polynomial([1.0, 1.0, 1 / 2, 1 / 6, 1 / 24]),
}
"""R(z): one step multiplies a mode of rate z/dt by R(z)."""


@dataclass(frozen=True)
class Case:
    """The equation on a grid with Np points along each side, those on the edge included or not."""

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
    def grid(self) -> Grid:
        """The points inside."""
        shape = (self.n_inside, self.n_inside)
        return Grid(((0.0, 1.0), (0.0, 1.0)), shape, "zero", comm=PETSc.COMM_SELF)

    @cached_property
    def problem(self) -> Problem:
        """The equation u' = alpha L u."""
        return heat(self.grid)

    @cached_property
    def start(self) -> PETSc.Vec:
        """u(0) [n]."""
        return first_mode(self.grid)

    @cached_property
    def weights(self) -> PETSc.Vec:
        """The vector w [n]."""
        return self.start / self.start.dot(self.start)

    @property
    def amplitude(self) -> Terminal:
        """The cost w . u(T)."""

        def gradient(t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
            self.weights.copy(out)

        return Terminal(lambda t, u, p: self.weights.dot(u), gradient, INDEPENDENT)

    @property
    def rate(self) -> float:
        """Decay rate lam of u(0) for alpha = 1, on the grid."""
        return 8.0 / self.spacing**2 * sin(0.5 * pi * self.spacing) ** 2

    def semi_discrete(self) -> float:
        """Return the derivative with time exact."""
        return closed_form(self.rate)

    def discrete(self, method: str, dt: float) -> float:
        """Return the derivative of the time-stepping scheme itself."""
        polynomial, n_steps = STABILITY[method], round(T / dt)
        z = -self.rate * ALPHA * dt
        power = n_steps * polynomial(z) ** (n_steps - 1)
        return float(power * polynomial.deriv()(z) * -self.rate * dt)


def closed_form(rate: float) -> float:
    """Return d exp(-rate alpha T)/dalpha."""
    return -rate * T * exp(-rate * ALPHA * T)


CONTINUUM = closed_form(2 * pi**2)


def stepping(method: str, dt: float) -> Stepping:
    """Return fixed steps over (0, T)."""
    return Stepping((0.0, T), method, dt=dt)


def by_adjoint(case: Case, method: str, dt: float) -> float:
    """Discrete adjoint."""
    run = solve(case.problem, case.start, [ALPHA], stepping(method, dt))
    return float(adjoint(run, case.amplitude).p[0])


def by_tangent(case: Case, method: str, dt: float) -> float:
    """Discrete tangent."""
    run = solve(case.problem, case.start, [ALPHA], stepping(method, dt))
    return float(case.weights.dot(tangent(run, dp=[1.0]).final))


def by_continuous_forward(case: Case, method: str, dt: float) -> float:
    """Sensitivity equations s' = alpha L s + L u, stepped together with u."""
    tangent = continuous_forward(case.problem, case.start, [ALPHA], stepping(method, dt))
    return float(case.weights.getArray() @ tangent.p[:, 0])


def by_differences(
    case: Case, method: str, dt: float, scheme: Literal["forward", "central"]
) -> float:
    """Differences with the default step: eps^(1/2) forward, eps^(1/3) central."""
    control = Parameters({"k": Parameter(ALPHA)}, initial_state=case.start)
    functional = Reduced(case.problem, case.amplitude, stepping(method, dt), control)
    return float(finite_differences(functional, scheme=scheme).gradient.getArray()[0])


@dataclass(frozen=True)
class Backward:
    """What integrating the continuous adjoint equation backward gives.

    Attributes
    ----------
    derivative : float
        d(amplitude)/dalpha.
    drift : float
        Relative error of the re-integrated state at t = 0.
    """

    derivative: float
    drift: float


def by_continuous_adjoint(
    case: Case, method: str, dt: float, mode: Literal["backsolve", "interpolating"]
) -> Backward:
    """Adjoint equation backward in time with the same steps."""
    gradient = continuous_adjoint(
        case.problem, case.start, [ALPHA], stepping(method, dt), case.amplitude, mode
    )
    return Backward(float(gradient.p[0]), gradient.drift)


def field_error(
    case: Case, method: str, dt: float, mode: Literal["backsolve", "interpolating"] | None = None
) -> float:
    """Return the relative error of the derivatives in the diffusivities alpha_j of single points.

    For u' = diag(alpha) L u at alpha = 1 the semi-discrete closed form is the derivative in alpha
    times u_j(0) w_j.  By the discrete adjoint, or by the continuous one in the given mode.
    """
    problem = heat(case.grid, fields=["k"])
    alpha = problem.pack(k=ALPHA)
    steps = stepping(method, dt)
    if mode is None:
        field = adjoint(solve(problem, case.start, alpha, steps), case.amplitude).p
    else:
        field = continuous_adjoint(problem, case.start, alpha, steps, case.amplitude, mode).p
    exact = case.semi_discrete() * case.start.getArray() * case.weights.getArray()
    return float(np.linalg.norm(field - exact) / np.linalg.norm(exact))


def backward_growth(case: Case, method: str, dt: float) -> float:
    """Return by how much N steps back amplify the shortest wave of the grid."""
    shortest = 8.0 / case.spacing**2 * sin(0.5 * pi * case.n_inside * case.spacing) ** 2
    return float(STABILITY[method](shortest * ALPHA * dt) ** round(T / dt))
