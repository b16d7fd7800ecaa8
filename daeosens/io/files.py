"""Finding the file the user meant, and writing files that are whole at any time."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path
from typing import Any, TypeGuard

from daeosens.errors import DaeosensError, InputError, nearest

UNFINISHED = ".*.new"
"""Pattern of the names of files that are being written; what a killed process leaves."""

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def admit_path(path: object, name: str) -> Path:
    """Return an argument that has to be the path of a file or folder.

    Raises
    ------
    InputError
        Something else.

    Examples
    --------
    >>> admit_path("run/data.csv", "path").name
    'data.csv'
    """
    if not is_path(path):
        raise InputError(f"{name} = {path!r}", expected="a path", remedy=f'{name}="folder/name"')
    return Path(path)


def is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a value can be the path of a file or folder."""
    words: Any = os.fspath(value) if isinstance(value, os.PathLike) else value  # pyright: ignore[reportUnknownVariableType]
    return isinstance(words, str) and "\0" not in words


def file_hint(path: Path) -> str:
    """Say what may help when a file is missing: the nearest name in its folder, or no such folder.

    Examples
    --------
    >>> file_hint(Path("/nowhere/data.csv"))
    'there is no folder /nowhere'
    """
    folder = path.parent
    if path.is_dir():
        return f"{path} is a folder; name a file in it"
    if not folder.is_dir():
        return f"there is no folder {folder}"
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    match = nearest(path.name, (name for name in names if Path(name).suffix == path.suffix))
    if match:
        return f"did you mean {match} in {folder}?"
    if not names:
        return f"{folder} holds no files"
    return f"{folder} holds {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"


def require_file(path: Path, kind: str) -> Path:
    """Return ``path`` if it is a file, or raise an error that names the nearest one.

    Raises
    ------
    InputError
        No such file; ``kind`` ("configuration", "table") says what was wanted.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file", expected=f"a {kind} file", remedy=file_hint(path))
    return path


def read_text(path: Path, kind: str) -> str:
    """Return the text of a UTF-8 file; a byte-order mark is dropped.

    Raises
    ------
    InputError
        Missing, unreadable, or not UTF-8.
    """
    require_file(path, kind)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: byte {error.start} is not UTF-8",
            expected=f"a {kind} file in UTF-8",
            remedy=f"iconv -t UTF-8 {path.name} > utf8-{path.name}",
        ) from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror})",
            expected=f"a readable {kind} file",
            remedy=f"ls -l {path}",
        ) from error


def replace_file(path: Path, content: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a file in one go: whoever looks, also after a kill, sees the old one or the new one.

    Its permissions are ``mode``, less what the umask takes away.

    Raises
    ------
    DaeosensError
        It cannot be written (disk full, no permission, no folder): the old one is untouched.
    """
    if not path.name:
        raise InputError(f"the file {str(path)!r} has no name", expected="the path of a file")
    # In the same folder, as renaming is in one go only within a file system; with a name of its
    # own, as several processes may write.
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")
    try:
        try:
            with os.fdopen(
                os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
            ) as file:
                file.write(content)
                file.flush()
                # The content is on the disk before the name points to it.
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> DaeosensError:
    """Return the error of a file that cannot be written."""
    return DaeosensError(
        f"{path}: cannot be written ({error.strerror or error})",
        expected="room on the disk, and permission to write there",
        remedy="free disk space, or another folder",
    )


def is_of_the_disk(error: OSError) -> bool:
    """Tell whether the system refused to write for want of room or a working disk.

    Examples
    --------
    >>> is_of_the_disk(OSError(errno.ENOSPC, "")), is_of_the_disk(FileNotFoundError())
    (True, False)
    """
    return error.errno in _DISK
