"""Low-rank Laplace posterior of a field: what the data add to a Gaussian prior.

The data inform few directions of a field.  They are the leading eigenvectors of the generalised
problem H u = lambda R u, with H the Hessian of the misfit and R the precision of the prior:
posterior covariance = R^-1 - U D U^T, with D = lambda / (1 + lambda) and U^T R U = I.  Found by a
randomised method from some products with H, on distributed vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import (
    InputError,
    UnsupportedError,
    is_one_of,
    real_number,
    require,
    whole_number,
)
from daeosens.functional.functional import Functional, require_functional
from daeosens.inverse.uncertainty.gaussian_prior import GaussianPrior, white_noise
from daeosens.inverse.uncertainty.hessian_at_estimate import HessianKind
from daeosens.optimize.start import vector_like
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import MOST, Array, dot, read, refuse_not_finite, write

CUTOFF = 0.1
"""Directions in which the data reduce the variance by less than a tenth are left out by default."""


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """A Gaussian about the estimate, known by prior and modes; prints itself.

    Attributes
    ----------
    x : Vec [n]
        The estimate (maximum a posteriori).
    prior : GaussianPrior
    eigenvalues : array [r]
        Decreasing: information of the data over that of the prior.
    modes : sequence of Vec [n]
        U, the directions; U^T R U = I.
    complete : bool
        Whether all other eigenvalues are zero; else they are about the last one or less.
    products : int
        Hessian products used.

    Examples
    --------
    >>> from petsc4py import PETSc
    >>> from daeosens.inverse import GaussianPrior
    >>> x, mode = (PETSc.Vec().createWithArray(v, comm=PETSc.COMM_SELF) for v in ([1, 2], [1, 0]))
    >>> Posterior(x, GaussianPrior(x), np.array([3.0]), [mode], True, 2).variance().array
    array([0.25, 1.  ])
    """

    x: PETSc.Vec
    prior: GaussianPrior
    eigenvalues: Array
    modes: Sequence[PETSc.Vec]
    complete: bool
    products: int

    @property
    def shrinkage(self) -> Array:
        """D [r]: by what part the data reduce the prior variance along each mode."""
        return self.eigenvalues / (1.0 + self.eigenvalues)

    def covariance_product(self, v: PETSc.Vec) -> PETSc.Vec:
        """Return the posterior covariance times v as a new vector.  Collective."""
        agree(self.x.comm, "Posterior.covariance_product")
        # (R^-1 - U D U^T) v.
        out = self.prior.solve(v)
        v = vector_like(v, self.x, "v")
        for share, mode in zip(self.shrinkage, self.modes, strict=True):
            out.axpy(-float(share) * dot(mode, v), mode)
        return out

    def variance(self, prior_variance: PETSc.Vec | None = None) -> PETSc.Vec:
        """Return the pointwise variance [n] as a new vector.  Collective.

        Parameters
        ----------
        prior_variance : Vec [n], optional
            ``prior.variance(...)``; computed exactly by default, which takes n solves.
        """
        agree(self.x.comm, "Posterior.variance", exactly=prior_variance is None)
        if prior_variance is not None:
            prior_variance = vector_like(prior_variance, self.x, "prior_variance")
            refuse_not_finite(prior_variance, "prior_variance")
        out = self.prior.variance() if prior_variance is None else prior_variance.copy()
        local = read(out).copy()
        for share, mode in zip(self.shrinkage, self.modes, strict=True):
            # The diagonal of U D U^T, entry by entry: no communication.
            local -= share * read(mode) ** 2
        write(out, local)
        return out

    def trace(self, prior_trace: float | None = None) -> float:
        """Return the sum of the pointwise variances.  Collective."""
        agree(self.x.comm, "Posterior.trace", known=prior_trace is not None)
        if prior_trace is not None:
            prior_trace = real_number(prior_trace, "prior_trace", least=0.0)
        total = self.prior.trace() if prior_trace is None else prior_trace
        return total - sum(
            float(share) * dot(mode, mode)
            for share, mode in zip(self.shrinkage, self.modes, strict=True)
        )

    def sample(self, seed: int) -> PETSc.Vec:
        """Return a sample, the same on any number of ranks.  Collective."""
        agree(self.x.comm, "Posterior.sample", seed=seed)
        out = self.shape(white_noise(self.x, seed))
        out.axpy(1.0, self.x)
        return out

    def shape(self, noise: PETSc.Vec) -> PETSc.Vec:
        """Return L v, with L L^T the posterior covariance, as a new vector.  Collective.

        L = (I - U (1 - 1/sqrt(1 + lambda)) U^T R) R^-1/2.
        """
        agree(self.x.comm, "Posterior.shape")
        out = self.prior.root_solve(noise)
        weighted = self.prior.root(noise)  # R times it
        for value, mode in zip(self.eigenvalues, self.modes, strict=True):
            out.axpy(-(1.0 - 1.0 / math.sqrt(1.0 + value)) * dot(mode, weighted), mode)
        return out

    def information_gain(self) -> float:
        """Return the Kullback-Leibler divergence from prior to posterior [nat].  Collective."""
        agree(self.x.comm, "Posterior.information_gain")
        # KL of two normals: 1/2 (log det ratio + trace - n + distance of the means), of which
        # modes that the data do not touch have none.
        gains = np.log1p(self.eigenvalues) - self.shrinkage
        return 0.5 * (float(gains.sum()) + self.prior.squared_distance(self.x))

    def __repr__(self) -> str:
        """Return what the data tell, in three lines."""
        values = self.eigenvalues
        rest = "no others" if self.complete else "the others are left out"
        span = f", from {values[0]:.3g} to {values[-1]:.3g}" if values.size else ""
        return "\n".join(
            [
                f"Laplace posterior of {self.x.getSize()} values: {values.size} modes, {rest}",
                f"  eigenvalues{span}; {int((values > 1).sum())} known better from data than prior",
                f"  {self.products} Hessian products",
            ]
        )


def laplace(
    misfit: Functional,
    x: PETSc.Vec | npt.ArrayLike,
    prior: GaussianPrior,
    *,
    rank: int | None = None,
    hessian: HessianKind = "gauss_newton",
    cutoff: float = CUTOFF,
    oversampling: int = 10,
    seed: int = 0,
) -> Posterior:
    """Return the Laplace posterior at an estimate.  Collective.

    Takes 2 (r + oversampling) Hessian products and half as many prior solves (double pass).

    Parameters
    ----------
    misfit : Functional
        J without the prior, with ``gauss_newton_product`` or ``hessian_product``.
    x : Vec or array_like [n]
        Where misfit plus prior is least (``Regularized``); copied.
    prior : GaussianPrior
        Its precision.
    rank : int, optional
        Number of modes.  By default it grows, doubling, until eigenvalues fall below ``cutoff``.
    hessian : "gauss_newton" or "exact"
        Which Hessian.
    cutoff : float
        Eigenvalues below it may be left out.
    oversampling : int
        Random directions beyond the rank.
    seed : int
        Of the random directions, which are the same on any number of ranks.

    Returns
    -------
    Posterior

    Raises
    ------
    InputError
        Bad numbers, an x of another size, another kind of prior.
    UnsupportedError
        The misfit has no such product; or misfit plus prior has no minimum at x.

    Source
    ------
    Halko, Martinsson and Tropp, SIAM Review 53(2), 2011; Villa, Petra and Ghattas, ACM Trans.
    Math. Softw. 47(2), 2021.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced
    >>> from daeosens.inverse import GaussianPrior
    >>> from daeosens import Stepping, minimize
    >>> from daeosens.inverse import Regularized
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.36], sigma=0.1)
    >>> rates = Parameters({"rate": Parameter(0.5, lower=0.1, upper=2.0)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), rates)
    >>> prior = GaussianPrior(functional.start(), weight=4.0)
    >>> best = minimize(Regularized(functional, prior), method="bnls").x
    >>> laplace(functional, best, prior).variance().getArray().round(5)
    array([0.01087])
    """
    require_functional(misfit)
    agree(
        misfit.comm,
        "laplace",
        rank=rank,
        hessian=hessian,
        cutoff=cutoff,
        oversampling=oversampling,
        seed=seed,
    )
    require(prior, GaussianPrior, "prior", "GaussianPrior(mean, ...), or matern(grid, ...)")
    if rank is not None:
        rank = whole_number(rank, "rank", least=1, most=MOST)
    cutoff = real_number(cutoff, "cutoff", least=0.0, inside=True)
    oversampling = whole_number(oversampling, "oversampling", most=MOST)
    seed = whole_number(seed, "seed")
    point = vector_like(x, misfit.start(), "x")
    search = _Search(_product(misfit, hessian), point, prior, seed)
    size = point.getSize()
    # More directions are added to the basis that is there: no product is lost.
    wanted = 10 if rank is None else rank
    while True:
        complete = search.extend(min(wanted + oversampling, size))
        values, vectors = search.eigenpairs()
        kept = len(values) if complete else min(wanted, len(values))
        if complete or rank is not None or values[kept - 1] < cutoff:
            break
        wanted *= 2
    if rank is not None:
        kept = min(rank, kept)
    # H + R is positive definite where 1 + lambda > 0 in every direction.
    if values.size and values.min() <= -1.0:
        raise UnsupportedError(
            f"misfit plus prior is not convex at x: eigenvalue {values.min():.3g} of the misfit "
            "relative to the prior",
            expected="a minimum of both together",
            remedy='minimize further, or hessian="gauss_newton"',
        )
    modes = [search.combine(vectors[:, j]) for j in range(kept)]
    return Posterior(
        point.copy(), prior, values[:kept], modes, complete and kept == len(values), search.products
    )


def _product(misfit: Functional, hessian: HessianKind) -> Any:
    names = {"exact": "hessian_product", "gauss_newton": "gauss_newton_product"}
    if not is_one_of(hessian, *names):
        raise InputError(f"hessian = {hessian!r}", expected='"exact" or "gauss_newton"')
    if not hasattr(misfit, names[hessian]):
        raise UnsupportedError(
            f'hessian = "{hessian}" for a functional without {names[hessian]}',
            expected=f"{names[hessian]}(x, dx) -> Vec",
        )
    return getattr(misfit, names[hessian])


class _Search:
    """A growing basis Q, orthonormal with respect to R, and H on it."""

    def __init__(self, product: Any, x: PETSc.Vec, prior: GaussianPrior, seed: int) -> None:
        self._product, self._x, self._prior, self._seed = product, x, prior, seed
        self._basis: list[PETSc.Vec] = []
        self._weighted: list[PETSc.Vec] = []
        self._projected = np.zeros((0, 0))
        self.products = 0

    def extend(self, size: int) -> bool:
        """Add random directions up to ``size`` of them; return whether nothing is left to find."""
        while len(self._basis) < size:
            probe = white_noise(self._x, self._seed + len(self._basis))
            # The range of R^-1 H, in which the leading modes are.
            image = self._prior.solve(self._hessian(probe))
            before = self._norm(image)
            for _ in range(2):  # once is not enough against rounding
                for q, weighted in zip(self._basis, self._weighted, strict=True):
                    image.axpy(-dot(weighted, image), q)
            after = self._norm(image)
            # Nothing is left outside of the span: H has no further directions.
            if after <= 1e-13 * before:
                return True
            image.scale(1.0 / after)
            self._basis.append(image)
            self._weighted.append(self._prior.apply(image))
            # Second pass: Q^T H Q, exact on the basis (Rayleigh-Ritz), as Q^T R Q = I. It grows
            # by a row and a column for each new direction.
            column = self._hessian(image)
            self._project([dot(q, column) for q in self._basis])
        return size >= self._x.getSize()

    def eigenpairs(self) -> tuple[Array, Array]:
        """Return the eigenvalues in the basis, decreasing, and their vectors as columns."""
        values, vectors = np.linalg.eigh(self._projected)
        return values[::-1], vectors[:, ::-1]

    def combine(self, weights: Array) -> PETSc.Vec:
        """Return Q weights as a new vector."""
        out = self._x.duplicate()
        out.zeroEntries()
        out.maxpy(weights.tolist(), self._basis)
        return out

    def _project(self, column: list[float]) -> None:
        old = self._projected
        size = len(column)
        self._projected = np.zeros((size, size))
        self._projected[:-1, :-1] = old
        self._projected[:, -1] = column
        self._projected[-1, :] = column

    def _hessian(self, v: PETSc.Vec) -> PETSc.Vec:
        self.products += 1
        out: PETSc.Vec = self._product(self._x, v)
        return out

    def _norm(self, v: PETSc.Vec) -> float:
        image = self._prior.root(v)
        return math.sqrt(dot(image, image))
