"""Where the search of a fit begins, and the minimum that it ends at, on every rank the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.functional.functional import Functional
from daeosens.functional.joint import Joint
from daeosens.inverse.likelihood.likelihood import Likelihood
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.inverse.likelihood.noise_levels import EstimatedNoise
from daeosens.inverse.search.final_newton_step import finished, within_errors
from daeosens.inverse.search.multistart import Multistart
from daeosens.inverse.search.plateau import LOWER, off_plateau
from daeosens.inverse.search.start_points import starting_points
from daeosens.optimize.interruption import INTERRUPTED, interruptible
from daeosens.optimize.result import Result
from daeosens.optimize.stopping import STUCK
from daeosens.petsc.vectors import Array, gather
from daeosens.problem.problem import Problem

MOST_WINDOWS = 100
"""Windows of an experiment by default; more only take time, as each begins beside its curve."""


def starts_of(likelihood: Likelihood, starts: int, seed: int) -> Array:
    """Return where several attempts begin [starts, k]."""
    # The first start is the usual one, so that more starts never end higher.
    points = starting_points(
        likelihood.functional,
        starts,
        names=likelihood.parameters.free_names,
        normal=_laws(likelihood),
        seed=seed,
    )
    limits = likelihood.search_bounds()
    return points if limits is None else np.clip(points, *limits)


def window_samples(problem: Problem, measured: Sequence[Measurements]) -> int | None:
    """Return how many samples a window has by default."""
    # each window of a delay equation depends on all before it: only where it is asked for
    if problem.delays is not None:
        return None
    return max(5, *(-(-len(own.times) // MOST_WINDOWS) for own in measured))


def _laws(likelihood: Likelihood) -> dict[int, tuple[float, float]]:
    """Return the priors as (mean, sigma) in the optimiser's scale, for the spread of starts."""
    spread: dict[int, tuple[float, float]] = {}
    known = likelihood.parameters.free_names
    for experiment, laws in zip(likelihood.functional.experiments, likelihood.laws, strict=True):
        control: Any = experiment.control
        for law in laws:
            entry, mean, sigma = control.entry_of(law.name), law.mean, law.sigma
            if entry not in known:
                continue
            scale = likelihood.parameters.entries[entry].scale
            if scale == "log" and law.scale == "linear":
                if mean <= 0:
                    continue
                # The delta method to the other scale: only the spread of starts depends on it.
                mean, sigma = math.log(mean), sigma / mean
            elif scale == "linear" and law.scale == "log":
                mean, sigma = math.exp(mean), sigma * math.exp(mean)
            spread[known.index(entry)] = (mean, sigma)
    return spread


def minimum(
    ranks: MPI.Intracomm,
    functional: Joint | EstimatedNoise,
    x0: Array | None,
    attempts: Multistart | None,
    minimized: Callable[[Functional, Array | PETSc.Vec | None], Result],
) -> Result:
    """Return the minimum below x0 [k], by default the start: on every rank, or an error on all."""
    with interruptible(ranks, copies=True):
        # Also after a multistart: the best attempt is taken up where it ended, which takes one
        # iteration or none and gives the result its history.
        result = minimized(functional, x0)
        if attempts is not None and attempts.interrupted:
            result = replace(result, reason=INTERRUPTED[0], message=INTERRUPTED[1])
        goes_on = not result.interrupted
        # What has no gradient in a parameter may be stuck for that: lower ground ends it at once.
        if goes_on and result.reason in STUCK:
            result = off_plateau(functional, result, minimized)
            goes_on = not result.interrupted
        # The pole of the likelihood first, as it keeps minimisations from converging; then
        # plateaus, on which they converge too early.
        if goes_on and isinstance(functional, EstimatedNoise) and not result.converged:
            result = finished(functional, result, minimized)
        if goes_on and not result.interrupted:
            result = off_plateau(functional, result, minimized)
        if result.reason in STUCK:
            result = within_errors(functional, result)
    return _lowest_of_ranks(ranks, functional, result, minimized)


def _lowest_of_ranks(
    ranks: MPI.Intracomm,
    functional: Functional,
    result: Result,
    minimized: Callable[[Functional, Array | PETSc.Vec | None], Result],
) -> Result:
    """Return a result as low as the lowest of all ranks, from where that ended if need be.

    Copies of a problem may fail at trial points on some ranks only, which then end elsewhere.
    """
    if ranks.size == 1:
        return result
    ends = ranks.allgather((result.value, ranks.rank, gather(result.x), result.interrupted))
    value, rank, x, _ = min(ends, key=lambda end: end[:2])
    if any(end[3] for end in ends) or all(end[0] <= value + LOWER for end in ends):
        return result
    with interruptible(ranks, copies=True):
        if result.value <= value + LOWER:
            return result
        again = minimized(functional, x)
        # at the pole of a perfect fit values are rounding
        exact = isinstance(functional, EstimatedNoise) and functional.fits_exactly(again.x)
        if again.value > value + LOWER and not (again.interrupted or exact):
            raise InputError(
                f"fit: the negative log-likelihood is {value:.7g} at the estimate of rank {rank}, "
                f"and from there no less than {again.value:.7g} on rank {ranks.rank}",
                expected="the same model on every rank of the communicator",
            )
        return replace(
            again,
            evaluations=result.evaluations + again.evaluations,
            failed_solves=result.failed_solves + again.failed_solves,
            seconds=result.seconds + again.seconds,
        )
