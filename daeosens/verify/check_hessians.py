"""Each callback for second derivatives against differences of the first derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.costs.scalar import Callback
from daeosens.costs.scalar_derivatives import Keywords
from daeosens.functional.parameters import Parameters
from daeosens.petsc.vectors import Array, dot, gather, read, scatter
from daeosens.problem.callback_guard import guarded
from daeosens.problem.matrices import Derivative
from daeosens.problem.problem import AUTONOMOUS
from daeosens.verify.check_point import LEVELS, TIME_LEVELS, CheckPoint, number
from daeosens.verify.extrapolated_differences import random_numbers

Variables: TypeAlias = "Mapping[str, PETSc.Vec]"
"""What is moved: "du", "dudot", "dp", "dt", with the point to move it from."""

GIVEN = ("callback", "compiled")
"""Sources of derivatives that the user supplied."""

WEIGHTS = 17
"""Seed of the random w in w^T f."""


def check_equation_hessians(bench: CheckPoint, keywords: Keywords) -> None:
    """Check the user's second derivatives of w^T f or w^T F, argument by argument."""
    # One random w sees every component of f: a wrong one would have to be orthogonal to it.
    w = random_numbers(bench.problem.state, seed=WEIGHTS)
    if bench.source(keywords.hessian) in GIVEN:
        _equation_hessian(bench, keywords.hessian, w)
    if bench.source(keywords.hessian_t) in GIVEN and bench.source(keywords.t) != AUTONOMOUS:
        _equation_time_hessian(bench, keywords.hessian_t, w)
    if bench.source("mass_hessian") in GIVEN:
        _mass_hessian(bench, w)


def check_scalar_hessians(bench: CheckPoint, scalar: Callback) -> None:
    """Check the user's second derivatives of a scalar against differences of the first ones."""
    supplied, keywords, t = scalar.supplied, scalar.keywords, bench.t
    variables = {"du": bench.u, "dp": bench.p_vec}
    point = (t, bench.u, bench.p)

    # The Hessian is checked against differences of the first derivatives, which have rows of
    # their own: so a wrong second derivative is told from a wrong first one.
    def gradient(x: Variables) -> Array:
        by_u, by_p = _zeros([bench.u, bench.p_vec])
        scalar.add_u(1.0, t, x["du"], bench.see_p(x["dp"]), by_u)
        scalar.add_p(1.0, t, x["du"], bench.see_p(x["dp"]), by_p)
        return np.concatenate([read(by_u), read(by_p)])

    def hessian(direction: Any, outs: Any) -> None:
        scalar.add_hessian(1.0, point, direction, outs)

    def slope(x: Variables) -> Array:
        return np.array([scalar.value_t(number(x["dt"]), x["du"], bench.see_p(x["dp"]))])

    if supplied.hessian is not None:
        name, origin = scalar.name(keywords.hessian), bench.origin(supplied.hessian)
        _judge(bench, name, origin, variables, gradient, _column(bench, hessian, variables))
    if supplied.hessian_t is not None and supplied.t != AUTONOMOUS:
        name, origin = scalar.name(keywords.hessian_t), bench.origin(supplied.hessian_t)
        # The row of the time, (psi_tu, psi_tp, psi_tt), is the derivative of psi_t along each
        # argument.
        column = _time_column(lambda outs: scalar.time_hessian(point, outs), variables)
        _judge(bench, name, origin, {**variables, "dt": bench.t_vec}, slope, column)


def check_initial_state_hessian(bench: CheckPoint, control: Parameters) -> None:
    """Check the second derivative of the initial state against the transposed Jacobian's."""
    problem = bench.problem
    w = random_numbers(problem.state, seed=WEIGHTS)
    start = control.start_map
    assert start is not None
    assert control.initial_state_hessian is not None
    call = guarded(control.initial_state_hessian, "initial_state_hessian", problem.comm)
    lam: Any = gather(w) if problem.style == "numpy" else w

    def own(values: Array) -> Array:
        return read(scatter(values, problem.create_parameters())).copy()

    bench.judge_along(
        "initial_state_hessian",
        "callback",
        bench.p_vec,
        lambda x: own(start.transposed(problem, gather(x), w)),
        lambda move: own(np.asarray(call(bench.p, lam, gather(move)))),
    )


def _equation_hessian(bench: CheckPoint, name: str, w: PETSc.Vec) -> None:
    problem, t, u, udot, p = bench.problem, bench.t, bench.u, bench.udot, bench.p
    variables = {"du": u, "dp": bench.p_vec}
    first: list[Derivative] = [problem.rhs_u, problem.rhs_p]

    def hessian(direction: Any, outs: Any) -> None:
        problem.rhs_hessian((t, u, p), w, direction, outs)

    def of_residual(direction: Any, outs: Any) -> None:
        problem.residual_hessian((t, u, udot, p), w, direction, outs)

    if problem.form == "residual":
        assert problem.residual_udot is not None
        variables = {"du": u, "dudot": udot, "dp": bench.p_vec}
        # w^T F has first derivatives in u, udot and p; the products with w are stacked in that
        # order, and so are those of the Hessian.
        first = [problem.residual_u, problem.residual_udot, problem.residual_p]
        hessian = of_residual

    def products(x: Variables) -> Array:
        *states, p = x.values()
        point = (t, *states, bench.see_p(p))
        return np.concatenate(
            [
                read(_transposed(derivative, point, w, like))
                for derivative, like in zip(first, x.values(), strict=True)
                if like.size
            ]
        )

    _judge(bench, name, bench.source(name), variables, products, _column(bench, hessian, variables))


def _equation_time_hessian(bench: CheckPoint, name: str, w: PETSc.Vec) -> None:
    """Check the derivatives of w^T f_t, or w^T F_t, in all arguments and in t."""
    problem, t, u, udot, p = bench.problem, bench.t, bench.u, bench.udot, bench.p
    variables, fill = {"du": u, "dp": bench.p_vec}, problem.rhs_t_function

    def hessian(outs: Any) -> float:
        return problem.rhs_time_hessian((t, u, p), w, outs)

    def of_residual(outs: Any) -> float:
        return problem.residual_time_hessian((t, u, udot, p), w, outs)

    if problem.form == "residual":
        variables = {"du": u, "dudot": udot, "dp": bench.p_vec}
        fill, hessian = problem.residual_t_function, of_residual

    def slope(x: Variables) -> Array:
        *states, p, time = x.values()
        out = problem.create_state()
        fill(number(time), *states, bench.see_p(p), out)
        return np.array([dot(out, w)])

    column = _time_column(hessian, variables)
    _judge(bench, name, bench.source(name), {**variables, "dt": bench.t_vec}, slope, column)


def _mass_hessian(bench: CheckPoint, w: PETSc.Vec) -> None:
    """Check the products of the Hessian of w^T M(p) v."""
    problem, t, u, p = bench.problem, bench.t, bench.u, bench.p
    mass_p, function = problem.mass_p, problem.mass_hessian_function
    assert mass_p is not None
    assert function is not None
    variables = {"dv": bench.udot, "dp": bench.p_vec}

    def products(x: Variables) -> Array:
        v, p = x["dv"], bench.see_p(x["dp"])
        # Of w^T M(p) v: M^T w in v, (M_p v)^T w in p.
        by_v = problem.create_state()
        problem.add_udot_product(1.0, t, u, v, p, w, by_v, transpose=True)
        by_p = _transposed(mass_p, (t, p, v), w, bench.p_vec)
        return np.concatenate([read(by_v), read(by_p)])

    def hessian(direction: Any, outs: Any) -> None:
        function(bench.udot, p, w, *direction, *outs)

    column = _column(bench, hessian, variables)
    _judge(bench, "mass_hessian", "callback", variables, products, column)


def _judge(
    bench: CheckPoint,
    name: str,
    source: str,
    variables: Variables,
    first: Callable[[Variables], Array],
    column: Callable[[str, PETSc.Vec], Array],
) -> None:
    """Add a row for each argument: ``column(argument, move)`` is the derivative of ``first``."""
    # One argument at a time, so that the row that is wrong tells which block of the Hessian is.
    for argument, variable in variables.items():
        if variable.size == 0:
            continue
        bench.judge_along(
            f"{name} {argument}",
            source,
            variable,
            lambda x, argument=argument: first({**variables, argument: x}),
            lambda move, argument=argument: column(argument, move),
            TIME_LEVELS if argument == "dt" else LEVELS,
        )


def _column(
    bench: CheckPoint, hessian: Callable[[Any, Any], None], variables: Variables
) -> Callable[[str, PETSc.Vec], Array]:
    """Return products ``hessian(direction, outs)`` with directions in one argument."""

    def column(argument: str, move: PETSc.Vec) -> Array:
        zeros = dict(zip(variables, _zeros(variables.values()), strict=True))
        # A direction that is zero in all other arguments gives one column of blocks.
        *states, dp = {**zeros, argument: move}.values()
        outs = _zeros(variables.values())
        hessian((*states, bench.see_p(dp)), tuple(outs))
        return np.concatenate([read(out) for out in outs if out.size])

    return column


def _time_column(
    hessian: Callable[[Any], float], variables: Variables
) -> Callable[[str, PETSc.Vec], Array]:
    """Return parts of the column of the time in a Hessian: one number for each direction."""

    def column(argument: str, move: PETSc.Vec) -> Array:
        outs = _zeros(variables.values())
        by_t = hessian(tuple(outs))
        if argument == "dt":
            return np.array([by_t * number(move)])
        return np.array([dot(dict(zip(variables, outs, strict=True))[argument], move)])

    return column


def _zeros(like: Sequence[PETSc.Vec] | Any) -> list[PETSc.Vec]:
    result: list[PETSc.Vec] = []
    for vector in like:
        vec = vector.duplicate()
        vec.zeroEntries()
        result.append(vec)
    return result


def _transposed(
    derivative: Derivative, point: tuple[Any, ...], w: PETSc.Vec, like: PETSc.Vec
) -> PETSc.Vec:
    # As sweeps take it: assembled or by products, transposed by PETSc.
    matrix = derivative.create(*point)
    derivative.fill(*point, matrix)
    out = like.duplicate()
    matrix.multTranspose(w, out)
    return out
