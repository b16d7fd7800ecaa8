"""The negative log-likelihood of measurements, of one experiment or several, after all checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, UnsupportedError, require
from daeosens.inverse.estimated_noise import EstimatedNoise, with_levels
from daeosens.inverse.experiments import Experiment, listed_experiments, tables
from daeosens.inverse.measurements import Measurements
from daeosens.inverse.noise import (
    Noise,
    Normal,
    Observation,
    in_scale,
    is_estimated,
    observed_in_scale,
)
from daeosens.joint import Joint
from daeosens.least_squares import LeastSquares
from daeosens.objective import Objective, Sum
from daeosens.parameters import Parameters
from daeosens.prior import Prior
from daeosens.problem import Problem
from daeosens.reduced import Reduced
from daeosens.stepping import Stepping


def likelihood(
    problem: Problem,
    data: Any,
    parameters: Parameters,
    stepping: Stepping | None = None,
    *,
    times: str | npt.ArrayLike | None = None,
    columns: Sequence[str] | None = None,
    observe: Any = None,
    observe_u: Callable[..., Any] | None = None,
    observe_p: Callable[..., Any] | None = None,
    noise: Noise | None = None,
    priors: Prior | Sequence[Prior] = (),
) -> Joint | EstimatedNoise:
    """Return what ``fit`` minimises: the negative log-likelihood with priors, up to a constant.

    For Taylor tests, minimisation by other means, or samplers.  Parameters and errors as for
    ``fit``.

    Examples
    --------
    >>> from daeosens import ODE, Normal, Parameter, Parameters, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0)}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0], "mass": [0.6, 0.36]}
    >>> stepping = Stepping((0.0, 2.0), "rk4", dt=0.1)
    >>> round(likelihood(decay, data, rates, stepping, noise=Normal(0.1)).value([0.5]), 6)
    0.005237
    """
    experiments = listed_experiments(data, stepping, times)
    return negative_log_likelihood(
        problem,
        experiments,
        *tables(experiments, columns),
        parameters,
        Observation(observe, observe_u, observe_p),
        Normal() if noise is None else noise,
        listed_priors(priors),
    )[0]


def negative_log_likelihood(
    problem: Problem,
    experiments: Sequence[Experiment],
    measured: Sequence[Measurements],
    data: Measurements,
    parameters: Parameters,
    observation: Observation,
    noise: Noise,
    priors: Sequence[Prior],
) -> tuple[Joint | EstimatedNoise, list[LeastSquares]]:
    """Return the negative log-likelihood and the misfits without sigma, after checking the input.

    ``measured`` are the data of each experiment, ``data`` all of them.
    """
    require(problem, Problem, "problem", "ODE(f, size, parameters)")
    require(noise, Noise, "noise", "Normal() or LogNormal()")
    if problem.comm.size > 1 or problem.style == "petsc":
        raise UnsupportedError(
            "fit for a PETSc-style problem",
            expected="a NumPy-style problem, ODE(..., size=n)",
            remedy="Reduced, minimize, covariance; for fields laplace",
        )
    if not isinstance(parameters, Parameters):
        raise InputError(
            f"parameters is {type(parameters).__name__}",
            expected="Parameters({...}, initial_state)",
        )
    in_scale(data, noise)  # what has no logarithm is named before the rest
    free = len(parameters.free_names)
    rows = sum(len(each.numbers(problem.parameter_names)) for each in priors)
    fewest = free + 1 if is_estimated(noise) else free - rows
    if data.count < fewest:
        raise InputError(
            f"{data.count} observations"
            + (f" and {rows} priors" if rows else "")
            + f" for {free} free parameters"
            + (" and a noise level" if is_estimated(noise) else ""),
            expected=f"at least {fewest} observations",
            remedy="more data, priors with a given noise level, or Parameter(..., free=False)",
        )
    _check_levels(data, noise)
    for each in priors:
        _check_start(each, problem, parameters)
    prior = sum_of_priors(priors)
    misfits: list[LeastSquares] = []
    for each in measured:
        seen = observed_in_scale(observation, noise, each)
        watched = (seen.observe, seen.observe_u, seen.observe_p)
        misfits.append(LeastSquares(each.times, in_scale(each, noise), 1.0, *watched))
    controls = [each.control(parameters, k) for k, each in enumerate(experiments)]
    steppings = [each.stepping for each in experiments]
    if is_estimated(noise):
        units = [
            Reduced(problem, misfit, stepping, control)
            for misfit, stepping, control in zip(misfits, steppings, controls, strict=True)
        ]
        functional = EstimatedNoise(
            units, prior=prior, each_column=noise.each_column, level_prior=noise.prior
        )
        return functional, misfits
    objectives = with_levels(misfits, _split(noise.sigma, measured, data), prior)
    parts = zip(objectives, steppings, controls, strict=True)
    return Joint([Reduced(problem, *each) for each in parts]), misfits


def _split(sigma: Any, measured: Sequence[Measurements], data: Measurements) -> list[Any]:
    """Return the noise levels of each experiment; those [K, q] go by rows of all the data."""
    if np.ndim(sigma) < 2 or len(measured) == 1:
        return [sigma] * len(measured)
    if np.shape(sigma) != data.values.shape:
        raise InputError(
            f"sigma has shape {np.shape(sigma)}",
            expected=f"a number, or shape {data.values.shape[1:]} or {data.values.shape}",
        )
    ends = np.cumsum([len(each.times) for each in measured])
    return np.split(np.asarray(sigma), ends[:-1])


def listed_priors(priors: Prior | Sequence[Prior]) -> list[Prior]:
    """Return the priors, one or several, as a list; ``InputError`` for what is none."""
    given: list[Any] = [priors] if isinstance(priors, Prior) else list(priors)
    for k, each in enumerate(given):
        if not isinstance(each, Prior):
            raise InputError(
                f"priors[{k}] is {type(each).__name__}", expected="Prior(mean, sigma, names)"
            )
    return given


def _check_levels(data: Measurements, noise: Noise) -> None:
    """Refuse a level of its own for a column with one observation, which may be met exactly."""
    if not (is_estimated(noise) and noise.each_column and noise.prior is None):
        return
    for name, count in zip(data.names, data.observed.sum(axis=0).tolist(), strict=True):
        if count < 2:
            raise InputError(
                f'column "{name}" has one observation, and a noise level of its own',
                expected="at least two",
                remedy="each_column=False, a given level, or prior=(mean, deviation) of log(sigma)",
            )


def _check_start(prior: Prior, problem: Problem, parameters: Parameters) -> None:
    """Refuse a start that a log-normal prior excludes."""
    names = prior.numbers(problem.parameter_names)
    for name in names if prior.scale == "log" else ():
        entry = parameters.entries.get(name)
        if entry is not None and entry.value <= 0:
            raise InputError(
                f'parameter "{name}": value = {entry.value:g} with a log-normal prior',
                expected="value > 0",
                remedy="a positive start",
            )


def sum_of_priors(priors: Sequence[Prior]) -> Objective | None:
    """Return all priors as one cost; None where there are none."""
    if not priors:
        return None
    return priors[0] if len(priors) == 1 else Sum(tuple((1.0, each) for each in priors))
