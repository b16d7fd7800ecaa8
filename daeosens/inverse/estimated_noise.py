"""The negative log-likelihood of data whose noise level is unknown, as a functional.

For given parameters the likeliest noise level has a closed form; put back into the likelihood it
leaves L(x) = sum_g N_g log sigma_g(x) + prior, whose gradient is that of the least squares weighted
with sigma_g(x): as cheap as a known level.  Minimised over x this is joint maximum likelihood, and
its Hessian is the Schur complement of the joint one: the covariance allows for the unknown level.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.adjoint import Gradient, adjoint
from daeosens.arrays import Array, dot, gather
from daeosens.errors import SolveError
from daeosens.guards import QUIET
from daeosens.inverse.measurements import spread
from daeosens.least_squares import LeastSquares
from daeosens.objective import Objective
from daeosens.parameters import Control
from daeosens.problem import Problem
from daeosens.reduced import Reduced
from daeosens.residuals import residual, residual_adjoint
from daeosens.stepping import Stepping
from daeosens.trajectory import Trajectory

LEAST = 1e-12
"""Noise levels below this part of the data's size count as an exact fit."""


class EstimatedNoise:
    """L(x) of least squares with unknown noise levels; a ``Functional`` with second derivatives.

    Parameters
    ----------
    problem, stepping, control
        As for ``Reduced``; serial, NumPy style.
    misfit : LeastSquares
        With ``sigma=1``; data [K, q], NaN where nothing was observed.
    prior : Objective, optional
        Of the parameters.
    each_column : bool
        A level for every column; else one for all.
    level_prior : (float, float), optional
        Normal prior of log(sigma): mean, standard deviation.
    """

    def __init__(
        self,
        problem: Problem,
        misfit: LeastSquares,
        stepping: Stepping,
        control: Control,
        *,
        prior: Objective | None = None,
        each_column: bool = False,
        level_prior: tuple[float, float] | None = None,
    ) -> None:
        self.problem, self.misfit, self.stepping = problem, misfit, stepping
        self.prior = prior
        self._level_prior = level_prior
        self._unit = Reduced(problem, self._objective(np.ones(1)), stepping, control)
        self.control = self._unit.control
        size = misfit.data.shape[1]
        self.groups = np.arange(size) if each_column else np.zeros(size, dtype=int)
        self.observed = ~np.isnan(misfit.data)
        self.counts: Any = np.bincount(self.groups, self.observed.sum(axis=0))
        sizes = np.abs(misfit.data)
        scale = [np.nanmax(sizes[:, self.groups == g]) for g in range(len(self.counts))]
        self._least = LEAST * np.maximum(scale, 1e-300)
        self._weighted: tuple[PETSc.Vec, Reduced, list[PETSc.Vec], Array] | None = None

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

    def trajectory(self, x: PETSc.Vec) -> Trajectory:
        """Return the run at x; the last one is kept."""
        return self._unit.trajectory(x)

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

    def weighted(self, x: PETSc.Vec) -> Reduced:
        """Return the least squares (with priors) whose noise levels are those at x."""
        return self._second(x)[0]

    def value(self, x: PETSc.Vec) -> float:
        """Return L(x)."""
        run = self.trajectory(x)
        squares = self._squares(x)
        total = self._level_value(squares, self._levels(squares))
        return total if self.prior is None else total + _prior_value(run, self.prior)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return dL/dx as a new vector."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return L(x) and its gradient as a new vector, from one forward and one adjoint sweep."""
        squares = self._squares(x)
        levels = self._levels(squares)
        result = adjoint(self.trajectory(x), self._objective(levels[self.groups]))
        self.count.adjoint += 1
        # what the weighted sum of squares has is replaced by the likelihood of the levels
        value = result.value - 0.5 * float((squares / levels**2).sum())
        value += self._level_value(squares, levels)
        return value, self.control.pull_back(self.problem, x, result)

    def hessian(self, x: PETSc.Vec) -> Array:
        """Return the Hessian of L at x [k, k]."""
        reduced, slopes, factors = self._second(x)
        matrix = reduced.hessian(x)
        for slope, factor in zip(slopes, factors, strict=True):
            matrix = matrix - factor * np.outer(gather(slope), gather(slope))
        return matrix

    def hessian_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return the Hessian of L at x times dx as a new vector."""
        reduced, slopes, factors = self._second(x)
        return _corrected(reduced.hessian_product(x, dx), dx, slopes, factors)

    def gauss_newton_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        """Return the same without second derivatives of the model, as a new vector."""
        reduced, slopes, factors = self._second(x)
        return _corrected(reduced.gauss_newton_product(x, dx), dx, slopes, factors)

    def _objective(self, sigma: Array) -> Objective:
        misfit = self.misfit
        weighted: Any = LeastSquares(
            misfit.times, misfit.data, sigma, misfit.observe, misfit.observe_u, misfit.observe_p
        )
        return weighted if self.prior is None else weighted + self.prior

    @QUIET
    def _squares(self, x: PETSc.Vec) -> Array:
        squared = np.where(self.observed, self._residuals(x) ** 2, 0.0)
        totals: Any = np.bincount(self.groups, squared.sum(axis=0))
        if not np.isfinite(totals).all():
            raise SolveError("a residual is not finite", expected="outputs that can be observed")
        return totals

    def _residuals(self, x: PETSc.Vec) -> Array:
        """Return model - data [K, q], NaN where nothing was observed."""
        rows = residual(self.trajectory(x), self.misfit)
        table = spread(gather(rows), self.observed)
        rows.destroy()
        return table

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

    def _second(self, x: PETSc.Vec) -> tuple[Reduced, list[PETSc.Vec], Array]:
        """Return the least squares weighted for x, and the coupling to each level."""
        if self._weighted is None or not self._weighted[0].equal(x):
            squares = self._squares(x)
            levels = self._levels(squares)
            objective = self._objective(levels[self.groups])
            reduced = Reduced(self.problem, objective, self.stepping, self.control)
            run = self.trajectory(x)
            table = self._residuals(x)
            weights = [
                np.where(self.groups == g, table / level**2, 0.0)[self.observed]
                for g, level in enumerate(levels.tolist())
            ]
            slopes = [
                self.control.pull_back(self.problem, x, Gradient(0.0, lam, mu))
                for lam, mu in residual_adjoint(run, self.misfit, weights)
            ]
            own = 0.0 if self._level_prior is None else 1.0 / self._level_prior[1] ** 2
            factors = 4.0 / (2.0 * squares / levels**2 + own)
            self._weighted = (x.copy(), reduced, slopes, factors)
        return self._weighted[1:]


def _corrected(
    product: PETSc.Vec, dx: PETSc.Vec, slopes: list[PETSc.Vec], factors: Array
) -> PETSc.Vec:
    for slope, factor in zip(slopes, factors, strict=True):
        product.axpy(-float(factor) * dot(slope, dx), slope)
    return product


def _prior_value(run: Trajectory, prior: Objective) -> float:
    end = float(run.times[-1])
    cost = prior.lower(run.problem, end)
    values = [weight * each.value(end, run.final, run.p) for _, weight, each in cost.points]
    return math.fsum(values)
