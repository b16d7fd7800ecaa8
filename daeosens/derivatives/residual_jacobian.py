"""The residual vector of a sum of squares: its Jacobian, and Gauss-Newton products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.cost import At, Cost, Direction, Observation, Point, Squares, When
from daeosens.costs.objective import Objective, require_objective
from daeosens.costs.sum_of_squares import SumOfSquares
from daeosens.derivatives.adjoint import shared
from daeosens.derivatives.directions import refuse_rows
from daeosens.derivatives.engines.choice import Sweep, choose_sweep, refuse_one_way_solver
from daeosens.derivatives.engines.request import AdjointRequest, lowered_on
from daeosens.derivatives.hessian import HessianProduct
from daeosens.derivatives.sweeps.backward import sweep_back
from daeosens.derivatives.tangent import Tangent, tangent, tangent_rows, tangent_sweep
from daeosens.errors import UnsupportedError
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, gather, write
from daeosens.problem.callback_guard import QUIET, unwrapped
from daeosens.timestepping.trajectory.states import vectors_of
from daeosens.timestepping.trajectory.trajectory import Trajectory, check_trajectory


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
        # w/2 |r|^2 = 1/2 |sqrt(w) r|^2
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
        # ``moved`` is dt of the state, zero but after events: data at events depend on it
        change = scalar.residual_tangent(point, direction, tangent.moved(n))
        rows.append(math.sqrt(weight) * change)
    return np.concatenate(rows)


def residual_tangents(
    trajectory: Trajectory,
    objectives: Sequence[Objective],
    directions: Sequence[Any],
    engine: Sweep = "auto",
) -> list[Array]:
    """Return the derivatives of r along pairs (du0, dp), for each objective [q_local, D].

    As ``residual_tangent`` of each; without a vector for each state and direction where tangents
    are carried in C.
    """
    carried = tangent_rows(trajectory, directions, engine)
    if carried is None:
        along = tangent_sweep(trajectory, directions, engine)
        return [
            np.column_stack([residual_tangent(tangent, objective) for tangent in along])
            for objective in objectives
        ]
    rows, dp = carried
    return [
        np.hstack(
            [
                math.sqrt(weight) * along_all(scalar, point, rows[n], dp)
                for weight, scalar, point, n in _terms(trajectory, objective)
            ]
        ).T
        for objective in objectives
    ]


def along_all(scalar: Squares, point: Point, du: Array, dp: Array) -> Array:
    """Return the derivative of r along directions [D, n] and [D, m] of a pinned point [D, q]."""
    if isinstance(scalar, SumOfSquares):
        return scalar.residual_tangents(point, du, dp)
    # one inside of a step, for instance
    vec = point[1].duplicate()
    changes: list[Array] = []
    for by_u, by_p in zip(du, dp, strict=True):
        write(vec, by_u)
        changes.append(scalar.residual_tangent(point, (vec, by_p)))
    return np.array(changes)


@QUIET
@unwrapped
def residual_adjoint(
    trajectory: Trajectory, objective: Objective, weights: Sequence[Array], engine: Sweep = "auto"
) -> list[tuple[PETSc.Vec, PETSc.Vec]]:
    """Return the products J^T w in u0 [n] and p [m] for several w, in one sweep.

    Parameters
    ----------
    trajectory, objective
        As for ``residual``.
    weights : sequence of array [q_local]
        Each w, the rank's own rows.
    engine : "auto", "vectors" or "arrays"
        As for ``adjoint``.
    """
    observed: dict[int, list[Observation]] = {}
    start = 0
    for weight, scalar, point, n in _terms(trajectory, objective):
        # Row numbers go on in the order of ``_terms``, so w is cut in that order; each w is a row
        # of the sweep, which sees r_u^T w at the states.
        part = slice(start, start := start + scalar.residual(point).size)
        observed.setdefault(n, []).extend(
            Observation(row, math.sqrt(weight), scalar, w[part]) for row, w in enumerate(weights)
        )
    nothing = [()] * len(weights)
    # J^T w is an adjoint whose seeds are r_u^T w in the place of gradients of a cost.
    request = AdjointRequest(len(weights), trajectory.n_steps, observed, nothing)
    lam, mu = sweep_back(trajectory, request, engine).rows()
    return list(zip(lam, mu, strict=True))


@QUIET
@unwrapped
def gauss_newton_product(
    trajectory: Trajectory,
    objective: Objective,
    du0: npt.ArrayLike | PETSc.Vec | None = None,
    dp: npt.ArrayLike | PETSc.Vec | None = None,
    engine: Sweep = "auto",
) -> HessianProduct:
    """Return J^T J (du0, dp) for a sum of squares 1/2 |r|^2, J the Jacobian of r.

    One tangent and one adjoint; no second derivatives are needed.  Collective.

    Parameters
    ----------
    trajectory, du0, dp, engine
        As for ``hessian_product``.
    objective : Objective
        ``LeastSquares``, ``EventData``, ``Prior`` and sums of them.

    Returns
    -------
    HessianProduct
        Without the gradient.

    Raises
    ------
    UnsupportedError
        A term that is no sum of squares.

    Source
    ------
    Nocedal and Wright, Numerical Optimization, 2006, equation 10.23.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> gauss_newton_product(run, LeastSquares([2.0], [0.4]), dp=[1.0]).p.round(5)
    array([0.54134])
    """
    check_trajectory(trajectory)
    require_objective(objective)
    for name, rows in (("du0", du0), ("dp", dp)):
        refuse_rows(rows, name)
    agree(
        trajectory.problem.comm,
        "gauss_newton_product",
        objective=objective,
        du0=du0,
        dp=dp,
        engine=engine,
    )
    if choose_sweep(trajectory, engine).engine == "vectors":
        refuse_one_way_solver(trajectory)
    _terms(trajectory, objective)  # what is no sum of squares is refused before the sweeps
    along = tangent(trajectory, du0, dp, engine)
    change = residual_tangent(along, objective)
    for vec in vectors_of(along.states):
        vec.destroy()
    # J^T (J d): the tangent gives J d, the adjoint takes it as its weights.
    ((by_u0, by_p),) = residual_adjoint(trajectory, objective, [change], engine)
    return HessianProduct(
        None,
        by_u0,
        by_p,
        along.engine,
        shared_p=shared(trajectory.problem, by_p),
        why=along.why,
    )


def squares_of(cost: Cost) -> list[tuple[When, float, Squares]]:
    """Return the terms of a cost that is a sum of squares.

    Raises
    ------
    UnsupportedError
        A term that is no sum of squares, or has a negative weight.
    """
    result: list[tuple[When, float, Squares]] = []
    for time, weight, scalar in cost.points:
        if not _is_square(type(scalar)) or weight < 0:
            raise _no_square("a Terminal cost" if weight >= 0 else "a negative weight")
        result.append((time, weight, cast("Squares", scalar)))
    if cost.densities:
        raise _no_square("a Running cost")
    return result


@cache
def _is_square(kind: type) -> bool:
    # by type: to look through the methods of each of thousands of scalars takes longer than they do
    return issubclass(kind, Squares)


def _no_square(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} in a sum of squares",
        expected="LeastSquares, EventData, Prior and sums of them with weights >= 0",
        remedy="the exact Hessian instead of Gauss-Newton",
    )


def _terms(trajectory: Trajectory, objective: Objective) -> list[tuple[float, Squares, Point, int]]:
    """Return (weight, scalar, point, step) of every term, in the order of the rows.

    Which events happen before which observations may differ from run to run; the order does not.
    """
    terms = squares_of(lowered_on(trajectory, objective))
    pinned = [term for term in terms if not isinstance(term[0], At)]
    at_events = [term for term in terms if isinstance(term[0], At)]
    numbers = [(weight, scalar, trajectory.index(at)) for at, weight, scalar in pinned]
    # by time; data at events follow, by event and number, whenever these happen
    numbers.sort(key=lambda term: term[2])
    numbers += [(weight, scalar, trajectory.index(at)) for at, weight, scalar in at_events]
    return [
        (
            weight,
            scalar,
            (float(trajectory.times[n]), trajectory.stored[n], trajectory.parameters(n)),
            n,
        )
        for weight, scalar, n in numbers
    ]
