"""Where in the user's code something cannot be traced."""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten
from types import FrameType
from typing import Any

import numpy as np
import scipy

from daeosens.errors import InputError

_OURS = tuple(str(Path(file).parent) for file in (__file__, np.__file__, scipy.__file__))


class SymbolLostError(InputError):
    """A number was wanted where a symbol stands, as by an array of floats that is filled."""


def untraceable(what: str, remedy: str, kind: type[InputError] = InputError) -> InputError:
    """Make the error for an operation that has no graph, naming the user's line it is on."""
    frame = inspect.currentframe()
    assert frame is not None
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        # no frame of the user's is left: what was returned cannot be taken, wherever it was made
        if frame.f_code is traced_call.__code__:
            return kind(
                f"cannot trace what '{frame.f_locals['name']}' returned: {what}", remedy=remedy
            )
        frame = frame.f_back
    return kind(
        f"cannot trace {_line(frame.f_code.co_filename, frame.f_lineno)}: {what}", remedy=remedy
    )


def is_theirs(frame: FrameType) -> bool:
    """Whether a frame is of the user's code."""
    return not frame.f_code.co_filename.startswith(_OURS)


def called_from(package: str) -> bool:
    """Whether the caller of the calling method is a function of a package."""
    frame = inspect.currentframe()
    assert frame is not None
    for _ in range(2):
        frame = frame.f_back or frame
    return str(frame.f_globals.get("__name__")).startswith(package)


def called_within(package: str) -> bool:
    """Whether one of the last eight callers is a function of a package."""
    frame = inspect.currentframe()
    for _ in range(8):
        frame = None if frame is None else frame.f_back
        if frame is not None and str(frame.f_globals.get("__name__")).startswith(package):
            return True
    return False


def traced_call(function: Callable[..., Any], name: str, *arguments: Any) -> Any:
    """Call the user's function; whatever it raises names it and the line.

    NumPy hides exceptions of its elements behind its own: the first one is what the user needs.
    """
    try:
        return function(*arguments)
    except Exception as error:
        first: BaseException | None = error
        # down the chain of causes to our own error, which names the line and the remedy
        while first is not None:
            if isinstance(first, InputError):
                first.add_note(f"while tracing '{name}'")
                raise first from None
            first = first.__cause__ or first.__context__
        summary = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in summary if not frame.filename.startswith(_OURS)]
        place = f", {_line(theirs[-1].filename, theirs[-1].lineno or 0)}" if theirs else ""
        raise InputError(
            f"cannot trace '{name}'{place}: {type(error).__name__}: {error}",
            expected="a function of NumPy operations on its arguments",
            remedy="the operations listed in docs/tracing.md, or ODE(...) with callbacks",
        ) from error


def _line(filename: str, number: int) -> str:
    source = shorten(linecache.getline(filename, number), 80)
    return f"{Path(filename).name}:{number}" + (f" `{source}`" if source else "")
