"""A run without events as a trajectory."""

from __future__ import annotations

from typing import Any

from petsc4py import PETSc

from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem
from daeosens.timestepping.dense_output import states_inside
from daeosens.timestepping.runner import integrate
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.schedule import Stay
from daeosens.timestepping.trajectory.trajectory import Recording, Trajectory


def smooth_run(
    problem: Problem,
    state: PETSc.Vec,
    parameters: Any,
    stepping: Stepping,
    pinned: Array,
    record: Recording,
    stay: Stay | None = None,
    span: tuple[float, float] | None = None,
) -> Trajectory:
    """Return a run from ``state`` [n], which becomes the first one of its log.

    Arguments and errors as of ``integrate``.
    """
    run = integrate(problem, state, parameters, stepping, pinned, record, stay, span)
    run.times.setflags(write=False)  # what sweeps follow
    run.sizes.setflags(write=False)
    return Trajectory(
        problem,
        parameters,
        stepping,
        run.times,
        run.sizes,
        run.states,
        run.effort,
        record,
        run.kept,
        recording=run.recording,
        inside=states_inside,
    )
