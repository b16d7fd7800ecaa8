"""Minimisation by PETSc TAO: with gradients, Hessians or residuals, bounds and constraints."""

from daeosens.optimize.constrained.constraints import Constraint
from daeosens.optimize.constrained.result import ConstrainedResult
from daeosens.optimize.minimize import minimize
from daeosens.optimize.result import Result
from daeosens.optimize.scipy_bridge import scipy_functions

__all__ = [
    "ConstrainedResult",
    "Constraint",
    "Result",
    "minimize",
    "scipy_functions",
]
