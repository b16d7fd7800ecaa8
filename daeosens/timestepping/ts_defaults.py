"""TS set up for runs: its default options, times and tolerances, and steps in few passes."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petsc4py import PETSc

from daeosens.methods.linear_solver import MULTILEVEL, coarsen_points, linear_defaults
from daeosens.methods.method import Method
from daeosens.petsc._kernels import (
    DENSE,
    EXPLICIT,
    RegisteredStencil,
    know_rounding,
    set_chained,
    survive_trials,
    take_passes,
)
from daeosens.problem.problem import Problem
from daeosens.timestepping.c_rhs import registered_with
from daeosens.timestepping.preflight import refuse_other_method
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Recording

SMALLER_STEPS: Mapping[str, Any] = {"ts_max_snes_failures": -1, "ts_max_step_rejections": 100}
"""Where a trial step fails, an adaptive one is tried again with another size; so often in a row."""

GROWTH: Mapping[str, Any] = {"ts_adapt_clip": "0.1,4"}
"""Steps become at most four times longer from one to the next: what a jump of the size would pass
over the state may not see, and derivatives do."""

ANY_SIZE: Mapping[str, Any] = {"ts_adapt_dt_min": 0.0}
"""PETSc takes steps of 1e-20 whatever their error is, which is long for what lasts 1e-18 s."""

LARGEST_ERROR: Mapping[str, Any] = {"ts_adapt_wnormtype": "infinity"}
"""Each unknown satisfies the tolerance, but for the points of a grid, whose mean error does."""

IN_PARTS = 1e-8
"""The relative tolerance of multigrid in runs: the next Newton iteration corrects what is left, and
there is one until that is below 1e-12, of affine equations too.  PETSc's adjoint has no such."""

ROUNDING = 1e-12
"""Relative errors below which tolerances are not made smaller than they are."""

_TS: Any = PETSc.TS  # the stubs of petsc4py 3.26 give enumerations the wrong type


def default_options(
    problem: Problem, stepping: Stepping, ts: PETSc.TS, record: Recording
) -> dict[str, Any]:
    """Return the library's PETSc options for a TS."""
    defaults: dict[str, Any] = {"ts_adapt_type": "basic" if stepping.adaptive else "none"}
    if stepping.adaptive:
        defaults |= SMALLER_STEPS
        defaults |= GROWTH
        defaults |= ANY_SIZE
        # PETSc's own limit is 1e20, which a span in small units may exceed
        defaults["ts_adapt_dt_max"] = stepping.t_span[1] - stepping.t_span[0]
        if problem.dm is None:
            defaults |= LARGEST_ERROR
    if stepping.max_step is not None:
        defaults["ts_adapt_dt_max"] = stepping.max_step
    method = stepping.resolved_method
    defaults |= method.defaults
    if stepping.adaptive:
        defaults |= method.adaptive_defaults
    if not method.explicit:
        if problem.coloring:
            defaults["snes_fd_color"] = None
        elif ts.getType() != DENSE:
            matrix = ts.getIJacobian()[0]
            defaults |= linear_defaults(matrix, stepping.options, problem.dm)
            if defaults.get("pc_type") in MULTILEVEL and record not in ("memory", "disk"):
                defaults["ksp_rtol"] = IN_PARTS
    if record in ("memory", "disk"):
        ts.setSaveTrajectory()
        defaults["ts_trajectory_type"] = "memory" if record == "memory" else "basic"
        if record == "disk":
            defaults["ts_trajectory_dirname"] = _shared_folder(problem.comm)
            # PETSc 3.26 writes options beside each state, and reads them back into the database.
            defaults["viewer_binary_skip_info"] = None
    return defaults


def _shared_folder(comm: PETSc.Comm) -> str:
    """Name a temporary folder, which PETSc makes and removes with the trajectory.  Collective.

    It must not exist yet: PETSc 3.26 takes an existing folder for one in use.
    """
    name = f"daeosens-{uuid.uuid4().hex}" if comm.rank == 0 else ""
    return str(Path(tempfile.gettempdir()) / comm.tompi4py().bcast(name))


def estimates_below(stepping: Stepping, problem: Problem) -> tuple[float, float]:
    """Return the tolerances that error estimates are compared with; not less than rounding."""
    (rtol, atol), share = stepping.tolerances, stepping.resolved_method.share_of_tolerance(problem)
    share = max(share, min(1.0, ROUNDING / rtol))
    return share * rtol, share * atol


def set_up(
    ts: PETSc.TS, problem: Problem, u: PETSc.Vec, stepping: Stepping, record: Recording
) -> None:
    """Give a TS times, steps, PETSc's options and a copy of the state [n], and set it up.

    Raises
    ------
    OptionError
        Options that change the method.
    """
    ts.setTime(stepping.t_span[0])
    ts.setMaxTime(stepping.t_span[1])
    ts.setTimeStep(stepping.first_step)
    ts.setMaxSteps(stepping.max_steps)
    ts.setExactFinalTime(_TS.ExactFinalTime.MATCHSTEP)
    if stepping.adaptive:
        rtol, atol = estimates_below(stepping, problem)
        ts.setTolerances(rtol=rtol, atol=atol)
    ts.setFromOptions()
    if ts.getType() not in (DENSE, EXPLICIT):  # those have no options
        refuse_other_method(ts, stepping.resolved_method)
        _solve_in_passes(ts, stepping.resolved_method)
    if record not in ("memory", "disk") and not stepping.adaptive:
        _step_in_passes(ts, stepping.resolved_method)
    ts.setSolution(u.copy())
    implicit = not stepping.resolved_method.explicit and ts.getType() != DENSE
    if ts.getType() != DENSE:  # that one survives by itself
        survive_trials(ts)
    if implicit:
        know_rounding(ts.getSNES())
    ts.setUp()
    if implicit:
        coarsen_points(ts.getSNES().getKSP(), u.getDM())  # TS has set another DM by now


def _solve_in_passes(ts: PETSc.TS, method: Method) -> None:
    """Replace KSPBCGS where an iteration can be a few passes over the vectors."""
    if not method.explicit:
        matrix = ts.getIJacobian()[0]
        differenced = PETSc.Options().getBool("snes_mf_operator", False)
        if matrix and not differenced:  # there is none yet where PETSc colors
            take_passes(ts.getSNES().getKSP(), matrix)


def _step_in_passes(ts: PETSc.TS, method: Method) -> None:
    """Replace TSRK where each stage can be one pass over the vectors of compiled points."""
    registered = registered_with(ts)
    controlled = PETSc.Options().getString("ts_adapt_type", "none") != "none"
    if method.chain and isinstance(registered, RegisteredStencil) and not controlled:
        set_chained(ts, registered, *method.chain)
