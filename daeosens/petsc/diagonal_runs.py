"""Entries of sparse matrices in runs along the diagonals: loops over them are vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Runs:
    """Where the values of a pattern belong.

    Attributes
    ----------
    runs : array [R, 5] of int32
        Whether the rows are those of f (or of v), first row, first column, length, first value.
        Columns are counted from the start of their block.
    blocks : array [B+1]
        Which runs belong to each block of columns.
    """

    runs: npt.NDArray[np.int32]
    blocks: npt.NDArray[np.intp]


def diagonal_runs(
    rows: npt.NDArray[np.intp],
    columns: npt.NDArray[np.intp],
    inner: int = 0,
    starts: Sequence[int] | npt.NDArray[np.intp] = (0,),
) -> tuple[npt.NDArray[np.intp], Runs]:
    """Sort entries into runs along the diagonals.

    Parameters
    ----------
    rows, columns : array [entries]
        Where they are.
    inner : int
        So many rows come before those of f, and are those of v.
    starts : sequence [B]
        First columns of the blocks.

    Returns
    -------
    (array [entries], Runs)
        The order of the entries, and the runs of the sorted ones.

    Examples
    --------
    >>> order, diagonals = diagonal_runs(np.array([0, 1, 1, 2]), np.array([0, 0, 1, 2]))
    >>> order, diagonals.runs  # one entry below the diagonal, then three on it
    (array([1, 0, 2, 3]), array([[1, 1, 0, 1, 0],
           [1, 0, 0, 3, 1]], dtype=int32))
    """
    of_f = rows >= inner
    block = np.searchsorted(starts, columns, side="right") - 1
    column = columns - np.asarray(starts, dtype=int)[block]
    row = rows - inner * of_f
    # The last key counts first: by block, then v before f, then diagonal by diagonal, then down
    # the rows.
    order = np.lexsort((row, column - row, of_f, block))
    # Along a diagonal without gaps the row grows with the position, so that their difference
    # stays: a new run begins where any key changes.
    keys = np.stack([block, of_f, column - row, row - np.argsort(order)])[:, order]
    begins = np.append(True, (np.diff(keys) != 0).any(axis=0))[: order.size]
    first = np.flatnonzero(begins)
    length = np.diff(np.append(first, order.size))
    where = order[first]
    runs = np.stack([of_f[where], row[where], column[where], length, first], axis=1)
    blocks = np.searchsorted(block[where], np.arange(len(starts) + 1))
    return order, Runs(runs.astype(np.int32), blocks)
