"""The residual vector of a sum of squares, and its Jacobian by tangents or adjoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import QUIET, Array, gather, unwrapped
from daeosens.cost import At, Direction, Point, Squares
from daeosens.objective import Objective
from daeosens.second_order import squares_of
from daeosens.tangent import Tangent
from daeosens.trajectory import Trajectory, steps_of


@QUIET
@unwrapped
def residual(trajectory: Trajectory, objective: Objective) -> PETSc.Vec:
    """Return r [q] of the cost 1/2 |r|^2, ordered by time; then data at events.  Collective.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``; its steps must hit ``objective.times``.
    objective : Objective
        ``LeastSquares``, ``EventData``, ``Prior`` and sums of them; a weight w enters as its
        square root.

    Raises
    ------
    UnsupportedError
        A term that is no sum of squares.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> residual(run, LeastSquares([2.0], [0.4], sigma=0.1)).getArray().round(4)
    array([-0.3212])
    """
    rows = [
        math.sqrt(weight) * scalar.residual(point)
        for weight, scalar, point, _ in _terms(trajectory, objective)
    ]
    vec = PETSc.Vec().create(comm=trajectory.problem.comm)
    local = np.concatenate(rows)
    vec.setSizes((local.size, PETSc.DETERMINE))
    vec.setType(PETSc.Vec.Type.STANDARD)
    vec.getArray()[...] = local
    return vec


@QUIET
@unwrapped
def residual_tangent(tangent: Tangent, objective: Objective) -> Array:
    """Return the derivative of r along a tangent; the rank's own rows [q_local]."""
    trajectory = tangent.trajectory
    problem = trajectory.problem
    rows: list[Array] = []
    for weight, scalar, point, n in _terms(trajectory, objective):
        dp: Any = tangent.parameters[n]
        direction: Direction = (tangent.states[n], dp if problem.field_parameter else gather(dp))
        change = scalar.residual_tangent(point, direction, tangent.moved(n))
        rows.append(math.sqrt(weight) * change)
    return np.concatenate(rows)


@QUIET
@unwrapped
def residual_adjoint(
    trajectory: Trajectory, objective: Objective, weights: Sequence[Array]
) -> list[tuple[PETSc.Vec, PETSc.Vec]]:
    """Return the products J^T w in u0 [n] and p [m] for several w, in one sweep.

    Parameters
    ----------
    trajectory, objective
        As for ``residual``.
    weights : sequence of array [q_local]
        Each w, the rank's own rows.
    """
    problem, p, states = trajectory.problem, trajectory.p, trajectory.states
    lam = [problem.create_state() for _ in weights]
    mu = [problem.create_parameters() for _ in weights]
    seeds: dict[int, list[tuple[float, Squares, Point, slice]]] = {}
    start = 0
    for weight, scalar, point, n in _terms(trajectory, objective):
        count = scalar.residual(point).size
        seeds.setdefault(n, []).append((weight, scalar, point, slice(start, start + count)))
        start += count
    steps = steps_of(trajectory)
    for n in range(trajectory.n_steps, -1, -1):
        for weight, scalar, point, rows in seeds.get(n, ()):
            factor = math.sqrt(weight)
            for k, w in enumerate(weights):
                scalar.add_residual_adjoint(factor, point, w[rows], (lam[k], mu[k]))
                if n in trajectory.moving:
                    steps.add_time(k, factor * scalar.time_adjoint(point, w[rows]))
        if n:
            t, h = float(trajectory.times[n - 1]), float(trajectory.step_sizes[n - 1])
            nothing = [()] * len(lam)
            steps.adjoint(t, h, states[n - 1], states[n], p, lam, mu, nothing)
    return list(zip(lam, mu, strict=True))


def _terms(trajectory: Trajectory, objective: Objective) -> list[tuple[float, Squares, Point, int]]:
    """Return (weight, scalar, point, step) of every term, in the order of the rows.

    Which events happen before which observations may differ from run to run; the order does not.
    """
    terms = squares_of(objective.lower(trajectory.problem, float(trajectory.times[-1])))
    pinned = [each for each in terms if not isinstance(each[0], At)]
    at_events = [each for each in terms if isinstance(each[0], At)]
    pinned.sort(key=lambda each: trajectory.index(each[0]))
    numbers = [(weight, scalar, trajectory.index(at)) for at, weight, scalar in pinned + at_events]
    return [
        (
            weight,
            scalar,
            (float(trajectory.times[n]), trajectory.states[n], trajectory.parameters(n)),
            n,
        )
        for weight, scalar, n in numbers
    ]
