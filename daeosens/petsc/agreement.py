"""Errors that concern all ranks: what fails on one is raised on every one, so that nobody waits."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar, cast

from mpi4py import MPI

from daeosens.errors import DaeosensError

T = TypeVar("T")
Failure: TypeAlias = tuple[type[DaeosensError], str]


def on_every_rank(comm: MPI.Intracomm, action: Callable[[], T]) -> T:
    """Call ``action``, which must not communicate, on every rank; raise on all if it fails on one.

    Returns
    -------
    T
        What this rank's own call returned.

    Raises
    ------
    DaeosensError
        The first failure in rank order, of the same class; the failing rank's own exception there.
    """
    value, error = _attempt(action)
    # Before anybody raises: after this all ranks know of every failure.
    failures = comm.allgather(describe(error))
    if error is not None:
        raise error
    raise_first(failures)
    return cast("T", value)


def raise_first(failures: Sequence[Failure | None]) -> None:
    """Raise the first failure in rank order of those that ranks have described, if there is one."""
    for rank, failure in enumerate(failures):
        if failure is not None:
            raise failure[0](f"{failure[1]}\n  on rank {rank} of {len(failures)}") from None


def on_first_rank(comm: MPI.Intracomm, action: Callable[[], T]) -> T:
    """Call ``action`` on rank 0 only; its value (pickled) or its failure reaches every rank.

    Raises
    ------
    DaeosensError
        As :func:`on_every_rank`.
    """
    value, error = _attempt(lambda: pickle.dumps(action())) if comm.rank == 0 else (None, None)
    failure, shared = comm.bcast((describe(error), value))
    if error is not None:
        raise error
    if failure is not None:
        raise failure[0](failure[1])
    return pickle.loads(shared)


def describe(error: BaseException | None) -> Failure | None:
    """Turn an exception into what can be sent: the class to raise elsewhere, and the message."""
    if error is None:
        return None
    known = [kind for kind in type(error).__mro__ if kind.__module__ == DaeosensError.__module__]
    if known:  # the user's own classes may not be sendable
        return cast("type[DaeosensError]", known[0]), str(error)
    return DaeosensError, f"{type(error).__name__}: {error}"


def all_arrive(comm: MPI.Intracomm, seconds: float) -> bool:
    """Wait until every rank has called this, at most ``seconds``; tell whether they have."""
    request = comm.Ibarrier()
    deadline = time.monotonic() + seconds
    pause = 1e-6
    while not request.Test():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
    return True


def _attempt(action: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return action(), None
    except Exception as error:  # noqa: BLE001 (raised on all ranks)
        return None, error
