"""Explicit steps short enough that decays die out in perturbations as they do in the state.

After a transient the state no longer shows what decays fast, and steps grow until they are as long
as stability allows.  There a step multiplies such a mode by nearly 1: the error estimate keeps it
at the tolerance in the state, but derivatives by rates of decay grow with the number of the steps,
second ones with its square.  So the run is taken again with steps that leave at most a quarter of
the mode, which are a fifth shorter.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from daeosens.derivatives.step_placement.oscillations import MOST, Again
from daeosens.methods.method import Method
from daeosens.timestepping.method_choice import replaced
from daeosens.timestepping.stiffness import WHOLE, outermost_decay
from daeosens.timestepping.trajectory.trajectory import Trajectory

LEFT = 0.25
"""What a step may leave of a mode that decays."""

MORE = 0.5
"""Steps that may be added, beside those of the run: where it takes more, the equations are stiff
all the time, or in a part of it that sets no size for the others."""

LONGEST = 10.0
"""Steps, in the time 1 / |lambda| of a decay, of which no method is stable."""


def damp_decays(run: Trajectory, most: int, again: Again) -> Trajectory:
    """Return a run whose steps damp what decays; the one given if they do.

    Of adaptive runs by explicit methods on one rank with few unknowns, in each piece between
    events.  A run that has rejected no step is not looked at, which would take as long as a short
    one: steps that stability holds grow, as a rule, until they are rejected.

    Parameters
    ----------
    run : Trajectory
        Destroyed where another one is returned.
    most : int
        Steps that may be taken.
    again : callable
        See ``Again``.
    """
    problem, stepping = run.problem, run.stepping
    method = stepping.resolved_method
    known = problem.comm.size == 1 and not run.thinned and run.effort.rejected > 0
    if not (known and method.explicit and stepping.adaptive and problem.size <= WHOLE):
        return run
    damped = damping_step(method)
    rate = max((_undamped(run, *piece, damped) for piece in run.pieces[:MOST]), default=0.0)
    if not rate:
        return run
    longest = damped / rate
    added = float(np.maximum(run.step_sizes / longest - 1.0, 0.0).sum())
    if added > min(MORE * run.n_steps, most - run.n_steps):
        return run
    finer = again(replaced(stepping, max_step=longest, max_steps=most))
    run.destroy()
    return finer


@lru_cache(maxsize=32)
def damping_step(method: Method) -> float:
    """Return the longest explicit step, in the time 1 / |lambda| of a decay, that damps it.

    Steps from which the stability function is at most ``LEFT``, as exp(z) is, up to where it is
    larger; infinite of a method that damps nothing so far.
    """
    assert method.tableau is not None
    a, b = np.asarray(method.tableau.a), np.asarray(method.tableau.b)
    ones, sizes = np.ones(len(b)), np.arange(0.0, LONGEST, 0.01)
    left = [1.0 - z * (b @ np.linalg.solve(np.eye(len(b)) + z * a, ones)) for z in sizes]
    damps = np.abs(left) <= LEFT
    if not damps.any():
        return math.inf
    first = int(damps.argmax())
    return float(sizes[first + int(damps[first:].argmin()) - 1])


def _undamped(run: Trajectory, first: int, last: int, damped: float) -> float:
    """Return the rate of the fastest decay in some steps if they do not damp it; else 0.

    ``damped``: the longest step that does, in units of 1 / rate.
    """
    # where steps are longest: as long as stability allows
    n = first + int(run.step_sizes[first:last].argmax())
    longest = float(run.step_sizes[n])
    if not longest:
        return 0.0
    problem, p = run.equations(n)
    t = problem.inside(float(run.times[n]), float(run.times[n]), longest)
    rate = outermost_decay(problem, t, run.stored[n], p, damped / longest)
    return rate if longest * rate > damped else 0.0
