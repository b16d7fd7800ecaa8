"""Sweeps over a run: tangents, adjoints, sensitivities, products with Hessians.

In come a ``Trajectory`` and costs or directions; out come gradients, tangents and products that are
exact for the steps that were taken.  ``engines`` are the ways to sweep over a smooth piece: vector
by vector, arrays over all points, compiled loops, PETSc's own adjoint.

Read first: ``solve`` (a run), ``adjoint``, ``hessian``; which engine runs: ``engines/choice``.
"""

from daeosens.derivatives.adjoint import Gradient, evaluate
from daeosens.derivatives.discretization_error import ErrorEstimate, derivative_error
from daeosens.derivatives.fixed_time import at_fixed_times
from daeosens.derivatives.hessian import HessianProduct
from daeosens.derivatives.plan import Plan, plan
from daeosens.derivatives.residual_jacobian import gauss_newton_product
from daeosens.derivatives.sensitivities import Sensitivities
from daeosens.derivatives.tangent import Tangent

__all__ = [
    "ErrorEstimate",
    "Gradient",
    "HessianProduct",
    "Plan",
    "Sensitivities",
    "Tangent",
    "at_fixed_times",
    "derivative_error",
    "evaluate",
    "gauss_newton_product",
    "plan",
]
