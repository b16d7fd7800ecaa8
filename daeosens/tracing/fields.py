"""Parameter fields beside numbers: one distributed vector, and what functions of points read of it.

The vector of all parameters begins with the numbers, on the first rank; then each rank has the
values of the first field at its own points, those of the second one, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, is_real, name_list, nearest, together
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import (
    Array,
    as_float,
    created,
    finite_array,
    read,
    refuse_not_finite,
    write,
)
from daeosens.problem.callback_guard import on_every_rank
from daeosens.problem.grids import FiniteElements, Grid
from daeosens.problem.grids.stencil_matrix import wide_dm
from daeosens.tracing.named_parameters import Named, Shapes


@dataclass(frozen=True, eq=False)
class FieldLayout:
    """Where numbers and fields are in the vector of all parameters.

    Attributes
    ----------
    grid : Grid or FiniteElements
        With one unknown at each point: ``grid.create_vec()`` is a field.
    shapes : Shapes
        Of the numbers.
    names : tuple of str
        The fields, in order.

    Examples
    --------
    >>> grid = Grid(((0.0, 1.0),), (4,), comm=PETSc.COMM_SELF)
    >>> layout = FieldLayout(grid, Shapes({"rate": ()}), ("depth",))
    >>> layout.pack({"rate": 2.0, "depth": 0.5}).array
    array([2. , 0.5, 0.5, 0.5, 0.5])
    """

    grid: Grid | FiniteElements
    shapes: Shapes
    names: tuple[str, ...]

    @cached_property
    def points(self) -> int:
        """How many points the rank has."""
        return prod(self.grid.owned_shape)

    @cached_property
    def first(self) -> int:
        """Where the fields begin in the rank's own part: after the numbers, which the first has."""
        return self.shapes.size if self.grid.comm.rank == 0 else 0

    @cached_property
    def parts(self) -> Mapping[str, slice]:
        """Where each parameter is in the rank's own part, fields and numbers by name."""
        own = self.first > 0
        numbers = {
            name: slice(start, start + size) if own else slice(0, 0)
            for name, (start, size, _) in self.shapes.places.items()
        }
        starts = range(self.first, self.first + len(self.names) * self.points, self.points)
        fields = {
            name: slice(start, start + self.points)
            for name, start in zip(self.names, starts, strict=True)
        }
        return numbers | fields

    def create(self) -> PETSc.Vec:
        """Return a new vector of zeros.  Collective."""
        vec: Any = PETSc.Vec().create(comm=self.grid.comm)
        vec.setSizes((self.first + len(self.names) * self.points, None))
        vec.setType(PETSc.Vec.Type.STANDARD)
        vec.zeroEntries()
        return vec

    def pack(self, values: Mapping[str, Any]) -> PETSc.Vec:
        """Return the vector of parameters given by name.  Collective.

        Raises
        ------
        InputError
            A name that is missing or unknown, another shape, a value that is not finite; on every
            rank.
        """
        known = (*self.shapes.shapes, *self.names)
        agree(self.grid.comm, "pack", names=list(values))
        complaints = [f"{name} is missing" for name in known if name not in values]
        complaints += [
            f"there is no parameter {name}; try: {nearest(name, known) or ', '.join(known)}"
            for name in values
            if name not in known
        ]
        if complaints:
            raise together(complaints, heading="parameters")
        result = self.create()
        with on_every_rank(self.grid.comm):
            numbers = self.shapes.pack({name: values[name] for name in self.shapes.shapes})
            parts = [self.own_values(values[name], name) for name in self.names]
        array: Any = result.getArray()
        array[: self.first] = numbers[: self.first]
        for name, part in zip(self.names, parts, strict=True):
            array[self.parts[name]] = part
        return refuse_not_finite(result, "parameters")

    def own_values(self, values: Any, name: str) -> Array:
        """Return the rank's own values of a field, from a number, an array or a vector.

        Raises
        ------
        InputError
            It is none of them, or has another shape.
        """
        if isinstance(values, PETSc.Vec):
            local, size = created(values, name).getLocalSize(), values.getSize()
            if (local, size) != (self.points, prod(self.grid.shape)):
                raise InputError(
                    f"{name} is a Vec of {size}, {local} of them on this rank",
                    expected=f"{prod(self.grid.shape)}, {self.points} of them on this rank",
                    remedy="model.fields.grid.create_vec()",
                )
            return read(values)
        if is_real(values):
            return np.full(self.points, as_float(values))
        shape = self.grid.owned_shape[:-1]
        array = finite_array(values, name)
        if array.shape not in (shape, (self.points,)):
            raise InputError(
                f"{name} has shape {array.shape}",
                expected=f"{shape}, a value for each point of this rank, a number or a Vec",
                remedy="f(*model.fields.grid.coordinates())",
            )
        return array.ravel()

    def unpack(self, p: PETSc.Vec) -> Named:
        """Return numbers and fields by name, from a vector of all or of their gradient.

        Numbers are arrays on every rank, fields new vectors of ``grid``.  Collective.

        Raises
        ------
        InputError
            A vector that is laid out in another way.
        """
        self.check(p)
        fields: dict[str, PETSc.Vec] = {}
        for name in self.names:
            fields[name] = self.grid.create_vec()
            write(fields[name], read(p)[self.parts[name]])
        return self.shapes.split(self.numbers(p), fields)

    def check(self, p: PETSc.Vec, name: str = "p") -> None:
        """Refuse a vector that is laid out in another way.  Collective.

        Raises
        ------
        InputError
            On every rank.
        """
        agree(self.grid.comm, "unpack")
        with on_every_rank(self.grid.comm):
            local = created(p, name, "gradient.p_vec").getLocalSize()
            expected = self.first + len(self.names) * self.points
            if local != expected:
                raise InputError(
                    f"{name} has {local} values on this rank",
                    expected=f"{expected}, as model.pack(...)",
                )

    def numbers(self, p: PETSc.Vec) -> Array:
        """Return the numbers [m] on every rank.  Collective."""
        values = read(p)[: self.first].copy()
        if self.grid.comm.size == 1 or not self.shapes.size:
            return values
        shared: Array = self.grid.comm.tompi4py().bcast(values)
        return shared

    def fill(self, numbers: Array | None, fields: Array | None, out: PETSc.Vec) -> None:
        """Fill the vector of all from numbers [m] and values of the fields [points, fields]."""
        array: Any = out.getArray()
        array[: self.first] = 0.0 if numbers is None else numbers[: self.first]
        if fields is None:
            array[self.first :] = 0.0
        else:
            array[self.first :].reshape(len(self.names), self.points)[...] = fields.T


def field_layout(grid: Grid | FiniteElements, shapes: Shapes, fields: Sequence[str]) -> FieldLayout:
    """Return the layout of numbers and fields on a grid.

    Raises
    ------
    InputError
        Names that are none, or are given twice.
    """
    names = name_list(fields, "fields")
    twice = [name for k, name in enumerate(names) if name in names[:k] or name in shapes.shapes]
    if twice:
        raise InputError(f'fields names "{twice[0]}" twice', expected="one name for each parameter")
    if isinstance(grid, FiniteElements):
        return FieldLayout(grid, shapes, tuple(names))
    points = replace(grid, dof=1, names=())
    if points.dm.getCorners() != grid.dm.getCorners():
        raise InputError(
            "the grid's points are dealt out to ranks in another way than a field's",
            remedy="another number of ranks",
        )
    return FieldLayout(points, shapes, tuple(names))


def coordinate_tables(grid: Grid, around: int) -> Array:
    """Return widths and centres of cells along stretched dimensions, with points around the box.

    Beyond edges that are not periodic: those of the images inside.
    """
    corner, sizes = grid.dm.getCorners()
    shape = tuple(n + 2 * around for n in reversed(sizes))
    tables: list[Array] = []
    for axis, stretched in enumerate(grid.stretched):
        if not stretched:
            continue
        edges = np.array(grid.box[axis])
        wraps = grid.boundaries[axis] == "periodic"
        along = [-1 if k == axis else 1 for k in reversed(range(len(shape)))]
        for table in (np.diff(edges), 0.5 * (edges[1:] + edges[:-1])):
            padded = np.pad(table, around, mode="wrap" if wraps else "symmetric")
            part = padded[corner[axis] : corner[axis] + sizes[axis] + 2 * around]
            tables.append(np.broadcast_to(part.reshape(along), shape).ravel())
    return np.concatenate([np.empty(0), *tables])


class FieldMemory:
    """The parameters as functions of points read them: numbers, then fields with points around.

    Parameters
    ----------
    layout : FieldLayout
    around : int
        How many points around the rank's own ones are read along each dimension.
    known : array, optional
        What is read after them and is no parameter.
    """

    def __init__(self, layout: FieldLayout, around: int, known: Array | None = None) -> None:
        self._layout, self._around = layout, around
        grid = layout.grid
        assert isinstance(grid, Grid)
        self._own = grid.owned_shape[:-1]
        self._shape = tuple(n + 2 * around for n in self._own)
        self._several = grid.comm.size > 1
        # ghost points that are other ranks'
        self._dm = wide_dm(grid, around) if self._several and around else None
        self._edges = list(self._beyond())
        self._seen: tuple[PETSc.Vec, int] | None = None
        self._known = 0 if known is None else known.size
        self._array = np.zeros(self.size)
        if known is not None:
            self._array[self.size - self._known :] = known

    @property
    def size(self) -> int:
        """How many numbers there are."""
        fields = len(self._layout.names) * prod(self._shape)
        return self._layout.shapes.size + fields + self._known

    def read(self, p: PETSc.Vec) -> Array:
        """Return what is read of a vector, valid until the next call.  Collective."""
        if not (self._several or self._around or self._known):
            return read(p)  # just as it is
        seen = self._seen is not None
        if self._seen is not None:
            vec, state = self._seen
            seen = vec.handle == p.handle and state == p.stateGet()
        if self._several:  # what a rank has changed alone, others must exchange with it
            seen = min(self._layout.grid.comm.tompi4py().allgather(seen))
        if not seen:
            self._fill(p)
            # the vector is kept: its address is not that of another one meanwhile
            self._seen = p, p.stateGet()
        return self._array

    def _fill(self, p: PETSc.Vec) -> None:
        layout = self._layout
        m, values = layout.shapes.size, read(p)
        self._array[:m] = layout.numbers(p)
        fields = self._array[m : self.size - self._known]
        blocks = fields.reshape(len(layout.names), *self._shape)
        inner = tuple(slice(self._around, self._around + n) for n in self._own)
        for name, block in zip(layout.names, blocks, strict=True):
            own = values[layout.parts[name]]
            if self._dm is None:
                block[inner] = own.reshape(self._own)
            else:
                whole, local = self._dm.getGlobalVec(), self._dm.getLocalVec()
                write(whole, own)
                self._dm.globalToLocal(whole, local)
                block[...] = read(local).reshape(self._shape)
                self._dm.restoreGlobalVec(whole)
                self._dm.restoreLocalVec(local)
            for axis, to, source in self._edges:
                rows = block.swapaxes(0, axis)
                rows[to] = rows[source]

    def _beyond(self) -> Iterator[tuple[int, int, int]]:
        """Give axis, number and source of rows that no rank has.

        On the other side of a periodic grid; beyond other edges the last row inside, so that
        functions are finite there too.
        """
        grid, width = self._layout.grid, self._around
        assert isinstance(grid, Grid)
        corner, _ = grid.dm.getCorners()
        kinds = reversed(grid.boundaries)
        places = zip(reversed(corner), self._own, reversed(grid.shape), kinds, strict=True)
        for axis, (start, own, count, kind) in enumerate(places):
            periodic = kind == "periodic"
            if periodic and self._several:  # the DM has them
                continue
            for number in (*range(width), *range(width + own, 2 * width + own)):
                at = start + number - width
                inside = at % count if periodic else min(max(at, 0), count - 1)
                if inside != at:
                    yield axis, number, inside - start + width
