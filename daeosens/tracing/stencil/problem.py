"""Problems on grids from one function of a point: traced, differentiated, compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as of_class
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, is_iterable, is_one_of, name_list
from daeosens.petsc._kernels import Stencil, create_matrix, linearise_matrix, pool_memory
from daeosens.petsc.vectors import Array, read, replicated, scatter, summed, write
from daeosens.problem.branches import Decisions
from daeosens.problem.equations import ODE
from daeosens.problem.grids import Grid, fill_stencil_matrix, stencil_matrix
from daeosens.problem.grids.stencil_matrix import Entry
from daeosens.problem.matrices import Derivative, Products, negative
from daeosens.problem.problem import AUTONOMOUS, Problem
from daeosens.tracing.fields import FieldLayout, FieldMemory, coordinate_tables, field_layout
from daeosens.tracing.model import FieldModel, Parametrized
from daeosens.tracing.named_parameters import admit_shapes
from daeosens.tracing.stencil.binding import OF_FIELDS, bind_points, compiled_points
from daeosens.tracing.stencil.derivatives import StencilDerivatives
from daeosens.tracing.stencil.edges import Edges
from daeosens.tracing.stencil.point import point_graph
from daeosens.tracing.stencil.rows import FIELD_MEMORY


def build_stencil(
    rhs: Callable[..., Any],
    grid: Grid,
    parameters: int | Sequence[str] | Mapping[str, Any],
    jacobian: str,
    fields: Sequence[str] = (),
    *,
    dirichlet: Any = None,
    slope: Any = None,
    algebraic: Sequence[str | int] = (),
) -> Parametrized | FieldModel:
    """Return the problem of ``daeosens.trace_stencil``, whose arguments these are."""
    if not is_one_of(jacobian, "auto", "assembled", "products"):
        raise InputError(f"jacobian = {jacobian!r}", expected='"auto", "assembled" or "products"')
    numbers = _algebraic_numbers(grid, algebraic)
    mass = _mass(grid, numbers) if numbers else None
    shapes = admit_shapes(parameters)
    periodic = [kind == "periodic" for kind in grid.boundaries]
    # f at one point is a small graph of scalars, whatever the grid: derivatives and C source are
    # made of that alone
    layout = field_layout(grid, shapes, fields) if name_list(fields, "fields") else None
    edges = Edges(grid, dirichlet, slope)
    graph = point_graph(rhs, shapes, grid, () if layout is None else layout.names, edges)
    derivatives = StencilDerivatives(graph, grid.spacing, grid.ends, periodic=periodic)
    _refuse_higher_index(grid, numbers, derivatives)
    functions = derivatives.functions()
    entries: list[Entry] = []
    # entries of a row of f_u: one for each neighbour and unknown that f reads
    if jacobian != "products":
        function, entries = derivatives.jacobian()
        functions.append(function)
    deciding = derivatives.branches()
    if deciding is not None:
        functions.append(deciding[0])
    if layout is not None or any(grid.stretched):
        # how far they are read by the function that looks farthest
        reach = max(
            max(function.widths(which), default=0)
            for function in functions
            for which in FIELD_MEMORY
        )
        functions = [replace(function, around=reach) for function in functions]
    addresses = compiled_points(functions, grid)
    of_state = [function for function in functions if not function.name.endswith(OF_FIELDS)]
    stencil = bind_points(of_state, grid, addresses)
    known = coordinate_tables(grid, of_state[0].around)
    calls = _Calls(stencil, shapes.size, known)
    if layout is not None:
        of_fields = [function for function in functions if function not in of_state]
        also = bind_points(of_fields, grid, addresses)
        calls = _FieldCalls(stencil, also, layout, of_state[0].around, known)
    # without a matrix by default: products with f_u read less memory than its entries take
    attributes: dict[str, Any] = {"jacobian": Products(calls.push, calls.pull), "rhs_t": AUTONOMOUS}
    filled = _Assembled(calls, grid, entries)
    if jacobian == "assembled":
        attributes |= {"jacobian": filled.fill, "jacobian_matrix": filled.template}
    if not derivatives.autonomous:
        attributes |= {"rhs_t": calls.rhs_t, "hessian_t": calls.hessian_t}
    problem = ODE(
        calls.rhs,
        state=grid.dm,
        parameters=shapes.names if layout is None else layout.create(),
        jacobian_p=Products(calls.push_p, calls.pull_p) if shapes.size or layout else None,
        hessian_product=calls.hessian,
        mass=mass,
        **attributes,
    )
    state = problem.state
    pool_memory(state)
    problem = replace(problem, read_by_points=calls.read)
    if mass is None:  # TS and sweeps in C know u' = f alone
        problem = replace(problem, stencil=stencil)
    if deciding is not None:
        problem = replace(problem, branches=_Branches(calls, state, *deciding[1:]))
    if jacobian != "assembled":
        rhs_u = Derivative(
            lambda *_point: create_matrix(stencil, state, calls.size),
            calls.linearise,
            assembled=False,
            shifts=True,
        )
        # implicit steps have to factor or precondition something: they get entries even where
        # sweeps multiply without
        solved = rhs_u
        if entries:
            solved = Derivative(
                filled.create,
                filled.fill,
                constant=derivatives.linear,
                one_sided=derivatives.one_sided(entries),
            )
        problem = replace(problem, rhs_u=rhs_u, residual_u=negative(solved))
    lowered = {attribute.name: getattr(problem, attribute.name) for attribute in of_class(Problem)}
    if layout is not None:
        return FieldModel(**lowered, fields=layout)
    return Parametrized(**lowered, shapes=shapes)


def _algebraic_numbers(grid: Grid, algebraic: Sequence[str | int]) -> list[int]:
    """Return the numbers of algebraic unknowns.

    Raises
    ------
    InputError
        Unknowns that are not there, or no other ones.
    """
    if isinstance(algebraic, str) or not is_iterable(algebraic):
        raise InputError(f"algebraic = {algebraic!r}", expected='a sequence: algebraic=["psi"]')
    numbers = {grid.unknown(unknown) for unknown in algebraic}
    if len(numbers) == grid.dof:
        raise InputError(
            f"algebraic = {list(algebraic)!r}, which are all unknowns",
            expected="one that has a derivative in time",
        )
    return sorted(numbers)


def _refuse_higher_index(
    grid: Grid, algebraic: Sequence[int], derivatives: StencilDerivatives
) -> None:
    """Refuse algebraic rows without algebraic unknowns.

    Raises
    ------
    InputError
        There are, as a divergence that does not contain the pressure.
    """
    for row in algebraic:
        if derivatives.has_none_of(row, algebraic):
            unknowns = ", ".join(grid.names[k] if grid.names else f"{k}" for k in algebraic)
            raise InputError(
                f"row {row} of the right-hand side contains no algebraic unknown ({unknowns})",
                expected="algebraic rows that determine the algebraic unknowns (index 1)",
                remedy="the derivative in time of the constraint, with the equations put in for "
                "the rates: for a pressure Poisson's equation instead of the divergence; or "
                "vorticity and stream function, tracing.pdes.vorticity",
            )


def _mass(grid: Grid, algebraic: Sequence[int]) -> PETSc.Mat:
    """Return the diagonal matrix M of M u' = f, zero for algebraic unknowns."""
    diagonal = grid.create_vec()
    diagonal.set(1.0)
    grid.writable(diagonal)[..., list(algebraic)] = 0.0
    matrix: Any = stencil_matrix(
        grid, [(k, k, (0,) * len(grid.shape)) for k in range(grid.dof)], by_points=True
    )
    fill_stencil_matrix(read(diagonal), matrix)
    return matrix


class _Assembled:
    """f_u as a sparse matrix, whose entries a function gives at each point."""

    def __init__(self, calls: _Calls, grid: Grid, entries: Sequence[Entry]) -> None:
        self._calls, self._grid, self._entries = calls, grid, entries

    @cached_property
    def template(self) -> PETSc.Mat:
        """A matrix of the pattern, made when one is asked for."""
        return stencil_matrix(self._grid, self._entries, by_points=True)

    @cached_property
    def _values(self) -> PETSc.Vec:
        size = prod(self._grid.owned_shape[:-1]) * len(self._entries)
        return PETSc.Vec().createSeq(size, comm=PETSc.COMM_SELF)

    def create(self, *_point: Any) -> PETSc.Mat:
        """Return a matrix to be filled."""
        return self.template.duplicate()

    def fill(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        """Fill a matrix [n, n] at a point."""
        self._calls.fill("jacobian", t, u, p, self._values)
        fill_stencil_matrix(read(self._values), out)


class _Branches:
    """What decides at all points of the rank's box.  Collective: neighbours may be other ranks'."""

    def __init__(
        self, calls: _Calls, state: PETSc.Vec, whole: Sequence[bool], moves: Sequence[bool]
    ) -> None:
        self._calls, self._state = calls, state.duplicate()
        points = state.getLocalSize() // state.getBlockSize()
        self._whole = np.tile(np.array(whole), points)
        self._moves = np.tile(np.array(moves), points)
        self._kinds = np.tile(np.arange(len(whole)), points)
        self._values = PETSc.Vec().createSeq(self._whole.size, comm=PETSc.COMM_SELF)

    def __call__(self, t: float, u: Array, p: Any, *, in_time: bool = False) -> Decisions:
        write(self._state, u)
        self._calls.fill("branches", t, self._state, p, self._values)
        values = read(self._values).copy()
        return Decisions(values, self._whole, None if in_time else self._moves, self._kinds)


class _Calls:
    """The functions as callbacks of PETSc style; p as callbacks see it."""

    def __init__(self, stencil: Stencil, numbers: int, known: Array) -> None:
        self._stencil, self._m = stencil, numbers
        self._memory = np.concatenate([np.zeros(numbers), known])
        self.size = self._memory.size
        """Of p as functions of points read it."""

    def fill(self, name: str, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill a vector with the values of a function of u alone."""
        self._stencil.apply(name, t, self.read(p), (u,), out)

    def linearise(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        """Put a matrix of products at a point."""
        linearise_matrix(t, u, self.read(p), out)

    def rhs(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        self._stencil.apply("rhs", t, self.read(p), (u,), out)

    def push(self, t: float, u: PETSc.Vec, p: Any, v: PETSc.Vec, out: PETSc.Vec) -> None:
        self._stencil.apply("push", t, self.read(p), (u, v), out)

    def pull(self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, out: PETSc.Vec) -> None:
        self._stencil.apply("pull", t, self.read(p), (u, w), out)

    def push_p(self, t: float, u: PETSc.Vec, p: Any, dp: PETSc.Vec, out: PETSc.Vec) -> None:
        self._stencil.apply("push_p", t, self.read(p), (u,), out, dp=replicated(dp))

    def pull_p(self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, out: PETSc.Vec) -> None:
        sums = self._stencil.apply("pull_p", t, self.read(p), (u, w), sums=self._m)
        # each rank has the sums over its own points
        scatter(summed(sums, w.comm), out)

    def hessian(
        self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, du: PETSc.Vec, dp: Any, *out: PETSc.Vec
    ) -> Any:
        """Fill the first of ``out``, [n]; return the part of the numbers."""
        (by_u,) = out
        p, inputs = self.read(p), (u, w, du)
        sums = self._stencil.apply("hessian", t, p, inputs, by_u, dp=dp, sums=self._m)
        return summed(sums, w.comm)

    def rhs_t(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        self._stencil.apply("rhs_t", t, self.read(p), (u,), out)

    def hessian_t(self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, *out: PETSc.Vec) -> Any:
        """Fill the first of ``out``, [n]; return the part of the numbers, and that of the time."""
        (by_u,) = out
        sums = self._stencil.apply("hessian_t", t, self.read(p), (u, w), by_u, sums=self._m + 1)
        reduced = summed(sums, w.comm)
        return reduced[:-1], float(reduced[-1])

    def read(self, p: Any) -> Array:
        """Return what the functions read of the parameters, valid until the next call."""
        if self.size == self._m:
            return p
        self._memory[: self._m] = p
        return self._memory


class _FieldCalls(_Calls):
    """The same where p is a vector of numbers and fields."""

    def __init__(
        self,
        stencil: Stencil,
        of_fields: Stencil,
        layout: FieldLayout,
        around: int,
        known: Array,
    ) -> None:
        super().__init__(stencil, layout.shapes.size, np.empty(0))
        self._p, self._dp = FieldMemory(layout, around, known), FieldMemory(layout, around)
        self.size = self._p.size
        self._of_fields, self._layout = of_fields, layout
        size = layout.points * len(layout.names)
        # derivatives in the fields at the rank's own points
        self._values = PETSc.Vec().createSeq(size, comm=PETSc.COMM_SELF)

    def push_p(self, t: float, u: PETSc.Vec, p: Any, dp: PETSc.Vec, out: PETSc.Vec) -> None:
        self._stencil.apply("push_p", t, self._p.read(p), (u,), out, dp=self._dp.read(dp))

    def pull_p(self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, out: PETSc.Vec) -> None:
        p = self._p.read(p)
        sums = self._stencil.apply("pull_p", t, p, (u, w), self._values, sums=self._m)
        self._fill(sums, w, out)

    def hessian(
        self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, du: PETSc.Vec, dp: Any, *out: PETSc.Vec
    ) -> None:
        out_u, out_p = out
        at, inputs, along = self._p.read(p), (u, w, du), self._dp.read(dp)
        sums = self._stencil.apply("hessian", t, at, inputs, out_u, dp=along, sums=self._m)
        self._of_fields.apply("hessian", t, at, inputs, self._values, dp=along)
        self._fill(sums, w, out_p)

    def hessian_t(self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, *out: PETSc.Vec) -> float:
        out_u, out_p = out
        at = self._p.read(p)
        sums = self._stencil.apply("hessian_t", t, at, (u, w), out_u, sums=self._m + 1)
        self._of_fields.apply("hessian_t", t, at, (u, w), self._values)
        reduced = self._fill(sums, w, out_p)
        return float(reduced[-1])

    def read(self, p: Any) -> Array:
        if isinstance(p, np.ndarray):  # what looks at branches has arrays of the rank's own
            vec = self._layout.create()
            write(vec, p)
            return self._p.read(vec)
        return self._p.read(p)

    def _fill(self, sums: Array, vec: PETSc.Vec, out: PETSc.Vec) -> Array:
        """Fill derivatives in all parameters; return the sums over all ranks."""
        reduced = summed(sums, vec.comm) if sums.size else sums
        fields = read(self._values).reshape(self._layout.points, -1)
        self._layout.fill(reduced[: self._m], fields, out)
        return reduced
