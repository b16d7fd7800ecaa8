"""Experiments as windows see them, with functions through what was measured of each unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.costs.least_squares import LeastSquares
from daeosens.costs.observation import paired_unknowns
from daeosens.functional.reduced import Reduced
from daeosens.inverse.bilevel.interpolants import FEWEST
from daeosens.inverse.bilevel.samples import curve, positive_columns
from daeosens.inverse.bilevel.shooting import Shot
from daeosens.inverse.likelihood.likelihood import Likelihood
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.inverse.likelihood.noise import Noise, Observation, is_estimated
from daeosens.petsc.vectors import Array, gather


def shots_of(
    runs: Sequence[Reduced],
    measured: Sequence[Measurements],
    likelihood: Likelihood,
    observation: Observation,
    noise: Noise,
) -> tuple[list[Shot], list[list[Callable[..., Any] | None]]]:
    """Return experiments for windows, and what was measured of each unknown as functions."""
    shots: list[Shot] = []
    guesses: list[list[Callable[..., Any] | None]] = []
    above = positive_columns(measured)
    for run, data, misfit, prior in zip(
        runs, measured, likelihood.misfits, likelihood.priors, strict=True
    ):
        n = run.problem.size
        spread = np.array([_spread(data, j) for j in range(len(data.names))])
        unequal = is_estimated(noise) and noise.each_column
        level: npt.ArrayLike = 1.0 if is_estimated(noise) else noise.sigma
        level = spread if unequal else level
        levels = np.broadcast_to(np.asarray(level, dtype=float), data.values.shape[-1:])
        u0 = run.problem.admit_state(run.control.unpack(run.problem, run.start())[0])
        sizes = np.maximum(np.abs(gather(u0)), 1e-3 * float(spread.max()))
        # an unknown that was not measured may jump between windows as the noisiest column does,
        # relatively
        own_levels = sizes * float(np.max(levels / spread))
        psi: list[Callable[..., Any] | None] = [None] * n
        positive = np.zeros(n, dtype=bool)
        if not callable(observation.observe) and misfit.scale == "linear":
            unknowns = paired_unknowns(run.problem, observation.observe, data.names)
            for j, unknown in enumerate(unknowns.tolist()):
                seen = data.observed[:, j]
                times, values = data.times[seen], data.values[seen, j]
                positive[unknown] = above[j]
                sizes[unknown], own_levels[unknown] = spread[j], levels[j]
                if len(np.unique(times)) >= FEWEST["cubic"]:
                    psi[unknown] = curve(times, values, "cubic", positive=bool(above[j]))
        weighed: LeastSquares = replace(misfit, sigma=np.array(levels))
        least = 0.0 if is_estimated(noise) else float(np.min(levels / spread))
        shots.append(Shot(run, weighed, prior, sizes, own_levels, positive, least))
        guesses.append(psi)
    return shots, guesses


def variance_of_data(shot: Shot) -> float:
    """Return half the sum of squares that constants leave, in units of the noise levels."""
    misfit: Any = shot.misfit
    data: Array = misfit.scaled_data
    seen = np.isfinite(data)
    # of a column of which nothing was measured there is no mean
    means = np.sum(data, axis=0, where=seen) / np.maximum(seen.sum(axis=0), 1)
    return 0.5 * float(np.sum(((data - means) / misfit.sigma) ** 2, where=seen))


def _spread(data: Measurements, column: int) -> float:
    """Return the standard deviation of a column, or its size if that is zero."""
    values = data.values[data.observed[:, column], column]
    size = float(np.abs(values).max())
    spread = float(np.std(values))
    return spread if spread > 1e-12 * size else (size or 1.0)


def completed(
    shot: Shot, psi: Sequence[Callable[..., Any] | None], x: Array
) -> Callable[[Array], Array]:
    """Return a guess of states [w, n] at times: measurements, else the run at x."""
    unseen = [k for k, column in enumerate(psi) if column is None]

    def guess(times: Array) -> Array:
        states = np.zeros((len(times), len(psi)))
        for k, column in enumerate(psi):
            if column is not None:
                states[:, k] = column(times)
        if unseen and len(times):
            run = shot.run.trajectory(x)
            rows = [run.index(float(time)) for time in times]
            states[:, unseen] = np.array([gather(run.stored[row]) for row in rows])[:, unseen]
        return states

    return guess
