"""Which text a callback makes for people to read: what it prints, logs, warns of or raises."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType

_TELLING = frozenset(
    {"print", "pprint", "write", "warn", "debug", "info", "warning", "error", "critical"}
    | {"exception"}
)
"""Names of functions and methods that tell people something and return nothing to compute with."""


def is_printed(frame: FrameType) -> bool:
    """Return whether what a frame is at is within a call that tells something, or ``raise``.

    Also where there is no source to look at, as in a line of ``python -c``.

    Examples
    --------
    >>> import sys
    >>> is_printed(sys._getframe())  # the source of this line is its own
    False
    """
    return _printed(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=1024)
def _printed(code: CodeType, instruction: int) -> bool:
    line, last_line, column, last_column = next(
        place for k, place in enumerate(code.co_positions()) if k == instruction // 2
    )
    tree = _tree(code.co_filename)
    if tree is None or line is None or last_line is None:
        return True
    begin, end = (line, column or 0), (last_line, last_column or 0)
    return any(_tells(node) for node in _around(tree, begin, end))


@lru_cache(maxsize=16)
def _tree(file: str) -> ast.Module | None:
    source = "".join(linecache.getlines(file))
    try:
        return ast.parse(source) if source else None
    except SyntaxError:  # not what was run
        return None


def _around(tree: ast.AST, begin: tuple[int, int], end: tuple[int, int]) -> Iterator[ast.AST]:
    """Yield the statements and expressions that a piece of source stands in."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr)):
            last = (node.end_lineno or node.lineno, node.end_col_offset or 0)
            if (node.lineno, node.col_offset) <= begin and end <= last:
                yield node


def _tells(node: ast.AST) -> bool:
    if isinstance(node, (ast.Raise, ast.Assert)):
        return True
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _TELLING
