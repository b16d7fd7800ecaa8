"""Fields on grids that are the same on any number of ranks."""

from __future__ import annotations

import numpy as np
from petsc4py import PETSc

from daeosens.problem.grids import Grid


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
