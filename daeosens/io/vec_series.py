"""Many vectors of one layout, as the states of a run, in HDF5: written rank by rank, one at a time.

On several ranks each has a file of its own beside the named one (``run.0f3a91c2.rank0001.h5``), and
the named one shows them as one array.  Nothing is gathered: a rank has its own part of one vector
in memory besides what it had.  The named file appears last, and the files of an earlier one go
after that, so that a kill at any moment leaves the old vectors or the new ones.

HDF5 keeps a checksum of each part of a vector: a damaged file is an error, never other numbers.
"""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.io.files import replace_file, unwritable
from daeosens.io.hdf5 import (
    HDF5_ERRORS,
    RowBlock,
    changed_image,
    check_sources,
    find_dataset,
    open_file,
)
from daeosens.petsc.agreement import on_every_rank, on_first_rank
from daeosens.petsc.vectors import read, write

Small: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Arrays of one or more axes that every rank has, by the names of their datasets."""

_VERSION = ("v110", "v110")
"""Of HDF5's format: its own structures have checksums too."""

_ROOM, _ROOM_OF_A_VECTOR = 2**15, 32
"""Bytes of a file besides those of its numbers, at most: in all, and for each vector.

HDF5 1.14 takes 3000 and 18.
"""

_h5: Any = h5py  # untyped


@dataclass(frozen=True)
class Series:
    """So many vectors of one layout; each may be made where it is asked for, collectively."""

    vecs: Iterable[PETSc.Vec]
    count: int
    block: RowBlock


class _RoomTaken(io.FileIO):
    """A file whose room is taken before HDF5 writes to it, which may crash on a full disk."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, "x+")
        self._end = 0
        try:
            os.posix_fallocate(self.fileno(), 0, size)
        except OSError:
            self.close()
            raise

    def truncate(self, size: int | None = None, /) -> int:
        """Note where the content ends."""
        self._end = self.tell() if size is None else size
        return self._end

    def write(self, data: Any, /) -> int:
        """Write, and note where the content ends."""
        written = super().write(data)
        self._end = max(self._end, self.tell())
        return written

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place, which HDF5 counts from the end of what it has written."""
        if whence == os.SEEK_END:
            return super().seek(self._end + offset)
        return super().seek(offset, whence)

    def finish(self) -> None:
        """Give the rest of the room back, and bring the content to the disk."""
        super().truncate(self._end)
        os.fsync(self.fileno())


class _NewFile:
    """A new HDF5 file; what goes wrong first is kept, and nothing is written after it.

    Ranks that wait for one another in between must not be left alone by one that has no room.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.error: Exception | None = None
        self._raw: _RoomTaken | None = None
        self._file: Any = None

        def create(_file: Any) -> None:
            self._raw = _RoomTaken(path, size)
            self._file = _h5.File(self._raw, "w", libver=_VERSION)

        self.put(create)

    def put(self, action: Callable[[Any], None]) -> None:
        """Let an action write to the file."""
        if self.error is None:
            try:
                action(self._file)
            except HDF5_ERRORS as failure:
                self.error = failure

    def close(self) -> None:
        """Close the file, whole."""
        if self._file is not None:
            self.put(lambda file: file.close())
        if self._raw is not None:
            raw = self._raw
            self.put(lambda _: raw.finish())
            raw.close()


def write_series(
    path: Path, comm: MPI.Intracomm, series: Mapping[str, Series], small: Small
) -> None:
    """Write vectors, each series as one dataset [K, ...], and small arrays beside them.

    Collective.

    Raises
    ------
    DaeosensError
        On every rank, if one cannot write: an earlier file is as it was.
    """
    token = on_first_rank(comm, lambda: secrets.token_hex(4))
    alone = comm.size == 1
    own = path if alone else _rank_file(path, token, comm.rank)
    beside = own.with_name(f".{own.name}.{os.getpid()}-{token}.new")
    numbers = sum(8 * entry.count * int(np.prod(entry.block.extent)) for entry in series.values())
    room = _ROOM + _ROOM_OF_A_VECTOR * sum(entry.count for entry in series.values())
    try:
        file = _NewFile(beside, numbers + _bytes(small) + room)
        try:
            if alone:
                file.put(lambda opened: _put_small(opened, small))
            for name, entry in series.items():
                _put_vecs(file, name, entry)
        finally:
            file.close()

        def check() -> None:
            if file.error is not None:
                error = file.error
                raise unwritable(path, error if isinstance(error, OSError) else OSError(str(error)))

        on_every_rank(comm, check)  # nothing is put in place before all have written
        on_every_rank(comm, lambda: beside.replace(own))
    finally:
        beside.unlink(missing_ok=True)
    blocks = comm.gather((own.name, {name: entry.block for name, entry in series.items()}))

    def finish() -> None:
        if not alone:
            _write_head(path, series, blocks or [], small)
        for old in path.absolute().parent.iterdir():
            if _is_rank_file(path, old.name) and (alone or f".{token}.rank" not in old.name):
                old.unlink()

    on_first_rank(comm, finish)


def _rank_file(path: Path, token: str, rank: int) -> Path:
    return path.with_name(f"{path.stem}.{token}.rank{rank:04d}{path.suffix}")


def _is_rank_file(path: Path, name: str) -> bool:
    stem, suffix = re.escape(path.stem), re.escape(path.suffix)
    return re.fullmatch(rf"{stem}\.[0-9a-f]{{8}}\.rank\d{{4,}}{suffix}", name) is not None


def _bytes(small: Small) -> int:
    return sum(int(values.nbytes) for values in small.values())


def _put_vecs(file: _NewFile, name: str, series: Series) -> None:
    """Write vectors, one chunk each, since chunks have checksums."""
    extent = series.block.extent
    shape = (series.count, *extent)
    options = {"chunks": (1, *extent), "fletcher32": True} if all(shape) else {}
    file.put(lambda opened: opened.create_dataset(name, shape, dtype=np.float64, **options))
    for number, vec in enumerate(series.vecs):
        if all(shape):
            file.put(partial(_put_vec, name=name, number=number, vec=vec, extent=extent))


def _put_vec(file: Any, *, name: str, number: int, vec: PETSc.Vec, extent: tuple[int, ...]) -> None:
    file[name][number] = read(vec).reshape(extent)


def _put_small(file: Any, small: Small) -> None:
    for name, entry in small.items():
        if entry.size:  # one chunk, which has a checksum
            file.create_dataset(name, data=entry, chunks=entry.shape, fletcher32=True)
        else:
            file.create_dataset(name, data=entry)


def _write_head(
    path: Path,
    series: Mapping[str, Series],
    blocks: Sequence[tuple[str, Mapping[str, RowBlock]]],
    small: Small,
) -> None:
    def put(file: Any) -> None:
        _put_small(file, small)
        for name, entry in series.items():
            layout = _h5.VirtualLayout((entry.count, *entry.block.shape), dtype=np.float64)
            for file_name, of_rank in blocks:
                block = of_rank[name]
                if all(block.extent) and entry.count:
                    source = _h5.VirtualSource(file_name, name, (entry.count, *block.extent))
                    layout[(slice(None), *block.region)] = source
            file.create_virtual_dataset(name, layout, fillvalue=np.nan)

    replace_file(path, changed_image(b"", put))


def read_small(path: Path, name: str) -> npt.NDArray[Any]:
    """Return an array.  Not collective.

    Raises
    ------
    InputError
        Missing or damaged file, no such dataset.
    """
    return open_file(path, lambda file: np.asarray(find_dataset(file, path, name)[()]))


def read_series(
    path: Path, name: str, comm: MPI.Intracomm, block: RowBlock, new: Callable[[], PETSc.Vec]
) -> list[PETSc.Vec]:
    """Return the vectors of a series on any number of ranks, each of which reads its own part.

    Collective.

    Parameters
    ----------
    path, name : Path, str
        The file and the dataset.
    comm : MPI.Intracomm
        The ranks.
    block : RowBlock
        The part of this rank.
    new : callable
        Makes a vector; collective.

    Raises
    ------
    InputError
        On every rank: another shape, a missing or damaged file.
    """

    def look() -> int:
        check_sources(path, name)
        shape: tuple[int, ...] = open_file(path, lambda file: find_dataset(file, path, name).shape)
        if shape[1:] != block.shape:
            raise InputError(
                f'{path}: dataset "{name}" has vectors of shape {list(shape[1:])}',
                expected=f"shape {list(block.shape)}",
                remedy="the grid or number of unknowns with which the file was written",
            )
        return shape[0]

    vecs = [new() for _ in range(on_first_rank(comm, look))]

    def fill(file: Any) -> None:
        dataset = find_dataset(file, path, name)
        for number, vec in enumerate(vecs):
            values = np.asarray(dataset[(number, *block.region)], dtype=float)
            # NaN is also what HDF5 shows for a block that is missing
            if not np.isfinite(values).all():
                raise InputError(
                    f'{path}: dataset "{name}" holds values that are not finite (vector {number})',
                    expected="finite numbers, and all files of the run together",
                )
            write(vec, values.ravel())

    on_every_rank(comm, lambda: open_file(path, fill))
    return vecs
