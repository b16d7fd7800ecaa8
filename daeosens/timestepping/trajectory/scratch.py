"""States in a file: checkpoints for which there is no room in memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO
from zlib import crc32

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, SolveError
from daeosens.petsc.vectors import Array, read, write


class Scratch:
    """A file with room for some states of a rank, gone with the process whatever happens.

    Collective.

    Parameters
    ----------
    folder : str or None
        Where the file lies; the system's folder for temporary files by default.
    slots : int
        How many states there is room for.
    like : Vec [n]
        What states are like.
    grows : bool
        Whether more room is taken where that is too little; a state that cannot be written then is
        an error where it is read.

    Attributes
    ----------
    writes, reads : int
        How many states have been stored, and loaded.

    Raises
    ------
    InputError
        No such folder, or the disk has not so much room; the same on every rank.

    Examples
    --------
    >>> state = PETSc.Vec().createWithArray([1.0, 2.0], comm=PETSc.COMM_SELF)
    >>> scratch = Scratch(None, 3, state)
    >>> filed = scratch.store(state)
    >>> filed.load().array
    array([1., 2.])
    """

    def __init__(
        self, folder: str | None, slots: int, like: PETSc.Vec, *, grows: bool = False
    ) -> None:
        self.like, self._grows = like, grows
        self.bytes = 8 * like.getLocalSize()
        complaint, file = "", None
        try:
            # It has no name any more when this returns: nothing is left behind by a kill either.
            file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            # Room that is there before the first step cannot be missing in the middle of a run.
            if self.bytes * slots:
                os.posix_fallocate(file.fileno(), 0, slots * self.bytes)
        except OSError as error:
            complaint = f"{error.strerror} (rank {like.comm.rank})"
        complaints = like.comm.tompi4py().allgather(complaint)
        if any(complaints) or file is None:
            if file is not None:
                file.close()
            raise InputError(
                f"{slots} states of {self.bytes} bytes a rank in a file in "
                f"{folder or tempfile.gettempdir()}: {next(filter(None, complaints))}",
                expected="a folder on a disk with room for them",
                remedy="Checkpoints(..., folder=...), or fewer states on disk; of other schedules "
                "the folder is TMPDIR in the environment",
            )
        self._file = file
        self._free, self._slots = list(range(slots)), slots
        # One thread writes behind the computation, one state at a time.
        self._writer = ThreadPoolExecutor(1, "daeosens-scratch")
        weakref.finalize(self, _close, self._file, self._writer)
        self._pending: Future[None] | None = None
        self.writes = self.reads = 0

    def store(self, state: PETSc.Vec) -> Filed | PETSc.Vec:
        """Return what a state is found by later; the state itself where there is no room."""
        if not self._free and not self._grows:
            return state
        if not self._free:
            self._free.append(self._slots)
            self._slots += 1
        self.wait()  # no more than one state waits in memory
        self.writes += 1
        slot, numbers = self._free.pop(), read(state).copy()
        self._pending = self._writer.submit(self._write, slot, numbers)
        return Filed(self, slot, crc32(numbers.data), self._pending)

    def wait(self) -> None:
        """Return when all that was stored is written."""
        if self._pending is not None:
            self._pending.exception()  # told where the state is read, on every rank

    def _write(self, slot: int, numbers: Array) -> None:
        """Write the numbers of a state at their place."""
        left, place = numbers.data.cast("B"), slot * self.bytes
        while left:
            written = os.pwrite(self._file.fileno(), left, place)
            left, place = left[written:], place + written

    def load(self, slot: int) -> Array:
        """Return the numbers at a place."""
        self.reads += 1
        numbers = np.empty(self.bytes // 8)
        left, place = numbers.data.cast("B"), slot * self.bytes
        while left:
            count = os.preadv(self._file.fileno(), [left], place)
            if not count:
                break  # the checksum tells
            left, place = left[count:], place + count
        return numbers

    def release(self, slot: int) -> None:
        """Use a place again."""
        self._free.append(slot)


def _close(file: IO[bytes], writer: ThreadPoolExecutor) -> None:
    # The thread itself may be the last to let go; nothing waits to be written then.
    writer.shutdown(wait=False)
    file.close()


class Filed:
    """A state in a file; its place is free again when nobody has this any more."""

    def __init__(self, scratch: Scratch, slot: int, checksum: int, written: Future[None]) -> None:
        self._scratch, self._slot = scratch, slot
        self._checksum, self._written = checksum, written

    def load(self) -> PETSc.Vec:
        """Return the state [n].  Collective.

        Raises
        ------
        SolveError
            It could not be written, or is not what was written; the same on every rank.
        """
        scratch, complaint = self._scratch, ""
        numbers = np.empty(0)
        try:
            self._written.result()
            numbers = scratch.load(self._slot)
            if crc32(numbers.data) != self._checksum:
                complaint = "is not what was written there"
        except OSError as error:
            complaint = f"could not be kept: {error.strerror}"
        comm = scratch.like.comm
        if comm.size > 1:
            complaint = comm.tompi4py().allreduce(complaint, max)
        if complaint:
            raise SolveError(
                f"a checkpoint on disk {complaint}; the run itself is as it was",
                remedy="another folder: Checkpoints(..., folder=...), or TMPDIR",
            )
        state = scratch.like.duplicate()
        write(state, numbers)
        return state

    def __del__(self) -> None:
        """Give the place back."""
        self._scratch.release(self._slot)


__all__ = ["Filed", "Scratch"]
