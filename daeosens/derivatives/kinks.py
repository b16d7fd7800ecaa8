"""Kinks of the equations between the steps of a run, which second derivatives do not see."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from daeosens.errors import KinkWarning
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory

ON_THE_KINK = 1e-12
"""What a branch compares is zero where it is this small beside its largest value in the run."""

SIDE = 1e-5
"""Distance from a kink, as a part of the step, at which slopes on its sides are taken."""

JUMP = 1e-3
"""Slopes that differ by a larger part of themselves are those of a kink."""


def warn_of_kinks(trajectory: Trajectory) -> None:
    """Warn where f or its derivatives jump inside a step.

    A product with the Hessian differentiates the steps that were taken, each on its branch of f.
    Where f_u jumps between two states, the exact second derivative has a term from the moving time
    of the crossing that no step contains; an event there brings it in.  Not collective: problems
    whose branches are known are on one rank.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    """
    for time, _ in _jumps(trajectory):
        warnings.warn(
            f"the equations have a kink or jump near t = {time:.6g}, where a branch, abs, "
            "maximum or the like changes sides between two steps: products with the Hessian "
            "lack what the moving time of that change contributes\n"
            "  try: an event there, events=[daeosens.Event(lambda t, u, p: <what changes its "
            "sign>)]",
            KinkWarning,
            stacklevel=3,
        )
        return


def warn_of_jumps(trajectory: Trajectory) -> None:
    """Warn where f itself jumps inside a step, where gradients lack a term.

    It looks at the first run of a problem, then ever more rarely: runs of one problem resemble
    each other, and a look costs an evaluation of f at each state.
    """
    if trajectory.problem.branches is None:
        return
    counts = trajectory.problem.probed
    count = counts["looks for jumps"] = counts.get("looks for jumps", 0) + 1
    if count & (count - 1) or count.bit_length() % 3 != 1:  # 1, 8, 64, ...
        return
    for time, in_f in _jumps(trajectory):
        if in_f:
            warnings.warn(
                f"the equations jump near t = {time:.6g}, where a branch changes sides between two "
                "steps: derivatives lack what the time of that change contributes where it moves\n"
                "  try: an event there that changes the mode, daeosens.hybrid; breakpoints= for a "
                "jump at a time that is known",
                KinkWarning,
                stacklevel=3,
            )
            return


def _jumps(trajectory: Trajectory) -> Iterator[tuple[float, bool]]:
    """Yield the times in steps at which f (True) or its slope (False) jumps."""
    if trajectory.problem.modes or trajectory.problem.branches is None:
        return  # modes are what events are for
    at_events = {crossing.step for crossing in trajectory.crossings}
    for n, place in _crossings(trajectory, at_events):
        kink, jump = _sides(trajectory, n, place)
        if kink or jump:
            yield float(trajectory.times[n] + place * trajectory.step_sizes[n]), jump


def _crossings(trajectory: Trajectory, left_out: set[int]) -> Iterator[tuple[int, float]]:
    """Yield the steps inside of which a branch changes, with the place in the step in [0, 1]."""
    first = _at(trajectory, 0, 0.0)
    if not first.size:
        return
    values = [first, *(_at(trajectory, n, 1.0) for n in range(trajectory.n_steps))]
    longest = max(each.size for each in values)
    largest = np.zeros(longest)
    for each in values:
        largest[: each.size] = np.fmax(largest[: each.size], np.abs(each))
    for n, (before, after) in enumerate(pairwise(values)):
        if n in left_out:
            continue
        # after a branch that changed, others are compared: that one stands among the common ones
        count = min(before.size, after.size)
        small = ON_THE_KINK * largest[:count]
        x, y = before[:count], after[:count]
        change = (x * y < 0.0) & (np.abs(x) > small) & (np.abs(y) > small)
        for k in np.flatnonzero(change):
            yield n, _bisected(trajectory, n, int(k), bool(x[k] > 0.0))


def _bisected(trajectory: Trajectory, n: int, k: int, positive: bool) -> float:
    """Return where on the chord of a step the k-th comparison changes its sign."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        values = _at(trajectory, n, middle)
        if k < values.size and (values[k] > 0.0) == positive:
            low = middle
        else:
            high = middle
    return high


def _sides(trajectory: Trajectory, n: int, place: float) -> tuple[bool, bool]:
    """Return whether the slope of f along the chord of a step jumps there, and whether f does."""
    problem = trajectory.problem
    below, above = max(place - 2 * SIDE, 0.0), min(place + 2 * SIDE, 1.0)
    if above - below < 3 * SIDE:
        return False, False
    values = [_rate(problem, trajectory, n, x) for x in (below, place - SIDE, place + SIDE, above)]
    left, right = (values[1] - values[0]) / SIDE, (values[3] - values[2]) / SIDE
    rounding = 1e-13 * np.max(np.abs(values)) / SIDE
    size = np.abs(left) + np.abs(right)
    kink = np.abs(right - left) > JUMP * size + rounding
    jump = np.abs(values[2] - values[1]) > 10.0 * SIDE * size + rounding * SIDE
    return bool(np.any(kink)), bool(np.any(jump))


def _point(trajectory: Trajectory, n: int, place: float) -> tuple[float, Array]:
    """Return time and state on the chord of a step."""
    before, after = read(trajectory.states[n]), read(trajectory.states[n + 1])
    t = float(trajectory.times[n] + place * trajectory.step_sizes[n])
    return t, (1.0 - place) * before + place * after


def _at(trajectory: Trajectory, n: int, place: float) -> Array:
    """Return what branches compare there."""
    branches = trajectory.problem.branches
    assert branches is not None
    t, u = _point(trajectory, n, place)
    return branches(t, u, np.asarray(trajectory.parameters(n)))


def _rate(problem: Problem, trajectory: Trajectory, n: int, place: float) -> Array:
    """Return f [n] there."""
    t, u = _point(trajectory, n, place)
    state, out = problem.create_state(), problem.create_state()
    write(state, u)
    problem.rhs(t, state, trajectory.parameters(n), out)
    values = read(out).copy()
    state.destroy()
    out.destroy()
    return values
