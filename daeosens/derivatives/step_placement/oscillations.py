"""Explicit steps that resolve oscillations which the state does not show and perturbations do.

A long wave on a string, a soliton: the state is smooth, and its error estimate lets steps be long;
but a perturbation of the start, or of a parameter, is made of all modes, and those that are fast
beside the steps get any phase.  So the run is taken again with steps that resolve the fastest
oscillation that lasts, where they are longest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from daeosens.timestepping.method_choice import replaced
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.stiffness import fastest_oscillation, resolving_step
from daeosens.timestepping.trajectory.trajectory import Trajectory

MANY = 10.0
"""What a step may leave of a mode in its own time, in units of rtol: derivatives may lose a hundred
times as much, over many periods."""

FEW = 12
"""So few unknowns hide no mode that is much faster than what they show, as many neighbours do; and
their runs take no longer than the look at them."""

MOST = 100
"""Pieces of a run between events, at most, that are looked at."""

Again: TypeAlias = "Callable[[Stepping], Trajectory]"
"""``again(stepping)``: the run by other steps."""


def resolve_oscillations(run: Trajectory, most: int, again: Again) -> Trajectory:
    """Return a run whose steps resolve oscillations; the one given if they do.

    Of adaptive runs by explicit methods on one rank, in each piece between events.

    Parameters
    ----------
    run : Trajectory
        Destroyed where another one is returned.
    most : int
        Steps that may be taken; the run itself may have been a trial of fewer.
    again : callable
        See ``Again``.
    """
    problem, stepping = run.problem, run.stepping
    method = stepping.resolved_method
    known = problem.comm.size == 1 and not run.thinned
    if not (known and method.explicit and stepping.adaptive and problem.size > FEW):
        return run
    rtol, _ = stepping.tolerances
    resolved = resolving_step(method, MANY * rtol)
    rate = max((_unresolved(run, *piece, resolved) for piece in run.pieces[:MOST]), default=0.0)
    if not rate:
        return run
    # of equal length, as many as the span needs: none of them is cut short at its end
    span = abs(float(run.times[-1] - run.times[0]))
    count = math.ceil(span * rate / resolved)
    if count > most - run.n_steps:
        return run
    longest = float(np.nextafter(span / count, math.inf))
    finer = again(replaced(stepping, max_step=longest, max_steps=most))
    run.destroy()
    return finer


def _unresolved(run: Trajectory, first: int, last: int, resolved: float) -> float:
    """Return the rate of the fastest oscillation in some steps if they do not resolve it; else 0.

    ``resolved`` is the longest step that does, in units of 1 / rate.
    """
    # where steps are longest: others may be short for what is fast in their time only
    n = first + int(run.step_sizes[first:last].argmax())
    longest = float(run.step_sizes[n])
    problem, p = run.equations(n)
    t = problem.inside(float(run.times[n]), float(run.times[n]), longest)
    rate = fastest_oscillation(problem, t, run.stored[n], p, resolved / longest)
    return rate if longest * rate > resolved else 0.0
