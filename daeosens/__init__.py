"""Derivatives of time-dependent simulations, and inverse problems solved with them."""

import importlib

try:  # nothing works without these two, and the remedies are known
    importlib.import_module("petsc4py")
except ImportError as error:
    raise ImportError(
        "daeosens needs petsc4py 3.26, which cannot be imported\n"
        "  try: scripts/setup, which builds it, or conda install -c conda-forge petsc4py=3.26"
    ) from error
try:
    importlib.import_module("daeosens.petsc._kernels")
except ImportError as error:
    raise ImportError(
        f"the compiled part of daeosens is missing, or older than its sources: {error}\n"
        "  try: scripts/setup in the checkout, or pip install --no-build-isolation ."
    ) from error

from daeosens.costs.least_squares import LeastSquares
from daeosens.costs.objective import Running, Terminal
from daeosens.costs.prior import Prior
from daeosens.derivatives.adjoint import adjoint
from daeosens.derivatives.hessian import hessian_product
from daeosens.derivatives.sensitivities import sensitivities
from daeosens.derivatives.solve import solve
from daeosens.derivatives.tangent import tangent
from daeosens.errors import (
    DaeosensError,
    InputError,
    SolveError,
    UnsupportedError,
)
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.functional.reduced import Reduced
from daeosens.inverse import fit
from daeosens.inverse.likelihood.experiments import Experiment
from daeosens.optimize import minimize
from daeosens.optimize.constrained.constraints import Constraint
from daeosens.petsc.ranks import end_quietly_behind_closed_pipe, install_abort_hook
from daeosens.problem.delay_equations import DDE
from daeosens.problem.equations import DAE, ODE
from daeosens.problem.event import Event
from daeosens.problem.modes import hybrid
from daeosens.timestepping.consistent_start import consistent_state
from daeosens.timestepping.stepping import Stepping
from daeosens.tracing import DAEO, trace, trace_stencil
from daeosens.verify.check import check
from daeosens.verify.taylor import taylor

__version__ = "0.1.0"

end_quietly_behind_closed_pipe()
install_abort_hook()

__all__ = [
    "DAE",
    "DAEO",
    "DDE",
    "ODE",
    "Constraint",
    "DaeosensError",
    "Event",
    "Experiment",
    "InputError",
    "LeastSquares",
    "Parameter",
    "Parameters",
    "Prior",
    "Reduced",
    "Running",
    "SolveError",
    "Stepping",
    "Terminal",
    "UnsupportedError",
    "adjoint",
    "check",
    "consistent_state",
    "fit",
    "hessian_product",
    "hybrid",
    "minimize",
    "sensitivities",
    "solve",
    "tangent",
    "taylor",
    "trace",
    "trace_stencil",
]
