"""Steps over poles of the equations: a solution does not pass a point where its rate is infinite.

Newton's method, and trial steps, may leave an unknown on the other side of 1/x, where the equations
have another solution, and error estimates do not see it where |x| is below the absolute tolerance.
Denominators that change their signs between two states are seen by one evaluation at all states.
"""

from __future__ import annotations

import numpy as np

from daeosens.derivatives.branches.branch_changes import Piecewise, equations_of, point_on_chord
from daeosens.errors import DiscretizationWarning, warn
from daeosens.petsc.vectors import Array, read
from daeosens.problem.branches import FEW_POINTS, Branches
from daeosens.problem.problem import ProblemCache
from daeosens.timestepping.trajectory.trajectory import Trajectory

MOST = 8
"""So many steps are looked at closely, at most."""

ROUNDS = 6
"""A sign change is located to 1/15^ROUNDS of its step."""

DISTANCES = (1e-3, 1e-4, 1e-5)
"""Distances from it, as parts of the step, at which the equations are evaluated."""

GROWTH = 5.0
"""By such a factor they grow from each to the next at a pole, whose factor is 10; what is bounded
there, (x - 1) / (exp(x - 1) - 1), does not grow at all, 1 / sqrt(x) by 3."""


ALWAYS = 32
"""So many runs are looked at wherever an unknown has changed its sign."""

_LOOKS: ProblemCache[list[int]] = ProblemCache(lambda: [0])
"""How many runs of a problem there were: lists of one number, which are changed."""


def warn_of_poles(run: Trajectory) -> None:
    """Warn where a step leads over a pole of the equations, if there is one."""
    problem, branches = run.problem, run.problem.branches
    concerned = problem.comm.size == 1 and problem.stencil is None and not run.thinned
    if not (concerned and isinstance(branches, Branches) and problem.form != "residual"):
        return
    if problem.modes or run.records or run.n_steps < 1 or not branches.divides(*_start(run)):
        return
    looks, signs = _LOOKS.of(problem), np.sign(run.u[0]) * np.sign(run.u[-1])
    looks[0] += 1
    # the 1st, 2nd, 4th, 8th, ... run, and some where an unknown has come to its other side
    if looks[0] & (looks[0] - 1) and not (looks[0] < ALWAYS and (signs < 0.0).any()):
        return
    denominators = _denominators(run, branches, _sides(run), run.u)
    if denominators is None:
        return
    # a denominator with another sign in the next state was zero on the way, or jumped
    changes = np.argwhere(denominators[:-1] * denominators[1:] < 0.0)
    function = equations_of(run)
    assert function is not None
    for n, k in changes[:MOST].tolist():
        place = _located(run, branches, n, k)
        if place is None or not _is_pole(run, function, n, place):
            continue
        time = float(run.times[n] + place * run.step_sizes[n])
        before, after = read(run.stored[n]), read(run.stored[n + 1])
        numbers = np.flatnonzero(before * after < 0.0).tolist()
        names = [problem.state_names[i] if problem.state_names else str(i) for i in numbers]
        which = f"; unknowns {', '.join(names)} change their signs there" if numbers else ""
        warn(
            f"the step from t = {run.times[n]:.9g} leads over a pole of the equations at about "
            f"t = {time:.9g}{which}: what follows is another solution, or none\n"
            "  try: the logarithm of what is positive as the unknown (pH in the place of the "
            "concentration); or smaller rtol, atol or dt, if the solution does not end there",
            DiscretizationWarning,
        )
        return


def _start(run: Trajectory) -> tuple[float, Array, Array]:
    return float(_sides(run)[0]), run.u[0], np.asarray(run.p)


def _sides(run: Trajectory) -> Array:
    """Return the times of the states, those at breakpoints as of the steps behind them."""
    times, last = run.times, run.times[-1]
    if not run.problem.breakpoints:
        return times
    beside = np.nextafter(times, np.where(times < last, np.inf, -np.inf))
    return np.where(np.isin(times, run.problem.breakpoints), beside, times)


def _denominators(run: Trajectory, branches: Branches, t: Array, u: Array) -> Array | None:
    return branches.denominators(t, u, np.asarray(run.p))


def _located(run: Trajectory, branches: Branches, n: int, k: int) -> float | None:
    """Return the place in [0, 1] on the chord of a step at which a denominator is zero."""
    low, high = 0.0, 1.0
    # not bisection: all points between the ends in one call of the callback
    for _ in range(ROUNDS):
        places = np.linspace(low, high, FEW_POINTS)
        points = [point_on_chord(run, n, place)[1:] for place in places.tolist()]
        t, u = np.array([time for time, _ in points]), np.array([state for _, state in points])
        there = _denominators(run, branches, t, u)
        if there is None or there.shape[1] <= k:
            return None
        changed = np.flatnonzero(there[:-1, k] * there[1:, k] <= 0.0)
        if not changed.size:
            return None
        low, high = float(places[changed[0]]), float(places[changed[0] + 1])
    return 0.5 * (low + high)


def _is_pole(run: Trajectory, function: Piecewise, n: int, place: float) -> bool:
    """Whether the equations grow without bound towards a place from both sides."""
    if not DISTANCES[0] < place < 1.0 - DISTANCES[0]:
        distances = [part * min(place, 1.0 - place) for part in (0.5, 0.05, 0.005)]
    else:
        distances = list(DISTANCES)
    for side in (-1.0, 1.0):
        places = [place + side * distance for distance in distances]
        with np.errstate(all="ignore"):
            f = np.array([function.value(*point_on_chord(run, n, at)) for at in places])
        # differences, so that what is large and smooth beside the pole does not hide it
        grown = np.abs(f[2] - f[1]), np.abs(f[1] - f[0])
        if not np.any(grown[0] > GROWTH * np.maximum(grown[1], 1e-12 * np.abs(f[0]))):
            return False
    return True
