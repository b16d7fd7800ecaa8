"""Noise models of measurements, and the measurements themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from daeosens.arrays import Array, finite_array, keep_unshared
from daeosens.errors import InputError, SolveError, suggestion, together
from daeosens.inverse.identifiability import Scale
from daeosens.io.tables import read_table

ESTIMATED = "estimated"

Level: TypeAlias = "npt.ArrayLike | Literal['estimated']"
"""A noise level: a number, an array, or "estimated"."""


@dataclass(frozen=True, eq=False)
class Noise:
    """What ``Normal`` and ``LogNormal`` make.

    Attributes
    ----------
    scale : "linear" or "log"
        In which scale the noise adds up.
    sigma, each_column, prior
        As for ``Normal``.
    """

    scale: Scale
    sigma: Level
    each_column: bool
    prior: tuple[float, float] | None

    def __post_init__(self) -> None:
        _check(self)
        keep_unshared(self, "sigma", "prior")


def Normal(  # noqa: N802 (a noun of the public interface)
    sigma: Level = ESTIMATED,
    each_column: bool = False,
    prior: tuple[float, float] | None = None,
) -> Noise:
    """Return the noise of data = model + sigma * standard normal.

    Parameters
    ----------
    sigma : float or array_like [q] or [K, q], or "estimated"
        Noise level in the data's unit.
    each_column : bool
        With "estimated": a level for every column; else one for all, which must share a unit.
    prior : (float, float), optional
        With "estimated": mean and standard deviation of a normal prior of log(sigma).

    Raises
    ------
    InputError
        Levels that are not positive; a prior of a level that is given.

    Examples
    --------
    >>> Normal(0.1).scale
    'linear'
    """
    return Noise("linear", sigma, each_column, prior)


def LogNormal(  # noqa: N802
    sigma: Level = ESTIMATED,
    each_column: bool = False,
    prior: tuple[float, float] | None = None,
) -> Noise:
    """Return the noise of log(data) = log(model) + sigma * standard normal, for positive data.

    Parameters
    ----------
    sigma, each_column, prior
        As for ``Normal``; sigma is about the relative error.

    Examples
    --------
    >>> LogNormal("estimated", each_column=True).scale
    'log'
    """
    return Noise("log", sigma, each_column, prior)


def is_estimated(noise: Noise) -> bool:
    """Return whether the noise level is to be estimated."""
    return isinstance(noise.sigma, str)


def _check(noise: Noise) -> None:
    if isinstance(noise.sigma, str):
        if noise.sigma != ESTIMATED:
            raise InputError(
                f'noise level = "{noise.sigma}"', expected=f'a positive number or "{ESTIMATED}"'
            )
        if noise.prior is not None:
            mean, deviation = finite_array(noise.prior, "the noise level's prior", (2,))
            if deviation <= 0:
                raise InputError(
                    f"the noise level's prior ({mean:g}, {deviation:g})",
                    expected="(mean, standard deviation > 0) of log(sigma)",
                )
        return
    level = finite_array(noise.sigma, "noise level")
    if level.size == 0 or (level <= 0).any():
        raise InputError(
            f"noise level = {level.min(initial=0.0):g}",
            expected="sigma > 0",
            remedy=f'sigma="{ESTIMATED}"',
        )
    if noise.prior is not None or noise.each_column:
        raise InputError(
            "a given noise level with a prior or each_column", expected=f'sigma="{ESTIMATED}"'
        )


@dataclass(frozen=True, eq=False)
class Measurements:
    """Numbers at times.

    Attributes
    ----------
    times : array [K]
    values : array [K, q]
    names : tuple of str [q]
        The columns.
    """

    times: Array
    values: Array
    names: tuple[str, ...]


def measurements(
    data: Any, times: str | npt.ArrayLike | None = None, columns: Sequence[str] | None = None
) -> Measurements:
    """Return measurements from a table, a mapping, a CSV file or an array.

    Parameters
    ----------
    data : Table, mapping of str to array [K], path, or array_like [K] or [K, q]
        A table's, mapping's or file's columns go by name.
    times : str or array_like [K]
        The column of times, the first one by default; for an array of data the times themselves.
    columns : sequence of str, optional
        Which columns hold data, all but the times by default; for an array the names of its
        columns.

    Raises
    ------
    InputError
        Missing file, unknown columns (the nearest are named), lengths that differ, NaN.
    """
    table = read_table(data) if isinstance(data, (str, Path)) else data
    if hasattr(table, "names") and hasattr(table, "column"):
        return _by_name({name: table.column(name) for name in table.names}, times, columns)
    if isinstance(table, Mapping):
        return _by_name(dict(cast("Mapping[str, Any]", table)), times, columns)
    if times is None or isinstance(times, str):
        kind = "an array" if isinstance(data, (np.ndarray, list, tuple)) else type(data).__name__
        raise InputError(
            f"data is {kind} without times",
            expected="times=array [K]",
            remedy="fit(problem, data, parameters, stepping): in this order",
        )
    values = finite_array(cast("npt.ArrayLike", table), "data")
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
    return Measurements(moments, values, tuple(names))


def _by_name(
    table: dict[str, Any], times: str | npt.ArrayLike | None, columns: Sequence[str] | None
) -> Measurements:
    if not table:
        raise InputError("data has no columns", expected="a column of times and one of data")
    clock = next(iter(table)) if times is None else times
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
    given = table[clock] if isinstance(clock, str) else clock
    moments = finite_array(given, "times")
    arrays = [finite_array(table[name], f'column "{name}"') for name in chosen]
    for name, array in zip(chosen, arrays, strict=True):
        if array.shape != moments.shape or array.ndim != 1:
            raise InputError(
                f'column "{name}" has shape {array.shape}, times have shape {moments.shape}',
                expected="as many numbers as times",
            )
    return Measurements(moments, np.column_stack(arrays), tuple(chosen))


def in_scale(data: Measurements, noise: Noise) -> Array:
    """Return the data [K, q] in the scale in which the noise adds up.

    Raises
    ------
    InputError
        Data that are not positive, with log-normal noise: the first is named.
    """
    if noise.scale == "linear":
        return data.values
    if (data.values <= 0).any():
        k, j = (int(i) for i in np.argwhere(data.values <= 0)[0])
        raise InputError(
            f'"{data.names[j]}" is {data.values[k, j]:g} at t = {data.times[k]:g}, with log-normal '
            "noise",
            expected="data > 0",
            remedy="Normal(sigma)",
        )
    return np.log(data.values)


@dataclass(frozen=True, eq=False)
class Observation:
    """``observe`` with its Jacobians, as ``LeastSquares`` takes them."""

    observe: Any
    observe_u: Callable[..., Any] | None = None
    observe_p: Callable[..., Any] | None = None


def observed_in_scale(
    observe: Any,
    observe_u: Callable[..., Any] | None,
    observe_p: Callable[..., Any] | None,
    noise: Noise,
) -> Observation:
    """Return the observation in the scale of the noise: its logarithm for log-normal noise."""
    if noise.scale == "linear":
        return Observation(observe, observe_u, observe_p)

    def plain(t: float, u: Array, p: Any) -> Any:
        if observe is None:
            return u
        return observe(t, u, p) if callable(observe) else u[np.asarray(observe)]

    def logarithm(t: float, u: Array, p: Any) -> Any:
        values = np.asarray(plain(t, u, p))
        if (np.real(values) <= 0).any():
            raise SolveError(
                f"what is observed is {float(np.real(values).min()):g} at t = {np.real(t):g}, with "
                "log-normal noise",
                expected="a model that stays positive",
                remedy="another starting point, bounds on the parameters, or Normal(sigma)",
            )
        return np.log(values)

    def divided(jacobian: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if jacobian is None:
            return None

        def call(t: float, u: Array, p: Any) -> Any:
            return np.asarray(jacobian(t, u, p)) / np.asarray(plain(t, u, p))[:, None]

        return call

    return Observation(logarithm, divided(observe_u), divided(observe_p))
