"""Steps that PETSc takes wrongly, found out before the first one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import OptionError, UnsupportedError
from daeosens.methods.dae.index import Index, structural_index
from daeosens.methods.dae.structure import null_projection, wave
from daeosens.methods.linear_solver import block_solver
from daeosens.methods.method import Method
from daeosens.petsc.vectors import largest, read, write
from daeosens.problem.problem import Problem, ProblemCache
from daeosens.timestepping.consistency_check import refuse_inconsistent_start
from daeosens.timestepping.stepping import Stepping


def refuse_unsound_steps(
    problem: Problem, stepping: Stepping, span: tuple[float, float], u: PETSc.Vec, p: Any
) -> None:
    """Refuse what PETSc 3.26 cannot step although it tries.

    The midpoint rule with error control for algebraic variables: they oscillate undamped, so the
    error estimate does not fall with the step size, which shrinks until it divides by zero.
    Algebraic equations that jump at a breakpoint, with a method that carries their variables over:
    the error of the jump stays. Algebraic variables of index two (``structural_index``) by the
    midpoint rule, or of index three by that, "cn" and ESDIRK methods: they do not converge. Either
    by adaptive steps of any method: error estimates hold what rounding leaves of the equations,
    divided by the step, which may shrink until it is zero. Theta below 1/2
    for algebraic equations: each step multiplies their error by (1 - theta)/theta. Starts that do
    not satisfy the algebraic equations, where they are not forgotten
    (``refuse_inconsistent_start``). Collective.

    Parameters
    ----------
    problem, stepping
        What is stepped, and how.
    span : (float, float)
        Of the run, or of the piece of it that begins with the state ``u`` [n].
    u, p
        The start.

    Raises
    ------
    InputError
        An inconsistent start.
    UnsupportedError
        Any other of them; names the methods that are sound.
    """
    if problem.form == "rhs":  # every variable has its rate, by itself
        return
    method = stepping.resolved_method
    _refuse_algebraic_variables(problem, stepping, span[0], u, p)
    refuse_inconsistent_start(problem, method, span[0], u, p)
    shrinking = stepping.adaptive and method.estimates_oscillate
    # a step begins with algebraic variables of the other side of the jump, and carries them on
    jumping = bool(problem.breakpoints) and method.starts_from_algebraic
    if not (jumping or shrinking):
        return
    algebraic, without_rate = _rows_without_rate(problem, span[0], u, p)
    if jumping and method.tableau is not None:
        null = null_projection(problem, partial(block_solver, options=stepping.options))
        if null is not None:
            _refuse_algebraic_jumps(problem, stepping, span, u, p, null)
    elif jumping and algebraic:
        # rows of F without u' are the algebraic equations: the projection onto them is diagonal
        diagonal = u.duplicate()
        write(diagonal, without_rate.astype(float))
        null = PETSc.Mat().createDiagonal(diagonal)
        _refuse_algebraic_jumps(problem, stepping, span, u, p, null)
    if shrinking and algebraic:
        raise UnsupportedError(
            'adaptive "midpoint" for a mass matrix with rows of zeros',
            expected="steps whose algebraic variables are damped",
            remedy='"cn", "beuler" or "theta:<value>", or fixed steps',
        )


_INDEX: ProblemCache[list[Index]] = ProblemCache(list)


def _refuse_algebraic_variables(
    problem: Problem, stepping: Stepping, t: float, u: PETSc.Vec, p: Any
) -> None:
    """Refuse what makes algebraic variables wrong with any steps; the equations are probed once."""
    method = stepping.resolved_method
    if method.forgets and not stepping.adaptive:  # of any index
        return
    known = _INDEX.of(problem)
    # structure does not depend on the step: once for all runs of a problem
    if not known:
        known.append(structural_index(problem, t, u, p))
    index, rows = known[0]
    method.refuse_index(index, rows, adaptive=stepping.adaptive)


def refuse_other_method(ts: PETSc.TS, method: Method) -> None:
    """Refuse PETSc options that have changed the method: the sweeps follow the one of Stepping.

    Raises
    ------
    OptionError
        Names both methods.
    """
    kind = method.type_of(ts)
    if kind != method.name:
        raise OptionError(
            f'PETSc options choose the method "{kind}" where Stepping has "{method.name}"',
            expected="no -ts_type, -ts_rk_type or -ts_theta_...",
            remedy="Stepping(method=...)",
        )


def _refuse_algebraic_jumps(
    problem: Problem,
    stepping: Stepping,
    span: tuple[float, float],
    u: PETSc.Vec,
    p: Any,
    null: PETSc.Mat,
) -> None:
    """Compare both sides of each breakpoint, at the start and near it."""
    first, last = span
    ends = [first, *(time for time in problem.breakpoints if first < time < last), last]
    near, zero = u.copy(), problem.create_state()
    before, left, right = (problem.create_state() for _ in range(3))
    size = max(1.0, largest(u))
    # an equation may be the same on both sides just at the start, as 0 (u - u0) is
    write(near, read(u) + 1e-3 * size * wave(u))
    for previous, time, following in zip(ends, ends[1:], ends[2:], strict=False):
        on_left = problem.inside(time, previous, time - previous)
        on_right = problem.inside(time, time, following - time)
        for state in (u, near):
            # as far left of ``on_left`` as that is of ``on_right``: what F changes by without a
            # jump
            problem.residual(2.0 * on_left - on_right, state, zero, p, before)
            problem.residual(on_left, state, zero, p, left)
            problem.residual(on_right, state, zero, p, right)
            noise = 1e-10 * max(largest(left), largest(right))
            before.axpy(-1.0, left)
            right.axpy(-1.0, left)
            null.mult(before, left)
            null.mult(right, before)
            # a jump is what changes across the breakpoint by more than twice what changes beside it
            write(right, np.maximum(np.abs(read(before)) - 2.0 * np.abs(read(left)), 0.0))
            if largest(right) > noise:
                raise UnsupportedError(
                    f'method = "{stepping.method}" for algebraic equations that jump at the '
                    f"breakpoint {time:.9g}",
                    expected="a method whose steps do not carry algebraic variables over",
                    remedy='"beuler", or an Event at this time: they are solved for after events',
                )
    for vec in (near, zero, before, left, right):
        vec.destroy()


def _rows_without_rate(
    problem: Problem, t: float, u: PETSc.Vec, p: Any
) -> tuple[bool, npt.NDArray[np.bool_]]:
    """Return whether F has rows without u' on any rank, and which (local)."""
    rate, at_zero, out = (u.duplicate() for _ in range(3))
    for factor, residual in enumerate((at_zero, out)):
        # rows that are the same for u' = 0 and for a u' without zeros have no u'
        write(rate, factor * max(1.0, largest(u)) * wave(u))
        problem.residual(t, u, rate, p, residual)
    out.axpy(-1.0, at_zero)
    out.abs()
    least: Any = out.min()
    without_rate = read(out) == 0.0
    for vec in (rate, at_zero, out):
        vec.destroy()
    return least[1] == 0.0, without_rate
