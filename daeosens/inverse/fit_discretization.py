"""What discretisation does to a fit, beside the statistical error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import DaeosensError, DiscretizationWarning, warn
from daeosens.functional.functional import functional_error
from daeosens.functional.joint import Joint
from daeosens.inverse.likelihood.noise_levels import EstimatedNoise
from daeosens.inverse.uncertainty.covariance import Covariance
from daeosens.petsc.vectors import Array, gather


@dataclass(frozen=True, eq=False)
class Discretization:
    """Estimated discretisation errors of a fit, from runs with divided steps at the estimate.

    Attributes
    ----------
    value : float
        Error of the minimum.
    shift : array [k]
        Estimate minus that of exact solutions, in the scale of the optimiser: -C (error of the
        gradient), C the covariance.
    standard_errors : array [k]
        The same, as multiples of the standard errors; zero for parameters on a bound.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Stepping, fit
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> fitted = fit(decay, data, rates, Stepping((0.0, 3.0), "cn", dt=0.1))
    >>> print(f"{fitted.discretization.largest:.3f}")
    0.007
    """

    value: float
    shift: Array
    standard_errors: Array

    @property
    def largest(self) -> float:
        """The largest shift, in standard errors."""
        return float(np.abs(self.standard_errors).max(initial=0.0))


def fit_discretization(
    functional: Joint | EstimatedNoise,
    x: PETSc.Vec,
    uncertainty: Covariance | DaeosensError,
    estimated_share: float,
    comm: Any = None,
) -> Discretization | DaeosensError:
    """Return what discretisation does to an estimate, or why that is not known.

    Warns where it is more than the statistical error.  ``estimated_share`` is what the covariance
    was multiplied with for a noise level that was estimated; ranks of ``comm`` share the estimate.
    """
    if isinstance(uncertainty, DaeosensError):
        return uncertainty
    try:
        error = functional_error(functional, x)
    except DaeosensError as failure:
        return failure
    # The gradient of exact solutions at x is minus the error, since the computed one vanishes:
    # one Newton step leads to their minimum, H^-1 = C over the share that was multiplied in.
    shift = -uncertainty.scaled @ gather(error.gradient) / estimated_share
    errors = np.sqrt(np.diag(uncertainty.scaled))
    # 0 / 0 on a bound, where nothing moves.
    parts = np.divide(shift, errors, out=np.zeros_like(shift), where=errors > 0.0)
    discretization = Discretization(error.value, shift, parts)
    if discretization.largest > 1.0:
        told = words(discretization, uncertainty.names)
        warn(told, DiscretizationWarning, functional.comm if comm is None else comm)
    return discretization


def words(discretization: Discretization, names: tuple[str, ...]) -> str:
    """Return what to tell of it.

    Examples
    --------
    >>> print(words(Discretization(0.0, np.array([1e-3]), np.array([0.02])), ("rate",)))
    discretisation moves rate by 0.02 standard errors
    """
    worst = names[int(np.argmax(np.abs(discretization.standard_errors)))]
    others = ", the others by less" if len(names) > 1 else ""
    told = f"discretisation moves {worst} by {discretization.largest:.2g} standard errors{others}"
    if discretization.largest <= 1.0:
        return told
    return f"{told}: more than the statistical error, so steps should be smaller (dt, rtol)"
