"""Tasks that several processes share by a folder.

What a task has found is a file; a task under way has a lock, which the system takes from a process
that dies.  So processes need to know nothing of each other, be they ranks, elements of an array
job, or programs that are begun later: each does what nobody has done or is at, and what others do
not bring to an end is done again.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mpi4py import MPI

from daeosens.io.files import unwritable
from daeosens.petsc.agreement import on_first_rank
from daeosens.petsc.watchdog import beat

LOCKS = ".tasks.lock"
"""The file whose byte k is locked by the process that is at task k."""

LONGEST_PAUSE = 0.5
"""Seconds between two looks at whether a task of another process has ended, at most."""

_helping = [False]


class Helped(SystemExit):
    """A process that only helps has found nothing more to do."""


def helping() -> bool:
    """Whether this process leaves where others are at all tasks that are left."""
    return _helping[0]


@contextmanager
def as_helper() -> Generator[None]:
    """Leave the waiting for tasks of others, and what comes after all of them, to another process.

    Examples
    --------
    >>> with as_helper():
    ...     helping()
    True
    """
    _helping[0] = True
    try:
        yield
    finally:
        _helping[0] = False


def claimed(
    folder: Path, names: Sequence[str], group: MPI.Intracomm, first: int = 0
) -> Generator[int]:
    """Yield the number of one task after the other that nobody has done, or is at.

    Who gets one writes its file before the next one is asked for.  Ends when the files of all tasks
    are there, which may have to wait for other processes; in one that helps, when others are at all
    that are left.  Collective on the ranks that do a task together.

    On a file system without locks several processes may do the same task.

    Parameters
    ----------
    folder : Path
        Which all processes see.
    names : sequence of str
        The names of the tasks' files.
    group : MPI.Intracomm
        The ranks that do a task together.
    first : int
        Which one to begin with; they go round.

    Raises
    ------
    DaeosensError
        The folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for k in claimed(Path(folder), ["a", "b", "c"], MPI.COMM_SELF, first=1):
    ...         _ = (Path(folder) / "abc"[k]).write_text("done")
    ...         print(k)
    1
    2
    0
    """
    begin = first % max(len(names), 1)
    left = [*range(begin, len(names)), *range(begin)]
    locks = on_first_rank(group, lambda: _opened(folder / LOCKS))
    try:
        while (number := on_first_rank(group, lambda: _next(folder, names, left, locks))) >= 0:
            try:
                yield number
            finally:
                if group.rank == 0:
                    _unlock(locks, number)
    finally:
        if group.rank == 0:
            os.close(locks)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise unwritable(path, error) from error


def _next(folder: Path, names: Sequence[str], left: list[int], locks: int) -> int:
    """Return the number of a task that is now ours, or -1; done ones are taken from ``left``."""
    pause = 1e-3
    while True:
        # what has a file is done; of the rest the first whose lock is free is ours
        for number in [*left]:
            if not (folder / names[number]).is_file():
                if not _lock(locks, number):
                    continue
                # it may have ended between the look and the lock
                if not (folder / names[number]).is_file():
                    return number
                _unlock(locks, number)
            left.remove(number)
        if not left or helping():
            return -1
        beat()
        # others are at all that is left, and may die: look again, less often the longer it takes
        time.sleep(pause)
        pause = min(2.0 * pause, LONGEST_PAUSE)


def _lock(locks: int, number: int) -> bool:
    """Lock a byte of a file; tell whether no other process has."""
    try:
        fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # no locks here: the task is done more than once, to the same result
        return True
    return True


def _unlock(locks: int, number: int) -> None:
    with suppress(OSError):
        fcntl.lockf(locks, fcntl.LOCK_UN, 1, number)
