"""Rectangular grids, distributed by a DMDA: coordinates, and values as arrays.

Everything works on whole arrays [ny, nx, dof] of the rank's own points, [nx, dof] in one dimension
and [nz, ny, nx, dof] in three; the slowest axis comes first.  The value at a point does not depend
on how many ranks share the grid, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from petsc4py import PETSc

from daeosens.errors import (
    InputError,
    is_iterable,
    is_one_of,
    is_whole,
    name_list,
    require,
    suggestion,
    together,
)
from daeosens.petsc.ranks import admit_comm
from daeosens.petsc.vectors import MOST, Array, read

Boundary = Literal["periodic", "zero", "neumann"]
Interval: TypeAlias = tuple[float, float]

_DM_BOUNDARY: dict[str, Any] = {
    "periodic": PETSc.DM.BoundaryType.PERIODIC,
    "zero": PETSc.DM.BoundaryType.GHOSTED,  # ghosts beyond the edge are never written: they stay 0
    "neumann": PETSc.DM.BoundaryType.GHOSTED,
}

FIRST: dict[str, float] = {"periodic": 0.0, "zero": 1.0, "neumann": 0.5}
"""How many spacings the first point lies inside of the box."""


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid on an interval, a rectangle or a box, distributed over the ranks.

    Parameters
    ----------
    box : sequence of (float, float)
        First and last coordinate along x, along y, along z.  Along a stretched dimension, which is
        for ``trace_stencil``: the edges of all cells (one more than points), or a function of
        numbers between 0 and 1 that gives them.
    shape : sequence of int
        Number of points along each: unknowns, so for "zero" those inside only.
    boundary : "periodic", "zero" or "neumann", or one of them for each dimension
        Periodic: the last point lies one spacing before the end.  Zero: the values on the edge of
        the box are 0 and no unknowns.  Neumann, for ``trace_stencil``: the slope across the
        edge is 0, or what else is asked for there; points are the centres of cells, the first and
        the last one half a spacing from the edge.
    dof : int
        Unknowns at each point.
    comm : PETSc.Comm
        The ranks that share the grid.
    names : sequence of str
        Of the unknowns, for ``trace_stencil``; as many as ``dof``, which need not be given then.

    Attributes
    ----------
    dm : DMDA
        PETSc's own description, made from the above.

    Raises
    ------
    InputError
        All that is wrong, at once; more ranks than the grid can be cut for.

    Examples
    --------
    >>> grid = Grid(((0.0, 1.0), (0.0, 1.0)), (9, 4), "zero", comm=PETSc.COMM_SELF)
    >>> grid.spacing
    (0.1, 0.2)
    """

    box: tuple[Interval | tuple[float, ...] | Callable[[Array], Any], ...]
    shape: tuple[int, ...]
    boundary: Boundary | tuple[Boundary, ...] = "periodic"
    dof: int = 1
    comm: PETSc.Comm = field(default_factory=lambda: PETSc.COMM_WORLD)
    names: Sequence[str] = ()
    dm: PETSc.DMDA = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "box", _with_edges(self.box, self.shape))
        names = name_list(self.names, "names")
        object.__setattr__(self, "names", tuple(names))
        if names and self.dof == 1:
            object.__setattr__(self, "dof", len(names))
        complaints = _complaints(self.box, self.shape, self.boundary, self.dof)
        if names and (self.dof != len(names) or len(set(names)) < len(names)):
            complaints.append(f"names = {names}; expected: {self.dof} different ones, as dof")
        admit_comm(self.comm)
        if complaints:
            raise together(complaints, heading="Grid")
        # alike along all dimensions: one word, whichever way it was given
        kinds = _kinds(self.boundary, len(self.shape))
        object.__setattr__(self, "boundary", kinds[0] if len(set(kinds)) == 1 else kinds)
        # neighbours along the axes are enough here; wider stencils have a DM of their own
        # (``wide_dm``)
        star: Any = PETSc.DMDA.StencilType.STAR
        of_dm = tuple(_DM_BOUNDARY[kind] for kind in kinds)
        try:
            shape: Any = self.shape
            # PETSc chooses how points are dealt out to ranks
            dm = PETSc.DMDA().create(
                shape,
                dof=self.dof,
                boundary_type=of_dm,
                stencil_type=star,
                stencil_width=1,
                comm=self.comm,
            )
        except PETSc.Error as error:
            raise InputError(
                f"a grid of shape {self.shape} cannot be cut for {self.comm.size} ranks",
                expected="at least one row or column of points for each rank",
                remedy="fewer ranks, or more points",
            ) from error
        object.__setattr__(self, "dm", dm)

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """The boundary along each dimension."""
        return _kinds(self.boundary, len(self.shape))

    @property
    def stretched(self) -> tuple[bool, ...]:
        """Whether the cells along each dimension have widths of their own."""
        return tuple(len(along) > 2 for along in self._along)

    @property
    def ends(self) -> tuple[Interval, ...]:
        """First and last coordinate along each dimension."""
        return tuple((along[0], along[-1]) for along in self._along)

    @property
    def _along(self) -> tuple[tuple[float, ...], ...]:
        box: Any = self.box
        return box

    def unknown(self, unknown: str | int) -> int:
        """Return the number of an unknown that is given by its name or number.

        Raises
        ------
        InputError
            There is none of that name (the nearest is named) or number.
        """
        if isinstance(unknown, str) and unknown in self.names:
            return list(self.names).index(unknown)
        if is_whole(unknown) and 0 <= int(unknown) < self.dof:
            return int(unknown)
        if isinstance(unknown, str) and not self.names:
            raise InputError(
                f'there is no unknown "{unknown}": those of the grid have no names',
                expected=f"a number from 0 to {self.dof - 1}",
                remedy=f'Grid(..., names=["{unknown}", ...]), a name for each',
            )
        known = (
            ", ".join(f'"{name}"' for name in self.names) or f"a number from 0 to {self.dof - 1}"
        )
        raise InputError(
            f"there is no unknown {unknown!r}", expected=known + suggestion(unknown, self.names)
        )

    def widths(self, axis: int) -> Array:
        """Return the widths [n] of all cells along an axis, or the distances of the points."""
        if self.stretched[axis]:
            return np.diff(self._along[axis])
        return np.full(self.shape[axis], self.spacing[axis])

    def volumes(self) -> Array:
        """Return the volumes [nz, ny, nx] of the rank's own cells: lengths, areas or volumes."""
        corner, sizes = self.dm.getCorners()
        axes = range(len(self.shape))
        along = [self.widths(k)[corner[k] : corner[k] + sizes[k]] for k in axes]
        volumes: Array = np.prod(np.meshgrid(*reversed(along), indexing="ij"), axis=0)
        return volumes

    @property
    def spacing(self) -> tuple[float, ...]:
        """Distance of neighbouring points along each dimension; of a stretched one the mean."""
        # points on both edges are no unknowns
        extra = [1 if kind == "zero" else 0 for kind in self.boundaries]
        return tuple(
            (last - first) / (n + more)
            for (first, last), n, more in zip(self.ends, self.shape, extra, strict=True)
        )

    @property
    def origin(self) -> tuple[float, ...]:
        """Coordinates of the first point, as if the grid were uniform."""
        return tuple(float(self._axis(k, 0, 1)[0]) for k in range(len(self.shape)))

    @property
    def owned_shape(self) -> tuple[int, ...]:
        """Shape of the rank's own part: (ny, nx, dof), and as many numbers as dimensions."""
        _, sizes = self.dm.getCorners()
        return (*reversed(sizes), self.dof)

    def coordinates(self) -> tuple[Array, ...]:
        """Return x, y, z of the rank's own points, each of the shape [nz, ny, nx]."""
        corner, sizes = self.dm.getCorners()
        axes = [self._axis(k, *part) for k, part in enumerate(zip(corner, sizes, strict=True))]
        for k, stretched in enumerate(self.stretched):
            if stretched:
                edges = np.array(self._along[k][corner[k] : corner[k] + sizes[k] + 1])
                axes[k] = 0.5 * (edges[1:] + edges[:-1])
        return tuple(reversed(np.meshgrid(*reversed(axes), indexing="ij")))

    def create_vec(self) -> PETSc.Vec:
        """Return a new vector of zeros [n], n = nx ny dof."""
        vec = self.dm.createGlobalVec()
        vec.zeroEntries()
        return vec

    def values(self, vec: PETSc.Vec) -> Array:
        """Return the rank's own values of a vector, a view [ny, nx, dof] that only reads."""
        return read(vec).reshape(self.owned_shape)

    def writable(self, vec: PETSc.Vec) -> Array:
        """Return the rank's own values of a vector, a view [ny, nx, dof] to write into."""
        array: Any = vec.getArray()
        return array.reshape(self.owned_shape)

    def _axis(self, axis: int, first: int, count: int) -> Array:
        offset = FIRST[self.boundaries[axis]]
        start, h = self.ends[axis][0], self.spacing[axis]
        # from the point's number on the whole grid, so that every rank rounds alike
        numbers = np.arange(first, first + count, dtype=float)
        return start + h * (numbers + offset)


def require_grid(grid: object) -> None:
    """Refuse what is no grid.

    Raises
    ------
    InputError
        Names its type.
    """
    require(grid, Grid, "grid", "Grid(((0.0, 1.0), (0.0, 1.0)), (64, 64))")


def require_uniform(grid: Grid, what: str) -> None:
    """Refuse a grid with stretched dimensions.

    Raises
    ------
    InputError
        Says for what.
    """
    if any(grid.stretched):
        raise InputError(f"{what} on a stretched grid", expected="a uniform one")


def _kinds(boundary: Any, dimensions: int) -> tuple[Boundary, ...]:
    """Return the boundary along each dimension, of one word for all or of several."""
    kinds: Any = (boundary,) * dimensions if isinstance(boundary, str) else tuple(boundary)
    return kinds


def _with_edges(box: Any, shape: Any) -> Any:
    """Return a box whose edges of cells are given by functions or arrays with them as tuples."""
    if not isinstance(box, (tuple, list)):
        return box
    points = list(shape) if is_iterable(shape) else []

    def edges(axis: int, along: Any) -> Any:
        if callable(along) and axis < len(points) and is_whole(points[axis]):
            along = along(np.linspace(0.0, 1.0, int(points[axis]) + 1))
        return tuple(cast("Any", along).tolist()) if isinstance(along, np.ndarray) else along

    return tuple(edges(axis, along) for axis, along in enumerate(cast("list[Any]", box)))


def _complaints(box: Any, shape: Any, boundary: Any, dof: Any) -> list[str]:
    complaints: list[str] = []
    try:
        # a Vec has no end that iteration by numbers would meet
        ends = [np.array(along, dtype=float) for along in box] if is_iterable(box) else []
    except (TypeError, ValueError, OverflowError):
        ends = []
    several = 1 <= len(ends) <= 3 and all(
        along.ndim == 1
        and along.size >= 2
        and np.isfinite(along).all()
        and (np.diff(along) > 0).all()
        for along in ends
    )
    if not several:
        complaints.append(f"box = {box!r}; expected: ((x first, x last), (y first, y last), ...)")
    points = list(shape) if is_iterable(shape) else []
    count = len(ends) if several else len(points)
    whole = all(is_whole(number) and 3 <= number <= MOST for number in points)
    if not points or len(points) != count or not whole:
        complaints.append(f"shape = {shape!r}; expected: {count} integers of at least 3")
    by_axis = isinstance(boundary, (tuple, list))
    kinds: list[Any] = list(cast("Any", boundary)) if by_axis else [boundary]
    wrong = [kind for kind in kinds if not is_one_of(kind, *_DM_BOUNDARY)]
    if wrong or (by_axis and len(kinds) != count):
        near = suggestion(wrong[0], _DM_BOUNDARY) if wrong else ""
        number = f", or {count} of them" if by_axis else ""
        complaints.append(
            f'boundary = {boundary!r}; expected: "periodic", "zero" or "neumann"{number}{near}'
        )
    if not (is_whole(dof) and 1 <= dof <= MOST):
        complaints.append(f"dof = {dof!r}; expected: an integer of at least 1")
    for axis, (along, n) in enumerate(zip(ends, points, strict=False)):
        if not complaints and along.size > 2:
            kind = _kinds(boundary, count)[axis]
            if along.size != n + 1 or kind == "zero":
                complaints.append(
                    f"box[{axis}] has {along.size} edges of cells with boundary = {kind!r}; "
                    f'expected: {n + 1}, and "periodic" or "neumann"'
                )
    if not complaints and math.prod(map(int, points)) * int(dof) > MOST:
        complaints.append(f"shape = {shape!r}; expected: at most {MOST} unknowns")
    return complaints
