"""Measurements: numbers at times, from a table, a mapping, a file or an array."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.costs.missing_data import measured_array, refuse_unobserved
from daeosens.errors import InputError, name_list, suggestion, together
from daeosens.io.tables import columns_by_name, read_table
from daeosens.petsc.vectors import Array, finite_array


def spread(rows: Array, observed: npt.NDArray[np.bool_]) -> Array:
    """Return numbers that belong to what was observed in an array [K, q], NaN elsewhere."""
    table = np.full(observed.shape, np.nan)
    table[observed] = rows
    return table


@dataclass(frozen=True, eq=False)
class Measurements:
    """Numbers at times, in the order of these; replicates in that of the table.

    Attributes
    ----------
    times : array [K]
        A time may stand several times.
    values : array [K, q]
        NaN where nothing was observed.
    names : tuple of str [q]
        The columns.
    order : array [K] of int
        Which row of the table each one was.
    observed : array [K, q] of bool
    clock : str
        The column of times, where it was taken for that because it is the first.

    Raises
    ------
    InputError
        A column without any observation.
    """

    times: Array
    values: Array
    names: tuple[str, ...]
    order: npt.NDArray[np.intp]
    clock: str = ""
    observed: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        refuse_unobserved(self.values, [f'column "{name}"' for name in self.names])
        object.__setattr__(self, "observed", ~np.isnan(self.values))

    @property
    def count(self) -> int:
        """How many numbers were observed."""
        return int(self.observed.sum())


def measurements(
    data: Any, times: str | npt.ArrayLike | None = None, columns: Sequence[str] | None = None
) -> Measurements:
    """Return measurements from a table, a mapping, a data frame, a CSV file or an array.

    Parameters
    ----------
    data : Table, mapping of str to array [K], data frame, path, or array_like [K] or [K, q]
        Columns go by name where they have names.  NaN (in a file: an empty cell) where
        nothing was observed.
    times : str or array_like [K]
        The column of times, the first one by default (of a data frame the index, if that has the
        name of a time); for an array of data the times themselves.
    columns : sequence of str, optional
        Which columns hold data, all but the times by default; for an array the names of its
        columns.

    Raises
    ------
    InputError
        Missing file, unknown columns (the nearest are named), lengths that differ, infinite
        numbers, a column without measurements.  By default: another column than the first has the
        name of a time.

    Examples
    --------
    >>> three = measurements({"hour": [2, 1, 1], "level": [0.4, 0.6, 0.7]})
    >>> three.times, three.order
    (array([1., 1., 2.]), array([1, 2, 0]))
    """
    table = read_table(data) if isinstance(data, (str, Path)) else data
    named = columns_by_name(table)
    if named is not None:
        index = getattr(table, "index", None)
        label = getattr(index, "name", None)
        # The index of a data frame is mostly the number of a row: it is the clock only where its
        # name says so.
        if isinstance(label, str) and _is_time(label) and label not in named:
            named = {label: np.asarray(index), **named}
        return _by_name(named, times, columns)
    if times is None or isinstance(times, str):
        kind = "an array" if isinstance(data, (np.ndarray, list, tuple)) else type(data).__name__
        raise InputError(
            f"data is {kind} without times",
            expected="times=array [K]",
            remedy="fit(problem, data, parameters, stepping): in this order",
        )
    values = measured_array(table, "data")
    values = values[:, None] if values.ndim == 1 else values
    moments = finite_array(times, "times")
    if values.ndim != 2 or moments.shape != values.shape[:1]:
        raise InputError(
            f"data has shape {values.shape}, times have shape {moments.shape}",
            expected="data [K, q] and times [K]",
        )
    names = tuple(f"data[{j}]" for j in range(values.shape[1])) if columns is None else columns
    if len(names) != values.shape[1]:
        raise InputError(
            f"{len(names)} names for {values.shape[1]} columns of data", expected="one for each"
        )
    return _sorted(moments, values, tuple(names))


_TIME = re.compile(
    r"(?:t|(?i:times?))(?:_|(?![^\W_]))"
    r"|(?i:timestamps?|dates?|seconds?|sec|minutes?|min|hours?|hrs?|days?|weeks?|months?|years?)"
    r"(?!\w)"
)
"""How the name of a column of times begins; what follows is a unit or the like, "time [h]"."""


def _is_time(name: str) -> bool:
    return _TIME.match(name) is not None


def _clock(table: dict[str, Any], columns: Sequence[str] | None) -> str:
    """Return the column of times by default: the first one, unless names tell otherwise.

    Raises
    ------
    InputError
        The first column is not named as a time, but another one is that holds no data; or the first
        one is among the data.
    """
    first = next(iter(table))
    data = () if columns is None else name_list(columns, "columns")
    # A table whose times are not first would be fitted against a measurement without a word, so
    # doubt is an error.
    others = [name for name in table if name not in (first, *data) and _is_time(name)]
    if first in data or (others and not _is_time(first)):
        likely = others[0] if others else "..."
        raise InputError(
            f'the column of times is the first one by default, "{first}", out of '
            f"{', '.join(table)}",
            expected="times first, or times= with the name of their column",
            remedy=f'times="{likely}"',
        )
    return first


def _sorted(times: Array, values: Array, names: tuple[str, ...], clock: str = "") -> Measurements:
    # Stable: replicates stay in the order of the table.
    order = np.argsort(times, kind="stable")
    return Measurements(times[order], values[order], names, order, clock)


def _numbers(table: dict[str, Any], name: str) -> Array:
    """Return a column of measurements [K].

    Raises
    ------
    InputError
        Words: the first one, and the columns that would do.
    """
    words = [
        value for value in np.ravel(np.asarray(table[name], dtype=object)) if isinstance(value, str)
    ]
    if words:
        others = [column for column in table if column != name]
        raise InputError(
            f'column "{name}" holds words, as {words[0]!r}',
            expected="numbers, or NaN or an empty cell where nothing was observed",
            remedy=f"columns=[...], those that were observed, out of {', '.join(others)}",
        )
    return measured_array(table[name], f'column "{name}"')


def _by_name(
    table: dict[str, Any], times: str | npt.ArrayLike | None, columns: Sequence[str] | None
) -> Measurements:
    if not table:
        raise InputError("data has no columns", expected="a column of times and one of data")
    unnamed = [name for name in table if not isinstance(name, str)]  # pyright: ignore[reportUnnecessaryIsInstance]
    if unnamed:
        raise InputError(f"data has a column {unnamed[0]!r}", expected="names of columns, of text")
    columns = None if columns is None else name_list(columns, "columns")
    clock = _clock(table, columns) if times is None else times
    wanted = [clock] if isinstance(clock, str) else []
    chosen = [name for name in table if name not in wanted] if columns is None else list(columns)
    complaints = [
        f'no column "{name}"; expected: one of {", ".join(table)}{suggestion(name, table)}'
        for name in [*wanted, *chosen]
        if name not in table
    ]
    if not chosen:
        complaints.append("no column of data beside the times")
    if complaints:
        raise together(complaints, heading="data")
    clock_values = table[clock] if isinstance(clock, str) else clock
    moments = finite_array(
        clock_values, f'times (column "{clock}")' if clock_values is not times else "times"
    )
    arrays = [_numbers(table, name) for name in chosen]
    for name, array in zip(chosen, arrays, strict=True):
        if array.shape != moments.shape or array.ndim != 1:
            raise InputError(
                f'column "{name}" has shape {array.shape}, times have shape {moments.shape}',
                expected="as many numbers as times",
            )
    # Remembered, to be compared with the names of unknowns.
    taken = clock if times is None and isinstance(clock, str) else ""
    return _sorted(moments, np.column_stack(arrays), tuple(chosen), taken)
