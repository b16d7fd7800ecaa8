"""The negative log-likelihood of data whose noise level is unknown, as a functional.

For given parameters the likeliest noise level has a closed form; put back into the likelihood it
leaves L(x) = sum_g N_g log sigma_g(x) + prior, whose gradient is that of the least squares weighted
with sigma_g(x): as cheap as a known level.  Minimised over x this is joint maximum likelihood, and
its Hessian is the Schur complement of the joint one: the covariance allows for the unknown level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from petsc4py import PETSc

from daeosens.costs.least_squares import LeastSquares
from daeosens.costs.objective import Objective
from daeosens.derivatives.adjoint import Gradient, shared
from daeosens.derivatives.divided import divided
from daeosens.derivatives.residual_jacobian import residual, residual_adjoint
from daeosens.errors import SolveError
from daeosens.functional.joint import Joint
from daeosens.functional.reduced import Reduced, gradient_of
from daeosens.inverse.likelihood.measurements import spread
from daeosens.petsc.unpicklable import Undivided
from daeosens.petsc.vectors import Array, dot, gather, scatter
from daeosens.problem.callback_guard import QUIET
from daeosens.timestepping.trajectory.trajectory import Trajectory

LEAST = 1e-12
"""Noise levels below this part of the data's size count as an exact fit."""


def with_levels(
    misfits: Sequence[LeastSquares], levels: Sequence[Any], priors: Sequence[Objective | None]
) -> list[Any]:
    """Return the misfits with their noise levels and priors."""
    objectives: list[Any] = [
        replace(misfit, sigma=sigma) for misfit, sigma in zip(misfits, levels, strict=True)
    ]
    return [
        objective if prior is None else objective + prior
        for objective, prior in zip(objectives, priors, strict=True)
    ]


class EstimatedNoise(Undivided):
    """L(x) of least squares with unknown noise levels; a ``Functional`` with second derivatives.

    Parameters
    ----------
    experiments : sequence of Reduced
        Of the same x, as for ``Joint``; serial, NumPy style.  Each has a ``LeastSquares`` with
        ``sigma=1``, data [K, q], NaN where nothing was observed, and the same columns.
    priors : sequence of Objective or None, optional
        Of the parameters, for each experiment; those that are shared with the first one only.
    each_column : bool
        A level for every column; else one for all.
    level_prior : (float, float), optional
        Normal prior of log(sigma): mean, standard deviation.
    """

    _in_its_place: ClassVar[str] = "a function that builds it, called in each process"

    def __init__(
        self,
        experiments: Sequence[Reduced],
        *,
        priors: Sequence[Objective | None] | None = None,
        each_column: bool = False,
        level_prior: tuple[float, float] | None = None,
    ) -> None:
        self.priors = [None] * len(experiments) if priors is None else list(priors)
        self._level_prior, self._each_column = level_prior, each_column
        self._misfits: list[Any] = [experiment.objective for experiment in experiments]
        self._unit = Joint(experiments)
        if any(self.priors):  # their derivatives are checked with those of the experiments
            pairs = zip(experiments, self._objectives(np.ones(1)), strict=True)
            self._unit = Joint([_with(functional, objective) for functional, objective in pairs])
        self.experiments = self._unit.experiments
        self.control = self._unit.control
        data = np.concatenate([misfit.scaled_data for misfit in self._misfits])
        size = data.shape[1]
        self.groups = np.arange(size) if each_column else np.zeros(size, dtype=int)
        self.observed = ~np.isnan(data)
        self.counts: Any = np.bincount(self.groups, self.observed.sum(axis=0))
        # An exact fit leaves a level of rounding, which is relative to the data.
        sizes = np.abs(data)
        scale = [np.nanmax(sizes[:, self.groups == g]) for g in range(len(self.counts))]
        self._least = LEAST * np.maximum(scale, 1e-300)
        self._weighted: tuple[PETSc.Vec, Joint, list[PETSc.Vec], Array] | None = None

    @property
    def comm(self) -> PETSc.Comm:
        """The communicator of x and of every method."""
        return self._unit.comm

    @property
    def count(self) -> Any:
        """How often it has run."""
        return self._unit.count

    def start(self) -> PETSc.Vec:
        """Return a new vector with the control's starting point."""
        return self._unit.start()

    def bounds(self) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the bounds of x, or None."""
        return self._unit.bounds()

    @property
    def order(self) -> int:
        """The lowest order of the methods of the experiments."""
        return self._unit.order

    def refined(self, x: PETSc.Vec) -> tuple[EstimatedNoise, int]:
        """Return the same functional by runs with parts of the steps of those at x.

        And how many parts, at least.
        """
        finer = [divided(experiment.trajectory(x)) for experiment in self.experiments]
        experiments = [
            Reduced(experiment.problem, misfit, steps, experiment.control)
            for experiment, misfit, (steps, _) in zip(
                self.experiments, self._misfits, finer, strict=True
            )
        ]
        return self._like(experiments), min(parts for _, parts in finer)

    def _like(self, experiments: Sequence[Reduced]) -> EstimatedNoise:
        """Return the same functional of other runs."""
        return EstimatedNoise(
            experiments,
            priors=self.priors,
            each_column=self._each_column,
            level_prior=self._level_prior,
        )

    def repeated(self, x: PETSc.Vec) -> EstimatedNoise | None:
        """Return the same functional by runs that take the steps of those at x, or None.

        As ``Reduced.repeated``.
        """
        repetitions = [experiment.repeated(x) for experiment in self.experiments]
        experiments = [
            Reduced(experiment.problem, misfit, experiment.stepping, experiment.control)
            for experiment, misfit in zip(repetitions, self._misfits, strict=True)
            if experiment is not None
        ]
        if len(experiments) < len(repetitions):
            return None
        return self._like(experiments)

    @property
    def tolerance(self) -> float:
        """Loosest relative tolerance of adaptive runs; 0 of fixed steps."""
        return self._unit.tolerance

    def limit_steps(self, *, limited: bool) -> None:
        """Limit the steps of later runs of each experiment, or of none: ``Reduced.limit_steps``."""
        self._unit.limit_steps(limited=limited)

    def runs(self, x: PETSc.Vec) -> list[Trajectory]:
        """Return the run of each experiment at x; the last ones are kept."""
        return [experiment.trajectory(x) for experiment in self.experiments]

    def check_second_order(self) -> None:
        """Raise ``UnsupportedError`` where a second derivative is missing."""
        self._unit.check_second_order()

    def levels(self, x: PETSc.Vec) -> Array:
        """Return the likeliest noise levels [G] at x."""
        return self._levels(self._squares(x))

    def column_levels(self, x: PETSc.Vec) -> Array:
        """Return the noise level [q] of every column at x."""
        return self.levels(x)[self.groups]

    def fits_exactly(self, x: PETSc.Vec) -> bool:
        """Return whether a residual is zero to rounding, so that there is no level to estimate."""
        return bool((self.levels(x) <= self._least).any())

    def weighted(self, x: PETSc.Vec) -> Joint:
        """Return the least squares (with priors) whose noise levels are those at x."""
        return self._second(x)[0]

    def value(self, x: PETSc.Vec) -> float:
        """Return L(x)."""
        squares = self._squares(x)
        # L = sum_g N_g log sigma_g + S_g / (2 sigma_g^2) + priors.
        total = self._level_value(squares, self._levels(squares))
        pairs = zip(self.runs(x), self.priors, strict=True)
        return total + math.fsum(_prior_value(run, prior) for run, prior in pairs if prior)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return dL/dx as a new vector."""
        return self.value_and_gradient(x)[1]

    @QUIET
    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return L(x) and its gradient as a new vector: one adjoint sweep of each run."""
        squares = self._squares(x)
        levels = self._levels(squares)
        value, gradient = 0.0, x.duplicate()
        gradient.zeroEntries()
        # dL/dsigma = 0 at the likeliest level, so that dL/dx is the gradient for fixed levels:
        # that of weighted least squares.
        objectives = self._objectives(levels[self.groups])
        for experiment, run, objective in zip(
            self.experiments, self.runs(x), objectives, strict=True
        ):
            result = gradient_of(experiment, run, objective)
            value += result.value
            gradient.axpy(1.0, experiment.control.pull_back(experiment.problem, x, result))
        # what the weighted sum of squares has is replaced by the likelihood of the levels
        value -= 0.5 * float((squares / levels**2).sum())
        return value + self._level_value(squares, levels), gradient

    def hessian(self, x: PETSc.Vec) -> Array:
        """Return the Hessian of L at x [k, k]."""
        reduced, slopes, factors = self._second(x)
        matrix = reduced.hessian(x)
        for slope, factor in zip(slopes, factors, strict=True):
            # Schur complement: L_xx - L_xs L_ss^-1 L_sx, s = log sigma, with L_xs = -2 slope and
            # L_ss = 2 S / sigma^2 + 1 / deviation^2.
            matrix = matrix - factor * np.outer(gather(slope), gather(slope))
        return matrix

    def hessian_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return the Hessian of L at x times dx as a new vector."""
        reduced, slopes, factors = self._second(x)
        product = reduced.hessian_product(x, dx)
        for slope, factor in zip(slopes, factors, strict=True):
            product.axpy(-float(factor) * dot(slope, dx), slope)
        return product

    def gauss_newton_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return ``gauss_newton_matrix`` times dx as a new vector."""
        return scatter(self.gauss_newton_matrix(x) @ gather(dx), dx.duplicate())

    @QUIET
    def gauss_newton_matrix(self, x: PETSc.Vec) -> Array:
        """Return the Hessian of L at x [k, k] without second derivatives of the model.

        And without what vanishes with the gradient: for one noise level that leaves the matrix of
        the sum of squares, whose minimum is the same, so that a Newton method takes its steps far
        from the minimum as well, where L itself is concave.
        """
        levels = self._levels(self._squares(x))
        matrix = np.zeros((x.size, x.size))
        slopes = np.zeros((len(levels), x.size))
        total = np.zeros(x.size)
        sigma = levels[self.groups]
        units = [scatter(unit, x.duplicate()) for unit in np.eye(x.size)]
        for experiment, run, misfit, prior in zip(
            self.experiments, self.runs(x), self._misfits, self.priors, strict=True
        ):
            squares = [misfit] if prior is None else [misfit, prior]
            rows, *of_prior = experiment.residual_tangents(x, units, squares)
            observed = ~np.isnan(misfit.scaled_data)
            by_column = np.broadcast_to(sigma, observed.shape)[observed]
            group = np.broadcast_to(self.groups, observed.shape)[observed]
            rows = rows / by_column[:, None]
            # Rows of one experiment: r / sigma [q_k], R / sigma [q_k, k].
            left = gather(residual(run, misfit)) / by_column
            matrix += rows.T @ rows
            for g in range(len(levels)):
                slopes[g] += left[group == g] @ rows[group == g]
            if prior is not None:
                matrix += of_prior[0].T @ of_prior[0]
                total += gather(residual(run, prior)) @ of_prior[0]
        total += slopes.sum(axis=0)
        # The whole gradient, prior included, vanishes at the minimum: it is taken from the
        # slopes, in shares N_g / N, so that they are exact there and for a single level without
        # prior vanish everywhere.
        slopes -= np.outer(self.counts / self.counts.sum(), total)
        # Far from the minimum the correction may be too large; without it the matrix is never
        # negative.
        corrected = matrix - slopes.T @ (self._factors(x, levels)[:, None] * slopes)
        return corrected if np.linalg.eigvalsh(corrected)[0] > 0.0 else matrix

    def _factors(self, x: PETSc.Vec, levels: Array) -> Array:
        """Return by how much the derivative of each level flattens L along its slope."""
        own = 0.0 if self._level_prior is None else 1.0 / self._level_prior[1] ** 2
        return 4.0 / (2.0 * self._squares(x) / levels**2 + own)

    def _objectives(self, sigma: Array) -> list[Objective]:
        """Return the weighted misfit of each experiment with its priors."""
        return with_levels(self._misfits, [sigma] * len(self._misfits), self.priors)

    @QUIET
    def _squares(self, x: PETSc.Vec) -> Array:
        squared = np.where(self.observed, self.residuals(x) ** 2, 0.0)
        # S_g, the sum over the columns of each group.
        totals: Any = np.bincount(self.groups, squared.sum(axis=0))
        if not np.isfinite(totals).all():
            raise SolveError("a residual is not finite", expected="outputs that can be observed")
        return totals

    def residuals(self, x: PETSc.Vec) -> Array:
        """Return model - data [K, q], NaN where nothing was observed."""
        rows = [
            gather(residual(run, misfit))
            for run, misfit in zip(self.runs(x), self._misfits, strict=True)
        ]
        return spread(np.concatenate(rows), self.observed)

    def _levels(self, squares: Array) -> Array:
        """Return the minimum over sigma of N log sigma + S / (2 sigma^2) + prior."""
        best = np.maximum(np.sqrt(squares / self.counts), self._least)
        if self._level_prior is None:
            return best
        mean, deviation = self._level_prior
        logs = np.log(best)
        for _ in range(100):  # Newton, on a convex function of log sigma
            tail = squares * np.exp(-2.0 * logs)
            slope = self.counts - tail + (logs - mean) / deviation**2
            step = slope / (2.0 * tail + 1.0 / deviation**2)
            # Steps of at most a factor e: the exponential would overflow after a long one.
            logs = logs - np.clip(step, -1.0, 1.0)
            if np.abs(step).max() < 1e-14:
                break
        return np.maximum(np.exp(logs), self._least)

    def _level_value(self, squares: Array, levels: Array) -> float:
        total = float((self.counts * np.log(levels) + 0.5 * squares / levels**2).sum())
        if self._level_prior is not None:
            mean, deviation = self._level_prior
            total += 0.5 * float((((np.log(levels) - mean) / deviation) ** 2).sum())
        return total

    def _second(self, x: PETSc.Vec) -> tuple[Joint, list[PETSc.Vec], Array]:
        """Return the least squares weighted for x, and the coupling to each level."""
        if self._weighted is None or not self._weighted[0].equal(x):
            squares = self._squares(x)
            levels = self._levels(squares)
            table = self.residuals(x)
            weights = [
                # r / sigma_g^2 in the columns of group g: its product with R^T is the slope of
                # S_g / (2 sigma_g^2).
                np.where(self.groups == g, table / level**2, 0.0)
                for g, level in enumerate(levels.tolist())
            ]
            slopes = self._products(x, weights)
            factors = self._factors(x, levels)
            objectives = self._objectives(levels[self.groups])
            pairs = zip(self._unit.experiments, objectives, strict=True)
            joint = Joint([functional.reweighted(objective) for functional, objective in pairs])
            self._weighted = (x.copy(), joint, slopes, factors)
        return self._weighted[1:]

    def _products(self, x: PETSc.Vec, weights: Sequence[Array]) -> list[PETSc.Vec]:
        """Return the transposed Jacobian of the residuals times each of some weights [K, q]."""
        totals = [x.duplicate() for _ in weights]
        for total in totals:
            total.zeroEntries()
        first = 0
        for experiment, run, misfit in zip(
            self.experiments, self.runs(x), self._misfits, strict=True
        ):
            rows = slice(first, first + len(misfit.data))
            first = rows.stop
            own = [weight[rows][self.observed[rows]] for weight in weights]
            pairs = residual_adjoint(run, misfit, own)
            for total, (lam, mu) in zip(totals, pairs, strict=True):
                pulled = Gradient(0.0, lam, mu, shared_p=shared(experiment.problem, mu))
                total.axpy(1.0, experiment.control.pull_back(experiment.problem, x, pulled))
        return totals


def _with(functional: Reduced, objective: Objective) -> Reduced:
    """Return the functional of another objective, with runs of its own."""
    return Reduced(functional.problem, objective, functional.stepping, functional.control)


def _prior_value(run: Trajectory, prior: Objective) -> float:
    end = float(run.times[-1])
    cost = prior.lower(run.problem, end)
    values = [weight * scalar.value(end, run.final, run.p) for _, weight, scalar in cost.points]
    return math.fsum(values)
