"""Steps of a run that rests at first, for derivatives through perturbations that do not.

A muscle waits for its pulse, a car drives straight on before it is steered.  The state stays, or
moves along a straight line, so the error estimate lets steps grow to any length; but perturbations
of the start decay and oscillate, and a step of an explicit method that is long beside them makes
them anything.  So the run is taken again with steps that resolve the fastest mode of the start.
"""

from __future__ import annotations

import math

import numpy as np

from daeosens.derivatives.pulses import Take, see_pulses
from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array
from daeosens.timestepping.stiffness import modes, resolving_step
from daeosens.timestepping.trajectory.trajectory import Trajectory

MOST = 1000
"""Steps, at most, that a rest is divided into, and no more than the run has left; it is left where
modes are faster than these."""

ROUNDING = 1e-12
"""Part of a state by which a straight line may miss it."""

FEW = 50
"""Steps, at most, that are looked at: those of a rest grow four times from one to the next."""


def divide_rest(run: Trajectory, pinned: Array, take: Take) -> tuple[Trajectory, Array]:
    """Return a run that resolves its rest at the start, and the times [K] that its steps hit.

    Of adaptive runs by explicit methods on one rank, without events.

    Parameters
    ----------
    run : Trajectory
        Destroyed where another one is returned.
    pinned : array [K]
        The times that its steps hit.
    take : callable
        See ``Take``.
    """
    problem, method = run.problem, run.stepping.resolved_method
    known = problem.smooth and problem.comm.size == 1 and not run.thinned
    last = _straight(run) if known and method.explicit else 0
    if not last:
        return run, pinned
    first, end = float(run.times[0]), float(run.times[last])
    t = problem.inside(first, first, end - first)
    fastest = np.abs(modes(problem, t, run.stored[0], run.parameters(0))).max(initial=0.0)
    if not fastest:
        return run, pinned
    # so that what the method leaves of a mode in its own time is the tolerance
    rtol, _ = run.stepping.tolerances
    longest = resolving_step(method, rtol) / fastest
    # what is left of the steps that may be taken: a run that was possible does not fail for this
    most = min(MOST, run.stepping.max_steps - (run.n_steps - last))
    count = min(math.ceil((end - first) / longest), most)
    if (end - first) * fastest > count or run.step_sizes[:last].max() <= longest:
        return run, pinned
    divided = np.union1d(pinned, np.linspace(first, end, count + 1)[1:-1])
    try:
        again = take(run.stored[0].copy(), divided)
        # steps after the rest begin elsewhere
        again, divided = see_pulses(again, divided, take)
    except SolveError:
        return run, pinned  # likewise: a look at the derivatives tells what is not resolved
    run.destroy()
    return again, divided


def _straight(run: Trajectory) -> int:
    """Return how many steps the state takes along a straight line at the start."""
    times, u, last = run.times, run.u, 0
    for n in range(2, min(run.n_steps, FEW) + 1):
        parts = (times[1:n] - times[0]) / (times[n] - times[0])
        line = u[0] + parts[:, None] * (u[n] - u[0])
        if (np.abs(u[1:n] - line) > ROUNDING * (np.abs(u[0]) + np.abs(u[n]))).any():
            break
        last = n
    return last
