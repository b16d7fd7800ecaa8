"""Threads for what BLAS alone would not divide: many small products that wait for one another."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import get_native_id
from typing import Any, TypeVar

from mpi4py import MPI
from threadpoolctl import ThreadpoolController

Piece = TypeVar("Piece")

VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""Environment variables that say how many threads BLAS may take."""


def thread_count() -> int:
    """Return how many threads may share work: as many as BLAS takes for large products.

    ``OMP_NUM_THREADS`` and ``threadpoolctl.threadpool_limits`` say how many; otherwise there is one
    for each core, but a single one in each of several ranks.

    Examples
    --------
    >>> thread_count() >= 1
    True
    """
    if MPI.COMM_WORLD.size > 1 and not any(name in os.environ for name in VARIABLES):
        return 1
    libraries: list[dict[str, Any]] = _blas().info()  # pyright: ignore[reportUnknownVariableType]
    return max((library["num_threads"] for library in libraries), default=1)


def share(pieces: Iterable[Piece], workers: Sequence[Callable[[Piece], None]]) -> None:
    """Do all pieces of some work, each by the worker that is free first.

    Parameters
    ----------
    pieces : iterable
    workers : sequence of callables
        ``worker(piece)``, each in a thread of its own; the first one in that of the caller, which
        keeps to its core meanwhile, and BLAS to a single thread, where there are several.

    Raises
    ------
    Exception
        What a worker raised; no piece is begun after that.

    Examples
    --------
    >>> total = []
    >>> share(range(4), [total.append, total.append])
    >>> sorted(total)
    [0, 1, 2, 3]
    """
    if len(workers) == 1:
        for piece in pieces:
            workers[0](piece)
        return
    left = deque(pieces)

    def work(worker: Callable[[Piece], None]) -> None:
        try:
            while left:
                try:
                    piece = left.popleft()
                except IndexError:  # another one took the last
                    return
                worker(piece)
        finally:
            left.clear()

    pool, numbers = _pool(len(workers) - 1)
    with one_blas_thread(), _cores_apart(numbers):
        others = [pool.submit(work, each) for each in workers[1:]]
        try:
            work(workers[0])
        finally:
            wait(others)
        for other in others:
            other.result()


@contextmanager
def one_blas_thread() -> Generator[None]:
    """Let BLAS take a single thread: where products are small it waits longer than it computes.

    Examples
    --------
    >>> with one_blas_thread():
    ...     thread_count()
    1
    """
    libraries: list[Any] = _blas().lib_controllers  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, count in zip(libraries, before, strict=True):
            library.set_num_threads(count)


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    """Return what limits the threads of the BLAS libraries; to find them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


@lru_cache(maxsize=1)
def _pool(size: int) -> tuple[ThreadPoolExecutor, list[int]]:
    """Return threads that wait for work, and by which numbers the system knows those that began.

    To start one takes longer than many a sweep.  They end with the pool, when another size is asked
    for: what they begin with must not refer to it.
    """
    numbers: list[int] = []
    pool = ThreadPoolExecutor(size, "daeosens", lambda: numbers.append(get_native_id()))
    return pool, numbers


@contextmanager
def _cores_apart(others: Sequence[int]) -> Generator[None]:
    """Keep this thread on its core, and others off it.

    Linux takes idle cores of virtual machines for busy ones: a thread would wake on the core of the
    one that woke it, and wait there for milliseconds.
    """
    core = _core() if others else -1
    allowed = os.sched_getaffinity(0) if core >= 0 else set[int]()
    if not allowed - {core}:
        yield
        return
    try:
        with suppress(OSError):  # containers may forbid it: then there are only longer waits
            for number in others:
                os.sched_setaffinity(number, allowed - {core})
            os.sched_setaffinity(0, {core})
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, allowed)


_core: Callable[[], int] = getattr(ctypes.CDLL(None), "sched_getcpu", lambda: -1)
"""Returns the core that this thread runs on, where the system tells."""

if hasattr(os, "register_at_fork"):  # a fork has the pool, and none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
