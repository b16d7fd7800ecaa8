"""Derivatives of time-dependent simulations, and inverse problems solved with them."""

import importlib

try:  # nothing works without it, and the remedy is known
    importlib.import_module("petsc4py")
except ImportError as error:
    raise ImportError(
        "daeosens needs petsc4py 3.26, which cannot be imported\n"
        "  try: scripts/setup, which builds it, or conda install -c conda-forge petsc4py=3.26"
    ) from error

from daeosens.costs.event_data import EventData
from daeosens.costs.least_squares import LeastSquares
from daeosens.costs.objective import AtEvent, EventTime, Running, Terminal
from daeosens.costs.prior import Prior
from daeosens.derivatives.adjoint import Gradient, adjoint, evaluate
from daeosens.derivatives.discretization_error import ErrorEstimate, derivative_error
from daeosens.derivatives.fixed_time import at_fixed_times
from daeosens.derivatives.hessian import HessianProduct, hessian_product, hessian_products
from daeosens.derivatives.residual_jacobian import gauss_newton_product
from daeosens.derivatives.sensitivities import Sensitivities, sensitivities
from daeosens.derivatives.solve import solve
from daeosens.derivatives.tangent import Tangent, tangent, tangents
from daeosens.errors import (
    DaeosensError,
    DiscretizationWarning,
    GrazingError,
    InputError,
    KinkWarning,
    LinearSolverError,
    NewtonError,
    OptionError,
    SingularMatrixError,
    SolveError,
    SolverErrorWarning,
    StartWarning,
    UnsupportedError,
)
from daeosens.functional.distributed_controls import FieldParameter, InitialState
from daeosens.functional.ensemble import Ensemble, solve_batch
from daeosens.functional.joint import Joint
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.functional.reduced import Reduced
from daeosens.inverse import fit, likelihood
from daeosens.inverse.fit_discretization import Discretization
from daeosens.inverse.fit_result import Fit
from daeosens.inverse.identifiability import identifiability
from daeosens.inverse.likelihood.experiments import Experiment
from daeosens.inverse.likelihood.noise import LogNormal, Normal
from daeosens.inverse.search.multistart import Multistart, multistart
from daeosens.inverse.search.start_points import starting_points
from daeosens.inverse.uncertainty.covariance import Covariance, covariance
from daeosens.inverse.uncertainty.gaussian_prior import GaussianPrior, matern
from daeosens.inverse.uncertainty.laplace import Posterior, laplace
from daeosens.inverse.uncertainty.prediction import Prediction, predict
from daeosens.inverse.uncertainty.profiles import Profile, Profiles, profile
from daeosens.inverse.uncertainty.regularized import Regularized
from daeosens.optimize import Result, minimize
from daeosens.optimize.constrained.constraints import Constraint
from daeosens.optimize.constrained.result import ConstrainedResult
from daeosens.optimize.scipy_bridge import scipy_functions
from daeosens.petsc.c_function import Native
from daeosens.petsc.ranks import end_quietly_behind_closed_pipe
from daeosens.problem.controls import PiecewiseConstant, PiecewiseLinear, Spline
from daeosens.problem.doses import Doses, with_doses
from daeosens.problem.equations import DAE, ODE
from daeosens.problem.event import Event
from daeosens.problem.event_kinds import NamedEvent, System, events_named, saturated, with_events
from daeosens.problem.matrices import Products
from daeosens.problem.modes import hybrid
from daeosens.problem.problem import AUTONOMOUS, COLORING, INDEPENDENT, Problem
from daeosens.timestepping.consistent_start import consistent_state
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Trajectory
from daeosens.tracing import Model, Parametrized, trace, trace_residual, trace_stencil
from daeosens.verify.check import check
from daeosens.verify.taylor import Taylor, duality, taylor

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
    "Doses",
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
    "SolverErrorWarning",
    "Spline",
    "StartWarning",
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
    "with_doses",
    "with_events",
]
