"""How well an estimate is known: covariance, correlation, intervals, and what cannot be told.

The estimate minimises J, a negative log-likelihood up to a constant (misfits over noise levels, and
priors).  Its covariance is the inverse Hessian of J there: the Laplace approximation, in the scale
of the optimiser (the logarithm for ``scale="log"``), from which the parameter's own unit follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc
from scipy.special import ndtri, stdtrit

from daeosens.errors import InputError, is_one_of, is_real, nearest, real_number
from daeosens.functional.functional import Functional, require_functional
from daeosens.functional.parameter import MOST_EXPONENT
from daeosens.functional.parameters import labels
from daeosens.inverse.identifiability import (
    TOLERANCE,
    Identifiability,
    Scale,
    identifiability,
    refuse_flat,
    symmetric,
)
from daeosens.inverse.uncertainty.hessian_at_estimate import (
    HessianKind,
    curvature,
    on_bound,
)
from daeosens.optimize.start import vector_like
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, as_float, finite_array, gather

_FAR = 0.1
"""Standard errors between the estimate and the minimum above which a summary mentions them."""


@dataclass(frozen=True, eq=False, repr=False)
class Intervals:
    """Confidence intervals in the parameters' own units; prints itself.

    Attributes
    ----------
    names : tuple of str [k]
    level : float
        Probability, 0.95 say.
    estimate, lower, upper : array [k]
        NaN ends where a parameter is on a bound.
    """

    names: tuple[str, ...]
    level: float
    estimate: Array
    lower: Array
    upper: Array

    def __getitem__(self, name: str) -> tuple[float, float]:
        """Return both ends of one parameter's interval."""
        i = _position(name, self.names)
        return float(self.lower[i]), float(self.upper[i])

    def __repr__(self) -> str:
        """Return a table."""
        width = max(9, *(len(name) for name in self.names))
        lines = [f"{'parameter':{width}s}   estimate   {100 * self.level:g} % interval"]
        for i, name in enumerate(self.names):
            lines.append(
                f"{name:{width}s} {self.estimate[i]:10.5g}   "
                + _interval_text(self.lower[i], self.upper[i])
            )
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False)
class Covariance:
    """Covariance of an estimate; prints itself.

    Parameters that are on a bound are held there: they have no covariance, and the others' is the
    one for that value of theirs.

    Attributes
    ----------
    names : tuple of str [k]
    scales : tuple of str [k]
        "linear", or "log" where the optimiser moves the logarithm.
    x : array [k]
        The estimate in the optimiser's scale.
    scaled : array [k, k]
        Covariance in the optimiser's scale; zero for parameters on a bound.
    on_bound : tuple of str
        Parameters on a bound.
    hessian : str
        "exact" or "gauss_newton".
    degrees_of_freedom : float
        Of the estimated noise level (Student's t); infinite if it is known (normal).
    distance : float
        Standard errors between x and the minimum of the quadratic model; NaN if not computed.
    identifiability : Identifiability
        Of the parameters that are not on a bound.

    Examples
    --------
    >>> from daeosens.inverse.uncertainty.covariance import covariance_from_hessian
    >>> covariance = covariance_from_hessian([[4.0]], [1.5], ["rate"])
    >>> covariance.error("rate"), covariance.intervals()["rate"]
    (0.5, (0.52..., 2.47...))
    """

    names: tuple[str, ...]
    scales: tuple[Scale, ...]
    x: Array
    scaled: Array
    on_bound: tuple[str, ...]
    hessian: HessianKind
    degrees_of_freedom: float
    distance: float
    identifiability: Identifiability

    @property
    def estimate(self) -> Array:
        """The estimate [k] in the parameters' own units."""
        return np.where(self._logs, np.exp(np.where(self._logs, self.x, 0.0)), self.x)

    @property
    def matrix(self) -> Array:
        """Covariance [k, k] in the parameters' own units, by the delta method."""
        # dp/dx = p for x = log p.
        slopes = np.where(self._logs, self.estimate, 1.0)
        return self.scaled * np.outer(slopes, slopes)

    @property
    def standard_errors(self) -> Array:
        """Standard errors [k] in the parameters' own units, by the delta method."""
        return np.sqrt(np.diag(self.matrix))

    @property
    def scaled_errors(self) -> Array:
        """Standard errors [k] in the optimiser's scale; relative ones for logarithms."""
        return np.sqrt(np.diag(self.scaled))

    @property
    def correlation(self) -> Array:
        """Correlation [k, k] in the optimiser's scale; NaN for parameters on a bound."""
        errors = self.scaled_errors
        with np.errstate(invalid="ignore", divide="ignore"):
            result = self.scaled / np.outer(errors, errors)
        known = errors > 0
        result[known, known] = 1.0
        return result

    def error(self, name: str) -> float:
        """Return the standard error of one parameter in its own unit."""
        return float(self.standard_errors[_position(name, self.names)])

    def quantile(self, level: float = 0.95) -> float:
        """Return how many standard errors an interval of this probability reaches to each side."""
        if not (is_real(level) and 0.0 < level < 1.0):
            raise InputError(f"level = {level!r}", expected="a probability between 0 and 1")
        level = float(level)
        half = 0.5 * (1.0 + level)
        degrees = self.degrees_of_freedom
        # An estimated level makes errors larger by chance as well: Student's t, whose quantiles
        # are wider.
        return float(ndtri(half) if math.isinf(degrees) else stdtrit(degrees, half))

    def intervals(self, level: float = 0.95) -> Intervals:
        """Return intervals: symmetric, or for log-scale parameters log-normal.

        Raises
        ------
        InputError
            A level that is no probability.
        """
        reach = self.quantile(level) * self.scaled_errors
        # Symmetric in the scale of the optimiser, so that logarithms give intervals that stay
        # positive.
        ends = [
            np.where(self._logs, np.exp(np.minimum(end, MOST_EXPONENT)), end)
            for end in (self.x - reach, self.x + reach)
        ]
        held = np.isin(self.names, self.on_bound)
        lower, upper = (np.where(held, math.nan, end) for end in ends)
        return Intervals(self.names, level, self.estimate, lower, upper)

    def __repr__(self) -> str:
        """Return a table with 95 % intervals, and what has to be known about it."""
        intervals = self.intervals()
        width = max(9, *(len(name) for name in self.names))
        lines = [f"{'parameter':{width}s}   estimate  std error   95 % interval"]
        for i, name in enumerate(self.names):
            start = f"{name:{width}s} {self.estimate[i]:10.5g}"
            if name in self.on_bound:
                lines.append(f"{start}          -   on its bound, held there")
                continue
            ends = _interval_text(intervals.lower[i], intervals.upper[i])
            note = "   (log)" if self.scales[i] == "log" else ""
            lines.append(f"{start} {self.standard_errors[i]:10.3g}   {ends}{note}")
        source = {"exact": "exact Hessian", "gauss_newton": "Gauss-Newton Hessian"}[self.hessian]
        degrees = self.degrees_of_freedom
        law = "normal" if math.isinf(degrees) else f"Student's t, {degrees:.4g} degrees of freedom"
        lines.append(f"{source}, {law}")
        if self.distance > _FAR:
            lines.append(f"NOT at a minimum: it lies {self.distance:.2g} standard errors away")
        return "\n".join(lines)

    @property
    def _logs(self) -> npt.NDArray[np.bool_]:
        return np.array([scale == "log" for scale in self.scales])


def covariance(
    functional: Functional,
    x: PETSc.Vec | npt.ArrayLike,
    *,
    hessian: HessianKind = "exact",
    variance: float = 1.0,
    degrees_of_freedom: float = math.inf,
    tolerance: float = TOLERANCE,
) -> Covariance:
    """Return the covariance of an estimate: the inverse Hessian of J there.  Collective.

    Parameters
    ----------
    functional : Functional
        J, a negative log-likelihood up to a constant, say ``Reduced`` with ``LeastSquares`` that
        knows its sigma.  Bounds are its own.
    x : Vec or array_like [k]
        Where it is least.
    hessian : "exact" or "gauss_newton"
        The latter needs first derivatives only; exact for models that are linear in x.
    variance : float
        Estimated variance of the noise where J was built with a noise level of 1:
        2 J / (observations - k).
    degrees_of_freedom : float
        Of that estimate: observations - k.
    tolerance : float
        As for ``identifiability``.

    Returns
    -------
    Covariance

    Raises
    ------
    UnsupportedError
        The Hessian is indefinite (x is no minimum), or J does not depend on some combination of
        parameters: both name the combination.
    InputError
        An x of another size; a variance or degrees of freedom that are not positive.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.36], sigma=0.1)
    >>> rates = Parameters({"rate": Parameter(0.5, lower=0.1, upper=2.0)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), rates)
    >>> from daeosens import minimize
    >>> estimate = covariance(functional, minimize(functional, method="bnls").x)
    >>> round(estimate.error("rate"), 4)
    0.1067
    """
    require_functional(functional)
    agree(
        functional.comm,
        "covariance",
        hessian=hessian,
        variance=variance,
        degrees_of_freedom=degrees_of_freedom,
        tolerance=tolerance,
    )
    variance = real_number(variance, "variance", least=0.0, inside=True)
    point = vector_like(x, functional.start(), "x")
    names, scales = labels(functional, point.getSize())
    # J with sigma = 1 is variance times the negative log-likelihood, and so are its derivatives.
    matrix = curvature(functional, point, hessian) / variance
    gradient = functional.gradient(point)
    slope = gather(gradient) / variance
    gradient.destroy()
    return covariance_from_hessian(
        matrix,
        gather(point),
        names,
        scales,
        hessian=hessian,
        degrees_of_freedom=degrees_of_freedom,
        held=on_bound(functional, point),
        gradient=slope,
        tolerance=tolerance,
    )


def covariance_from_hessian(
    matrix: npt.ArrayLike,
    x: npt.ArrayLike,
    names: Sequence[str],
    scales: Sequence[Scale] | None = None,
    *,
    hessian: HessianKind = "exact",
    degrees_of_freedom: float = math.inf,
    held: Sequence[str] = (),
    gradient: npt.ArrayLike | None = None,
    tolerance: float = TOLERANCE,
) -> Covariance:
    """Return the covariance for a Hessian [k, k] that is at hand; see ``covariance``.

    Examples
    --------
    >>> line = covariance_from_hessian([[4.0]], [0.0], ["rate"], ["log"])
    >>> float(line.estimate[0]), line.error("rate")
    (1.0, 0.5)
    >>> line.intervals()["rate"]
    (0.375..., 2.664...)
    """
    size = len(names)
    point = finite_array(x, "x", (size,))
    whole = symmetric(finite_array(matrix, "the Hessian", (size, size)))
    kinds: tuple[Scale, ...] = ("linear",) * size if scales is None else tuple(scales)
    if not (is_real(degrees_of_freedom) and as_float(degrees_of_freedom) > 0):
        raise InputError(
            f"degrees_of_freedom = {degrees_of_freedom!r}",
            expected="more observations than parameters",
        )
    # The conditional covariance: rows and columns of parameters on a bound are left out before
    # the inverse is taken.
    free = [i for i, name in enumerate(names) if name not in held]
    part = whole[np.ix_(free, free)]
    report = identifiability(
        part, tuple(names[i] for i in free), tuple(kinds[i] for i in free), tolerance=tolerance
    )
    refuse_flat(report)
    scaled = np.zeros((size, size))
    distance = math.nan
    if free:
        sizes = np.sqrt(np.diag(part))
        # Scaled to a unit diagonal, so that the units of the parameters do not spoil the inverse.
        inverse = np.linalg.inv(part / np.outer(sizes, sizes)) / np.outer(sizes, sizes)
        scaled[np.ix_(free, free)] = symmetric(inverse)
        if gradient is not None:
            slope = finite_array(gradient, "gradient", (size,))[free]
            # The Newton step -C g, measured in the metric C^-1: sqrt(g^T C g).
            distance = math.sqrt(max(float(slope @ inverse @ slope), 0.0))
    return Covariance(
        tuple(names),
        kinds,
        point,
        scaled,
        tuple(held),
        hessian,
        as_float(degrees_of_freedom),
        distance,
        report,
    )


def _position(name: str, names: Sequence[str]) -> int:
    if not is_one_of(name, *names):
        raise InputError(
            f'no parameter "{name}" was estimated',
            expected=f"one of {', '.join(names)}",
            remedy=nearest(name, names),
        )
    return list(names).index(name)


def _interval_text(lower: float, upper: float) -> str:
    return f"[{lower:.5g}, {upper:.5g}]"
