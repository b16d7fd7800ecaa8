"""The map from what is moved to fields and numbers: scales, and coarser grids."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, together
from daeosens.functional.parameter import Parameter, entries_of, exponential
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.callback_guard import on_every_rank
from daeosens.problem.grids.finite_elements import FiniteElements
from daeosens.problem.grids.interpolation import interpolation
from daeosens.problem.grids.structured import Grid
from daeosens.tracing.fields import FieldLayout
from daeosens.tracing.model import FieldModel

BOUNDS = ("lower", "upper")
"""Of a parameter, beside its value."""


@dataclass(frozen=True, eq=False)
class Block:
    """Free parameters that are together in x and in p.

    Attributes
    ----------
    name : str
    to : array of int
        Where they are in the rank's own part of p.
    at : slice
        Where what is moved is in the rank's own part of x.
    log : array of bool
        Of those in p: which are exponentials of what is moved.
    numbers : mapping of str to array
        "value", "lower" and "upper" of what is moved, in its scale.
    grid : Grid or None
        Of a field: its points in x.
    matrix : Mat or None
        From what is moved on a coarser grid to the points of the grid.
    """

    name: str
    to: npt.NDArray[np.intp]
    at: slice
    log: npt.NDArray[np.bool_]
    numbers: Mapping[str, Array]
    grid: Grid | FiniteElements | None
    matrix: PETSc.Mat | None


class FieldScaling:
    """x -> p = s(I x) of one problem: scales s, and interpolations I from coarser grids."""

    def __init__(
        self, model: FieldModel, entries: Mapping[str, Parameter], meshes: Mapping[str, Grid]
    ) -> None:
        layout = self._layout = model.fields
        self._comm = model.comm
        self._fixed = layout.create()
        self._logarithmic = any(
            np.any(entry.free) and entry.scale == "log" for entry in entries.values()
        )
        self.blocks: list[Block] = []
        with on_every_rank(model.comm):
            self._numbers(entries)
        for name in layout.names:
            self._field(name, entries[name], meshes.get(name))
        self.size = self.blocks[-1].at.stop if self.blocks else 0
        self.logs = np.zeros(self._fixed.getLocalSize(), dtype=bool)
        for block in self.blocks:
            self.logs[block.to] = block.log

    def vec(self, part: str) -> PETSc.Vec:
        """Return "value", "lower" or "upper" of all that is moved [k]."""
        vec: Any = PETSc.Vec().create(comm=self._comm)
        vec.setSizes((self.size, None))
        vec.setType(PETSc.Vec.Type.STANDARD)
        write(vec, np.concatenate([block.numbers[part] for block in self.blocks]))
        return vec

    def parameters(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return p [m]."""
        p = self._fixed.copy()
        moved = self.forward(x)
        free = np.concatenate([block.to for block in self.blocks])
        if self._logarithmic:
            with on_every_rank(self._comm):
                for block in self.blocks:
                    exponential(
                        float(moved[block.to].max(where=block.log, initial=0.0)), block.name
                    )
        moved[self.logs] = np.exp(moved[self.logs])
        array: Any = p.getArray()
        array[free] = moved[free]
        return p

    def slopes(self, x: PETSc.Vec) -> Array:
        """Return s'(I x), of the rank's own part of p; 1 where a value itself is moved."""
        return np.where(self.logs, read(self.parameters(x)), 1.0)

    def forward(self, dx: PETSc.Vec) -> Array:
        """Return I dx, the rank's own part of p; 0 for fixed parameters."""
        result = np.zeros(self._fixed.getLocalSize())
        for block in self.blocks:
            values = read(dx)[block.at]
            if block.matrix is not None:
                coarse, fine = cast("Any", block.matrix.createVecs())
                write(coarse, values)
                block.matrix.mult(coarse, fine)
                values = read(fine)
            result[block.to] = values
        return result

    def back(self, by_p: Array) -> PETSc.Vec:
        """Return I^T of the rank's own part of a derivative in p, as a vector [k]."""
        parts: list[Array] = []
        for block in self.blocks:
            values = by_p[block.to]
            if block.matrix is not None:
                coarse, fine = cast("Any", block.matrix.createVecs())
                write(fine, values)
                block.matrix.multTranspose(fine, coarse)
                values = read(coarse)
            parts.append(values)
        result = self.vec("value")
        write(result, np.concatenate(parts))
        return result

    def _add(
        self,
        name: str,
        to: Iterator[int] | range,
        log: Any,
        numbers: Mapping[str, Array],
        grid: Grid | FiniteElements | None = None,
        matrix: PETSc.Mat | None = None,
    ) -> None:
        start = self.blocks[-1].at.stop if self.blocks else 0
        at = slice(start, start + len(numbers["value"]))
        places = np.array(list(to), dtype=int)
        logs = np.broadcast_to(np.asarray(log, dtype=bool), places.shape)
        self.blocks.append(Block(name, places, at, logs, numbers, grid, matrix))

    def _numbers(self, entries: Mapping[str, Parameter]) -> None:
        """Add the free numbers, which the first rank has."""
        layout = self._layout
        own: Any = self._fixed.getArray()
        complaints: list[str] = []
        for name, (start, _, shape) in layout.shapes.places.items():
            whole = entries[name]
            several = entries_of(name, whole)
            if shape and len(several) == 1 and name in several:  # one number for a whole block
                value = np.full(shape, whole.value)
                several = Parameter(
                    value, whole.free, whole.lower, whole.upper, whole.scale
                ).entries(name)
            complaints += [
                line for label, entry in several.items() for line in entry.complaints(label)
            ]
            count = math.prod(shape)
            if len(several) != count:
                complaints.append(
                    f'parameter "{name}" has {len(several)} values; expected: shape {shape}'
                )
            if complaints:
                continue
            listed = list(several.values())
            if not layout.first:
                listed = []
            for k, entry in enumerate(listed):
                own[start + k] = entry.value
            free = [(start + k, entry) for k, entry in enumerate(listed) if entry.free]
            if not any(entry.free for entry in several.values()):
                continue
            parts = {
                part: np.array([entry.scaled(getattr(entry, part)) for _, entry in free])
                for part in ("value", *BOUNDS)
            }
            places = [place for place, _ in free]
            self._add(name, iter(places), [entry.scale == "log" for _, entry in free], parts)
        if complaints:
            raise together(complaints, heading="FieldParameters")

    def _field(self, name: str, entry: Parameter, mesh: Grid | None) -> None:
        """Add a field, on the grid itself or on a coarser one.  Collective."""
        layout = self._layout
        place = layout.parts[name]
        points: Grid | FiniteElements = layout.grid
        matrix = None
        if (
            mesh is not None
            and isinstance(points, Grid)
            and (mesh.owned_shape != points.owned_shape or mesh.shape != points.shape)
        ):
            matrix = interpolation(mesh, points)
            points = mesh
        with on_every_rank(self._comm):
            numbers = {
                part: _scaled(getattr(entry, part), f'{part} of "{name}"', layout, points, entry)
                for part in ("value", *BOUNDS)
            }
        self._refuse_outside(name, numbers)
        if entry.free:
            self._add(
                name, range(place.start, place.stop), entry.scale == "log", numbers, points, matrix
            )
            return
        value = numbers["value"]
        own: Any = self._fixed.getArray()
        own[place] = np.exp(value) if entry.scale == "log" else value

    def _refuse_outside(self, name: str, numbers: Mapping[str, Array]) -> None:
        value, lower, upper = (numbers[part] for part in ("value", *BOUNDS))
        with on_every_rank(self._comm):
            if not (lower <= upper).all():
                raise InputError(f'bounds of "{name}" cross', expected="lower <= upper everywhere")
            if not ((lower <= value) & (value <= upper)).all():
                raise InputError(
                    f'parameter "{name}" is outside its bounds at some point',
                    expected="a start between them",
                )


def _scaled(
    values: Any, name: str, layout: FieldLayout, mesh: Grid | FiniteElements, entry: Parameter
) -> Array:
    """Return the rank's own values of a field, as they are moved."""
    if isinstance(values, (int, float)) and math.isinf(values):
        return np.full(math.prod(mesh.owned_shape), float(values))
    own: Array = FieldLayout(mesh, layout.shapes, layout.names).own_values(values, name)
    if entry.scale == "linear":
        return own
    if name.startswith("value") and (own <= 0.0).any():
        raise InputError(
            f"{name} is {own.min():g} on a log scale",
            expected="values > 0",
            remedy='a positive start, or scale="linear"',
        )
    with np.errstate(all="ignore"):
        return np.where(own > 0.0, np.log(np.maximum(own, 5e-324)), -np.inf)
