"""The windows of a run that sweeps go over at once, and the single steps between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from daeosens.costs.cost import Densities
from daeosens.methods.events.event_step import HybridStep
from daeosens.timestepping.trajectory.states import states_between
from daeosens.timestepping.trajectory.store import SomeStates
from daeosens.timestepping.trajectory.trajectory import Trajectory, stages_between


def window_of(trajectory: Trajectory, first: int, last: int) -> Trajectory:
    """Return smooth steps in one mode as a run of their own."""
    problem, p, mode = trajectory.problem, trajectory.p, ""
    if trajectory.crossings:
        # modes and parameters between events
        record = trajectory.records[first]
        p, mode = record.p, record.mode
    elif problem.modes:
        mode = trajectory.first_mode
    elif (first, last) == (0, trajectory.n_steps):
        return trajectory
    return replace(
        trajectory,
        problem=problem.modes.get(mode, problem),
        p=p,
        times=trajectory.times[first : last + 1],
        step_sizes=trajectory.step_sizes[first:last],
        stored=states_between(trajectory.stored, first, last),
        kept=stages_between(trajectory.kept, first, last),
        crossings=(),
        records=(),
    )


def windows(
    trajectory: Trajectory,
    steps: HybridStep | None,
    densities: Sequence[Densities],
    last: int,
) -> list[tuple[int, int, bool]]:
    """Return the parts of a run up to state number ``last``, in order: (first, last, smooth).

    The smooth ones are as long as the states that are in memory at one time, and ``steps`` those of
    a run with events; the others are single steps.
    """
    parts = [(0, last, True)] if steps is None else smooth_parts(trajectory, steps, densities, last)
    states = trajectory.stored
    if not isinstance(states, SomeStates):
        return list(parts)
    return [
        (start, end, smooth)
        for first, behind, smooth in parts
        for start, end in (states.windows(first, behind) if smooth else [(first, behind)])
    ]


def smooth_parts(
    trajectory: Trajectory,
    steps: HybridStep,
    densities: Sequence[Densities],
    last: int | None = None,
) -> Iterator[tuple[int, int, bool]]:
    """Yield the numbers of the first and the last state of smooth pieces, and of single steps.

    Up to state number ``last``; the final one by default.
    """
    first, previous = 0, None
    end = trajectory.n_steps if last is None else last
    for k, h in enumerate(trajectory.step_sizes[:end].tolist()):
        # A record stands for consecutive steps of one mode with the same parameters; it changes
        # at events, and is None for a step that a window cannot take.
        record = steps.smooth(k, h, densities)
        if record is not previous and previous is not None:
            yield first, k, True
        if record is None:
            yield k, k + 1, False
        elif record is not previous:
            first = k
        previous = record
    if previous is not None:
        yield first, end, True
