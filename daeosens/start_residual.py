"""Starts that do not satisfy the algebraic equations, found out before the first step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array, largest, read, write
from daeosens.errors import InputError, SolveError
from daeosens.methods import Method
from daeosens.problem import Problem
from daeosens.steps.algebraic import Mask, count, later_side, probe_and_rate, wave
from daeosens.steps.forms import takes_esdirk

RELATIVE = 1e-6
"""Relative error of state and parameters that a start may have."""

ROUNDING = 1e-12
"""A residual that is taken for rounding where everything is zero; relative errors of the time, and
of small unknowns beside the largest."""


def refuse_inconsistent_start(
    problem: Problem, method: Method, t: float, u: PETSc.Vec, p: Any
) -> None:
    """Refuse a start whose algebraic equations have a residual that the method carries along.

    Theta methods below 1 average over the ends of a step: its error y of algebraic variables
    becomes -(1 - theta)/theta y in each step, which for "cn" and "midpoint" is -y.  "beuler" and
    ESDIRK methods forget it in the first one.  The residual may be as large as relative changes of
    the state, or of the parameters, by ``RELATIVE`` make it, whatever the units of a row.  One
    evaluation of the equations where they hold, and a product with F_udot where that may change.
    Collective.

    Parameters
    ----------
    problem, method
        What is stepped, and how.
    t, u, p
        The start, of a run or of a piece of it between events.

    Raises
    ------
    InputError
        Names the row, its residual and what would be admitted, on every rank.
    """
    if problem.form == "rhs" or method.theta in (0.0, 1.0):
        return
    if problem.curved_mass or "algebraic rows" not in problem.probed:
        problem.probed["algebraic rows"] = _algebraic_rows(problem, t, u, p)
    rows = problem.probed["algebraic rows"]
    if rows is None:
        return
    residual = _residual(problem, t, u, p)
    size = largest(_only(rows, residual))
    if not ROUNDING < size < math.inf:  # what is not finite is for the run to say
        return
    excess = _only(rows, residual)
    admitted = ROUNDING + _changes(problem, t, u, p, residual)
    values = np.abs(read(excess))
    with np.errstate(invalid="ignore"):
        ratios = np.nan_to_num(values / admitted, nan=0.0)
    start, _ = u.getOwnershipRange()
    worst = (0.0, 0, 0.0, 0.0)
    if ratios.size:
        k = int(ratios.argmax())
        worst = (float(ratios[k]), start + k, float(read(excess)[k]), float(admitted[k]))
    if u.comm.size > 1:
        worst = max(u.comm.tompi4py().allgather(worst))
    ratio, row, value, bound = worst
    if ratio > 1.0:
        forgetful = "esdirk4" if takes_esdirk(problem) else "beuler"
        raise InputError(
            f"the start at t = {t:.9g} does not satisfy the algebraic equations: row {row} has the "
            f'residual {value:.6g}, and method = "{method.name}" would carry this error from step '
            "to step",
            expected=f"at most {bound:.3g}",
            remedy="consistent_state(problem, u0, p); Parameters(..., consistent=True) where "
            f'parameters move; or method="{forgetful}", of first order from such a start',
        )


def _algebraic_rows(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> Mask | None:
    """Return which of the rank's rows of F_udot are zero; None where there are none on any."""
    (probe, rate), product = probe_and_rate(u), problem.create_state()
    problem.add_udot_product(1.0, t, u, rate, p, probe, product)
    rows = read(product) == 0.0
    return rows if count(u, rows) else None


def _residual(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> PETSc.Vec:
    """Return F(t, u, 0, p) [n] on the later side of a breakpoint."""
    out = problem.create_state()
    problem.residual(later_side(problem, t), u, problem.create_state(), p, out)
    return out


def _changes(problem: Problem, t: float, u: PETSc.Vec, p: Any, residual: PETSc.Vec) -> Array:
    """Return how far small changes of the state and of the parameters move the rank's rows."""
    moved, along = u.copy(), wave(u)
    rounding = ROUNDING * max(1.0, largest(u))
    write(moved, read(u) * (1.0 + RELATIVE * along) + rounding * along)
    if isinstance(p, PETSc.Vec):
        other = p.copy()
        other.scale(1.0 + RELATIVE)
    else:
        other = p * (1.0 + RELATIVE)
    total = np.zeros(len(along))
    for time, state, parameters in ((t * (1.0 + ROUNDING), moved, p), (t, u, other)):
        try:
            near = _residual(problem, time, state, parameters)
        except SolveError:  # beyond the domain of the callbacks, on every rank
            continue
        total += np.abs(read(near) - read(residual))
    return total


def _only(rows: Mask, vec: PETSc.Vec) -> PETSc.Vec:
    """Return a vector whose other rows are zero."""
    out = vec.duplicate()
    write(out, np.where(rows, read(vec), 0.0))
    return out
