"""Starts that do not satisfy the algebraic equations, found out before the first step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc
from scipy.linalg import qr

from daeosens.errors import InputError, SolveError
from daeosens.methods.dae.null_space import basis_matrix, null_bases
from daeosens.methods.dae.structure import (
    Mask,
    count,
    later_side,
    probe_and_rate,
    probed_rate,
    wave,
)
from daeosens.methods.linear_solver import FEW, PRODUCTS
from daeosens.methods.method import Method
from daeosens.methods.registry import find_method
from daeosens.petsc.vectors import Array, largest, read, write
from daeosens.problem.problem import Problem, ProblemCache

RELATIVE = 1e-6
"""Relative error of state and parameters that a start may have."""

ROUNDING = 1e-12
"""A residual that is taken for rounding where everything is zero; relative errors of the time, and
of small unknowns beside the largest."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """Algebraic equations that are rows: which of the rank's own."""

    rows: Mask

    def of(self, vec: PETSc.Vec) -> Array:
        """Return the rank's algebraic part [k] of a vector of equations."""
        return read(vec)[self.rows]

    def name(self, k: int, start: int) -> str:
        """Return what number k is called, where the rank's rows begin with ``start``."""
        return f"row {start + int(np.flatnonzero(self.rows)[k])}"


@dataclass(frozen=True, eq=False)
class _Combinations:
    """Algebraic equations that are sums of rows, on one rank: their weights [n, k]."""

    weights: Array

    def of(self, vec: PETSc.Vec) -> Array:
        """Return the sums [k]."""
        return read(vec) @ self.weights

    def name(self, k: int, start: int) -> str:
        """Return what number k is called."""
        rows = start + np.flatnonzero(np.abs(self.weights[:, k]) > 1e-8)
        named = ", ".join(map(str, rows[:6])) + (", ..." if rows.size > 6 else "")
        return f"row {named}" if rows.size == 1 else f"the sum of rows {named} without u'"


def refuse_inconsistent_start(
    problem: Problem, method: Method, t: float, u: PETSc.Vec, p: Any
) -> None:
    """Refuse a start whose algebraic equations have a residual that the method carries along.

    Theta methods below 1 average over the ends of a step: its error y of algebraic variables
    becomes -(1 - theta)/theta y in each step, which for "cn" and "midpoint" is -y.  "beuler" and
    ESDIRK methods forget it in the first one.  Of sums of rows the latter ask for a start that
    satisfies them too: what M u' is to cancel in them, a change of the state divided by a small
    step, would leave its rounding there.  The residual may be as large as relative changes of
    the state, or of the parameters, by ``RELATIVE`` make it, whatever the units of a row.  One
    evaluation of the equations where they hold, and a look at F_udot where that may change.

    Algebraic equations are rows of F_udot that are zero; of matrices with entries for up to ``FEW``
    unknowns on one rank also the sums of rows that are zero, by the left null space.  Collective.

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
    # beuler forgets the error in the first step and is not looked at
    if problem.form == "rhs" or method.explicit or not method.starts_from_algebraic:
        return
    known = _ALGEBRAIC.of(problem)
    if problem.curved_mass or not known:
        known[:] = [_algebraic_rows(problem, t, u, p)]
    (algebraic,) = known
    # ESDIRK methods forget errors in rows, but not in sums of rows
    if algebraic is None or (not method.carried and isinstance(algebraic, _Rows)):
        return
    ranks, (start, _) = u.comm.tompi4py(), u.getOwnershipRange()
    residual = _residual(problem, t, u, p)
    values = algebraic.of(residual)
    size = ranks.allreduce(float(np.abs(values).max(initial=0.0)), max)
    if not ROUNDING < size < math.inf:  # what is not finite is for the run to say
        return
    # how large a residual small relative changes make here: an equation in pascal and one in bar
    # are judged alike
    admitted = ROUNDING + _changes(problem, t, u, p, residual, algebraic)
    with np.errstate(invalid="ignore"):
        ratios = np.nan_to_num(np.abs(values) / admitted, nan=0.0)
    worst = (0.0, "", 0.0, 0.0)
    if ratios.size:
        k = int(ratios.argmax())
        named = algebraic.name(k, start)
        worst = (float(ratios[k]), named, float(values[k]), float(admitted[k]))
    # every rank learns of the worst row, so that all of them raise, or none
    ratio, name, value, bound = max(ranks.allgather(worst), key=lambda misfit: misfit[0])
    if ratio > 1.0:
        forgetful = "beuler"
        if find_method("esdirk4").takes(problem) and isinstance(algebraic, _Rows):
            forgetful = "esdirk4"
        harm = "carry this error from step to step"
        if not method.carried:
            harm = "lose such sums in the rounding of a small first step"
        remedy = (
            "consistent_state(problem, u0, p); Parameters(..., consistent=True) where parameters "
            f'move; or method="{forgetful}", of first order from such a start'
        )
        raise InputError(
            f"the start at t = {t:.9g} does not satisfy the algebraic equations: {name} has the "
            f'residual {value:.6g}, and method = "{method.name}" would {harm}',
            expected=f"at most {bound:.3g}",
            remedy=remedy,
        )


_ALGEBRAIC: ProblemCache[list[_Rows | _Combinations | None]] = ProblemCache(list)
"""Empty until a start was looked at."""


def known_algebraic_rows(problem: Problem) -> _Rows | _Combinations | None:
    """Return the equations without u' that the last start was checked for; None without any."""
    known = _ALGEBRAIC.of(problem)
    return known[0] if known else None


def _algebraic_rows(
    problem: Problem, t: float, u: PETSc.Vec, p: Any
) -> _Rows | _Combinations | None:
    """Return the equations without u'; None where there are none on any rank."""
    (probe, rate), product = probe_and_rate(u), problem.create_state()
    problem.add_udot_product(1.0, t, u, rate, p, probe, product)
    # a row of F_udot that makes exactly 0 of a vector without zeros has no entries
    rows = read(product) == 0.0
    weights = _null_rows(problem, t, u, p)
    # more null vectors than rows of zeros: some of them are sums
    if weights.shape[1] > rows.sum():
        return _Combinations(_apart(weights, problem, t, u, p))
    return _Rows(rows) if count(u, rows) else None


def _null_rows(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> Array:
    """Return a basis [n, k] of the left null space of F_udot, if that is small and no diagonal."""
    none = np.empty((problem.size, 0))
    if problem.comm.size > 1 or problem.size > FEW:
        return none
    matrix = probed_rate(problem, t, u, p)[0]
    bases = None if matrix.getType() in PRODUCTS else null_bases(matrix)
    if bases is None or not bases.left:
        return none
    basis: Any = basis_matrix(bases.left, u).convert(PETSc.Mat.Type.DENSE)
    return _of_size_one(basis.getDenseArray())


def _apart(weights: Array, problem: Problem, t: float, u: PETSc.Vec, p: Any) -> Array:
    """Return a basis [n, k] of the same space in which large equations stand in one sum each.

    In others what small changes do to them would hide the errors of small equations.
    """
    whole = _Rows(np.ones(problem.size, dtype=bool))
    sizes = _changes(problem, t, u, p, _residual(problem, t, u, p), whole)
    sizes += ROUNDING * max(1.0, float(sizes.max()))
    _, order = qr((sizes[:, None] * weights).T, mode="r", pivoting=True)
    return _of_size_one(weights @ np.linalg.inv(weights[order[: weights.shape[1]]]))


def _of_size_one(weights: Array) -> Array:
    """Return columns whose largest weight is 1."""
    return weights / _without_zeros(np.abs(weights).max(axis=0, initial=0.0))


def _without_zeros(values: Array) -> Array:
    return np.where(values == 0.0, 1.0, values)


def _residual(problem: Problem, t: float, u: PETSc.Vec, p: Any) -> PETSc.Vec:
    """Return F(t, u, 0, p) [n] on the later side of a breakpoint."""
    out = problem.create_state()
    problem.residual(later_side(problem, t), u, problem.create_state(), p, out)
    return out


def _changes(
    problem: Problem,
    t: float,
    u: PETSc.Vec,
    p: Any,
    residual: PETSc.Vec,
    algebraic: _Rows | _Combinations,
) -> Array:
    """Return how far small changes of state and parameters move the rank's algebraic part [k]."""
    moved, along = u.copy(), wave(u)
    rounding = ROUNDING * max(1.0, largest(u))
    # changes that differ from one unknown to the next, so that they do not cancel in differences
    write(moved, read(u) * (1.0 + RELATIVE * along) + rounding * along)
    if isinstance(p, PETSc.Vec):
        other = p.copy()
        other.scale(1.0 + RELATIVE)
    else:
        other = p * (1.0 + RELATIVE)
    total = np.zeros_like(algebraic.of(residual))
    for time, state, parameters in ((t * (1.0 + ROUNDING), moved, p), (t, u, other)):
        try:
            near = _residual(problem, time, state, parameters)
        except SolveError:  # beyond the domain of the callbacks, on every rank
            continue
        near.axpy(-1.0, residual)
        total += np.abs(algebraic.of(near))
    return total
