"""Runs as data with names: for xarray, and through it NetCDF."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from daeosens.errors import DaeosensError
from daeosens.io.hdf5 import RowBlock
from daeosens.petsc.vectors import Array

AXES = ("x", "y", "z")


def labelled(
    times: Array,
    states: Array,
    block: RowBlock,
    names: Sequence[str],
    parameters: dict[str, float],
    told: str,
) -> Any:
    """Return states [N+1, n_local] as an ``xarray.Dataset``.

    Raises
    ------
    DaeosensError
        xarray is not installed.
    """
    try:
        xarray: Any = importlib.import_module("xarray")
    except ImportError as error:
        raise DaeosensError(
            "to_xarray needs xarray, which cannot be imported",
            remedy="pip install daeosens[netcdf]",
        ) from error
    coordinates: dict[str, Any] = {"time": np.array(times)}
    if names:
        variables = {name: ("time", states[:, k].copy()) for k, name in enumerate(names)}
    else:
        spatial = len(block.shape) - 1
        axes = (*AXES[:spatial][::-1], "component") if spatial else ("unknown",)
        # the numbers on the whole grid, of which a rank may have a part
        parts = zip(axes, block.start, block.extent, strict=True)
        coordinates |= {axis: np.arange(first, first + n) for axis, first, n in parts}
        values = states.reshape(len(times), *block.extent).copy()
        variables = {"u": (("time", *axes), values)}
    attributes: dict[str, Any] = {"run": told, **parameters}
    return xarray.Dataset(variables, coordinates, attributes)
