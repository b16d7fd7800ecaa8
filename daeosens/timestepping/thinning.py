"""Runs that keep some of their states and take the steps between them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.timestepping.dense_output import equations_of_step
from daeosens.timestepping.runner import take_again
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
    >>> float(adjoint(few, Terminal(lambda t, u, p: u[0])).p[0].round(6)), few.states.replays
    (-0.735759, 4)
    """
    if every < 1:
        raise InputError(f"every = {every}", expected="a number of steps >= 1")
    count = len(trajectory.states)
    numbers = {*range(0, count, every), count - 1}
    for number, record in enumerate(trajectory.records):
        if record.jump or record.ends_at or not trajectory.step_sizes[number]:
            numbers |= {number, number + 1}
        if number and (record.mode, id(record.p)) != (
            trajectory.records[number - 1].mode,
            id(trajectory.records[number - 1].p),
        ):
            numbers.add(number)
    kept = {number: trajectory.states[number] for number in sorted(numbers)}

    def replay(first: int, last: int, u: PETSc.Vec) -> Sequence[PETSc.Vec]:
        problem, p = equations_of_step(trajectory, first)
        times, sizes = trajectory.times[first : last + 1], trajectory.step_sizes[first:last]
        return take_again(problem, p, trajectory.stepping, u, times, sizes)

    return replace(trajectory, states=SomeStates(kept, count, replay), kept={})
