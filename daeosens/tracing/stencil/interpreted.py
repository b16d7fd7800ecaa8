"""Functions of a grid's points without a compiler: CasADi evaluates them where C calls them.

The extension calls Python functions in the place of compiled ones, with the same arguments: TS,
matrices and sweeps do not know the difference.
"""

from __future__ import annotations

import ctypes
from functools import cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array
from daeosens.tracing.stencil.derivatives import PointFunction, Read
from daeosens.tracing.stencil.rows import FIELD_MEMORY, axes

Places: TypeAlias = "tuple[npt.NDArray[np.intp], ...]"
"""Numbers of points along the slowest, the middle and the fastest dimension."""

_LONG, _DOUBLE, _ADDRESS = ctypes.c_long, ctypes.c_double, ctypes.c_void_p


class Box(ctypes.Structure):
    """The type of that name in ``_kernels/grids/stencil.h``."""

    _fields_ = (
        ("n", _LONG * 3),
        ("first", _DOUBLE * 3),
        ("spacing", _DOUBLE * 3),
        ("periodic", ctypes.c_int),
        ("t", _DOUBLE),
        ("p", _ADDRESS),
        ("dp", _ADDRESS),
        ("inputs", _ADDRESS * 3),
        ("ghosts", _LONG * 3),
        ("out", _ADDRESS),
        ("add", _ADDRESS * 4),
        ("alpha", _DOUBLE),
        ("beta", _DOUBLE * 4),
        ("addends", ctypes.c_int),
        ("sums", _ADDRESS),
        ("work", _ADDRESS),
        ("begin", _LONG),
        ("first_place", _LONG),
        ("end_place", _LONG),
    )


def interpreted(function: PointFunction, dof: int, dimensions: int) -> Any:
    """Return a function as C calls it: ``void (*)(const Box *)``; it has to be kept alive."""
    evaluate = _Evaluation(function, dof, dimensions)

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(Box))
    def call(box: Any) -> None:
        b = box.contents
        first, end = int(b.begin + b.first_place), int(b.begin + b.end_place)
        rows = np.arange(first, end) % int(b.n[2])
        places = rows, np.arange(int(b.n[1])), np.arange(int(b.n[0]))
        try:
            values, sums = evaluate(b, places)
        except BaseException:  # C cannot be told: what is not finite ends the run
            shape = (*map(len, places), function.n_out)
            _store(b, rows, np.full(shape, np.nan), np.full(function.n_sums, np.nan))
            raise
        _store(b, rows, values, sums)

    return call


class _Evaluation:
    """A function at many points of a box."""

    def __init__(self, function: PointFunction, dof: int, dimensions: int) -> None:
        self._function = function
        self._dof = dof
        self._axes = ((0,), (0, 2), (0, 1, 2))[dimensions - 1]  # of x: fastest, middle, slowest
        # t, p and dp are those of all points, and sums are added up
        self._at_points = cache(
            lambda count: function.function.map(function.name, "serial", count, [0, 1, 2], [1])
        )

    def __call__(self, b: Box, places: Places) -> tuple[Array, Array]:
        """Return values [slow, middle, fast, n_out] and sums [n_sums]."""
        function, shape = self._function, tuple(map(len, places))
        count, m = prod(shape), function.function.numel_in("p")
        reads = np.empty((*shape, len(function.reads)))
        for k, read in enumerate(function.reads):
            reads[..., k] = self._values(b, places, read)
        x = np.empty((*shape, len(self._axes)))
        for k, axis in enumerate(self._axes):
            along = b.first[axis] + places[2 - axis] * b.spacing[axis]
            x[..., k] = along.reshape(-1, *(1,) * axis)
        parameters = [_at(address, m) if address else np.zeros(m) for address in (b.p, b.dp)]
        values, sums = np.empty((*shape, function.n_out)), np.empty(function.n_sums)
        inputs = [np.array([b.t]), *parameters, x, reads]  # CasADi does not keep them alive
        buffer, run = self._at_points(count).buffer()
        for k, vector in enumerate(inputs):
            buffer.set_arg(k, _bytes(vector))
        for k, filled in enumerate((values, sums)):
            buffer.set_res(k, _bytes(filled))
        run()
        return values, sums

    def _values(self, b: Box, places: Places, read: Read) -> Array:
        """Return one number that is read [slow, middle, fast]; 0 beyond the edge."""
        if read.vector in FIELD_MEMORY:
            return self._field_values(b, places, read)
        around = [b.ghosts[read.vector] if axis in self._axes else 0 for axis in (2, 1, 0)]
        counts = tuple(b.n)[::-1]
        stored = [n + 2 * more for n, more in zip(counts, around, strict=True)]
        # the rank's own part with its ghosts, as C sees it
        values = _at(b.inputs[read.vector], prod(stored) * self._dof)
        offsets = reversed(axes(read.offset))
        moved = [
            place + more + offset
            for place, more, offset in zip(places, around, offsets, strict=True)
        ]
        # periodic or not: indices wrap, and what has wrapped is set to 0 below where the edge is
        # one
        inside = [numbers % n for numbers, n in zip(moved, stored, strict=True)]
        neighbours = values.reshape(*stored, self._dof)[..., read.component][np.ix_(*inside)]
        if not b.periodic:
            for axis, (unwrapped, wrapped) in enumerate(zip(moved, inside, strict=True)):
                neighbours.swapaxes(0, axis)[unwrapped != wrapped] = 0.0
        return neighbours

    def _field_values(self, b: Box, places: Places, read: Read) -> Array:
        """Return one number of a field [slow, middle, fast], which has points around the box."""
        memory = FIELD_MEMORY[read.vector]
        widths = [self._function.around if axis in self._axes else 0 for axis in (2, 1, 0)]
        stored = [n + 2 * more for n, more in zip(tuple(b.n)[::-1], widths, strict=True)]
        first = self._function.function.numel_in(memory) + read.component * prod(stored)
        address = (b.p if memory == "p" else b.dp) + first * ctypes.sizeof(_DOUBLE)
        moved = [
            place + more + offset
            for place, more, offset in zip(places, widths, reversed(axes(read.offset)), strict=True)
        ]
        return _at(address, prod(stored)).reshape(stored)[np.ix_(*moved)]


def _store(b: Box, rows: npt.NDArray[np.intp], values: Array, sums: Array) -> None:
    """Write values [rows, middle, fast, n_out] and add sums as compiled functions do."""
    size = b.n[2], *values.shape[1:]

    def vector(address: int) -> Array:
        return _at(address, prod(size)).reshape(size)

    if b.out:
        total = b.alpha * values
        for k in range(b.addends):
            total += b.beta[k] * vector(b.add[k])[rows]
        vector(b.out)[rows] = total
    if sums.size:
        _at(b.sums, sums.size)[:] += sums


def _at(address: int, size: int) -> Array:
    """Return the numbers [size] at an address, a view."""
    if not size:
        return np.empty(0)
    numbers: Any = (_DOUBLE * size).from_address(address)
    return np.frombuffer(numbers)


def _bytes(values: Any) -> memoryview:
    return memoryview(values)
