"""Tables of measurements: CSV files with one header line of names and numbers below."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, nearest, together
from daeosens.io.files import read_text

Array: TypeAlias = npt.NDArray[np.float64]
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class Table:
    """Columns of numbers by name.

    Parameters
    ----------
    names : tuple of str
        The header, in order.
    columns : tuple of ndarray [rows]
        The numbers, one array a name; NaN where a cell is empty or "nan".
    path : Path
        Where they came from, for messages.
    """

    names: tuple[str, ...]
    columns: tuple[Array, ...]
    path: Path

    def column(self, name: str) -> Array:
        """Return one column [rows].

        Raises
        ------
        InputError
            No such column; the nearest is named.
        """
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
    empty cell (or "nan") where there is none.  Empty lines and lines that begin with ``#`` are
    skipped.

    Raises
    ------
    InputError
        Missing file; or all bad lines together, each with its line number (and column for a cell).
    """
    path = Path(path)
    text = read_text(path, "table (CSV)")
    problems: list[str] = []
    lines = [
        (number, [cell.strip() for cell in next(csv.reader(io.StringIO(line)))])
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
    rows = [_row(problems, number, cells, names) for number, cells in lines[1:]]
    if problems:
        left_out = len(problems) - _MOST_PROBLEMS
        shown = problems[:_MOST_PROBLEMS] + ([f"and {left_out} more"] if left_out > 0 else [])
        raise together(shown, heading=str(path))
    return Table(names, tuple(np.array(rows, dtype=float).T.copy()), path)


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


def _row(problems: list[str], number: int, cells: list[str], names: tuple[str, ...]) -> list[float]:
    if len(cells) != len(names):
        problems.append(
            f"line {number}: {len(cells)} cells, expected {len(names)} as in the header"
        )
        return []
    values: list[float] = []
    for name, cell in zip(names, cells, strict=True):
        value = _parse(cell) if cell else math.nan
        if value is None or math.isinf(value):
            problems.append(
                f'line {number}, column "{name}": "{cell}", expected a finite number, or nothing '
                "where there is none"
            )
        values.append(math.nan if value is None else value)
    return values


def _parse(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
