"""What is done with values known around a point: differences, fluxes through faces, composition."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from daeosens.errors import InputError
from daeosens.problem.grids import Grid
from daeosens.tracing.source_location import traced_call
from daeosens.tracing.symbols import Symbol, as_symbol

Offset: TypeAlias = tuple[int, ...]
"""Points from the centre along x, y, z."""

Parameters: TypeAlias = Callable[[Callable[[Any], Any]], Any]
"""``parameters(view)``: all parameters by name, fields as ``view(field)`` shows them."""

DEPTH: ContextVar[int] = ContextVar("depth", default=0)
"""How many functions of points are inside of one another where this is asked."""


@contextmanager
def inside() -> Generator[None]:
    """Call a function of points from another one."""
    before = DEPTH.set(DEPTH.get() + 1)
    try:
        yield
    finally:
        DEPTH.reset(before)


TABLES = 2
"""Of each stretched dimension: widths of cells, and their centres."""


class Location:
    """The point where a function is evaluated, or one so many points away from it.

    Parameters
    ----------
    grid : Grid
    x : casadi.MX [dimensions]
        Coordinates of the point, as if the grid were uniform.
    tables : callable
        ``tables(number, offset)``, what is known of stretched dimensions.
    offset : tuple of int
        Of this point.
    """

    def __init__(
        self, grid: Grid, x: Any, tables: Callable[[int, Offset], Symbol], offset: Offset
    ) -> None:
        self.grid, self.offset = grid, offset
        self._graph, self._tables = x, tables
        stretched = [axis for axis in range(len(grid.shape)) if grid.stretched[axis]]
        self._numbers = {axis: TABLES * k for k, axis in enumerate(stretched)}

    def moved(self, offset: Offset) -> Location:
        """Return the point so many points away from this one."""
        total = tuple(a + b for a, b in zip(self.offset, offset, strict=True))
        return Location(self.grid, self._graph, self._tables, total)

    def width(self, axis: int, distance: int = 0) -> Any:
        """Return the width of a cell so far along an axis."""
        if axis not in self._numbers:
            return self.grid.spacing[axis]
        along = (*self.offset[:axis], self.offset[axis] + distance, *self.offset[axis + 1 :])
        return self._tables(self._numbers[axis], along)

    @property
    def uniform(self) -> Symbol:
        """The coordinates of the point without offset, as if the grid were uniform."""
        return Symbol(self._graph, (len(self.offset),), constant=True)

    @property
    def x(self) -> Symbol:
        """The coordinates."""
        return self._coordinates(0, 0)

    def face(self, axis: int, first: int) -> Symbol:
        """Return the coordinates of the face between a point and the next one along an axis."""
        return self._coordinates(axis, 2 * first + 1)

    def _coordinates(self, axis: int, halves: int) -> Symbol:
        """Return coordinates so many halves of cells away; on the other side of periodic boxes."""
        if not any(self.offset) and not halves and not self._numbers:
            return self.uniform
        along: list[Any] = []
        for k, moved in enumerate(self.offset):
            more = halves if k == axis else 0
            first, last = self.grid.ends[k]
            h = self.grid.spacing[k]
            if k in self._numbers:
                x: Any = self._tables(self._numbers[k] + 1, self.offset)
                if more:
                    x = x + (0.5 * more) * self.width(k)
            else:
                x = self.uniform[k]
                if moved or more:
                    x = x + (moved + 0.5 * more) * h
            if (moved or more) and self.grid.boundaries[k] == "periodic":
                # a quarter of a spacing of room, for rounding and for faces
                least, length = first - 0.25 * self._room(k, -1), last - first
                most = last - 0.25 * self._room(k, 1)
                x = cast("Any", np.where(x < least, x + length, np.where(x > most, x - length, x)))
            elif moved and k not in self._numbers:
                # an image inside has its own place
                x = cast("Any", np.where(x < first, 2 * first - x, x))
                x = cast("Any", np.where(x > last, 2 * last - x, x))
            along.append(as_symbol(x))
        return cast("Symbol", np.stack(along))

    def _room(self, axis: int, side: int) -> float:
        return float(self.grid.widths(axis)[0 if side < 0 else -1])


class Differences:
    """Differences of what is known around a point.

    Attributes
    ----------
    spacing : tuple of float
        Distance of neighbouring points along each dimension, of a stretched one the mean.
    location : Location
    """

    spacing: tuple[float, ...]
    location: Location

    def _at(self, offset: Offset) -> Any:
        raise NotImplementedError

    def laplacian(self, conductivity: Any = None) -> Symbol:
        """Return the second derivatives added up: three points along each dimension.

        Parameters
        ----------
        conductivity : field, optional
            k of div(k grad u), conservative: between two points k is the mean of theirs.
        """
        if conductivity is not None and not isinstance(conductivity, Differences):
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
        """Return the derivatives along each dimension by three points."""
        return tuple(map(self._first, range(len(self.spacing))))

    def _first(self, axis: int) -> Any:
        back, ahead = self.beside(axis, -1), self.beside(axis, 1)
        if not self.location.grid.stretched[axis]:
            return (ahead - back) * (0.5 / self.spacing[axis])
        # exact for quadratic functions
        left, right = self._distances(axis)
        here: Any = self.beside(axis, 0)
        slopes = left**2 * (ahead - here) + right**2 * (here - back)
        return slopes / (left * right * (left + right))

    def _second(self, axis: int) -> Any:
        back, ahead = self.beside(axis, -1), self.beside(axis, 1)
        here: Any = self.beside(axis, 0)
        if not self.location.grid.stretched[axis]:
            # a division takes as long as all the rest at the point
            return (back + ahead - 2.0 * here) * self.spacing[axis] ** -2
        left, right = self._distances(axis)
        return ((ahead - here) / right - (here - back) / left) / self.location.width(axis)

    def _flux(self, conductivity: Differences, axis: int) -> Symbol:
        """Return what flows in through both faces across an axis."""
        here: Any = self.beside(axis, 0)
        stretched = self.location.grid.stretched[axis]
        distances = self._distances(axis) if stretched else (1.0, 1.0)
        inflow: Any = 0.0
        for side, distance in zip((-1, 1), distances, strict=True):
            mean: Any = conductivity.beside(axis, 0) + conductivity.beside(axis, side)
            flow = mean * (self.beside(axis, side) - here)
            inflow = inflow + (flow / distance if stretched else flow)
        if stretched:
            return inflow * 0.5 / self.location.width(axis)
        return inflow * (0.5 * self.spacing[axis] ** -2)

    def _distances(self, axis: int) -> tuple[Any, Any]:
        """Return how far the neighbours along an axis are."""
        back, here, ahead = (self.location.width(axis, k) for k in (-1, 0, 1))
        return 0.5 * (back + here), 0.5 * (here + ahead)

    def beside(self, axis: int, distance: int) -> Any:
        """Return the values at a point so far along an axis."""
        return self._at(self._step(axis, distance))

    def _step(self, axis: int, distance: int) -> Offset:
        return tuple(distance if k == axis else 0 for k in range(len(self.spacing)))


class Face:
    """What is known on both sides of a face between neighbouring points.

    Attributes
    ----------
    axis : int
        Across which dimension: 0 for x.
    x : array [dimensions]
        Its coordinates.
    """

    def __init__(self, of: Differences, axis: int, first: int) -> None:
        self.axis, self._of, self._first = axis, of, first
        self.x = of.location.face(axis, first)

    def __getitem__(self, number: int) -> Any:
        """Return the values at a point across the axis: 0 the left, 1 the right one, and so on."""
        return self._of.beside(self.axis, self._first + number)

    @property
    def left(self) -> Any:
        """The values at the point before the face."""
        return self[0]

    @property
    def right(self) -> Any:
        """The values at the point behind the face."""
        return self[1]

    @property
    def mean(self) -> Any:
        """The values on the face, linear between both points."""
        if not self._of.location.grid.stretched[self.axis]:
            return 0.5 * (self[0] + self[1])
        left, right = self._widths()
        return (right * self[0] + left * self[1]) / (left + right)

    @property
    def gradient(self) -> Any:
        """The derivative across the face."""
        if not self._of.location.grid.stretched[self.axis]:
            return (self[1] - self[0]) * (1.0 / self._of.spacing[self.axis])
        left, right = self._widths()
        return (self[1] - self[0]) / (0.5 * (left + right))

    def weno(self) -> tuple[Any, Any]:
        """Return the values on the face from the left and from the right, WENO of fifth order.

        Of Jiang and Shu (J. Comput. Phys. 126, 1996), on uniform grids: smooth functions of the
        values of three points on each side, as no weight is divided by zero.
        """
        if self._of.location.grid.stretched[self.axis]:
            raise InputError("u.weno() across a stretched dimension", expected="a uniform one")
        a, b, c, d, e, f = (self[k] for k in range(-2, 4))
        return _weno(a, b, c, d, e), _weno(f, e, d, c, b)

    def _widths(self) -> tuple[Any, Any]:
        location = self._of.location
        return location.width(self.axis, self._first), location.width(self.axis, self._first + 1)


def _weno(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """Return the value half a spacing behind the middle one of five."""
    values = (
        (2.0 * a - 7.0 * b + 11.0 * c) / 6.0,
        (-b + 5.0 * c + 2.0 * d) / 6.0,
        (2.0 * c + 5.0 * d - e) / 6.0,
    )
    bends = (
        13.0 / 12.0 * (a - 2.0 * b + c) ** 2 + 0.25 * (a - 4.0 * b + 3.0 * c) ** 2,
        13.0 / 12.0 * (b - 2.0 * c + d) ** 2 + 0.25 * (b - d) ** 2,
        13.0 / 12.0 * (c - 2.0 * d + e) ** 2 + 0.25 * (3.0 * c - 4.0 * d + e) ** 2,
    )
    weights = [w / (1e-6 + bend) ** 2 for w, bend in zip((0.1, 0.6, 0.3), bends, strict=True)]
    total: Any = sum(weights)
    return sum(w * value for w, value in zip(weights, values, strict=True)) / total


class Quantity(Differences):
    """Values around a point that can be seen from elsewhere, with the parameters there.

    Attributes
    ----------
    names : sequence of str
        Of the values, each of which is a quantity too: ``u.name``, or ``u["name"]``.
    """

    parameters: Parameters
    names: Sequence[str] = ()

    @property
    def x(self) -> Symbol:
        """Where the point is."""
        return self.location.x

    @property
    def center(self) -> Any:
        """The values at the point."""
        return self.beside(0, 0)

    def __getitem__(self, offset: Any) -> Any:
        """Return the values at a point so many points away along x, y, z; or the one of a name."""
        if isinstance(offset, str):
            number = self.location.grid.unknown(offset)
            return self.map(lambda u, _p: u.center[number])
        return self._at(admit_offset(offset, len(self.spacing), "u"))

    def __getattr__(self, name: str) -> Any:
        """Return the quantity of that name."""
        if name in self.names:
            return self[name]
        known = f" and {', '.join(self.names)}" if self.names else ""
        raise AttributeError(
            f"u.{name} is not there; u has center, x, spacing, gradient, laplacian, divergence, "
            f"map{known}"
        )

    def map(self, function: Callable[[Any, Any], Any]) -> Quantity:
        """Return what a function (u, p) of a point is at this one and at those around it."""
        return Derived(self, function)

    def divergence(self, flux: Callable[[Any, Any], Any]) -> Symbol:
        """Return what flows out of the cell through all its faces, by its volume.

        Parameters
        ----------
        flux : callable
            ``flux(u, p)`` through a face across ``u.axis`` in its direction: ``u.left``,
            ``u.right``, ``u.mean``, ``u.gradient``, ``u[k]``, ``u.weno()`` and ``u.x`` there; the
            fields of ``p`` have the same.
        """
        total: Any = 0.0
        for axis in range(len(self.spacing)):
            with inside():
                before, behind = (
                    as_symbol(
                        traced_call(flux, "flux", Face(self, axis, first), self._p(axis, first))
                    )
                    for first in (-1, 0)
                )
            width = self.location.width(axis)
            apart = behind - before
            stretched = self.location.grid.stretched[axis]
            total = total + (apart / width if stretched else apart * (1.0 / width))
        return total

    def _p(self, axis: int, first: int) -> Any:
        return self.parameters(lambda field: Face(field, axis, first))


class Elsewhere(Quantity):
    """A quantity as it is seen from another point."""

    def __init__(self, of: Quantity, offset: Offset) -> None:
        self._of, self._offset = of, offset
        self.spacing, self.names = of.spacing, of.names
        self.location = of.location.moved(offset)
        self.parameters = lambda view: of.parameters(lambda field: view(field.moved(offset)))

    def _at(self, offset: Offset) -> Any:
        return self._of._at(tuple(a + b for a, b in zip(offset, self._offset, strict=True)))


class Derived(Quantity):
    """A function of each point, of values around it."""

    def __init__(self, of: Quantity, function: Callable[[Any, Any], Any]) -> None:
        self._of, self._function = of, function
        self.spacing, self.location, self.parameters = of.spacing, of.location, of.parameters
        self._known: dict[Offset, Any] = {}

    def _at(self, offset: Offset) -> Any:
        if offset not in self._known:
            there = Elsewhere(self._of, offset)
            with inside():
                p = there.parameters(lambda field: field.known_here())
                self._known[offset] = as_symbol(traced_call(self._function, "map", there, p))
        return self._known[offset]


def admit_offset(offset: Any, dimensions: int, name: str) -> Offset:
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
