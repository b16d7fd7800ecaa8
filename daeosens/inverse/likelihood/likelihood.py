"""The negative log-likelihood of measurements, of one experiment or several, after all checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from daeosens.costs.least_squares import LeastSquares
from daeosens.costs.missing_data import refuse_no_logarithm
from daeosens.costs.objective import Objective, Sum
from daeosens.costs.prior import Prior
from daeosens.errors import InputError, UnsupportedError, is_iterable, nearest, require
from daeosens.functional.joint import Joint
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.functional.reduced import Reduced
from daeosens.inverse.likelihood.delays_in_reach import delays_in_reach
from daeosens.inverse.likelihood.experiments import (
    Experiment,
    controls,
    listed_experiments,
    observed_side,
    tables,
    treatments,
)
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.inverse.likelihood.noise import Noise, Normal, Observation, in_order, is_estimated
from daeosens.inverse.likelihood.noise_levels import EstimatedNoise, with_levels
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping


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
    side: Literal["before", "after"] | None = None,
    doses: Any = None,
    noise: Noise | None = None,
    priors: Prior | Sequence[Prior] = (),
) -> Joint | EstimatedNoise:
    """Return what ``fit`` minimises: the negative log-likelihood with priors, up to a constant.

    For Taylor tests, minimisation by other means, or samplers.  Parameters and errors as for
    ``fit``.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Stepping
    >>> from daeosens.inverse import Normal
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0)}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0], "mass": [0.6, 0.36]}
    >>> stepping = Stepping((0.0, 2.0), "rk4", dt=0.1)
    >>> round(likelihood(decay, data, rates, stepping, noise=Normal(0.1)).value([0.5]), 6)
    0.005237
    """
    observation = Observation(observe, observe_u, observe_p, side)
    return modelled(
        problem, data, parameters, stepping, times, columns, observation, doses, noise, priors
    )[0].functional


class Law(NamedTuple):
    """What was known before of one parameter of an experiment."""

    name: str
    mean: float
    sigma: float
    scale: Literal["linear", "log"]


class Likelihood(NamedTuple):
    """The negative log-likelihood of experiments, and what it is made of.

    Attributes
    ----------
    functional : Joint or EstimatedNoise
    misfits : list of LeastSquares
        Of each experiment, without noise levels.
    parameters : Parameters
        All of them, those that belong to single experiments too.
    laws : list of list of Law
        Priors, each with the first experiment that has the parameter.
    priors : list of Objective or None
        The same as costs.
    limits : dict of str to Parameter
        Delays, with the bounds that a search keeps.
    """

    functional: Joint | EstimatedNoise
    misfits: list[LeastSquares]
    parameters: Parameters
    laws: list[list[Law]]
    priors: list[Objective | None]
    limits: dict[str, Parameter]

    def search_bounds(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
        """Return what bounds a search [k], [k]: those of the parameters, and of delays."""
        if not self.limits:
            return None
        entries = self.parameters.entries | self.limits
        free = [entries[name] for name in self.parameters.free_names]
        lower, upper = (
            np.array([entry.scaled(getattr(entry, side)) for entry in free])
            for side in ("lower", "upper")
        )
        return lower, upper


def modelled(
    problem: Problem,
    data: Any,
    parameters: Parameters,
    stepping: Stepping | None,
    times: str | npt.ArrayLike | None,
    columns: Sequence[str] | None,
    observation: Observation,
    doses: Any,
    noise: Noise | None,
    priors: Prior | Sequence[Prior],
) -> tuple[Likelihood, Measurements, Observation]:
    """Return what ``fit`` minimises, with all its data, and what is observed in their order."""
    require(problem, Problem, "problem", "ODE(f, size, parameters)")
    experiments = listed_experiments(data, stepping, times, doses)
    measured, table = tables(experiments, columns)
    side = observed_side(observation.side, experiments)
    observation = replace(observation, side=side).of(problem, table)
    law = in_order(Normal() if noise is None else noise, table)
    made = negative_log_likelihood(
        problem,
        experiments,
        measured,
        table,
        parameters,
        observation,
        law,
        listed_priors(priors),
    )
    return made, table, observation


def negative_log_likelihood(
    problem: Problem,
    experiments: Sequence[Experiment],
    measured: Sequence[Measurements],
    data: Measurements,
    parameters: Parameters,
    observation: Observation,
    noise: Noise,
    priors: Sequence[Prior],
) -> Likelihood:
    """Return the negative log-likelihood and what it is made of, after checking the input.

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
    if noise.scale == "log":  # what has no logarithm is named before the rest
        columns = [f'"{name}"' for name in data.names]
        refuse_no_logarithm(data.values, data.times, columns)
    treated = treatments(problem, experiments)
    whole, parts = controls(problem.parameter_names, parameters, experiments)
    limits: dict[str, Parameter] = {}
    if problem.delays is not None:
        begins = [experiment.stepping.t_span[0] for experiment in experiments]
        lasts = [float(np.max(table.times)) for table in measured]
        lengths = [last - begin for begin, last in zip(begins, lasts, strict=True)]
        limits = delays_in_reach(problem.delays, problem.parameter_names, parts, begins, lengths)
    laws = laws_of(problem, priors, parts)
    free = len(whole.free_names)
    rows = sum(len(law) for law in laws)
    # A given level lets priors stand in for data; an estimated one needs a residual that is left
    # over, or it would go to zero.
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
    for part, law in zip(parts, laws, strict=True):
        _check_starts(law, part)
    own_priors = [_objective(law) for law in laws]
    watched = (observation.observe, observation.observe_u, observation.observe_p)
    # With noise levels of 1: an estimated level weights them anew at each x.
    misfits = [
        LeastSquares(
            table.times, table.values, 1.0, *watched, side=observation.side, scale=noise.scale
        )
        for table in measured
    ]
    steppings = [experiment.stepping for experiment in experiments]
    if is_estimated(noise):
        units = [
            Reduced(*parts_of) for parts_of in zip(treated, misfits, steppings, parts, strict=True)
        ]
        functional: Joint | EstimatedNoise = EstimatedNoise(
            units, priors=own_priors, each_column=noise.each_column, level_prior=noise.prior
        )
    else:
        objectives = with_levels(misfits, _split(noise.sigma, measured), own_priors)
        # A given level is part of the data: no more than least squares.
        runs = zip(treated, objectives, steppings, parts, strict=True)
        functional = Joint([Reduced(*run) for run in runs])
    return Likelihood(functional, misfits, whole, laws, own_priors, limits)


def _split(sigma: Any, measured: Sequence[Measurements]) -> list[Any]:
    """Return the noise levels of each experiment; those [K, q] go by rows of all the data."""
    if np.ndim(sigma) < 2:
        return [sigma] * len(measured)
    # Levels [K, q] are in the order of all data, experiment after experiment.
    ends = np.cumsum([len(table.times) for table in measured])
    return np.split(np.asarray(sigma), ends[:-1])


def listed_priors(priors: Prior | Sequence[Prior]) -> list[Prior]:
    """Return the priors, one or several, as a list; ``InputError`` for what is none."""
    listed: list[Any] = list(priors) if is_iterable(priors) else [priors]
    for k, entry in enumerate(listed):
        if not isinstance(entry, Prior):
            raise InputError(
                f"priors[{k}] is {type(entry).__name__}", expected="Prior(mean, sigma, names)"
            )
    return listed


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


def _check_starts(laws: Sequence[Law], parameters: Parameters) -> None:
    """Refuse a start that a log-normal prior excludes."""
    for law in laws:
        entry = parameters.entries.get(parameters.entry_of(law.name))
        if law.scale == "log" and entry is not None and entry.value <= 0:
            raise InputError(
                f'parameter "{law.name}": value = {entry.value:g} with a log-normal prior',
                expected="value > 0",
                remedy="a positive start",
            )


def laws_of(
    problem: Problem, priors: Sequence[Prior], parts: Sequence[Parameters]
) -> list[list[Law]]:
    """Return the priors of each experiment's parameters; one that several share counts once.

    A prior of a parameter that experiments have of their own is that of each of them.

    Raises
    ------
    InputError
        A name that the problem does not have.
    """
    known = problem.parameter_names
    # "V (patient 2)" is V in the experiment of that name.
    names_of_own = {label: name for part in parts for name, label in (part.own or {}).items()}
    counted: set[tuple[int, str]] = set()
    laws: list[list[Law]] = []
    for part in parts:
        laws.append([])
        for number, prior in enumerate(priors):
            for named, mean, sigma in prior.laws(known):
                name = names_of_own.get(named, named)
                if name not in known:
                    raise InputError(
                        f'prior names parameter "{named}"',
                        expected=", ".join([*known, *names_of_own]),
                        remedy=nearest(named, [*known, *names_of_own]),
                    )
                entry = part.entry_of(name)
                # Of another experiment.
                if named in names_of_own and named != entry:
                    continue
                # The same unknown in several experiments has one prior: counted twice it would be
                # too narrow by the root of 2.
                if (number, entry) not in counted:
                    counted.add((number, entry))
                    laws[-1].append(Law(name, mean, sigma, prior.scale))
    return laws


def _objective(laws: Sequence[Law]) -> Objective | None:
    """Return priors as one cost; None where there are none."""
    terms: list[tuple[float, Objective]] = [
        (
            1.0,
            Prior(
                [law.mean for law in chosen],
                [law.sigma for law in chosen],
                [law.name for law in chosen],
                scale,
            ),
        )
        for scale in ("linear", "log")
        # At most two costs, one for each scale.
        if (chosen := [law for law in laws if law.scale == scale])
    ]
    if not terms:
        return None
    return terms[0][1] if len(terms) == 1 else Sum(tuple(terms))
