"""Finding the file the user meant."""

from __future__ import annotations

from pathlib import Path

from daeosens.errors import InputError, nearest


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
