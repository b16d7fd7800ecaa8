"""Matrices of implicit steps on grids."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from fields import random_field
from petsc4py import PETSc

from daeosens import trace_stencil
from daeosens.problem.grids import Grid
from daeosens.problem.implicit_matrix import SystemMatrix


def filled_by(rhs, grid: Grid, k: float) -> Callable[[float], PETSc.Mat]:
    """Return what fills the matrix 1 / h - f_u of a traced f with one parameter, for a step h."""
    model = trace_stencil(rhs, grid, ["k"])
    u, rest, p = random_field(grid, 3), grid.create_vec(), np.array([k])
    system = SystemMatrix(model.residual_u, model.residual_udot, 0.0, u, rest, p)
    return lambda h: system.fill(0.0, u, rest, p, 1.0 / h)


def upwind(t, u, p):
    """Return f of a flow along all axes by upwind differences, and of diffusion."""
    flow = 0.0
    for axis, h in enumerate(u.spacing):
        back = tuple(-int(k == axis) for k in range(len(u.spacing)))
        flow = flow + (u.center - u[back]) / h
    return p.k * u.laplacian() - flow
