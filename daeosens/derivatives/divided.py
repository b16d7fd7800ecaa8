"""Steps of a run once more, or each divided, and the errors that their difference tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.derivatives.step_placement.kink_cuts import may_have_kinks
from daeosens.derivatives.sweeps.kink_terms import LONGER, has_short_steps, short_step
from daeosens.petsc.vectors import Array
from daeosens.timestepping.method_choice import replaced
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Trajectory

FINER, COARSEST = 1.0 / 8.0, 0.5
"""The part of its tolerance by which a run is taken again, in halves of its steps or less, and the
largest such part: 4 / 2^order.  Smooth steps by methods of lower order would be divided further."""

TIGHTEST = 1e-14
"""Smaller tolerances than that are rounding: steps are divided as they are."""

AHEAD = 1.0 / 16.0
"""How far beyond an event a step is tried first, as a part of the step that ends there."""

BESIDE = 1e-4
"""Part of the span beside a breaking point in which a finer run takes steps of its own."""


def divided(trajectory: Trajectory, *, finer: bool = False) -> tuple[Stepping, int]:
    """Return the stepping of a run whose steps are equal parts of those of this one.

    And how many parts: two (``finer``: four), or three (five) where the equations may have kinks.
    Steps close in on a kink, which is in the middle of the last one and stays in the middle of a
    step: halves would end there, and rounding say on which side their last stages are.  Steps that
    end at implicit events do so at times of their own.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -u, size=1)
    >>> stepping, parts = divided(solve(decay, [1.0], None, Stepping((0.0, 1.0), "cn", dt=0.5)))
    >>> stepping.t_eval, stepping.dt, parts
    ((0.25, 0.5, 0.75), 0.25, 2)
    """
    odd, even = (5, 4) if finer else (3, 2)
    if trajectory.problem.delays is not None:
        run = trajectory.report
        return trajectory.stepping.of_shares([_ends(s, odd) for s in run.shares], run.pinned), odd
    parts = odd if trajectory.stepping.adaptive and may_have_kinks(trajectory) else even
    times, sizes = trajectory.times, trajectory.step_sizes
    # steps of size 0 are events, which nothing is inside of
    inside = (times[:-1, None] + sizes[:, None] * _shares(parts))[sizes > 0.0]
    return _fixed_steps(trajectory, inside.ravel()), parts


def chosen_at_kinks(trajectory: Trajectory) -> bool:
    """Return whether an error estimate has chosen steps that end at kinks, as far as is known."""
    stepping = trajectory.stepping
    return stepping.adaptive and not stepping.shares and may_have_kinks(trajectory)


def tightened(trajectory: Trajectory, points: npt.ArrayLike) -> tuple[Stepping, Array] | None:
    """Return adaptive steps by a smaller tolerance, and the times [K] that they hit.

    These are the points and the ends and middles of the steps of a run, but for ends at times of
    their own: events, and the breaking points of delay equations.  Kinks and events of better
    states are elsewhere.  None where the tolerance would be rounding.
    """
    stepping = trajectory.stepping
    rtol, atol = stepping.tolerances
    part = min(max(FINER, 4.0 * 0.5**stepping.resolved_method.order), COARSEST)
    if part * rtol < TIGHTEST:
        return None
    moved = {n for event in trajectory.crossings for n in (event.step, event.step + 1)}
    moved |= set(trajectory.report.breaking) if trajectory.problem.delays is not None else set()
    ends = trajectory.times[[n for n in range(trajectory.n_steps + 1) if n not in moved]]
    sizes = trajectory.step_sizes
    # a better kink lies elsewhere, perhaps on the middle of the short step across that of the run
    middles = (trajectory.times[:-1] + 0.5 * sizes)[sizes > LONGER * short_step(trajectory)]
    own = np.concatenate([ends, middles])
    if trajectory.problem.delays is not None:
        # steps beside a breaking point move with it, and so does what jumps there
        breaking = trajectory.times[np.array(trajectory.report.breaking, dtype=int)]
        near = BESIDE * float(np.ptp(trajectory.times))
        own = own[(np.abs(own[:, None] - breaking) > near).all(axis=1)]
    times = np.unique(np.concatenate([np.asarray(points, dtype=float), own]))
    finer = {"rtol": part * rtol, "atol": part * atol, "cut": True, "control": "states"}
    # those of a run that took half of them may be all that there may be
    finer["max_steps"] = max(stepping.max_steps, 8 * trajectory.n_steps)
    return replaced(stepping, t_eval=(), **finer), times


def _shares(count: int) -> Array:
    """Return where a step of length 1 is divided into equal parts."""
    return np.arange(1, count) / count


def _ends(ends: Array, count: int) -> Array:
    """Return the ends of equal parts of steps.

    Examples
    --------
    >>> _ends(np.array([0.5, 1.0]), 2)
    array([0.25, 0.5 , 0.75, 1.  ])
    """
    starts = np.concatenate([[0.0], ends[:-1]])
    inside = starts[:, None] + (ends - starts)[:, None] * _shares(count)
    return np.column_stack([inside, ends]).ravel()


def repeated(trajectory: Trajectory) -> Stepping:
    """Return the stepping of a run that takes the steps of this one, whatever its parameters are.

    Steps that end at implicit events do so at times of their own; those of a delay equation keep
    their shares of the pieces between breaking points.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -u, size=1)
    >>> stepping = repeated(solve(decay, [1.0], None, Stepping((0.0, 1.0), "cn", dt=0.5)))
    >>> stepping.t_eval, stepping.dt
    ((0.5,), 0.5)
    """
    if trajectory.problem.delays is not None:  # whose steps move with the delays
        return trajectory.stepping.of_shares(trajectory.report.shares, trajectory.report.pinned)
    return _fixed_steps(trajectory, [])


def _fixed_steps(trajectory: Trajectory, further: npt.ArrayLike) -> Stepping:
    """Return fixed steps that end where those of a run do, and at further times."""
    stepping, times = trajectory.stepping, trajectory.times
    # events are located anew, so that no step is made to end where one was
    at_events = [n for crossing in trajectory.crossings for n in (crossing.step, crossing.step + 1)]
    kept = np.ones(len(times), dtype=bool)
    kept[[0, *at_events]] = False
    first, last = stepping.t_span[0], min(stepping.t_span[1], float(times[-1]))
    ends = np.unique([*times[kept], *np.asarray(further, dtype=float)])
    inside = ends[(first < ends) & (ends < last)].tolist()
    longest = float(np.diff([first, *inside, last]).max())
    if np.size(further):
        inside = _past_events(trajectory, [first, *inside, last])
    if last < stepping.t_span[1]:
        inside += _beyond(inside[-1] if inside else first, last, longest)
    inside = [time for time in inside if time < stepping.t_span[1]]
    # dt is as long as the longest gap: every step ends at the next listed time
    longest = max(longest, float(np.diff([first, *inside]).max(initial=0.0)))
    if not longest:  # an event has ended the run where it began, and will again
        longest = stepping.t_span[1] - first
    result = replace(
        stepping,
        dt=longest,
        rtol=None,
        atol=None,
        max_step=None,
        max_steps=max(stepping.max_steps, 6 * len(times)),
        t_eval=tuple(inside),
        control="states",
    )
    # costs with kinks are those of the run that is repeated
    object.__setattr__(result, "of_adaptive", stepping.adaptive or stepping.of_adaptive)
    return result


def _past_events(trajectory: Trajectory, ends: list[float]) -> list[float]:
    """Return the ends of steps between the first and the last one, with some past moving events."""
    first, *_, last = ends
    moving = [crossing.step for crossing in trajectory.crossings]
    moving = [n for n in moving if trajectory.records[n - 1].ends_at is not None]
    past = set(ends)
    for time in trajectory.times[moving].tolist():
        n = int(np.searchsorted(ends, time))
        if 0 < n < len(ends) and time < last:
            past.update(_beyond(ends[n - 1], time, ends[n] - time))
    return [time for time in sorted(past) if first < time < last]


def _beyond(before: float, last: float, longest: float) -> list[float]:
    """Return where steps end beyond an event at which equations change, the shortest one first.

    The event of other states is somewhat later or earlier.  A step is tried to its end before it is
    cut at the event, and there the equations may be others, after an explosion, or where friction
    turns about: the longest step of the run is too long there, and may pass the event unseen.

    Examples
    --------
    >>> _beyond(1.0, 2.0, 4.0)
    [2.0625, 2.125, 2.25, 2.5, 3.0, 4.0, 6.0]
    """
    ahead = AHEAD * (last - before)
    times: list[float] = []
    while last < last + ahead <= last + longest:
        times.append(last + ahead)
        ahead *= 2.0
    return times


def falling_order(trajectory: Trajectory) -> int:
    """Return the order with which errors of derivatives fall as the steps of a run are divided.

    That of the method; where steps end at kinks, those of short steps across fall as their length.
    """
    order = trajectory.stepping.resolved_method.order
    kinks = trajectory.problem.delays is None and has_short_steps(trajectory)
    return 1 if kinks and may_have_kinks(trajectory) else order


def richardson(order: int, parts: int = 2) -> float:
    """Return the error of a run as a multiple of its difference from one with steps divided.

    Examples
    --------
    >>> richardson(1), richardson(2), richardson(1, 3)
    (2.0, 1.3333333333333333, 1.5)
    """
    growth = float(parts) ** order
    return growth / (growth - 1.0)


def difference(vector: PETSc.Vec, other: PETSc.Vec, factor: float) -> PETSc.Vec:
    """Return factor (vector - other) as a new vector."""
    out = vector.copy()
    out.axpy(-1.0, other)
    out.scale(factor)
    return out
