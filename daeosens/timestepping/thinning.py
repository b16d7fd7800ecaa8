"""Runs that keep some of their states and take the steps between them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.petsc._kernels import count_steps
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem
from daeosens.timestepping.dense_output import equations_of_step
from daeosens.timestepping.runner import take_again
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.schedule import (
    DROPPED,
    Binomial,
    Checkpoints,
    Schedule,
    Stay,
)
from daeosens.timestepping.trajectory.store import SomeStates
from daeosens.timestepping.trajectory.trajectory import Trajectory


def thinned(trajectory: Trajectory, every: int) -> Trajectory:
    """Return a run that keeps each k-th state, and takes the steps between again for its sweeps.

    The states beside events are kept as well.  Sweeps go from window to window and take each again
    once; their results have the same bits, as long as linear systems are solved directly.
    Collective, as everything that asks it for states.

    Parameters
    ----------
    trajectory : Trajectory
        A run whose states are in memory; those that are kept are shared with it.
    every : int
        Number k.

    Raises
    ------
    InputError
        A number below 1.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, Terminal, adjoint, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> few = thinned(run, every=5)
    >>> float(adjoint(few, Terminal(lambda t, u, p: u[0])).p[0].round(6)), few.stored.replays
    (-0.735759, 4)
    """
    if every < 1:
        raise InputError(f"every = {every}", expected="a number of steps >= 1")
    # every k-th, and those that nothing is taken again across
    numbers = {*range(0, len(trajectory.stored), every), *_fixed(trajectory)}
    return _replaying(trajectory, sorted(numbers), None)


def checkpointed(trajectory: Trajectory, checkpoints: Checkpoints) -> Trajectory:
    """Return a run that has kept some of its states as one that takes the others again.

    Parameters
    ----------
    trajectory : Trajectory
        A run, among whose states ``DROPPED`` stands for those that are not kept.
    checkpoints : Checkpoints
        How many are.
    """
    end = len(trajectory.stored) - 1
    marks = tuple(
        number for number, state in enumerate(trajectory.stored) if state is not DROPPED and number
    )
    schedule = Binomial(checkpoints.memory, marks[:-1], end)
    return _replaying(trajectory, _fixed(trajectory), schedule)


def staying(checkpoints: Checkpoints, problem: Problem, stepping: Stepping, pinned: Array) -> Stay:
    """Return which states stay while a run goes on.

    Parameters
    ----------
    checkpoints : Checkpoints
        How many.
    problem : Problem
        What is run.
    stepping : Stepping
        Steps of a fixed size are as many as one can count before.
    pinned : array [K]
        Times that they hit.
    """
    # The number of steps must be known to place checkpoints before; otherwise they are moved as
    # the run goes on (``Stay``).
    if stepping.adaptive or stepping.dt is None or not problem.smooth:
        return Stay(checkpoints.memory)
    first, last = stepping.t_span
    ends = [*(time for time in pinned.tolist() if first < time < last), last]
    steps = count_steps(first, stepping.first_step, ends, stepping.max_steps)
    schedule, numbers, first = Binomial(checkpoints.memory), list[int](), 0
    # The first descent of the binomial schedule: from each checkpoint to the next one, as many as
    # there are; the sweep back begins behind the last.
    while (middle := schedule.split(first, steps, len(numbers))) < steps:
        numbers.append(middle)
        first = middle
    return Stay(checkpoints.memory, np.array([*numbers, *range(first + 1, steps)], dtype=np.int64))


def _fixed(trajectory: Trajectory) -> list[int]:
    """Return the numbers of states that nothing is taken again across: ends, and beside events."""
    numbers = {0, len(trajectory.stored) - 1}
    for number, record in enumerate(trajectory.records):
        # A step to an event has its size from a root, and a jump is no step: neither is replayed.
        if record.jump or record.ends_at or not trajectory.step_sizes[number]:
            numbers |= {number, number + 1}
        # another mode or other parameters: a piece is taken again with one set of equations
        if number and (record.mode, id(record.p)) != (
            trajectory.records[number - 1].mode,
            id(trajectory.records[number - 1].p),
        ):
            numbers.add(number)
    return sorted(numbers)


def _replaying(
    trajectory: Trajectory, always: Sequence[int], schedule: Schedule | None
) -> Trajectory:
    """Return a run that keeps some states always, and others as a schedule says."""
    states = trajectory.stored
    kept = {number: states[number] for number in always}
    left = {} if schedule is None else {n: u for n, u in enumerate(states) if u is not DROPPED}

    def replay(first: int, last: int, u: PETSc.Vec, numbers: Sequence[int]) -> Sequence[PETSc.Vec]:
        problem, p = equations_of_step(trajectory, first)
        times, sizes = trajectory.times[first : last + 1], trajectory.step_sizes[first:last]
        stay = Stay(len(numbers), np.array(numbers, dtype=np.int64) - first)
        # the log's times and sizes, with no error control: the same steps, hence the same bits
        taken = take_again(problem, p, trajectory.stepping, u, times, sizes, stay)
        return [taken[number - first] for number in numbers]

    trajectory = replace(trajectory, stored=(), kept={})  # those that are not kept are not held
    store = SomeStates(kept, len(states), replay, schedule, left)
    return replace(trajectory, stored=store)
