"""Minimisation by PETSc TAO: with gradients, Hessians or residuals, bounds and constraints."""

from daeosens.optimize.constrained.constraints import Constraint
from daeosens.optimize.constrained.result import ConstrainedResult
from daeosens.optimize.methods import METHODS
from daeosens.optimize.minimize import minimize
from daeosens.optimize.result import HEADING, History, Iterate, Result
from daeosens.optimize.scipy_bridge import scipy_functions

__all__ = [
    "HEADING",
    "METHODS",
    "ConstrainedResult",
    "Constraint",
    "History",
    "Iterate",
    "Result",
    "minimize",
    "scipy_functions",
]
