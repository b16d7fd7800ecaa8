"""Whether the times of events are known well enough for their derivatives.

The time of an event at g = 0 has the derivative -dg / (dg/dt).  Where a state is small beside the
tolerance when it reaches the level, a pressure that vanishes at the surface of a star, steps leave
it as it likes: the level is reached at about the right time, and derivatives of that may be
anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Cost, change
from daeosens.derivatives.divided import divided, richardson
from daeosens.derivatives.looks.relative_directions import relative_directions
from daeosens.derivatives.looks.resolution import MANY, WRONG
from daeosens.derivatives.looks.seen import Seen, unseen_run, warn_of_no_look
from daeosens.derivatives.sweeps.forward import ForwardDirection
from daeosens.derivatives.tangent_errors import swept
from daeosens.errors import DiscretizationWarning, warn
from daeosens.petsc.vectors import Array, dot, maxima, read, summed, write
from daeosens.timestepping.events.event_loop import run_through_events
from daeosens.timestepping.stepping import pinned_times
from daeosens.timestepping.trajectory.trajectory import Trajectory

MOST = 100
"""Events, at most, that are looked at."""


def warn_of_uncertain_events(trajectory: Trajectory, costs: Sequence[Cost], seen: Seen) -> None:
    """Warn where derivatives by way of events change when all steps are divided.

    Only where the tolerance leaves open how fast a surface is passed is the run taken again.
    Without costs the derivatives of the times of events are compared; running costs are not.
    Collective.
    """
    rtol, _ = trajectory.stepping.tolerances
    limit, seen.events_uncertain = max(WRONG, MANY * rtol), False
    ends = [n for n, record in enumerate(trajectory.records) if record.ends_at is not None][:MOST]
    comm = trajectory.problem.comm
    unsure = next((n for n in ends if _largest(_uncertainty(trajectory, n), comm) > limit), None)
    directions = None if unsure is None else relative_directions(trajectory)
    if unsure is None or directions is None:
        return
    steps, parts = divided(trajectory)
    times = [when for cost in costs for when, *_ in cost.points if isinstance(when, float)]
    pinned = pinned_times(steps, sorted(set(times)), trajectory.problem.breakpoints)
    start = trajectory.stored[0].copy()
    pairs, _ = directions
    slopes = better = np.empty((0, 0))
    with unseen_run() as failures:
        finer = run_through_events(trajectory.problem, start, trajectory.p, steps, pinned, "states")
        try:
            end = float(trajectory.times[-1])
            slopes, better = (
                _slopes(run, costs, swept(run, pairs), end) for run in (trajectory, finer)
            )
        finally:
            finer.destroy()
    if not slopes.size or slopes.shape != better.shape:
        warn_of_no_look("derivatives by way of events", failures, comm)
        return
    size = np.abs(better).max(axis=1)
    factor = richardson(trajectory.stepping.resolved_method.order, parts)
    missing = factor * np.abs(slopes - better)
    error = (missing.max(axis=1)[size > 0.0] / size[size > 0.0]).max(initial=0.0)
    error = _largest(float(error), comm)
    if error > limit:
        seen.events_uncertain = True
        ends_at = trajectory.records[unsure].ends_at
        assert ends_at is not None
        part = f"{100.0 * error:.2g} %" if error < 1.0 else "as much as their size"
        warn(
            f'derivatives by way of event "{ends_at.name}" at t = '
            f"{trajectory.times[unsure + 1]:.6g} are wrong by about {part}: what it looks at is "
            "small there, or passes slowly, beside the tolerances of the steps\n"
            "  try: Stepping(..., atol=) far below the unknowns at the event, or a much smaller "
            "rtol; derivatives.derivative_error tells what is reached",
            DiscretizationWarning,
            comm,
        )


def _largest(number: float, comm: PETSc.Comm) -> float:
    """Return what is to the last bit the same on all ranks, which go the same way.  Collective."""
    return float(maxima(np.array([number]), comm)[0])


def _slopes(
    run: Trajectory, costs: Sequence[Cost], along: Sequence[ForwardDirection], end: float
) -> Array:
    """Return the derivatives [..., D] of costs, or of the times of events, along directions.

    ``end`` is what costs have for the end of a run; an event may end others at another time.
    """
    if not costs:
        ends = [n + 1 for n, record in enumerate(run.records) if record.ends_at is not None]
        return np.array([[direction.times[n] for direction in along] for n in ends[:MOST]])
    rows = np.zeros((len(costs), len(along)))
    for number, cost in enumerate(costs):
        for when, weight, scalar in cost.points:
            n = run.n_steps if when == end else run.index(when)
            for k, direction in enumerate(along):
                moved = direction.times[n] if n in run.moving else 0.0
                change_of = direction.states[n], direction.parameters[n], moved
                rows[number, k] += weight * change(scalar, run.problem, run.point_at(n), *change_of)
    return rows


def _uncertainty(trajectory: Trajectory, n: int) -> float:
    """Return the relative change of dg/dt while g changes by what the tolerance leaves open.

    At the event that ends step n; 0 where nothing is known.  Collective.
    """
    when = trajectory.records[n].ends_at
    assert when is not None
    assert when.when is not None
    scalar, (problem, p) = when.when, trajectory.equations(n)
    if problem.form != "rhs":
        return 0.0
    by_u, state, rate = (trajectory.problem.create_state() for _ in range(3))
    time, there = float(trajectory.times[n + 1]), read(trajectory.stored[n + 1])
    rtol, atol = trajectory.stepping.tolerances

    def slope(t: float, u: Array) -> float:
        write(state, u)
        by_u.zeroEntries()
        scalar.add_u(1.0, t, state, p, by_u)
        problem.rhs(t, state, p, rate)
        return float(scalar.value_t(t, state, p) + dot(by_u, rate))

    with unseen_run():  # a logarithm of what is below the level fails
        at_event = slope(time, there)
        if not at_event:
            return 0.0
        open_left = float(np.abs(read(by_u)) @ (atol + rtol * np.abs(there)))
        open_left = float(summed(np.array([open_left]), trajectory.problem.comm)[0])
        moment = min(open_left / abs(at_event), float(trajectory.step_sizes[n]))
        before = there - moment * read(rate)
        return abs(slope(time - moment, before) / at_event - 1.0)
    return 0.0
