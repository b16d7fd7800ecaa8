"""Noise models of measurements, and what is observed in the scale of the noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from daeosens.arrays import Array, finite_array, keep_unshared, real_array
from daeosens.errors import InputError, SolveError
from daeosens.inverse.identifiability import Scale
from daeosens.inverse.measurements import Measurements
from daeosens.missing import REMEDY

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
    level = real_array(noise.sigma, "noise level")
    bad = level[~((level > 0) & (level < np.inf))]
    if level.size == 0 or bad.size:
        infinite = bad.size and not np.isfinite(bad[0])
        raise InputError(
            f"noise level = {bad[0] if bad.size else 0:g}",
            expected="a finite sigma > 0",
            remedy=REMEDY if infinite else f'sigma="{ESTIMATED}"',
        )
    if noise.prior is not None or noise.each_column:
        raise InputError(
            "a given noise level with a prior or each_column", expected=f'sigma="{ESTIMATED}"'
        )


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


def observed_in_scale(observation: Observation, noise: Noise, data: Measurements) -> Observation:
    """Return the observation in the scale of the noise: its logarithm for log-normal noise.

    Where nothing was observed it may be zero or negative.
    """
    if noise.scale == "linear":
        return observation
    observe = observation.observe

    def plain(t: float, u: Array, p: Any) -> Any:
        if observe is None:
            return u
        return observe(t, u, p) if callable(observe) else u[np.asarray(observe)]

    def logarithm(t: float, u: Array, p: Any) -> Any:
        values = np.asarray(plain(t, u, p))
        observed = rows(t, values)
        if (np.real(values[observed]) <= 0).any():
            raise SolveError(
                f"what is observed is {float(np.real(values[observed]).min()):g} at t = "
                f"{np.real(t):g}, with log-normal noise",
                expected="a model that stays positive",
                remedy="another starting point, bounds on the parameters, or Normal(sigma)",
            )
        logarithms = np.log(values[observed])
        if observed is ...:
            return logarithms
        result = np.zeros(values.shape, dtype=logarithms.dtype)
        result[observed] = logarithms
        return result

    def rows(t: Any, values: npt.NDArray[Any]) -> Any:
        if data.observed.all() or values.shape != data.observed[0].shape:
            return ...
        return data.observed[np.abs(data.times - np.real(t)).argmin()]

    def divided(jacobian: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if jacobian is None:
            return None

        def call(t: float, u: Array, p: Any) -> Any:
            values = np.asarray(plain(t, u, p))
            observed = rows(t, values)
            divisors = np.ones(values.shape, dtype=values.dtype)
            divisors[observed] = values[observed]
            return np.asarray(jacobian(t, u, p)) / divisors[:, None]

        return call

    return Observation(logarithm, divided(observation.observe_u), divided(observation.observe_p))
