"""Pulses in time that a step has passed without a stage in them: steps end inside of these.

Jumps are looked for here, smooth peaks and tables in ``peaks``.

A stimulus ``np.where((t >= 10) & (t < 11), p[0], 0)`` is nothing to a step from 9 to 30 whose
stages lie beside it.  But what the callback compares the time with is known, and so are the times
at which that changes sides, each pulse of ``t % 24 < 0.5`` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.branches.branch_changes import equations_of, point_on_chord
from daeosens.derivatives.branches.switch_times import made_of_time, times_of_change
from daeosens.derivatives.cadence import is_due
from daeosens.derivatives.step_placement.peaks import Peak, peaks_missed, values_at
from daeosens.errors import DiscretizationWarning, warn
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import ProblemCache
from daeosens.timestepping.trajectory.trajectory import Trajectory

Take: TypeAlias = "Callable[[PETSc.Vec, Array], Trajectory]"
"""``take(start, times)``: a run from a state, which it keeps, whose steps hit these times."""

ROUNDS = 4
"""Runs, at most, until no step passes a pulse: pulses change the steps after them."""

MOST = 10_000
"""Pulses, at most, that are looked into."""

MANY, LEFT = 10.0, 1000.0
"""Multiples of the tolerance that adaptive steps may miss, and that they may after all rounds.

Corners of a rough table lie in other steps in each of them, and cost some tolerances there.
"""

CONSIDERABLE = 0.01
"""Part of the largest size of an unknown that steps of fixed size may miss without a word."""

FINEST = 1e-6
"""Part of a pulse: so far from its ends its sides are."""


_RUNS: ProblemCache[list[int]] = ProblemCache(lambda: [0])
"""How many runs of a problem with fixed steps there were: lists of one number."""


def see_pulses(run: Trajectory, pinned: Array, take: Take) -> tuple[Trajectory, Array]:
    """Return a run that has seen the pulses of its equations, and the times [K] its steps hit.

    Parameters
    ----------
    run : Trajectory
        An adaptive run whose steps hit ``pinned`` [K].
    take : callable
        See ``Take``.
    """
    if not run.problem.branches_known:
        return run, pinned
    rtol, atol = run.stepping.tolerances
    # a run that has seen one pulse is another run after it, and may pass pulses of its own
    for number in range(ROUNDS + 1):
        missed = MANY if number < ROUNDS else LEFT
        inside = [
            peak.time
            for peak in _passed(run)
            if np.any(peak.missed > missed * (atol + rtol * np.abs(peak.state)))
        ]
        if not inside:
            break
        if number == ROUNDS:
            _warn(inside[0], "whatever steps were tried")
            break
        pinned = np.union1d(pinned, inside)
        again = take(run.stored[0].copy(), pinned)
        run.destroy()
        run = again
    return run, pinned


def warn_of_pulses(run: Trajectory) -> None:
    """Warn where steps of fixed size pass pulses, if it is time to look for them."""
    if not run.problem.branches_known or run.thinned or run.n_steps < 1:
        return
    runs = _RUNS.of(run.problem)
    runs[0] += 1
    if not is_due(runs[0]):
        return
    for peak in _passed(run):
        largest = np.abs(run.u).max(axis=0)
        if np.any(peak.missed > CONSIDERABLE * largest):
            _warn(peak.time, f"of dt = {run.stepping.dt:g}")
            return


def _warn(time: float, steps: str) -> None:
    warn(
        f"the equations have a pulse near t = {time:.6g} that lies between the stages of steps "
        f"{steps}: the run knows nothing of it, or little\n"
        "  try: breakpoints= where it begins and ends, or rtol= and max_step=, or a smaller dt",
        DiscretizationWarning,
    )


def _passed(run: Trajectory) -> Iterator[Peak]:
    """Yield what lies between two stages of a step."""
    noted = made_of_time(run)
    if not (noted.switches or noted.formulas):
        return
    times = times_of_change(run, noted.switches)
    yield from _pulses_passed(run, times)
    if run.problem.delays is None:  # a step that ends at a kink there would hide it
        yield from peaks_missed(run, noted, times)


def _pulses_passed(run: Trajectory, times: Array) -> Iterator[Peak]:
    """Yield the pulses, between two of the times [S], that lie between two stages of a step."""
    missed = _without_stages(run, times[:-1], times[1:]) if times.size > 1 else []
    if not 0 < len(missed) <= MOST:
        return
    function = equations_of(run)
    assert function is not None
    for k in missed:
        first, last = float(times[k]), float(times[k + 1])
        n = int(np.searchsorted(run.times, first, side="right")) - 1
        start, h = float(run.times[n]), float(run.step_sizes[n])
        # the state is that of the run without the pulse, which is the one that has passed it
        middle = 0.5 * (first + last)
        _, t, u = point_on_chord(run, n, (middle - start) / h)
        beside = FINEST * (last - first)
        values = values_at(function, n, (first - beside, t, last + beside), u)
        if values is not None:
            # by how much the rate inside differs from that on both sides, for as long as it lasts
            before, inside, behind = values
            yield Peak(t, u, (last - first) * np.abs(inside - 0.5 * (before + behind)))


def _without_stages(run: Trajectory, first: Array, last: Array) -> list[int]:
    """Return the numbers of the stretches of time [S] that have no stage in them."""
    tableau = run.stepping.resolved_method.tableau
    places = np.array([0.0, 1.0] if tableau is None else [0.0, *tableau.c, 1.0])
    stages = np.unique(run.times[:-1, None] + places * run.step_sizes[:, None])
    # a stage just at an end may be on either side, by rounding: it has not seen the pulse
    room = FINEST * (last - first)
    before = np.searchsorted(stages, first + room, side="right")
    return np.flatnonzero(before == np.searchsorted(stages, last - room)).tolist()
