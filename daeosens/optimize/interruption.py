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

from daeosens.petsc.ranks import abort

INTERRUPTED = ("INTERRUPTED", "interrupted; this is the best point so far")
"""Name and words of this reason to stop."""


@dataclass
class Interruption:
    """Whether the user wants to stop, asked on all ranks together.

    On one rank Ctrl-C raises ``KeyboardInterrupt`` wherever it comes.  On several that would leave
    the others waiting: it is noted, and raised on every rank before the next evaluation.
    """

    ranks: MPI.Intracomm
    wanted: bool = False

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` on every rank if one of them wants to stop.  Collective."""
        # Ctrl-C may reach some ranks only: one reduction before each evaluation, in which all
        # take part.
        if self.ranks.size > 1 and self.ranks.allreduce(self.wanted, op=MPI.LOR):
            raise KeyboardInterrupt

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
def interruptible(comm: Any) -> Generator[Interruption]:
    """Let Ctrl-C stop what runs inside on all ranks of a communicator (petsc4py's or mpi4py's).

    Inside another one it is that one: its ranks do the same together.
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
    try:
        yield interruption
    finally:
        _current.pop()
        if handles:
            signal.signal(signal.SIGINT, before)
