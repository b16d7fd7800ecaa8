"""How many threads share work, and how many of them BLAS takes."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from mpi4py import MPI
from threadpoolctl import ThreadpoolController

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
    # Ranks share the cores: threads of several would be in each other's way.
    if MPI.COMM_WORLD.size > 1 and not any(name in os.environ for name in VARIABLES):
        return 1
    return max((library.get_num_threads() for library in _libraries()), default=1)


@contextmanager
def one_blas_thread() -> Generator[None]:
    """Let BLAS take a single thread: where products are small it waits longer than it computes.

    Examples
    --------
    >>> with one_blas_thread():
    ...     thread_count()
    1
    """
    libraries = _libraries()
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, count in zip(libraries, before, strict=True):
            library.set_num_threads(count)


@lru_cache(maxsize=1)
def _libraries() -> list[Any]:
    """Return what limits the threads of each BLAS library; to find them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas").lib_controllers  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
