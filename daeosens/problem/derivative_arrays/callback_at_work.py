"""The callbacks at work, their lines, and the error that names one."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false, reportPrivateUsage=false
from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import Any, NamedTuple


class AtWork(NamedTuple):
    """A callback that is being evaluated.

    Attributes
    ----------
    directions : tuple of int
        Numbers of directions, the outermost level first.
    thread : int
        Its thread.
    home : str
        Its package, which its helpers may be in.
    points : int
        At how many points it is evaluated together; 0 for arrays of one point.
    record : Record or None
        What records the operations on slopes.
    """

    directions: tuple[int, ...]
    thread: int
    home: str
    points: int
    record: Any


AT_WORK: list[AtWork] = []
"""The callbacks at work, each called by the one before it."""

_PYTHONS = (sysconfig.get_paths()["stdlib"], "<frozen ")  # the latter are parts of the same
_IS_USERS: dict[tuple[str, str], bool] = {}


def of_users(frame: FrameType) -> bool:
    """Whether a frame is of the callback or its helpers, not of a library."""
    file = frame.f_code.co_filename
    # asked for every array that NumPy makes: by file, once
    known = _IS_USERS.get((file, AT_WORK[-1].home if AT_WORK else ""))
    return is_users(file, frame.f_globals) if known is None else known


def is_users(file: str, names: Mapping[str, Any]) -> bool:
    """Return whether a file with these global names is the callback's, and not of a library."""
    home = AT_WORK[-1].home if AT_WORK else ""
    key = (file, home)
    known = _IS_USERS.get(key)
    if known is None:
        # a callback in an installed package is the user's as well: ``home`` is the package of the
        # callback
        top = str(names.get("__name__", "")).partition(".")[0]
        library = "site-packages" in file or "dist-packages" in file or file.startswith(_PYTHONS)
        known = top not in _LIBRARIES and (not library or (top == home and bool(home)))
        _IS_USERS[key] = known
    return known


_LIBRARIES = frozenset({"daeosens", "numpy", "scipy", "petsc4py", "casadi", "numba"})


def users_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of a callback or its helpers."""
    while frame is not None and not of_users(frame):
        frame = frame.f_back
    return frame


def line_of(place: FrameType | None, number: int | None = None) -> str:
    """Return a source line with its file and number."""
    if place is None:
        return ""
    file = place.f_code.co_filename
    line = place.f_lineno if number is None else number
    text = linecache.getline(file, line).strip()
    shown = f": `{text}`" if text else ""
    name = file.replace("\\", "/").rsplit("/")[-1]
    return f"in {place.f_code.co_name}, line {line} of {name}{shown}"


def line_of_error(trace: TracebackType | None) -> str:
    """Return the innermost line of a callback or its helpers that an exception went through."""
    innermost = users_trace(trace)
    return "" if innermost is None else line_of(innermost.tb_frame, innermost.tb_lineno)


def users_trace(trace: TracebackType | None) -> TracebackType | None:
    """Return where an exception went through a callback or its helpers for the last time."""
    previous = None
    while trace is not None:
        if of_users(trace.tb_frame):
            previous = trace
        trace = trace.tb_next
    return previous


class DerivativeLostError(TypeError):
    """Something would have gone on with values and without their derivatives.

    Parameters
    ----------
    what : str
        The operation.
    remedy : str, optional
        Another spelling.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = what
        self.remedy = remedy
        self.line = line_of(users_frame(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]
        super().__init__(f"{what} has no derivative{f', {self.line}' if self.line else ''}")
