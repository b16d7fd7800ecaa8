"""The derivatives of equations, and of resets, against differences of the function itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from petsc4py import PETSc

from daeosens.costs.scalar_derivatives import Keywords
from daeosens.petsc.vectors import Array
from daeosens.problem.matrices import Derivative
from daeosens.verify.check_hessians import check_equation_hessians
from daeosens.verify.check_point import TIME_LEVELS, CheckPoint, Function, number

RHS = Keywords("callback", "rhs", "jacobian", "jacobian_p", "rhs_t", "hessian_product", "hessian_t")
RESIDUAL = Keywords(
    "callback", "residual", "jacobian", "jacobian_p", "residual_t", "hessian_product", "hessian_t"
)


def check_equations(bench: CheckPoint, keywords: Keywords | None = None) -> None:
    """Check every derivative of the bench's problem, called ``keywords`` by the user."""
    problem, t, u, udot, p = bench.problem, bench.t, bench.u, bench.udot, bench.p
    residual = problem.form == "residual"
    by_u, by_p, fill_t = problem.rhs_u, problem.rhs_p, problem.rhs_t
    point: tuple[Any, ...] = (t, u, p)
    if residual:
        by_u, by_p, fill_t = problem.residual_u, problem.residual_p, problem.residual_t
        point = (t, u, udot, p)
    names = keywords or (RESIDUAL if residual else RHS)

    def evaluate(t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any) -> Array:
        if residual:
            return bench.fill(problem.residual, t, u, udot, p)
        return bench.fill(problem.rhs, t, u, p)

    def along_p(x: PETSc.Vec) -> Array:
        return evaluate(t, u, udot, bench.see_p(x))

    _matrix(bench, names.u, by_u, point, u, lambda x: evaluate(t, x, udot, p))
    if residual:
        by_udot = problem.residual_udot
        assert by_udot is not None
        _matrix(bench, "jacobian_udot", by_udot, point, udot, lambda x: evaluate(t, u, x, p))
    if problem.n_parameters:
        _matrix(bench, names.p, by_p, point, bench.p_vec, along_p)
    _time_derivative(bench, names.t, fill_t, point, lambda x: evaluate(number(x), u, udot, p))
    if problem.form == "mass" and not problem.constant_mass:
        _mass_p(bench)
    check_equation_hessians(bench, names)


def _matrix(
    bench: CheckPoint,
    name: str,
    derivative: Derivative,
    point: tuple[Any, ...],
    x: PETSc.Vec,
    function: Function,
) -> None:
    """Check a matrix, or both products of one that is given by products."""
    moves, expected = bench.expected(x, function)
    source = bench.source(name)

    def callback() -> Array:
        return bench.products(_filled(derivative, point), moves)

    def transposed(w: PETSc.Vec, out: PETSc.Vec) -> None:
        _filled(derivative, point).multTranspose(w, out)

    # A matrix transposes itself; of products both are given, and either may be wrong by itself.
    if derivative.assembled:
        bench.judge_matrix(name, source, moves, expected, callback)
    else:
        bench.judge_matrix(f"{name}.apply", source, moves, expected, callback)
        bench.judge_transpose(f"{name}.apply_transpose", source, moves, expected, transposed)


def _time_derivative(
    bench: CheckPoint,
    name: str,
    fill: Callable[..., None],
    point: tuple[Any, ...],
    function: Function,
) -> None:
    moves, expected = bench.expected(bench.t_vec, function, TIME_LEVELS)
    # The direction is a typical size of t, not 1.
    scale = number(moves[0])

    def callback() -> Array:
        return scale * bench.fill(fill, *point)[:, None]

    bench.judge_matrix(name, bench.source(name), moves, expected, callback)


def _mass_p(bench: CheckPoint) -> None:
    """Check d(M(p) v)/dp."""
    problem, t, u, udot = bench.problem, bench.t, bench.u, bench.udot
    mass_p = problem.mass_p
    assert mass_p is not None

    def product(x: PETSc.Vec) -> Array:
        def fill(out: PETSc.Vec) -> None:
            # M(p) v with v = udot held.
            problem.add_udot_product(1.0, t, u, udot, bench.see_p(x), udot, out)

        return bench.fill(fill)

    def callback() -> Array:
        return bench.products(_filled(mass_p, (t, bench.p, udot)), moves)

    moves, expected = bench.expected(bench.p_vec, product)
    bench.judge_matrix("mass_p", bench.source("mass_p"), moves, expected, callback)


def _filled(derivative: Derivative, point: tuple[Any, ...]) -> PETSc.Mat:
    matrix = derivative.create(*point)
    derivative.fill(*point, matrix)
    return matrix
