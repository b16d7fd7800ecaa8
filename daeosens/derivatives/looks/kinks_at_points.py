"""Costs that are evaluated exactly on a kink, where their derivative is that of one side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daeosens.costs.cost import Cost, Scalar
from daeosens.derivatives.looks.branch_changes import LASTS, NEARER, ON_THE_KINK
from daeosens.errors import DaeosensError, KinkWarning, warn
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory


def warn_on_kinks(trajectory: Trajectory, costs: Sequence[Cost], *, second: bool) -> None:
    """Warn where a cost at a point is on a kink exactly: its derivative is that of one side."""
    if trajectory.problem.comm.size > 1:
        return
    for cost in costs:
        _warn_of_points(trajectory, cost, second=second)


def _warn_of_points(trajectory: Trajectory, cost: Cost, *, second: bool) -> None:
    # what one point shows to have no branches is not asked again at others
    smooth: set[int] = set()
    for when, _, scalar in cost.points:
        branches = getattr(scalar, "branches", None)
        if branches is None or id(branches.function) in smooth:
            continue
        t, state, p = trajectory.point(when)
        u, numbers = read(state), np.asarray(p)
        decided = branches(t, u, numbers)
        # whole numbers, of floor and the like, are where they jump and have no distance to a kink
        compared = decided.values[~decided.whole]
        if not decided.values.size:
            smooth.add(id(branches.function))
            continue
        sizes = np.concatenate([np.abs(u), np.abs(numbers), [0.0]])
        if np.any(np.abs(compared) <= ON_THE_KINK * np.max(sizes)) and _bent(
            trajectory.problem, scalar, (t, u, p), second
        ):
            order = "second derivatives are those" if second else "its gradient is that"
            warn(
                f"a cost at t = {t:.6g} is evaluated exactly where a branch, abs, maximum or the "
                f"like changes sides: {order} of one side\n"
                "  try: another point, or a cost that is smooth there",
                KinkWarning,
            )
            return


def _bent(problem: Problem, scalar: Scalar, point: tuple[float, Array, Any], second: bool) -> bool:
    """Return whether the gradient (or the second derivative) of a scalar jumps at a point."""
    t, u, p = point
    rng = np.random.default_rng(1)
    numbers = np.asarray(p, dtype=float)
    # a direction in which every unknown grows, so that a kink in any of them is crossed
    along_u = rng.uniform(0.5, 1.0, u.size) * _scale(u)
    along_p = rng.uniform(0.5, 1.0, numbers.shape) * _scale(numbers)
    state = problem.create_state()

    def at(x: float) -> float:
        write(state, u + x * along_u)
        return scalar.value(t, state, numbers + x * along_p)

    kinks = []
    # one-sided differences at two distances: those of a smooth cost come together as the distance
    # shrinks, those at a kink keep their gap
    for side in (1e-3, 1e-3 / NEARER):
        try:
            left = [at(-k * side) for k in (1, 2, 3)]
            right = [at(k * side) for k in (1, 2, 3)]
        except DaeosensError:  # a logarithm, say: nothing can be said
            return False
        slopes = [(values[1] - values[0]) / side for values in (left, right)]
        size, rounding = max(map(abs, left + right)), 1e-14
        if second:
            bends = [(values[2] - 2 * values[1] + values[0]) / side**2 for values in (left, right)]
            difference, noise = abs(bends[1] - bends[0]), rounding * size / side**2
        else:
            difference, noise = abs(slopes[1] + slopes[0]), rounding * size / side
        kinks.append(difference if difference > noise else 0.0)
    return bool(kinks[1] > LASTS * kinks[0] and kinks[1] > 0.0)


def _scale(values: Array) -> float:
    largest = float(np.max(np.abs(values))) if values.size else 0.0
    return largest or 1.0
