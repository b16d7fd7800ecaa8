"""Steps of a run once more, or each halved, and the errors that their difference tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.petsc.vectors import Array
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Trajectory


def halved(trajectory: Trajectory) -> Stepping:
    """Return the stepping of a run whose steps are the halves of those of this one.

    Steps that end at implicit events do so at times of their own.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -u, size=1)
    >>> stepping = halved(solve(decay, [1.0], None, Stepping((0.0, 1.0), "cn", dt=0.5)))
    >>> stepping.t_eval, stepping.dt
    ((0.25, 0.5, 0.75), 0.25)
    """
    if trajectory.problem.delays is not None:
        run = trajectory.report
        return trajectory.stepping.of_shares([_parts(s, 2) for s in run.shares], run.pinned)
    times, sizes = trajectory.times, trajectory.step_sizes
    # steps of size 0 are events, which have no middle
    return _fixed_steps(trajectory, (times[:-1] + 0.5 * sizes)[sizes > 0.0])


def in_thirds(trajectory: Trajectory) -> Stepping:
    """Return the stepping of a delay equation's run whose steps are thirds of those of this one.

    A kink in the middle of a step, which is where steps close in on it, stays in the middle of one:
    halves would end there, and rounding say on which side their last stages are.
    """
    run = trajectory.report
    return trajectory.stepping.of_shares([_parts(s, 3) for s in run.shares], run.pinned)


def _parts(ends: Array, count: int) -> Array:
    """Return the ends of equal parts of steps.

    Examples
    --------
    >>> _parts(np.array([0.5, 1.0]), 2)
    array([0.25, 0.5 , 0.75, 1.  ])
    """
    starts, shares = np.concatenate([[0.0], ends[:-1]]), np.arange(1, count) / count
    inside = starts[:, None] + (ends - starts)[:, None] * shares
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
    inside = ends[(first < ends) & (ends < last)]
    # dt is as long as the longest gap: every step ends at the next listed time
    longest = float(np.diff([first, *inside, last]).max())
    return replace(
        stepping,
        dt=longest,
        rtol=None,
        atol=None,
        max_step=None,
        max_steps=max(stepping.max_steps, 4 * len(times)),
        t_eval=tuple(inside.tolist()),
        control="states",
    )


def richardson(order: int) -> float:
    """Return the error of a run as a multiple of its difference from one with halved steps.

    Examples
    --------
    >>> richardson(1), richardson(2)
    (2.0, 1.3333333333333333)
    """
    return 1.0 / (1.0 - 0.5**order)


def difference(vector: PETSc.Vec, other: PETSc.Vec, factor: float) -> PETSc.Vec:
    """Return factor (vector - other) as a new vector."""
    out = vector.copy()
    out.axpy(-1.0, other)
    out.scale(factor)
    return out
