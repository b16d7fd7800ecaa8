"""The log of accepted steps, which every derivative sweep follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array, read
from daeosens.cost import At, Start
from daeosens.errors import InputError, SolveError
from daeosens.problem import Problem
from daeosens.stepping import Stepping
from daeosens.steps import StepMap, instant_map, step_map, tableau
from daeosens.steps.hybrid import HybridStep, Record

Checkpoint = Literal["states", "stages", "memory", "disk"]

Stages: TypeAlias = "dict[tuple[int, float], list[PETSc.Vec]]"
"""Stage states of a step, by the handle of the state before it and the size of the step."""

STAGE_MEMORY = 2**28
"""Bytes a rank gives, at most, to the stages of a run, and to the adjoints of a sweep's stages."""

HIT = 1e-6
"""A time within this part of a step from its end counts as reached."""


@dataclass(frozen=True)
class Effort:
    """What a run cost: accepted and rejected steps, Newton and linear iterations."""

    steps: int
    rejected: int
    newton_iterations: int
    linear_iterations: int


@dataclass(frozen=True, eq=False)
class Crossing:
    """One event of a run.

    Attributes
    ----------
    name : str
        Of the event.
    t : float
        When it happened.
    step : int
        Number of the state before it; the one after it is the next.
    before, after : Vec [n]
        The states.
    mode, mode_before : str
        Afterwards, and before.
    p : array or Vec [m]
        The parameters afterwards, as callbacks see them.
    """

    name: str
    t: float
    step: int
    before: PETSc.Vec
    after: PETSc.Vec
    mode: str = ""
    p: Any = None
    mode_before: str = ""

    def __str__(self) -> str:
        mode = f", mode {self.mode}" if self.mode else ""
        return f"{self.name} at t = {self.t:.9g} (step {self.step}{mode})"


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The log of accepted steps, which every derivative sweep follows.

    Attributes
    ----------
    times : array [N+1]
        Times of the states [time unit].
    step_sizes : array [N]
        Sizes of the accepted steps.
    states : sequence of Vec [n]
        The N+1 states.
    p : array or Vec [m]
        Parameters of the run, at its start.
    crossings : tuple of Crossing
        The events, in order; each is a step of size 0.
    records : mapping
        What each step was, by the handle of the state before it; empty without events.
    stages : mapping
        Stage states of Runge-Kutta steps, where they were kept: sweeps need not compute them again.
    """

    problem: Problem
    p: Any
    stepping: Stepping
    times: Array
    step_sizes: Array
    states: Sequence[PETSc.Vec]
    effort: Effort
    checkpoint: Checkpoint = "states"
    stages: Stages = field(default_factory=dict[tuple[int, float], list[PETSc.Vec]], repr=False)
    crossings: tuple[Crossing, ...] = ()
    records: Mapping[int, Record] = field(default_factory=dict[int, Record], repr=False)
    recording: list[PETSc.TS] = field(default_factory=list[PETSc.TS], repr=False)

    @property
    def n_steps(self) -> int:
        """Number N of accepted steps."""
        return len(self.step_sizes)

    @property
    def n_stages(self) -> int:
        """Number of stages of all steps together."""
        method = self.stepping.resolved_method
        return self.n_steps * (len(tableau(method.runge_kutta).b) if method.explicit else 1)

    @property
    def final(self) -> PETSc.Vec:
        """State [n] at the last time; not to be changed."""
        return self.states[-1]

    @cached_property
    def u(self) -> Array:
        """States as an array [N+1, n_local]: the rank's own rows of a distributed problem."""
        return np.array([read(state) for state in self.states])

    @cached_property
    def moving(self) -> frozenset[int]:
        """Numbers of the states whose times are those of implicit events."""
        steps = [
            crossing.step
            for crossing in self.crossings
            if self.records[self.states[crossing.step - 1].handle].ends_at is not None
        ]
        return frozenset([*steps, *(step + 1 for step in steps)])

    def index(self, t: float | At | Start) -> int:
        """Return the number of the step time that equals ``t``, or of the state at an event.

        Raises
        ------
        InputError
            No step ended there: the nearest times and the remedy are named.
        SolveError
            The event did not happen so often.
        """
        if isinstance(t, Start):
            return 0
        if isinstance(t, At):
            steps = [each.step for each in self.crossings if each.name == t.event]
            if not -len(steps) <= t.number < len(steps):
                raise SolveError(
                    f'event "{t.event}" happened {len(steps)} times, number {t.number} is wanted',
                    expected="so many events that it exists (the first one is number 0)",
                    remedy="a longer run, or another start",
                )
            return steps[t.number] + t.after
        k = int(np.argmin(np.abs(self.times - t)))
        if self.crossings and t >= self.times[-1]:
            k = self.n_steps  # an event there has happened
        nearest_step = self.step_sizes[min(max(k - 1, 0), self.n_steps - 1)]
        if abs(self.times[k] - t) > HIT * nearest_step + 1e-14 * abs(t):
            raise InputError(
                f"t = {t:.9g} is not a step time (the nearest is {self.times[k]:.9g})",
                expected="a time that a step ended at",
                remedy="solve(..., t_eval=[...]) with this time, or t_eval=objective.times",
            )
        return k

    def at(self, t: float | At | Start) -> PETSc.Vec:
        """Return the state [n] at a step time; not to be changed."""
        return self.states[self.index(t)]

    @property
    def first_mode(self) -> str:
        """The mode in which the run began; empty where there is one only."""
        first = self.records.get(self.states[0].handle)
        mode = self.problem.mode if first is None else first.mode
        assert isinstance(mode, str)  # a function of the state only in runs with records
        return mode

    def parameters(self, n: int) -> Any:
        """Return the parameters [m] at the n-th state: events may have changed them."""
        changed = [crossing.p for crossing in self.crossings if crossing.step < n]
        return changed[-1] if changed else self.p

    def destroy(self) -> None:
        """Free the vectors now.  Collective; otherwise done when the object is dropped."""
        for state in (*self.states, *(vec for kept in self.stages.values() for vec in kept)):
            state.destroy()
        self.stages.clear()
        while self.recording:
            self.recording.pop().destroy()

    def __str__(self) -> str:
        first, last = self.times[0], self.times[-1]
        sizes = self.step_sizes[self.step_sizes > 0.0]
        return (
            f"Trajectory from t = {first:g} to {last:g}: {self.effort.steps} steps of "
            f"{self.stepping.method} ({self.effort.rejected} rejected), "
            f"h = {sizes.min():.3g} ... {sizes.max():.3g}"
            + "".join(f"\n  {crossing}" for crossing in self.crossings)
        )


def steps_of(trajectory: Trajectory) -> StepMap:
    """Return the step map that took a trajectory's steps, with work space for one sweep."""
    stepping = trajectory.stepping
    problem = trajectory.problem
    modes = problem.modes or {"": problem}
    maps = {
        name: step_map(mode, stepping.resolved_method, stepping.options, trajectory.stages)
        for name, mode in modes.items()
    }
    if not trajectory.crossings:
        return maps[trajectory.first_mode]
    instants = {
        trajectory.records[state.handle].mode
        for state, h in zip(trajectory.states, trajectory.step_sizes, strict=False)
        if h == 0.0 and trajectory.records[state.handle].jump is None
    }
    method = stepping.resolved_method
    at_once = {name: instant_map(modes[name], method) for name in instants}
    return HybridStep(problem, trajectory.records, maps, at_once)
