"""The inner problem: weighted linear least squares with equalities, inequalities and bounds.

By orthogonal factorisations throughout, never by normal equations: a rank is decided relative to
the largest column, and columns are scaled to unit length first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr, solve_triangular
from scipy.optimize import linprog, lsq_linear, nnls

from daeosens.errors import InputError, SolveError, is_iterable, name_list, nearest, real_number
from daeosens.petsc.vectors import Array

RANK = 1e-10
"""Columns whose new part is below this part of the largest one depend on the others."""

BOUNDARY = 1e-10
"""A multiplier this small, relative to the right-hand side, does not hold its constraint; what is
this near to a constraint, relative to the scaled solution, is on it."""

VIOLATION = 1e-6
"""A solution beyond a constraint by more, relative to the scaled solution, is none."""


@dataclass(frozen=True, eq=False)
class LinearConstraints:
    """E p = e and G p >= g.

    Attributes
    ----------
    equal, equal_to : array [q, m], [q]
    above, least : array [r, m], [r]
    labels : tuple of str [q + r]
        What each row is called in messages.
    """

    equal: Array
    equal_to: Array
    above: Array
    least: Array
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class InnerSolution:
    """The solution of an inner problem and what its derivative needs.

    Attributes
    ----------
    p : array [m]
    free : array [m, k]
        A basis of the directions in which p may move with the data: those that keep equalities and
        active inequalities.
    triangle : array [k, k]
        R of the (weighted, ridged) matrix times ``free``: R^T R is the Hessian there.
    active : tuple of int
        Numbers of the inequalities that hold as equalities.
    degenerate : tuple of int
        Those of them that would so hold by themselves, with a multiplier of zero to rounding: the
        derivative is one-sided there.
    unidentified : array [m, d]
        Directions, in scaled parameters of length one, on which the data do not depend.
    scale : array [m]
        One over the length of each column: scaled times this is p.
    """

    p: Array
    free: Array
    triangle: Array
    active: tuple[int, ...]
    degenerate: tuple[int, ...]
    unidentified: Array
    scale: Array

    def newton(self, slope: Array) -> Array:
        """Return Z (Z^T H Z)^-1 Z^T times columns [m, c]."""
        if not self.free.shape[1]:
            return np.zeros_like(slope)
        # Z^T H Z = R^T R, so that the inverse is two triangular solves
        inner = solve_triangular(self.triangle, self.free.T @ slope, trans="T")
        return self.free @ solve_triangular(self.triangle, inner)


def solve_inner(
    matrix: Array,
    data: Array,
    constraints: LinearConstraints,
    ridge: Array | None = None,
) -> InnerSolution:
    """Minimise |A p - b|^2 / 2 + |ridge p|^2 / 2 subject to linear constraints.

    Columns of A are scaled to unit length.  Equalities are eliminated by an orthogonal basis of
    their null space; inequalities by Lawson and Hanson's reduction to a least distance problem,
    whose dual is non-negative least squares.  With the active set so found the solution is computed
    once more by QR, to rounding.

    Parameters
    ----------
    matrix : array [q, m]
        A.
    data : array [q]
        b.
    constraints : LinearConstraints
    ridge : array [m], optional
        Weights of the parameters.

    Raises
    ------
    SolveError
        Entries that are not finite; no convergence.

    Source
    ------
    Lawson, Hanson: Solving Least Squares Problems, SIAM 1995, chapters 20 to 23.
    """
    if not (np.isfinite(matrix).all() and np.isfinite(data).all()):
        raise SolveError("the right-hand side is not finite at the states that were measured")
    m = matrix.shape[1]
    lengths = np.linalg.norm(matrix, axis=0)
    scale = 1.0 / np.where(lengths > 0.0, lengths, 1.0)
    a: Any = matrix * scale
    b: Any = np.asarray(data, dtype=float)
    if ridge is not None:
        # a penalty is rows of its own, in scaled parameters
        a = np.vstack([a, np.diag(ridge * scale)])
        b = np.concatenate([b, np.zeros(m)])
    if len(a) > m:  # one factorisation: all that follows is of size m
        reduced = qr(np.column_stack([a, b]), mode="r", overwrite_a=True)[0][: m + 1]
        a, b = reduced[:, :m], reduced[:, m]
    # rows may be in any units
    equal, target = _unit_rows(constraints.equal * scale, constraints.equal_to)
    rows, least = _unit_rows(constraints.above * scale, constraints.least)
    held = _held(a, b, equal, target, rows, least)
    # inequalities that hold as equalities are solved as such
    equal, target = np.vstack([equal, rows[held]]), np.concatenate([target, least[held]])
    point, basis = _null_space(equal, target, m)
    factors: Any = qr(a @ basis, mode="economic", pivoting=True)
    q, r, order = factors
    sizes = np.abs(np.diag(r))
    rank = int(np.sum(sizes > RANK * max(sizes.max(initial=0.0), RANK)))
    k = basis.shape[1]
    step = np.zeros(k)
    # pivoted QR: columns that depend on others come last, and their parameters stay where they are
    step[order[:rank]] = solve_triangular(r[:rank, :rank], q[:, :rank].T @ (b - a @ point))
    lost = np.zeros((k, k - rank))
    # directions that the data do not see: what the others do where a dependent one moves
    lost[order[:rank]] = -solve_triangular(r[:rank, :rank], r[:rank, rank:])
    lost[order[rank:]] = np.eye(k - rank)
    directions = basis @ lost
    directions /= np.maximum(np.linalg.norm(directions, axis=0), 1e-300)
    solution = point + basis @ step
    active, degenerate = _on_the_boundary(a, b, solution, rows, least, held, equal, basis)
    slack = float((rows @ solution - least).min(initial=0.0))
    if rank == k and slack < -VIOLATION * (1.0 + np.linalg.norm(solution)):
        raise SolveError("the inner problem was not solved: its active constraints were not found")
    return InnerSolution(
        scale * solution,
        scale[:, None] * basis[:, order[:rank]],
        r[:rank, :rank],
        active,
        degenerate,
        directions,
        scale,
    )


def _unit_rows(rows: Array, values: Array) -> tuple[Array, Array]:
    """Return rows of length one, and their values."""
    lengths = np.linalg.norm(rows, axis=1)
    lengths = np.where(lengths > 0.0, lengths, 1.0)
    return rows / lengths[:, None], values / lengths


def _held(
    a: Array, b: Array, equal: Array, equal_to: Array, rows: Array, least: Array
) -> npt.NDArray[np.intp]:
    """Return which inequalities hold the minimum back, of |a x - b|^2 with rows x >= least."""
    none = np.zeros(0, dtype=np.intp)
    if not len(rows):
        return none
    point, basis = _null_space(equal, equal_to, a.shape[1])
    # what equalities fix is no matter of these rows
    open_rows = np.flatnonzero(np.linalg.norm(rows @ basis, axis=1) > BOUNDARY)
    if not open_rows.size:
        return none
    rows, least = rows[open_rows], least[open_rows]
    k = basis.shape[1]
    # R has to be regular here; the solution itself is computed again without this
    q, r = qr(np.vstack([a @ basis, 1e-8 * np.eye(k)]), mode="economic")
    turned = q.T @ np.concatenate([b - a @ point, np.zeros(k)])
    # with z = R (x - unconstrained minimum) what is left is the least |z| with rows z >= least
    turned_rows: Array = solve_triangular(r, (rows @ basis).T, trans="T").T
    turned_rows, least = _unit_rows(turned_rows, least - rows @ point - turned_rows @ turned)
    violated = float(least.max())
    if violated <= 0.0:
        return none
    dual = np.vstack([turned_rows.T, least / violated])
    # rows that hold far from the minimum would hide the others behind their size
    dual /= np.linalg.norm(dual, axis=0)
    target = np.zeros(k + 1)
    target[k] = 1.0
    weights = _nonnegative(dual, target)
    # Lawson and Hanson, chapter 23.4: the residual is zero only if no z satisfies all rows
    if np.linalg.norm(dual @ weights - target) < 1e-12:
        raise SolveError("the constraints of the linear parameters contradict each other")
    return open_rows[weights > 0.0]


def _nonnegative(matrix: Array, target: Array) -> Array:
    """Return the weights x >= 0 of columns of length one with the least |matrix x - target|."""
    try:
        weights = nnls(matrix, target)[0]
    except RuntimeError:  # too many iterations
        weights = np.zeros(matrix.shape[1])
    # SciPy 1.15 to 1.17 sometimes return what is no minimum (its issue 25389)
    slope = matrix.T @ (target - matrix @ weights)
    if np.where(weights > 0.0, np.abs(slope), slope).max() > BOUNDARY * (1.0 + weights.max()):
        # slower, by another implementation
        result = lsq_linear(matrix, target, (0.0, np.inf), "bvls", tol=1e-14, max_iter=1000)
        weights = np.where(result.active_mask < 0, 0.0, result.x)
    return weights


def _on_the_boundary(
    a: Array,
    b: Array,
    solution: Array,
    rows: Array,
    least: Array,
    held: npt.NDArray[np.intp],
    equal: Array,
    basis: Array,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the inequalities that hold as equalities, and which of them are degenerate."""
    gradient = a.T @ (a @ solution - b)
    multipliers = np.linalg.lstsq(equal.T, gradient)[0][len(equal) - len(held) :]
    weak = multipliers <= BOUNDARY * max(float(np.linalg.norm(b)), 1e-300)
    degenerate = set(held[weak].tolist())
    near = np.abs(rows @ solution - least) <= BOUNDARY * (1.0 + np.linalg.norm(solution))
    near[held] = False
    # one that follows from those that are held moves nowhere
    moves = np.linalg.norm(rows @ basis, axis=1) > BOUNDARY
    touched = np.flatnonzero(near)
    degenerate |= set(np.flatnonzero(near & moves).tolist())
    active = sorted({*held.tolist(), *touched.tolist()})
    return tuple(active), tuple(sorted(degenerate))


def _null_space(rows: Array, target: Array, m: int) -> tuple[Array, Array]:
    """Return a point with rows p = target, and a basis [m, k] of the null space of the rows."""
    if not len(rows):
        return np.zeros(m), np.eye(m)
    factors: Any = qr(rows.T, pivoting=True)
    q, r, order = factors
    sizes = np.abs(np.diag(r))
    rank = int(np.sum(sizes > RANK * sizes.max(initial=0.0)))
    # the shortest point that satisfies the rows, and what is orthogonal to them
    inside = solve_triangular(np.asarray(r[:rank, :rank]), target[order[:rank]], trans="T")
    return np.matmul(q[:, :rank], inside), q[:, rank:]


def combination(direction: Array, names: Sequence[str]) -> str:
    """Return a direction in words, its largest part first: "0.71 k1 - 0.71 k2", or "k1" alone."""
    largest = np.flatnonzero(np.abs(direction) > 0.05 * np.abs(direction).max())
    largest = largest[np.argsort(-np.abs(direction[largest]), kind="stable")]
    if len(largest) == 1:
        return names[int(largest[0])]
    sign = 1.0 if direction[largest[0]] > 0 else -1.0
    words = f"{sign * direction[largest[0]]:.2g} {names[largest[0]]}"
    for k in largest[1:]:
        value = sign * direction[k]
        words += f" {'-' if value < 0 else '+'} {abs(value):.2g} {names[k]}"
    return words


Row = tuple[Mapping[str, float], float]


def admit_rows(rows: object, kind: str) -> tuple[Row, ...]:
    """Return rows ``({name: weight}, value)`` of linear constraints, checked.

    Raises
    ------
    InputError
        Something else.

    Examples
    --------
    >>> admit_rows([({"a": 1.0, "b": -1.0}, 0.0)], "equalities")
    (({'a': 1.0, 'b': -1.0}, 0.0),)
    """
    checked: list[Row] = []
    for k, row in enumerate(rows) if is_iterable(rows) else [(0, rows)]:
        pair: Any = row
        sound = isinstance(row, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], Mapping)
        if not sound or isinstance(rows, (str, Mapping)):
            raise InputError(
                f"{kind} = {rows!r}",
                expected="rows (weights by name, value)",
                remedy=f'{kind}=[({{"a": 1.0, "b": -1.0}}, 0.0)]',
            )
        names = name_list(pair[0], f"{kind}[{k}]")
        if not names:
            raise InputError(f"{kind}[{k}] has no weights", expected="one parameter at least")
        weights = {name: real_number(pair[0][name], f'{kind}[{k}]["{name}"]') for name in names}
        checked.append((weights, real_number(pair[1], f"the value of {kind}[{k}]")))
    return tuple(checked)


def linear_constraints(
    names: Sequence[str],
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
    equalities: Sequence[Row] = (),
    inequalities: Sequence[Row] = (),
) -> LinearConstraints:
    """Return constraints from bounds [m] and rows ``({name: weight}, value)``.

    An equality says that the weighted sum is the value, an inequality that it is at least that.

    Raises
    ------
    InputError
        Unknown names; constraints that contradict each other, which are named.
    """
    m = len(names)
    place = {name: k for k, name in enumerate(names)}

    def matrix(rows: Sequence[Row], kind: str) -> tuple[Array, Array, list[str]]:
        weights, values = np.zeros((len(rows), m)), np.zeros(len(rows))
        labels: list[str] = []
        for k, (row, value) in enumerate(rows):
            for name, weight in row.items():
                if name not in place:
                    raise InputError(
                        f'{kind}[{k}] names "{name}"',
                        expected=f"linear parameters: {', '.join(names)}",
                        remedy=nearest(name, names)
                        or "bounds of a Parameter, or constraints=, for a nonlinear one",
                    )
                weights[k, place[name]] = weight
            values[k] = value
            words = " + ".join(f"{weight:g} {name}" for name, weight in row.items())
            labels.append(f"{words} {'=' if kind == 'equalities' else '>='} {value:g}")
        return weights, values, labels

    least, most = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    equal, equal_to, told = matrix(equalities, "equalities")
    above, at_least, told_above = matrix(inequalities, "inequalities")
    low, high = np.isfinite(least), np.isfinite(most)
    units = np.eye(m)
    result = LinearConstraints(
        equal,
        equal_to,
        np.vstack([units[low], -units[high], above]),
        np.concatenate([least[low], -most[high], at_least]),
        (
            *told,
            *(f"{names[k]} >= {least[k]:g}" for k in np.flatnonzero(low).tolist()),
            *(f"{names[k]} <= {most[k]:g}" for k in np.flatnonzero(high).tolist()),
            *told_above,
        ),
    )
    _refuse_infeasible(result)
    return result


def _refuse_infeasible(constraints: LinearConstraints) -> None:
    """Name rows that contradict each other: those that the least total violation violates."""
    equal, above = constraints.equal, constraints.above
    q, r, m = len(equal), len(above), above.shape[1]
    if not q and not r:
        return
    # free p, and a violation of each sign for equalities, of one for inequalities
    cost = np.concatenate([np.zeros(m), np.ones(2 * q + r)])
    bounds: list[Any] = [(None, None)] * m + [(0.0, None)] * (2 * q + r)
    program = linprog(
        cost,
        A_eq=np.hstack([equal, np.eye(q), -np.eye(q), np.zeros((q, r))]) if q else None,
        b_eq=constraints.equal_to if q else None,
        A_ub=-np.hstack([above, np.zeros((r, 2 * q)), np.eye(r)]) if r else None,
        b_ub=-constraints.least if r else None,
        bounds=bounds,
    )
    size = 1.0 + max(
        np.abs(constraints.equal_to).max(initial=0.0), np.abs(constraints.least).max(initial=0.0)
    )
    if program.fun <= 1e-9 * size:
        return
    tight = np.zeros(q + r, dtype=bool)
    duals = np.concatenate(
        [
            program.eqlin.marginals if q else np.zeros(0),
            program.ineqlin.marginals if r else np.zeros(0),
        ]
    )
    tight |= np.abs(duals) > 1e-9  # a certificate of Farkas: these rows together cannot hold
    rows = "; ".join(constraints.labels[k] for k in np.flatnonzero(tight))
    raise InputError(
        f"constraints of the linear parameters contradict each other: {rows}",
        expected="rows that some p satisfies",
        remedy="fewer of these rows, or wider bounds",
    )
