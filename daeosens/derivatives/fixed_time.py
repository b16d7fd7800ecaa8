"""Derivatives of the state at fixed times, where those of a run move with its events."""

from __future__ import annotations

import numpy as np

from daeosens.derivatives.tangent import Tangent
from daeosens.errors import UnsupportedError, require
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, read
from daeosens.timestepping.delayed_steps import rate_at


def at_fixed_times(tangent: Tangent) -> Array:
    """Return the derivative of the state at each time of a run, the time held fixed.

    ``Tangent.states`` are derivatives of the states that were computed.  Those at an event, and
    with adaptive steps those that follow, are at times that move (``Tangent.times``): there u' dt
    is subtracted.  At an event it jumps, as the state does or as the right-hand side does.
    Collective on ``problem.comm``.

    Parameters
    ----------
    tangent : Tangent
        From ``tangent``, of a problem u' = f.

    Returns
    -------
    array [N+1, n_local]
        One row for each state of the trajectory; the rank's own components.

    Raises
    ------
    UnsupportedError
        A problem in mass or residual form, if some time moves.

    Source
    ------
    The chain rule.  At an event the row after is the saltation matrix times the one before, up to
    the error of the steps: Aizerman and Gantmakher, Q. J. Mech. Appl. Math. 11(4), 1958.

    Examples
    --------
    >>> import numpy as np
    >>> from daeosens import ODE, Event, Stepping, solve, tangent
    >>> bounce = Event(lambda t, u, p: u[0], lambda t, u, p: u * [1.0, -0.8], direction=-1)
    >>> ball = ODE(lambda t, u, p: np.array([u[1], -10.0 + 0 * u[0]]), 2, events=[bounce])
    >>> run = solve(ball, [4.0, 0.0], None, Stepping((0.0, 1.5), "rk4", dt=0.5))
    >>> step = run.crossings[0].step
    >>> along = tangent(run, du0=[1.0, 0.0])
    >>> along.u[step : step + 2, 0].round(12) + 0.0  # the height at the impact is always 0
    array([0., 0.])
    >>> at_fixed_times(along)[step : step + 2, 0].round(12)
    array([ 1. , -0.8])
    """
    require(tangent, Tangent, "tangent", "tangent(trajectory, du0, dp), which makes it")
    trajectory = tangent.trajectory
    agree(trajectory.problem.comm, "at_fixed_times")
    rows = tangent.u.copy()
    rate = trajectory.problem.create_state()
    for n in np.flatnonzero(tangent.times):
        if trajectory.problem.delays is not None:
            rows[n] -= tangent.times[n] * rate_at(trajectory, int(n))
            continue
        # those of the step to the state
        problem, _ = trajectory.equations(int(n) - 1)
        if problem.form != "rhs":
            raise UnsupportedError(
                f"derivatives at fixed times of a problem in {problem.form} form",
                expected="u' = f(t, u, p)",
                remedy="Tangent.states and Tangent.times, which move with the events",
            )
        t, state = float(trajectory.times[n]), trajectory.stored[int(n)]
        problem.rhs(t, state, trajectory.parameters(int(n)), rate)
        rows[n] -= tangent.times[n] * read(rate)
    rate.destroy()
    return rows
