"""A grid's point with those around it: what the function of ``trace_stencil`` sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from daeosens.errors import InputError
from daeosens.problem.grids import Grid
from daeosens.tracing import numpy_functions  # noqa: F401 (fills the tables)  # type: ignore
from daeosens.tracing.casadi import casadi
from daeosens.tracing.named_parameters import Named, Shapes
from daeosens.tracing.source_location import traced_call
from daeosens.tracing.stencil.differences import (
    DEPTH,
    TABLES,
    Differences,
    Location,
    Offset,
    Parameters,
    Quantity,
    admit_offset,
)
from daeosens.tracing.stencil.edges import Edges, Face
from daeosens.tracing.symbols import Symbol, as_symbol

Beyond: TypeAlias = Callable[[Face, Any, Callable[[], Any], "tuple[float, float]", Any], Any]
"""``beyond(face, image, beside, distances, x)``: as ``Edges.beyond`` at one time."""


class Neighbourhood(Quantity):
    """Values at one point of a grid, and at the points around it: its unknowns, or its fields.

    Attributes
    ----------
    graphs : dict of offset to casadi.MX [count]
        What has been asked for.
    """

    def __init__(
        self,
        location: Location,
        count: int,
        kinds: Sequence[str],
        beyond: Beyond | None = None,
        parameters: Parameters = lambda _view: None,
    ) -> None:
        grid = location.grid
        self.spacing, self.location, self.parameters = grid.spacing, location, parameters
        self._grid, self._beyond, self._count, self._kinds = grid, beyond, count, kinds
        self.graphs: dict[Offset, Any] = {}

    def _at(self, offset: Offset) -> Any:
        return self._mirrored(offset, 0)

    def read(self, key: Offset) -> Symbol:
        """Return the values that the loops have there."""
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
            return self.read(key)
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
        here: Any = self.location.uniform[axis]
        for inside in range(abs(distance)):  # points between this one and the edge
            place = first + h * (inside if side < 0 else count - 1 - inside)
            value = 0.0 if self._kinds[axis] == "zero" else self._image(key, axis, side, inside)
            # x is a number of the point, so that this choice is no branch of the state
            near: Any = abs(here - place) < 0.5 * h
            result = cast("Any", np.where(near, value, result))
        return result

    def _image(self, key: Offset, axis: int, side: int, inside: int) -> Any:
        """Return the values beyond an edge, with so many points between this one and the edge."""
        beyond = abs(key[axis]) - 1 - inside
        widths = self._grid.widths(axis)[::-side]

        def moved(distance: int) -> Any:
            return self._mirrored((*key[:axis], distance, *key[axis + 1 :]), axis + 1)

        # the edge is half a cell beyond the last point, so that a point as far outside has its
        # image as far inside
        image = moved(side * (inside - beyond))
        if self._beyond is None:
            return image
        edge = self._grid.ends[axis][0 if side < 0 else 1]
        along = (*key[:axis], 0, *key[axis + 1 :])
        there: Any = self.location.moved(along).x
        where = [there[k] if k != axis else edge for k in range(len(key))]
        x: Any = np.stack([as_symbol(coordinate) for coordinate in where])
        distance = 2.0 * float(sum(widths[:beyond])) + float(widths[beyond])
        distances = distance, 0.5 * float(widths[0])
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
    location : Location
        From where it is seen.
    depth : int, optional
        Of the function of points that sees it, see ``known_here``.
    """

    def __init__(
        self,
        around: Neighbourhood,
        number: int,
        name: str,
        location: Location,
        depth: int | None = None,
    ) -> None:
        self.spacing, self.location = around.spacing, location
        self._around, self._number, self._name, self._depth = around, number, name, depth
        super().__init__(self.beside(0, 0).graph, (), constant=True)

    def __getitem__(self, offset: Any) -> Symbol:
        """Return the value at a point so many points away along x, y, z."""
        return self._at(admit_offset(offset, len(self.spacing), f"p.{self._name}"))

    @property
    def center(self) -> Symbol:
        """The value at the point, as the field itself."""
        return self.beside(0, 0)

    @property
    def graph(self) -> Any:
        """The graph of the value at the point."""
        self._refuse_elsewhere()
        return super().graph

    def known_here(self) -> Field:
        """Return the field for the function of points that is called, and no other one."""
        return Field(self._around, self._number, self._name, self.location, DEPTH.get())

    def _refuse_elsewhere(self) -> None:
        if self._depth not in (None, DEPTH.get()):
            raise InputError(
                f'a function inside of another one reads the field "{self._name}" of that one, '
                "which is at another point",
                expected="the p of the function itself: u.map(lambda u, p: ...)",
            )

    def moved(self, offset: Offset) -> Field:
        """Return the field as it is seen so many points away."""
        return Field(self._around, self._number, self._name, self.location.moved(offset))

    def _at(self, offset: Offset) -> Any:
        self._refuse_elsewhere()
        place = tuple(a + b for a, b in zip(offset, self.location.offset, strict=True))
        return self._around[place][self._number]


@dataclass(frozen=True, eq=False)
class PointGraph:
    """f at one point as scalars.

    Attributes
    ----------
    t, p, x : casadi.SX
    u : mapping of offset to casadi.SX [dof]
        The unknowns that it reads.
    fields : mapping of offset to casadi.SX [fields]
        The parameter fields that it reads, and what is known at each point after them.
    parameter_fields : int
        How many of them are parameters.
    value : casadi.SX [dof]
    """

    t: Any
    p: Any
    x: Any
    u: Mapping[Offset, Any]
    fields: Mapping[Offset, Any]
    parameter_fields: int
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
    # beyond an edge, where there is no value of the user's, a field has that of its image inside
    images = ["periodic" if kind == "periodic" else "neumann" for kind in grid.boundaries]
    location = Location(
        grid,
        x,
        lambda number, offset: around.read(offset)[len(fields) + number],
        (0,) * len(grid.shape),
    )
    around = Neighbourhood(location, len(fields) + TABLES * sum(grid.stretched), images)
    of_fields = {name: Field(around, k, name, location) for k, name in enumerate(fields)}
    flat = Symbol(p, (shapes.size,), constant=True)

    def parameters(view: Callable[[Any], Any]) -> Named:
        return shapes.split(flat, {name: view(field) for name, field in of_fields.items()})

    point = Neighbourhood(location, dof, kinds, beyond if edges else None, parameters)
    point.names = grid.names
    known = parameters(lambda field: field.known_here())
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
    return PointGraph(scalars[0], scalars[1], scalars[2], unknowns, values, len(fields), value)
