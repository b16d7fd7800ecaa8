"""Fields on grids that are the same on any number of ranks."""

from __future__ import annotations

import numpy as np
from petsc4py import PETSc

from daeosens import Terminal
from daeosens.problem.grids import Grid

ENERGY = Terminal(
    lambda t, u, p: 0.5 * u.dot(u) / u.size,
    lambda t, u, p, out: out.axpby(1.0 / u.size, 0.0, u),
    "independent",
    hessian_product=lambda t, u, p, du, dp, out: (
        out.axpby(1.0 / u.size, 0.0, du),
        np.zeros(len(p)),
    )[1],
)
"""Half the mean of the squares of all unknowns, at the end of a run."""


def own_part(grid: Grid, everything):
    """Return the rank's part of an array [ny, nx, dof] of the whole grid."""
    corner, sizes = grid.dm.getCorners()
    along = [slice(first, first + n) for first, n in zip(corner, sizes, strict=True)]
    return everything[tuple(reversed(along))]


def random_field(grid: Grid, seed: int) -> PETSc.Vec:
    """Return a vector of numbers between 0.1 and 1."""
    vec = grid.create_vec()
    shape = (*reversed(grid.shape), grid.dof)
    values = np.random.default_rng(seed).uniform(0.1, 1.0, shape)
    grid.writable(vec)[...] = own_part(grid, values)
    return vec


def alone(grid: Grid) -> Grid:
    """Return the same grid on this rank alone."""
    return Grid(grid.box, grid.shape, grid.boundary, grid.dof, PETSc.COMM_SELF)


def close(a: PETSc.Vec, b: PETSc.Vec) -> float:
    """Return |a - b| / |b|."""
    return (a - b).norm() / b.norm()
