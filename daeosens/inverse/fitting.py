"""``fit``: an inverse problem in one call, from measurements to parameters with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.arrays import gather
from daeosens.errors import InputError, UnsupportedError, require
from daeosens.inverse.curvature import HessianKind
from daeosens.inverse.estimated_noise import EstimatedNoise
from daeosens.inverse.experiments import Experiment, listed_experiments, tables
from daeosens.inverse.fit_uncertainty import estimated_uncertainty
from daeosens.inverse.fitted import Fit
from daeosens.inverse.measurements import Measurements
from daeosens.inverse.multistart import multistart
from daeosens.inverse.nearly_exact import finished
from daeosens.inverse.noise import (
    Noise,
    Normal,
    Observation,
    in_scale,
    is_estimated,
    observed_in_scale,
)
from daeosens.inverse.start_points import starting_points
from daeosens.joint import Joint
from daeosens.least_squares import LeastSquares
from daeosens.objective import Objective, Sum
from daeosens.optimize import minimize
from daeosens.optimize.optimizers import NEWTON
from daeosens.options import Options
from daeosens.parameters import Parameters
from daeosens.prior import Prior
from daeosens.problem import Problem
from daeosens.ranks import agree, contents, install_abort_hook
from daeosens.reduced import Reduced
from daeosens.residuals import residual
from daeosens.stepping import Stepping


def fit(
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
    hessian: HessianKind = "exact",
    method: str | None = None,
    gradient_tolerance: float = 1e-6,
    max_iterations: int = 500,
    options: Options | None = None,
    starts: int = 1,
    seed: int = 0,
    comm: MPI.Intracomm | None = None,
    folder: str | Path | None = None,
) -> Fit:
    """Fit parameters to measurements: estimate, noise level, covariance.  Collective.

    Whatever is wrong with the input is reported before the first solve.

    Parameters
    ----------
    problem : Problem
        The dynamics; NumPy style.
    data : Table, mapping, path of a CSV file, array_like [K, q], or list of Experiment
        The measurements, NaN (in a file: an empty cell) where nothing was observed; see
        ``measurements.measurements``.  Or a list of ``Experiment``, which share the parameters,
        what is observed, and the noise levels.
    parameters : Parameters
        Starts, bounds, scales and the initial state.
    stepping : Stepping
        Method and step sizes; experiments have their own.
    times : str or array_like [K], optional
        Column of times (the first one by default), or the times.
    columns : sequence of str, optional
        Columns that were observed; all others by default.
    observe, observe_u, observe_p
        What was observed [q], as for ``LeastSquares``, in the data's unit; the whole state by
        default.
    noise : Normal or LogNormal, optional
        ``Normal("estimated")`` by default.
    priors : Prior or sequence of Prior
        Of the parameters.
    hessian : "exact" or "gauss_newton"
        For the covariance, and Newton methods; the latter needs no second derivatives.
    method : str, optional
        As for ``minimize``; "lmvm", or with bounds "bqnls".
    gradient_tolerance, max_iterations, options
        As for ``minimize``; the negative log-likelihood has a natural scale, so that 1e-6 is far
        below any standard error in well-scaled parameters.
    starts : int
        More than one: multistart over bounds and priors.
    seed : int
        Of the starts.
    comm : MPI.Intracomm, optional
        Ranks that share the starts; every rank of it must call, with the same measurements, priors
        and parameters.  By default the problem's.
    folder : path, optional
        Where finished starts are kept.

    Returns
    -------
    Fit

    Raises
    ------
    InputError
        Fewer observations than parameters, bad noise levels, data, names, starts, bounds.
        Measurements or anything else that differs between the ranks of ``comm``.
    UnsupportedError
        A second derivative is missing (try ``hessian="gauss_newton"``), or the problem is
        distributed.
    SolveError
        No start leads anywhere.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> found = fit(decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1))
    >>> print(found.estimate["rate"].__round__(3), found.covariance.error("rate").__round__(3))
    0.5 0.014
    """
    if comm is not None and comm.size > 1:
        install_abort_hook()  # what is wrong on one rank only would leave the others waiting
        agree(comm, "fit", starts=starts, seed=seed, method=method, hessian=hessian)
    model = Normal() if noise is None else noise
    experiments = listed_experiments(data, stepping, times)
    each, table = tables(experiments, columns)
    observation = Observation(observe, observe_u, observe_p)
    laws = _listed(priors)
    prior = _together(laws)
    if comm is not None and comm.size > 1:
        # in the order in which an error names them
        agree(
            comm,
            "fit",
            columns=table.names,
            times=table.times,
            data=table.values,
            observe=observe,
            noise=contents(model),
            priors=contents(laws),
            parameters=contents(parameters),
            experiments={
                k: {"fixed": one.fixed, "start": one.initial_state, "rows": len(own.times)}
                for k, (one, own) in enumerate(zip(experiments, each, strict=True))
            },
            stepping=contents([one.stepping for one in experiments]),
            breakpoints=getattr(problem, "breakpoints", ()),
            gradient_tolerance=gradient_tolerance,
            max_iterations=max_iterations,
            options=options or {},
        )
    functional, misfits = _functional(
        problem, experiments, each, table, parameters, observation, model, laws
    )
    if hessian not in ("exact", "gauss_newton"):
        raise InputError(f"hessian = {hessian!r}", expected='"exact" or "gauss_newton"')
    if hessian == "exact":
        functional.check_second_order()
    chosen = method or ("lmvm" if functional.bounds() is None else "bqnls")
    # other methods refuse to be told of a Hessian that they do not use
    newton: HessianKind = hessian if chosen in NEWTON else "exact"
    attempts, x0 = None, None
    if starts != 1:
        points = starting_points(
            functional,
            starts,
            names=parameters.free_names,
            normal=_laws(problem, parameters, laws),
            seed=seed,
        )
        attempts = multistart(
            lambda _comm: functional,
            points,
            comm=problem.comm.tompi4py() if comm is None else comm,
            folder=folder,
            method=chosen,
            hessian=newton,
            gradient_tolerance=gradient_tolerance,
            max_iterations=max_iterations,
            options=options,
        )
        x0 = attempts.best.x
    minimized = partial(
        minimize,
        method=chosen,
        hessian=newton,
        gradient_tolerance=gradient_tolerance,
        max_iterations=max_iterations,
        options=options,
    )
    result = minimized(functional, x0)
    if isinstance(functional, EstimatedNoise) and not result.converged:
        result = finished(functional, result, minimized)
    sigma, degrees, uncertainty = estimated_uncertainty(
        functional, prior, result.x, hessian, table, model
    )
    rows = [
        gather(residual(one.trajectory(result.x), misfit))
        for one, misfit in zip(functional.experiments, misfits, strict=True)
    ]
    return Fit(
        table,
        model,
        parameters,
        functional,
        observation,
        result,
        attempts,
        sigma,
        degrees,
        -table.spread(np.concatenate(rows)) / sigma,
        uncertainty,
    )


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
    return _functional(
        problem,
        experiments,
        *tables(experiments, columns),
        parameters,
        Observation(observe, observe_u, observe_p),
        Normal() if noise is None else noise,
        _listed(priors),
    )[0]


def _functional(
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
    rows = sum(np.size(each.mean) for each in priors)
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
    prior = _together(priors)
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
    objectives: list[Any] = [
        LeastSquares(each.times, each.data, sigma, each.observe, each.observe_u, each.observe_p)
        for each, sigma in zip(misfits, _split(noise.sigma, measured, data), strict=True)
    ]
    if prior is not None:
        objectives[0] = objectives[0] + prior
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


def _listed(priors: Prior | Sequence[Prior]) -> list[Prior]:
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


def _together(priors: Sequence[Prior]) -> Objective | None:
    if not priors:
        return None
    return priors[0] if len(priors) == 1 else Sum(tuple((1.0, each) for each in priors))


def _laws(
    problem: Problem, parameters: Parameters, priors: Sequence[Prior]
) -> dict[int, tuple[float, float]]:
    """Return the priors as (mean, sigma) in the optimiser's scale, for the spread of starts."""
    laws: dict[int, tuple[float, float]] = {}
    known = parameters.free_names
    for prior in priors:
        names = prior.numbers(problem.parameter_names)
        means, sigmas = (
            np.broadcast_to(np.ravel(np.asarray(each, dtype=float)), (len(names),))
            for each in (prior.mean, prior.sigma)
        )
        for name, mean, sigma in zip(names, means.tolist(), sigmas.tolist(), strict=True):
            if name not in known:
                continue
            scale = parameters.entries[name].scale
            if scale == "log" and prior.scale == "linear":
                if mean <= 0:
                    continue
                mean, sigma = math.log(mean), sigma / mean  # noqa: PLW2901
            elif scale == "linear" and prior.scale == "log":
                mean, sigma = math.exp(mean), sigma * math.exp(mean)  # noqa: PLW2901
            laws[known.index(name)] = (mean, sigma)
    return laws
