"""What a fit says at its estimate: noise levels, covariance, residuals, errors of the steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from mpi4py import MPI

from daeosens.derivatives.residual_jacobian import residual
from daeosens.errors import UnsupportedError
from daeosens.functional.joint import Joint
from daeosens.inverse.bilevel.start import Preparation
from daeosens.inverse.fit_covariance import estimated_uncertainty
from daeosens.inverse.fit_discretization import fit_discretization
from daeosens.inverse.fit_noise import warn_of_unequal_noise
from daeosens.inverse.fit_result import UNLIKELY, Fit
from daeosens.inverse.identifiability import INDEFINITE
from daeosens.inverse.likelihood.likelihood import Likelihood
from daeosens.inverse.likelihood.measurements import Measurements, spread
from daeosens.inverse.likelihood.noise import Noise, Observation
from daeosens.inverse.likelihood.noise_levels import EstimatedNoise
from daeosens.inverse.search.multistart import Multistart
from daeosens.inverse.uncertainty.hessian_at_estimate import HessianKind
from daeosens.optimize.result import Result
from daeosens.petsc.vectors import gather
from daeosens.timestepping.method_choice import HELD, held_by_stability


def concluded(
    ranks: MPI.Intracomm,
    table: Measurements,
    model: Noise,
    likelihood: Likelihood,
    observation: Observation,
    hessian: HessianKind,
    result: Result,
    attempts: Multistart | None,
    preparation: Preparation | None,
) -> Fit:
    """Return noise levels, covariance and residuals at the estimate, with what led there."""
    functional = likelihood.functional
    result = _told_of_stiffness(functional, result)
    sigma, degrees, uncertainty = estimated_uncertainty(
        functional, likelihood.priors, result.x, hessian, table, model
    )
    # N / (N - k), by which the covariance was multiplied: the functional still has the likeliest
    # level.
    share = table.count / degrees if isinstance(functional, EstimatedNoise) else 1.0
    rows = [
        gather(residual(experiment.trajectory(result.x), misfit))
        for experiment, misfit in zip(functional.experiments, likelihood.misfits, strict=True)
    ]
    # The residual of a cost is model - data; a fit shows data - model.
    residuals = -spread(np.concatenate(rows), table.observed) / sigma
    if isinstance(functional, EstimatedNoise) and not model.each_column:
        sizes = np.sqrt(np.nanmean(table.values**2, axis=0))
        sizes = np.ones_like(sizes) if model.scale == "log" else sizes
        warn_of_unequal_noise(table.names, residuals, float(np.max(sigma)), sizes, ranks)
    fitted = Fit(
        table,
        model,
        likelihood.parameters,
        functional,
        observation,
        result,
        attempts,
        sigma,
        degrees,
        residuals,
        uncertainty,
        fit_discretization(functional, result.x, uncertainty, share, ranks),
        preparation,
    )
    return _told_of_misfit(fitted)


def _told_of_misfit(fitted: Fit) -> Fit:
    """Return the fit with what is likely wrong where it has no covariance and leaves a misfit."""
    reason = fitted.uncertainty
    if not (isinstance(reason, UnsupportedError) and INDEFINITE in reason.what):
        return fitted
    if not (fitted.converged and fitted.p_value < UNLIKELY):
        return fitted
    told = UnsupportedError(
        reason.what,
        expected="a minimum, and residuals of about sigma: there is more than noise in them, "
        f"p = {fitted.p_value:.2g}",
        remedy="a model of what the residuals show, or a larger sigma; another start (multistart) "
        "where one may leave less of them",
    )
    return replace(fitted, uncertainty=told)


def _told_of_stiffness(functional: Joint | EstimatedNoise, result: Result) -> Result:
    """Return the result with a note if it has not converged, among steps short for stability."""
    experiments = functional.experiments
    delayed = any(experiment.problem.delays is not None for experiment in experiments)
    if result.converged or result.interrupted or delayed:
        return result
    runs = [experiment.trajectory(result.x) for experiment in experiments]
    held = max(held_by_stability(run, HELD) for run in runs)
    if not held:
        return result
    note = f'{held} steps of a run are as short as stability asks; method="esdirk5" takes long ones'
    return replace(result, notes=(*result.notes, note))
