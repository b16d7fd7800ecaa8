"""What a run of a delay equation is made of beside its states, and what it says between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.methods.rk.continuous import ContinuousTableau
from daeosens.petsc.vectors import Array, write
from daeosens.problem.problem import Problem
from daeosens.timestepping.step_times import span_rounding
from daeosens.timestepping.trajectory.trajectory import Trajectory

INWARDS = 1e-6
"""Part of the way to the middle of its step by which a delayed time is moved to tell its side."""

HISTORY, LATER_HISTORY = -1, -2
"""What stands for a step that is looked at: the history, and after a breakpoint at that time."""


@dataclass(frozen=True, eq=False, repr=False)
class DelayedSteps:
    """What a run of a delay equation is made of beside its states: N steps of S stages.

    Attributes
    ----------
    tableau : ContinuousTableau
        The method, with the stages of its continuous extension.
    tau : array [d]
        The delays.
    rates : array [N, S, n]
        f at the stages.
    looked : array [N, S, d] of int
        The step in which the delayed time of a stage lies; negative in the history.
    time_slopes, size_slopes : array [N+1, c], [N, c]
        Derivatives of the times of the states, and of the sizes of the steps, in the clocks: the
        delays, and the times of events that move.
    breaking : tuple of int
        Numbers of the states at breaking points.
    shares : tuple of array
        Where the steps of each piece end, as parts of it.
    pinned : array [K]
        Times that steps were to hit, kinks among them: they end pieces too.
    restarts : tuple of int
        Numbers of those steps, of size 0, that end at a state that was given.
    moving : mapping of int to int
        Of the events at times that are parameters: the clock, and the number of the parameter.
    located : mapping of int to int
        Of the events at states: the step that ends there, and the clock.
    """

    tableau: ContinuousTableau
    tau: Array
    rates: Array
    looked: Any
    time_slopes: Array
    size_slopes: Array
    breaking: tuple[int, ...]
    shares: tuple[Array, ...]
    pinned: Array
    restarts: tuple[int, ...] = ()
    moving: Mapping[int, int] = field(default_factory=dict[int, int])
    located: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def clocks(self) -> int:
        """Number c of the clocks."""
        return self.time_slopes.shape[1]

    def __repr__(self) -> str:
        """Return how many steps there are between which breaking points."""
        count, stages, n = self.rates.shape
        delays = ", ".join(f"{tau:.6g}" for tau in np.atleast_1d(self.tau).tolist())
        return (
            f"DelayedSteps({count} steps of {stages} stages, {n} unknowns, "
            f"{len(self.breaking)} breaking points; delays {delays})"
        )


def inwards_in(h: float, rounding: float) -> float:
    """Return ``INWARDS``, or so much more that in a short step it is more than rounding."""
    return max(INWARDS, 8.0 * rounding / max(abs(h), 8.0 * rounding))


def time_in_history(
    problem: Problem, time: float, begin: float, size: float, rounding: float, looked: int
) -> float:
    """Return a delayed time as the history is to see it: off the breakpoints, inside of its step.

    ``looked`` says on which side of a breakpoint a step of size 0 is.
    """
    if not size:
        begin += rounding if looked == LATER_HISTORY else -rounding
    return problem.inside(time, begin, size)


def delayed_states(trajectory: Trajectory, n: int, t: float) -> Array:
    """Return the delayed states [d n] at a time of step n, as its inside sees them."""
    problem, steps, times = trajectory.problem, trajectory.report, trajectory.times
    assert problem.delays is not None
    start, h = float(times[n]), float(trajectory.step_sizes[n])
    rounding = span_rounding(trajectory.stepping.t_span)
    states: list[Array] = []
    for delay, tau in enumerate(steps.tau.tolist()):
        begin, at = start - tau, t - tau
        inwards = at + inwards_in(h, rounding) * (begin + 0.5 * h - at)
        k = min(int(np.searchsorted(times, inwards, side="right")) - 1, len(steps.rates) - 1)
        if not h:  # what an instant looks at is known
            k = int(steps.looked[n, 0, delay])
        elif inwards <= times[0]:
            k = HISTORY
        if k < 0:
            time = time_in_history(problem, at, begin, h, rounding, k)
            states.append(problem.delays.history(time, np.asarray(trajectory.p)))
            continue
        size = float(trajectory.step_sizes[k])
        weights = size * steps.tableau.at(np.array((at - float(times[k])) / (size or 1.0)))
        states.append(trajectory.u[k] + weights @ steps.rates[k])
    return np.concatenate(states)


def rate_at(trajectory: Trajectory, n: int) -> Array:
    """Return the rate [n] at state number n: of the step that ends there, or after a jump."""
    steps: DelayedSteps = trajectory.report
    jumps = {crossing.step for crossing in trajectory.crossings}
    if n and n - 1 not in jumps:
        return steps.rates[n - 1, steps.tableau.end]
    if n < trajectory.n_steps and n not in jumps:
        return steps.rates[n, 0]
    delays, t = trajectory.problem.delays, float(trajectory.times[n])
    assert delays is not None
    z = delayed_states(trajectory, n - 1, t)
    return delays.rate(np.concatenate([[t], trajectory.u[n], z]), np.asarray(trajectory.p))


def interpolated(trajectory: Trajectory, places: Sequence[tuple[int, float]]) -> list[PETSc.Vec]:
    """Return the states [n] at times t inside steps n, given as (n, t), by interpolation."""
    steps: DelayedSteps = trajectory.report
    states: list[PETSc.Vec] = []
    for n, t in places:
        h = float(trajectory.step_sizes[n])
        weights = h * steps.tableau.at(np.array((t - float(trajectory.times[n])) / h))
        states.append(trajectory.stored[n].copy())
        write(states[-1], trajectory.u[n] + weights @ steps.rates[n])
    return states
