"""Ctrl-C during a minimisation: what has been found so far is kept, on every rank."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError
from daeosens.petsc.agreement import Failure, describe, raise_first
from daeosens.petsc.ranks import abort

INTERRUPTED = ("INTERRUPTED", "interrupted; this is the best point so far")
"""Name and words of this reason to stop."""


class OtherRankFailedError(DaeosensError):
    """Another rank has failed, with what is raised here in the place of this."""


@dataclass
class Interruption:
    """Whether the user wants to stop, asked on all ranks together.

    On one rank Ctrl-C raises ``KeyboardInterrupt`` wherever it comes.  On several that would leave
    the others waiting: it is noted, and raised on every rank before the next evaluation.
    """

    ranks: MPI.Intracomm
    wanted: bool = False

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` on every rank if one of them wants to stop.  Collective.

        Raises
        ------
        OtherRankFailedError
            A rank has failed that has a functional of its own.
        """
        if self.ranks.size == 1:
            return
        # Ctrl-C may reach some ranks only: one exchange before each evaluation, in which all
        # take part.
        heard: list[bool | Failure | None] = self.ranks.allgather(self.wanted)
        if any(isinstance(word, tuple) for word in heard):
            raise OtherRankFailedError("another rank has failed")
        if True in heard:
            raise KeyboardInterrupt

    def leave(self, error: BaseException | None) -> None:
        """Answer to ranks that still evaluate until none does; raise what failed on another rank.

        With ``error`` this rank has failed itself, which the others are told.
        """
        told = None if isinstance(error, OtherRankFailedError) else describe(error)
        while True:
            heard: list[bool | Failure | None] = self.ranks.allgather(told)
            if not any(isinstance(word, bool) for word in heard):
                break
        if told is None:
            raise_first([word for word in heard if not isinstance(word, bool)])

    def note(self, _signal: int, _frame: object) -> None:
        """Note Ctrl-C; the second one ends the job."""
        if self.wanted:
            abort(KeyboardInterrupt("a second time"))
        self.wanted = True
        sys.stderr.write("\ninterrupted: stopping after this run; once more ends the job\n")


_current: list[Interruption] = []
_heard = [0]


def interruptions() -> int:
    """Return how often Ctrl-C has ended work in this process without ending the program."""
    return _heard[0]


def keep_what_is_there() -> None:
    """Count a ``KeyboardInterrupt`` that is answered with what has been found so far."""
    _heard[0] += 1


@contextmanager
def interruptible(comm: Any, *, copies: bool = False) -> Generator[Interruption]:
    """Let Ctrl-C stop what runs inside on all ranks of a communicator (petsc4py's or mpi4py's).

    Inside another one it is that one: its ranks do the same together.  With ``copies`` each rank
    has a functional of its own, which may fail, or be evaluated more often, on some ranks only:
    those that are through wait for the others, and a failure is raised on every rank.
    """
    if _current:
        yield _current[-1]
        return
    ranks: MPI.Intracomm = comm.tompi4py() if isinstance(comm, PETSc.Comm) else comm
    interruption = Interruption(ranks)
    before: Any = None
    # Python lets only the main thread set handlers.
    main = threading.current_thread() is threading.main_thread()
    handles = main and ranks.size > 1
    if handles:
        before = signal.signal(signal.SIGINT, interruption.note)
    _current.append(interruption)
    failure: BaseException | None = None
    try:
        yield interruption
    except BaseException as error:
        failure = error
        raise
    finally:
        try:
            if copies and ranks.size > 1:
                interruption.leave(failure)
        finally:
            _current.pop()
            if handles:
                signal.signal(signal.SIGINT, before)
