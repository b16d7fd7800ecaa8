"""A grid's point with those around it: what the function of ``trace_stencil`` sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from daeosens.errors import InputError
from daeosens.tracing import numpy_functions  # noqa: F401 (fills the tables)  # type: ignore
from daeosens.tracing.casadi import casadi
from daeosens.tracing.named_parameters import Shapes
from daeosens.tracing.source_location import traced_call
from daeosens.tracing.symbols import Symbol, as_symbol

Offset: TypeAlias = tuple[int, ...]
"""Points from the centre along x, y, z."""


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

    def __init__(self, dof: int, spacing: tuple[float, ...], x: Any) -> None:
        self.spacing = spacing
        self.x = Symbol(x, (len(spacing),), constant=True)
        self._dof = dof
        self.graphs: dict[Offset, Any] = {}

    def __getitem__(self, offset: Any) -> Symbol:
        """Return the unknowns [dof] at a point so many points away along x, y, z."""
        given = cast("tuple[Any, ...]", offset if isinstance(offset, tuple) else (offset,))
        whole = all(isinstance(each, (int, np.integer)) for each in given)
        if not whole or len(given) != len(self.spacing):
            raise InputError(
                f"u[{', '.join(map(str, given))}]",
                expected=f"{len(self.spacing)} integers, the offset along each dimension",
                remedy="u.center for the unknowns at the point itself",
            )
        key = tuple(int(each) for each in given)
        if key not in self.graphs:
            self.graphs[key] = casadi.MX.sym(f"u{len(self.graphs)}", self._dof)
        return Symbol(self.graphs[key], (self._dof,), constant=True)

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
    function: Callable[..., Any], shapes: Shapes, dof: int, spacing: tuple[float, ...]
) -> PointGraph:
    """Call the function (t, u, p) of a point with symbols.

    Raises
    ------
    InputError
        It cannot be traced, or returns another shape than [dof].
    """
    t, p, x = (
        casadi.MX.sym(name, size)
        for name, size in (("t", 1), ("p", shapes.size), ("x", len(spacing)))
    )
    point = Neighbourhood(dof, spacing, x)
    time = Symbol(t, (), constant=True)
    named = shapes.split(Symbol(p, (shapes.size,), constant=True))
    result = traced_call(lambda *of: as_symbol(function(*of)), "rhs", time, point, named)
    if dof == 1 and result.shape == ():
        result = result.reshape((1,))
    if result.shape != (dof,):
        raise InputError(f"'rhs' returned shape {result.shape}", expected=f"shape ({dof},)")
    inputs = [t, p, x, *point.graphs.values()]
    scalars = [casadi.SX.sym(f"s{k}", each.numel()) for k, each in enumerate(inputs)]
    traced = casadi.Function("f", inputs, [casadi.densify(result.graph)])
    value = casadi.cse(casadi.densify(traced(*scalars)))
    unknowns = dict(zip(point.graphs, scalars[3:], strict=True))
    return PointGraph(scalars[0], scalars[1], scalars[2], unknowns, value)
