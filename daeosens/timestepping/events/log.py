"""The log of a run through events: smooth pieces, cut and joined by jumps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.methods.events.event_function import Switch
from daeosens.methods.events.event_step import StepRecord
from daeosens.methods.events.reset import Jump
from daeosens.problem.problem import Problem
from daeosens.timestepping.runner import Run
from daeosens.timestepping.smooth_run import states_inside
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.crossing import Crossing
from daeosens.timestepping.trajectory.states import view_of
from daeosens.timestepping.trajectory.stay import Stay
from daeosens.timestepping.trajectory.trajectory import (
    Effort,
    Recording,
    Stages,
    Trajectory,
    by_step,
)


@dataclass
class HybridLog:
    """What the pieces of a run have given so far, joined by its events."""

    times: list[float]
    states: list[PETSc.Vec]
    sizes: list[float] = field(default_factory=list[float])
    stages: Stages = field(default_factory=dict[int, list[PETSc.Vec]])
    effort: Effort = field(default_factory=lambda: Effort(0, 0, 0, 0))
    crossings: list[Crossing] = field(default_factory=list[Crossing])
    records: list[StepRecord] = field(default_factory=list[StepRecord])
    moving: bool = False
    """Whether the last time depends on that of an implicit event."""
    changed: bool = False
    """Whether an event has changed parameters."""
    staying: Stay | None = None
    """Which states stay, besides those where pieces end and at events; None: all."""
    fixed: set[int] = field(default_factory=set[int])
    """Numbers of the latter."""

    def __post_init__(self) -> None:
        """Let states be thinned as the run goes on."""
        if self.staying is not None:
            self.staying.watch(self.states, 0, self.fixed)

    @property
    def last(self) -> tuple[float, PETSc.Vec]:
        """Time and state [n] that the run has come to."""
        return self.times[-1], self.states[-1]

    def add(self, run: Run, mode: str, p: Any, ends: Sequence[float]) -> None:
        """Append a piece whose steps ended at ``ends`` where they came by.

        After an implicit event the size of a step follows the moving time if it ends at one of
        them, or halfway to it; from there on times are fixed again.
        """
        times, sizes = run.times.tolist(), run.sizes.tolist()
        first = len(self.sizes)
        self.records += [StepRecord(mode, p, changed=self.changed)] * len(sizes)
        if self.moving:
            self._add_moving(zip(times, sizes, strict=False), first, mode, p, ends)
        self.times += times[1:]
        self.sizes += sizes
        self.states += run.states[1:]
        if self.staying is not None:
            # a store keeps states beside events always: nothing is taken again across them
            self.fixed.add(first)
            self.staying.thin(self.states, 0, self.fixed, first + 1)
            self.staying.count(len(self.sizes))
        self.stages |= {first + n: kept for n, kept in by_step(run.kept, run.states).items()}
        self.effort += run.effort

    def _add_moving(
        self,
        steps: Iterable[tuple[float, float]],
        first: int,
        mode: str,
        p: Any,
        ends: Sequence[float],
    ) -> None:
        """Note of steps (t, h) that they move, up to the first time that is fixed again."""
        carried = StepRecord(mode, p, timed=True, changed=self.changed)
        for number, (t, h) in enumerate(steps, first):
            self.records[number] = carried
            # After an implicit event at tau the next steps have sizes that do not depend on tau,
            # until the fixed end comes near.
            rest = ends[bisect_right(ends, t)] - t
            # far from the end: h is fixed, and the start moves (slope 0)
            if 2.0 * h < (1.0 - 1e-12) * rest:
                continue
            # The last step takes all that is left, dh = -dt; of two equal ones each takes half
            # (TS halves what is left so that no tiny step remains), dh = -dt/2.
            self.moving = abs(h - rest) > 1e-12 * rest
            halved = abs(2.0 * h - rest) <= 1e-12 * rest
            if halved or not self.moving:
                self.records[number] = carried._replace(slope=-0.5 if self.moving else -1.0)
            if not self.moving:
                return

    def end_at(self, switch: Switch, h: float, state: PETSc.Vec) -> None:
        """Cut the last step: it has the size ``h``, and ends on the surface of an event."""
        self.sizes[-1], self.times[-1], self.states[-1] = h, self.times[-2] + h, state
        self.fixed |= {len(self.sizes) - 1, len(self.sizes)}
        self.stages.pop(len(self.sizes) - 1, None)  # of the step before it was cut
        # its size is now that of the event: ``HybridStep`` finds dh from g = 0
        self.records[-1] = self.records[-1]._replace(slope=0.0, ends_at=switch)
        self.moving = True

    def stay(self, mode: str, p: Any, slope: float = 0.0) -> None:
        """Append a step of size 0, which an event at the same instant can end."""
        t, state = self.last
        self.records.append(
            StepRecord(mode, p, slope=slope, timed=self.moving, changed=self.changed)
        )
        self._add_step_of_no_size(t, state.copy())

    def settle(self, mode: str, p: Any) -> None:
        """Return from an event to the fixed time at which it happens to be, by a step of size 0."""
        if self.moving:
            self.stay(mode, p, slope=-1.0)
            self.moving = False

    def jump(
        self, switch: Switch, jump: Jump, after: PETSc.Vec, p: tuple[Any, Any], mode: str, now: str
    ) -> None:
        """Append a jump as a step of size 0, from parameters and mode to others."""
        t, before = self.last
        self.records.append(
            # p before the jump, as the reset and new values see it
            StepRecord(now, p[0], timed=self.moving, changed=self.changed, jump=jump)
        )
        self.changed = self.changed or switch.changes
        self.crossings.append(
            Crossing(
                switch.name, t, len(self.sizes), view_of(before), view_of(after), now, p[1], mode
            )
        )
        self._add_step_of_no_size(t, after)

    def _add_step_of_no_size(self, t: float, state: PETSc.Vec) -> None:
        self.fixed |= {len(self.sizes), len(self.sizes) + 1}
        self.times.append(t)
        self.sizes.append(0.0)
        self.states.append(state)

    def trajectory(
        self, problem: Problem, p: Any, stepping: Stepping, record: Recording
    ) -> Trajectory:
        """Return the run as a whole; ``p`` are the parameters that it began with."""
        times, sizes = np.array(self.times), np.array(self.sizes)
        times.setflags(write=False)  # what sweeps follow
        sizes.setflags(write=False)
        return Trajectory(
            problem,
            p,
            stepping,
            times,
            sizes,
            tuple(self.states),
            self.effort,
            record,
            self.stages,
            crossings=tuple(self.crossings),
            records=tuple(self.records),
            inside=states_inside,
        )
