"""``fit``: an inverse problem in one call, from measurements to parameters with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.costs.prior import Prior
from daeosens.errors import InputError, SolveError, is_one_of, require, whole_number
from daeosens.functional.parameters import Parameters
from daeosens.inverse.bilevel.start import prepared
from daeosens.inverse.fit_conclusion import concluded
from daeosens.inverse.fit_result import Fit
from daeosens.inverse.fit_search import minimum, starts_of, window_samples
from daeosens.inverse.likelihood.experiments import listed_experiments, observed_side, tables
from daeosens.inverse.likelihood.likelihood import (
    Likelihood,
    listed_priors,
    negative_log_likelihood,
)
from daeosens.inverse.likelihood.noise import Noise, Normal, Observation, in_order, is_estimated
from daeosens.inverse.search.multistart import multistart
from daeosens.inverse.search.start_points import MOST_STARTS
from daeosens.inverse.uncertainty.hessian_at_estimate import HessianKind
from daeosens.io.files import admit_path
from daeosens.optimize import minimize
from daeosens.optimize.methods import NEWTON, first_order_method
from daeosens.optimize.result import Progress
from daeosens.petsc.agreement import on_every_rank
from daeosens.petsc.options import Options
from daeosens.petsc.ranks import admit_comm, agree, contents
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping

FEW = 100
"""Free parameters up to which Gauss-Newton is the default.

The counts behind it are in the documentation of uncertainty, "Which method".
"""

BESIDE = 1e-7
"""Of half chi-square: less in an iteration, next to where windows have come to, is nothing."""


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
    side: Literal["before", "after"] | None = None,
    doses: Any = None,
    noise: Noise | None = None,
    priors: Prior | Sequence[Prior] = (),
    hessian: HessianKind = "exact",
    method: str | None = None,
    gradient_tolerance: float = 1e-6,
    max_iterations: int = 500,
    options: Options | None = None,
    start: Literal["given", "bilevel"] = "given",
    windows: int | None = None,
    starts: int = 1,
    seed: int = 0,
    comm: MPI.Intracomm | None = None,
    folder: str | Path | None = None,
    progress: bool | Progress | None = None,
) -> Fit:
    """Fit parameters to measurements: estimate, noise level, covariance.  Collective.

    Whatever is wrong with the input is reported before the first solve.

    Parameters
    ----------
    problem : Problem
        The dynamics; NumPy style.
    data : Table, mapping, path of a CSV file, array_like [K, q], or list of Experiment
        The measurements, NaN (in a file: an empty cell) where nothing was observed: columns
        by name, times first, or an array beside ``times``.  Or a list of ``Experiment``, which
        share the parameters, what is observed, and the noise levels.
    parameters : Parameters
        Starts, bounds, scales and the initial state.
    stepping : Stepping
        Method and step sizes; of experiments those without their own.
    times : str or array_like [K], optional
        Column of times (the first one by default, refused where another one has the name of a
        time), or the times.
    columns : sequence of str, optional
        Columns that were observed; all others by default.
    observe, observe_u, observe_p
        What was observed [q], as for ``LeastSquares``, in the data's unit; the whole state by
        default.  Columns with the names of unknowns go by these, others by position.
    side : "before" or "after", optional
        Whether measurements at the time of an event saw the state before it or after; with
        ``doses`` "before" by default, as for troughs.
    doses : Doses or table, optional
        What is given to the system along the run, as for ``with_doses``; experiments have their
        own.
    noise : Normal or LogNormal, optional
        ``Normal("estimated")`` by default: one level for all columns, which must share a unit; a
        ``NoiseWarning`` where their residuals say otherwise.
    priors : Prior or sequence of Prior
        Of the parameters.
    hessian : "exact" or "gauss_newton"
        For the covariance, and Newton methods; the latter needs no second derivatives.
    method : str, optional
        As for ``minimize``.  By default Gauss-Newton in a trust region ("bntr" with the matrix
        R^T R of the weighted residuals) for up to 100 free parameters, which takes half the runs of
        L-BFGS or less; for more "lmvm", or with bounds "bqnls".
    gradient_tolerance, max_iterations, options
        As for ``minimize``; the negative log-likelihood has a natural scale, so that 1e-6 is far
        below any standard error in well-scaled parameters.
    start : "given" or "bilevel"
        From the starts in ``parameters``; or, for a traced model all of whose unknowns were
        measured, from ``inverse.bilevel``, which hardly needs any, and then by windows.
    windows : int, optional
        First fit the equations on windows of so many samples, each of which begins at a state of
        its own, then with ever smaller jumps between them (multiple shooting); by default with
        ``start="bilevel"`` 5, or as many as make a hundred windows of an experiment, but for delay
        equations.  Those of delay equations begin at other delays too.
    starts : int
        More than one: multistart over bounds and priors, of windows too where these are asked for,
        until a start explains the data; with ``start="bilevel"`` starts of the nonlinear
        parameters, at least eight, of delay equations sixteen.
    seed : int
        Of the starts.
    comm : MPI.Intracomm, optional
        Ranks that share the starts; every rank of it must call, with the same measurements, priors
        and parameters.  By default the problem's.
    folder : path, optional
        Where finished starts are kept.
    progress : bool or callable, optional
        As for ``minimize``: by default one line on stderr, if that is a terminal; False: nothing.

    Returns
    -------
    Fit
        After Ctrl-C with the best point so far: ``found.result.interrupted``.

    Raises
    ------
    InputError
        Fewer observations than parameters, bad noise levels, data, names, starts, bounds.
        Measurements or anything else that differs between the ranks of ``comm``.
    UnsupportedError
        A second derivative is missing (try ``hessian="gauss_newton"``), or the problem is
        distributed.
    SolveError
        No start leads anywhere, or the model fails at the estimate, of one rank of ``comm`` too:
        then on all of them.  What came of several starts is its ``starts``.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> fitted = fit(decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1))
    >>> print(fitted.estimate["rate"].__round__(3), fitted.covariance.error("rate").__round__(3))
    0.5 0.014
    """
    _check_arguments(method, start, folder)
    comm = None if comm is None else admit_comm(comm)
    starts = whole_number(starts, "starts", least=1, most=MOST_STARTS)
    seed = whole_number(seed, "seed")
    if windows is not None:
        windows = whole_number(windows, "windows", least=2, most=MOST_STARTS)
    if comm is not None and comm.size > 1:
        agree(comm, "fit", starts=starts, seed=seed, method=method, hessian=hessian)
    require(problem, Problem, "problem", "ODE(f, size, parameters)")
    experiments = listed_experiments(data, stepping, times, doses)
    measured, table = tables(experiments, columns)
    model = in_order(Normal() if noise is None else noise, table)
    side = observed_side(side, experiments)
    observation = Observation(observe, observe_u, observe_p, side).of(problem, table)
    laws = listed_priors(priors)
    if comm is not None and comm.size > 1:
        # in the order in which an error names them
        agree(
            comm,
            "fit",
            columns=table.names,
            times=table.times,
            data=table.values,
            observe=observe,
            side=side,
            noise=contents(model),
            priors=contents(laws),
            parameters=contents(parameters),
            experiments={
                k: {
                    "parameters": contents(experiment.parameters),
                    "start": experiment.initial_state,
                    "doses": experiment.doses and contents(experiment.doses.rows),
                    "bioavailability": experiment.doses and experiment.doses.bioavailability,
                    "lag": experiment.doses and experiment.doses.lag,
                    "rows": len(own.times),
                }
                for k, (experiment, own) in enumerate(zip(experiments, measured, strict=True))
            },
            stepping=experiments[0].stepping
            if len(experiments) == 1
            else contents([experiment.stepping for experiment in experiments]),
            breakpoints=getattr(problem, "breakpoints", ()),
            gradient_tolerance=gradient_tolerance,
            max_iterations=max_iterations,
            options=options or {},
        )
    if not is_one_of(hessian, "exact", "gauss_newton"):
        raise InputError(f"hessian = {hessian!r}", expected='"exact" or "gauss_newton"')
    ranks = problem.comm.tompi4py() if comm is None else comm

    def described() -> Likelihood:
        likelihood = negative_log_likelihood(
            problem, experiments, measured, table, parameters, observation, model, laws
        )
        if hessian == "exact":
            likelihood.functional.check_second_order()
        return likelihood

    # evaluates the equations at the start, by each rank's own copy of the problem
    likelihood = on_every_rank(ranks, described)
    functional = likelihood.functional
    # Gauss-Newton takes a tangent for each parameter; beyond FEW one adjoint a step is cheaper.
    few = len(likelihood.parameters.free_names) <= FEW
    # bounds of the search alone: an estimate is within, and profiles need none
    limits = likelihood.search_bounds()
    bounded = functional.bounds() is not None or limits is not None
    chosen = method or ("bntr" if few else first_order_method(bounded=bounded))
    newton: HessianKind = "gauss_newton" if method is None and few else hessian
    # other methods refuse to be told of a Hessian that they do not use
    newton = newton if chosen in NEWTON else "exact"
    settings: dict[str, Any] = {
        "method": chosen,
        "hessian": newton,
        "gradient_tolerance": gradient_tolerance,
        "max_iterations": max_iterations,
        "options": options,
    }
    attempts, x0, preparation = None, None, None
    points = starts_of(likelihood, starts, seed) if start == "given" and starts != 1 else None
    if start != "given" or windows is not None:
        preparation = prepared(
            problem,
            experiments,
            measured,
            likelihood,
            observation,
            model,
            start=start,
            windows=window_samples(problem, measured) if windows is None else windows,
            starts=starts,
            seed=seed,
            columns=columns,
            comm=comm,
            points=points,
        )
        x0 = preparation.x
        # beside its minimum what is left is rounding, and steps that change
        settings["value_tolerance"] = 0.0 if is_estimated(model) else BESIDE
    elif points is not None:
        attempts = multistart(
            lambda _comm: functional,
            points,
            comm=ranks,
            folder=folder,
            bounds=limits,
            **settings,
        )
    try:
        if attempts is not None:
            x0 = attempts.best.x
            if attempts.interrupted:
                settings["max_iterations"] = 0  # the best attempt as it is
        minimized = partial(minimize, progress=progress, bounds=limits, **settings)
        begin = x0 if limits is None or x0 is None else np.clip(x0, *limits)
        result = minimum(ranks, functional, begin, attempts, minimized)
        conclusion = partial(concluded, ranks, table, model, likelihood, observation, hessian)
        return on_every_rank(ranks, lambda: conclusion(result, attempts, preparation))
    except SolveError as error:
        error.starts = attempts
        raise


def _check_arguments(method: object, start: object, folder: object) -> None:
    """Refuse, before anything else, what arguments of ``fit`` cannot be."""
    if method is not None:
        require(method, str, "method", 'method="bntr"')
    if not is_one_of(start, "given", "bilevel"):
        raise InputError(f"start = {start!r}", expected='"given" or "bilevel"')
    if folder is not None:
        admit_path(folder, "folder")
