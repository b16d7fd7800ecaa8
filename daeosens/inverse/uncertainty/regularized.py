"""A misfit with what is known beforehand, to be minimised before its posterior is known."""

from __future__ import annotations

from typing import Any

from petsc4py import PETSc

from daeosens.errors import require
from daeosens.functional.functional import (
    Functional,
    HasGaussNewton,
    HasHessian,
    require_functional,
)
from daeosens.inverse.uncertainty.field_terms import FieldPenalty
from daeosens.inverse.uncertainty.gaussian_prior import GaussianPrior


class Regularized:
    """A misfit plus a Gaussian prior, or a penalty, with every ability of the misfit.

    All that it gives is collective on ``comm``.

    Parameters
    ----------
    misfit : Functional
        J without the prior; another ``Regularized``, for a prior and penalties.
    prior : GaussianPrior or FieldPenalty
        The negative logarithm of the former, or the latter, is added.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.36], sigma=0.1)
    >>> rates = Parameters({"rate": Parameter(0.5, lower=0.1, upper=2.0)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), rates)
    >>> from daeosens import minimize
    >>> from daeosens.inverse import GaussianPrior
    >>> both = Regularized(functional, GaussianPrior(functional.start(), weight=4.0))
    >>> print(f"{minimize(both, method='bnls').x[0]:.3f}")
    0.510
    """

    def __init__(self, misfit: Functional, prior: GaussianPrior | FieldPenalty) -> None:
        require_functional(misfit)
        if not isinstance(prior, FieldPenalty):
            require(prior, GaussianPrior, "prior", "GaussianPrior(mean, ...), or matern(grid, ...)")
        self.misfit, self.prior, self.comm = misfit, prior, misfit.comm
        # Abilities are told by the presence of methods, so the sum has only those that the misfit
        # has.
        if isinstance(misfit, HasHessian):
            self.hessian_product = self._hessian_product
        if isinstance(misfit, HasGaussNewton):
            self.gauss_newton_product = self._gauss_newton_product
        if hasattr(misfit, "check_second_order"):
            able: Any = misfit
            self.check_second_order = able.check_second_order

    def start(self) -> PETSc.Vec:
        """Return the misfit's start."""
        return self.misfit.start()

    def bounds(self) -> tuple[PETSc.Vec, PETSc.Vec] | None:
        """Return the misfit's bounds."""
        return self.misfit.bounds()

    def value(self, x: PETSc.Vec) -> float:
        """Return the sum."""
        return self.misfit.value(x) + self.prior.value(x)

    def gradient(self, x: PETSc.Vec) -> PETSc.Vec:
        """Return its gradient as a new vector."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: PETSc.Vec) -> tuple[float, PETSc.Vec]:
        """Return both."""
        value, gradient = self.misfit.value_and_gradient(x)
        gradient.axpy(1.0, self.prior.gradient(x))
        return value + self.prior.value(x), gradient

    def _hessian_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        able: Any = self.misfit
        product: PETSc.Vec = able.hessian_product(x, dx)
        product.axpy(1.0, self._prior_product(x, dx))
        return product

    def _gauss_newton_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        able: Any = self.misfit
        product: PETSc.Vec = able.gauss_newton_product(x, dx)
        product.axpy(1.0, self._prior_product(x, dx))
        return product

    def _prior_product(self, x: PETSc.Vec, dx: PETSc.Vec) -> PETSc.Vec:
        if isinstance(self.prior, FieldPenalty):
            return self.prior.hessian_product(x, dx)
        return self.prior.apply(dx)
