"""Runs that keep some of their states and take the steps between them again."""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.petsc._kernels import count_steps
from daeosens.petsc.free_memory import free_memory
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem
from daeosens.timestepping.runner import prescribed, taking_part
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.actions import (
    CheckpointSchedule,
    WayForward,
    follow,
    is_schedule,
    name_of,
)
from daeosens.timestepping.trajectory.checkpoints import Checkpoints
from daeosens.timestepping.trajectory.schedule import Schedule, repeated_steps
from daeosens.timestepping.trajectory.scratch import Filed, Scratch
from daeosens.timestepping.trajectory.stay import DROPPED, Stay
from daeosens.timestepping.trajectory.store import SomeStates, in_memory
from daeosens.timestepping.trajectory.trajectory import Trajectory
from daeosens.timestepping.ts_cache import drop_idle

SHARE = 0.5
"""The part of the memory left that states may take; sweeps and solvers have the other one."""

SMALL = 2**28
"""States of so many bytes a rank are kept without a look at what there is."""

MANY = 10_000
"""So many steps are expected at most of runs that choose their steps."""

SPARE = 2
"""Places in a file besides those of checkpoints: of states that are about to be dropped."""

LEAST = 4
"""Checkpoints in fewer places take a run again too often to be what anybody wants."""


def fitting(
    problem: Problem, stepping: Stepping, pinned: Sequence[float] | Array, needs_all: str = ""
) -> Checkpoints | None:
    """Return how many states a run may keep if all of them might not fit into memory, else None.

    Collective.

    Parameters
    ----------
    problem, stepping
        What is run, and how.
    pinned : array [K]
        Times that steps hit.
    needs_all : str
        What keeps all states in any case.  Such a run is refused where one knows that they do not
        fit, and begun otherwise.

    Raises
    ------
    InputError
        There is hardly room for a few of them, or none for all that are needed: tells their size,
        and the checkpoints that fit.
    """
    steps, state = expected_steps(stepping, len(pinned)), bytes_of_state(problem)
    if (steps + 1) * state <= SMALL:
        return None
    free = free_memory(problem.comm.tompi4py())
    room = int(SHARE * free) // state
    if steps < room:
        return None
    if room < LEAST:
        raise InputError(
            f"a state takes {in_bytes(state)} a rank, of which {in_bytes(free)} are free",
            expected=f"room for {LEAST} states in {SHARE:.0%} of the memory",
            remedy="more ranks on more machines",
        )
    if not needs_all:
        return Checkpoints(room)
    # A run that chooses its steps may take fewer than the most that are expected.
    if stepping.adaptive or stepping.dt is None:
        return None
    factor = repeated_steps(steps, room) / steps
    raise InputError(
        f"{needs_all}: {steps + 1} states take {in_bytes((steps + 1) * state)} a rank, and "
        f"{in_bytes(free)} are free",
        expected=f"states in {SHARE:.0%} of the memory",
        remedy=f"checkpoint=timestepping.Checkpoints({room}), which fits: a gradient takes "
        f"{factor:.2f} times the steps of the run again",
    )


def bytes_of_state(problem: Problem) -> int:
    """Return what a state takes on a rank."""
    return 8 * -(-problem.size // problem.comm.size)


def in_bytes(number: float) -> str:
    """Return a number of bytes as one reads it.

    Examples
    --------
    >>> in_bytes(800), in_bytes(8e6), in_bytes(1.6e11)
    ('800 bytes', '8 MB', '160 GB')
    """
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if number >= 1000.0**power:
            return f"{number / 1000.0**power:.3g} {unit}"
    return f"{number:.3g} bytes"


def expected_steps(stepping: Stepping, pinned: int = 0) -> int:
    """Return about how many steps a run takes, or how many at most where it chooses them.

    Steps are cut at so many ``pinned`` times besides.
    """
    if stepping.adaptive or stepping.dt is None:
        return min(stepping.max_steps, MANY)
    first, last = stepping.t_span
    steps = min((last - first) / abs(stepping.dt), float(stepping.max_steps))  # may be infinite
    return min(math.ceil(steps) + pinned, stepping.max_steps)


def staying(
    checkpoints: Checkpoints | CheckpointSchedule,
    problem: Problem,
    stepping: Stepping,
    pinned: Array,
    start: PETSc.Vec,
) -> Stay:
    """Return which states stay while a run goes on.  Collective.

    Parameters
    ----------
    checkpoints : Checkpoints or CheckpointSchedule
        How many, or by whose actions.
    problem : Problem
        What is run.
    stepping : Stepping
        Steps of a fixed size are as many as one can count before.
    pinned : array [K]
        Times that they hit.
    start : Vec [n]
        The first state.

    Raises
    ------
    InputError
        There is no room on the disk; another number of steps than that of the schedule.
    """
    # The number of steps must be known to place checkpoints before; otherwise they are moved as
    # the run goes on (``Stay``).
    steps = None
    if not (stepping.adaptive or stepping.dt is None) and problem.smooth:
        first, last = stepping.t_span
        ends = [*(time for time in pinned.tolist() if first < time < last), last]
        steps = count_steps(first, stepping.first_step, ends, stepping.max_steps)
    if not isinstance(checkpoints, Checkpoints):
        return _staying_by_actions(checkpoints, problem, steps, start)
    folder = None if checkpoints.folder is None else str(checkpoints.folder)
    scratch = Scratch(folder, checkpoints.disk + SPARE, start) if checkpoints.disk else None
    if steps is None:
        return Stay(checkpoints.slots, None, scratch, checkpoints.memory)
    # the way to the last step, where the sweep back begins, and all states of its window
    window, _, filed, held = checkpoints.schedule().way(0, steps, steps - 1)
    stays = np.array([*filed, *held, *range(window + 1, steps)], dtype=np.int64)
    return Stay(checkpoints.slots, stays, scratch, filed=frozenset(filed))


def _staying_by_actions(
    schedule: CheckpointSchedule, problem: Problem, steps: int | None, start: PETSc.Vec
) -> Stay:
    """Return which states stay by the actions of a schedule, for ``steps`` where they are known."""
    if schedule.max_n is not None and steps not in (None, schedule.max_n):
        raise _other_steps(schedule, steps)
    steps = steps if schedule.max_n is None else schedule.max_n
    if steps is None:
        place = WayForward(schedule).place
        return Stay(0, scratch=Scratch(None, 0, start, grows=True), place=place)
    followed = follow(schedule, steps)
    agree(problem.comm, "solve", schedule=followed.checksum)
    scratch = Scratch(None, followed.disk + SPARE, start) if followed.disk else None
    first, last, filed, held = followed.way(0, steps, steps - 1)
    stays = np.array(sorted({*filed, *held, *range(first, last)}), dtype=np.int64)
    return Stay(0, stays, scratch, filed=frozenset(filed).difference(held))


def refuse_other_steps(run: Trajectory, schedule: object) -> Trajectory:
    """Return a run, if a schedule with a number of steps has just that of the run.

    Raises
    ------
    InputError
        Tells both numbers.
    """
    if is_schedule(schedule) and schedule.max_n not in (None, run.n_steps):
        raise _other_steps(schedule, run.n_steps)
    return run


def _other_steps(schedule: CheckpointSchedule, steps: int | None) -> InputError:
    """Return why a run cannot follow a schedule."""
    return InputError(
        f"checkpoint = {name_of(schedule)}, and the run takes {steps}",
        expected="as many steps as the schedule is for",
        remedy=f"{type(schedule).__name__}({steps}, ...); timestepping.Checkpoints(n) and "
        "TwoLevelCheckpointSchedule are for any number of them",
    )


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


def _schedule(
    trajectory: Trajectory, checkpoints: Checkpoints | CheckpointSchedule, left: Sequence[int]
) -> Schedule:
    """Return by what a sweep over a run goes back, which has left the states with these numbers."""
    end = trajectory.n_steps
    if not isinstance(checkpoints, Checkpoints):
        if checkpoints.max_n in (None, end):
            followed = follow(checkpoints, end)
            agree(trajectory.problem.comm, "solve", schedule=followed.checksum)
            return followed
        # a run on the way to the one that is wanted; of that one it is refused
        checkpoints = Checkpoints(len(left))
    return checkpoints.schedule(tuple(number for number in left if 0 < number < end), end)


def checkpointed(
    trajectory: Trajectory, checkpoints: Checkpoints | CheckpointSchedule, stay: Stay
) -> Trajectory:
    """Return a run that has kept some of its states as one that takes the others again.

    Sweeps go from window to window; their results have the same bits, as long as linear systems are
    solved directly, and callbacks round alike at one state and at many.

    Parameters
    ----------
    trajectory : Trajectory
        A run, among whose states ``DROPPED`` stands for those that are not kept.
    checkpoints : Checkpoints or CheckpointSchedule
        How many are, or by whose actions.
    stay : Stay
        Which have stayed, and where.
    """
    states, scratch = trajectory.stored, stay.scratch
    left = {number: state for number, state in enumerate(states) if state is not DROPPED}
    schedule = _schedule(trajectory, checkpoints, [*left])
    kept = {number: in_memory(states[number]) for number in _fixed(trajectory)}

    fixed = prescribed(trajectory.stepping)  # the same for all parts: they share a TS

    def replay(
        first: int, u: PETSc.Vec, numbers: Sequence[int], filed: Collection[int]
    ) -> Sequence[PETSc.Vec | Filed]:
        last = numbers[-1]
        equations = trajectory.equations(first)
        times, sizes = trajectory.times[first : last + 1], trajectory.step_sizes[first:last]
        wanted = np.array(numbers, dtype=np.int64) - first
        to_file = {number - first for number in numbers if number in filed}
        stay = Stay(len(numbers), wanted, scratch if to_file else None, filed=to_file)
        # the log's times and sizes, with no error control: the same steps, hence the same bits
        with taking_part(*equations, fixed, u, more=True) as runner:
            taken = runner.again(u, times, sizes, stay)
        return [taken[number - first] for number in numbers]

    def swept() -> None:
        for problem in {id(mode): mode for mode in (trajectory.problem, *modes.values())}.values():
            drop_idle(problem, fixed)

    modes = trajectory.problem.modes
    trajectory = replace(trajectory, stored=(), kept={})  # those that are not kept are not held
    store = SomeStates(kept, len(states), replay, schedule, left, scratch, swept)
    weakref.finalize(store, swept).atexit = False  # sweeps that have not come to the first state
    return replace(trajectory, stored=store)
