"""Events at one instant: allowed where their order makes no difference, to first order as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from petsc4py import PETSc

from daeosens.errors import GrazingError, SolveError, UnsupportedError
from daeosens.methods.events.consistent_reset import ConsistentReset
from daeosens.methods.events.event_function import Switch
from daeosens.methods.events.event_step import HybridStep, StepRecord
from daeosens.methods.events.reset import Jump
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, largest, read, write
from daeosens.problem.event import Event
from daeosens.problem.modes import entered_mode
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping

TO_AND_FRO = ": after the one the surface of the other is crossed at once, without end"
"""What is wrong where a relay switches back as soon as it has switched."""

HYSTERESIS = "levels further apart (hysteresis), or a mode in which the state stays on the surface"

ALIKE = 1e-8
"""Part of the largest entry up to which both orders have to agree."""


@dataclass(frozen=True, eq=False)
class FiredEvent:
    """An event that happens: lowered, with the mode that it leads to, as ``Event.mode``."""

    switch: Switch
    mode: str | Callable[..., str] | None

    def apply(
        self, problem: Problem, before: HybridState, consistency: ConsistentReset | None
    ) -> tuple[Jump, HybridState]:
        """Return the jump, with algebraic variables made consistent, and what is after it."""
        t, state, p, mode = before
        jump: Jump = self.switch.jump
        after = state.duplicate()
        p = jump.apply(t, state, p, after)
        if self.mode is not None:
            mode = entered_mode(problem, self.mode, t, after, p)
        if consistency is not None:
            changes = self.switch.changes
            jump = consistency.complete(jump, mode, t, after, p, changes=changes)
        return jump, HybridState(t, after, p, mode)


class HybridState(NamedTuple):
    """Time, state [n], parameters [m] as callbacks see them, and mode."""

    t: float
    state: PETSc.Vec
    p: Any
    mode: str


@dataclass(frozen=True, eq=False)
class SimultaneousEvents:
    """A step that ends at two implicit events.

    Attributes
    ----------
    problem : Problem
        With all its modes.
    modes : mapping of str to Problem
        The equations.
    stepping : Stepping
        The method, and options of linear solvers.
    consistency : ConsistentReset
        Of the modes.
    step : Step
        The one that ends there.
    mode : str
        Of the equations, in it.
    """

    problem: Problem
    modes: dict[str, Problem]
    stepping: Stepping
    consistency: ConsistentReset
    step: Step
    mode: str

    @property
    def t(self) -> float:
        """When they happen."""
        return self.step.t + self.step.h


def check_order(
    meeting: SimultaneousEvents, first: FiredEvent, second: FiredEvent, names: Sequence[str]
) -> None:
    """Refuse two events at one instant if their order matters, for the state or its derivatives.

    The events of a run nearby happen one after the other, with a tiny step between; which one is
    first depends on the direction.  Both orders are taken here with a step of size 0 between them,
    and the derivatives of the state at a fixed time are compared along two directions.

    Raises
    ------
    SolveError
        States, modes, parameters or derivatives differ; names the events.
    """
    # Nearby runs have either the one order or the other: the run is differentiable here only if
    # both agree.
    ends = [_taken(meeting, order) for order in ((first, second), (second, first))]
    (_, state, p, mode), (_, other, other_p, other_mode) = (end.after for end in ends)
    what = ""
    if mode != other_mode:
        what = f"they lead to the modes {mode} and {other_mode}"
    elif not (_alike(state, other) and (p is other_p or np.allclose(p, other_p, rtol=ALIKE))):
        what = "the states differ"
    else:
        # two directions that are not special: agreement along both is no accident
        for seed in (1, 2):
            one_way, other_way = (_derivative(meeting, end, seed) for end in ends)
            if one_way is None or other_way is None:
                break  # derivatives that cannot be had are told when they are wanted
            if not _alike(one_way, other_way):
                what = "the derivatives differ"
    if what:
        raise at_one_instant(meeting.t, names, f", and their order matters: {what}")


def at_one_instant(t: float, names: Iterable[str], why: str = "") -> SolveError:
    """Return what refuses events that happen together: other parameters move them apart.

    Names are those of ``names_apart``.
    """
    together = " and ".join(names)
    return SolveError(
        f"events {together} at one instant, t = {t:.9g}{why}",
        expected="one event at a time, or events that commute: their order decides the derivative",
        remedy=HYSTERESIS if why == TO_AND_FRO else "one event whose reset does both",
    )


def names_apart(events: Sequence[Event], problem: Problem) -> list[str]:
    """Return what messages call events of a problem: by their numbers too where names are alike."""
    names = [event.name for event in problem.events]
    numbers = {
        event: f" (number {number})"
        for number, event in enumerate(problem.events)
        if names.count(event.name) > 1
    }
    return [f'"{event.name}"{numbers.get(event, "")}' for event in events]


@dataclass(frozen=True, eq=False)
class _Taken:
    """One order of the two events: the steps and jumps as a sweep sees them."""

    states: list[PETSc.Vec]
    sizes: list[float]
    records: list[StepRecord]
    after: HybridState


def _taken(meeting: SimultaneousEvents, order: Sequence[FiredEvent]) -> _Taken:
    t, mode = meeting.t, meeting.mode
    _, h, state, state_next, p, _ = meeting.step
    states, sizes, records = [state], list[float](), list[StepRecord]()
    for number, event in enumerate(order):
        end = state.copy() if number else state_next.copy()
        # The second event ends a step of size 0, which begins at a time that depends on the
        # first.
        timed = number > 0
        records.append(StepRecord(mode, p, timed=timed, changed=timed, ends_at=event.switch))
        before = HybridState(t, end, p, mode)
        jump, after = event.apply(meeting.problem, before, meeting.consistency)
        records.append(StepRecord(after.mode, p, timed=True, changed=timed, jump=jump))
        states += [end, after.state]
        sizes += [h, 0.0]
        _, state, p, mode = after
        h = 0.0
    # back to a fixed time, where derivatives of both orders can be compared
    records.append(StepRecord(mode, p, slope=-1.0, timed=True, changed=True))
    after = HybridState(t, state, p, mode)
    return _Taken([*states, state.copy()], [*sizes, 0.0], records, after)


def _derivative(meeting: SimultaneousEvents, taken: _Taken, seed: int) -> PETSc.Vec | None:
    """Return the derivative of the state at a fixed time along a direction, or None."""
    problem = meeting.problem
    method, options = meeting.stepping.resolved_method, meeting.stepping.options
    maps = {meeting.mode: method.step_map(meeting.modes[meeting.mode], options)}
    instants = {name: method.instant_map(mode, options) for name, mode in meeting.modes.items()}
    first, last = meeting.stepping.t_span

    def speeds() -> Array:
        sizes = (np.abs(read(state)) for state in taken.states)
        return np.max(list(sizes), axis=0) / (last - first)

    sweep = HybridStep(problem, taken.records, maps, instants.__getitem__, speeds, {})
    du, dp = _spread(problem.create_state(), seed), _spread(problem.create_parameters(), seed)
    moments = [meeting.step.t] + [meeting.t] * len(taken.sizes)
    try:
        for number, (t, h, u, u_next) in enumerate(
            zip(moments, taken.sizes, taken.states, taken.states[1:], strict=False)
        ):
            sweep.tangent(Step(t, h, u, u_next, meeting.step.p, number), du, dp)
    except (UnsupportedError, GrazingError, SolveError):
        return None
    return du


def _spread(vec: PETSc.Vec, seed: int) -> PETSc.Vec:
    """Fill a vector with numbers that do not depend on how it is distributed."""
    start, end = vec.getOwnershipRange()
    write(vec, np.cos(seed + seed * np.arange(start, end)))
    return vec


def _alike(first: PETSc.Vec, second: PETSc.Vec) -> bool:
    difference = first.duplicate()
    write(difference, read(first) - read(second))
    return largest(difference) <= ALIKE * max(largest(first), largest(second))
