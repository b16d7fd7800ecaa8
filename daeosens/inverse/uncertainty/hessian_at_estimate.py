"""Small dense Hessians of a functional, with the names of its variables."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, UnsupportedError, is_one_of
from daeosens.functional.functional import (
    Functional,
    HasDenseGaussNewton,
    HasDenseHessian,
    normal_matrix,
)
from daeosens.functional.parameters import labels
from daeosens.inverse.identifiability import symmetric
from daeosens.optimize.tao.newton import dense_by_products
from daeosens.petsc.vectors import Array, finite_array, gather

HessianKind: TypeAlias = Literal["exact", "gauss_newton"]
"""The whole Hessian, or J_r^T J_r with the Jacobian of the residuals and priors."""


def curvature(functional: Functional, x: PETSc.Vec, hessian: HessianKind = "exact") -> Array:
    """Return the Hessian [k, k] of J at x, or its Gauss-Newton part, on every rank.  Collective.

    Raises
    ------
    InputError
        An unknown kind.
    UnsupportedError
        The functional has no such Hessian.
    """
    if not is_one_of(hessian, "exact", "gauss_newton"):
        raise InputError(f"hessian = {hessian!r}", expected='"exact" or "gauss_newton"')
    able: Any = functional
    # Whole matrices where there are any: their columns share sweeps. Products come last.
    if hessian == "exact" and isinstance(able, HasDenseHessian):
        return symmetric(finite_array(able.hessian(x), "the Hessian"))
    if hessian == "gauss_newton" and isinstance(able, HasDenseGaussNewton):
        return symmetric(finite_array(able.gauss_newton_matrix(x), "the Gauss-Newton matrix"))
    if hessian == "gauss_newton" and hasattr(able, "residual_jacobian"):
        return normal_matrix(able.residual_jacobian(x))
    name = "hessian_product" if hessian == "exact" else "gauss_newton_product"
    if not hasattr(able, name):
        raise UnsupportedError(
            f'hessian = "{hessian}" for a functional without {name}',
            expected=f"{name}(x, dx) -> Vec",
            remedy='hessian="gauss_newton"' if hessian == "exact" else 'hessian="exact"',
        )
    return symmetric(finite_array(dense_by_products(getattr(able, name), x), "the Hessian"))


def on_bound(functional: Functional, x: PETSc.Vec) -> tuple[str, ...]:
    """Return the names of the components of x that are on a bound.  Collective."""
    bounds = functional.bounds()
    if bounds is None:
        return ()
    names, _ = labels(functional, x.getSize())
    point, lower, upper = gather(x), gather(bounds[0]), gather(bounds[1])
    # infinite bounds are never near
    near = [1e-9 * np.where(np.isfinite(side), np.abs(side), 0.0) for side in (lower, upper)]
    touching = (point <= lower + near[0]) | (point >= upper - near[1])
    return tuple(name for name, touches in zip(names, touching, strict=True) if touches)
