"""The parameters of a weak form: numbers, or numbers and fields in one distributed vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from petsc4py import PETSc
from scipy import sparse

from daeosens.petsc.vectors import Array, read, replicated, scatter, summed, write
from daeosens.problem.grids.finite_elements import FiniteElements
from daeosens.tracing.fields import FieldLayout, field_layout
from daeosens.tracing.named_parameters import Shapes


class Numbers:
    """Parameters that are numbers: arrays [m], the same on every rank."""

    names: tuple[str, ...] = ()

    def __init__(self, shapes: Shapes, comm: PETSc.Comm) -> None:
        self.shapes, self._comm = shapes, comm
        self.template: Any = shapes.names

    @property
    def some(self) -> bool:
        """Whether there are parameters."""
        return self.shapes.size > 0

    def at(self, _space: FiniteElements, _boundary: str) -> sparse.csr_array | None:
        """Return values of fields at points from coefficients: there are none."""
        return None

    def split(self, p: Any) -> tuple[Array, Array]:
        """Return numbers [m], and coefficients [., K] of fields."""
        return replicated(p) if isinstance(p, PETSc.Vec) else p, np.zeros((0, 0))

    def joined(self, sums: Array, _by_fields: Array, out: PETSc.Vec | None) -> Any:
        """Return derivatives [m] from the rank's sums, or fill a vector with them."""
        total = summed(sums, self._comm)
        return total if out is None else scatter(total, out)


class Fields:
    """Parameters that are fields and numbers: one distributed vector."""

    def __init__(self, layout: FieldLayout, space: FiniteElements) -> None:
        self.layout, self._space = layout, space
        self.shapes, self.names = layout.shapes, layout.names
        self.template: Any = layout.create()
        self._field = space.create_vec()

    some = True

    def at(self, space: FiniteElements, boundary: str) -> sparse.csr_array:
        """Return the matrix from coefficients to values at the points of a space."""
        return self._space.values_at(space, boundary)

    def split(self, p: PETSc.Vec | Array) -> tuple[Array, Array]:
        """Return numbers [m], and the coefficients [., K] that the rank reads."""
        if isinstance(p, np.ndarray):  # what looks at branches, on one rank, has arrays
            numbers, p = p, self.layout.create()
            write(p, numbers)
        columns: list[Array] = []
        for name in self.names:
            write(self._field, read(p)[self.layout.parts[name]])
            columns.append(self._space.coefficients(self._field))
        return self.layout.numbers(p), np.hstack(columns)

    def joined(self, sums: Array, by_fields: Array, out: PETSc.Vec) -> None:
        """Fill a vector with derivatives from the rank's sums [m] and what is at points [., K]."""
        total = summed(sums, self.layout.grid.comm)
        own = np.empty((self.layout.points, len(self.names)))
        for k in range(len(self.names)):
            self._space.add(by_fields[:, k : k + 1], self._field)
            own[:, k] = read(self._field)
        self.layout.fill(total, own, out)


def admit_parameters(
    space: FiniteElements, shapes: Shapes, fields: Sequence[str], field_space: FiniteElements | None
) -> Numbers | Fields:
    """Return the parameters, fields among them on ``field_space``, or on the basis of ``space``."""
    if not len(fields):
        return Numbers(shapes, space.comm)
    own = field_space
    if own is None:
        own = FiniteElements(space.basis, comm=space.comm)
    return Fields(field_layout(own, shapes, fields), own)
