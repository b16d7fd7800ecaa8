"""Each user callback against differences of the callback that it differentiates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import QUIET, Array, check_output, dot, gather, guarded, read, scatter
from daeosens.bench import (
    TIME_LEVELS,
    Bench,
    Check,
    CheckedCallback,
    Function,
    components,
    entries,
    number,
)
from daeosens.cost import INDEPENDENT, Scalar
from daeosens.derivatives import ComplexStep
from daeosens.event_data import EventData
from daeosens.matrices import Derivative, Products
from daeosens.objective import LeastSquares, Objective, Prior, Running, Sum, Terminal
from daeosens.parameters import Control, Parameters
from daeosens.problem import AUTONOMOUS, Problem
from daeosens.second_checks import (
    check_cost_hessian,
    check_hessian_product,
    check_initial_state_hessian,
)


@QUIET
def check(
    problem: Problem,
    u0: npt.ArrayLike | PETSc.Vec,
    p: npt.ArrayLike | PETSc.Vec | None = None,
    t: float = 0.0,
    *,
    udot: npt.ArrayLike | PETSc.Vec | None = None,
    objective: Objective | None = None,
    control: Control | None = None,
    seed: int = 0,
    tolerance: float = 1e-6,
) -> Check:
    """Compare every derivative callback with differences of the callback that it differentiates.

    Each one on its own, so the wrong one is named: the Jacobians in u, u' and p, the partial
    derivative in t, the mass matrix's in p, both products of matrix-free ones, the gradients of
    costs, the Jacobians of observations and of the initial state; and the products with second
    derivatives that the user supplied, against differences of the first derivatives.  Up to 16
    components are moved one at a time; of more, some random directions.  The differences are
    central and extrapolated, good to about ten digits.  Terms that vanish at the point are not
    seen: choose one without zeros.  Collective on ``problem.comm``.

    Parameters
    ----------
    problem : Problem
        From ``ODE`` or ``DAE``.
    u0 : array or Vec [n]
        State at which to check.
    p : array or Vec [m]
        Parameters at which to check.
    t : float
        Time at which to check [time unit].
    udot : array or Vec [n], optional
        Rate, where it matters; random by default.
    objective : Objective, optional
        A cost whose derivatives are checked too.
    control : Control, optional
        ``Parameters`` whose initial state is checked too.
    seed : int
        Of the random directions.
    tolerance : float
        Accepted relative error.

    Returns
    -------
    Check

    Raises
    ------
    InputError
        A point of the wrong size; an rhs or residual that returns the wrong size.
    SolveError
        An rhs or residual that is not finite at the point itself.

    Examples
    --------
    >>> from daeosens import ODE
    >>> decay = ODE(
    ...     lambda t, u, p: -p[0] * u,
    ...     size=1,
    ...     parameters=["rate"],
    ...     jacobian=lambda t, u, p: [[-p[0]]],
    ...     jacobian_p=lambda t, u, p: [[u[0]]],
    ... )
    >>> check(decay, [1.0], [0.5]).wrong
    ('jacobian_p',)
    """
    bench = Bench(problem, t, u0, p, udot, seed=seed, tolerance=tolerance)
    _check_equations(bench)
    for term in [] if objective is None else _terms(objective):
        _check_objective(bench, term)
    if isinstance(control, Parameters) and callable(control.initial_state):
        _check_initial_state(bench, control)
        if control.initial_state_hessian is not None:
            check_initial_state_hessian(bench, control)
    return Check(tuple(bench.rows), tolerance)


# ---- the equations -------------------------------------------------------------------------------


def _check_equations(bench: Bench) -> None:
    problem, t, u, udot, p = bench.problem, bench.t, bench.u, bench.udot, bench.p
    residual = problem.form == "residual"
    by_u, by_p = problem.rhs_u, problem.rhs_p
    fill_t, name_t = problem.rhs_t, "rhs_t"
    point: tuple[Any, ...] = (t, u, p)
    if residual:
        by_u, by_p = problem.residual_u, problem.residual_p
        fill_t, name_t = problem.residual_t, "residual_t"
        point = (t, u, udot, p)

    def evaluate(t: float, u: PETSc.Vec, udot: PETSc.Vec, p: Any) -> Array:
        if residual:
            return bench.fill(problem.residual, t, u, udot, p)
        return bench.fill(problem.rhs, t, u, p)

    def along_p(x: PETSc.Vec) -> Array:
        return evaluate(t, u, udot, bench.see_p(x))

    _matrix(bench, "jacobian", by_u, point, u, lambda x: evaluate(t, x, udot, p))
    if residual:
        by_udot = problem.residual_udot
        assert by_udot is not None
        _matrix(bench, "jacobian_udot", by_udot, point, udot, lambda x: evaluate(t, u, x, p))
    if problem.n_parameters:
        _matrix(bench, "jacobian_p", by_p, point, bench.p_vec, along_p)
    _time_derivative(bench, name_t, fill_t, point, lambda x: evaluate(number(x), u, udot, p))
    if problem.form == "mass" and not problem.constant_mass:
        _mass_p(bench)
    check_hessian_product(bench)


def _matrix(
    bench: Bench,
    name: str,
    derivative: Derivative,
    point: tuple[Any, ...],
    x: PETSc.Vec,
    function: Function,
) -> None:
    """Check a matrix, or both products of one that is given by products."""
    moves, expected = bench.expected(x, function)
    source = _source(bench, name)

    def given() -> Array:
        return bench.products(_filled(derivative, point), moves)

    def transposed(w: PETSc.Vec, out: PETSc.Vec) -> None:
        _filled(derivative, point).multTranspose(w, out)

    if derivative.assembled:
        bench.judge_matrix(name, source, moves, expected, given)
    else:
        bench.judge_matrix(f"{name}.apply", source, moves, expected, given)
        bench.judge_transpose(f"{name}.apply_transpose", source, moves, expected, transposed)


def _time_derivative(
    bench: Bench,
    name: str,
    fill: Callable[..., None],
    point: tuple[Any, ...],
    function: Function,
) -> None:
    moves, expected = bench.expected(bench.t_vec, function, TIME_LEVELS)
    scale = number(moves[0])

    def given() -> Array:
        return scale * bench.fill(fill, *point)[:, None]

    bench.judge_matrix(name, _source(bench, name), moves, expected, given)


def _mass_p(bench: Bench) -> None:
    """Check d(M(p) v)/dp."""
    problem, t, u, udot = bench.problem, bench.t, bench.u, bench.udot
    mass_p = problem.mass_p
    assert mass_p is not None

    def product(x: PETSc.Vec) -> Array:
        def fill(out: PETSc.Vec) -> None:
            problem.add_udot_product(1.0, t, u, udot, bench.see_p(x), udot, out)

        return bench.fill(fill)

    def given() -> Array:
        return bench.products(_filled(mass_p, (t, bench.p, udot)), moves)

    moves, expected = bench.expected(bench.p_vec, product)
    bench.judge_matrix("mass_p", _source(bench, "mass_p"), moves, expected, given)


def _filled(derivative: Derivative, point: tuple[Any, ...]) -> PETSc.Mat:
    matrix = derivative.create(*point)
    derivative.fill(*point, matrix)
    return matrix


def _source(bench: Bench, name: str) -> str:
    return bench.problem.sources.get(name, "")


# ---- costs ---------------------------------------------------------------------------------------


def _terms(objective: Objective) -> list[Objective]:
    if isinstance(objective, Sum):
        return [one for _, term in objective.terms for one in _terms(term)]
    return [objective]


def _check_objective(bench: Bench, term: Objective) -> None:
    """Check the derivatives of one cost that is not a sum."""
    cost = term.lower(bench.problem, bench.t)
    scalars = [point[-1] for point in cost.points] + [density[-1] for density in cost.densities]
    if isinstance(term, LeastSquares):
        if callable(term.observe):
            _observation(bench, term)
        elif term.vectors:
            _gradient_u(bench, "observe", "library", scalars[0])
    elif isinstance(term, EventData):
        if term.observe is not None:
            _observation(bench, term)
    elif isinstance(term, Prior):
        _gradient_p(bench, "prior", "library", scalars[0])
    elif isinstance(term, Terminal):
        _scalar(bench, "terminal", scalars[0], term.gradient_u, term.gradient_p)
        if term.hessian_product is not None:
            check_cost_hessian(bench, "terminal", scalars[0])
    elif isinstance(term, Running):
        _scalar(bench, "running", scalars[0], term.gradient_u, term.gradient_p)
        _density_t(bench, scalars[0], term.density_t)
        if term.hessian_product is not None:
            check_cost_hessian(bench, "running", scalars[0])
    else:
        for scalar in scalars:
            _scalar(bench, "cost", scalar, scalar.add_u, scalar.add_p)


def _scalar(bench: Bench, name: str, scalar: Scalar, by_u: Any, by_p: Any) -> None:
    _gradient_u(bench, f"{name} gradient_u", _origin(bench, by_u), scalar)
    if bench.problem.n_parameters:
        _gradient_p(bench, f"{name} gradient_p", _origin(bench, by_p), scalar)


def _gradient_u(bench: Bench, name: str, source: str, scalar: Scalar) -> None:
    t, u, p = bench.t, bench.u, bench.p

    def add(out: PETSc.Vec) -> None:
        scalar.add_u(1.0, t, u, p, out)

    _gradient(bench, name, source, u, lambda x: scalar.value(t, x, p), add)


def _gradient_p(bench: Bench, name: str, source: str, scalar: Scalar) -> None:
    t, u, p = bench.t, bench.u, bench.p

    def add(out: PETSc.Vec) -> None:
        scalar.add_p(1.0, t, u, p, out)

    def value(x: PETSc.Vec) -> float:
        return scalar.value(t, u, bench.see_p(x))

    _gradient(bench, name, source, bench.p_vec, value, add)


def _gradient(
    bench: Bench,
    name: str,
    source: str,
    x: PETSc.Vec,
    value: Callable[[PETSc.Vec], float],
    add: Callable[[PETSc.Vec], None],
) -> None:
    moves, expected = bench.expected(x, lambda moved: np.array([value(moved)]))

    def given() -> Array:
        gradient = x.duplicate()
        gradient.zeroEntries()
        add(gradient)
        return np.array([[dot(gradient, move) for move in moves]])

    bench.judge(name, source, expected, given, components(moves))


def _density_t(bench: Bench, scalar: Scalar, supplied: Any) -> None:
    t, u, p = bench.t, bench.u, bench.p

    def value(x: PETSc.Vec) -> Array:
        return np.array([scalar.value(number(x), u, p)])

    def given() -> Array:
        return np.array([[number(moves[0]) * scalar.value_t(t, u, p)]])

    moves, expected = bench.expected(bench.t_vec, value, TIME_LEVELS)
    source = _origin(bench, supplied)
    bench.judge("running density_t", source, expected, given, components(moves))


def _observation(bench: Bench, term: LeastSquares | EventData) -> None:
    t, u, p, q = bench.t, bench.u, bench.p, term.data.shape[1]
    assert term.observe is not None
    call = guarded(term.observe, "observe", bench.comm)

    def observe(t: float, u: Array, p: Any) -> Any:
        return check_output(call(t, u, p), "observe", (q,), t, real=False)

    def along_u(x: PETSc.Vec) -> Array:
        return np.asarray(observe(t, read(x), p), dtype=float)

    def along_p(x: PETSc.Vec) -> Array:
        return np.asarray(observe(t, read(u), gather(x)), dtype=float)

    step_u = ComplexStep(observe, 1, "observe", "observe_u=callback")
    step_p = ComplexStep(observe, 2, "observe", "observe_p=callback")
    point = (t, read(u), p)
    origin = _origin(bench, term.observe_u)
    _jacobian(bench, "observe_u", origin, term.observe_u or step_u, point, u, along_u)
    if bench.problem.n_parameters:
        origin = _origin(bench, term.observe_p)
        _jacobian(bench, "observe_p", origin, term.observe_p or step_p, point, bench.p_vec, along_p)
    if isinstance(term, EventData):
        _observe_t(bench, term, observe)


def _observe_t(bench: Bench, term: EventData, observe: Callable[..., Any]) -> None:
    """Check the derivative of an observation in the time of an event."""
    u, p = read(bench.u), bench.p
    step = ComplexStep(observe, 0, "observe", "observe_t=callback")

    def along(x: PETSc.Vec) -> Array:
        return np.asarray(observe(number(x), u, p), dtype=float)

    def given() -> Array:
        by_t = step(bench.t, u, p) if term.observe_t is None else term.observe_t(bench.t, u, p)
        return number(moves[0]) * np.asarray(by_t, dtype=float).reshape(-1, 1)

    moves, expected = bench.expected(bench.t_vec, along, TIME_LEVELS)
    bench.judge_matrix("observe_t", _origin(bench, term.observe_t), moves, expected, given)


def _origin(bench: Bench, supplied: Any) -> str:
    """Say where the derivative of a cost, an observation or an initial state comes from."""
    if supplied is None:
        return "complex step" if bench.problem.style == "numpy" else ""
    return supplied if supplied in (INDEPENDENT, AUTONOMOUS) else "callback"


# ---- the initial state ---------------------------------------------------------------------------


def _check_initial_state(bench: Bench, control: Parameters) -> None:
    """Check the Jacobian of the initial state in the parameters, or its transposed product."""
    name, problem, by_p = "initial_state_p", bench.problem, control.initial_state_p
    call = guarded(control.initial_state, "initial_state", bench.comm)
    if problem.style == "numpy":

        def initial(p: Array) -> Any:
            return check_output(call(p), "initial_state", (problem.size,), bench.t, real=False)

        def along(x: PETSc.Vec) -> Array:
            return np.asarray(initial(gather(x)), dtype=float)

        assert not isinstance(by_p, Products)  # refused by Parameters
        jacobian = by_p or ComplexStep(initial, 0, "initial_state", f"{name}=callback")
        origin = _origin(bench, by_p)
        _jacobian(bench, name, origin, jacobian, (bench.p,), bench.p_vec, along)
        return
    if by_p is None:
        bench.rows.append(CheckedCallback(name, "", math.nan, "not supplied"))
        return

    def product(w: PETSc.Vec, out: PETSc.Vec) -> None:
        scatter(control.transposed_initial(problem, bench.p, w), out)

    moves, expected = bench.expected(bench.p_vec, lambda x: bench.fill(call, gather(x)))
    bench.judge_transpose(name, "callback", moves, expected, product)
    if isinstance(by_p, Products):
        apply = guarded(by_p.apply, f"{name}.apply", bench.comm)

        def columns() -> Array:
            return np.column_stack([bench.fill(apply, bench.p, gather(d)) for d in moves])

        bench.judge_matrix(f"{name}.apply", "callback", moves, expected, columns)


def _jacobian(
    bench: Bench,
    name: str,
    source: str,
    jacobian: Callable[..., Any],
    point: Sequence[Any],
    x: PETSc.Vec,
    along: Function,
) -> None:
    """Check a NumPy-style Jacobian that is not one of the problem's own."""
    moves, expected = bench.expected(x, along)

    def given() -> Array:
        shape = (expected[0].values.size, x.size)
        matrix = check_output(jacobian(*point), name, shape, bench.t)
        return np.column_stack([matrix @ gather(move) for move in moves])

    bench.judge(name, source, expected, given, entries(moves))


__all__ = ["Check", "CheckedCallback", "check"]
