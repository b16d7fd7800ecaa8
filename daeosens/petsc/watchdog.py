"""A watchdog: where nothing has happened for too long, ranks tell where they are, and the job ends.

The watching thread is C (``faulthandler``): it needs no turn of Python, which a rank that waits for
others inside of PETSc does not give.
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable
from typing import TypeVar

from mpi4py import MPI

T = TypeVar("T")

PATIENCE: list[float] = []
"""The seconds of the watchdog, if there is one: who is called often looks here before a beat."""

_next_beat = 0.0


def watched(action: Callable[[], T], seconds: float) -> T:
    """Call ``action``; end the job, with tracebacks, if for so many seconds nothing is heard of it.

    What is heard: calls of this package, iterates of optimisers, lines of progress.  Each rank
    watches itself, so that all of those that wait or sleep tell where.

    Parameters
    ----------
    action : callable
        What is watched.
    seconds : float
        Patience; 0: not watched.

    Examples
    --------
    >>> watched(lambda: 3, 60.0)
    3
    """
    if seconds <= 0.0:
        return action()
    rank = f"rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size}"
    # the outermost frame that the traceback shows is the only thing it can say of the rank
    frames: dict[str, Callable[[Callable[[], T]], T]] = {}
    exec(compile("def nothing_heard_for_too_long(action): return action()", rank, "exec"), frames)
    PATIENCE[:] = [seconds]
    try:
        _arm()
        return frames["nothing_heard_for_too_long"](action)
    finally:
        PATIENCE.clear()
        faulthandler.cancel_dump_traceback_later()


def beat() -> None:
    """Tell the watchdog, if there is one, that something happens."""
    if PATIENCE and time.monotonic() > _next_beat:
        _arm()


def _arm() -> None:
    global _next_beat  # noqa: PLW0603 (there is one such timer in a process)
    _next_beat = time.monotonic() + 0.05 * PATIENCE[0]
    faulthandler.dump_traceback_later(PATIENCE[0], exit=True, file=2)
