"""Which engine sweeps back over a trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.engines.limits import (
    DELAYS,
    FEW_ROWS,
    FEW_UNKNOWNS,
    MANY_POINTS,
    POINT_BY_POINT,
    ROWS_OF_GRAPHS,
    ROWS_OF_PRODUCTS,
    SPARSE_SOLVES,
)
from daeosens.errors import InputError, UnsupportedError
from daeosens.methods.linear_solver import linear_solver, refuse_without_transpose
from daeosens.methods.method import Method
from daeosens.problem.implicit_matrix import SystemMatrix
from daeosens.problem.problem import Problem
from daeosens.timestepping.dense_ts import directed_steps
from daeosens.timestepping.trajectory.trajectory import Trajectory

Engine = Literal["auto", "vectors", "arrays", "compiled", "tsadjoint"]

Sweep = Literal["auto", "vectors", "arrays", "compiled"]
"""Of tangents and second-order sweeps, in which PETSc 3.26 is wrong."""


SWEEPS = get_args(Sweep)

ASKED = "asked for"
IN_C = "all functions are in C"


class Choice(NamedTuple):
    """What sweeps.

    Attributes
    ----------
    engine : str
        Its name.
    why : str
        Why it is the one, in words for the user: what was asked for, what others cannot, or the
        measured limit.
    """

    engine: Literal["vectors", "arrays", "compiled"]
    why: str


def check_engine(engine: str, known: Sequence[str] = get_args(Engine)) -> None:
    """Refuse an unknown engine; ``SWEEPS`` are those of tangents, matrices and second order.

    Raises
    ------
    InputError
        Names the known ones.
    """
    # not ``is_one_of``: every sweep comes here
    named: object = engine
    if not (isinstance(named, str) and named in known):
        *others, last = [f'"{name}"' for name in known]
        expected = f"{', '.join(others)} or {last}"
        raise InputError(f"engine = {engine!r}", expected=expected)


def wants_compiled(trajectory: Trajectory, engine: str, rows: int) -> str:
    """Return why a sweep in C is to be tried: asked for, or the quickest where it can be.  Or "".

    ``rows`` is the number of adjoints, or directions, that are to be carried.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> run = solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1))
    >>> wants_compiled(run, "compiled", 1), wants_compiled(run, "arrays", 1)
    ('asked for', '')
    """
    if trajectory.problem.delays is not None:
        check_of_delays(engine)
        return ""
    if engine != "auto":
        return ASKED if engine == "compiled" else ""
    problem, method = trajectory.problem, trajectory.stepping.resolved_method
    modes = problem.modes.values()
    natives = any(mode.native for mode in modes) if modes else problem.native
    if (problem.stencil is None or problem.field_parameter) and not natives:
        return ""
    # many rows of many unknowns are products of matrices, which BLAS takes faster than one row
    # after the other in C
    return IN_C if rows <= FEW_ROWS or not _rows_pay_by_blocks(problem, method, rows) else ""


def _rows_pay_by_blocks(problem: Problem, method: Method, rows: int) -> bool:
    """Whether blocks carry that many rows in less time than C, one beside the other."""
    batch = problem.batch
    if batch is None or not batch.at_once:
        return False
    if not method.stagewise:
        return problem.size > FEW_UNKNOWNS
    if sparse_jacobian(problem) or no_arrays(problem, method):
        return False
    # factors are shared by the rows of a stage, but each goes through the whole graph, by itself
    if batch.rows_at_once is not None:  # through its products with matrices
        return rows * problem.size > ROWS_OF_PRODUCTS
    pull = problem.native.get("pull")
    return pull is not None and rows * pull.operations > ROWS_OF_GRAPHS


def sparse_jacobian(problem: Problem) -> bool:
    """Whether f_u is a sparse matrix."""
    jacobian = problem.native.get("jacobian")
    return jacobian.pattern is not None if jacobian is not None else problem.rhs_u.sparse()


def check_of_delays(engine: str) -> None:
    """Refuse an engine for a delay equation, whose sweeps are of arrays.

    Raises
    ------
    UnsupportedError
        Names it.
    """
    if engine not in ("auto", "arrays"):
        raise UnsupportedError(
            f'engine = "{engine}" for a delay equation', expected='"auto" or "arrays"'
        )


def refuse_compiled(reason: str) -> None:
    """Refuse ``engine = "compiled"``, if there is a reason.

    Raises
    ------
    UnsupportedError
        With the reason.
    """
    if reason:
        raise UnsupportedError(
            f'engine = "compiled" for {reason}',
            expected="equations and costs in C, as those of trace(f, ...)",
            remedy='engine="vectors"',
        )


def choose_engine(trajectory: Trajectory, engine: Sweep, not_in_c: str = "") -> Choice:
    """Return the engine for a trajectory: the one asked for, or for "auto" the faster one.

    Arrays need dense Jacobians and one processor; they pay for small problems, above all for many
    costs and for batched callbacks.  ``not_in_c`` says why the sweep in C is none, if it was tried.

    Raises
    ------
    InputError
        An unknown engine.
    UnsupportedError
        "arrays" where it cannot be; names the reason.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> choose_engine(solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1)), "auto")
    Choice(engine='arrays', why='up to 300 unknowns (160: arrays 220 ms, vectors 530 ms)')
    """
    check_engine(engine, SWEEPS)
    if engine == "compiled":  # refused before; vectors name what is not finite
        return Choice("vectors", not_in_c)
    dense = not trajectory.stepping.resolved_method.explicit
    return _arrays_or_vectors(trajectory, engine, not_in_c, dense=dense)


def choose_sweep(
    trajectory: Trajectory, engine: Sweep, rows: int = 1, *, running: bool = False
) -> Choice:
    """Return the engine for tangents and second order, like ``choose_engine``.

    It carries the windows between events; vectors carry what is between them, and a window that it
    cannot.  ``rows`` is the number of directions; ``running`` says whether a cost has
    running parts, whose second derivatives are not in C.

    Raises
    ------
    InputError
        An unknown engine, or "tsadjoint".
    UnsupportedError
        "arrays" where it cannot be; names the reason.
    """
    check_engine(engine, SWEEPS)
    if trajectory.problem.delays is not None:
        check_of_delays(engine)
        return Choice("arrays", DELAYS)
    reason, why = "", wants_compiled(trajectory, engine, rows)
    if why:
        reason = "running costs" if running else no_linear_steps(trajectory)
        if not reason:
            return Choice("compiled", why)
        if engine == "compiled":
            refuse_compiled(reason)
    assert engine != "compiled"
    return _arrays_or_vectors(trajectory, engine, reason, dense=True)


def _arrays_or_vectors(
    trajectory: Trajectory,
    engine: Literal["auto", "arrays", "vectors"],
    not_in_c: str,
    *,
    dense: bool,
) -> Choice:
    """Return the engine; ``dense`` says whether arrays need Jacobians as dense matrices."""
    if engine == "vectors":
        return Choice(engine, ASKED)
    problem, method = trajectory.problem, trajectory.stepping.resolved_method
    reason = no_arrays(problem, method)
    if engine == "arrays":
        if reason:
            raise UnsupportedError(
                f'engine = "arrays" for {reason}',
                expected="M u' = f(t, u, p) with NumPy-style callbacks and M constant",
                remedy='engine="vectors"',
            )
        return Choice(engine, ASKED)
    told = f"; not compiled: {not_in_c}" if not_in_c else ""
    batch = problem.batch
    if reason or batch is None:
        return Choice("vectors", f"not arrays: {reason}{told}")
    # a callback that takes all points in one call saves so many calls that larger problems pay
    limit = MANY_POINTS if batch.at_once else POINT_BY_POINT
    # arrays make a dense matrix of a sparse Jacobian: its factors grow with n^3
    if dense and sparse_jacobian(problem):
        limit = SPARSE_SOLVES
    told = f"{limit} {limit.of} ({limit.measured}){told}"
    if problem.size <= limit:
        return Choice("arrays", f"up to {told}")
    return Choice("vectors", f"more than {told}")


def no_linear_steps(trajectory: Trajectory) -> str:
    """Return why no steps of a run can be linearised in C; empty if some can."""
    problem, method = trajectory.problem, trajectory.stepping.resolved_method
    modes = list(problem.modes.values()) or [problem]
    for mode in modes:
        if directed_steps(mode, method) is not None:
            return ""
    missing = sorted({"rhs", "push", "pull", "hessian_product"} - modes[0].native.keys())
    if missing:
        return f"{', '.join(missing)} not in C"
    if method.tableau is None:
        return f"directions along steps of {method.name}"
    return f"directions along steps of {method.name} with {problem.size} unknowns"


def no_arrays(problem: Problem, method: Method) -> str:
    """Return why runs of a problem by a method cannot be swept by arrays; empty if they can."""
    reason = method.no_blocks(problem)
    if reason:
        return reason
    for mode in (problem, *problem.modes.values()):
        reasons = {
            "equations on a grid": mode.stencil is not None,
            "PETSc-style callbacks": mode.style == "petsc",
            "F(t, u, u', p) = 0": mode.form == "residual",
            "a mass that depends on the parameters": not mode.constant_mass,
            "a jacobian that is given by products": mode.batch is None,
        }
        for reason, holds in reasons.items():
            if holds:
                return reason
    return ""


def refuse_one_way_solver(trajectory: Trajectory) -> None:
    """Refuse an adjoint after a tangent whose linear solver has no transpose.  Collective.

    The sweep back would say so itself, but only after the one forward.  Nothing is done where the
    preconditioner is the library's choice, which has one.

    Raises
    ------
    UnsupportedError
        Names the preconditioner.
    """
    stepping = trajectory.stepping
    chosen = [*stepping.options, *PETSc.Options().getAll()]
    if stepping.resolved_method.explicit or not any("pc_type" in name.lower() for name in chosen):
        return
    first = int(np.argmax(trajectory.step_sizes > 0.0))
    t, h, _, u, *_ = trajectory.step(first)
    problem, p = trajectory.equations(first)
    t, rest = problem.inside(t + h, t, h), problem.create_state()
    system = SystemMatrix(problem.residual_u, problem.residual_udot, t, u, rest, p)
    solver = linear_solver(system.fill(t, u, rest, p, 1.0 / h), stepping.options, dm=problem.dm)
    refuse_without_transpose(solver)
    solver.destroy()
