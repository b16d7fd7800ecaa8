"""Functions of a point as what C calls: compiled, at once or when they are needed, or interpreted.

A compiler takes a tenth of a second for a short one, and seconds for a long one, as it vectorises a
loop for each number of vectors that values are added to.  So those are compiled that somebody
calls, when that is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from daeosens.petsc._kernels import Stencil
from daeosens.petsc.agreement import on_every_rank
from daeosens.petsc.c_function import LateAddress
from daeosens.petsc.vectors import Array
from daeosens.problem.grids import Grid
from daeosens.problem.grids.stencil_matrix import wide_dm
from daeosens.tracing.compilation import load
from daeosens.tracing.execution import compiled_library
from daeosens.tracing.stencil.chain import chain_size, chained
from daeosens.tracing.stencil.derivatives import PointFunction
from daeosens.tracing.stencil.interpreted import interpreted
from daeosens.tracing.stencil.loops import header, point_source
from daeosens.tracing.stencil.rows import LINE, Rows, axes

LOOPS = ("turn", "weigh", "reduce", "compare", "advance")
"""Of BiCGStab, in ``_kernels/grids/bicgstab.h``."""

OF_FIELDS = "_fields"
"""How the names of functions end that give derivatives in fields beside those in the state."""


def compiled_points(
    functions: Sequence[PointFunction], grid: Grid
) -> Mapping[str, LateAddress] | None:
    """Return where the C functions are, by their names; None without a compiler.  Collective.

    The first function, and the loops of BiCGStab, are compiled now, others when their addresses are
    asked for.
    """
    source = point_source(functions[:1], (), grid.dof, grid.shape) + header("bicgstab.h")
    library = compiled_library(source, grid.dm.comm.tompi4py())
    if library is None:
        return None
    made: Callable[[], ctypes.CDLL] = lambda: library  # noqa: E731
    addresses = {name: _address(name, made) for name in (functions[0].name, *LOOPS)}
    for function in functions[1:]:
        addresses[function.name] = _address(function.name, _later(grid, boxes=[function]))
    for function in functions:
        if chained(function) is not None:
            name = f"chain_{function.name}"
            addresses[name] = _address(name, _later(grid, chains=[function]))
    return addresses


def _address(name: str, library: Callable[[], ctypes.CDLL]) -> LateAddress:
    def find() -> int:
        entry: Any = getattr(library(), f"daeosens_{name}")
        return ctypes.cast(entry, ctypes.c_void_p).value or 0

    return LateAddress(find)


def _later(
    grid: Grid, boxes: Sequence[PointFunction] = (), chains: Sequence[PointFunction] = ()
) -> Callable[[], ctypes.CDLL]:
    """Return what compiles functions, once.  Collective: where a rank cannot, all raise."""
    comm = grid.dm.comm.tompi4py()

    def compile_now() -> ctypes.CDLL:  # one of several processes, the others wait for it
        return load(point_source(boxes, chains, grid.dof, grid.shape), MPI.COMM_SELF)

    return cache(lambda: on_every_rank(comm, compile_now))


def bind_points(
    functions: Sequence[PointFunction],
    grid: Grid,
    addresses: Mapping[str, LateAddress] | None,
) -> Stencil:
    """Bind functions, compiled or not (no addresses), to the rank's box.  Collective."""
    corner, points = grid.dm.getCorners()
    # ghost points that the widest function reads
    width = max(
        max(function.widths(k), default=0)
        for function in functions
        for k in range(function.vectors)
    )
    wide = None if grid.dm.comm.size == 1 else wide_dm(grid, width)
    # coordinates of the rank's own first point
    first = [x + h * k for x, h, k in zip(grid.origin, grid.spacing, corner, strict=True)]
    stencil = Stencil(
        wide,
        width,
        [max(1, n) for n in axes(tuple(points))],
        axes(tuple(first)),
        axes(tuple(grid.spacing)),
        # along all dimensions or none; the functions know of edges beside
        "periodic" in grid.boundaries,
        _aligned(max(LINE, _work_size(functions, grid.dof, tuple(points)))),
    )
    for function in functions:
        around = [any(function.widths(k)) for k in range(function.vectors)]
        reach = max((axes(function.widths(k))[2] for k in range(function.vectors)), default=0)
        name = function.name.removesuffix(OF_FIELDS)
        if addresses is None:
            # without a compiler CasADi carries the graph out, point by point
            call = interpreted(function, grid.dof, len(points))
            address = ctypes.cast(call, ctypes.c_void_p).value or 0
            stencil.add(name, address, around, reach, call)
        else:
            stencil.add(name, addresses[function.name], around, reach, addresses)
    if addresses is not None:
        if wide is None:
            _add_chains(stencil, functions, grid.dof, tuple(points), addresses)
        stencil.add_loops(*(int(addresses[name]) for name in LOOPS))
    return stencil


def _work_size(functions: Sequence[PointFunction], dof: int, points: tuple[int, ...]) -> int:
    """Return how many numbers a function needs as work space for a box of points.

    It is to begin on a cache line, and ends on one.
    """
    rows = [Rows(function, dof, len(points)) for function in functions]
    return max(row.size(row.kept, points) for row in rows)


def _add_chains(
    stencil: Stencil,
    functions: Sequence[PointFunction],
    dof: int,
    points: tuple[int, ...],
    addresses: Mapping[str, LateAddress],
) -> None:
    """Let the stages of a step follow each other by rows, where a rank has all points."""
    sizes = {function.name: chain_size(function, dof, points) for function in functions}
    work = _aligned(max(sizes.values()))
    for function in functions:
        # stages of one row while it is in the cache, then those of the next
        vector = chained(function)
        if vector is not None and sizes[function.name]:
            stencil.add_chain(function.name, addresses[f"chain_{function.name}"], vector, work)


def _aligned(size: int) -> Array:
    """Return zeros [size] that begin on a cache line."""
    numbers = np.zeros(size + LINE)
    start = -numbers.ctypes.data // numbers.itemsize % LINE
    return numbers[start : start + size]
