"""What keeps ranks from waiting for each other for ever."""

from __future__ import annotations

import atexit
import math
import os
import signal
import stat
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.petsc.agreement import all_arrive
from daeosens.petsc.watchdog import PATIENCE, beat

SHOWN = 80
"""How much of a value that differs between the ranks an error shows."""

LARGE = 16
"""Arrays of more numbers are compared by a checksum, which takes less time than to write them."""

SPINS = 2000
"""So often a rank looks for the others before it lets the processor do something else."""

LEAVING = 5.0
"""Seconds that a rank waits for the others to leave in the same way, before it ends the job."""

MEETING = 1.0
"""Seconds after which a rank at the end of its program tells those that are not there yet."""

HERE, ASKED, LEAVES, GONE = 4711, 4712, 4713, 4714
"""Tags of messages: a rank waits here too, the question whether it does, that it leaves, and that
it makes no more calls, since its program is at its end."""

_ANCHORS: dict[int, tuple[PETSc.Vec, MPI.Intracomm]] = {}

_CALLS: Counter[int] = Counter()
"""How many calls have been compared, by communicator: the same number on all its ranks."""

_LAST_CALLS: defaultdict[int, dict[int, int]] = defaultdict(dict)
"""How many calls ranks had made when their program was at its end, by communicator."""


def anchor(comm: Any) -> None:
    """Keep one vector on a communicator (petsc4py's or mpi4py's) of several ranks.  Collective.

    And a duplicate for messages of ranks that miss others.

    PETSc frees its duplicate of a communicator with the last object on it, and makes a new one with
    the next object, which all ranks have to do together.  Python may drop the last object on some
    ranks earlier than on others: then those wait in MPI_Comm_dup for ever (PETSc 3.26).
    """
    if comm.size == 1:
        return
    ranks = comm.tompi4py() if isinstance(comm, PETSc.Comm) else comm
    handle = MPI._handleof(ranks)  # type: ignore[attr-defined]
    if handle not in _ANCHORS:
        _ANCHORS[handle] = PETSc.Vec().createMPI((0, 0), comm=comm), ranks.Dup()


def agree(comm: Any, call: str, **options: object) -> None:
    """Refuse a call with other options on some ranks, which would wait for each other.  Collective.

    Takes one reduction of 16 bytes; nothing on one rank.  A call that other ranks do not
    make at all ends the job, with the name of the call: some seconds after the program of such a
    rank has come to its end, and else after ``patience()`` seconds.

    Parameters
    ----------
    comm : PETSc.Comm or MPI.Intracomm
        Whose ranks make the call.
    call : str
        Which call: another one on another rank is refused too.
    options
        What has to be the same: numbers, texts and arrays of them by value; mappings and
        dataclasses that are compared by value by what they hold; all else (callbacks, vectors,
        objectives) by its type.

    Raises
    ------
    InputError
        On every rank: names each option that differs, and its values.

    Examples
    --------
    >>> agree(PETSc.COMM_SELF, "adjoint", engine="arrays")
    """
    if PATIENCE:
        beat()
    if not isinstance(comm, PETSc.Comm) or not comm:
        admit_comm(comm)
    if comm.size == 1:
        return
    ranks = comm.tompi4py() if isinstance(comm, PETSc.Comm) else comm
    mine = {"the call": call, **dict(_parts(options))}
    digest = int.from_bytes(blake2b(repr(mine).encode(), digest_size=7).digest())
    ends = np.array([digest, -digest])
    _reduced_in_time(ranks, ends, call)
    if ends[0] == -ends[1]:
        return
    every = ranks.allgather(mine)
    names = dict.fromkeys(name for rank in every for name in rank)
    by_name = {name: [rank.get(name, "nothing") for rank in every] for name in names}
    different = [_told(name, texts) for name, texts in by_name.items() if len(set(texts)) > 1]
    raise InputError(
        f"{call}: {'; '.join(different)}",
        expected="the same on every rank of the communicator",
        remedy="comm.bcast(...) of what one rank has",
    )


def admit_comm(comm: object) -> MPI.Intracomm:
    """Return a communicator as one of mpi4py; refuse what is none, or none any more.

    Raises
    ------
    InputError
        Says what it is.

    Examples
    --------
    >>> admit_comm("world")
    Traceback (most recent call last):
        ...
    daeosens.errors.InputError: comm = 'world'
      expected: a communicator
      try: MPI.COMM_WORLD
    """
    if not isinstance(comm, (MPI.Intracomm, PETSc.Comm)) or not comm:
        raise InputError(f"comm = {comm!r}", expected="a communicator", remedy="MPI.COMM_WORLD")
    return comm.tompi4py() if isinstance(comm, PETSc.Comm) else comm


def patience() -> float:
    """Return how many seconds ranks wait for others that have not made the same call.

    From the environment variable DAEOSENS_PATIENCE; 60 by default, 0 for no limit.

    Raises
    ------
    InputError
        Another value than a number of seconds.
    """
    text = os.environ.get("DAEOSENS_PATIENCE", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0.0:
        raise InputError(f"DAEOSENS_PATIENCE = {text}", expected="seconds, or 0 for no limit")
    return seconds or math.inf


def _reduced_in_time(ranks: MPI.Intracomm, values: npt.NDArray[np.int64], call: str) -> None:
    """Replace numbers by their maxima over the ranks; end the job where some never come."""
    request = ranks.Iallreduce(MPI.IN_PLACE, values, MPI.MAX)
    handle = MPI._handleof(ranks)  # type: ignore[attr-defined]
    _CALLS[handle] += handle in _ANCHORS  # counted from there on, on all ranks alike
    for _ in range(SPINS):  # as nearly always
        if request.Test():
            return
    _, private = _ANCHORS.get(handle, (None, None))
    limit = time.monotonic() + patience()
    while not request.Test():
        gone = [] if private is None else _gone(private, handle)
        if gone:
            told = f"rank {ranks.rank} waits for {_listed(gone)}, whose program is at its end"
            _alone(call, told, "the call on every rank, outside of `if rank == 0`")
        if private is not None:
            _answer(private)
        if time.monotonic() > limit:
            missing = "" if private is None else _missing(private)
            _alone(
                call,
                f"rank {ranks.rank} has waited {patience():g} s for other ranks of "
                f"{ranks.size}, which do not make this call{missing}",
                "the call on every rank, outside of `if rank == 0`; DAEOSENS_PATIENCE=600 "
                "in the environment where a rank is that much later",
            )
        time.sleep(1e-4)


def _alone(call: str, told: str, remedy: str) -> NoReturn:
    """End the job: raised on some ranks only, the error would leave them in MPI_Finalize."""
    error = InputError(
        f"{call}: {told}",
        expected="the same calls on every rank of the communicator: the call is collective",
        remedy=remedy,
    )
    error.add_note("".join(traceback.format_stack()))
    abort(error)


def _gone(private: MPI.Intracomm, handle: int) -> list[int]:
    """Return the ranks whose program came to its end before they made this call."""
    status = MPI.Status()
    while private.Iprobe(tag=GONE, status=status):
        _LAST_CALLS[handle][status.source] = private.recv(source=status.source, tag=GONE)
    # one that has made this call may be at its end before this rank has seen the outcome
    return sorted(rank for rank, last in _LAST_CALLS[handle].items() if last < _CALLS[handle])


def _listed(ranks: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ranks))
    return f"rank{'s' * (len(ranks) > 1)} {numbers}"


def _answer(private: MPI.Intracomm) -> None:
    """Tell those who ask that this rank is here."""
    status = MPI.Status()
    while private.Iprobe(tag=ASKED, status=status):
        private.recv(source=status.source, tag=ASKED)
        private.isend(None, status.source, tag=HERE)


def _missing(private: MPI.Intracomm, seconds: float = 1.0) -> str:
    """Ask the other ranks whether they wait too, and say which ones do not answer."""
    others = {*range(private.size)} - {private.rank}
    requests = [private.isend(None, rank, tag=ASKED) for rank in others]
    status, limit = MPI.Status(), time.monotonic() + seconds
    while others and time.monotonic() < limit:
        _answer(private)
        if private.Iprobe(tag=HERE, status=status):
            private.recv(source=status.source, tag=HERE)
            others.discard(status.source)
        time.sleep(1e-3)
    del requests  # some may never be received: the job ends
    return f": missing are {', '.join(map(str, sorted(others)))}" if others else ""


def contents(description: Any) -> Any:
    """Return what a dataclass holds as a mapping, for ``agree``; so for those in sequences too.

    For descriptions that are compared by their address: priors, noise, costs.

    Examples
    --------
    >>> from daeosens import Prior
    >>> contents([Prior(0.5, 0.1)])[0]["sigma"]
    0.1
    """
    if isinstance(description, (list, tuple)):
        held = [contents(item) for item in cast("Sequence[Any]", description)]
        return dict(enumerate(held)) if any(isinstance(item, dict) for item in held) else held
    if not is_dataclass(description) or isinstance(description, type):
        return description
    names = [field.name for field in fields(description) if field.init]
    return {name: contents(getattr(description, name)) for name in names}


def _parts(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what options consist of: names, and values as they are written."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            entries = cast("Mapping[Any, Any]", value).items()
            held = {f"{name}[{key!r}]": entry for key, entry in sorted(entries, key=str)}
            yield from _parts(held)
        elif is_dataclass(value) and type(value).__eq__ is not object.__eq__:
            held = {f"{name}.{field.name}": getattr(value, field.name) for field in fields(value)}
            yield from _parts(held)
        else:
            yield name, _text(value)


def _text(value: Any) -> str:
    """Write a value without its address, which no other rank has."""
    if _is_large(value):
        checksum = blake2b(value.tobytes(), digest_size=4).hexdigest()
        return f"{value.size} numbers of checksum {checksum}"
    plain: Any = value.tolist() if hasattr(value, "tolist") else value  # as arrays of any library
    if isinstance(plain, (list, tuple, range)):
        return f"[{', '.join(map(_text, plain))}]"
    known = plain is None or isinstance(plain, (bool, int, float, complex, str))
    return repr(plain) if known else type(plain).__name__


def _is_large(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.size > LARGE and value.dtype.kind in "iufcb"


def _told(name: str, texts: Sequence[str]) -> str:
    """Say which values an option has, each with the first rank that has it."""
    values = [
        f"{text if len(text) <= SHOWN else text[:SHOWN] + '...'} on rank {texts.index(text)}"
        for text in dict.fromkeys(texts)
    ]
    return f"{name} is {' and '.join(values)}"


def abort(error: BaseException) -> NoReturn:
    """Print the traceback with this rank's number and end the whole job, here and at once.

    Its exit code is that of ``sys.exit``, 130 after Ctrl-C, 2 for bad input, and 1 otherwise.
    """
    _end_job("".join(traceback.format_exception(error)), exit_code(error))


def exit_code(error: BaseException) -> int:
    """Return the exit code of a process that an exception ends.

    Examples
    --------
    >>> exit_code(SystemExit(3)), exit_code(KeyboardInterrupt()), exit_code(ValueError())
    (3, 130, 1)
    """
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, InputError):
        return 2
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _end_job(text: str, code: int) -> NoReturn:
    with suppress(OSError):  # the disk behind them may be full
        sys.stdout.flush()
        sys.stderr.write(f"[rank {MPI.COMM_WORLD.rank}] {text}")
        sys.stderr.flush()
    MPI.COMM_WORLD.Abort(code)
    os._exit(code)  # pragma: no cover (Abort does not return)


def leave_together(comm: PETSc.Comm, error: BaseException) -> None:
    """Return if every rank raises now, with whatever it does; end the job if this one is alone.

    For exceptions that ranks may raise in step: the others would wait for one that does so alone.
    """
    _, private = _ANCHORS.get(MPI._handleof(comm.tompi4py()), (None, None))  # type: ignore[attr-defined]
    seconds = patience() if "DAEOSENS_PATIENCE" in os.environ else LEAVING
    if private is not None and not all_arrive(private, seconds):
        error.add_note("raised on some ranks only: the others would wait for ever")
        abort(error)


def _all_leave(comm: MPI.Intracomm, seconds: float) -> bool:
    """Wait until every rank has called this, at most ``seconds``; tell whether they have.

    By messages: a barrier could meet with another collective call that ranks are in (Open MPI 4
    then truncates messages).
    """
    others = {*range(comm.size)} - {comm.rank}
    requests = [comm.isend(None, rank, tag=LEAVES) for rank in others]
    limit = time.monotonic() + seconds
    while others and time.monotonic() < limit:
        others -= {rank for rank in others if comm.Iprobe(source=rank, tag=LEAVES)}
        time.sleep(1e-3)
    return not others and all(request.test()[0] for request in requests)


def _meet_at_the_end() -> None:
    """Wait for the other ranks before MPI_Finalize, which would; tell those that come too late.

    They may wait for this rank in a call that it does not make, and would do so for ever.
    """
    if MPI.Is_finalized():
        return
    meetings = [
        (private, private.Ibarrier(), _CALLS[handle]) for handle, (_, private) in _ANCHORS.items()
    ]
    begin, told = time.monotonic(), list[MPI.Request]()
    while not all(meeting.Test() for _, meeting, _ in meetings):
        waited = time.monotonic() - begin
        if waited > MEETING and not told:  # as a rule all are here by then, and no message is sent
            for private, meeting, calls in meetings:
                others = () if meeting.Test() else {*range(private.size)} - {private.rank}
                told += [private.isend(calls, rank, tag=GONE) for rank in others]
        if waited > patience():
            return
        time.sleep(min(0.01, 1e-4 + 0.1 * waited))


def install_abort_hook() -> None:
    """Make ranks that fail alone end the whole job (once, only with several ranks).

    An uncaught exception ends it at once.  ``sys.exit`` with another code than 0 does so where the
    other ranks do not leave as well: Python would wait for them in MPI_Finalize.
    """
    if MPI.COMM_WORLD.size == 1 or getattr(sys.excepthook, "ends_the_job", False):
        return

    def hook(_kind: type[BaseException], error: BaseException, _where: object) -> None:
        abort(error)

    hook.ends_the_job = True  # type: ignore[attr-defined]
    sys.excepthook = hook
    leave = sys.exit
    last: list[tuple[int, str]] = []

    def leave_with(status: Any = None, /) -> NoReturn:
        code = exit_code(SystemExit(status))
        last[:] = [(code, "".join(traceback.format_stack()))] if code else []
        leave(status)

    sys.exit = leave_with

    def at_exit() -> None:
        if last and not _all_leave(MPI.COMM_WORLD, LEAVING):
            code, place = last[0]
            _end_job(f"sys.exit({code}), while other ranks go on\n{place}", code)
        _meet_at_the_end()

    atexit.register(at_exit)


def end_quietly_behind_closed_pipe() -> None:
    """Let ``program | head`` end in silence, as other programs do; called when we are imported.

    PETSc 3.26 takes SIGPIPE for a crash, and tells so at length, where Python would ignore it.  It
    ends the process as before where the output goes into a pipe, and is ignored again elsewhere:
    connections that others close are theirs to handle.  With several ranks it stays PETSc's.
    """
    if MPI.COMM_WORLD.size > 1 or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGPIPE) is not signal.SIG_IGN:  # somebody has chosen otherwise
        return
    try:
        into_pipe = stat.S_ISFIFO(os.fstat(1).st_mode)
    except OSError:  # no output at all
        into_pipe = False
    signal.signal(signal.SIGPIPE, signal.SIG_DFL if into_pipe else signal.SIG_IGN)
