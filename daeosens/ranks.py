"""What keeps ranks from waiting for each other for ever."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from mpi4py import MPI
from petsc4py import PETSc

_ANCHORS: dict[int, PETSc.Vec] = {}


def anchor(comm: Any) -> None:
    """Keep one vector on a communicator (petsc4py's or mpi4py's) of several ranks.  Collective.

    PETSc frees its duplicate of a communicator with the last object on it, and makes a new one with
    the next object, which all ranks have to do together.  Python may drop the last object on some
    ranks earlier than on others: then those wait in MPI_Comm_dup for ever (PETSc 3.26).
    """
    if comm.size == 1:
        return
    ranks = comm.tompi4py() if isinstance(comm, PETSc.Comm) else comm
    handle = MPI._handleof(ranks)  # type: ignore[attr-defined]
    if handle not in _ANCHORS:
        _ANCHORS[handle] = PETSc.Vec().createMPI((0, 0), comm=comm)


def abort(error: BaseException) -> None:
    """Print the traceback with this rank's number and end the whole job with exit code 1."""
    text = "".join(traceback.format_exception(error))
    sys.stdout.flush()
    sys.stderr.write(f"[rank {MPI.COMM_WORLD.rank}] {text}")
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)
    os._exit(1)  # pragma: no cover (Abort does not return)


def install_abort_hook() -> None:
    """Make an uncaught exception on any rank end the whole job (once, only with several ranks)."""
    if MPI.COMM_WORLD.size == 1 or getattr(sys.excepthook, "ends_the_job", False):
        return

    def hook(_kind: type[BaseException], error: BaseException, _where: object) -> None:
        abort(error)

    hook.ends_the_job = True  # type: ignore[attr-defined]
    sys.excepthook = hook
