"""The files of a restart: records of calls in one, vectors and arrays in others beside it.

The named file is small: which calls there were, in JSON, with a checksum.  Vectors are in files
beside it, to which each rank appends its own part.  A run that goes on, on any number of ranks,
adds files of its own.  The named file is replaced in one go, after all ranks have brought their
parts to the disk: a kill at any moment leaves what was there.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.io.files import replace_file, unwritable
from daeosens.io.saved import of_another_problem
from daeosens.io.versions import versions
from daeosens.petsc.agreement import on_every_rank, on_first_rank
from daeosens.petsc.vectors import Array

FORMAT = "daeosens restart 3"
MARK = b"\nchecksum"
TAIL = len(MARK) + 32
"""Bytes after the JSON: a mark, and the checksum of all before it."""

ITERATE = "iterate"
"""A record of an iterate that was accepted, instead of a call."""

ANOTHER_NAME = "another file name"

OFTEN = 1.0
"""Seconds after which a call is brought to the disk before the next iterate is."""


@dataclass(frozen=True)
class Record:
    """One call of the functional.

    Parameters
    ----------
    call : str
        The method, or ``ITERATE``.
    marks : list of (float, float)
        Of its arguments: norm, and product with a fixed vector.
    number : float or None
        A number that it returned.
    array : list of int or None
        Shape of an array that it returned, the same on every rank; of a Vec empty; None: neither.
    checksum : int
        Of that.
    error : str or None
        Of a failed solve.
    """

    call: str
    marks: list[list[float]]
    number: float | None = None
    array: list[int] | None = None
    checksum: int = 0
    error: str | None = None


@dataclass
class Part:
    """What one run has added.

    Parameters
    ----------
    token : str
        Part of the names of its files.
    rows : list of int
        Where the parts of its ranks begin, and n.
    records : list of Record
        In order.
    """

    token: str
    rows: list[int]
    records: list[Record] = field(default_factory=list[Record])


@dataclass(frozen=True)
class Place:
    """A record of a part; so many vectors and other numbers are before it in the files."""

    record: Record
    part: Part
    vecs: int
    numbers: int


class RestartFile:
    """What is on record, and what is added to it.

    Parameters
    ----------
    path : Path
        The named file.
    identity : mapping of str
        The problem in words, the same on every rank.
    x : Vec [n]
        A vector laid out like the unknowns.

    Raises
    ------
    InputError
        On every rank: not a restart file, or one of another problem; a folder that is not there, or
        that cannot be written to.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], x: PETSc.Vec) -> None:
        self.path = path
        self._identity = identity
        self._mpi = x.comm.tompi4py()
        self._rows = [0, *self._mpi.allgather(x.getOwnershipRange()[1])]
        self._file: Any = None
        self._committed = time.monotonic()
        self._mine: Part | None = None
        self._parts, self._known = _load(path, identity, self._mpi)

    def places(self) -> list[Place]:
        """Return the records in order."""
        places: list[Place] = []
        for part in self._parts:
            vecs = numbers = 0
            for record in part.records:
                places.append(Place(record, part, vecs, numbers))
                vecs += record.array == []
                numbers += int(np.prod(record.array)) if record.array else 0
        return places

    def keep(self, count: int) -> None:
        """Take all but so many records off."""
        for part in self._parts:
            del part.records[count:]
            count = max(0, count - len(part.records))
        self._parts = [part for part in self._parts if part.records]

    def add(self, record: Record, values: Array | None = None) -> None:
        """Append a record; values are this rank's part of a Vec, or an array that all have."""
        if self._mine is None:
            token = on_first_rank(self._mpi, lambda: secrets.token_hex(4))
            self._mine = Part(token, self._rows)
            self._parts.append(self._mine)
            name = _data_file(self.path, token, self._mpi.rank)
            self._file = on_every_rank(self._mpi, lambda: _opened(name, self.path))
        checksum, failed = 0, 0
        failure: OSError | None = None
        if values is not None and (not record.array or self._mpi.rank == 0):
            low = 0 if record.array else self._rows[self._mpi.rank]
            checksum = sum_of(values, low)
            try:
                _append(self._file, values)
            except OSError as error:
                failure, failed = error, 1
        due = int(record.call == ITERATE or time.monotonic() > self._committed + OFTEN)
        sums = np.array([checksum, failed, due * (self._mpi.rank == 0)], dtype=np.uint64)
        self._mpi.Allreduce(MPI.IN_PLACE, sums)

        def check() -> None:
            if failure is not None:
                raise unwritable(self.path, failure)

        if sums[1]:
            on_every_rank(self._mpi, check)
        self._mine.records.append(replace(record, checksum=int(sums[0])))
        if sums[2]:
            self._commit()

    def _commit(self) -> None:
        """Bring everything to the disk, and then the named file that tells of it."""

        def bring() -> None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise unwritable(self.path, error) from error

        on_every_rank(self._mpi, bring)
        self._known = on_first_rank(self._mpi, self._write)
        self._committed = time.monotonic()

    def _write(self) -> bytes:
        """Replace the named file, which must still be the known one; return its checksum."""
        path = self.path
        if path.exists() and _last_bytes(path, 32) != self._known:
            _refuse_other_writer(path)
        content = {
            "format": FORMAT,
            "versions": versions(),
            "writer": _writer(),
            "problem": dict(self._identity),
            "parts": [asdict(part) for part in self._parts],
        }
        image = json.dumps(content).encode()
        checksum = blake2b(image, digest_size=32).digest()
        replace_file(path, image + MARK + checksum)
        # files of runs that were killed before they had told of them, or whose records are gone
        tokens = {part.token for part in self._parts}
        for other in path.absolute().parent.iterdir():
            name = _DATA.fullmatch(other.name)
            if name and name["stem"] == path.stem and name["token"] not in tokens:
                other.unlink()
        return checksum

    def stored(self, place: Place) -> Array:
        """Return this rank's part of the Vec on record, or the array that all have."""
        part, shape = place.part, place.record.array
        low, high = self._rows[self._mpi.rank], self._rows[self._mpi.rank + 1]
        size = int(np.prod(shape)) if shape else high - low
        values: Array = np.empty(size)

        def fill() -> None:
            for rank, (first, last) in enumerate(pairwise(part.rows)):
                begin, end = max(first, low), min(last, high)
                if shape:  # an array is in the file of the first rank
                    if rank > 0:
                        break
                    begin, end, first_here = first, first + size, 0
                else:
                    first_here = low
                if begin >= end:
                    continue
                before = place.vecs * (last - first) + (begin - first)
                before += place.numbers if rank == 0 else 0
                name = _data_file(self.path, part.token, rank)
                here = slice(begin - first_here, end - first_here)
                values[here] = _read_at(name, before, end - begin, self.path)

        on_every_rank(self._mpi, fill)
        own = 0 if shape and self._mpi.rank else sum_of(values, 0 if shape else low)
        sums = np.array([own], dtype=np.uint64)
        self._mpi.Allreduce(MPI.IN_PLACE, sums)
        if int(sums[0]) != place.record.checksum:
            raise _damaged(self.path)
        return values

    def close(self) -> None:
        """Close this rank's file."""
        if self._file is not None:
            self._file.close()


_DATA = re.compile(r"(?P<stem>.+)\.(?P<token>[0-9a-f]{8})\.rank\d{4,}")


def _data_file(path: Path, token: str, rank: int) -> Path:
    return path.with_name(f"{path.stem}.{token}.rank{rank:04d}")


def _opened(name: Path, path: Path) -> Any:
    try:
        return name.open("xb", buffering=0)
    except OSError as error:
        raise unwritable(path, error) from error


def _append(file: Any, values: Array) -> None:
    contiguous: Any = np.ascontiguousarray(values)
    left = memoryview(contiguous).cast("B")
    while left:
        left = left[file.write(left) :]


def _read_at(name: Path, before: int, count: int, path: Path) -> Array:
    try:
        values = np.fromfile(name, dtype=np.float64, count=count, offset=8 * before)
    except OSError as error:
        raise InputError(
            f"restart = {path}: {name.name} cannot be read ({error.strerror})",
            expected="all files of a restart file in one folder",
            remedy="another file name, or remove it",
        ) from error
    if len(values) != count:
        raise _damaged(path)
    return values


def sum_of(values: Array, first: int) -> int:
    """Return a checksum of numbers from an index on, which adds up over parts, modulo 2^64."""
    total = 0
    for at in range(0, len(values), 2**16):  # little memory besides
        bits = np.ascontiguousarray(values[at : at + 2**16]).view(np.uint64)
        index = np.arange(first + at + 1, first + at + 1 + len(bits), dtype=np.uint64)
        # the finaliser of splitmix64: each bit of number and index changes about half of the result
        mixed: npt.NDArray[np.uint64] = bits ^ (index * np.uint64(0x9E3779B97F4A7C15))
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        total += int(np.sum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64))
    return total % 2**64


def _load(path: Path, identity: Mapping[str, str], comm: MPI.Intracomm) -> tuple[list[Part], bytes]:
    """Return what a file holds, and its checksum; nothing where there is none.  Collective."""
    held = on_first_rank(comm, lambda: _existing(path))
    if held is None:
        return [], b""
    content, checksum = held
    written: Mapping[str, str] = content["problem"]
    different = [
        f"{name}: {written.get(name, 'none')} in the file, {identity.get(name, 'none')} here"
        for name in sorted({*identity, *written})
        if written.get(name) != identity.get(name)
    ]
    if different:
        raise of_another_problem(path, "restart file", "; ".join(different), ANOTHER_NAME)
    parts = [
        Part(part["token"], part["rows"], [Record(**record) for record in part["records"]])
        for part in content["parts"]
    ]
    return parts, checksum


def _existing(path: Path) -> tuple[dict[str, Any], bytes] | None:
    folder = path.absolute().parent
    if not os.access(folder, os.W_OK):
        problem = "cannot be written to" if folder.is_dir() else "is not there"
        raise InputError(f"restart = {path}: the folder {folder} {problem}", remedy="another one")
    return _content(path) if path.exists() else None


def _content(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return what the named file says, and its checksum."""
    what = f"restart = {path}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{what} cannot be read ({error.strerror})") from error
    image, tail = content[:-TAIL], content[-TAIL:]
    checksum = blake2b(image, digest_size=32).digest()
    if content.startswith(b"\x89HDF"):
        raise InputError(
            f"{what} is an HDF5 file, as restart files of earlier versions were",
            expected=f'the format "{FORMAT}"',
            remedy="the version that wrote it, or another file name",
        )
    if tail != MARK + checksum:
        raise _damaged(path)
    told: dict[str, Any] = json.loads(image)
    if told.get("format") != FORMAT:
        version = told.get("versions", {}).get("daeosens", "unknown")
        raise InputError(
            f'{what}: its format is "{told.get("format")}", of daeosens {version}',
            expected=f'"{FORMAT}"',
            remedy=f"daeosens {version}, or another file name",
        )
    return told, checksum


def _damaged(path: Path) -> InputError:
    return InputError(
        f"restart = {path} is not a restart file, or it is damaged: its checksum is wrong",
        expected="a whole restart file of minimize",
        remedy="another file name, or remove it",
    )


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - count))
        return file.read()


def _writer() -> str:
    rank = f" (rank {MPI.COMM_WORLD.rank} of its job)" if MPI.COMM_WORLD.size > 1 else ""
    return f"process {os.getpid()} of {socket.gethostname()}{rank}"


def _refuse_other_writer(path: Path) -> None:
    writer = _content(path)[0]["writer"]
    ranks = MPI.COMM_WORLD.size > 1
    raise InputError(
        f"restart = {path}: {writer} has written to it since {_writer()} looked",
        expected="a file for each minimisation that runs at the same time",
        remedy='restart=f"run-{rank}.h5", where each rank minimises for itself'
        if ranks
        else ANOTHER_NAME,
    )
