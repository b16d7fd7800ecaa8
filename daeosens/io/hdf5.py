"""Arrays and distributed vectors in HDF5, by the serial h5py: the one file that talks HDF5.

On one rank a dataset lies in the file itself.  On several, each rank writes its own block into a
file of its own beside it (``results.rank0001.h5``), and the file holds a virtual dataset that shows
the blocks as one array.  A field on a DMDA is stored in natural order as [ny, nx, dof] (any other
dimension likewise), every other Vec as [n], so that a reader sees nothing of the ranks: any number
of them reads the array back.  File names inside are relative: the folder can be moved.

HDF5 writes into memory, and the bytes then replace the file in one go: HDF5 (1.14) may end in a
segmentation fault where a disk is full, and leaves a file of no use where it is killed.  So each
write takes the file's size in memory, and its time.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import h5py
import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import DaeosensError, InputError, nearest
from daeosens.io.files import admit_path, replace_file, require_file, unwritable
from daeosens.petsc.agreement import on_every_rank, on_first_rank
from daeosens.petsc.vectors import created, read, write

Array: TypeAlias = npt.NDArray[np.float64]
T = TypeVar("T")
_h5: Any = h5py  # untyped

HDF5_ERRORS = (OSError, RuntimeError, KeyError, TypeError, ValueError)
"""What h5py raises at damaged files."""


def write_array(path: Path, name: str, values: npt.ArrayLike | str) -> None:
    """Write a small array or a text as dataset ``name``, replacing what was there.  Not collective.

    Raises
    ------
    DaeosensError
        The file cannot be written (disk full, no permission, damaged).
    """
    try:
        data: Any = values if isinstance(values, str) else np.asarray(values)
    except ValueError as error:  # lists of several lengths, or one that holds itself
        raise InputError(f"{name} is no array: {error}", expected="numbers or texts") from error

    def put(file: Any) -> None:
        if name in file:
            old = file[name]
            # In place where it fits: space that a deleted dataset leaves is not used again.
            if not old.is_virtual and old.shape == np.shape(data) and old.dtype == data.dtype:
                old[...] = data
                return
            del file[name]
        file.create_dataset(name, data=data)

    _append(path, put)


def write_vec(path: Path, name: str, vec: PETSc.Vec) -> None:
    """Write a vector as dataset ``name``: [ny, nx, dof] on a DMDA, else [n].  Collective.

    Raises
    ------
    DaeosensError
        On every rank, if one of them cannot write its file.
    """
    comm = vec.comm.tompi4py()
    block = block_of(vec)
    # Serial HDF5 cannot write one file from several ranks.
    own = path if comm.size == 1 else path.with_suffix(f".rank{comm.rank:04d}{path.suffix}")
    on_every_rank(comm, lambda: write_array(own, name, read(vec).reshape(block.extent)))
    blocks = comm.gather((own.name, block))
    if comm.size > 1:
        on_first_rank(comm, lambda: _write_virtual(path, name, blocks or []))


def _write_virtual(path: Path, name: str, blocks: list[tuple[str, RowBlock]]) -> None:
    layout = _h5.VirtualLayout(shape=blocks[0][1].shape, dtype=np.float64)
    for file_name, block in blocks:
        if all(block.extent):
            # Where the block of a rank lies in the whole array.
            layout[block.region] = _h5.VirtualSource(file_name, name, block.extent)

    def put(file: Any) -> None:
        if name in file:
            del file[name]
        file.create_virtual_dataset(name, layout, fillvalue=np.nan)

    _append(path, put)


def _append(path: Path, action: Callable[[Any], None]) -> None:
    try:
        before = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        content = changed_image(before, action)
    except HDF5_ERRORS as error:
        raise DaeosensError(
            f"{path}: cannot be written ({str(error).strip(chr(34))})",
            expected="a whole HDF5 file, or none",
            remedy="another results folder, or remove the file: it is damaged",
        ) from error
    replace_file(path, content)


def changed_image(before: bytes, action: Callable[[Any], None]) -> memoryview:
    """Return the bytes of an HDF5 file (or, from b"", of a new one) after an action on it."""
    image = io.BytesIO(before)
    with _h5.File(image, "r+" if before else "w") as file:
        action(file)
    return image.getbuffer()


def read_array(path: str | Path, name: str, shape: tuple[int, ...] | None = None) -> Array:
    """Read a whole dataset of numbers.  Not collective: each caller reads the file.

    Parameters
    ----------
    path : str or Path
        The HDF5 file.
    name : str
        The dataset, such as "fields/recovered".
    shape : tuple of int, optional
        The shape it must have.

    Raises
    ------
    InputError
        Missing or damaged file (also one of another rank), no such dataset (the nearest is named),
        another shape (both are named), text instead of numbers, or values that are not finite.
    """
    path = Path(path)
    check_sources(path, name)
    return _read_region(path, name, shape, (...,))


def read_vec(path: str | Path, name: str, out: PETSc.Vec) -> None:
    """Read a dataset into a vector of any distribution.  Collective.

    On failure ``out`` is untouched.

    Raises
    ------
    InputError
        As :func:`read_array`, on every rank.
    """
    path = admit_path(path, "path")
    comm = created(out, "out").comm.tompi4py()
    block = block_of(out)
    # The file is the same for all; each of them then reads its own region.
    on_first_rank(comm, lambda: check_sources(path, name))
    values = on_every_rank(comm, lambda: _read_region(path, name, block.shape, block.region))
    write(out, values.ravel())


def dataset_shape(path: str | Path, name: str) -> tuple[int, ...]:
    """Return the shape of a dataset.  Not collective.

    Raises
    ------
    InputError
        Missing or damaged file, no such dataset.
    """
    return open_file(Path(path), lambda file: find_dataset(file, Path(path), name).shape)


def _names(file: Any) -> list[str]:
    names: list[str] = []

    def visit(name: str, item: Any) -> None:
        if hasattr(item, "dtype"):
            names.append(name)

    file.visititems(visit)
    return names


def open_file(path: Path, action: Callable[[Any], T]) -> T:
    """Call ``action`` with the file open for reading; what HDF5 dislikes is the file's fault."""
    require_file(path, "HDF5")
    try:
        with _h5.File(path, "r") as file:
            return action(file)
    except HDF5_ERRORS as error:
        raise InputError(
            f"{path}: not readable as HDF5 ({str(error).strip(chr(34))})",
            expected="a complete HDF5 file",
            remedy="run the driver again, or restore the file: it is damaged or truncated",
        ) from error


def find_dataset(file: Any, path: Path, name: str) -> Any:
    """Return a dataset of an open file.

    Raises
    ------
    InputError
        There is none of that name; the nearest is named.
    """
    if name in file and hasattr(file[name], "dtype"):
        return file[name]
    names = _names(file)
    raise InputError(
        f'{path}: no dataset "{name}"',
        expected=f"one of {', '.join(names) or '(the file holds none)'}",
        remedy=nearest(name, names),
    )


def _read_region(path: Path, name: str, shape: tuple[int, ...] | None, region: Any) -> Array:
    def get(file: Any) -> Array:
        dataset = find_dataset(file, path, name)
        if shape is not None and dataset.shape != shape:
            raise InputError(
                f'{path}: dataset "{name}" has shape {list(dataset.shape)}',
                expected=f"shape {list(shape)}",
                remedy="the grid or number of unknowns with which the file was written",
            )
        if not np.issubdtype(dataset.dtype, np.number):
            raise InputError(f'{path}: dataset "{name}" holds text', expected="numbers")
        return np.asarray(dataset[region], dtype=float)

    values = open_file(path, get)
    # NaN is also what HDF5 shows for a block that is missing.
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise InputError(
            f'{path}: dataset "{name}" holds {len(bad)} values that are not finite',
            expected="finite numbers",
            remedy="the results of a run that converged",
        )
    return values


def _extent(space: Any) -> tuple[int, ...]:
    first, last = space.get_select_bounds()
    return tuple(b - a + 1 for a, b in zip(first, last, strict=True))


def check_sources(path: Path, name: str) -> None:
    """Open every file that a virtual dataset shows: HDF5 silently fills in for a missing one."""

    def sources(file: Any) -> list[tuple[str, str, tuple[int, ...]]]:
        dataset = find_dataset(file, path, name)
        parts = dataset.virtual_sources() if dataset.is_virtual else ()
        return [(part.file_name, part.dset_name, _extent(part.vspace)) for part in parts]

    for file_name, dataset_name, shape in open_file(path, sources):
        source = path.parent / file_name
        stored = dataset_shape(source, dataset_name)
        if stored != shape:
            raise InputError(
                f'{source}: dataset "{dataset_name}" has shape {list(stored)}',
                expected=f"shape {list(shape)}, as {path.name} says",
                remedy="all files of one run together; these are of two",
            )


@dataclass(frozen=True)
class RowBlock:
    """The part of an array that one rank owns: whole shape, first index and extent by axis."""

    shape: tuple[int, ...]
    start: tuple[int, ...]
    extent: tuple[int, ...]

    @property
    def region(self) -> tuple[slice, ...]:
        """The block as an index into the whole array."""
        return tuple(slice(s, s + e) for s, e in zip(self.start, self.extent, strict=True))


def block_of(vec: PETSc.Vec) -> RowBlock:
    """Say which part of the stored array belongs to this rank."""
    dm = vec.getDM()
    if dm.handle and dm.getType() == PETSc.DM.Type.DA:  # without a DM the handle is 0 (PETSc 3.26)
        da = cast("PETSc.DMDA", dm)
        starts, extents = da.getCorners()
        dof = da.getDof()
        shape = (*da.getSizes()[::-1], dof)
        return RowBlock(shape, (*starts[::-1], 0), (*extents[::-1], dof))
    start, end = vec.getOwnershipRange()
    return RowBlock((vec.getSize(),), (start,), (end - start,))
