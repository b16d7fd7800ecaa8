"""Values at the points of a grid from those at the points of another one over the same box."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.problem.grids.structured import Grid, require_uniform


def interpolation(coarse: Grid, fine: Grid) -> PETSc.Mat:
    """Return the matrix that interpolates linearly along each dimension.  Collective.

    On a periodic grid around its ends; beyond the first and the last point of others the value is
    theirs.

    Parameters
    ----------
    coarse, fine : Grid
        One unknown at each point, the same box and ranks.

    Returns
    -------
    Mat [points of fine, points of coarse]

    Raises
    ------
    InputError
        Other boxes, boundaries or numbers of unknowns.

    Examples
    --------
    >>> line = ((0.0, 1.0),)
    >>> grids = [Grid(line, (n,), comm=PETSc.COMM_SELF) for n in (4, 8)]
    >>> interpolation(*grids).getValues([1], range(4))
    array([[0.5, 0.5, 0. , 0. ]])
    """
    same = (coarse.box, coarse.boundary, coarse.dof, coarse.comm.size)
    if same != (fine.box, fine.boundary, fine.dof, fine.comm.size) or fine.dof != 1:
        raise InputError(
            f"{coarse} and {fine}", expected="the same box, boundary and ranks, and dof = 1"
        )
    require_uniform(coarse, "interpolation")
    require_uniform(fine, "interpolation")
    # along each dimension: two coarse points for each of the rank's own, and their weights
    along: list[list[tuple[Any, Any]]] = []
    corner, sizes = fine.dm.getCorners()
    for axis, (first, count) in enumerate(zip(corner, sizes, strict=True)):
        h, last = coarse.spacing[axis], coarse.shape[axis] - 1
        x = fine.origin[axis] + fine.spacing[axis] * np.arange(first, first + count)
        place = (x - coarse.origin[axis]) / h
        periodic = coarse.boundaries[axis] == "periodic"
        if not periodic:
            place = np.clip(place, 0.0, last)
        # rounding must not take a fine point that is a coarse one to the next
        left = np.floor(place + 1e-9)
        share = np.maximum(place - left, 0.0)
        right = left + 1
        if periodic:
            left, right = left % (last + 1), right % (last + 1)
        else:
            right = np.minimum(right, last)
        along.append([(left, 1.0 - share), (right, share)])
    rows: list[Any] = []
    columns: list[Any] = []
    values: list[Array] = []
    start, _ = fine.create_vec().getOwnershipRange()
    own = start + np.arange(int(np.prod(sizes))).reshape(tuple(reversed(sizes)))
    for corners in product(*along):
        natural, weight, stride = np.zeros(own.shape), np.ones(own.shape), 1
        for axis, (index, share) in enumerate(corners):
            shape = [1] * len(corners)
            shape[len(corners) - 1 - axis] = -1  # x is the last axis of arrays
            natural = natural + stride * index.reshape(shape)
            weight = weight * share.reshape(shape)
            stride *= coarse.shape[axis]
        kept = weight.ravel() > 0.0
        rows.append(own.ravel()[kept])
        columns.append(natural.ravel()[kept])
        values.append(weight.ravel()[kept])
    order: Any = coarse.dm.getAO()
    theirs = order.app2petsc(np.concatenate(columns).astype(PETSc.IntType))
    matrix: Any = PETSc.Mat().create(comm=fine.comm)
    layouts = [grid.create_vec().getSizes() for grid in (fine, coarse)]
    matrix.setSizes(layouts)
    matrix.setType(PETSc.Mat.Type.AIJ)
    matrix.setPreallocationCOO(np.concatenate(rows).astype(PETSc.IntType), theirs)
    matrix.setValuesCOO(np.concatenate(values))
    return matrix
