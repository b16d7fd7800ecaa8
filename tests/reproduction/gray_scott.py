"""Gradient check on the Gray-Scott system: adjoint against central differences.

50 x 50 points, periodic box (0, 2.5)^2, ten steps of the classical Runge-Kutta method.
J = |u(T; x) - u(T; true)|^2 / 2 as a function of the initial state x [5000], at a first guess with
one broad spot in the place of four.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens import LeastSquares, Reduced, Stepping, solve
from daeosens.functional import InitialState
from daeosens.problem.grids import Grid
from daeosens.tracing.pdes import gray_scott, spots

Array = npt.NDArray[np.float64]

STEPS = (5e-3, 5e-4, 5e-5)
PUBLISHED = (2.6e-3, 2.6e-5, 2.6e-7)
T, DT = 5.0, 0.5


@dataclass(frozen=True)
class Check:
    """Euclidean norm of the difference between both gradients for each of ``STEPS`` [3].

    Over ``n_components`` components; ``relative`` to the norm of the gradient in the same ones.
    """

    n_components: int
    difference: Array
    relative: Array

    @property
    def orders(self) -> Array:
        """Observed orders [2]."""
        return np.log10(self.difference[:-1] / self.difference[1:])


def functional() -> Reduced:
    """Return J(x)."""
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (50, 50), dof=2, comm=PETSc.COMM_SELF)
    problem = gray_scott(grid)
    stepping = Stepping((0.0, T), "rk4", dt=DT)
    data = solve(problem, spots(grid), None, stepping).final
    return Reduced(problem, LeastSquares([T], [data]), stepping, InitialState(spots(grid, 2.0)))


def check(n_components: int | None = None) -> Check:
    """Compare in all components, or in some of those where the gradient is not negligible."""
    reduced = functional()
    x = reduced.start()
    gradient = reduced.gradient(x).getArray().copy()
    chosen = np.arange(gradient.size)
    if n_components is not None:
        large = np.flatnonzero(np.abs(gradient) > 1e-3 * np.abs(gradient).max())
        chosen = np.random.default_rng(2).choice(large, n_components, replace=False)

    def value(component: int, change: float) -> float:
        moved = x.copy()
        moved.getArray()[component] += change
        result = reduced.value(moved)
        moved.destroy()
        return result

    differences = []
    for h in STEPS:
        central = [(value(j, h) - value(j, -h)) / (2 * h) for j in chosen]
        differences.append(np.linalg.norm(central - gradient[chosen]))
    difference = np.array(differences)
    return Check(chosen.size, difference, difference / np.linalg.norm(gradient[chosen]))
