"""Sparse matrices with the same entries in the rows of each point of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, is_iterable, is_whole, require
from daeosens.petsc.vectors import Array
from daeosens.problem.grids.structured import Grid, require_grid

Entry: TypeAlias = tuple[int, int, tuple[int, ...]]
"""A matrix entry at each point: component of the row, of the column, offset to the column."""


def stencil_matrix(grid: Grid, entries: Sequence[Entry], *, by_points: bool = False) -> PETSc.Mat:
    """Make a sparse matrix with the same entries in the rows of each point.

    To be filled by ``fill_stencil_matrix``.  Entries of the same place add up; those whose column
    lies beyond a zero boundary are dropped.  Collective.

    Parameters
    ----------
    grid : Grid
        The rows' and the columns' points.
    entries : sequence of (row component, column component, (offset x, offset y, ...))
        Offsets of any number of points.
    by_points : bool
        Whether values are given point by point, instead of entry by entry.

    Returns
    -------
    Mat [n, n]
        Its duplicates keep the pattern.

    Raises
    ------
    InputError
        A rank has fewer points along one dimension than an entry reaches.
    """
    require_grid(grid)
    require(by_points, bool, "by_points", "by_points=True")
    entries = _admitted(entries, grid)
    width = max(abs(distance) for _, _, offset in entries for distance in offset)
    # global numbers of unknowns on the rank's box with a margin: an entry's column is the same box
    # shifted by its offset
    numbers = _numbers(grid, width)
    points = grid.owned_shape[:-1]

    def plane(component: int, offset: Sequence[int]) -> npt.NDArray[Any]:
        first = [width + distance for distance in reversed(offset)]
        part = tuple(slice(k, k + n) for k, n in zip(first, points, strict=True))
        return numbers[(*part, component)]

    none = (0,) * len(points)
    rows = [plane(row, none) for row, _, _ in entries]
    columns = [plane(column, offset) for _, column, offset in entries]
    order = np.s_[-1 if by_points else 0]
    template = grid.dm.createGlobalVec()
    sizes: Any = template.getSizes()
    template.destroy()
    matrix: Any = PETSc.Mat().create(comm=grid.comm)
    matrix.setSizes((sizes, sizes))
    matrix.setBlockSize(grid.dof)
    matrix.setType(PETSc.Mat.Type.AIJ)
    # PETSc sorts the pattern once; later values are added to their places in the order given here
    matrix.setPreallocationCOO(
        *(np.stack(plane_of, order).ravel().astype(PETSc.IntType) for plane_of in (rows, columns))
    )
    return matrix


def _admitted(entries: object, grid: Grid) -> list[Entry]:
    """Return entries, checked."""
    listed: list[Any] = list(entries) if is_iterable(entries) else []
    for entry in listed:
        parts: list[Any] = list(entry) if is_iterable(entry) else []
        sound = len(parts) == 3 and is_iterable(parts[2])
        offset: list[Any] = list(parts[2]) if sound else []
        sound = sound and len(offset) == len(grid.shape) and all(map(is_whole, offset))
        if not sound or not all(is_whole(k) and 0 <= k < grid.dof for k in parts[:2]):
            raise InputError(
                f"entries holds {entry!r}",
                expected="(row component, column component, (offset x, ...))",
            )
    if not listed:
        raise InputError(f"entries = {entries!r}", expected="one entry at least")
    return listed


def fill_stencil_matrix(values: Array, out: PETSc.Mat) -> None:
    """Overwrite the entries of a matrix from ``stencil_matrix``, and assemble it.  Collective.

    Parameters
    ----------
    values : array [len(entries), nz, ny, nx] or, by points, [nz, ny, nx, len(entries)]
        The entries at the rank's own points.
    out : Mat [n, n]
        Overwritten.
    """
    flat: Any = values.ravel()
    out.setValuesCOO(flat)


def wide_dm(grid: Grid, width: int) -> PETSc.DMDA:
    """Return a DM of the same layout that exchanges all points so far away, corners too.

    Collective.

    Raises
    ------
    InputError
        A rank has fewer points along one dimension.
    """
    dm: Any = grid.dm
    box: Any = PETSc.DMDA.StencilType.BOX
    try:
        return PETSc.DMDA().create(
            dm.getSizes(),
            dof=grid.dof,
            proc_sizes=dm.getProcSizes(),
            boundary_type=dm.getBoundaryType(),
            stencil_type=box,
            stencil_width=width,
            ownership_ranges=dm.getOwnershipRanges(),
            comm=dm.comm,
        )
    except PETSc.Error as error:
        raise InputError(
            f"derivatives read points {width} away, and some rank has fewer along one dimension",
            expected=f"at least {width} rows or columns of points for each rank",
            remedy="fewer ranks, or more points",
        ) from error


def _numbers(grid: Grid, width: int) -> npt.NDArray[Any]:
    """Return the numbers of the unknowns around the rank's points; -1 beyond a zero boundary."""
    if grid.dm.comm.size == 1:
        own = np.arange(np.prod(grid.owned_shape)).reshape(grid.owned_shape)
        # one rank: natural numbers are PETSc's; beyond a zero boundary -1, which PETSc leaves out
        for axis, kind in enumerate(reversed(grid.boundaries)):
            more = [(width, width) if k == axis else (0, 0) for k in range(own.ndim)]
            beyond: Any = {"mode": "wrap"} if kind == "periodic" else {"constant_values": -1}
            own = np.pad(own, more, **beyond)
        return own
    wide = wide_dm(grid, width)
    _, shape = wide.getGhostCorners()
    # PETSc's own numbers of ghost points, -1 beyond an edge
    numbers = wide.getLGMap().getIndices().reshape(*reversed(shape), grid.dof).copy()
    wide.destroy()
    return numbers
