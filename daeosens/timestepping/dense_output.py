"""States between the ends of steps: one more step of the method, from the state before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.problem.problem import Problem
from daeosens.timestepping.runner import repeating
from daeosens.timestepping.trajectory.states import refuse_freed
from daeosens.timestepping.trajectory.trajectory import Trajectory


def equations_of_step(trajectory: Trajectory, n: int) -> tuple[Problem, Any]:
    """Return the equations of the mode in which step number n was taken, and its parameters."""
    problem, p = trajectory.problem, trajectory.p
    if trajectory.records:
        record = trajectory.records[n]
        return problem.modes.get(record.mode, problem), record.p
    return (problem.modes[trajectory.first_mode] if problem.modes else problem), p


def states_inside(trajectory: Trajectory, places: Sequence[tuple[int, float]]) -> list[PETSc.Vec]:
    """Return the states [n] at times t inside steps n, given as (n, t), in new vectors.

    Collective.  Each is the end of a step of size t - t_n from the state before.  So it is
    continuous, has the order of the method whatever the method is, satisfies the algebraic
    equations where a step of the method does, and its derivatives are those of a step.  An
    interpolant through states and rates, which are what a run has of any method, ends at order
    four, has no rates of algebraic variables, and overshoots where a stiff component dies out.
    """
    states: list[PETSc.Vec] = []
    for (problem, p), several in groupby(
        places, lambda place: equations_of_step(trajectory, place[0])
    ):
        first = trajectory.stored[places[len(states)][0]]
        refuse_freed(first)
        with repeating(problem, p, trajectory.stepping, first) as runner:
            for n, t in several:
                begin = float(trajectory.times[n])
                start, times = trajectory.stored[n].copy(), np.array([begin, t])
                states.append(runner.again(start, times, np.array([t - begin]))[-1])
    return states
