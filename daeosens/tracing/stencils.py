"""Problems on grids from one function of a point: traced, differentiated, compiled."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens._petsc import Stencil, create_matrix, linearise_matrix, pool_memory
from daeosens.arrays import Array, gather, scatter
from daeosens.equations import ODE
from daeosens.errors import InputError
from daeosens.grids import Grid
from daeosens.matrices import Derivative, Products, negative
from daeosens.problem import AUTONOMOUS, Problem
from daeosens.tracing.compilation import load
from daeosens.tracing.model import Parametrized
from daeosens.tracing.named import admit_shapes
from daeosens.tracing.stencil_derivatives import PointFunction, StencilDerivatives
from daeosens.tracing.stencil_point import point_graph
from daeosens.tracing.stencil_source import axes, stencil_source, work_size

MOST_CALLS = 16
"""Calls of a chain: no explicit method has more stages."""

LOOPS = ("turn", "weigh", "reduce", "compare", "advance")
"""Of BiCGStab, in ``_petsc/bicgstab.h``."""


def build_stencil(
    rhs: Callable[..., Any],
    grid: Grid,
    parameters: int | Sequence[str] | Mapping[str, Any],
) -> Parametrized:
    """Return the problem of ``daeosens.trace_stencil``, whose arguments these are."""
    shapes = admit_shapes(parameters)
    periodic = grid.boundary == "periodic"
    graph = point_graph(rhs, shapes, grid.dof, grid.spacing)
    derivatives = StencilDerivatives(graph, grid.spacing, grid.box, periodic=periodic)
    functions = derivatives.functions()
    stencil = _make_stencil(functions, grid, periodic=periodic)
    calls = _Calls(stencil, shapes.size)
    in_time: dict[str, Any] = {"rhs_t": AUTONOMOUS}
    if not derivatives.autonomous:
        in_time = {"rhs_t": calls.rhs_t, "hessian_t": calls.hessian_t}
    problem = ODE(
        calls.rhs,
        state=grid.dm,
        parameters=shapes.names,
        jacobian=Products(calls.push, calls.pull),
        jacobian_p=Products(calls.push_p, calls.pull_p) if shapes.size else None,
        hessian_product=calls.hessian,
        **in_time,
    )
    state = problem.state
    pool_memory(state)
    rhs_u = Derivative(
        lambda *_point: create_matrix(stencil, state, shapes.size),
        linearise_matrix,
        assembled=False,
        shifts=True,
    )
    problem = replace(problem, rhs_u=rhs_u, residual_u=negative(rhs_u), stencil=stencil)
    given = {each.name: getattr(problem, each.name) for each in fields(Problem)}
    return Parametrized(**given, shapes=shapes)


def _make_stencil(functions: Sequence[PointFunction], grid: Grid, *, periodic: bool) -> Stencil:
    """Compile the functions, and bind them to the rank's box.  Collective."""
    corner, points = grid.dm.getCorners()
    dimensions = len(points)
    library = load(stencil_source(functions, grid.dof, dimensions), grid.dm.comm.tompi4py())
    width = max(max(each.widths(k), default=0) for each in functions for k in range(each.vectors))
    wide = None if grid.dm.comm.size == 1 else _wide(grid, width)
    first = [x + h * k for x, h, k in zip(grid.origin, grid.spacing, corner, strict=True)]
    stencil = Stencil(
        wide,
        width,
        [max(1, n) for n in axes(tuple(points))],
        axes(tuple(first)),
        axes(tuple(grid.spacing)),
        periodic,
        np.zeros((MOST_CALLS, work_size(functions, grid.dof, tuple(points)))),
    )
    for each in functions:
        around = [any(each.widths(k)) for k in range(each.vectors)]
        reach = max((axes(each.widths(k))[2] for k in range(each.vectors)), default=0)
        stencil.add(each.name, _address(library, each.name), around, reach, library)
    stencil.add_loops(*(_address(library, name) for name in LOOPS))
    return stencil


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, f"daeosens_{name}"), ctypes.c_void_p).value or 0


def _wide(grid: Grid, width: int) -> PETSc.DMDA:
    """Return a DM of the same layout that exchanges all points a function reads."""
    dm: Any = grid.dm
    box: Any = PETSc.DMDA.StencilType.BOX
    try:
        return PETSc.DMDA().create(
            dm.getSizes(),
            dof=grid.dof,
            proc_sizes=dm.getProcSizes(),
            boundary_type=dm.getBoundaryType(),
            stencil_type=box,
            stencil_width=width,
            ownership_ranges=dm.getOwnershipRanges(),
            comm=dm.comm,
        )
    except PETSc.Error as error:
        raise InputError(
            f"derivatives read points {width} away, and some rank has fewer along one dimension",
            expected=f"at least {width} rows or columns of points for each rank",
            remedy="fewer ranks, or more points",
        ) from error


class _Calls:
    """The functions as callbacks of PETSc style."""

    def __init__(self, stencil: Stencil, n_parameters: int) -> None:
        self._stencil = stencil
        self._m = n_parameters

    def rhs(self, t: float, u: PETSc.Vec, p: Array, out: PETSc.Vec) -> None:
        self._stencil.apply("rhs", t, p, (u,), out)

    def push(self, t: float, u: PETSc.Vec, p: Array, v: PETSc.Vec, out: PETSc.Vec) -> None:
        self._stencil.apply("push", t, p, (u, v), out)

    def pull(self, t: float, u: PETSc.Vec, p: Array, w: PETSc.Vec, out: PETSc.Vec) -> None:
        self._stencil.apply("pull", t, p, (u, w), out)

    def push_p(self, t: float, u: PETSc.Vec, p: Array, dp: PETSc.Vec, out: PETSc.Vec) -> None:
        self._stencil.apply("push_p", t, p, (u,), out, dp=gather(dp))

    def pull_p(self, t: float, u: PETSc.Vec, p: Array, w: PETSc.Vec, out: PETSc.Vec) -> None:
        sums = self._stencil.apply("pull_p", t, p, (u, w), sums=self._m)
        scatter(_reduced(sums, w), out)

    def hessian(
        self,
        t: float,
        u: PETSc.Vec,
        p: Array,
        w: PETSc.Vec,
        du: PETSc.Vec,
        dp: Array,
        out: PETSc.Vec,
    ) -> Array:
        sums = self._stencil.apply("hessian", t, p, (u, w, du), out, dp=dp, sums=self._m)
        return _reduced(sums, w)

    def rhs_t(self, t: float, u: PETSc.Vec, p: Array, out: PETSc.Vec) -> None:
        self._stencil.apply("rhs_t", t, p, (u,), out)

    def hessian_t(
        self, t: float, u: PETSc.Vec, p: Array, w: PETSc.Vec, out: PETSc.Vec
    ) -> tuple[Array, float]:
        sums = self._stencil.apply("hessian_t", t, p, (u, w), out, sums=self._m + 1)
        reduced = _reduced(sums, w)
        return reduced[:-1], float(reduced[-1])


def _reduced(sums: Array, vec: PETSc.Vec) -> Array:
    """Return the sums over all ranks.  Collective."""
    return sums if vec.comm.size == 1 else vec.comm.tompi4py().allreduce(sums)
