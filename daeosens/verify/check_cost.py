"""The derivatives of costs, and of other scalars, against differences of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Scalar
from daeosens.costs.event_data import EventData
from daeosens.costs.least_squares import LeastSquares
from daeosens.costs.objective import Objective, Sum, require_objective
from daeosens.costs.prior import Prior
from daeosens.costs.scalar import Callback
from daeosens.petsc.vectors import Array, dot, gather, read
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.callback_guard import check_output, guarded
from daeosens.verify.check_hessians import check_scalar_hessians
from daeosens.verify.check_point import TIME_LEVELS, CheckPoint, number
from daeosens.verify.deviations import components


def check_objective(bench: CheckPoint, objective: Objective) -> None:
    """Check the derivatives of a cost, of every term of a sum."""
    require_objective(objective)
    if isinstance(objective, Sum):
        for _, term in objective.terms:
            check_objective(bench, term)
        return
    cost = objective.lower(bench.problem, bench.t)
    points, densities = [seen for *_, seen in cost.points], [seen for _, seen in cost.densities]
    # Sums of squares are made here of the observation, so that its Jacobians are what can be
    # wrong.
    if isinstance(objective, LeastSquares):
        if callable(objective.observe):
            _observation(bench, objective)
        elif objective.vectors:
            _gradient_u(bench, "observe", "library", points[0])
        return
    if isinstance(objective, EventData):
        if objective.observe is not None:
            _observation(bench, objective)
        return
    if isinstance(objective, Prior):
        _gradient_p(bench, "prior", "library", points[0])
        return
    # A cost at a fixed time needs no derivative in time, unless an event may end the run;
    # densities are differentiated in time where steps move.
    for scalar in points:
        _check_scalar(bench, scalar, in_time=bool(bench.problem.events))
    for scalar in densities:
        _check_scalar(bench, scalar, in_time=True)


def check_callback(bench: CheckPoint, scalar: Callback, *, in_time: bool = True) -> None:
    """Check all derivatives of a scalar that the user gave.

    That in time where it is asked for, or supplied; second ones where they are supplied.
    """
    supplied, keywords = scalar.supplied, scalar.keywords
    _gradient_u(bench, scalar.name(keywords.u), bench.origin(supplied.u), scalar)
    if bench.problem.n_parameters:
        _gradient_p(bench, scalar.name(keywords.p), bench.origin(supplied.p), scalar)
    if in_time or supplied.t is not None:
        _slope(bench, scalar.name(keywords.t), bench.origin(supplied.t), scalar)
    check_scalar_hessians(bench, scalar)


def _check_scalar(bench: CheckPoint, scalar: Scalar, *, in_time: bool) -> None:
    if isinstance(scalar, Callback):
        check_callback(bench, scalar, in_time=in_time)
        return
    _gradient_u(bench, "cost gradient_u", "callback", scalar)
    if bench.problem.n_parameters:
        _gradient_p(bench, "cost gradient_p", "callback", scalar)


def _gradient_u(bench: CheckPoint, name: str, source: str, scalar: Scalar) -> None:
    t, u, p = bench.t, bench.u, bench.p

    def add(out: PETSc.Vec) -> None:
        scalar.add_u(1.0, t, u, p, out)

    _gradient(bench, name, source, u, lambda x: scalar.value(t, x, p), add)


def _gradient_p(bench: CheckPoint, name: str, source: str, scalar: Scalar) -> None:
    t, u, p = bench.t, bench.u, bench.p

    def add(out: PETSc.Vec) -> None:
        scalar.add_p(1.0, t, u, p, out)

    def value(x: PETSc.Vec) -> float:
        return scalar.value(t, u, bench.see_p(x))

    _gradient(bench, name, source, bench.p_vec, value, add)


def _gradient(
    bench: CheckPoint,
    name: str,
    source: str,
    x: PETSc.Vec,
    value: Callable[[PETSc.Vec], float],
    add: Callable[[PETSc.Vec], None],
) -> None:
    moves, expected = bench.expected(x, lambda moved: np.array([value(moved)]))

    def callback() -> Array:
        gradient = x.duplicate()
        gradient.zeroEntries()
        add(gradient)
        # A gradient is one row: dJ along each direction.
        return np.array([[dot(gradient, move) for move in moves]])

    bench.judge(name, source, expected, callback, components(moves))


def _slope(bench: CheckPoint, name: str, source: str, scalar: Scalar) -> None:
    t, u, p = bench.t, bench.u, bench.p

    def value(x: PETSc.Vec) -> Array:
        return np.array([scalar.value(number(x), u, p)])

    def callback() -> Array:
        # The only direction is the time, of its typical size.
        return np.array([[number(moves[0]) * scalar.value_t(t, u, p)]])

    moves, expected = bench.expected(bench.t_vec, value, TIME_LEVELS)
    bench.judge(name, source, expected, callback, components(moves))


def _observation(bench: CheckPoint, term: LeastSquares | EventData) -> None:
    t, u, p, q = bench.t, bench.u, bench.p, term.data.shape[1]
    assert term.observe is not None
    call = guarded(term.observe, "observe", bench.comm)

    def observe(t: float, u: Array, p: Any) -> Any:
        return check_output(call(t, u, p), "observe", (q,), t, differentiated=True)

    def along_u(x: PETSc.Vec) -> Array:
        return np.asarray(observe(t, read(x), p), dtype=float)

    def along_p(x: PETSc.Vec) -> Array:
        return np.asarray(observe(t, read(u), gather(x)), dtype=float)

    by_u = term.observe_u or AutomaticJacobian(observe, 1, "observe", "observe_u=callback")
    by_p = term.observe_p or AutomaticJacobian(observe, 2, "observe", "observe_p=callback")
    point = (t, read(u), p)
    bench.judge_jacobian("observe_u", bench.origin(term.observe_u), by_u, point, u, along_u)
    if bench.problem.n_parameters:
        origin = bench.origin(term.observe_p)
        bench.judge_jacobian("observe_p", origin, by_p, point, bench.p_vec, along_p)
    if isinstance(term, EventData):
        _observe_t(bench, term, observe)


def _observe_t(bench: CheckPoint, term: EventData, observe: Callable[..., Any]) -> None:
    """Check the derivative of an observation in the time of an event."""
    u, p = read(bench.u), bench.p
    step = AutomaticJacobian(observe, 0, "observe", "observe_t=callback")

    def along(x: PETSc.Vec) -> Array:
        return np.asarray(observe(number(x), u, p), dtype=float)

    def callback() -> Array:
        by_t = step(bench.t, u, p) if term.observe_t is None else term.observe_t(bench.t, u, p)
        return number(moves[0]) * np.asarray(by_t, dtype=float).reshape(-1, 1)

    moves, expected = bench.expected(bench.t_vec, along, TIME_LEVELS)
    bench.judge_matrix("observe_t", bench.origin(term.observe_t), moves, expected, callback)
