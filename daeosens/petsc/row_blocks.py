"""Which part of an array each rank owns: boxes of a DMDA in natural order, or ranges of a Vec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from petsc4py import PETSc


@dataclass(frozen=True)
class RowBlock:
    """The part of an array that one rank owns: whole shape, first index and extent by axis."""

    shape: tuple[int, ...]
    start: tuple[int, ...]
    extent: tuple[int, ...]

    @property
    def region(self) -> tuple[slice, ...]:
        """The block as an index into the whole array."""
        return tuple(slice(s, s + e) for s, e in zip(self.start, self.extent, strict=True))


def block_of(vec: PETSc.Vec) -> RowBlock:
    """Say which part of the stored array belongs to this rank."""
    dm = vec.getDM()
    if dm.handle and dm.getType() == PETSc.DM.Type.DA:  # without a DM the handle is 0 (PETSc 3.26)
        da = cast("PETSc.DMDA", dm)
        starts, extents = da.getCorners()
        dof = da.getDof()
        shape = (*da.getSizes()[::-1], dof)
        return RowBlock(shape, (*starts[::-1], 0), (*extents[::-1], dof))
    start, end = vec.getOwnershipRange()
    return RowBlock((vec.getSize(),), (start,), (end - start,))
