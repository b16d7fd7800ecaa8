"""Fields and numbers that are unknown together, each on a scale of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.adjoint import Gradient
from daeosens.derivatives.hessian import HessianProduct
from daeosens.errors import InputError, is_one_of, nearest, require, together
from daeosens.functional.field_scaling import BOUNDS, FieldScaling
from daeosens.functional.parameter import Parameter
from daeosens.petsc.ranks import agree
from daeosens.petsc.unpicklable import Unpicklable
from daeosens.petsc.vectors import created, keep_unshared, read, unshared, write
from daeosens.problem.grids.finite_elements import FiniteElements
from daeosens.problem.grids.structured import Grid
from daeosens.problem.problem import Problem
from daeosens.tracing.fields import FieldLayout
from daeosens.tracing.model import FieldModel


@dataclass(frozen=True, eq=False)
class FieldParameters(Unpicklable):
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

    _in_its_place: ClassVar[str] = "its arrays, of which each process makes its own"

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
            copies = {part: unshared(getattr(parameter, part)) for part in ("value", *BOUNDS)}
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
        if callable(self.initial_state):
            complaints.append(
                "initial_state is a function; expected: a Vec or an array, which does not follow "
                "the parameters here"
            )
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
        self._scaling(problem)
        problem.admit_state(self.initial_state, "initial_state").destroy()

    def start(self, problem: Problem) -> PETSc.Vec:
        """Return the starting values of the free parameters, scaled [k].  Collective."""
        return self._scaling(problem).vec("value")

    def bounds(self, problem: Problem) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the scaled bounds [k], or None if there are none.  Collective."""
        lower, upper = (self._scaling(problem).vec(name) for name in BOUNDS)
        # Methods without bounds are possible where there are none.
        least: Any = upper.min()[1]
        most: Any = lower.max()[1]
        return None if math.isinf(least) and math.isinf(most) else (lower, upper)

    def values_at(self, problem: Problem, x: PETSc.Vec) -> Any:
        """Return all parameters by name at x, in their own units.  Collective."""
        return _model(problem).unpack(
            self._scaling(problem).parameters(created(x, "x", "result.x"))
        )

    def parts(self, problem: Problem) -> dict[str, tuple[slice, Grid | FiniteElements | None]]:
        """Return where each free block is in a rank's own part of x, and the grid of a field."""
        return {block.name: (block.at, block.grid) for block in self._scaling(problem).blocks}

    def unpack(self, problem: Problem, x: PETSc.Vec) -> tuple[Any, Any]:
        """Return (u0, p)."""
        return self.initial_state, self._scaling(problem).parameters(x)

    def pull_back(self, problem: Problem, x: PETSc.Vec, gradient: Gradient) -> PETSc.Vec:
        """Return dJ/dp restricted to the free parameters and scaled [k]."""
        scaling = self._scaling(problem)
        return scaling.back(scaling.slopes(x) * read(gradient.p_vec))

    def push_forward(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec
    ) -> tuple[PETSc.Vec | None, PETSc.Vec | None]:
        """Return (None, dp)."""
        scaling = self._scaling(problem)
        dp = problem.create_parameters()
        write(dp, scaling.slopes(x) * scaling.forward(dx))
        return None, dp

    def pull_back_second(
        self, problem: Problem, x: PETSc.Vec, dx: PETSc.Vec, product: HessianProduct
    ) -> PETSc.Vec:
        """Return the Hessian product in x; without the map's curvature if there is no gradient."""
        scaling = self._scaling(problem)
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

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        """Return itself: nothing changes what it holds."""
        return self

    def _scaling(self, problem: Problem) -> FieldScaling:
        agree(problem.comm, "FieldParameters")
        known = self._scalings.get(problem)
        if known is None:
            if misnamed := self._misnamed(_model(problem).fields):
                raise together(misnamed, heading="FieldParameters")
            known = self._scalings[problem] = FieldScaling(
                _model(problem), self.entries, self.meshes
            )
        return known

    @cached_property
    def _scalings(self) -> WeakKeyDictionary[Problem, FieldScaling]:
        return WeakKeyDictionary()


def _model(problem: Problem) -> FieldModel:
    if not isinstance(problem, FieldModel):
        raise InputError(
            f"FieldParameters for a {type(problem).__name__}",
            expected="a model with parameter fields",
            remedy="trace_stencil(..., fields=[...]), or Parameters({...}) for numbers",
        )
    return problem
