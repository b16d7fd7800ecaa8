"""Runs repeated from their logs, for PETSc's own trajectory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from petsc4py import PETSc

from daeosens.methods.linear_solver import coarsen_points
from daeosens.petsc._kernels import know_rounding
from daeosens.petsc.options import scoped_options
from daeosens.timestepping.c_rhs import Held
from daeosens.timestepping.trajectory.trajectory import Trajectory
from daeosens.timestepping.ts import make_ts
from daeosens.timestepping.ts_defaults import default_options

_TS: Any = PETSc.TS  # the stubs of petsc4py 3.26 give enumerations the wrong type


def replay(trajectory: Trajectory, prepare: Callable[[PETSc.TS], None]) -> PETSc.TS:
    """Repeat a run step by step with PETSc's own trajectory switched on, and return its TS.

    The accepted steps are taken from the log, never decided again.  ``prepare`` is called on the TS
    before it is set up.
    """
    record = "disk" if trajectory.record == "disk" else "memory"
    problem, stepping = trajectory.problem, trajectory.stepping
    sizes = trajectory.step_sizes
    state = trajectory.stored[0].copy()
    beyond = 2 * stepping.t_span[1] - stepping.t_span[0] + 1.0  # never reached: the steps decide
    ts = make_ts(
        problem,
        stepping.resolved_method,
        stepping.t_span[0],
        state,
        Held(trajectory.p),
        record=record,
    )
    ts.setTime(stepping.t_span[0])
    ts.setTimeStep(float(sizes[0]))

    def before_step(ts: PETSc.TS) -> None:
        ts.setTimeStep(float(sizes[ts.getStepNumber()]))

    ts.setPreStep(before_step)
    prepare(ts)
    defaults = default_options(problem, stepping, ts, record) | {"ts_adapt_type": "none"}
    with scoped_options(defaults=defaults, code=stepping.options):
        ts.setFromOptions()
        ts.setMaxSteps(len(sizes))
        ts.setMaxTime(beyond)
        ts.setExactFinalTime(_TS.ExactFinalTime.STEPOVER)
        ts.setSolution(state)
        ts.setUp()
        if not stepping.resolved_method.explicit:
            know_rounding(ts.getSNES())
            coarsen_points(ts.getSNES().getKSP(), problem.dm)
        ts.solve(state)
    return ts
