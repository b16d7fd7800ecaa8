"""Steps of a run that rests at first, for derivatives through perturbations that do not.

A muscle waits for its pulse, a car drives straight on before it is steered.  The state stays, or
moves along a straight line, so the error estimate lets steps grow to any length; but perturbations
of the start decay and oscillate, and a step of an explicit method that is long beside them makes
them anything.  So the run is taken again with steps that resolve the fastest mode of the start.
What rests after an event does so at its start as well.
"""

from __future__ import annotations

import math

import numpy as np

from daeosens.derivatives.step_placement.pulses import Take, see_pulses
from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array
from daeosens.timestepping.stiffness import modes, resolving_step
from daeosens.timestepping.trajectory.states import States
from daeosens.timestepping.trajectory.trajectory import Trajectory

MOST = 1000
"""Steps, at most, that a rest is divided into, and no more than the run has left; it is left where
modes are faster than these."""

ROUNDING = 1e-12
"""Part of a state by which a straight line may miss it."""

PIECES = 100
"""Pieces of a run between events, at most, that are looked at."""

TELLING = 4
"""Unknowns, at most, that are looked at by themselves."""

FEW = 50
"""Steps, at most, that are looked at: those of a rest grow four times from one to the next."""


def divide_rest(run: Trajectory, pinned: Array, take: Take) -> tuple[Trajectory, Array]:
    """Return a run that resolves its rests, and the times [K] that its steps hit.

    At its start and after events.  Of adaptive runs by explicit methods on one rank.

    Parameters
    ----------
    run : Trajectory
        Destroyed where another one is returned.
    pinned : array [K]
        The times that its steps hit.
    take : callable
        See ``Take``.
    """
    if not (run.stepping.resolved_method.explicit and run.problem.comm.size == 1) or run.thinned:
        return run, pinned
    # what is left of the steps that may be taken: a run that was possible does not fail for this
    marks, most = list[Array](), run.stepping.max_steps - run.n_steps
    # sweeps in C want the same arrays; of vectors these are copies, and the user's are enough
    u = run.arrays[2] if isinstance(run.stored, States) else run.u
    for first, last in run.pieces[:PIECES]:
        straight = _straight(run.times, u, first, last)
        if straight > first:
            marks.append(_marks(run, first, straight, most))
            most -= marks[-1].size
    if not any(times.size for times in marks):
        return run, pinned
    divided = np.union1d(pinned, np.concatenate(marks))
    try:
        again = take(run.stored[0].copy(), divided)
        # steps after the rest begin elsewhere
        again, divided = see_pulses(again, divided, take)
    except SolveError:
        return run, pinned  # likewise: a look at the derivatives tells what is not resolved
    run.destroy()
    return again, divided


def _marks(run: Trajectory, first: int, last: int, most: int) -> Array:
    """Return the times [K] at which steps resolve a rest from one state to another.

    ``most``: how many more steps there may be.
    """
    none = np.empty(0)
    begin, end = float(run.times[first]), float(run.times[last])
    problem, p = run.equations(first)
    t = problem.inside(begin, begin, end - begin)
    fastest = np.abs(modes(problem, t, run.stored[first], p)).max(initial=0.0)
    if not fastest:
        return none
    # so that what the method leaves of a mode in its own time is the tolerance
    rtol, _ = run.stepping.tolerances
    longest = resolving_step(run.stepping.resolved_method, rtol) / fastest
    count = min(math.ceil((end - begin) / longest), MOST, most + last - first)
    if (end - begin) * fastest > count or run.step_sizes[first:last].max() <= longest:
        return none
    return np.linspace(begin, end, count + 1)[1:-1]


def _straight(times: Array, u: Array, first: int, end: int) -> int:
    """Return up to which state a run moves along a straight line from the first of a piece."""
    last = first
    if end >= first + 2 and _bends_at_once(times, u, first):
        return first
    for n in range(first + 2, min(end, first + FEW) + 1):
        if times[n] == times[first]:  # an observation before an event
            continue
        parts = (times[first + 1 : n] - times[first]) / (times[n] - times[first])
        line = u[first] + parts[:, None] * (u[n] - u[first])
        missed = np.abs(u[first + 1 : n] - line)
        if (missed > ROUNDING * (np.abs(u[first]) + np.abs(u[n]))).any():
            break
        last = n
    return last


def _bends_at_once(times: Array, u: Array, first: int) -> bool:
    """Return whether the first unknowns tell that three states are not on a straight line.

    As nearly all runs do: numbers take a tenth of the time of arrays.
    """
    begin, middle, end = times.item(first), times.item(first + 1), times.item(first + 2)
    if end == begin:
        return False
    part = (middle - begin) / (end - begin)
    for k in range(min(u.shape[1], TELLING)):
        start, inside, stop = u.item(first, k), u.item(first + 1, k), u.item(first + 2, k)
        missed = abs(inside - (start + part * (stop - start)))
        if missed > ROUNDING * (abs(start) + abs(stop)):
            return True
    return False
