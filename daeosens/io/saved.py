"""Results in files: dataclasses of numbers, arrays and vectors, read back on any number of ranks.

Numbers and texts are JSON, arrays and vectors are datasets by the names of their fields, so that
other programs read them too.  A file says which version wrote it: another format is an error that
names both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens import errors
from daeosens.errors import DaeosensError, InputError
from daeosens.io.files import admit_path
from daeosens.io.hdf5 import block_of
from daeosens.io.vec_series import Series, read_series, read_small, write_series
from daeosens.io.versions import versions
from daeosens.petsc.agreement import on_first_rank

SAME = 1e-6
"""Part of its size by which what is computed again may be off from what is in a file: on other
machines and numbers of ranks, sums are of another order."""

ANOTHER_FOLDER = "another folder, or remove this one"


def of_another_problem(path: Path, what: str, why: str, remedy: str = "") -> InputError:
    """Return the error that a file was not written with what is given now.

    Parameters
    ----------
    path : Path
        The file.
    what : str
        Its kind: "run", "result", "fit", "restart file".
    why : str
        What differs.
    remedy : str, optional
        By default to read the numbers alone.
    """
    return InputError(
        f"{path}: the {what} is of another problem; {why}",
        expected="the equations, data and settings with which it was written",
        remedy=remedy or f'load_{what}("{path.name}") alone, for its numbers',
    )


def check_same(off: float, size: float, path: Path, what: str, why: str, remedy: str = "") -> None:
    """Refuse a file of another problem: what is computed again is ``off``, beside its ``size``.

    Raises
    ------
    InputError
        As ``of_another_problem``.
    """
    if not off <= SAME * size:  # NaN neither
        raise of_another_problem(path, what, why, remedy)


def writable_path(path: object) -> Path:
    """Return the path of a file that is to be written.

    Raises
    ------
    InputError
        No path, a folder, or one in a folder that is not there.
    """
    path = admit_path(path, "path")
    if not path.name or path.is_dir():
        raise InputError(f"path = {str(path)!r}", expected="the path of a file")
    if not path.absolute().parent.is_dir():
        raise InputError(f"path = {path}: there is no folder {path.absolute().parent}")
    return path


def described(kind: str, about: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """Return what is told of a file of some kind, with its format and all versions."""
    told = {"format": kind, "versions": versions(), **about}
    # as numbers, which have a checksum in the file
    return np.frombuffer(json.dumps(told).encode(), np.uint8)


def read_description(path: Path, name: str, kind: str) -> dict[str, Any]:
    """Return what is told of a file.  Not collective.

    Parameters
    ----------
    path : Path
        The file.
    name : str
        The dataset.
    kind : str
        The format, "daeosens run 1".

    Raises
    ------
    InputError
        Something else, or of another version.
    """
    what = kind.split()[1]
    try:
        told: Any = json.loads(bytes(read_small(path, name)))
        written = told["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not the file of a {what}", expected=f"one of save_{what}"
        ) from error
    if written != kind:
        version = told.get("versions", {}).get("daeosens", "unknown")
        raise InputError(
            f'{path}: its format is "{written}", of daeosens {version}',
            expected=f'"{kind}"',
            remedy=f"daeosens {version}, or the {what} again",
        )
    return told


def write_value(path: Path, comm: MPI.Intracomm, kind: str, value: object) -> None:
    """Write a dataclass, each rank its own part of vectors.  Collective."""
    parts = _Parts()
    tree = parts.plain(value, "")
    series = {name: Series([vec], 1, block_of(vec)) for name, vec in parts.vecs.items()}
    small = {"about": described(kind, {"value": tree}), **parts.arrays}
    write_series(path, comm, series, small)


def read_value(
    path: Path, comm: MPI.Intracomm, kind: str, new: Callable[[], PETSc.Vec] | None = None
) -> Any:
    """Read a dataclass that ``write_value`` has written.  Collective.

    Parameters
    ----------
    path : Path
        The file.
    comm : MPI.Intracomm
        The ranks.
    kind : str
        The format.
    new : callable, optional
        Makes a vector of the layout that they are to have; by default each rank that calls has all.
    """

    def look() -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        told = read_description(path, "about", kind)
        return told, {name: read_small(path, name) for name in _names(told["value"], "array")}

    told, arrays = on_first_rank(comm, look)
    vecs: dict[str, PETSc.Vec] = {}
    for name, size in _names(told["value"], "vec").items():
        alone = PETSc.Vec().createSeq(size, comm=PETSc.COMM_SELF) if new is None else new()
        (vecs[name],) = read_series(path, name, comm, block_of(alone), alone.duplicate)
    version = told["versions"]["daeosens"]
    return _value(told["value"], arrays, vecs, path, version)


class _Parts:
    """Takes a value apart: a tree for JSON, and what has datasets of its own."""

    def __init__(self) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self.vecs: dict[str, PETSc.Vec] = {}

    def plain(self, value: object, name: str) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            kind = type(value)
            fields = {
                field.name: self.plain(getattr(value, field.name), f"{name}/{field.name}")
                for field in dataclasses.fields(value)
            }
            return {"class": [kind.__module__, kind.__qualname__], "fields": fields}
        if isinstance(value, (PETSc.Vec, np.ndarray)):
            return self._dataset(value, name[1:])
        if isinstance(value, (Mapping, list, tuple)):
            return self._several(cast("Any", value), name)
        if isinstance(value, DaeosensError):
            return {"error": type(value).__name__, "text": str(value)}
        number: object = cast("Any", value).item() if isinstance(value, np.generic) else value
        if isinstance(number, (bool, int, float, str)) or number is None:
            return number
        raise InputError(
            f"{name[1:].replace('/', '.')} is {type(value).__name__}, which no file can hold"
        )

    def _dataset(self, value: PETSc.Vec | npt.NDArray[Any], name: str) -> dict[str, Any]:
        if isinstance(value, PETSc.Vec):
            self.vecs[name] = value
            return {"vec": name, "size": value.getSize()}
        self.arrays[name] = value
        return {"array": name}

    def _several(self, value: Mapping[Any, Any] | Sequence[Any], name: str) -> dict[str, Any]:
        if isinstance(value, Mapping):
            entries = [[str(key), self.plain(v, f"{name}/{key}")] for key, v in value.items()]
            return {"mapping": entries}
        return {"tuple": [self.plain(entry, f"{name}/{k}") for k, entry in enumerate(value)]}


def _names(tree: Any, kind: str) -> dict[str, int]:
    """Return the names of datasets in a tree, with the sizes of vectors."""
    if isinstance(tree, list):
        found_in = [_names(entry, kind) for entry in cast("list[Any]", tree)]
        return {name: size for names in found_in for name, size in names.items()}
    if not isinstance(tree, dict):
        return {}
    branches = cast("dict[str, Any]", tree)
    if kind in branches:
        return {branches[kind]: branches.get("size", 0)}
    return _names(list(branches.values()), kind)


def _value(
    tree: Any,
    arrays: Mapping[str, npt.NDArray[Any]],
    vecs: Mapping[str, PETSc.Vec],
    path: Path,
    version: str,
) -> Any:
    """Put a value together again."""
    if not isinstance(tree, dict):
        return tree
    branches = cast("dict[str, Any]", tree)

    def inner(part: Any) -> Any:
        return _value(part, arrays, vecs, path, version)

    makers: dict[str, Callable[[Any], Any]] = {
        "array": arrays.__getitem__,
        "vec": vecs.__getitem__,
        "error": lambda kind: getattr(errors, kind, DaeosensError)(branches["text"]),
        "mapping": lambda pairs: {key: inner(part) for key, part in pairs},
        "tuple": lambda parts: tuple(inner(part) for part in parts),
    }
    kind = next(iter(branches))
    if kind != "class":
        return makers[kind](branches[kind])
    module, name = branches[kind]
    made, fields = _dataclass(module, name, path, version), branches["fields"]
    if {field.name for field in dataclasses.fields(made)} != set(fields):
        raise _of_another_version(path, name, version)
    # as it was: it has been checked, and what is derived from fields is among them
    value: Any = object.__new__(made)
    for field, part in fields.items():
        object.__setattr__(value, field, inner(part))
    return value


def _dataclass(module: str, name: str, path: Path, version: str) -> type[Any]:
    """Return a dataclass of this package."""
    kind: Any = None
    if module.startswith("daeosens."):  # before anything is imported
        with contextlib.suppress(ImportError, AttributeError):
            kind = getattr(importlib.import_module(module), name)
    if not dataclasses.is_dataclass(kind):
        raise _of_another_version(path, name, version)
    return cast("type[Any]", kind)


def _of_another_version(path: Path, name: str, version: str) -> InputError:
    return InputError(
        f"{path}: {name} of daeosens {version} is another one than here",
        remedy=f"daeosens {version}",
    )
