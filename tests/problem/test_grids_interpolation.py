"""Interpolation between grids: exact for what it should be exact for, on any number of ranks."""

import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import InputError
from daeosens.problem.grids import Grid
from daeosens.problem.grids.interpolation import interpolation

BOX = ((0.0, 1.0), (0.0, 2.0), (-1.0, 1.0))


@pytest.mark.mpi
@pytest.mark.parametrize("boundary", ["periodic", "zero", "neumann"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_linear_functions_are_kept(dimensions, boundary):
    coarse = Grid(BOX[:dimensions], (5, 6, 4)[:dimensions], boundary)
    fine = Grid(BOX[:dimensions], (12, 11, 8)[:dimensions], boundary)
    matrix = interpolation(coarse, fine)
    values = []
    for grid in (coarse, fine):
        vec, x = grid.create_vec(), grid.coordinates()
        grid.writable(vec)[..., 0] = 1.0 + sum((k + 1) * axis for k, axis in enumerate(x))
        values.append(vec)
    out = fine.create_vec()
    matrix.mult(values[0], out)
    inside = np.ones(fine.owned_shape[:-1], dtype=bool)
    for axis, x in enumerate(fine.coordinates()):
        last = coarse.origin[axis] + coarse.spacing[axis] * (coarse.shape[axis] - 1)
        inside &= (coarse.origin[axis] <= x) & (x <= last)
    difference = (out.array - values[1].array).reshape(inside.shape)
    assert abs(difference[inside]).max(initial=0.0) < 1e-13
    ones, rows = coarse.create_vec(), fine.create_vec()
    ones.set(1.0)
    matrix.mult(ones, rows)
    assert abs(rows.array - 1.0).max(initial=0.0) < 1e-14


def test_other_boxes_are_refused():
    line, longer = (Grid(((0.0, end),), (4,), comm=PETSc.COMM_SELF) for end in (1.0, 2.0))
    with pytest.raises(InputError, match="the same box"):
        interpolation(line, longer)
