"""Where in a user's code a callback failed, or made what it returned."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any
from weakref import ref

import numpy as np

from daeosens.problem.derivative_arrays import is_users, line_of, users_frame, users_trace

LAST_CALLED: dict[str, Callable[[], Any]] = {}
"""The callback of each name that was called last, if it is still there: guards write it here."""


def reference_to(callback: Any) -> Callable[[], Any]:
    """Return a function that returns a callback as long as it lives."""
    try:
        return ref(callback)
    except TypeError:  # built-in functions, say
        return lambda: None


def place_of_error(trace: TracebackType | None) -> str:
    """Return the innermost line of the user that an exception went through, and the part of it."""
    innermost = users_trace(trace)
    if innermost is None:
        return ""
    return _place(innermost.tb_frame, innermost.tb_lineno, innermost.tb_lasti)


def operations_that_fail(name: str, arguments: Sequence[Any]) -> Callable[[], str]:
    """Return a function that tells which operations of a callback give no finite numbers.

    It calls the callback of that name that was called last once more, with these arguments, and
    NumPy tells of each operation.  At most three are named.
    """
    reference = LAST_CALLED.get(name, lambda: None)
    # vectors of PETSc go on, and the callback may have a later use of them
    kept: list[Any] = [np.copy(x) if isinstance(x, np.ndarray) else x for x in arguments]

    def tell() -> str:
        callback = reference()
        places: list[str] = []

        def note(kind: str, _flag: int) -> None:
            frame = users_frame(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
            place = (
                "" if frame is None else f"{kind} {_place(frame, frame.f_lineno, frame.f_lasti)}"
            )
            if place and place not in places:
                places.append(place)

        if callback is None:
            return ""
        told: Any = {"divide": "call", "invalid": "call", "over": "call", "under": "ignore"}
        try:
            with np.errstate(call=note, **told):
                callback(*kept)
        except Exception:  # noqa: BLE001 (the fault was told without this)
            return ""
        return "; ".join(places[:3])

    return tell


def _place(frame: FrameType, number: int, instruction: int) -> str:
    """Return a line of a frame, and the part of it that an instruction belongs to."""
    place = line_of(frame, number)
    # Python knows the columns of each instruction: the part of a long line that failed
    positions = islice(frame.f_code.co_positions(), instruction // 2, None)
    line, last, start, end = next(positions, (None,) * 4)
    if line is None or line != last or start is None or end is None:
        return place
    whole = linecache.getline(frame.f_code.co_filename, line)
    part = whole.encode()[start:end].decode(errors="ignore").strip()
    return place if part in ("", whole.strip()) or part not in whole else f"{place}, at `{part}`"


def place_of_return(name: str) -> str:
    """Return the line in which the callback of a name, called last, returns; "" if not known."""
    callback = LAST_CALLED.get(name, LAST_CALLED.get(name.rpartition(" ")[0], lambda: None))()
    function = inspect.unwrap(callback) if inspect.isfunction(callback) else None
    if function is None or not is_users(function.__code__.co_filename, function.__globals__):
        return ""
    code = function.__code__
    number = code.co_firstlineno
    try:
        lines, first = inspect.getsourcelines(function)
        tree: Any = ast.parse(textwrap.dedent("".join(lines)))
        returns = [node for node in _own(tree.body[0]) if isinstance(node, ast.Return)]
        # of several returns it is not known which one was taken
        if len(returns) == 1:
            number = first + returns[0].lineno - 1
    except (OSError, SyntaxError, IndexError):  # typed in, or a lambda within a call
        pass
    text = linecache.getline(code.co_filename, number).strip()
    shown = f": `{text}`" if text else ""
    return f"in {code.co_name}, line {number} of {Path(code.co_filename).name}{shown}"


def written_to(trace: TracebackType | None) -> str:
    """Return which name the innermost line of the user writes to."""
    innermost = users_trace(trace)
    if innermost is not None:
        frame = innermost.tb_frame
        text = linecache.getline(frame.f_code.co_filename, innermost.tb_lineno).strip()
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        try:
            written = [_root(target) for target in _targets(ast.parse(text))]
        except SyntaxError:
            written = []
        return next((name for name in written if name), names[1] if len(names) > 1 else "u")
    return "u"


def _targets(tree: ast.AST) -> list[ast.AST]:
    targets: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AugAssign):
            targets.append(node.target)
        elif isinstance(node, ast.Call):
            targets += [keyword.value for keyword in node.keywords if keyword.arg == "out"]
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("sort", "fill", "put"):
                targets.append(node.func.value)
    return targets


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _own(node: ast.AST) -> list[ast.AST]:
    """Return the nodes of a function without those of functions in it."""
    nodes: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef)):
            nodes += [child, *_own(child)]
    return nodes
