"""Pulses in time that a step has passed without a stage in them: steps end inside of these.

A stimulus ``np.where((t >= 10) & (t < 11), p[0], 0)`` is nothing to a step from 9 to 30 whose
stages lie beside it.  What the callback compares has changed sides twice between both ends of the
step all the same, and tells where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.looks.branch_changes import Piecewise, equations_of, point_on_chord
from daeosens.petsc.vectors import Array
from daeosens.problem.branches import Branches, Decisions, DecisionTable
from daeosens.timestepping.trajectory.trajectory import Trajectory

Take: TypeAlias = "Callable[[PETSc.Vec, Array], Trajectory]"
"""``take(start, times)``: a run from a state, which it keeps, whose steps hit these times."""

_Sides: TypeAlias = "tuple[float, ...]"

ROUNDS = 4
"""Runs, at most, until no step passes a pulse: pulses change the steps after them."""

MOST = 50
"""Steps, at most, that are looked into: rates may jump to and fro at each of more."""

FINEST = 1e-6
"""Part of a step that pulses are not shorter than."""


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
        inside = list(_pulses_passed(run)) if _compares_times(run) else []
        if not inside:
            break
        pinned = np.union1d(pinned, inside)
        again = take(run.stored[0].copy(), pinned)
        run.destroy()
        run = again
    return run, pinned


def _compares_times(run: Trajectory) -> bool:
    """Return whether equations compare times, and their steps can be looked at."""
    problem = run.problem
    # states of a run that keeps some would be taken again; on a grid there are very many
    known = problem.branches_known and problem.stencil is None and problem.comm.size == 1
    if not known or not run.n_steps or run.thinned:
        return False

    def start() -> tuple[float, Array, Array]:
        _, t, u = point_on_chord(run, 0, 0.0)
        return t, u, np.asarray(run.p)

    modes = (problem, *problem.modes.values())
    found_by = [mode.branches for mode in modes if isinstance(mode.branches, Branches)]
    return any(branches.compares_times(start) for branches in found_by)


def _pulses_passed(run: Trajectory) -> Iterator[float]:
    """Yield a time inside of each pulse that is inside of a step and that the step has missed."""
    function = equations_of(run, in_time=True)
    assert function is not None
    changed = _changed(run, function)
    if len(changed) > MOST:
        return
    rtol, atol = run.stepping.tolerances
    for n in changed:
        switches = list(_switches(run, function, n))
        h = float(run.step_sizes[n])
        for first, last in pairwise(switches):
            middle = 0.5 * (first + last)
            _, t, u = point_on_chord(run, n, middle)
            beside = [
                function.value(n, point_on_chord(run, n, place)[1], u)
                for place in (first - FINEST, last + FINEST)
            ]
            extra = np.abs(function.value(n, t, u) - 0.5 * (beside[0] + beside[1]))
            if np.any((last - first) * h * extra > atol + rtol * np.abs(u)):
                yield t


def _changed(run: Trajectory, function: Piecewise) -> list[int]:
    """Return the steps at whose ends several comparisons have other outcomes."""
    steps = np.flatnonzero(run.step_sizes > 0.0)
    # at a breakpoint what is compared depends on the side
    if function.along is not None and not run.problem.breakpoints:
        table = function.along(run.times, run.u)
        if isinstance(table, DecisionTable):
            sides = np.where(table.whole, table.values, np.sign(table.values))
            several = np.count_nonzero(sides[steps] != sides[steps + 1], axis=1) > 1
            return steps[several].tolist()
    known: dict[tuple[float, int], _Sides] = {}

    def end(n: int, place: float) -> _Sides:
        point = point_on_chord(run, n, place)
        key = point[1], n if run.records else 0  # without events a state is one to both its steps
        if key not in known:
            known[key] = _sides(function.decide(*point))
        return known[key]

    return [n for n in steps.tolist() if _several(end(n, 0.0), end(n, 1.0))]


def _several(before: _Sides, after: _Sides) -> bool:
    """Return whether more than one comparison may have another outcome."""
    changes = sum(side != other for side, other in zip(before, after, strict=False))
    return changes > 1 or len(before) != len(after)


def _switches(run: Trajectory, function: Piecewise, n: int) -> Iterator[float]:
    """Yield the places in a step, in order, at which something decides differently."""

    def sides(place: float) -> _Sides:
        return _sides(function.decide(*point_on_chord(run, n, place)))

    begin, last = 0.0, sides(1.0)
    while sides(begin) != last and begin < 1.0:
        before, low, high = sides(begin), begin, 1.0
        while high - low > FINEST:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if sides(middle) == before else (low, middle)
        yield 0.5 * (low + high)
        begin = high


def _sides(decisions: Decisions) -> _Sides:
    sides = np.where(decisions.whole, decisions.values, np.sign(decisions.values))
    return tuple(sides.tolist())
