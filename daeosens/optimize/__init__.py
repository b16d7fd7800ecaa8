"""Minimisation by PETSc TAO: with gradients, Hessians or residuals, bounds and constraints.

In come a ``Functional`` (value, gradient, products with the Hessian or residuals), a method's name
and perhaps constraints; out comes a ``Result`` with its history.  ``tao`` is all that calls TAO,
``constrained`` the augmented Lagrangian and IPOPT; a solve that fails at a trial point is a barrier
(``failed_solve_barrier``), and ``restart`` lets a minimisation go on from its last iterate.

Read first: ``minimize``, ``methods`` (what each can), ``tao/run``.
"""

from daeosens.optimize.constrained.constraints import Constraint
from daeosens.optimize.constrained.result import ConstrainedResult
from daeosens.optimize.minimize import minimize
from daeosens.optimize.result import Result
from daeosens.optimize.saved_results import load_result, save_result
from daeosens.optimize.scipy_bridge import scipy_functions

__all__ = [
    "ConstrainedResult",
    "Constraint",
    "Result",
    "load_result",
    "minimize",
    "save_result",
    "scipy_functions",
]
