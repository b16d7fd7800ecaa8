"""Fits of data with hardly any noise, near which the likelihood of an unknown level has a pole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.functional.functional import Functional
from daeosens.functional.parameters import labels, own_sizes
from daeosens.inverse.likelihood.noise_levels import EstimatedNoise
from daeosens.inverse.uncertainty.hessian_at_estimate import curvature, on_bound
from daeosens.optimize import Result
from daeosens.optimize.stopping import STUCK
from daeosens.petsc.vectors import Array, gather, scatter

NOTE = "least squares came first: the likelihood has a pole at a perfect fit"

STEPS = 20
"""Gauss-Newton steps at most; each has to lower the likelihood."""

WITHIN = 1e-3
"""Standard errors from the minimum that do not matter."""


def finished(
    functional: EstimatedNoise, first: Result, minimized: Callable[[Functional, PETSc.Vec], Result]
) -> Result:
    """Go on with a minimisation of N log(sum of squares) that has not converged.  Collective.

    That is concave far from a perfect fit, has a pole there, and near it a slope that rounding
    hides from ``gradient_tolerance``.  So the sum of squares itself is minimised, with the noise
    levels of where it begins, then refined by Gauss-Newton steps, then the likelihood.

    Parameters
    ----------
    functional : EstimatedNoise
        L.
    first : Result
        What has not converged.
    minimized : callable
        (functional, x0 [k]) -> Result.

    Returns
    -------
    Result
        Converged also where a residual is zero to rounding, and ``within_errors``.
    """
    spent, notes = [first], first.notes
    if first.reason in STUCK:
        # Least squares with fixed levels have no pole.
        spent.append(minimized(functional.weighted(first.x), first.x))
        spent.append(minimized(functional, _refined(functional, spent[-1].x)))
        notes = (*spent[-1].notes, NOTE)
    last = spent[-1]
    if functional.fits_exactly(last.x):
        message = "residuals are at rounding: no noise can be estimated"
        last = replace(last, reason="CONVERGED_EXACT_FIT", message=message)
    elif not last.converged:
        last = within_errors(functional, last)
    return replace(
        last,
        evaluations=sum(result.evaluations for result in spent),
        failed_solves=sum(result.failed_solves for result in spent),
        restarts=sum(result.restarts for result in spent),
        hessian_products=sum(result.hessian_products for result in spent),
        seconds=sum(result.seconds for result in spent),
        notes=notes,
    )


def within_errors(functional: Functional, last: Result) -> Result:
    """Return the result, as converged where a search has hardly a step left to take.  Collective.

    That is a Gauss-Newton step shorter than ``WITHIN`` standard errors; where the way to a minimum
    was closed it is long.
    """
    if _step(functional, last.x)[1] > WITHIN**2:
        return last
    message = f"within {WITHIN:g} standard errors of the minimum: rounding hides what is left"
    return replace(last, reason="CONVERGED_STANDARD_ERRORS", message=message)


def _refined(functional: EstimatedNoise, x: PETSc.Vec) -> PETSc.Vec:
    """Return where Gauss-Newton steps from x [k] end that lower the likelihood, within bounds."""
    bounds = functional.bounds()
    value = functional.value(x)
    for _ in range(STEPS):
        # No level, no weights: the Hessian would be infinite.
        if functional.fits_exactly(x):
            break
        trial = x.copy()
        trial.axpy(1.0, scatter(_step(functional, x)[0], x.duplicate()))
        if bounds is not None:
            trial.pointwiseMax(trial, bounds[0])
            trial.pointwiseMin(trial, bounds[1])
        try:
            lower = functional.value(trial)
        except SolveError:
            break
        # Gauss-Newton close to the minimum; where a step does not help, rounding has been reached
        # or the way is too long.
        if not lower < value:
            break
        x, value = trial, lower
    return x


def _step(functional: Functional, x: PETSc.Vec) -> tuple[Array, float]:
    """Return the Gauss-Newton step [k] of what is not on a bound, and its square in the metric.

    In standard errors, that is.  Along combinations that data do not feel, where the matrix is
    singular, twice what a change by the own size would gain.
    """
    squares = functional.weighted(x) if isinstance(functional, EstimatedNoise) else functional
    names, _ = labels(functional, x.getSize())
    held = on_bound(functional, x)
    free = [k for k, name in enumerate(names) if name not in held]
    matrix = curvature(squares, x, "gauss_newton")[np.ix_(free, free)]
    slope = gather(functional.gradient(x))[free]
    step = np.zeros(x.getSize())
    # The least step where some combination is not determined.
    step[free] = -np.linalg.lstsq(matrix, slope, rcond=None)[0]
    # -g.s = g^T H^-1 g, with H the inverse covariance: the squared length of the step in standard
    # errors. In own sizes, so that units do not make a matrix singular.
    sizes = own_sizes(functional, x)[free]
    sizes[sizes == 0.0] = 1.0
    squared, axes = np.linalg.eigh(sizes[:, None] * matrix * sizes)
    gains = axes.T @ (sizes * slope)
    felt = squared > len(free) * np.finfo(float).eps * squared.max(initial=0.0)
    return step, float(np.sum(gains[felt] ** 2 / squared[felt]) + 2.0 * np.sum(abs(gains[~felt])))
