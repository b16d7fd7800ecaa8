"""The compiled extensions: what libpetsc has and petsc4py lacks, and calls of C functions.

In come PETSc objects, arrays and addresses of C functions; loops over steps or points run without
Python.  ``ts_types`` are types of TS, ``sweeps`` recurrences of derivatives, ``grids`` loops over
the points of grids; beside these ``bindings`` (of libpetsc), ``natives`` (calls of C functions) and
``steps`` (the log of a run).  Each .pyx has a .pyi that says what it takes.

Read first: docs/architecture.md, "Steps in C"; then ``ts_types/dense_steps.c``.
"""

# First petsc4py: the extension finds libpetsc because petsc4py has loaded the library of that name,
# which holds for every way of installing PETSc.
from petsc4py import PETSc as _PETSc  # noqa: F401  # pyright: ignore[reportUnusedImport]

from daeosens.petsc._kernels.arnoldi import projected, skew_norm
from daeosens.petsc._kernels.bindings import (
    end_at_last_stage,
    has_transpose,
    lock_onto,
    no_options,
    register_rk,
    rk_tableau,
    stages,
)
from daeosens.petsc._kernels.delayed import look_back, take_stages
from daeosens.petsc._kernels.derivative_numbers import (
    DerivativeNumber,
    entry,
    install,
    together,
    value_of_number,
)
from daeosens.petsc._kernels.grids.bicgstab import BICGSTAB, take_passes
from daeosens.petsc._kernels.grids.multigrid import (
    levels_in_use,
    smooth_short_steps,
    upwind_levels,
)
from daeosens.petsc._kernels.grids.pooled import pool_memory, vec_to_fill
from daeosens.petsc._kernels.grids.stencil_ts import (
    RegisteredStencil,
    create_matrix,
    linearise_matrix,
)
from daeosens.petsc._kernels.grids.stencils import Stencil
from daeosens.petsc._kernels.interpolants import Interpolant, interpolate
from daeosens.petsc._kernels.natives import call_into, call_number, call_points, fill_matrix
from daeosens.petsc._kernels.newton import know_rounding, take_remainder
from daeosens.petsc._kernels.numbers import (
    finite_numbers,
    numbers_of,
    put_finite_matrix,
    put_finite_numbers,
    put_numbers,
)
from daeosens.petsc._kernels.python_functions import PythonFunctions
from daeosens.petsc._kernels.registered import Registered, take_point
from daeosens.petsc._kernels.steps import Steps, add_monitor, count_steps, next_step
from daeosens.petsc._kernels.sweeps.blocks import carry, carry_together, wake
from daeosens.petsc._kernels.sweeps.factor_steps import FactorSteps
from daeosens.petsc._kernels.sweeps.linear_steps import LinearSteps, SecondSweep
from daeosens.petsc._kernels.sweeps.point_costs import add_point
from daeosens.petsc._kernels.sweeps.pulls import FactorPulls, MatrixPulls, Pulls, Sums
from daeosens.petsc._kernels.sweeps.theta_steps import pull_theta_steps
from daeosens.petsc._kernels.trials import reject_trial, smallest_trial, survive_trials, take_step
from daeosens.petsc._kernels.ts_types.chained import CHAINED, set_chained
from daeosens.petsc._kernels.ts_types.dense import DENSE, DenseSteps
from daeosens.petsc._kernels.ts_types.esdirk import ESDIRK, EsdirkSteps
from daeosens.petsc._kernels.ts_types.explicit_steps import EXPLICIT, ExplicitSteps
from daeosens.petsc._kernels.ts_types.starting_step import starting_step

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
    "PythonFunctions",
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
    "carry_together",
    "count_steps",
    "create_matrix",
    "end_at_last_stage",
    "entry",
    "fill_matrix",
    "finite_numbers",
    "has_transpose",
    "install",
    "interpolate",
    "know_rounding",
    "levels_in_use",
    "linearise_matrix",
    "lock_onto",
    "look_back",
    "next_step",
    "no_options",
    "numbers_of",
    "pool_memory",
    "projected",
    "pull_theta_steps",
    "put_finite_matrix",
    "put_finite_numbers",
    "put_numbers",
    "register_rk",
    "reject_trial",
    "rk_tableau",
    "set_chained",
    "skew_norm",
    "smallest_trial",
    "smooth_short_steps",
    "stages",
    "starting_step",
    "survive_trials",
    "take_passes",
    "take_point",
    "take_remainder",
    "take_stages",
    "take_step",
    "together",
    "upwind_levels",
    "value_of_number",
    "vec_to_fill",
    "wake",
]
