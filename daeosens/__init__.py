"""Derivatives of time-dependent simulations, and inverse problems solved with them."""

import importlib

try:  # nothing works without it, and the remedy is known
    importlib.import_module("petsc4py")
except ImportError as error:
    raise ImportError(
        "daeosens needs petsc4py 3.26, which cannot be imported\n"
        "  try: scripts/setup, which builds it, or conda install -c conda-forge petsc4py=3.26"
    ) from error

from daeosens.adjoint import Gradient, adjoint, evaluate
from daeosens.callbacks import check
from daeosens.consistent import consistent_state
from daeosens.controls import PiecewiseConstant, PiecewiseLinear, Spline
from daeosens.cost import INDEPENDENT
from daeosens.discretization import ErrorEstimate, derivative_error
from daeosens.ensembles import Ensemble, solve_batch
from daeosens.equations import DAE, ODE
from daeosens.errors import (
    DaeosensError,
    GrazingError,
    InputError,
    KinkWarning,
    LinearSolverError,
    NewtonError,
    OptionError,
    SingularMatrixError,
    SolveError,
    UnsupportedError,
)
from daeosens.event_data import EventData
from daeosens.event_kinds import NamedEvent, System, events_named, saturated, with_events
from daeosens.events import Event
from daeosens.fields import FieldParameter, InitialState
from daeosens.fixed_times import at_fixed_times
from daeosens.forward import solve
from daeosens.hybrid import hybrid
from daeosens.inverse import fit, likelihood
from daeosens.inverse.experiments import Experiment
from daeosens.inverse.fit_discretization import Discretization, DiscretizationWarning
from daeosens.inverse.fitted import Fit
from daeosens.inverse.gaussian import GaussianPrior, matern
from daeosens.inverse.identifiability import identifiability
from daeosens.inverse.laplace import Posterior, laplace
from daeosens.inverse.multistart import Multistart, multistart
from daeosens.inverse.noise import LogNormal, Normal
from daeosens.inverse.prediction import Prediction, predict
from daeosens.inverse.profiles import Profile, Profiles, profile
from daeosens.inverse.regularized import Regularized
from daeosens.inverse.start_points import starting_points
from daeosens.inverse.uncertainty import Covariance, covariance
from daeosens.joint import Joint
from daeosens.least_squares import LeastSquares
from daeosens.matrices import Products
from daeosens.native import Native
from daeosens.objective import AtEvent, EventTime, Running, Terminal
from daeosens.optimize import Result, minimize
from daeosens.optimize.constrained_result import ConstrainedResult
from daeosens.optimize.constraints import Constraint
from daeosens.optimize.scipy_bridge import scipy_functions
from daeosens.parameter import Parameter
from daeosens.parameters import Parameters
from daeosens.prior import Prior
from daeosens.problem import AUTONOMOUS, COLORING, Problem
from daeosens.ranks import end_quietly_behind_closed_pipe
from daeosens.reduced import Reduced
from daeosens.residuals import gauss_newton_product
from daeosens.second_order import HessianProduct, hessian_product, hessian_products
from daeosens.sensitivity import Sensitivities, sensitivities
from daeosens.stepping import Stepping
from daeosens.tangent import Tangent, tangent, tangents
from daeosens.tracing import Model, Parametrized, trace, trace_residual, trace_stencil
from daeosens.trajectory import Trajectory
from daeosens.verify import Taylor, duality, taylor

__version__ = "0.1.0"

end_quietly_behind_closed_pipe()

__all__ = [
    "AUTONOMOUS",
    "COLORING",
    "DAE",
    "INDEPENDENT",
    "ODE",
    "AtEvent",
    "ConstrainedResult",
    "Constraint",
    "Covariance",
    "DaeosensError",
    "Discretization",
    "DiscretizationWarning",
    "Ensemble",
    "ErrorEstimate",
    "Event",
    "EventData",
    "EventTime",
    "Experiment",
    "FieldParameter",
    "Fit",
    "GaussianPrior",
    "Gradient",
    "GrazingError",
    "HessianProduct",
    "InitialState",
    "InputError",
    "Joint",
    "KinkWarning",
    "LeastSquares",
    "LinearSolverError",
    "LogNormal",
    "Model",
    "Multistart",
    "NamedEvent",
    "Native",
    "NewtonError",
    "Normal",
    "OptionError",
    "Parameter",
    "Parameters",
    "Parametrized",
    "PiecewiseConstant",
    "PiecewiseLinear",
    "Posterior",
    "Prediction",
    "Prior",
    "Problem",
    "Products",
    "Profile",
    "Profiles",
    "Reduced",
    "Regularized",
    "Result",
    "Running",
    "Sensitivities",
    "SingularMatrixError",
    "SolveError",
    "Spline",
    "Stepping",
    "System",
    "Tangent",
    "Taylor",
    "Terminal",
    "Trajectory",
    "UnsupportedError",
    "adjoint",
    "at_fixed_times",
    "check",
    "consistent_state",
    "covariance",
    "derivative_error",
    "duality",
    "evaluate",
    "events_named",
    "fit",
    "gauss_newton_product",
    "hessian_product",
    "hessian_products",
    "hybrid",
    "identifiability",
    "laplace",
    "likelihood",
    "matern",
    "minimize",
    "multistart",
    "predict",
    "profile",
    "saturated",
    "scipy_functions",
    "sensitivities",
    "solve",
    "solve_batch",
    "starting_points",
    "tangent",
    "tangents",
    "taylor",
    "trace",
    "trace_residual",
    "trace_stencil",
    "with_events",
]
