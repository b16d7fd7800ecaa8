"""Where a minimisation begins and how far it may go: start and bounds, checked on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError, is_iterable
from daeosens.functional.functional import Functional, require_functional, require_vec
from daeosens.petsc.ranks import anchor
from daeosens.petsc.vectors import Array, created, read, real_array, scatter

Bound: TypeAlias = "PETSc.Vec | npt.ArrayLike | None"
"""One side of the bounds: a vector like x, all n numbers, one number for all, or None."""

GivenBounds: TypeAlias = "tuple[Bound, Bound] | Sequence[Any] | Any | None"
"""(lower, upper); or a pair (low, high) for each variable, or ``scipy.optimize.Bounds``."""

Bounds: TypeAlias = tuple[PETSc.Vec, PETSc.Vec]
"""Lower and upper bounds [n]."""


def start_of(functional: Functional, x0: PETSc.Vec | npt.ArrayLike | None) -> PETSc.Vec:
    """Return a new vector with the start.

    Raises
    ------
    InputError
        No functional, or a start of another size.
    """
    require_functional(functional)
    anchor(functional.comm)
    # Also where x0 is given: it is the pattern of layout and size.
    start = functional.start()
    require_vec(start, functional, "start")
    if x0 is None:
        return start
    vec = vector_like(x0, start, "x0")
    return vec.copy() if vec is x0 else vec


def limits_of(bounds: object, x: PETSc.Vec) -> Bounds | None:
    """Return lower and upper bounds as vectors like ``x``, or None where no entry is finite.

    Parameters
    ----------
    bounds : (lower, upper), or as ``scipy.optimize.minimize`` takes them
        Each a Vec or array [n], one number, or None; a sequence of n pairs (low, high), None for
        no bound; or ``scipy.optimize.Bounds``.
    x : Vec [n]
        The variables.

    Raises
    ------
    InputError
        Something else; two pairs for two variables that could be either.
    """
    if bounds is None:
        return None
    below, above = _sides(bounds, x.getSize())
    lower = vector_like(-np.inf if below is None else below, x, "the lower bound")
    upper = vector_like(np.inf if above is None else above, x, "the upper bound")
    # Bounds that bound nothing are none, so that methods without bounds remain possible; all
    # ranks have to agree on that.
    infinite = np.all(read(lower) == -np.inf) and np.all(read(upper) == np.inf)
    return None if x.comm.tompi4py().allreduce(bool(infinite), op=MPI.LAND) else (lower, upper)


def _sides(bounds: object, size: int) -> tuple[Bound, Bound]:
    """Return lower and upper bounds of all variables, whichever way they are given."""
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):  # scipy.optimize.Bounds
        sides: Any = bounds
        lower, upper = np.asarray(sides.lb, dtype=float), np.asarray(sides.ub, dtype=float)
        return (
            lower.item() if lower.size == 1 else lower,
            upper.item() if upper.size == 1 else upper,
        )
    if not isinstance(bounds, (list, tuple, np.ndarray)) or not is_iterable(bounds):
        raise _no_bounds(bounds)
    several = cast("Sequence[Any]", bounds)
    rows: list[Any] = [row for row in several if isinstance(row, (tuple, list, np.ndarray))]
    pairs: list[Any] = [row for row in rows if np.shape(np.array(row, dtype=object)) == (2,)]
    # A list of two numbers for each of the variables, as SciPy takes bounds.
    by_variable = len(pairs) == len(several) == size
    # For two variables ((a, b), (c, d)) has both readings, and a wrong guess would minimise
    # another problem. A None inside stands only in pairs.
    if isinstance(bounds, tuple) and len(several) == 2:
        if not by_variable:
            return several[0], several[1]
        none = any(side is None for pair in pairs for side in pair)
        if not none and all(isinstance(pair, tuple) for pair in pairs):
            raise InputError(
                f"bounds = {bounds!r} for two variables could be (lower, upper) or two pairs",
                expected="([low, low], [high, high]), or a list of pairs as SciPy takes it",
                remedy=f"bounds={[*several]!r} if these are pairs (low, high)",
            )
        if not none:
            return several[0], several[1]
    if not by_variable:
        raise _no_bounds(bounds)
    lower = [-np.inf if low is None else low for low, _ in pairs]
    upper = [np.inf if high is None else high for _, high in pairs]
    return lower, upper


def _no_bounds(bounds: object) -> InputError:
    return InputError(
        f"bounds = {bounds!r}",
        expected="(lower, upper), or a pair (low, high) for each variable; None for no bound",
    )


def vector_like(numbers: PETSc.Vec | npt.ArrayLike, like: PETSc.Vec, name: str) -> PETSc.Vec:
    """Return ``numbers`` if it is a vector laid out like another, or a new one that holds them."""
    if isinstance(numbers, PETSc.Vec):
        _check_layout(created(numbers, name, "functional.start()"), like, name)
        return numbers
    size = like.getSize()
    array = real_array(numbers, name)
    if array.shape not in ((), (size,)):
        raise InputError(f"{name} has shape {array.shape}", expected=f"shape ({size},)")
    return scatter(np.broadcast_to(array, (size,)), like.duplicate())


def _check_layout(vector: PETSc.Vec, like: PETSc.Vec, name: str) -> None:
    """Refuse, on every rank, a vector with another layout on any of them."""
    pairs = like.comm.tompi4py().allgather(
        tuple((vec.comm.size, vec.getSize(), vec.getLocalSize()) for vec in (vector, like))
    )
    for mine, theirs in pairs:
        if mine[0] != theirs[0]:
            raise InputError(f"{name} lives on {mine[0]} ranks", expected=f"{theirs[0]} ranks")
        if mine[1] != theirs[1]:
            raise InputError(f"{name} has size {mine[1]}", expected=f"size {theirs[1]}")
    if any(mine != theirs for mine, theirs in pairs):
        raise InputError(
            f"{name} is distributed as {[mine[2] for mine, _ in pairs]} over the ranks",
            expected=str([theirs[2] for _, theirs in pairs]),
            remedy="fill a vector made by functional.start()",
        )


def point_complaints(x: PETSc.Vec, limits: Bounds | None, name: str) -> list[str]:
    """Say what is wrong with a start and its bounds, naming the first bad entry of each kind."""
    complaints: list[str] = []
    point = read(x)
    bad = first_bad(x, ~np.isfinite(point), point)
    if bad is not None:
        complaints.append(f"{name} is {bad[1]} at index {bad[0]}; expected: finite numbers")
    if limits is None:
        return complaints
    lower, upper = read(limits[0]), read(limits[1])
    bad = first_bad(x, ~(lower <= upper), lower, upper)
    if bad is not None:
        complaints.append(
            f"bounds [{bad[1]:g}, {bad[2]:g}] at index {bad[0]}; expected: lower <= upper"
        )
    bad = first_bad(x, (point < lower) | (point > upper), point, lower, upper)
    if bad is not None:
        index, value, low, high = bad
        complaints.append(
            f"{name} = {value:.9g} at index {index} lies outside its bounds [{low:g}, {high:g}]"
        )
    return complaints


def first_bad(x: PETSc.Vec, bad: npt.NDArray[np.bool_], *values: Array) -> tuple[Any, ...] | None:
    """Return, on every rank, the first bad global index and the values there."""
    # The lowest index wins, so that the message does not depend on the number of ranks.
    mine: tuple[Any, ...] | None = None
    if bad.any():
        index = int(np.argmax(bad))
        mine = (x.getOwnershipRange()[0] + index, *(float(value[index]) for value in values))
    bad_indices = [bad for bad in x.comm.tompi4py().allgather(mine) if bad is not None]
    return min(bad_indices) if bad_indices else None
