"""Gradient check on the Gray-Scott system: adjoint against central differences.

50 x 50 points, periodic box (0, 2.5)^2, classical Runge-Kutta; J = 1/2 |u(T; x) - u(T; true)|^2 as a
function of the initial state x [5000], at a first guess with one broad spot in the place of four.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens import InitialState, LeastSquares, Reduced, Stepping, solve
from daeosens.grids import Grid, gray_scott, spots

Array = npt.NDArray[np.float64]

STEPS = (5e-3, 5e-4, 5e-5)
PUBLISHED = (2.6e-3, 2.6e-5, 2.6e-7)
N_COMPONENTS = 60
T, DT = 5.0, 0.5


@dataclass(frozen=True)
class Check:
    """Differences between the gradients for each of ``STEPS``, absolute and relative [3].

    ``components``: Euclidean norm over the components that were moved one by one; ``direction``:
    along a random direction of unit size in every component.
    """

    components: Array
    components_relative: Array
    direction: Array
    direction_relative: Array


def functional() -> Reduced:
    """Return J(x)."""
    grid = Grid(((0.0, 2.5), (0.0, 2.5)), (50, 50), dof=2, comm=PETSc.COMM_SELF)
    problem = gray_scott(grid)
    stepping = Stepping((0.0, T), "rk4", dt=DT)
    data = solve(problem, spots(grid), None, stepping).final
    return Reduced(problem, LeastSquares([T], [data]), stepping, InitialState(spots(grid, 2.0)))


def check(n_components: int = N_COMPONENTS) -> Check:
    """Compare the gradients in single components, chosen where the spot is, and in one direction."""
    reduced = functional()
    x = reduced.start()
    gradient = reduced.gradient(x).getArray().copy()
    generator = np.random.default_rng(2)
    chosen = generator.choice(np.flatnonzero(gradient**2 > 1e-6 * (gradient**2).max()), n_components)
    direction = generator.choice([-1.0, 1.0], gradient.size)

    def central(change: Array, h: float) -> float:
        ends = []
        for sign in (1.0, -1.0):
            moved = x.copy()
            moved.getArray()[...] += sign * h * change
            ends.append(reduced.value(moved))
        return (ends[0] - ends[1]) / (2 * h)

    units = np.zeros((n_components, gradient.size))
    units[np.arange(n_components), chosen] = 1.0
    single = [
        np.linalg.norm([central(unit, h) - unit @ gradient for unit in units]) for h in STEPS
    ]
    along = [abs(central(direction, h) - direction @ gradient) for h in STEPS]
    return Check(
        np.array(single),
        np.array(single) / np.linalg.norm(gradient[chosen]),
        np.array(along),
        np.array(along) / abs(direction @ gradient),
    )
