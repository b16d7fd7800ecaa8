"""Measurements that are missing: NaN in the place of data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array, real_array

REMEDY = "NaN in the data for what was not observed, and any sigma > 0 there"


def measured_array(values: Any, name: str) -> Array:
    """Turn measurements into a new float array, NaN where they are missing.

    Parameters
    ----------
    values : array_like
        NaN, None or masked where nothing was observed.
    name : str
        What the user calls it, for the message.

    Raises
    ------
    InputError
        Not numbers, or infinite ones (first position named).

    Examples
    --------
    >>> measured_array(np.ma.masked_less([1.0, -99.0], 0.0), "data")
    array([ 1., nan])
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        array = real_array(np.ma.getdata(values), name)
        array[np.ma.getmaskarray(values)] = np.nan
    else:
        array = real_array(values, name)
    if np.isinf(array).any():
        where = np.argwhere(np.isinf(array))[0].tolist()
        at = f" at index {where}" if where else ""
        raise InputError(
            f"{name} is {array[tuple(where)]}{at}",
            expected="finite numbers",
            remedy="NaN for what was not observed",
        )
    return array


def refuse_unobserved(values: Array, columns: Sequence[str]) -> None:
    """Refuse columns [q] in which all data [K, q] are missing; times without any do no harm.

    Raises
    ------
    InputError
        Names the first of them.
    """
    missing = np.isnan(values).all(axis=0)
    if missing.any():
        raise InputError(
            f"{columns[int(missing.argmax())]} has no measurements: all {len(values)} are missing",
            expected="at least one number in each column",
            remedy="data without this column, and an observe= of the others; experiments that "
            "observe different things are parts of a functional.Joint",
        )


def refuse_no_logarithm(values: Array, times: npt.ArrayLike, columns: Sequence[str]) -> None:
    """Refuse data [K, q] that have no logarithm.

    Raises
    ------
    InputError
        Names the first of them.
    """
    if not (values <= 0).any():
        return
    k, j = (int(i) for i in np.argwhere(values <= 0)[0])
    raise InputError(
        f"{columns[j]} is {values[k, j]:g} at t = {np.asarray(times)[k]:g}, with log-normal noise",
        expected="data > 0",
        remedy="Normal(sigma), or NaN in its place if it was below the limit of detection",
    )
