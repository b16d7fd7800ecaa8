"""What holds on the faces of a grid, as values of the points beyond them.

A face is named by its axis and side: ``"x-"`` where x begins, ``"x+"`` where it ends, ``"x"`` both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from daeosens.errors import InputError, is_real, suggestion
from daeosens.problem.grids import Grid
from daeosens.tracing.source_location import traced_call
from daeosens.tracing.symbols import Symbol, as_symbol

AXES = "xyz"

Face: TypeAlias = tuple[int, int]
"""Axis, and side: -1 where it begins, 1 where it ends."""

Condition: TypeAlias = Callable[..., list[Any]]
"""What is given for each unknown, as a function of (t, x, p) or (t, u, x, p); None: nothing."""


class Edges:
    """The conditions on all faces of a grid.

    Parameters
    ----------
    grid : Grid
    dirichlet : mapping of str to number, sequence or callable, or one of these for all faces
        Values of u, ``dirichlet(t, x, p)``.
    slope : mapping of str to number, sequence or callable, or one of these for all faces
        Derivatives of u outwards, ``slope(t, u, x, p)``.

    Raises
    ------
    InputError
        Faces that the grid does not have, or of another boundary than "neumann".
    """

    def __init__(self, grid: Grid, dirichlet: Any, slope: Any) -> None:
        self._dof = grid.dof
        self._values = _by_face(grid, dirichlet, "dirichlet")
        self._slopes = _by_face(grid, slope, "slope")
        # a slope for all faces leaves out those with values; one by name says what it means
        self._named = isinstance(slope, Mapping)

    def __bool__(self) -> bool:
        return bool(self._values or self._slopes)

    def beyond(
        self,
        face: Face,
        image: Any,
        beside: Callable[[], Any],
        distances: tuple[float, float],
        place: tuple[Any, Any, Any],
    ) -> Symbol:
        """Return the values [dof] at a point beyond a face.

        Parameters
        ----------
        face : (axis, side)
        image : array [dof]
            Values at the point that is as far inside.
        beside : callable
            Gives the values at the last point inside.
        distances : (float, float)
            From the image to the point, and from the last point inside to the face.
        place : (t, x, p)
            Where it meets the face.

        Raises
        ------
        InputError
            A value and a slope for the same unknown; functions that return another shape.
        """
        t, x, p = place
        unknowns = range(self._dof)
        known: list[Any] = [None] * self._dof
        if face in self._values:
            known = self._values[face](t, x, p)
        across: list[Any] = [None] * self._dof
        if face in self._slopes:
            inner, half = beside(), distances[1]
            first = self._slopes[face](t, inner, x, p)
            self._refuse_both(face, known, first)
            # from values on the face to second order: as they follow from the slope beside it
            on_face = [
                known[k]
                if known[k] is not None
                else inner[k] + half * (0.0 if first[k] is None else first[k])
                for k in unknowns
            ]
            across = self._slopes[face](t, as_symbol(on_face), x, p)
        parts: list[Any] = []
        for k in unknowns:
            if known[k] is not None:
                # the face is halfway between the image and the point: the mean of both is its value
                parts.append(2.0 * known[k] - image[k])
            elif across[k] is not None:
                # the central difference across the face is the slope there
                parts.append(image[k] + distances[0] * across[k])
            else:  # a mirror: nothing flows
                parts.append(image[k])
        return as_symbol(parts)

    def _refuse_both(self, face: Face, known: list[Any], across: list[Any]) -> None:
        for k, (value, slope) in enumerate(zip(known, across, strict=True)):
            if self._named and value is not None and slope is not None:
                raise InputError(
                    f'unknown {k} has a value and a slope on the face "{face_name(face)}"',
                    expected="one of the two, and None in the place of the other",
                )


def face_name(face: Face) -> str:
    """Return "x-", "x+", "y-", ..."""
    axis, side = face
    return f"{AXES[axis]}{'-' if side < 0 else '+'}"


def _by_face(grid: Grid, conditions: Any, name: str) -> dict[Face, Condition]:
    """Return conditions by face, each a function of symbols."""
    if conditions is None:
        return {}
    closed = [axis for axis, kind in enumerate(grid.boundaries) if kind == "neumann"]
    faces = {face_name((axis, side)): (axis, side) for axis in closed for side in (-1, 1)}
    if not faces:
        kind = grid.boundary if isinstance(grid.boundary, str) else " and ".join(grid.boundary)
        raise InputError(
            f'{name} with boundary = "{kind}"',
            expected="a grid with faces that values or slopes are given on",
            remedy='Grid(..., boundary="neumann")',
        )
    if not isinstance(conditions, Mapping):
        return {face: _condition(conditions, name, grid) for face in faces.values()}
    by_name = cast("Mapping[Any, Any]", conditions)
    result: dict[Face, Condition] = {}
    both = {AXES[axis]: [(axis, -1), (axis, 1)] for axis in closed}
    both |= {face: [of] for face, of in faces.items()}
    for face, condition in by_name.items():
        if not isinstance(face, str) or face not in both:
            raise InputError(
                f"{name} has {face!r}",
                expected=", ".join(f'"{known}"' for known in both) + suggestion(face, both),
            )
        for place in both[face]:
            result[place] = _condition(condition, f'{name}["{face}"]', grid)
    return result


def _condition(condition: Any, name: str, grid: Grid) -> Condition:
    """Return a function that gives a part for each unknown."""
    dof = grid.dof
    if callable(condition):
        return lambda *place: _parts(
            _in_order(traced_call(condition, name, *place), grid), name, dof
        )
    condition = _in_order(condition, grid)
    parts: list[Any] = list(condition) if isinstance(condition, (list, tuple)) else [condition]
    if not all(part is None or is_real(part) for part in parts):
        raise InputError(
            f"{name} = {condition!r}",
            expected=f"a number, a sequence of {dof} (None: nothing), or a function",
        )
    fixed = _parts(condition, name, dof)
    return lambda *_place: fixed


def _in_order(values: Any, grid: Grid) -> Any:
    """Return what is given by the names of unknowns as a list, None where nothing is."""
    if not isinstance(values, Mapping):
        return values
    parts: list[Any] = [None] * grid.dof
    for unknown, part in cast("Mapping[Any, Any]", values).items():
        parts[grid.unknown(unknown)] = part
    return parts


def _parts(values: Any, name: str, dof: int) -> list[Any]:
    """Return what is given for each unknown; one value is for all of them."""
    if isinstance(values, (list, tuple)):
        parts: list[Any] = list(cast("Any", values))
        shape: tuple[int, ...] = (len(parts),)
        for part in parts:
            if part is not None and as_symbol(part).shape:
                shape = (len(parts), *as_symbol(part).shape)
    else:
        shape = as_symbol(values).shape
        parts = [values] * dof if shape == () else list(as_symbol(values))
    if shape not in ((), (dof,)):
        raise InputError(f"'{name}' returned shape {shape}", expected=f"shape ({dof},)")
    return parts
