"""Fields and numbers that are unknown together, each on a scale of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.derivatives.adjoint import Gradient
from daeosens.derivatives.hessian import HessianProduct
from daeosens.errors import InputError, is_one_of, nearest, require, together
from daeosens.functional.parameter import MOST_EXPONENT, Parameter, entries_of
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, created, keep_unshared, read, unshared, write
from daeosens.problem.callback_guard import on_every_rank
from daeosens.problem.grids.finite_elements import FiniteElements
from daeosens.problem.grids.interpolation import interpolation
from daeosens.problem.grids.structured import Grid
from daeosens.problem.problem import Problem
from daeosens.tracing.fields import FieldLayout
from daeosens.tracing.model import FieldModel


@dataclass(frozen=True, eq=False)
class FieldParameters:
    """Fields and numbers of a ``FieldModel``, some of them free, and a fixed initial state.

    x has the free numbers first, on the first rank, then each rank's own values of the free fields.
    Arrays and vectors are copied: collective if one is distributed.

    Parameters
    ----------
    values : mapping of str to Parameter, Vec, array or float
        One entry for each field and each number of the problem.  What is no ``Parameter`` is held
        fixed.  Value and bounds of a field are vectors, arrays of the rank's own points, or one
        number for all; with ``scale="log"`` the logarithm of each value is moved.
    initial_state : Vec or array [n]
        Initial state.
    meshes : mapping of str to Grid, optional
        Of those fields that are unknown on a coarser grid over the same box: their values and
        bounds are on it, and in the scale that is moved they are interpolated between its points.

    Raises
    ------
    InputError
        All that is wrong with the entries, at once.

    Examples
    --------
    >>> import daeosens as ds
    >>> from daeosens.problem.grids import Grid
    >>> line = Grid(((0.0, 1.0),), (4,), comm=PETSc.COMM_SELF)
    >>> def rhs(t, u, p):
    ...     return u.laplacian(p.k) - p.loss * u.center
    >>> heat = ds.trace_stencil(rhs, line, ["loss"], fields=["k"])
    >>> entries = {"loss": ds.Parameter(0.2), "k": ds.Parameter(1.0, scale="log")}
    >>> control = FieldParameters(entries, [1.0, 0.0, 0.0, 0.0])
    >>> control.start(heat).array
    array([0.2, 0. , 0. , 0. , 0. ])
    """

    values: Mapping[str, Any]
    initial_state: Any
    meshes: Mapping[str, Grid] = field(default_factory=dict[str, Grid])
    entries: dict[str, Parameter] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require(self.values, Mapping, "values", 'FieldParameters({"k": Parameter(1.0)}, ...)')
        require(self.meshes, Mapping, "meshes", 'meshes={"k": Grid(box, (8, 8))}')
        keep_unshared(self, "initial_state")
        entries: dict[str, Parameter] = {}
        for name, value in self.values.items():
            parameter = value if isinstance(value, Parameter) else Parameter(value, free=False)
            copies = {part: unshared(getattr(parameter, part)) for part in ("value", *_BOUNDS)}
            entries[name] = Parameter(free=parameter.free, scale=parameter.scale, **copies)
        object.__setattr__(self, "entries", entries)
        complaints = [
            f'the mesh of "{name}" is {type(mesh).__name__}; expected: a Grid with dof = 1'
            for name, mesh in self.meshes.items()
            if not isinstance(mesh, Grid) or mesh.dof != 1  # type: ignore[redundant-expr]
        ]
        complaints += [
            f'parameter "{name}": free = {entry.free!r}; expected: True or False for a whole field'
            for name, entry in entries.items()
            if isinstance(entry.value, PETSc.Vec) and not isinstance(entry.free, bool)
        ]
        complaints += [
            f'parameter "{name}": scale = {entry.scale!r}; expected: "linear" or "log"'
            for name, entry in entries.items()
            if not is_one_of(entry.scale, "linear", "log")
        ]
        if complaints:
            raise together(complaints, heading="FieldParameters")

    def check(self, problem: Problem) -> None:
        """Compare the names with the problem's, and check all values."""
        agree(
            problem.comm,
            "FieldParameters",
            names=list(self.entries),
            free=[entry.free for entry in self.entries.values()],
            meshes=list(self.meshes),
        )
        layout = _model(problem).fields
        complaints = self._misnamed(layout)
        for name, mesh in self.meshes.items():
            entry = self.entries.get(name)
            if name not in layout.names or entry is None or entry.free is not True:
                complaints.append(f'meshes names "{name}"; expected: one of the free fields')
            elif not isinstance(layout.grid, Grid):
                complaints.append(
                    f'meshes names "{name}", a field on finite elements; expected: '
                    "trace_weak_form(..., field_space=...) with coarser functions"
                )
            elif mesh.box != layout.grid.box or mesh.boundary != layout.grid.boundary:
                complaints.append(
                    f'the mesh of "{name}" has box {mesh.box} and boundary "{mesh.boundary}"; '
                    f'expected: {layout.grid.box} and "{layout.grid.boundary}", as the grid'
                )
        if not any(np.any(entry.free) for entry in self.entries.values()):
            complaints.append("no parameter is free; expected: at least one Parameter(free=True)")
        if complaints:
            raise together(complaints, heading="FieldParameters")
        self._map(problem)
        problem.admit_state(self.initial_state, "initial_state").destroy()

    def start(self, problem: Problem) -> PETSc.Vec:
        """Return the starting values of the free parameters, scaled [k].  Collective."""
        return self._map(problem).vec("value")

    def bounds(self, problem: Problem) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the scaled bounds [k], or None if there are none.  Collective."""
        lower, upper = (self._map(problem).vec(name) for name in _BOUNDS)
        # Methods without bounds are possible where there are none.
        least: Any = upper.min()[1]
        most: Any = lower.max()[1]
        return None if math.isinf(least) and math.isinf(most) else (lower, upper)

    def values_at(self, problem: Problem, x: PETSc.Vec) -> Any:
        """Return all parameters by name at x, in their own units.  Collective."""
        return _model(problem).unpack(self._map(problem).parameters(_of_map(x)))

    def parts(self, problem: Problem) -> dict[str, tuple[slice, Grid | FiniteElements | None]]:
        """Return where each free block is in a rank's own part of x, and the grid of a field."""
        return {block.name: (block.at, block.grid) for block in self._map(problem).blocks}

    def unpack(self, problem: Problem, x: PETSc.Vec) -> tuple[Any, Any]:
        """Return (u0, p)."""
        return self.initial_state, self._map(problem).parameters(x)

    def pull_back(self, problem: Problem, x: PETSc.Vec, gradient: Gradient) -> PETSc.Vec:
        """Return dJ/dp restricted to the free parameters and scaled [k]."""
        scaling = self._map(problem)
        return scaling.back(scaling.slopes(x) * read(gradient.p_vec))

    def push_forward(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec
    ) -> tuple[PETSc.Vec | None, PETSc.Vec | None]:
        """Return (None, dp)."""
        scaling = self._map(problem)
        dp = problem.create_parameters()
        write(dp, scaling.slopes(x) * scaling.forward(dx))
        return None, dp

    def pull_back_second(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec, product: HessianProduct
    ) -> PETSc.Vec:
        """Return the Hessian product in x; without the map's curvature if there is no gradient."""
        scaling = self._map(problem)
        slopes = scaling.slopes(x)
        change = slopes * read(product.p_vec)
        if product.gradient is not None:
            # exp'' = exp: the Hessian gains (dJ/dp) p where logarithms are moved
            bends = np.where(scaling.logs, slopes, 0.0) * scaling.forward(dx)
            change += bends * read(product.gradient.p_vec)
        return scaling.back(change)

    def _misnamed(self, layout: FieldLayout) -> list[str]:
        """Say which parameters have no value, and which are none."""
        known = (*layout.shapes.shapes, *layout.names)
        complaints = [
            f'parameter "{name}" has no value; expected: an entry for it'
            for name in known
            if name not in self.entries
        ]
        complaints += [
            f'there is no parameter "{name}"; try: {nearest(name, known) or ", ".join(known)}'
            for name in self.entries
            if name not in known
        ]
        return complaints

    def _map(self, problem: Problem) -> _Map:
        agree(problem.comm, "FieldParameters")
        known = self._maps.get(problem)
        if known is None:
            if misnamed := self._misnamed(_model(problem).fields):
                raise together(misnamed, heading="FieldParameters")
            known = self._maps[problem] = _Map(_model(problem), self.entries, self.meshes)
        return known

    @cached_property
    def _maps(self) -> WeakKeyDictionary[Problem, _Map]:
        return WeakKeyDictionary()


_BOUNDS = ("lower", "upper")


@dataclass(frozen=True, eq=False)
class _Block:
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


class _Map:
    """x -> p = s(I x) of one problem: scales s, and interpolations I from coarser grids."""

    def __init__(
        self, model: FieldModel, entries: Mapping[str, Parameter], meshes: Mapping[str, Grid]
    ) -> None:
        self._model = model
        layout = model.fields
        self._fixed = layout.create()
        self.blocks: list[_Block] = []
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
        vec: Any = PETSc.Vec().create(comm=self._model.comm)
        vec.setSizes((self.size, None))
        vec.setType(PETSc.Vec.Type.STANDARD)
        write(vec, np.concatenate([block.numbers[part] for block in self.blocks]))
        return vec

    def parameters(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return p [m]."""
        p = self._fixed.copy()
        moved = self.forward(x)
        free = np.concatenate([block.to for block in self.blocks])
        logs = self.logs
        moved[logs] = np.exp(np.minimum(moved[logs], MOST_EXPONENT))
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
        self.blocks.append(_Block(name, places, at, logs, numbers, grid, matrix))

    def _numbers(self, entries: Mapping[str, Parameter]) -> None:
        """Add the free numbers, which the first rank has."""
        layout = self._model.fields
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
                for part in ("value", *_BOUNDS)
            }
            places = [place for place, _ in free]
            self._add(name, iter(places), [entry.scale == "log" for _, entry in free], parts)
        if complaints:
            raise together(complaints, heading="FieldParameters")

    def _field(self, name: str, entry: Parameter, mesh: Grid | None) -> None:
        """Add a field, on the grid itself or on a coarser one.  Collective."""
        layout = self._model.fields
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
        with on_every_rank(self._model.comm):
            numbers = {
                part: _scaled(getattr(entry, part), f'{part} of "{name}"', layout, points, entry)
                for part in ("value", *_BOUNDS)
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
        value, lower, upper = (numbers[part] for part in ("value", *_BOUNDS))
        with on_every_rank(self._model.comm):
            if not (lower <= upper).all():
                raise InputError(f'bounds of "{name}" cross', expected="lower <= upper everywhere")
            if not ((lower <= value) & (value <= upper)).all():
                raise InputError(
                    f'parameter "{name}" is outside its bounds at some point',
                    expected="a start between them",
                )


def _scaled(
    values: Any, name: str, layout: Any, mesh: Grid | FiniteElements, entry: Parameter
) -> Array:
    """Return the rank's own values of a field, as they are moved."""
    if isinstance(values, (int, float)) and math.isinf(values):
        return np.full(math.prod(mesh.owned_shape), float(values))
    own: Array = type(layout)(mesh, layout.shapes, layout.names).own_values(values, name)
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


def _of_map(x: object) -> PETSc.Vec:
    return created(x, "x", "result.x")


def _model(problem: Problem) -> FieldModel:
    if not isinstance(problem, FieldModel):
        raise InputError(
            f"FieldParameters for a {type(problem).__name__}",
            expected="a model with parameter fields",
            remedy="trace_stencil(..., fields=[...]), or Parameters({...}) for numbers",
        )
    return problem
