"""Noise models of measurements, and what is observed in the scale of the noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from daeosens.costs.missing_data import REMEDY
from daeosens.costs.observation import paired_unknowns
from daeosens.errors import InputError, require
from daeosens.inverse.identifiability import Scale
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.petsc.vectors import finite_array, keep_unshared, real_array
from daeosens.problem.problem import Problem

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
    require(noise.each_column, bool, "each_column", "each_column=True")
    if isinstance(noise.sigma, str):
        if noise.sigma != ESTIMATED:
            raise InputError(
                f'noise level = "{noise.sigma}"', expected=f'a positive number or "{ESTIMATED}"'
            )
        if noise.prior is not None:
            mean, deviation = finite_array(noise.prior, "the noise level's prior", (2,))
            object.__setattr__(noise, "prior", (float(mean), float(deviation)))
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


def in_order(noise: Noise, data: Measurements) -> Noise:
    """Return the noise with levels of single rows in the order of the data, which were sorted.

    Raises
    ------
    InputError
        Levels [K, q] of another shape than the data.
    """
    require(noise, Noise, "noise", "inverse.Normal(0.1), or inverse.LogNormal()")
    if np.ndim(noise.sigma) < 2:
        return noise
    levels = np.asarray(noise.sigma, dtype=float)
    if levels.shape != data.values.shape:
        raise InputError(
            f"sigma has shape {levels.shape}",
            expected=f"a number, or shape {data.values.shape[1:]} or {data.values.shape}",
        )
    # Row k of the data was row order[k] of the table.
    return replace(noise, sigma=levels[data.order])


@dataclass(frozen=True, eq=False)
class Observation:
    """``observe`` with its Jacobians, and on which side of events, as ``LeastSquares`` takes them.

    Attributes
    ----------
    observe, observe_u, observe_p
    side : "before", "after" or None
    """

    observe: Any
    observe_u: Callable[..., Any] | None = None
    observe_p: Callable[..., Any] | None = None
    side: Literal["before", "after"] | None = None

    def of(self, problem: Problem, data: Measurements) -> Observation:
        """Return the same with numbers of unknowns in the place of names.

        Columns that have names of unknowns are these.

        Raises
        ------
        InputError
            Columns that would be compared with other unknowns than they are named after; a first
            column, by default that of the times, with the name of an unknown.
        """
        # Only a clock that was assumed: one that is named with times= is meant.
        if data.clock in problem.state_names:
            raise InputError(
                f'the first column, "{data.clock}", has the name of an unknown; it would be taken '
                "for the times",
                expected="times first",
                remedy='times="..." with the name of the column of times',
            )
        if callable(self.observe) or (self.observe is None and not problem.state_names):
            return self
        # Numbers of unknowns in the order of the columns; derivatives of a selection are known.
        chosen = paired_unknowns(problem, self.observe, data.names)
        return replace(self, observe=chosen, observe_u=None, observe_p=None)
