"""``plan``: what a run and its gradient will cost, in memory and time, before they are begun."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.derivatives.engines.request import AdjointRequest
from daeosens.derivatives.solve import Checkpoint, solve
from daeosens.derivatives.sweeps.backward import sweep_back
from daeosens.errors import InputError, require
from daeosens.petsc.free_memory import free_memory
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, finite_array
from daeosens.problem.problem import PossiblyNamed, Problem
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.thinning import SHARE, bytes_of_state, expected_steps, in_bytes
from daeosens.timestepping.trajectory.checkpoints import Checkpoints
from daeosens.timestepping.trajectory.hierarchical import Hierarchical
from daeosens.timestepping.trajectory.schedule import repeated_steps
from daeosens.timestepping.trajectory.scratch import Scratch
from daeosens.timestepping.trajectory.store import in_memory

TIMED = 3
"""So many steps are taken, there and back, to see how long they last."""

SHORTEST = 1e-9
"""Seconds of a step, at least: the clock may not see one."""

PARTS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Parts of the states that schedules with checkpoints keep."""


@dataclass(frozen=True)
class PlannedRun:
    """One way to keep states, and what a gradient costs with it.

    Attributes
    ----------
    checkpoint : "states" or Checkpoints
        For ``solve`` and ``Reduced``.
    states : int
        How many states are in memory at most.
    memory : int
        What these take [bytes a rank].
    repeated : int
        Steps that a gradient takes again.
    seconds : float
        Run and gradient together [s].
    """

    checkpoint: Checkpoint
    states: int
    memory: int
    repeated: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What ``plan`` found; prints itself as a table.

    Attributes
    ----------
    steps : int
        Steps of the run.
    forward, back : float
        Seconds of one step of the run, and of one step of the sweep back.
    room : int
        Bytes a rank that states may take.
    runs : tuple of PlannedRun
        Those that fit, the quickest first.

    Examples
    --------
    >>> from daeosens import ODE
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1000, parameters=["rate"])
    >>> planned = plan(decay, [1.0] * 1000, [0.5], Stepping((0.0, 1.0), "rk4", dt=0.01))
    >>> planned.steps, planned.runs[0].states  # there is room for all
    (100, 101)
    """

    steps: int
    forward: float
    back: float
    room: int
    runs: tuple[PlannedRun, ...]

    def __str__(self) -> str:
        """Return the table."""
        names = [_name(run.checkpoint) for run in self.runs]
        width = max(20, *(len(name) for name in names))
        lines = [
            f"{self.steps} steps of {self.forward:.2g} s, and {self.back:.2g} s on the way back",
            f"states may take {in_bytes(self.room)} a rank",
            f"{'checkpoint':<{width}}{'memory':>10}{'steps again':>14}{'seconds':>10}",
        ]
        for run, name in zip(self.runs, names, strict=True):
            again = f"{run.repeated / self.steps:.2f} N"
            lines.append(
                f"{name:<{width}}{in_bytes(run.memory):>10}{again:>14}{run.seconds:>10.3g}"
            )
        return "\n".join(lines)


def _name(checkpoint: Checkpoint) -> str:
    """Return how a table calls a schedule."""
    if not isinstance(checkpoint, Checkpoints):
        return '"states"'
    if not checkpoint.disk:
        return f"Checkpoints({checkpoint.memory})"
    costs = f"write={checkpoint.write:g}, read={checkpoint.read:g}"
    return f"Checkpoints({checkpoint.memory}, disk={checkpoint.disk}, {costs})"


def plan(
    problem: Problem,
    u0: npt.ArrayLike | PETSc.Vec | Mapping[str, float],
    p: PossiblyNamed,
    stepping: Stepping,
    memory: float | None = None,
    disk: float = 0.0,
    folder: str | Path | None = None,
) -> Plan:
    """Return what a run and a gradient cost with each schedule that fits into memory.  Collective.

    Three steps are taken there and back, and timed; so are states written to a disk and read.

    Parameters
    ----------
    problem, u0, p
        As for ``solve``.
    stepping : Stepping
        Steps of a fixed size, which can be counted.
    memory : float, optional
        Bytes a rank that states may take; by default half of those that are free.
    disk : float
        Bytes a rank that they may take in a file besides.
    folder : str or Path, optional
        Where that lies, as for ``Checkpoints``.

    Raises
    ------
    InputError
        Steps whose number nobody knows before; a memory that holds hardly a state; no room in the
        folder.

    Source
    ------
    Griewank, Walther, ACM Transactions on Mathematical Software 26(1), 2000: the steps again.
    Herrmann, Pallez, ACM Transactions on Mathematical Software 46(2), 2020, with a disk.

    Examples
    --------
    >>> from daeosens import ODE
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1000, parameters=["rate"])
    >>> stepping = Stepping((0.0, 2.0), "rk4", dt=1e-4)
    >>> found = plan(decay, [1.0] * 1000, [0.5], stepping, memory=20e6)
    >>> found.steps, [(run.states, run.repeated) for run in found.runs][:2]
    (20000, [(2500, 17499), (2000, 17999)])
    """
    require(problem, Problem, "problem", "ODE(f, size, parameters)")
    require(stepping, Stepping, "stepping", 'Stepping((0.0, 1.0), "rk4", dt=0.1)')
    agree(problem.comm, "plan", stepping=stepping, memory=memory, disk=disk)
    if stepping.adaptive or stepping.dt is None:
        raise InputError(
            f"stepping: {stepping.method} chooses its steps, and their number is not known before",
            expected="a fixed size, dt=...",
            remedy='solve(..., checkpoint="auto"), which keeps as many states as fit',
        )
    comm = problem.comm.tompi4py()
    state = bytes_of_state(problem)
    if memory is None:
        room = int(SHARE * free_memory(comm))
    else:
        room = int(finite_array(memory, "memory", ()))
    if room < 2 * state:
        raise InputError(
            f"memory = {in_bytes(room)} a rank, of which a state takes {in_bytes(state)}",
            expected="room for two states",
            remedy="more ranks",
        )
    steps = expected_steps(stepping)
    forward, back = _timed(problem, u0, p, stepping)
    # all states, as many as fit, and some fewer: what else uses the memory may be worth more than
    # time
    counts = {steps + 1, min(room // state, steps + 1), *(int(part * steps) for part in PARTS)}
    runs: list[PlannedRun] = []
    for states in counts:
        if not 1 <= states <= room // state:
            continue
        whole = states == steps + 1
        again = 0 if whole else repeated_steps(steps, states)
        # steps back linearise each step once, whatever is kept
        seconds = (steps + again) * forward + steps * back
        checkpoint = "states" if whole else Checkpoints(states)
        runs.append(PlannedRun(checkpoint, states, states * state, again, seconds))
    filed, most = min(int(finite_array(disk, "disk", ())) // state, steps), room // state
    if filed > 0 and 1 < most <= steps:
        step = max(forward, SHORTEST)
        write, read = (_rounded(cost / step) for cost in _timed_disk(problem, u0, folder))
        cost = Hierarchical(most, filed, write, read).cost(steps)
        seconds = (steps + cost.repeated + cost.writes * write + cost.reads * read) * forward
        checkpoint = Checkpoints(most, filed, folder, write, read)
        seconds += steps * back
        runs.append(PlannedRun(checkpoint, most, most * state, cost.repeated, seconds))
    runs.sort(key=lambda run: (run.seconds, -run.states))
    return Plan(steps, forward, back, room, tuple(runs))


def _timed(problem: Problem, u0: object, p: object, stepping: Stepping) -> tuple[float, float]:
    """Return how long a step takes, and a step of a sweep back: the slowest rank's [s]."""
    first, last = stepping.t_span

    def seconds(steps: int) -> Array:
        end = min(last, first + steps * stepping.first_step)
        few = replace(stepping, t_span=(first, end))
        begin = time.perf_counter()
        run = solve(problem, u0, p, few, checkpoint="states")  # pyright: ignore[reportArgumentType]
        between = time.perf_counter()
        # one row without a cost: what an engine needs for the steps alone
        start = np.ones((1, run.stored[0].getLocalSize()))
        sweep_back(run, AdjointRequest(1, run.n_steps, {}, ((),), start), "auto").rows()
        return np.array([between - begin, time.perf_counter() - between])

    seconds(1)  # compiles, factors, fills caches
    # what a run takes before its first step is no part of a step
    lasted = np.maximum(seconds(1 + TIMED) - seconds(1), 0.0) / TIMED
    problem.comm.tompi4py().Allreduce(MPI.IN_PLACE, lasted, MPI.MAX)
    return float(lasted[0]), float(lasted[1])


def _timed_disk(problem: Problem, u0: object, folder: str | Path | None) -> tuple[float, float]:
    """Return how long a state takes to a file and back: the slowest rank's [s]."""
    start = problem.admit_state(u0)  # pyright: ignore[reportArgumentType]
    scratch = Scratch(None if folder is None else str(folder), TIMED, start)
    begin = time.perf_counter()
    filed = [scratch.store(start) for _ in range(TIMED)]
    scratch.wait()
    between = time.perf_counter()
    for state in filed:
        in_memory(state)
    lasted = np.array([between - begin, time.perf_counter() - between]) / TIMED
    problem.comm.tompi4py().Allreduce(MPI.IN_PLACE, lasted, MPI.MAX)
    return float(lasted[0]), float(lasted[1])


def _rounded(cost: float) -> float:
    """Return a cost [steps] with two digits; never nothing, which would be no cost of a disk."""
    return max(float(f"{cost:.2g}"), 1e-3)


__all__ = ["Plan", "PlannedRun", "plan"]
