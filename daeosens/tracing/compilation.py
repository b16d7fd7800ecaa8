"""C source to a shared library: by the system's compiler, once, and kept in a cache.

A library is named by the hash of all that decides its content: the source, the compiler with what
it makes of its flags on this processor, and versions.  A lock lets one process compile while
others wait; files appear whole, by renaming; a checksum tells a damaged one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import filelock
import platformdirs
from mpi4py import MPI

from daeosens.errors import DaeosensError

FLAGS = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-semantic-interposition",
    "-fopenmp-simd",
    "-fPIC",
    "-shared",
    "-std=c11",
    "-w",
)


class CompilerError(DaeosensError):
    """There is no C compiler, or it fails."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="a C compiler, such as gcc, on the PATH or named by CC")


def load(source: str, comm: MPI.Comm) -> ctypes.CDLL:
    """Return the library of a C source; compiled by the first rank, where no process did before.

    Parameters
    ----------
    source : str
        C11, self-contained.
    comm : MPI.Comm
        Collective: the other ranks wait for the first one, and then read the cache; one whose
        processor or disk differs compiles for itself.

    Raises
    ------
    CompilerError
        On every rank whose own compilation is impossible.
    """
    if comm.size > 1:
        if comm.rank == 0:
            _attempt(source)
        comm.barrier()
    return ctypes.CDLL(str(_library(source)))


def _attempt(source: str) -> None:
    try:
        _library(source)
    except CompilerError:  # every rank meets it again by itself
        return


def cache_folder() -> Path:
    """Return where libraries are kept: in the user's cache folder, see docs/tracing.md."""
    return platformdirs.user_cache_path("daeosens") / "traced"


def _library(source: str) -> Path:
    compiler = _compiler(os.environ.get("CC", ""), os.environ.get("PATH", ""))
    text = "\n".join([source, " ".join(FLAGS), _identity(compiler)])
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    library = _writable_folder() / f"{name}.so"
    if _is_whole(library):
        return library
    with filelock.FileLock(library.with_suffix(".lock")):
        if not _is_whole(library):
            _compile(source, compiler, library)
    return library


def _writable_folder() -> Path:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return _own_folder()


@cache
def _own_folder() -> Path:
    """Make a folder for this process only, where there is no cache to write to."""
    folder = tempfile.TemporaryDirectory(prefix="daeosens-", ignore_cleanup_errors=True)
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[Any] = []
"""Folders that go with the process."""


def _is_whole(library: Path) -> bool:
    try:
        expected = library.with_suffix(".sha256").read_text()
        return hashlib.sha256(library.read_bytes()).hexdigest() == expected
    except OSError:
        return False


def _compile(source: str, compiler: tuple[str, ...], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="compiling-") as folder:
        code, result = Path(folder) / "model.c", Path(folder) / "model.so"
        code.write_text(source)
        _run(compiler, *FLAGS, "-o", str(result), str(code), "-lm")
        checksum = Path(folder) / "sha256"
        checksum.write_text(hashlib.sha256(result.read_bytes()).hexdigest())
        result.replace(library)
        checksum.replace(library.with_suffix(".sha256"))


@cache
def _compiler(chosen: str, _path: str) -> tuple[str, ...]:
    """Return the command of the C compiler: that of the environment variable CC, or cc."""
    candidates = [shlex.split(chosen)] if chosen else [["cc"], ["gcc"], ["clang"]]
    for command in candidates:
        if command and shutil.which(command[0]):
            return tuple(command)
    raise CompilerError(f"there is no C compiler{f' {chosen}' if chosen else ''}")


@cache
def _identity(compiler: tuple[str, ...]) -> str:
    """Return version and processor of a compiler: what its flags mean on this machine."""
    return _run(compiler, *FLAGS[:2], "-v", "-E", "-x", "c", os.devnull)


def _run(compiler: tuple[str, ...], *arguments: str) -> str:
    try:
        done = subprocess.run(
            [*compiler, *arguments], capture_output=True, text=True, check=True, errors="replace"
        )
    except OSError as error:
        raise CompilerError(f"{compiler[0]} cannot be run: {error}") from error
    except subprocess.CalledProcessError as error:
        message = str(error.stderr).strip().splitlines()[-1:] or [str(error)]
        raise CompilerError(f"{compiler[0]} failed: {message[0]}") from error
    return done.stderr
