"""The compiled extensions: what libpetsc has and petsc4py lacks, and calls of C functions."""

# First petsc4py: the extension finds libpetsc because petsc4py has loaded the library of that name,
# which holds for every way of installing PETSc.
from petsc4py import PETSc as _PETSc  # noqa: F401  # pyright: ignore[reportUnusedImport]

from daeosens._petsc.bicgstab import BICGSTAB, take_passes
from daeosens._petsc.bindings import (
    has_transpose,
    lock_onto,
    no_options,
    rk_tableau,
    stages,
)
from daeosens._petsc.blocks import carry, carry_together, fill_stages, wake
from daeosens._petsc.chained import CHAINED, set_chained
from daeosens._petsc.dense import DENSE, DenseSteps
from daeosens._petsc.derivative_numbers import (
    DerivativeNumber,
    entry,
    install,
    together,
    value_of_number,
)
from daeosens._petsc.esdirk import ESDIRK, EsdirkSteps
from daeosens._petsc.explicit_steps import EXPLICIT, ExplicitSteps
from daeosens._petsc.factor_steps import FactorSteps
from daeosens._petsc.interpolants import Interpolant, interpolate
from daeosens._petsc.linear_steps import LinearSteps, SecondSweep
from daeosens._petsc.natives import call_into, call_number, call_points, fill_matrix
from daeosens._petsc.newton import know_rounding, take_remainder
from daeosens._petsc.numbers import finite_numbers, numbers_of, put_numbers
from daeosens._petsc.pooled import pool_memory, vec_to_fill
from daeosens._petsc.pulls import FactorPulls, MatrixPulls, Pulls, Sums
from daeosens._petsc.registered import Registered, take_point
from daeosens._petsc.stencil_ts import RegisteredStencil, create_matrix, linearise_matrix
from daeosens._petsc.stencils import Stencil
from daeosens._petsc.steps import Steps, add_monitor, next_step
from daeosens._petsc.sweeps import add_point, carry_back
from daeosens._petsc.theta_steps import pull_theta_steps
from daeosens._petsc.trials import reject_trial, smallest_trial, survive_trials, take_step

__all__ = [
    "BICGSTAB",
    "CHAINED",
    "DENSE",
    "ESDIRK",
    "EXPLICIT",
    "DenseSteps",
    "DerivativeNumber",
    "EsdirkSteps",
    "ExplicitSteps",
    "FactorPulls",
    "FactorSteps",
    "Interpolant",
    "LinearSteps",
    "MatrixPulls",
    "Pulls",
    "Registered",
    "RegisteredStencil",
    "SecondSweep",
    "Stencil",
    "Steps",
    "Sums",
    "add_monitor",
    "add_point",
    "call_into",
    "call_number",
    "call_points",
    "carry",
    "carry_back",
    "carry_together",
    "create_matrix",
    "entry",
    "fill_matrix",
    "fill_stages",
    "finite_numbers",
    "has_transpose",
    "install",
    "interpolate",
    "know_rounding",
    "linearise_matrix",
    "lock_onto",
    "next_step",
    "no_options",
    "numbers_of",
    "pool_memory",
    "pull_theta_steps",
    "put_numbers",
    "reject_trial",
    "rk_tableau",
    "set_chained",
    "smallest_trial",
    "stages",
    "survive_trials",
    "take_passes",
    "take_point",
    "take_remainder",
    "take_step",
    "together",
    "value_of_number",
    "vec_to_fill",
    "wake",
]
