"""Minimisation by PETSc TAO: with gradients, Hessians or residuals, bounds and constraints."""

from daeosens.optimize.constrained_result import ConstrainedResult
from daeosens.optimize.constraints import Constraint
from daeosens.optimize.iterate import HEADING, History, Iterate, Result
from daeosens.optimize.minimization import minimize
from daeosens.optimize.optimizers import METHODS
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
