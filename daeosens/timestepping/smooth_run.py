"""A run without events as a trajectory, and states between the ends of the steps of any run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem
from daeosens.timestepping.runner import Runner, refuse_undetermined, repeating
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.states import refuse_freed
from daeosens.timestepping.trajectory.stay import Stay
from daeosens.timestepping.trajectory.trajectory import Recording, Trajectory
from daeosens.timestepping.ts_cache import LentTS


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
    """Return a run from ``state`` [n], which becomes the first one of its log, over a span of time.

    Parameters
    ----------
    problem : Problem
        Without regard to its events.
    state : Vec [n]
        The start.
    parameters : array or Vec [m]
        As callbacks see them.
    stepping : Stepping
        Method and step sizes.
    pinned : array [K]
        Times inside that steps hit.
    record : "states", "stages", "memory" or "disk"
        What the run leaves besides its states: nothing, stages, or PETSc's own trajectory.
    stay : Stay, optional
        Which of its states stay; all if it is not given.
    span : (float, float), optional
        A part of ``stepping.t_span``, which is the default.  All parts share a TS.

    Raises
    ------
    InputError, SolveError
        As ``solve``.
    """
    span = stepping.t_span if span is None else span
    with LentTS(problem, state, parameters, stepping, record) as ready:
        runner = Runner(problem, stepping, record, ready)
        run = runner.run(state, span, pinned.tolist(), stay=stay)
    refuse_undetermined(problem, stepping, run, parameters)
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


def states_inside(trajectory: Trajectory, places: Sequence[tuple[int, float]]) -> list[PETSc.Vec]:
    """Return the states [n] at times t inside steps n, given as (n, t), in new vectors.

    Collective.  Each is the end of a step of size t - t_n from the state before.  So it is
    continuous, has the order of the method whatever the method is, satisfies the algebraic
    equations where a step of the method does, and its derivatives are those of a step.  An
    interpolant through states and rates, which are what a run has of any method, ends at order
    four, has no rates of algebraic variables, and overshoots where a stiff component dies out.
    """
    states: list[PETSc.Vec] = []
    for _, several in groupby(places, lambda place: _identity(trajectory, place[0])):
        number = places[len(states)][0]
        first = trajectory.stored[number]
        problem, p = trajectory.equations(number)
        refuse_freed(first)
        with repeating(problem, p, trajectory.stepping, first) as runner:
            for n, t in several:
                begin = float(trajectory.times[n])
                start, times = trajectory.stored[n].copy(), np.array([begin, t])
                states.append(runner.again(start, times, np.array([t - begin]))[-1])
    return states


def _identity(trajectory: Trajectory, n: int) -> tuple[int, int]:
    """Tell steps of other equations or parameters apart; arrays cannot be asked for equality."""
    problem, p = trajectory.equations(n)
    return id(problem), id(p)
