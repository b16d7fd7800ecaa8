"""Each callback for second derivatives against differences of the first derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array, gather, guarded, read, scatter
from daeosens.bench import Bench, components
from daeosens.cost import Scalar
from daeosens.differences import random_numbers
from daeosens.matrices import Derivative
from daeosens.parameters import Parameters


def check_hessian_product(bench: Bench) -> None:
    """Check the user's Hessian products of w^T f or w^T F, argument by argument."""
    problem, t, u, udot, p = bench.problem, bench.t, bench.u, bench.udot, bench.p
    w = random_numbers(problem.state, seed=17)
    if problem.sources.get("hessian_product") == "callback":
        if problem.form == "residual":
            assert problem.residual_udot is not None
            first = [problem.residual_u, problem.residual_udot, problem.residual_p]
            _products(
                bench,
                "hessian_product",
                first,
                [u, udot, bench.p_vec],
                lambda x: (t, x[0], x[1], bench.see_p(x[2])),
                lambda d, out: problem.residual_hessian((t, u, udot, p), w, d, out),
                w,
            )
        else:
            _products(
                bench,
                "hessian_product",
                [problem.rhs_u, problem.rhs_p],
                [u, bench.p_vec],
                lambda x: (t, x[0], bench.see_p(x[1])),
                lambda d, out: problem.rhs_hessian((t, u, p), w, d, out),
                w,
            )
    if problem.sources.get("mass_hessian") == "callback":
        _mass_hessian(bench, w)


def _products(
    bench: Bench,
    name: str,
    first: Sequence[Derivative],
    variables: Sequence[PETSc.Vec],
    point: Callable[[Sequence[PETSc.Vec]], tuple[Any, ...]],
    hessian: Callable[[Any, Any], None],
    w: PETSc.Vec,
) -> None:
    """Check w^T f_xy for every argument y, all x at once."""
    arguments = "u,p" if len(variables) == 2 else "u,udot,p"

    def products(x: Sequence[PETSc.Vec]) -> Array:
        return np.concatenate(
            [
                read(_transposed(derivative, point(x), w, like))
                for derivative, like in zip(first, variables, strict=True)
                if like.size
            ]
        )

    for k, variable in enumerate(variables):
        if variable.size == 0:
            continue

        def along(x: PETSc.Vec, k: int = k) -> Array:
            return products([x if j == k else each for j, each in enumerate(variables)])

        moves, expected = bench.expected(variable, along)

        def given(k: int = k, moves: Sequence[PETSc.Vec] = moves) -> Array:
            return np.column_stack([_along(bench, hessian, variables, k, move) for move in moves])

        label = f"{name} d{arguments.split(',')[k]}"
        bench.judge(label, "callback", expected, given, components(moves))


def _along(
    bench: Bench,
    hessian: Callable[[Any, Any], None],
    variables: Sequence[PETSc.Vec],
    k: int,
    move: PETSc.Vec,
) -> Array:
    directions = [each.duplicate() for each in variables]
    for each in directions:
        each.zeroEntries()
    move.copy(directions[k])
    outs = [each.duplicate() for each in variables]
    hessian((*directions[:-1], bench.see_p(directions[-1])), tuple(outs))
    return np.concatenate([read(out) for out in outs if out.size])


def _transposed(
    derivative: Derivative, point: tuple[Any, ...], w: PETSc.Vec, like: PETSc.Vec
) -> PETSc.Vec:
    matrix = derivative.create(*point)
    derivative.fill(*point, matrix)
    out = like.duplicate()
    matrix.multTranspose(w, out)
    return out


def _mass_hessian(bench: Bench, w: PETSc.Vec) -> None:
    """Check the products of the Hessian of w^T M(p) v."""
    problem, t, u, p = bench.problem, bench.t, bench.u, bench.p
    mass_p, function = problem.mass_p, problem.mass_hessian_function
    assert mass_p is not None
    assert function is not None
    zero = problem.create_state()

    def products(v: PETSc.Vec, x: PETSc.Vec) -> Array:
        p = bench.see_p(x)
        by_v = problem.create_state()
        problem.add_udot_product(1.0, t, u, v, p, w, by_v, transpose=True)
        by_p = _transposed(mass_p, (t, p, v), w, bench.p_vec)
        return np.concatenate([read(by_v), read(by_p)])

    def hessian(dv: PETSc.Vec, dp: Any) -> Array:
        out = (problem.create_state(), problem.create_parameters())
        function(bench.udot, p, w, dv, dp, *out)
        return np.concatenate([read(each) for each in out])

    no_dp = bench.see_p(problem.create_parameters())
    cases: list[tuple[str, PETSc.Vec, Callable[[PETSc.Vec], Array], Callable[..., Array]]] = [
        ("dv", bench.udot, lambda x: products(x, bench.p_vec), lambda d: hessian(d, no_dp)),
        (
            "dp",
            bench.p_vec,
            lambda x: products(bench.udot, x),
            lambda d: hessian(zero, bench.see_p(d)),
        ),
    ]
    for name, variable, along, given in cases:
        moves, expected = bench.expected(variable, along)

        def columns(given: Callable[..., Array] = given, moves: Any = moves) -> Array:
            return np.column_stack([given(move) for move in moves])

        label = f"mass_hessian {name}"
        bench.judge(label, "callback", expected, columns, components(moves))


def check_cost_hessian(bench: Bench, name: str, scalar: Scalar) -> None:
    """Check a cost's own Hessian product against differences of its gradients."""
    t, u = bench.t, bench.u
    variables = [u, bench.p_vec]

    def gradient(x: Sequence[PETSc.Vec]) -> Array:
        by_u, by_p = u.duplicate(), bench.p_vec.duplicate()
        by_u.zeroEntries()
        by_p.zeroEntries()
        scalar.add_u(1.0, t, x[0], bench.see_p(x[1]), by_u)
        scalar.add_p(1.0, t, x[0], bench.see_p(x[1]), by_p)
        return np.concatenate([read(by_u), read(by_p)])

    def hessian(direction: Any, out: Any) -> None:
        for vec in out:
            vec.zeroEntries()
        scalar.add_hessian(1.0, (t, u, bench.p), direction, out)

    for k, argument in enumerate(("du", "dp")):
        if variables[k].size == 0:
            continue

        def along(x: PETSc.Vec, k: int = k) -> Array:
            return gradient([x if j == k else each for j, each in enumerate(variables)])

        moves, expected = bench.expected(variables[k], along)

        def given(k: int = k, moves: Sequence[PETSc.Vec] = moves) -> Array:
            return np.column_stack([_along(bench, hessian, variables, k, move) for move in moves])

        label = f"{name} hessian_product {argument}"
        bench.judge(label, "callback", expected, given, components(moves))


def check_initial_state_hessian(bench: Bench, control: Parameters) -> None:
    """Check the second derivative of the initial state against the transposed Jacobian's."""
    problem = bench.problem
    w = random_numbers(problem.state, seed=17)
    assert control.initial_state_hessian is not None
    call = guarded(control.initial_state_hessian, "initial_state_hessian", problem.comm)
    lam: Any = gather(w) if problem.style == "numpy" else w

    def own(values: Array) -> Array:
        return read(scatter(values, problem.create_parameters())).copy()

    def along(x: PETSc.Vec) -> Array:
        return own(control.transposed_initial(problem, gather(x), w))

    moves, expected = bench.expected(bench.p_vec, along)

    def given() -> Array:
        return np.column_stack([own(np.asarray(call(bench.p, lam, gather(d)))) for d in moves])

    bench.judge("initial_state_hessian", "callback", expected, given, components(moves))
