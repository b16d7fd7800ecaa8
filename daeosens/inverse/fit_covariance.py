"""Noise levels, degrees of freedom and covariance of a fit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from petsc4py import PETSc

from daeosens.costs.objective import Objective
from daeosens.errors import DaeosensError, UnsupportedError
from daeosens.functional.joint import Joint
from daeosens.functional.parameters import labels
from daeosens.functional.reduced import Reduced
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.inverse.likelihood.noise import Noise
from daeosens.inverse.likelihood.noise_levels import EstimatedNoise
from daeosens.inverse.uncertainty.covariance import Covariance, covariance_from_hessian
from daeosens.inverse.uncertainty.hessian_at_estimate import (
    HessianKind,
    curvature,
    on_bound,
)
from daeosens.petsc.vectors import Array, gather


def estimated_uncertainty(
    functional: Joint | EstimatedNoise,
    priors: Sequence[Objective | None],
    x: PETSc.Vec,
    hessian: HessianKind,
    data: Measurements,
    noise: Noise,
) -> tuple[Array, float, Covariance | DaeosensError]:
    """Return the noise levels, the degrees of freedom and the covariance, or why there is none.

    An estimated level is corrected for the parameters that were fitted to the same data:
    sigma^2 N / (N - k), with k = tr(C H_misfit) where there are priors (then the covariance C is
    itself the one for the corrected level).
    """
    known = not isinstance(functional, EstimatedNoise)
    sigma: Array = np.asarray(noise.sigma, float) if known else functional.column_levels(x)
    sigma = np.broadcast_to(sigma, data.values.shape[-max(1, sigma.ndim) :])
    held = on_bound(functional, x)
    count, size = data.count, x.getSize() - len(held)
    names, scales = labels(functional, x.getSize())
    try:
        if not known and functional.fits_exactly(x):
            raise UnsupportedError(  # noqa: TRY301
                "no covariance: the model meets the data exactly, no noise is left to estimate",
                expected="data with noise",
                remedy="a given noise level, Normal(sigma)",
            )
        # With the noise levels at their likeliest, the Hessian of L is a Schur complement, so
        # that its inverse allows for them.
        matrix = curvature(functional, x, hessian)
        gradient = functional.gradient(x)
        slope = gather(gradient)
        gradient.destroy()
        covariance = covariance_from_hessian(
            matrix, gather(x), names, scales, hessian=hessian, held=held, gradient=slope
        )
        by_prior, slope_of_prior = np.zeros_like(matrix), np.zeros_like(slope)
        for experiment, prior in zip(functional.experiments, priors, strict=True):
            if prior is not None:
                # The misfit and the prior of L are scaled differently below, so the Hessian of
                # the prior is needed by itself.
                alone = Reduced(experiment.problem, prior, experiment.stepping, experiment.control)
                by_prior = by_prior + curvature(alone, x, hessian)
                gradient = alone.gradient(x)
                slope_of_prior = slope_of_prior + gather(gradient)
                gradient.destroy()
        # k_eff = tr(C H_misfit) = k - tr(C H_prior): a parameter that its prior determines takes
        # no degree of freedom from the data.
        effective = size - float(np.trace(covariance.scaled @ by_prior))
        degrees = count - effective
        if known:
            return sigma, degrees, covariance
        # sigma^2 grows by N / (N - k): the curvature of the misfit falls by as much, that of the
        # priors stays.
        factor = count / degrees
        covariance = covariance_from_hessian(
            (matrix - by_prior) / factor + by_prior,
            gather(x),
            names,
            scales,
            hessian=hessian,
            degrees_of_freedom=degrees,
            held=held,
            gradient=(slope - slope_of_prior) / factor + slope_of_prior,
        )
        return sigma * math.sqrt(factor), degrees, covariance
    except UnsupportedError as error:
        # Without a covariance every parameter counts as fitted.
        degrees = count - size
        factor = 1.0 if known else count / max(degrees, 1)
        return sigma * math.sqrt(factor), float(degrees), error
