"""Pulses in time that a step has passed without a stage in them: steps end inside of these.

A stimulus ``np.where((t >= 10) & (t < 11), p[0], 0)`` is nothing to a step from 9 to 30 whose
stages lie beside it.  But what the callback compares the time with is known, and so are the times
at which that changes sides, each pulse of ``t % 24 < 0.5`` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.looks.branch_changes import equations_of, point_on_chord
from daeosens.derivatives.looks.switch_times import switch_times
from daeosens.petsc.vectors import Array
from daeosens.timestepping.trajectory.trajectory import Trajectory

Take: TypeAlias = "Callable[[PETSc.Vec, Array], Trajectory]"
"""``take(start, times)``: a run from a state, which it keeps, whose steps hit these times."""

ROUNDS = 4
"""Runs, at most, until no step passes a pulse: pulses change the steps after them."""

MOST = 10_000
"""Pulses, at most, that are looked into."""

FINEST = 1e-6
"""Part of a pulse: so far from its ends its sides are."""


def see_pulses(run: Trajectory, pinned: Array, take: Take) -> tuple[Trajectory, Array]:
    """Return a run that has seen the pulses of its equations, and the times [K] its steps hit.

    Parameters
    ----------
    run : Trajectory
        An adaptive run whose steps hit ``pinned`` [K].
    take : callable
        See ``Take``.
    """
    for _ in range(ROUNDS):
        inside = list(_pulses_passed(run))
        if not inside:
            break
        pinned = np.union1d(pinned, inside)
        again = take(run.stored[0].copy(), pinned)
        run.destroy()
        run = again
    return run, pinned


def _pulses_passed(run: Trajectory) -> Iterator[float]:
    """Yield a time inside of each pulse that lies between two stages of a step."""
    times = switch_times(run)
    missed = _without_stages(run, times[:-1], times[1:]) if times.size > 1 else []
    if not 0 < len(missed) <= MOST:
        return
    function = equations_of(run)
    assert function is not None
    rtol, atol = run.stepping.tolerances
    for k in missed:
        first, last = float(times[k]), float(times[k + 1])
        n = int(np.searchsorted(run.times, first, side="right")) - 1
        start, h = float(run.times[n]), float(run.step_sizes[n])
        middle = 0.5 * (first + last)
        _, t, u = point_on_chord(run, n, (middle - start) / h)
        beside = FINEST * (last - first)
        sides = 0.5 * (function.value(n, first - beside, u) + function.value(n, last + beside, u))
        extra = np.abs(function.value(n, t, u) - sides)
        if np.any((last - first) * extra > atol + rtol * np.abs(u)):
            yield t


def _without_stages(run: Trajectory, first: Array, last: Array) -> list[int]:
    """Return the numbers of the stretches of time [S] that have no stage in them."""
    tableau = run.stepping.resolved_method.tableau
    places = np.array([0.0, 1.0] if tableau is None else [0.0, *tableau.c, 1.0])
    stages = np.unique(run.times[:-1, None] + places * run.step_sizes[:, None])
    room = FINEST * (last - first)
    before = np.searchsorted(stages, first + room, side="right")
    return np.flatnonzero(before == np.searchsorted(stages, last - room)).tolist()
