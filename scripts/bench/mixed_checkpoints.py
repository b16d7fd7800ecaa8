"""What other schedules of checkpoints gain: those of checkpoint_schedules, and stages kept.

    python scripts/bench/mixed_checkpoints.py

Counts what sweeps back take again, write and read by schedules of the library checkpoint_schedules
and by ours.  Then counts, in steps, the work of a run and of a sweep back without what the adjoint
itself takes: steps of the run, those that are taken again, and stages that are found again where
the sweep takes a step.  Schedules that keep the stages of some steps in place of states are the
best of all that there are, by dynamic programming.  Writes the tables of docs/checkpoints.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from checkpoint_schedules import (
    DiskRevolve,
    HRevolve,
    MixedCheckpointSchedule,
    MultistageCheckpointSchedule,
    Revolve,
    SingleDiskStorageSchedule,
    StorageType,
    TwoLevelCheckpointSchedule,
)
from petsc4py import PETSc

from daeosens import ODE, Event, Stepping, Terminal, adjoint, solve
from daeosens.methods.esdirk.tableau import TABLEAUX
from daeosens.timestepping import Checkpoints, thinning
from daeosens.timestepping.trajectory.actions import CheckpointSchedule
from daeosens.timestepping.trajectory.schedule import repeated_steps
from daeosens.timestepping.trajectory.scratch import Filed, Scratch
from tables import markdown, number, put_between

PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"
EXPLICIT = {"rk2a": 2, "rk4": 4}
"""Stages of methods."""
IMPLICIT = ("kencarp3", "esdirk4")
STEPS = (100, 1000)
STATES = (10, 20, 50)
Work = npt.NDArray[np.float64]


def least_work(steps: int, states: int, vectors: int, found: float) -> tuple[Work, Work]:
    """Return the least work with states alone, and with stages too, by room - 1 and steps.

    Parameters
    ----------
    steps, states : int
        The most steps, and the most vectors that there is room for.
    vectors : int
        What the state before a step and its stages take.
    found : float
        What it takes to find the stages of a step again, in steps.

    Source
    ------
    ``MixedCheckpointSchedule`` of checkpoint_schedules, where stages take as much room as a state.
    """
    tables: list[Work] = []
    for mixed in (False, True):
        # the state before the steps is kept, or in hand; by the room left and the number of steps
        kept, in_hand = (np.full((states, steps + 1), np.inf) for _ in "ab")
        for room in range(states):
            kept[room, :2] = in_hand[room, :2] = 0.0, found
            for n in range(2, steps + 1):
                cuts = np.arange(1, n)
                best = (cuts + in_hand[room, n - cuts] + kept[room, cuts]).min()
                if room == 0:
                    best = n * (n - 1) / 2 + n * found
                if mixed and room >= vectors - 1:  # the stages beside the state
                    best = min(best, 1.0 + in_hand[room - vectors + 1, n - 1])
                kept[room, n] = best
                if room:
                    in_hand[room, n] = kept[room - 1, n]
                if mixed and room >= vectors:
                    in_hand[room, n] = min(in_hand[room, n], 1.0 + in_hand[room - vectors, n - 1])
        tables.append(kept)
    return tables[0], tables[1]


def stages_of(method: str) -> tuple[int, float]:
    """Return what a step with its stages takes, and what its stages take to be found again."""
    if method in EXPLICIT:  # the first stage is the state, and the last rate is not needed
        return EXPLICIT[method], 1.0 - 1.0 / EXPLICIT[method]
    stages = len(TABLEAUX[method].c)  # the last one is the state after the step
    return stages - 1, (stages - 2) / (stages - 1)


def thinned(steps: int, states: int) -> int:
    """Return the steps that ours takes again where their number is not known before."""
    never = Event(lambda _t, u, _p: u[0] - 3.0, name="never")
    decay = ODE(lambda _t, u, p: -p[0] * u, 1, ["rate"], events=[never])
    run = solve(
        decay,
        [1.0],
        [0.5],
        Stepping((0.0, 1.0), "rk4", dt=1.0 / steps),
        checkpoint=Checkpoints(states),
    )
    adjoint(run, Terminal(lambda _t, u, _p: u[0]), "vectors")
    stored: Any = run.stored
    return stored.steps


SCHEDULES = {
    "Checkpoints(20)": Checkpoints(20),
    "MultistageCheckpointSchedule(1000, 20, 0)": MultistageCheckpointSchedule(1000, 20, 0),
    "MixedCheckpointSchedule(1000, 20, storage=RAM)": MixedCheckpointSchedule(
        1000, 20, storage=StorageType.RAM
    ),
    "Revolve(1000, 20)": Revolve(1000, 20),
    "Checkpoints(20, disk=30)": Checkpoints(20, disk=30),
    "MultistageCheckpointSchedule(1000, 20, 30)": MultistageCheckpointSchedule(1000, 20, 30),
    "Checkpoints(20, disk=30, write=2, read=2)": Checkpoints(20, disk=30, write=2, read=2),
    "HRevolve(1000, 20, 30, wd=2, rd=2)": HRevolve(1000, 20, 30, wd=2, rd=2),
    "DiskRevolve(1000, 20, wd=2, rd=2)": DiskRevolve(1000, 20, wd=2, rd=2),
    "TwoLevelCheckpointSchedule(33, 20, binomial_storage=RAM)": TwoLevelCheckpointSchedule(
        33, 20, binomial_storage=StorageType.RAM
    ),
    "SingleDiskStorageSchedule()": SingleDiskStorageSchedule(),
}
"""Schedules for 1000 steps, by how one writes them."""


class Counted(Scratch):
    """A file that counts the states in it."""

    most = 0

    def store(self, state: PETSc.Vec) -> Filed | PETSc.Vec:
        """Store a state, and count."""
        stored = super().store(state)
        Counted.most = max(Counted.most, self.writes - self.released)
        return stored

    released = 0

    def release(self, slot: int) -> None:
        """Use a place again."""
        self.released += 1
        super().release(slot)


def counted(schedule: Checkpoints | CheckpointSchedule, steps: int = 1000) -> list[str]:
    """Return states in memory and on disk at most, steps taken again, states written and read."""
    thinning.Scratch, Counted.most = Counted, 0
    decay = ODE(lambda _t, u, p: -p[0] * u, 1, ["rate"])
    stepping = Stepping((0.0, 1.0), "rk4", dt=1.0 / steps)
    run = solve(decay, [1.0], [0.5], stepping, checkpoint=schedule)
    adjoint(run, Terminal(lambda _t, u, _p: u[0]), "vectors")
    states: Any = run.stored
    found = states.steps, states.writes, states.reads
    states = solve(decay, [1.0], [0.5], stepping, checkpoint=schedule).stored
    most = len(states.made)
    for k in range(steps, -1, -1):
        states[k]
        most = max(most, len(states.made))
    return [str(count) for count in (most, Counted.most, *found)]


def main() -> None:
    """Count, and write the tables."""
    rows: list[list[str]] = []
    for method in (*EXPLICIT, *IMPLICIT):
        vectors, found = stages_of(method)
        alone, mixed = least_work(max(STEPS), max(STATES), vectors, found)
        for steps in STEPS:
            quotients = [alone[room - 1, steps] / mixed[room - 1, steps] for room in STATES]
            for room in STATES:
                again = repeated_steps(steps, room) + steps - 1 + found * steps
                assert abs(alone[room - 1, steps] - again) < 1e-6 * again
            rows.append([method, str(vectors), str(steps), *map(number, quotients)])
    heads = ["method", "vectors of a step", "steps", *(f"room for {room}" for room in STATES)]
    unknown = [
        [str(room), *(str(count(1000, room)) for count in (repeated_steps, thinned))]
        for room in STATES
    ]
    by_actions = [[f"`{name}`", *counted(schedule)] for name, schedule in SCHEDULES.items()]
    text = markdown(["schedule", "in memory", "on disk", "again", "written", "read"], by_actions)
    text += "\nOf 1000 steps ours take again, with their number known or not:\n\n"
    text += markdown(["states", "number known", "not known"], unknown)
    text += "\nWork by states alone over that of the best mixture with stages, in as much room:\n\n"
    put_between(PAGE, "scripts/bench/mixed_checkpoints.py", text + markdown(heads, rows))


if __name__ == "__main__":
    main()
