"""Each user callback against differences of the callback that it differentiates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.objective import Objective
from daeosens.costs.scalar import Callback
from daeosens.errors import SolveError, real_number, require, whole_number
from daeosens.functional.parameters import Control, Parameters
from daeosens.methods.events.event_function import RESET, lower_changes, lower_event, lower_reset
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, gather, read, scatter, write
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.callback_guard import QUIET, check_output, guarded
from daeosens.problem.delays import Delays
from daeosens.problem.event import Event
from daeosens.problem.matrices import Products
from daeosens.problem.problem import Problem
from daeosens.verify.check_cost import check_callback, check_objective
from daeosens.verify.check_equations import check_equations
from daeosens.verify.check_hessians import check_initial_state_hessian
from daeosens.verify.check_point import CheckPoint
from daeosens.verify.table import Check, CheckedCallback


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
    costs, the Jacobians of observations and of the initial state; of events those of ``when``, of
    the reset and of ``changes``; the equations of every mode; and the second derivatives that the
    user supplied, against differences of the first ones.  Up to 16 components are moved one at a
    time; of more, some random directions.  The differences are central and extrapolated, good to
    about ten digits.  Terms that vanish at the point are not seen: choose one without zeros (no
    event need happen there).  Collective on ``problem.comm``.

    Parameters
    ----------
    problem : Problem
        From ``ODE``, ``DAE`` or ``hybrid``.
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
    require(problem, Problem, "problem", "ODE(f, size, parameters), or trace(f, ...) compiled")
    t = real_number(t, "t")
    seed = whole_number(seed, "seed")
    tolerance = real_number(tolerance, "tolerance", least=0.0, inside=True)
    agree(
        problem.comm,
        "check",
        t=t,
        udot=udot,
        objective=objective,
        control=type(control).__name__,
        seed=seed,
        tolerance=tolerance,
    )
    bench = CheckPoint(problem, t, u0, p, udot, seed=seed, tolerance=tolerance)
    # The equations of a problem with modes are those of its modes: there are no others.
    if problem.modes:
        for name, mode in problem.modes.items():
            check_equations(bench.titled(f'mode "{name}"', mode))
    elif problem.delays is not None:
        check_delays(bench, problem.delays)
    else:
        check_equations(bench)
    for event in problem.events:
        check_event(bench, event)
    if objective is not None:
        check_objective(bench, objective)
    if isinstance(control, Parameters) and callable(control.initial_state):
        _check_initial_state(bench, control)
        if control.initial_state_hessian is not None:
            check_initial_state_hessian(bench, control)
    return Check(tuple(bench.rows), tolerance)


def check_event(bench: CheckPoint, event: Event) -> None:
    """Check every derivative of an event that the user has a part in.

    The point need not be one at which it happens.  A function that has no value there gives a row
    that says so.
    """
    problem, t, u, p = bench.problem, bench.t, bench.u, bench.p
    when = lower_event(problem, event).when
    if when is not None and callable(event.when):
        _check_scalar(bench, when)
    reset = lower_reset(problem, event)
    if reset is not None:
        inside = bench.titled(f'event "{event.name}"', reset)
        # A reset is checked like a right-hand side u+ = a(t, u, p) of its own.
        if _has_value(inside, RESET.value, lambda: inside.fill(reset.rhs, t, u, p)):
            check_equations(inside, RESET)
    for _, value in lower_changes(problem, event):
        _check_scalar(bench, value)


def _check_scalar(bench: CheckPoint, scalar: Callback) -> None:
    name = scalar.name(scalar.keywords.value)
    if _has_value(bench, name, lambda: scalar.value(bench.t, bench.u, bench.p)):
        check_callback(bench, scalar)


def _has_value(bench: CheckPoint, name: str, evaluate: Callable[[], object]) -> bool:
    """Whether a function has a value at the point; a row says it if not."""
    try:
        evaluate()
    except SolveError as error:
        bench.add(name, "callback", math.nan, "cannot tell", error.what)
        return False
    return True


def check_delays(bench: CheckPoint, delays: Delays) -> None:
    """Check the derivatives of f in u, in delayed states, p and t, of delays, and of the history.

    Where a run would begin: delayed states are those of the history.
    """
    n, t, p = bench.problem.size, bench.t, np.asarray(bench.p, dtype=float)
    y, source = delays.start(t, gather(bench.u), p), bench.origin(None)
    n_p = len(p)

    def judge(
        name: str, batch: Batch, state: Array, columns: slice, value: Callable[[Array], Array]
    ) -> None:
        """Check the derivative of the first rates in some entries of a state."""
        rows = slice(1, n + 1) if batch is delays.rates else slice(0, n)

        def moved(x: PETSc.Vec) -> Array:
            other = state.copy()
            other[columns] = read(x)
            return value(other)

        def jacobian() -> Array:
            return batch.jacobian(np.array([t]), state[None], p)[0][rows, columns]

        bench.judge_jacobian(name, source, jacobian, (), _vector(state[columns]), moved)

    def judge_p(
        name: str, batch: Batch, state: Array, rows: slice, value: Callable[[Array], Array]
    ) -> None:
        if not n_p:
            return

        def jacobian() -> Array:
            along = batch.push_parameters(np.array([t]), state[None], p, np.eye(n_p))
            return np.asarray(along).reshape(n_p, -1)[:, rows].T

        bench.judge_jacobian(name, source, jacobian, (), _vector(p), lambda x: value(read(x)))

    def rate(point: Array) -> Array:
        return delays.rate(point, p)

    judge("jacobian", delays.rates, y, slice(1, n + 1), rate)
    judge("jacobian of delayed states", delays.rates, y, slice(n + 1, None), rate)
    judge_p("jacobian_p", delays.rates, y, slice(1, n + 1), lambda q: delays.rate(y, q))
    judge("rhs_t", delays.rates, y, slice(0, 1), rate)
    lags = delays.lag(p)
    judge_p("delays p", delays.lags, lags, slice(None), delays.lag)
    before = np.zeros(n)
    before[0] = t - float(lags.min())
    earlier = float(before[0])
    judge("history t", delays.past, before, slice(0, 1), lambda s: delays.history(float(s[0]), p))
    judge_p("history p", delays.past, before, slice(0, n), lambda q: delays.history(earlier, q))


def _vector(values: Array) -> PETSc.Vec:
    vector = PETSc.Vec().createSeq(len(values), comm=PETSc.COMM_SELF)
    write(vector, values)
    return vector


def _check_initial_state(bench: CheckPoint, control: Parameters) -> None:
    """Check the Jacobian of the initial state in the parameters, or its transposed product."""
    name, problem, by_p = "initial_state_p", bench.problem, control.initial_state_p
    start = control.start_map
    assert start is not None
    call = guarded(control.initial_state, "initial_state", bench.comm)
    if problem.style == "numpy":

        def initial(p: Array) -> Any:
            values = call(p)
            # a DAE's start may leave out its algebraic variables
            size = problem.n_start if np.shape(values) == (problem.n_start,) else problem.size
            return check_output(values, "initial_state", (size,), bench.t, differentiated=True)

        def along(x: PETSc.Vec) -> Array:
            return np.asarray(initial(gather(x)), dtype=float)

        assert not isinstance(by_p, Products)  # refused by Parameters
        jacobian = by_p or AutomaticJacobian(initial, 0, "initial_state", f"{name}=callback")
        origin = bench.origin(by_p)
        bench.judge_jacobian(name, origin, jacobian, (bench.p,), bench.p_vec, along)
        return
    if by_p is None:
        bench.add(name, "", math.nan, "not supplied")
        return

    def product(w: PETSc.Vec, out: PETSc.Vec) -> None:
        scatter(start.transposed(problem, bench.p, w), out)

    # eta_p dp by differences; the transposed product is judged by (eta_p^T w, dp) = (w, eta_p
    # dp).
    moves, expected = bench.expected(bench.p_vec, lambda x: bench.fill(call, gather(x)))
    bench.judge_transpose(name, "callback", moves, expected, product)
    if isinstance(by_p, Products):
        apply = guarded(by_p.apply, f"{name}.apply", bench.comm)

        def columns() -> Array:
            return np.column_stack([bench.fill(apply, bench.p, gather(d)) for d in moves])

        bench.judge_matrix(f"{name}.apply", "callback", moves, expected, columns)


__all__ = ["Check", "CheckedCallback", "check"]
