"""C source to a shared library: by the system's compiler, once, and kept in a cache.

A library is named by the hash of all that decides its content: the source, the compiler with what
it makes of its flags on this processor, and versions.  A lock lets one process compile while
others wait; files appear whole, by renaming.

A library is code that this process executes.  So its folder and its file have to belong to the
user, and nobody else may write to them, or exchange a folder above them; and its checksum, which
also tells a damaged one, lies in another folder: who can write to the cache alone cannot make a
file that is loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import filelock
import platformdirs
from mpi4py import MPI

from daeosens.errors import DaeosensError
from daeosens.io.files import replace_file
from daeosens.petsc.ranks import agree

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


UNKNOWN_OWNER = 65534
"""Whom files belong to in a container that does not know their owner (user namespaces)."""


class CompilerError(DaeosensError):
    """There is no C compiler, or it fails."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="a C compiler, such as gcc, on the PATH or named by CC")


class UnsafeCacheError(DaeosensError):
    """Compiled models would be loaded from where others can write."""


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
    UnsafeCacheError
        Others may write to the cache.
    """
    if comm.size > 1:
        agree(comm, "the compilation of a traced function (trace, Model.terminal, Model.event)")
        if comm.rank == 0:  # as long as it takes: the others have no limit of time
            _attempt(source)
        # others read what the first rank has compiled: one compilation for each node's file system
        comm.barrier()
    return ctypes.CDLL(str(_library(source)))


def _attempt(source: str) -> None:
    try:
        _library(source)
    except (CompilerError, UnsafeCacheError):  # every rank meets it again by itself
        return


def cache_folder() -> Path:
    """Return where libraries are kept: in the user's cache folder, see docs/tracing.md."""
    return platformdirs.user_cache_path("daeosens") / "traced"


def _library(source: str) -> Path:
    compiler = _compiler(os.environ.get("CC", ""), os.environ.get("PATH", ""))
    text = "\n".join([source, " ".join(FLAGS), _identity(compiler)])
    # all that decides the machine code is in the name: another processor, another file
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    library = _writable_folder() / f"{name}.so"
    if _is_whole(library):
        return library
    # of processes that start together one compiles, the others wait and load
    with filelock.FileLock(library.with_suffix(".lock"), mode=0o600):
        if not _is_whole(library):
            _compile(source, compiler, library)
    return library


def _writable_folder() -> Path:
    folder = cache_folder()
    try:
        for own in (folder, _checksum_of(folder / "any.so").parent):
            private_folder(own)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return _own_folder()


def private_folder(folder: Path) -> Path:
    """Return a folder that is the user's alone; what is missing of it, and above it, is made.

    Raises
    ------
    UnsafeCacheError
        Others may write to it, or put another one in its place.
    """
    for made in (*reversed(folder.parents), folder):
        if not made.is_dir():
            # whatever the umask: of parents, mkdir(parents=True) would not see to it
            made.mkdir(mode=0o700, exist_ok=True)
    _refuse_others(folder)
    for above in {*folder.absolute().parents, *folder.resolve().parents}:
        _refuse_exchange(above)
    return folder


def _refuse_exchange(above: Path) -> None:
    """Refuse a folder in which others may rename what belongs to the user.

    A group may: groups share folders of projects, and some systems give each user one.

    Raises
    ------
    UnsafeCacheError
        It belongs to another user than the superuser, or all may write to it (without sticky bit).
    """
    status = above.stat()
    mode = stat.S_IMODE(status.st_mode)
    foreign = status.st_uid not in (0, os.geteuid(), UNKNOWN_OWNER)
    if foreign or (mode & stat.S_IWOTH and not mode & stat.S_ISVTX):
        raise UnsafeCacheError(
            f"{above}: others may exchange what is in it (owner {status.st_uid}, mode {mode:04o}), "
            "and compiled models are loaded from there",
            expected=f"owner {os.geteuid()} or 0, not writable by all",
            remedy=f"chmod o-w {above}, if it is yours; or other folders by XDG_CACHE_HOME and "
            "XDG_DATA_HOME",
        )


def _refuse_others(path: Path) -> None:
    """Refuse a folder or file that another user could have written to.

    Raises
    ------
    UnsafeCacheError
        It does not belong to the user, or others may write to it.
    """
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid() or mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeCacheError(
            f"{path}: others may have written to it (owner {status.st_uid}, mode {mode:04o}), "
            "and compiled models are loaded from there",
            expected=f"owner {os.geteuid()}, writable by nobody else",
            remedy=f"rm -r {path}, if it is yours; or another folder by XDG_CACHE_HOME",
        )


def _checksum_of(library: Path) -> Path:
    """Return where the checksum of a library is: not beside it, but in a folder of this process."""
    if library.parent in _KEPT:
        return library.with_suffix(".sha256")
    return platformdirs.user_data_path("daeosens") / "checksums" / f"{library.stem}.sha256"


@cache
def _own_folder() -> Path:
    """Make a folder for this process only, where there is no cache to write to."""
    folder = tempfile.TemporaryDirectory(prefix="daeosens-", ignore_cleanup_errors=True)
    _KEPT[Path(folder.name)] = folder
    return Path(folder.name)


_KEPT: dict[Path, Any] = {}
"""Folders that go with the process."""


def _is_whole(library: Path) -> bool:
    checksum = _checksum_of(library)
    try:
        for file in (library, checksum):
            _refuse_others(file)
        return hashlib.sha256(library.read_bytes()).hexdigest() == checksum.read_text()
    except OSError:
        return False


def _compile(source: str, compiler: tuple[str, ...], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="compiling-") as folder:
        code, result = Path(folder) / "model.c", Path(folder) / "model.so"
        code.write_text(source)
        _run(compiler, *FLAGS, "-o", str(result), str(code), "-lm")
        result.chmod(0o600)
        checksum = hashlib.sha256(result.read_bytes()).hexdigest()
        result.replace(library)
    try:
        replace_file(_checksum_of(library), checksum.encode(), mode=0o600)
    except DaeosensError as error:
        raise CompilerError(error.what) from error


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
