"""A program for test_memory.py: what cycles of solve and adjoint leave on each of several ranks.

``mpiexec -n 2 python cycles.py CYCLES`` prints the bytes of the heap in use [a cycle] that each
window of 25 cycles in the second half has added at least, for each kind of problem.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed import make, make_cost
from petsc4py import PETSc

import daeosens as ds

WINDOW = 25
"""Cycles between two looks."""


class _Heap(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def in_use() -> int:
    """Return the bytes that malloc has given out and not got back."""
    mallinfo = ctypes.CDLL(None).mallinfo2  # of glibc
    mallinfo.restype = _Heap
    heap = mallinfo()
    return int(heap.uordblks) + int(heap.hblkhd)


def cycle_of(comm: Any, style: str, *, field: bool, method: str) -> Callable[[], None]:
    """Return one solve, its adjoint and what users read of both."""
    case = make(comm, style, field=field)
    cost = make_cost(case)
    stepping = ds.Stepping((0.0, 0.2), method, dt=0.05)

    def cycle() -> None:
        run = ds.solve(case.problem, case.u0, case.p, stepping, (0.06, 0.13))
        gradient = ds.adjoint(run, cost)
        assert gradient.u0.size == run.final.local_size

    return cycle


def main(cycles: int) -> None:
    comm = PETSc.COMM_WORLD
    for style, field, method in (("dmda", False, "cn"), ("vec", True, "rk4")):
        cycle = cycle_of(comm, style, field=field, method=method)
        marks: list[int] = []
        for number in range(cycles + 1):
            if number >= cycles // 2 and not number % WINDOW:
                gc.collect()
                PETSc.garbage_cleanup(comm)
                marks.append(in_use())
            cycle()
        # a leak shows in all windows, a list that grows now and then in some
        grown = comm.tompi4py().allgather(min(np.diff(marks)) / WINDOW)
        if comm.rank == 0:
            print(style, method, *(f"{bytes_:.1f}" for bytes_ in grown), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
