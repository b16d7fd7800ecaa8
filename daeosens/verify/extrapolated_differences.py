"""Numerical differences good enough to judge derivatives: extrapolated, with an error estimate.

Directions are seeded and identical on any number of ranks; on a grid (DMDA) they follow the natural
order of the points, which the partition does not change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array, read, write

FEW = 16
"""Up to this many components are moved one at a time, so that the wrong entry can be named."""

RANDOM = 4
"""Number of random directions where there are more components."""

FIRST_STEP = 2.0**-4
"""First step of a difference, relative to the typical size of what is moved."""

HIGHEST_COLUMN = 4
"""Columns of the extrapolation table, beyond which rounding is amplified (order 10)."""


@dataclass(frozen=True, eq=False)
class Difference:
    """A directional derivative by differences.

    Attributes
    ----------
    values : array [n_local]
        The derivative; NaN where no sample was finite.
    error : array [n_local]
        Its estimated error.
    rounding : array [n_local]
        The part of it that the rounding of the function explains.
    """

    values: Array
    error: Array
    rounding: Array


def typical_sizes(x: PETSc.Vec) -> PETSc.Vec:
    """Return a positive typical size for each component of x [n].  Collective.

    The absolute value, but not less than a millionth of the root mean square (or of 1 if that is
    less); the root mean square (1 if that is less or zero) for components that are zero.
    """
    mean_square: Any = x.dot(x)
    mean = min(float(np.sqrt(mean_square / max(x.size, 1))), 1.0) or 1.0
    values = np.abs(read(x))
    sizes = x.duplicate()
    write(sizes, np.where(values == 0.0, mean, np.maximum(values, 1e-6 * mean)))
    return sizes


def random_numbers(like: PETSc.Vec, seed: int) -> PETSc.Vec:
    """Return uniform random numbers in [-1, 1] in a new vector with the layout of ``like``.

    The same numbers on any number of ranks.  Collective.
    """
    out = like.duplicate()
    grid: Any = like.getDM()
    natural: Any = grid.createNaturalVec() if isinstance(grid, PETSc.DMDA) and grid else out
    start, end = natural.getOwnershipRange()
    # Each rank goes to its own place in one stream, so that the numbers do not depend on how many
    # ranks there are.
    stream = np.random.PCG64(seed)
    stream.advance(start)
    write(natural, 2.0 * np.random.Generator(stream).random(end - start) - 1.0)
    if natural is not out:
        grid.naturalToGlobal(natural, out)
        natural.destroy()
    return out


def random_direction(x: PETSc.Vec, seed: int) -> PETSc.Vec:
    """Return a random direction at x [n] in proportion to the typical size of each component."""
    direction, sizes = random_numbers(x, seed), typical_sizes(x)
    direction.pointwiseMult(direction, sizes)
    sizes.destroy()
    return direction


def unit(like: PETSc.Vec, component: int, value: float = 1.0) -> PETSc.Vec:
    """Return ``value`` times a unit vector with the layout of ``like``.  Collective."""
    out = like.duplicate()
    out.zeroEntries()
    start, end = out.getOwnershipRange()
    if start <= component < end:
        out.setValue(component, value)
    out.assemble()
    return out


def directions(x: PETSc.Vec, seed: int) -> list[PETSc.Vec]:
    """Return the directions to difference along at x: every component, or some random ones."""
    if x.size > FEW:
        return [random_direction(x, seed + k) for k in range(RANDOM)]
    sizes = typical_sizes(x)
    result: list[PETSc.Vec] = []
    for j in range(x.size):
        direction = unit(x, j)
        direction.pointwiseMult(direction, sizes)
        result.append(direction)
    return result


def difference(function: Callable[[float], Array], comm: PETSc.Comm, levels: int) -> Difference:
    """Return the derivative of ``function(h)`` [n_local] at h = 0.  Collective.

    Central differences with steps h, h/2, h/4, ..., extrapolated to step zero; for each component
    the entry of the table that differs least from its neighbours.  Steps at which the function is
    not finite or raises ``SolveError`` (on every rank) are left out.

    Source
    ------
    Ridders, Advances in Engineering Software 4(2), 1982.
    """
    at_zero = function(0.0)
    best = np.full(at_zero.shape, np.nan)
    error = np.full(at_zero.shape, np.inf)
    rounding = np.zeros(at_zero.shape)
    size = np.abs(at_zero)
    above: list[Array] = []
    for level in range(levels):
        h = FIRST_STEP * 0.5**level
        pair = _pair(function, h, comm)
        if pair is None:
            above = []
            continue
        size = np.maximum(size, np.maximum(np.abs(pair[0]), np.abs(pair[1])))
        # What rounding of the two values makes of the quotient.
        noise = 4.0 * sys.float_info.epsilon * size / h
        # First column: central differences, whose error is a series in h^2.
        row = [(pair[0] - pair[1]) / (2.0 * h)]
        for column in range(min(len(above), HIGHEST_COLUMN)):
            # Richardson: halving h divides h^2, h^4, ... by 4, 16, ...
            factor = 4.0 ** (column + 1)
            row.append((factor * row[column] - above[column]) / (factor - 1.0))
            change = np.maximum(np.abs(row[-1] - row[column]), np.abs(row[-1] - above[column]))
            # Extrapolation errs by about the change that it makes, until that is lost in
            # rounding.
            better = change + noise < error
            best = np.where(better, row[-1], best)
            error = np.where(better, change + noise, error)
            rounding = np.where(better, noise, rounding)
        above = row
    return Difference(best, error, rounding)


def _pair(
    function: Callable[[float], Array], h: float, comm: PETSc.Comm
) -> tuple[Array, Array] | None:
    try:
        with np.errstate(all="ignore"):
            ahead, behind = function(h), function(-h)
    except SolveError:
        return None
    # All ranks decide alike, or they would part in later collective calls.
    finite = bool(np.isfinite(ahead).all() and np.isfinite(behind).all())
    return (ahead, behind) if all(comm.tompi4py().allgather(finite)) else None


def move(x: PETSc.Vec, direction: PETSc.Vec, h: float) -> PETSc.Vec:
    """Return x + h direction as a new vector."""
    moved = x.copy()
    moved.axpy(h, direction)
    return moved


@dataclass(frozen=True, eq=False)
class Comparison:
    """How far given derivatives are from differences.

    Attributes
    ----------
    error : float
        Relative deviation of the worst wrong entry; where none is wrong, the largest deviation
        relative to the largest entry of its row.
    wrong : bool
        Some deviation is above the tolerance and not explained by the error of the differences.
    unclear : bool
        Some deviation is above the tolerance, and the function too rough there to say who is wrong.
    where : str
        The worst wrong entry in words.
    """

    error: float
    wrong: bool
    unclear: bool
    where: str


def compare(
    computed: Array,
    expected: Sequence[Difference],
    tolerance: float,
    comm: PETSc.Comm,
    describe: Callable[[int, int, float, float], str],
) -> Comparison:
    """Compare given derivatives [n_local, K] with differences along K directions.  Collective.

    An entry is measured by its own size and a thousandth of the largest one in its row, so that
    entries of very different sizes are all judged.

    Parameters
    ----------
    computed : array [n_local, K]
        The derivative along each direction.
    expected : sequence of K Difference
        What they should be.
    tolerance : float
        Accepted relative error.
    comm : Comm
        Whose ranks hold the rows.
    describe : callable
        ``describe(row, column, computed, expected) -> str``, in words, for the worst entry.
    """
    ranks = comm.tompi4py()
    values = np.column_stack([difference.values for difference in expected])
    doubt = np.column_stack([difference.error for difference in expected])
    rounding = np.column_stack([difference.rounding for difference in expected])
    known = np.isfinite(values)
    sizes = np.where(known, np.abs(values), 0.0)
    rows = sizes.max(axis=1, initial=0.0)[:, None]
    floor = 1e-8 * max(ranks.allgather(float(rows.max(initial=0.0)))) + sys.float_info.min
    # Deviations within ten times the doubt about the differences prove nothing.
    with np.errstate(invalid="ignore", over="ignore"):
        deviation = np.where(np.isfinite(computed), np.abs(computed - values), np.inf)
        deviation = np.where(known, deviation, 0.0)
        # A small entry of a row is computed from numbers of the size of the largest one, hence
        # the thousandth.
        relative = deviation / (sizes + 1e-3 * rows + floor)
        large, explained = relative > tolerance, deviation <= 10.0 * doubt
        usual = float((deviation / (rows + floor)).max(initial=0.0))
    # Doubt that rounding explains is usual for small entries; doubt far beyond it means a kink or
    # noise in the function.
    unclear = bool((~known | (large & explained & (doubt > 100.0 * rounding))).any())
    wrong = large & ~explained
    worst, words = -1.0, ""
    if wrong.any():
        order = np.where(wrong, relative, -1.0)
        i, k = (int(j) for j in np.unravel_index(order.argmax(), order.shape))
        worst, words = (
            float(order[i, k]),
            describe(i, k, float(computed[i, k]), float(values[i, k])),
        )
    reports = ranks.allgather((worst, words, usual, unclear))
    worst_report = max(reports, key=lambda report: report[0])
    error = worst_report[0] if worst_report[0] >= 0 else max(report[2] for report in reports)
    return Comparison(
        error, worst_report[0] >= 0, any(report[3] for report in reports), worst_report[1]
    )
