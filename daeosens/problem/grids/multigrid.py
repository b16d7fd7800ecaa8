"""Interpolations between the points of a grid and those of ever coarser ones, for multigrid.

Coarse points are every other one; the last point of a grid that is not periodic stays one, so that
neither a zero boundary nor one without flux asks for a coefficient of its own.  Any number of
points can be halved, and coarse matrices are products with the fine one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError

Numbers = npt.NDArray[Any]

FEW_POINTS = 8
"""Along a dimension: no fewer are halved."""

FEW_UNKNOWNS = 4000
"""Of the whole grid: coarse enough to be factorised."""

_KEPT = "daeosens interpolations"


@dataclass(frozen=True)
class Points:
    """The points of a grid, and which of them each rank has.

    Attributes
    ----------
    counts : tuple of tuple of int
        How many points the ranks have along x, y, z, one after the other.
    periodic : tuple of bool
        Along each dimension.
    """

    counts: tuple[tuple[int, ...], ...]
    periodic: tuple[bool, ...]

    @classmethod
    def of(cls, dm: PETSc.DMDA) -> Points:
        """Return those of a DMDA."""
        ranges: Any = dm.getOwnershipRanges()
        wrapped: Any = PETSc.DM.BoundaryType.PERIODIC
        kinds: Any = dm.getBoundaryType()
        counts = tuple(tuple(int(n) for n in along) for along in ranges)
        return cls(counts, tuple(kind in (wrapped, "periodic") for kind in kinds))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along x, y, z."""
        return tuple(sum(along) for along in self.counts)

    def coarse(self) -> Points | None:
        """Return every other point along dimensions of many; None if a rank would have none."""
        counts = tuple(
            _halved(along, periodic)
            for along, periodic in zip(self.counts, self.periodic, strict=True)
        )
        if counts == self.counts or min(min(along) for along in counts) < 1:
            return None
        return Points(counts, self.periodic)

    def numbers(self, *indices: Numbers) -> Numbers:
        """Return PETSc's numbers of points by their indices along x, y, z."""
        places = [
            np.searchsorted(np.cumsum(along), index, side="right")
            for along, index in zip(self.counts, indices, strict=True)
        ]
        sizes = np.ones(1, dtype=np.int64)
        for along in self.counts:  # of the ranks, along x first
            sizes = np.multiply.outer(np.array(along), sizes).ravel()
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        # PETSc numbers the points of one rank after the other, along x first: rank and place in
        # it are mixed-radix numbers from the last dimension to the first.
        rank, local = np.zeros_like(indices[0]), np.zeros_like(indices[0])
        for along, place, number in reversed(list(zip(self.counts, places, indices, strict=True))):
            begins = np.concatenate([[0], np.cumsum(along)])[:-1]
            rank = rank * len(along) + place
            local = local * np.array(along)[place] + number - begins[place]
        return offsets[rank] + local


def _is_halved(along: tuple[int, ...]) -> bool:
    return sum(along) > FEW_POINTS


def _stays(index: Numbers, size: int, periodic: bool) -> npt.NDArray[np.bool_]:
    """Whether points are coarse ones too."""
    return (index % 2 == 0) | (not periodic and index == size - 1)


def _halved(along: tuple[int, ...], periodic: bool) -> tuple[int, ...]:
    if not _is_halved(along):
        return along
    size, ends = sum(along), np.cumsum(along)
    stay = _stays(np.arange(size), size, periodic)
    return tuple(int(stay[end - count : end].sum()) for count, end in zip(along, ends, strict=True))


def _neighbours(
    index: Numbers, along: tuple[int, ...], periodic: bool
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the two coarse points that a point along one dimension lies between, and weights."""
    size = sum(along)
    if not _is_halved(along):
        yield index, np.ones(index.shape)
        return
    coarse = sum(_halved(along, periodic))
    stays = _stays(index, size, periodic)
    # A coarse point is at index / 2, the last one of a grid that is not periodic half a place
    # further: rounded up. Others lie between two.
    left = np.where(stays, (index + 1) // 2, index // 2)
    yield left, np.where(stays, 1.0, 0.5)
    yield (index // 2 + 1) % coarse, np.where(stays, 0.0, 0.5)


def depth(dm: PETSc.DMDA) -> int:
    """Return the number of levels down to a grid that is factorised; 1: ranks have too few points.

    Examples
    --------
    >>> from daeosens.problem.grids import Grid
    >>> grid = Grid(((0.0, 1.0), (0.0, 1.0)), (256, 255), "zero", comm=PETSc.COMM_SELF)
    >>> depth(grid.dm)  # 129 x 128, 65 x 65, 33 x 33
    4
    """
    count, points = 1, Points.of(dm)
    while prod(points.shape) * dm.getDof() > FEW_UNKNOWNS:
        coarse = points.coarse()
        if coarse is None:
            break
        count, points = count + 1, coarse
    return count


def interpolations(dm: PETSc.DMDA, count: int) -> list[PETSc.Mat]:
    """Return the matrices between so many levels, each to the next finer one, the coarsest first.

    They are kept with the DM.  Collective.

    Raises
    ------
    InputError
        There are not so many levels.
    """
    attribute: Any = dm.getAttr(_KEPT)
    kept: dict[int, list[PETSc.Mat]] = attribute or {}
    if count not in kept:
        operators: list[PETSc.Mat] = []
        fine = Points.of(dm)
        for _ in range(count - 1):
            coarse = fine.coarse()
            if coarse is None:
                raise InputError(
                    f"pc_mg_levels = {count} on a grid of {Points.of(dm).shape} points",
                    expected=f"at most {len(operators) + 1}, with some points on each rank",
                    remedy='options without "pc_mg_levels"',
                )
            operators.append(_interpolation(dm, fine, coarse))
            fine = coarse
        kept[count] = operators[::-1]
        dm.setAttr(_KEPT, kept)
    return kept[count]


def _interpolation(dm: PETSc.DMDA, fine: Points, coarse: Points) -> PETSc.Mat:
    dof, comm = dm.getDof(), dm.comm
    own = _own(fine, comm.rank)
    axes = np.meshgrid(*reversed(own), indexing="ij")[::-1]
    indices = [axis.ravel() for axis in axes]
    ends = [
        list(_neighbours(index, along, periodic))
        for index, along, periodic in zip(indices, fine.counts, fine.periodic, strict=True)
    ]
    rows: list[Numbers] = []
    columns: list[Numbers] = []
    weights: list[Numbers] = []
    row = fine.numbers(*indices)
    # Products of linear interpolations along the dimensions: 2, 4 or 8 coarse points for a fine
    # one.
    for corner in product(*ends):
        weight = np.prod([share for _, share in corner], axis=0)
        used = weight != 0.0
        rows.append(row[used])
        columns.append(coarse.numbers(*(place[used] for place, _ in corner)))
        weights.append(weight[used])
    components = np.arange(dof)
    parts = (np.concatenate(part) for part in (rows, columns))
    # the same weights for each unknown of a point
    places = [(part[:, None] * dof + components).ravel().astype(PETSc.IntType) for part in parts]
    matrix: Any = PETSc.Mat().create(comm=comm)
    sizes = [
        (prod(map(len, _own(grid, comm.rank))) * dof, prod(grid.shape) * dof)
        for grid in (fine, coarse)
    ]
    matrix.setSizes(tuple(sizes))
    matrix.setType(PETSc.Mat.Type.AIJ)
    matrix.setPreallocationCOO(*places)
    matrix.setValuesCOO(np.repeat(np.concatenate(weights), dof))
    return matrix


def _own(points: Points, rank: int) -> list[Numbers]:
    """Return the indices of a rank's points along x, y, z."""
    own: list[Numbers] = []
    for along in points.counts:
        rank, place = divmod(rank, len(along))
        begin = sum(along[:place])
        own.append(np.arange(begin, begin + along[place]))
    return own
