"""Tables of measurements: CSV files with one header line of names and numbers below."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, nearest, require, together
from daeosens.io.files import admit_path, read_text

Array: TypeAlias = npt.NDArray[np.float64]
_MOST_PROBLEMS = 20

GAPS = ("", "nan", "na", "n/a", "null", "none", ".")
"""Cells that say that there is no number, in any case."""


@dataclass(frozen=True)
class Table:
    """Columns of numbers by name, and of words.

    Parameters
    ----------
    names : tuple of str
        The header, in order.
    columns : tuple of ndarray [rows]
        The numbers, one array a name; NaN where a cell is empty, "nan" or "NA".
    path : Path
        Where they came from, for messages.
    words : mapping of str to tuple of str [rows], optional
        Columns without any number, as a sex or the name of a group; their ``columns`` are NaN.
    """

    names: tuple[str, ...]
    columns: tuple[Array, ...]
    path: Path
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])

    def column(self, name: str) -> Array:
        """Return one column [rows].

        Raises
        ------
        InputError
            No such column; the nearest is named.  One of words.
        """
        require(name, str, "name", "one of table.names")
        if name in self.words:
            word = next(text for text in self.words[name] if text)
            raise InputError(
                f'{self.path}: column "{name}" holds words, as "{word}"',
                expected="numbers",
                remedy="columns=[...], the names of those with measurements",
            )
        if name not in self.names:
            match = nearest(name, self.names)
            raise InputError(
                f'{self.path}: no column "{name}"',
                expected=f"one of {', '.join(self.names)}",
                remedy=match,
            )
        return self.columns[self.names.index(name)]

    def select(self, *names: str) -> Array:
        """Return several columns side by side [rows, len(names)]."""
        return np.column_stack([self.column(name) for name in names])


def read_table(path: str | Path) -> Table:
    """Read a CSV file of numbers.  Not collective: each caller reads the file.

    The first line holds the names; every other line holds a finite number for each of them, or an
    empty cell (or "nan", "NA", "N/A", "null", ".") where there is none.  A column without any
    number is one of words, which only asking for its numbers refuses.  Empty lines and lines that
    begin with ``#`` are skipped.

    Raises
    ------
    InputError
        Missing file; or all bad lines together, each with its line number (and column for a cell).
    """
    path = admit_path(path, "path")
    text = read_text(path, "table (CSV)")
    problems: list[str] = []
    lines = [
        (number, [cell.strip() for cell in next(csv.reader(io.StringIO(line)))])
        # Line by line, so that an error names the line of the file; cells over several lines are
        # none of a table of numbers.
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if len(lines) < 2:
        raise InputError(
            f"{path}: {'no rows below the header' if lines else 'empty'}",
            expected="a header line of names, then lines of numbers",
            remedy="time,hare,lynx on the first line",
        )
    names = _header(problems, *lines[0])
    # Known before the rows are read: a word is wrong in a column of numbers only.
    words = _words([cells for _, cells in lines[1:]], names)
    rows = [_row(problems, number, cells, names, words) for number, cells in lines[1:]]
    if problems:
        left_out = len(problems) - _MOST_PROBLEMS
        shown = problems[:_MOST_PROBLEMS] + ([f"and {left_out} more"] if left_out > 0 else [])
        raise together(shown, heading=str(path))
    return Table(names, tuple(np.array(rows, dtype=float).T.copy()), path, words)


def columns_by_name(table: Any) -> dict[str, Any] | None:
    """Return the columns of a table by name, or None where they have no names.

    A ``Table``, a mapping, a data frame (of pandas, polars, pyarrow) or a structured array.
    """
    if isinstance(table, Mapping):
        return dict(cast("Mapping[str, Any]", table))
    # By what they can do: pandas and its like are not imported here.
    if hasattr(table, "names") and hasattr(table, "column"):
        words: Mapping[str, Any] = getattr(table, "words", {})
        return {name: words[name] if name in words else table.column(name) for name in table.names}
    names = getattr(getattr(table, "dtype", None), "names", None)
    if names is None and hasattr(table, "columns") and hasattr(table, "__getitem__"):
        names = getattr(table, "column_names", table.columns)
    if names is None:
        return None
    return {str(name): np.asarray(table[name]) for name in names}


def _header(problems: list[str], number: int, names: list[str]) -> tuple[str, ...]:
    """Check the names; a header of numbers means that it was forgotten."""
    if any(_parse(name) is not None for name in names):
        problems.append(f"line {number}: expected names, found numbers; add a header line")
    problems.extend(
        f'line {number}: column "{name}" stands {names.count(name)} times'
        for name in sorted({name for name in names if names.count(name) > 1})
    )
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        problems.append(f"line {number}: separated by ';' or tabs; use commas")
    return tuple(names)


def _words(lines: list[list[str]], names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the columns that hold words and no number at all."""
    whole = [cells for cells in lines if len(cells) == len(names)]
    columns = {name: tuple(cells[j] for cells in whole) for j, name in enumerate(names)}
    return {
        name: column
        for name, column in columns.items()
        if not all(_is_gap(cell) for cell in column)
        and all(_is_gap(cell) or _parse(cell) is None for cell in column)
    }


def _is_gap(cell: str) -> bool:
    return cell.lower() in GAPS


def _row(
    problems: list[str],
    number: int,
    cells: list[str],
    names: tuple[str, ...],
    words: Mapping[str, object],
) -> list[float]:
    if len(cells) != len(names):
        problems.append(
            f"line {number}: {len(cells)} cells, expected {len(names)} as in the header"
        )
        return []
    values: list[float] = []
    for name, cell in zip(names, cells, strict=True):
        value = math.nan if _is_gap(cell) or name in words else _parse(cell)
        if value is None or math.isinf(value):
            problems.append(
                f'line {number}, column "{name}": "{cell}", expected a finite number, or nothing '
                'or "NA"'
            )
        values.append(math.nan if value is None else value)
    return values


def _parse(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
