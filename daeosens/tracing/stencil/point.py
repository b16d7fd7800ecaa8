"""A grid's point with those around it: what the function of ``trace_stencil`` sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from daeosens.errors import InputError
from daeosens.problem.grids import Grid
from daeosens.tracing import numpy_functions  # noqa: F401 (fills the tables)  # type: ignore
from daeosens.tracing.casadi import casadi
from daeosens.tracing.named_parameters import Shapes
from daeosens.tracing.source_location import traced_call
from daeosens.tracing.stencil.edges import Edges, Face
from daeosens.tracing.symbols import Symbol, as_symbol

Offset: TypeAlias = tuple[int, ...]
"""Points from the centre along x, y, z."""

Beyond: TypeAlias = Callable[[Face, Any, Callable[[], Any], "tuple[float, float]", Any], Any]
"""``beyond(face, image, beside, distances, x)``: as ``Edges.beyond`` at one time."""


class Differences:
    """Differences of what is known around a point.

    Attributes
    ----------
    spacing : tuple of float
        Distance of neighbouring points along each dimension.
    """

    spacing: tuple[float, ...]

    def _at(self, offset: Offset) -> Any:
        raise NotImplementedError

    def laplacian(self, conductivity: Field | None = None) -> Symbol:
        """Return the second derivatives added up: three points along each dimension.

        Parameters
        ----------
        conductivity : field, optional
            k of div(k grad u), conservative: between two points k is the mean of theirs.
        """
        if conductivity is not None and not isinstance(conductivity, Field):
            raise InputError(
                f"u.laplacian({type(conductivity).__name__})",
                expected="a field of the parameters, u.laplacian(p.k)",
                remedy="p.k * u.laplacian() for a number",
            )
        second = self._second if conductivity is None else partial(self._flux, conductivity)
        total = second(0)
        for axis in range(1, len(self.spacing)):
            total = total + second(axis)
        return total

    def gradient(self) -> tuple[Symbol, ...]:
        """Return the central differences along each dimension."""
        return tuple(
            (self._beside(axis, 1) - self._beside(axis, -1)) * (0.5 / h)
            for axis, h in enumerate(self.spacing)
        )

    def _second(self, axis: int) -> Symbol:
        sides: Any = self._beside(axis, -1) + self._beside(axis, 1)
        # a division takes as long as all the rest at the point
        return (sides - 2.0 * self._beside(axis, 0)) * self.spacing[axis] ** -2

    def _flux(self, conductivity: Field, axis: int) -> Symbol:
        """Return what flows in through both faces across an axis."""
        here: Any = self._beside(axis, 0)
        inflow: Any = 0.0
        for side in (-1, 1):
            offset = self._step(axis, side)
            mean: Any = conductivity[self._step(axis, 0)] + conductivity[offset]
            inflow = inflow + mean * (self._at(offset) - here)
        return inflow * (0.5 * self.spacing[axis] ** -2)

    def _beside(self, axis: int, distance: int) -> Any:
        return self._at(self._step(axis, distance))

    def _step(self, axis: int, distance: int) -> Offset:
        return tuple(distance if k == axis else 0 for k in range(len(self.spacing)))


class Neighbourhood(Differences):
    """Values at one point of a grid, and at the points around it: its unknowns, or its fields.

    Attributes
    ----------
    x : array [dimensions]
        Where the point is.
    graphs : dict of offset to casadi.MX [count]
        What has been asked for.
    """

    def __init__(
        self,
        grid: Grid,
        x: Any,
        count: int,
        kinds: Sequence[str],
        beyond: Beyond | None = None,
    ) -> None:
        self.spacing = grid.spacing
        self.x = Symbol(x, (len(self.spacing),), constant=True)
        self._grid, self._beyond, self._count, self._kinds = grid, beyond, count, kinds
        self.graphs: dict[Offset, Any] = {}

    def __getitem__(self, offset: Any) -> Symbol:
        """Return the values [count] at a point so many points away along x, y, z."""
        return self._at(_offset(offset, len(self.spacing), "u"))

    @property
    def center(self) -> Symbol:
        """The values [count] at the point."""
        return self._beside(0, 0)

    def _at(self, offset: Offset) -> Any:
        return self._mirrored(offset, 0)

    def _read(self, key: Offset) -> Symbol:
        # a neighbour that is read twice is one symbol; who is never asked for is never loaded
        if key not in self.graphs:
            self.graphs[key] = casadi.MX.sym(f"u{len(self.graphs)}", self._count)
        return Symbol(self.graphs[key], (self._count,), constant=True)

    def _mirrored(self, key: Offset, axis: int) -> Any:
        """Return what is read, points beyond the edges along this and later axes replaced.

        A point beyond the edge is as far from it as its image inside, whose values it has but for
        what is given on the edge.  Which point it is, and so which is its image, is told by x:
        every function of the points is the same then, and its derivatives know the boundary.
        """
        if axis == len(key):
            return self._read(key)
        distance, count = key[axis], self._grid.shape[axis]
        # in the middle of the grid: the neighbour itself
        result: Any = self._mirrored(key, axis + 1)
        if self._kinds[axis] == "periodic":
            return result
        if abs(distance) > count // 2:
            raise InputError(
                f"u{list(key)} on a grid of shape {self._grid.shape}",
                expected="points at most half a grid away",
            )
        side = -1 if distance < 0 else 1
        first, h = self._grid.origin[axis], self.spacing[axis]
        here: Any = self.x[axis]
        for inside in range(abs(distance)):  # points between this one and the edge
            place = first + h * (inside if side < 0 else count - 1 - inside)
            value = 0.0 if self._kinds[axis] == "zero" else self._image(key, axis, side, inside)
            # x is a number of the point, so that this choice is no branch of the state
            near: Any = abs(here - place) < 0.5 * h
            result = cast("Any", np.where(near, value, result))
        return result

    def _image(self, key: Offset, axis: int, side: int, inside: int) -> Any:
        """Return the values beyond an edge, with so many points between this one and the edge."""
        h = self.spacing[axis]
        beyond = abs(key[axis]) - 1 - inside

        def moved(distance: int) -> Any:
            return self._mirrored((*key[:axis], distance, *key[axis + 1 :]), axis + 1)

        # the edge is half a spacing beyond the last point, so that a point as far outside has its
        # image as far inside
        image = moved(side * (inside - beyond))
        if self._beyond is None:
            return image
        edge = self._grid.box[axis][0 if side < 0 else 1]
        where = [
            self.x[k] + distance * self.spacing[k] if k != axis else edge
            for k, distance in enumerate(key)
        ]
        x: Any = np.stack([as_symbol(coordinate) for coordinate in where])
        distances = (2 * beyond + 1) * h, 0.5 * h
        return self._beyond((axis, side), image, lambda: moved(side * inside), distances, x)


class Field(Symbol, Differences):
    """A parameter with a value at each point: the one at the point, and those around it.

    Parameters
    ----------
    around : Neighbourhood
        Of all fields.
    number : int
        Which of them it is.
    name : str
    """

    def __init__(self, around: Neighbourhood, number: int, name: str) -> None:
        self.spacing = around.spacing
        self._around, self._number, self._name = around, number, name
        super().__init__(around.center[number].graph, (), constant=True)

    def __getitem__(self, offset: Any) -> Symbol:
        """Return the value at a point so many points away along x, y, z."""
        return self._at(_offset(offset, len(self.spacing), f"p.{self._name}"))

    @property
    def center(self) -> Symbol:
        """The value at the point, as the field itself."""
        return self._beside(0, 0)

    def _at(self, offset: Offset) -> Any:
        return self._around[offset][self._number]


def _offset(offset: Any, dimensions: int, name: str) -> Offset:
    """Return an offset as a key, checked."""
    steps = cast("tuple[Any, ...]", offset if isinstance(offset, tuple) else (offset,))
    whole = all(isinstance(step, (int, np.integer)) for step in steps)
    if not whole or len(steps) != dimensions:
        raise InputError(
            f"{name}[{', '.join(map(str, steps))}]",
            expected=f"{dimensions} integers, the offset along each dimension",
            remedy=f"{name}.center for the values at the point itself",
        )
    return tuple(int(step) for step in steps)


@dataclass(frozen=True, eq=False)
class PointGraph:
    """f at one point as scalars.

    Attributes
    ----------
    t, p, x : casadi.SX
    u : mapping of offset to casadi.SX [dof]
        The unknowns that it reads.
    fields : mapping of offset to casadi.SX [fields]
        The parameter fields that it reads.
    value : casadi.SX [dof]
    """

    t: Any
    p: Any
    x: Any
    u: Mapping[Offset, Any]
    fields: Mapping[Offset, Any]
    value: Any


def point_graph(
    function: Callable[..., Any],
    shapes: Shapes,
    grid: Grid,
    fields: Sequence[str] = (),
    edges: Edges | None = None,
) -> PointGraph:
    """Call the function (t, u, p) of a point with symbols; p has the fields, too.

    Raises
    ------
    InputError
        It cannot be traced, or returns another shape than [dof].
    """
    t, p, x = (
        casadi.MX.sym(name, size)
        for name, size in (("t", 1), ("p", shapes.size), ("x", len(grid.shape)))
    )
    dof = grid.dof
    time = Symbol(t, (), constant=True)
    named = shapes.split(Symbol(p, (shapes.size,), constant=True))

    def beyond(face: Face, image: Any, beside: Any, distances: Any, place: Any) -> Any:
        assert edges is not None
        return edges.beyond(face, image, beside, distances, (time, place, named))

    kinds = grid.boundaries
    if "periodic" not in kinds:  # the loops have zeros beyond edges then
        kinds = tuple("periodic" if kind == "zero" else kind for kind in kinds)
    point = Neighbourhood(grid, x, dof, kinds, beyond if edges else None)
    # beyond an edge, where there is no value of the user's, a field has that of its image inside
    images = ["periodic" if kind == "periodic" else "neumann" for kind in grid.boundaries]
    around = Neighbourhood(grid, x, len(fields), images)
    of_fields = {name: Field(around, k, name) for k, name in enumerate(fields)}
    known = shapes.split(Symbol(p, (shapes.size,), constant=True), of_fields)
    result = traced_call(lambda *of: as_symbol(function(*of)), "rhs", time, point, known)
    if dof == 1 and result.shape == ():
        result = result.reshape((1,))
    if result.shape != (dof,):
        raise InputError(f"'rhs' returned shape {result.shape}", expected=f"shape ({dof},)")
    inputs = [t, p, x, *point.graphs.values(), *around.graphs.values()]
    # vectors become scalars, which C compilers put into registers
    scalars = [casadi.SX.sym(f"s{k}", symbol.numel()) for k, symbol in enumerate(inputs)]
    traced = casadi.Function("f", inputs, [casadi.densify(result.graph)])
    value = casadi.cse(casadi.densify(traced(*scalars)))
    unknowns = dict(zip(point.graphs, scalars[3:], strict=False))
    values = dict(zip(around.graphs, scalars[3 + len(unknowns) :], strict=True))
    return PointGraph(scalars[0], scalars[1], scalars[2], unknowns, values, value)
