"""Kinks and jumps of costs: of running costs inside of steps, of others at their points."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from daeosens.costs.cost import Cost, Scalar
from daeosens.derivatives.branches.branch_changes import (
    LASTS,
    LOCAL,
    NEARER,
    ON_THE_KINK,
    Piecewise,
    density_of,
    point_on_chord,
)
from daeosens.derivatives.branches.switch_times import times_of_change
from daeosens.derivatives.kinks_of_costs import steps_by_parts
from daeosens.derivatives.looks.resolution import told_above
from daeosens.derivatives.looks.seen import Seen, unseen_run
from daeosens.derivatives.looks.slope_jumps import (
    SlopeJump,
    jumps_at_states,
    jumps_in_time_alone,
    slope_jumps,
)
from daeosens.errors import KinkWarning, warn
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.branches import Branches
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory

OFF = 100.0
"""Multiples of rtol by which an integral may be off, as a part of its size, where it jumps."""

LOST = 0.02
"""Part of a gradient that the quadrature of kinks may lose without a word, at fixed steps.

In adaptive runs it is what other errors of derivatives are told above."""


def warn_of_cost_kinks(
    trajectory: Trajectory, costs: Sequence[Cost], seen: Seen, *, second: bool
) -> None:
    """Warn where costs have kinks or jumps that their gradients, or second derivatives, miss."""
    for cost in costs:
        if second:
            if _warn_of_bent_densities(trajectory, cost, seen):
                return
        else:
            _warn_of_densities(trajectory, cost, seen)
    if trajectory.problem.comm.size == 1:
        for cost in costs:
            _warn_of_points(trajectory, cost, second=second)


def _warn_of_bent_densities(trajectory: Trajectory, cost: Cost, seen: Seen) -> bool:
    """Warn where a running cost or its derivatives jump inside a step, and return whether."""
    for scalar in _densities(trajectory, cost):
        right = steps_by_parts(trajectory, scalar, second=True)
        first = steps_by_parts(trajectory, scalar)
        for change in slope_jumps(trajectory, density_of(trajectory, scalar), seen, right):
            lacking = (
                "its second derivatives have no bound, or it only touches, or several change at "
                "once: products with the Hessian may be off"
                if change.step in first
                else "products with the Hessian lack what the moving time of that change "
                "contributes"
            )
            _warn(
                trajectory,
                f"the running cost has a kink or jump near t = {change.time:.6g}, where a branch, "
                f"abs, maximum or the like changes sides between two steps: {lacking}\n"
                "  try: an event of the problem there, events=[daeosens.Event(lambda t, u, p: "
                "<what changes its sign>)], or a smooth cost",
            )
            return True
    return False


def _warn_of_densities(trajectory: Trajectory, cost: Cost, seen: Seen) -> None:
    for scalar in _densities(trajectory, cost):
        density = density_of(trajectory, scalar, in_time=True)
        lost, last, harmless = 0.0, 0.0, _HarmlessJumps(trajectory, scalar, density)
        # where a step ends on a jump the integral is right, and its derivative if the jump stays
        moving = slope_jumps(trajectory, density_of(trajectory, scalar), seen, at_ends="alone")
        right = steps_by_parts(trajectory, scalar)
        inside = slope_jumps(trajectory, density, seen, right, at_ends="never")
        for change in chain(inside, (change for change in moving if change.jump)):
            if change.jump and harmless(change.time):
                continue
            if change.jump:
                _warn(
                    trajectory,
                    f"the running cost jumps near t = {change.time:.6g}, where a branch changes "
                    "sides between two steps: its integral is off by as much as that step counts, "
                    "and derivatives lack what the time of that change contributes where it moves\n"
                    "  try: breakpoints= for a time that is known; else an unknown of its own for "
                    "the integral, whose rate depends on the mode, daeosens.hybrid",
                )
                return
            lost, last = lost + 0.5 * change.kink, change.time
        # a jump at the end of a step lies between no two states: both sides of each end are
        # compared
        for time in jumps_at_states(trajectory, density):
            if harmless(time):
                continue
            _warn(
                trajectory,
                f"the running cost jumps at t = {time:.6g}, where a step ends: there it is taken "
                "from either side by chance, and its integral is off by as much as an end of a "
                "step counts\n"
                "  try: breakpoints= for a time that is known; else an unknown of its own for the "
                "integral, whose rate depends on the mode, daeosens.hybrid",
            )
            return
        if not lost:
            continue
        steps = range(trajectory.n_steps)
        values = [density.value(*point_on_chord(trajectory, n, 0.0)) for n in steps]
        # what kinks lose, as a part of all that the density changes along the run
        part = lost / (float(np.sum(np.abs(np.diff(values, axis=0)))) + lost)
        limit = min(LOST, told_above(trajectory)) if trajectory.stepping.adaptive else LOST
        moves = trajectory.problem.delays is not None
        if moves or any(record.timed for record in trajectory.records):
            _warn(
                trajectory,
                f"the running cost has a kink near t = {last:.6g}, which steps may pass that move "
                "with delays or the times of events: gradients in these lack what the quadrature "
                "of a step makes of the kink\n"
                "  try: breakpoints= for a time that is known; an event of the problem there, or "
                "smaller steps",
            )
        elif part > limit:
            _warn(
                trajectory,
                f"the running cost has a kink inside a step near t = {last:.6g}, where a branch, "
                f"abs, maximum or the like changes sides: its gradient may be off by "
                f"{100 * part:.2g} % of its size, small entries by more of theirs, because the "
                "quadrature of the step is for smooth functions\n"
                "  try: an unknown whose rate it is, with a Terminal cost; an event of the problem "
                "there, events=[daeosens.Event(lambda t, u, p: <what changes its sign>)], or "
                "breakpoints= for a time that is known",
            )


class _HarmlessJumps:
    """Jumps of a running cost at times that nothing moves, where steps are short.

    Those of adaptive runs are where the equations jump as well: the integral is right then, and so
    is its derivative, since the jump stays where it is.
    """

    def __init__(self, trajectory: Trajectory, scalar: Any, density: Piecewise) -> None:
        self._trajectory, self._density, self._branches = trajectory, density, scalar.branches

    def __call__(self, time: float) -> bool:
        """Return whether a jump of the running cost at a time is one of these."""
        run, density = self._trajectory, self._density
        if not run.stepping.adaptive or any(record.timed for record in run.records):
            return False
        still, moved = self._times
        if np.any(np.abs(moved - time) <= LOCAL * abs(time)):
            return False
        n = min(max(int(np.searchsorted(run.times, time)) - 1, 0), run.n_steps - 1)
        at = [density.value(*point_on_chord(run, n, place)) for place in (0.0, 1.0)]
        rtol, _ = run.stepping.tolerances
        off = float(run.step_sizes[n] * np.abs(at[1] - at[0]).max())
        if off > OFF * rtol * self._size:
            return False
        jump = SlopeJump(time, 0.0, jump=True, sharp=False, timed=True, step=n, number=0)
        return jumps_in_time_alone(run, density, jump, still)

    @cached_property
    def _times(self) -> tuple[Array, Array]:
        """The times at which the cost may jump, those that parameters do not move and the others.

        None of a function with an ``if``: what it compares elsewhere is not known.
        """
        run, branches = self._trajectory, self._branches
        if not isinstance(branches, Branches) or branches.forks:
            return np.empty(0), np.empty(0)
        point = float(run.times[0]), run.u[0], np.asarray(run.p)
        still, every = (branches.of_time(*point, fixed=fixed).switches for fixed in (True, False))
        keys = {switch.key for switch in still}
        moved = [switch for switch in every if switch.key not in keys]
        return times_of_change(run, still), times_of_change(run, moved)

    @cached_property
    def _size(self) -> float:
        """Of the integral, without regard to signs."""
        run, density = self._trajectory, self._density
        values = [
            float(h * np.abs(density.value(*point_on_chord(run, n, 0.5))).max())
            for n, h in enumerate(run.step_sizes.tolist())
            if h
        ]
        return sum(values)


def _densities(trajectory: Trajectory, cost: Cost) -> list[Any]:
    """Return the densities whose branches are known."""
    if trajectory.problem.comm.size > 1:
        return []
    scalars = [scalar for _, scalar in cost.densities]
    return [scalar for scalar in scalars if getattr(scalar, "branches", None) is not None]


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
            _warn(
                trajectory,
                f"a cost at t = {t:.6g} is evaluated exactly where a branch, abs, maximum or the "
                f"like changes sides: {order} of one side\n"
                "  try: another point, or a cost that is smooth there",
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
        left = right = list[float]()
        with unseen_run():
            left, right = ([at(sign * k * side) for k in (1, 2, 3)] for sign in (-1.0, 1.0))
        if not right:  # a logarithm, say: nothing can be said
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


def _warn(trajectory: Trajectory, message: str) -> None:
    warn(message, KinkWarning, trajectory.problem.comm)
