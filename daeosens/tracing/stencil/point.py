"""A grid's point with those around it: what the function of ``trace_stencil`` sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from daeosens.errors import InputError
from daeosens.problem.grids import Grid
from daeosens.tracing import numpy_functions  # noqa: F401 (fills the tables)  # type: ignore
from daeosens.tracing.casadi import casadi
from daeosens.tracing.named_parameters import Shapes
from daeosens.tracing.source_location import traced_call
from daeosens.tracing.symbols import Symbol, as_symbol

Offset: TypeAlias = tuple[int, ...]
"""Points from the centre along x, y, z."""

Slope: TypeAlias = Callable[[Any, Any], Any]
"""``slope(u, x)``: outwards, of values [dof] at a place on the edge."""


class Neighbourhood:
    """The unknowns at one point of a grid, and at the points around it.

    Attributes
    ----------
    center : array [dof]
        The unknowns at the point.
    x : array [dimensions]
        Where the point is.
    spacing : tuple of float
        Distance of neighbouring points along each dimension.
    """

    def __init__(self, grid: Grid, x: Any, slope: Slope | None = None) -> None:
        self.spacing = grid.spacing
        self.x = Symbol(x, (len(self.spacing),), constant=True)
        self._grid, self._slope = grid, slope
        self.graphs: dict[Offset, Any] = {}

    def __getitem__(self, offset: Any) -> Symbol:
        """Return the unknowns [dof] at a point so many points away along x, y, z."""
        steps = cast("tuple[Any, ...]", offset if isinstance(offset, tuple) else (offset,))
        whole = all(isinstance(step, (int, np.integer)) for step in steps)
        if not whole or len(steps) != len(self.spacing):
            raise InputError(
                f"u[{', '.join(map(str, steps))}]",
                expected=f"{len(self.spacing)} integers, the offset along each dimension",
                remedy="u.center for the unknowns at the point itself",
            )
        key = tuple(int(step) for step in steps)
        return self._mirrored(key, 0) if self._grid.boundary == "neumann" else self._read(key)

    def _read(self, key: Offset) -> Symbol:
        dof = self._grid.dof
        # a neighbour that is read twice is one symbol; who is never asked for is never loaded
        if key not in self.graphs:
            self.graphs[key] = casadi.MX.sym(f"u{len(self.graphs)}", dof)
        return Symbol(self.graphs[key], (dof,), constant=True)

    def _mirrored(self, key: Offset, axis: int) -> Any:
        """Return what is read, points beyond the edges along this and later axes mirrored.

        A point beyond the edge is as far from it as its image inside, whose values it has, and more
        by a slope across the edge.  Which point it is, and so which is its image, is told by x:
        every function of the points is the same then, and its derivatives know the boundary.
        """
        if axis == len(key):
            return self._read(key)
        distance, count = key[axis], self._grid.shape[axis]
        if abs(distance) > count // 2:
            raise InputError(
                f"u{list(key)} on a grid of shape {self._grid.shape}",
                expected="points at most half a grid away",
            )
        # in the middle of the grid: the neighbour itself
        result: Any = self._mirrored(key, axis + 1)
        side = -1 if distance < 0 else 1
        first, h = self._grid.origin[axis], self.spacing[axis]
        for inside in range(abs(distance)):  # points between this one and the edge
            place = first + h * (inside if side < 0 else count - 1 - inside)
            beyond = abs(distance) - 1 - inside
            # the edge is half a spacing beyond the last point, so that a point as far outside has
            # its image as far inside
            image = (*key[:axis], side * (inside - beyond), *key[axis + 1 :])
            value: Any = self._mirrored(image, axis + 1)
            if self._slope is not None:
                # u beyond = u image + distance of both times the slope
                value = value + (2 * beyond + 1) * h * self._across(axis, side, key, place)
            here: Any = self.x[axis]
            # x is a number of the point, so that this choice is no branch of the state
            near: Any = abs(here - place) < 0.5 * h
            result = cast("Any", np.where(near, value, result))
        return result

    def _across(self, axis: int, side: int, key: Offset, place: float) -> Any:
        """Return the slope [dof] outwards across an edge, from the point beside it.

        Of values on the edge itself to second order, as they follow from a first slope.
        """
        assert self._slope is not None
        count, h = self._grid.shape[axis], self.spacing[axis]
        first, last = self._grid.box[axis]
        numbers = round((place - self._grid.origin[axis]) / h)
        inner = -numbers if side < 0 else count - 1 - numbers
        beside: Any = self._mirrored((*key[:axis], inner, *key[axis + 1 :]), axis + 1)
        where = [
            self.x[k] + distance * self.spacing[k] if k != axis else (first if side < 0 else last)
            for k, distance in enumerate(key)
        ]
        x: Any = np.stack([as_symbol(coordinate) for coordinate in where])
        slope: Any = self._slope(beside, x)
        # half a spacing on, with the slope at the point: the value on the edge to O(h^2)
        return self._slope(beside + 0.5 * h * slope, x)

    @property
    def center(self) -> Symbol:
        """The unknowns [dof] at the point."""
        return self[(0,) * len(self.spacing)]

    def laplacian(self) -> Symbol:
        """Return the second derivatives added up [dof]: three points along each dimension."""
        total = self._second(0)
        for axis in range(1, len(self.spacing)):
            total = total + self._second(axis)
        return total

    def gradient(self) -> tuple[Symbol, ...]:
        """Return the central differences along each dimension, [dof] each."""
        return tuple(
            (self._beside(axis, 1) - self._beside(axis, -1)) * (0.5 / h)
            for axis, h in enumerate(self.spacing)
        )

    def _second(self, axis: int) -> Symbol:
        sides: Any = self._beside(axis, -1) + self._beside(axis, 1)
        # a division takes as long as all the rest at the point
        return (sides - 2.0 * self.center) * self.spacing[axis] ** -2

    def _beside(self, axis: int, distance: int) -> Any:
        return self[tuple(distance if k == axis else 0 for k in range(len(self.spacing)))]


@dataclass(frozen=True, eq=False)
class PointGraph:
    """f at one point as scalars.

    Attributes
    ----------
    t, p, x : casadi.SX
    u : mapping of offset to casadi.SX [dof]
        The unknowns that it reads.
    value : casadi.SX [dof]
    """

    t: Any
    p: Any
    x: Any
    u: Mapping[Offset, Any]
    value: Any


def point_graph(
    function: Callable[..., Any],
    shapes: Shapes,
    grid: Grid,
    slope: Callable[..., Any] | None = None,
) -> PointGraph:
    """Call the function (t, u, p) of a point with symbols.

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

    def across(u: Any, place: Any) -> Any:
        def called(*of: Any) -> Symbol:
            assert slope is not None
            return as_symbol(slope(*of))

        rate = traced_call(called, "slope", time, u, place, named)
        if rate.shape not in ((), (dof,)):
            raise InputError(f"'slope' returned shape {rate.shape}", expected=f"shape ({dof},)")
        return rate

    point = Neighbourhood(grid, x, None if slope is None else across)
    result = traced_call(lambda *of: as_symbol(function(*of)), "rhs", time, point, named)
    if dof == 1 and result.shape == ():
        result = result.reshape((1,))
    if result.shape != (dof,):
        raise InputError(f"'rhs' returned shape {result.shape}", expected=f"shape ({dof},)")
    inputs = [t, p, x, *point.graphs.values()]
    # vectors become scalars, which C compilers put into registers
    scalars = [casadi.SX.sym(f"s{k}", symbol.numel()) for k, symbol in enumerate(inputs)]
    traced = casadi.Function("f", inputs, [casadi.densify(result.graph)])
    value = casadi.cse(casadi.densify(traced(*scalars)))
    unknowns = dict(zip(point.graphs, scalars[3:], strict=True))
    return PointGraph(scalars[0], scalars[1], scalars[2], unknowns, value)
