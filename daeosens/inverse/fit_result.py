"""What a fit found: estimate, covariance, predictions, profiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from daeosens.errors import DaeosensError, InputError, whole_number
from daeosens.functional.joint import Joint
from daeosens.functional.parameters import Parameters, own_sizes
from daeosens.inverse.bilevel.start import Preparation
from daeosens.inverse.fit_discretization import Discretization, words
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.inverse.likelihood.noise import Noise, Observation, is_estimated
from daeosens.inverse.likelihood.noise_levels import EstimatedNoise
from daeosens.inverse.search.multistart import Multistart
from daeosens.inverse.search.plateau import PLATEAU
from daeosens.inverse.uncertainty.covariance import Covariance, Intervals
from daeosens.inverse.uncertainty.prediction import Prediction, predict
from daeosens.inverse.uncertainty.profiles import Profiles, profile
from daeosens.io.results import Results
from daeosens.optimize import Result
from daeosens.petsc.unpicklable import Undivided
from daeosens.petsc.vectors import Array
from daeosens.timestepping.trajectory.trajectory import Side

UNLIKELY = 1e-3
"""Probability of as large a misfit below which it is the model, or sigma, that is in doubt."""

MORE_THAN_NOISE = (
    "; more than noise is left: the model lacks something, or sigma is too small; less likely, "
    "other starts leave less"
)


class Statistics:
    """What a fit knows of its estimate without its model."""

    data: Measurements
    noise: Noise
    result: Result
    sigma: Array
    degrees_of_freedom: float
    residuals: Array
    uncertainty: Covariance | DaeosensError
    discretization: Discretization | DaeosensError

    @property
    def objective(self) -> float:
        """The minimum of the negative log-likelihood, up to a constant."""
        return self.result.value

    @property
    def converged(self) -> bool:
        """Whether the minimisation met a tolerance."""
        return self.result.converged

    @property
    def covariance(self) -> Covariance:
        """Covariance of the free parameters.

        Raises
        ------
        UnsupportedError
            There is none: names the combination of parameters.
        """
        if isinstance(self.uncertainty, DaeosensError):
            raise self.uncertainty
        return self.uncertainty

    @property
    def correlation(self) -> Array:
        """Correlation [k, k] of the free parameters."""
        return self.covariance.correlation

    def intervals(self, level: float = 0.95) -> Intervals:
        """Return confidence intervals from the covariance."""
        return self.covariance.intervals(level)

    @cached_property
    def chi_square(self) -> float:
        """Sum of the squared residuals over their noise levels."""
        return float(np.nansum(self.residuals**2))

    @property
    def p_value(self) -> float:
        """Probability of a larger ``chi_square`` if model and noise level are right.

        NaN where the noise level was estimated from the same residuals.
        """
        if is_estimated(self.noise) or self.degrees_of_freedom <= 0:
            return math.nan
        return float(chdtrc(self.degrees_of_freedom, self.chi_square))


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Statistics, Undivided):
    """What ``fit`` found; prints itself.

    Attributes
    ----------
    data : Measurements
        Of all experiments, one after another.
    noise : Normal or LogNormal
    parameters : Parameters
        All of them, those that belong to single experiments too.
    functional : Joint or EstimatedNoise
        The negative log-likelihood (with priors) that was minimised, up to a constant; has
        ``experiments``.
    observation : Observation
        Of the data in their own unit.
    result : Result
        Of the minimisation.
    starts : Multistart or None
    sigma : array [q] or [K, q]
        Noise level of each column; if estimated, corrected for the parameters fitted.
    degrees_of_freedom : float
        Observations minus parameters (minus effective ones where there are priors).
    residuals : array [K, q]
        (data - model) / sigma, in the scale of the noise; NaN where nothing was observed.
    uncertainty : Covariance or DaeosensError
        The error says why there is no covariance.
    discretization : Discretization or DaeosensError
        How far discretisation has moved the estimate, by one run with divided steps and its
        gradient; the error says why that is not known.
    preparation : Preparation or None
        What came first, of ``start="bilevel"`` and ``windows``.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Stepping, fit
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, scale="log")}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> fitted = fit(decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1))
    >>> round(fitted.estimate["rate"], 3), fitted.residuals.shape
    (0.5, (3, 1))
    """

    _in_its_place: ClassVar[str] = (
        "inverse.save_fit(fitted, path) and load_fit, or its estimate and covariance"
    )

    data: Measurements
    noise: Noise
    parameters: Parameters
    functional: Joint | EstimatedNoise
    observation: Observation
    result: Result
    starts: Multistart | None
    sigma: Array
    degrees_of_freedom: float
    residuals: Array
    uncertainty: Covariance | DaeosensError
    discretization: Discretization | DaeosensError
    preparation: Preparation | None = None

    @property
    def estimate(self) -> dict[str, float]:
        """All parameters by name, fixed ones too, in their own units.

        One that an experiment has of its own is called "V (patient 2)", or "V (2)" by the number.
        """
        values = self.parameters.estimates_at(self.result.x)
        names = self.functional.experiments[0].problem.parameter_names
        # the model's parameters in its order, then those of single experiments
        first = {name: values[name] for name in names if name in values}
        return {**first, **values}

    @property
    def iterations(self) -> int:
        """Those of the start that came lowest, if there were several, and of what followed it."""
        before = 0 if self.starts is None else self.starts.best.iterations
        return before + self.result.iterations

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Parameters whose standard error is larger than they are (of a log scale: than 1)."""
        if isinstance(self.uncertainty, DaeosensError):
            return ()
        errors = np.sqrt(np.diag(self.uncertainty.scaled))
        # a parameter that may as well be zero, or twice as large, is not known
        wide = errors > own_sizes(self.functional, self.result.x)
        return tuple(np.array(self.uncertainty.names)[wide].tolist())

    def prediction(
        self,
        times: npt.ArrayLike,
        output: Callable[..., Any] | None = None,
        *,
        noise: npt.ArrayLike | None = None,
        level: float = 0.95,
        experiment: int = 0,
        side: Side | None = None,
    ) -> Prediction:
        """Return outputs at times, also beyond the data, with bands.  Collective.

        Parameters
        ----------
        times : array_like [K]
            Increasing times.
        output : callable, optional
            ``(t, u, p) -> array [q]``; by default what was observed, in its own unit, with the
            noise of a measurement in the prediction band.
        noise : float or array_like, optional
            Noise level in the prediction band; the fit's by default, none for an ``output``.
        level : float
            Probability of the bands.
        experiment : int
            Whose initial state, doses and fixed parameters, where there are several.
        side : "before" or "after", optional
            Which state is meant at the time of an event; as in the fit by default.

        Raises
        ------
        UnsupportedError
            There is no covariance.
        InputError
            There is no such experiment.
            The noise level of the data changes from time to time, and no other is given.
        """
        estimate = self.covariance
        side = self.observation.side if side is None else side
        known = self.functional.experiments
        experiment = whole_number(experiment, "experiment", most=len(known) - 1)
        model = known[experiment]
        if output is not None:
            added = 0.0 if noise is None else noise
            return predict(
                model, estimate, times, observe=output, noise=added, level=level, side=side
            )
        added = self.sigma if noise is None else noise
        if noise is None and self.sigma.ndim == 2:
            if np.ptp(self.sigma, axis=0).any():
                raise InputError(
                    "the noise level differs between times",
                    expected="noise=number or array [q] for a new measurement",
                )
            added = self.sigma[0]
        return predict(
            model,
            estimate,
            times,
            observe=self.observation.observe,
            observe_u=self.observation.observe_u,
            observe_p=self.observation.observe_p,
            noise=added,
            scale=self.noise.scale,
            level=level,
            side=side,
        )

    def profile(
        self,
        names: Sequence[str] | None = None,
        *,
        level: float = 0.95,
        points: int = 5,
        reach: float = 10.0,
        tolerance: float = 1e-3,
        method: str | None = None,
    ) -> Profiles:
        """Return profile likelihoods; see ``profiles.profile``.  Collective.

        With an estimated noise level the threshold is the one of the F distribution, and the level
        is fitted again at every point.
        """
        estimate = self.covariance
        threshold = None
        if is_estimated(self.noise):
            # For a model linear in its parameters the sum of squares rises by S t^2 / (N - k) at
            # the ends of the t interval; L = N/2 log S + ... rises by N/2 log(1 + t^2 / (N - k)).
            share = estimate.quantile(level) ** 2 / self.degrees_of_freedom
            threshold = 0.5 * self.data.count * math.log1p(share)
        return profile(
            self.functional,
            estimate,
            names,
            level=level,
            threshold=threshold,
            points=points,
            reach=reach,
            tolerance=tolerance,
            method=method,
        )

    def record(self, results: Results) -> None:
        """Keep the estimate in the results of a study.  Collective.

        Facts are ``parameters``, ``standard_errors``, ``sigma``, ``value`` and ``iterations``,
        datasets ``covariance`` and ``residuals``; those of the covariance where there is one.
        """
        results.record("parameters", self.estimate)
        results.record("sigma", self.sigma)
        results.record("value", self.objective)
        results.record("iterations", self.iterations)
        results.write("residuals", self.residuals)
        if isinstance(self.uncertainty, Covariance):
            errors = zip(self.uncertainty.names, self.uncertainty.standard_errors, strict=True)
            results.record("standard_errors", dict(errors))
            results.write("covariance", self.uncertainty.matrix)

    def __repr__(self) -> str:
        """Return the summary."""
        size = self.result.x.getSize()
        outcome = "converged" if self.converged else f"NOT converged ({self.result.message})"
        several = len(self.functional.experiments)
        runs = f" in {several} experiments" if several > 1 else ""
        lines = [f"fit: {self.data.count} observations{runs}, {size} parameters, {outcome}"]
        if isinstance(self.uncertainty, DaeosensError):
            names = self.parameters.free_names
            width = max(9, *(len(name) for name in names))
            lines += [f"{name:{width}s} {self.estimate[name]:10.5g}" for name in names]
            lines.append(str(self.uncertainty))
        else:
            lines.append(repr(self.uncertainty))
        lines += [f"note: {note}" for note in self.result.notes if PLATEAU in note]
        if self.undetermined:
            lines.append(
                f"hardly determined by the data: {', '.join(self.undetermined)} "
                "(standard error above its own size)"
            )
        kind = "log-normal" if self.noise.scale == "log" else "normal"
        levels = self.sigma if self.sigma.ndim == 1 else self.sigma.mean(axis=0)
        told = ", ".join(
            f"{value:.4g} ({name})"
            for name, value in zip(self.data.names, levels.tolist(), strict=True)
        )
        how = "estimated" if is_estimated(self.noise) else "given"
        lines.append(f"noise: {kind}, sigma {how}: {told}")
        if math.isfinite(self.p_value):
            unlikely = self.converged and self.p_value < UNLIKELY
            lines.append(
                f"chi-square {self.chi_square:.4g} for {self.degrees_of_freedom:.4g} degrees of "
                f"freedom: p = {self.p_value:.2g}" + (MORE_THAN_NOISE if unlikely else "")
            )
        if isinstance(self.discretization, Discretization):
            lines.append(words(self.discretization, self.covariance.names))
        chosen = {
            f"{experiment.stepping.method} (auto: {experiment.stepping.choice})"
            for experiment in self.functional.experiments
            if experiment.stepping.choice
        }
        if chosen:
            lines.append(f"steps: {', '.join(sorted(chosen))}")
        differences = {
            experiment.problem.differences for experiment in self.functional.experiments
        } - {""}
        lines += [f"derivatives: {told}" for told in sorted(differences)]
        if self.starts is not None:
            lines.append(repr(self.starts).splitlines()[-1])
        return "\n".join(lines)
