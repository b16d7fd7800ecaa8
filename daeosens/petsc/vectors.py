"""The only door between NumPy arrays and PETSc vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import InputError, SolveError, require
from daeosens.petsc._kernels import finite_numbers, numbers_of, put_numbers
from daeosens.petsc.ranks import agree

Array: TypeAlias = npt.NDArray[np.float64]
Parameters: TypeAlias = "Array | PETSc.Vec"
"""Parameter values as callbacks see them: a few numbers [m], or one distributed field."""


def read(vec: PETSc.Vec) -> Array:
    """Return the local values [n_local] without marking the vector as changed.

    PETSc 3.26 restarts a step whenever the state counter of the solution vector moves, so reading
    must never go through the writable accessor.

    Examples
    --------
    >>> from petsc4py import PETSc
    >>> vec = PETSc.Vec().createWithArray([1.0, 2.0], comm=PETSc.COMM_SELF)
    >>> read(vec).tolist()
    [1.0, 2.0]
    """
    try:
        values: Any = vec.getArray(readonly=True)
    except (AttributeError, TypeError, PETSc.Error):
        created(vec, "vec")
        raise
    return values


def write(vec: PETSc.Vec, values: npt.ArrayLike) -> None:
    """Overwrite the local values [n_local].

    Examples
    --------
    >>> from petsc4py import PETSc
    >>> vec = PETSc.Vec().createSeq(2, comm=PETSc.COMM_SELF)
    >>> write(vec, [3.0, 4.0])
    >>> read(vec).tolist()
    [3.0, 4.0]
    """
    # The kernel copies contiguous doubles; all else goes by NumPy.
    try:
        if not (isinstance(values, np.ndarray) and put_numbers(vec, values)):
            vec.getArray()[...] = real_array(values, "values")
    except (AttributeError, TypeError, ValueError, OverflowError, PETSc.Error) as error:
        size = created(vec, "vec").getLocalSize()
        raise InputError(
            f"values cannot be written: {error}", expected=f"{size} numbers"
        ) from error


def gather(vec: PETSc.Vec) -> Array:
    """Return all values [n] on every rank.  Collective on ``vec.comm``; for small vectors.

    Examples
    --------
    >>> from petsc4py import PETSc
    >>> gather(PETSc.Vec().createWithArray([1.0, 2.0], comm=PETSc.COMM_SELF)).tolist()
    [1.0, 2.0]
    """
    if not (isinstance(vec, PETSc.Vec) and vec):
        created(vec, "vec")
    if vec.comm.size == 1:
        return numbers_of(vec)
    agree(vec.comm, "petsc.gather", size=vec.getSize())
    return np.concatenate(vec.comm.tompi4py().allgather(read(vec)))


def replicated(vec: PETSc.Vec) -> Array:
    """Return all values [n] on every rank in one reduction, without a look at who calls it.

    Collective; for small vectors, inside of what all ranks do together.
    """
    values = np.zeros(vec.getSize())
    start, end = vec.getOwnershipRange()
    values[start:end] = read(vec)
    return summed(values, vec.comm)


def summed(values: Array, comm: PETSc.Comm) -> Array:
    """Return the sums over all ranks.  Collective."""
    if comm.size == 1:
        return values
    sums = np.array(values, dtype=float)
    # as numbers: objects would take two calls, and all of them on every rank
    comm.tompi4py().Allreduce(MPI.IN_PLACE, sums)
    return sums


def maxima(values: Array, comm: PETSc.Comm) -> Array:
    """Return the largest ones of all ranks, to the last bit the same on each.  Collective."""
    if comm.size == 1:
        return values
    most = np.array(values, dtype=float)
    comm.tompi4py().Allreduce(MPI.IN_PLACE, most, MPI.MAX)
    return most


def scatter(values: npt.ArrayLike, vec: PETSc.Vec) -> PETSc.Vec:
    """Write each rank's part of the replicated ``values`` [n] into ``vec``, and return it.

    Examples
    --------
    >>> from petsc4py import PETSc
    >>> vec = PETSc.Vec().createMPI(2, comm=PETSc.COMM_SELF)
    >>> scatter([5.0, 6.0], vec).sum()
    11.0
    """
    # Every rank has all values, and keeps its part.
    if not (isinstance(vec, PETSc.Vec) and vec):
        created(vec, "vec")
    start, end = vec.getOwnershipRange()
    array: Any = values
    if not isinstance(values, np.ndarray):
        array = real_array(values, "values")
    if array.ndim != 1 or array.size != vec.getSize():
        raise InputError(f"values have shape {array.shape}", expected=f"({vec.getSize()},)")
    write(vec, array[start:end])
    return vec


def add_to(vec: PETSc.Vec, weight: float, values: Array) -> None:
    """Add ``weight`` times each rank's part of the replicated ``values`` [n] to ``vec``."""
    start, end = vec.getOwnershipRange()
    vec.getArray()[...] += weight * values[start:end]


def largest(vec: PETSc.Vec) -> float:
    """Return the largest absolute value; infinity if any value is NaN.  Collective.

    PETSc's own infinity norm may lose the NaN of another rank, because MPI's maximum may.
    """
    local = float(np.abs(read(vec)).max(initial=0.0))
    # NaN does not compare: infinity goes through a maximum.
    local = math.inf if math.isnan(local) else local
    return local if vec.comm.size == 1 else vec.comm.tompi4py().allreduce(local, MPI.MAX)


def is_finite(vec: PETSc.Vec) -> bool:
    """Return whether all values are finite.  Collective."""
    local = finite_numbers(read(vec))
    return local if vec.comm.size == 1 else vec.comm.tompi4py().allreduce(local, MPI.LAND)


def created(vec: object, name: str, remedy: str = "problem.create_state()") -> PETSc.Vec:
    """Return an argument that has to be a vector.

    Raises
    ------
    InputError
        It is something else, or has no entries yet, or none any more.
    """
    require(vec, PETSc.Vec, name, remedy)
    assert isinstance(vec, PETSc.Vec)
    kind: Any = vec.getType() if vec else None
    if kind is None:
        raise InputError(
            f"{name} is a Vec without entries",
            expected="one that was created, and not destroyed",
            remedy=remedy,
        )
    return vec


def refuse_not_finite(vec: PETSc.Vec, name: str) -> PETSc.Vec:
    """Return a vector that the user gave.  Collective.

    Raises
    ------
    InputError
        Some value is not finite.
    """
    if not is_finite(vec):
        raise InputError(f"{name} is not finite", expected="finite numbers")
    return vec


def finite_vec(vec: PETSc.Vec, name: str) -> PETSc.Vec:
    """Return what a sweep has found.  Collective.

    Raises
    ------
    SolveError
        Some value is not finite: a derivative of the equations is none.
    """
    if is_finite(vec):
        return vec
    raise SolveError(
        f"{name} is not finite",
        expected="equations with finite derivatives all along the run",
        remedy="smaller steps, bounds on the parameters, or another starting point",
    )


def norm(vec: PETSc.Vec) -> float:
    """Return the Euclidean norm.  Collective."""
    value: Any = vec.norm()
    return float(value)


def one_norm(vec: PETSc.Vec) -> float:
    """Return the sum of absolute values.  Collective."""
    value: Any = vec.norm(PETSc.NormType.NORM_1)
    return float(value)


def dot(x: PETSc.Vec, y: PETSc.Vec) -> float:
    """Return the inner product.  Collective."""
    value: Any = x.dot(y)
    return float(value)


def unshared(values: Any) -> Any:
    """Return a copy of what a caller may change later: an array, a list, a mapping, a vector.

    All else (numbers, texts, tuples, callables) is returned itself.  Collective for a distributed
    vector.

    Examples
    --------
    >>> numbers = [1.0, 2.0]
    >>> kept = unshared(numbers)
    >>> numbers[0] = 5.0
    >>> kept
    [1.0, 2.0]
    """
    if isinstance(values, list):
        return [unshared(entry) for entry in cast("list[Any]", values)]
    if isinstance(values, Mapping):
        mapping = cast("Mapping[Any, Any]", values)
        return {name: unshared(value) for name, value in mapping.items()}
    if isinstance(values, PETSc.Vec):
        created(values, "a vector")
    return cast("Any", values).copy() if isinstance(values, (np.ndarray, PETSc.Vec)) else values


def keep_unshared(description: Any, *names: str) -> None:
    """Replace fields of a frozen dataclass, while it is made, by their ``unshared`` copies."""
    for name in names:
        try:
            value = unshared(getattr(description, name))
        except RecursionError as error:
            raise InputError(f"{name} holds itself", expected="numbers") from error
        object.__setattr__(description, name, value)


MOST = int(np.iinfo(PETSc.IntType).max)  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
"""The largest number that PETSc counts to."""


def as_float(value: Any) -> float:
    """Return a real number as a float; an infinite one where it is too large for any.

    Examples
    --------
    >>> as_float(2), as_float(-(10**400))
    (2.0, -inf)
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def real_array(values: npt.ArrayLike, name: str) -> Array:
    """Turn user input into a new float array, of any shape; NaN and infinities included.

    Raises
    ------
    InputError
        No real numbers, or some that are masked: those under the mask would be taken.

    Examples
    --------
    >>> real_array([1, 2], "bounds")
    array([1., 2.])
    """
    if type(values) is np.ndarray and values.dtype == np.float64:  # as nearly always
        return values.copy()
    if isinstance(values, PETSc.Vec):
        created(values, name)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        where = np.argwhere(np.ma.getmaskarray(values))[0].tolist()
        raise InputError(
            f"{name} is masked at index {where}",
            expected="numbers everywhere",
            remedy=f"no entries that are missing, or {name}.filled(...)",
        )
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":
            raise InputError(f"{name} has complex numbers", expected="real numbers")
        if array.dtype.kind in "mM":  # NumPy would take their counts of days or seconds
            raise InputError(
                f"{name} has dates or spans of time",
                expected="real numbers",
                remedy=f"({name} - start) / np.timedelta64(1, 'D'), in days",
            )
        if array.dtype == np.float64 and isinstance(values, (list, tuple)):
            return array  # made of them just now
        with np.errstate(over="ignore"):  # numbers of extended precision become infinite
            return np.array(array, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:  # the last one of 10**400
        raise InputError(
            f"{name} is not an array of real numbers ({error})", expected="real numbers"
        ) from error


def finite_array(values: npt.ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> Array:
    """Turn user input into a float array, or say what is wrong with it.

    Parameters
    ----------
    values : array_like
        What the user gave.
    name : str
        What the user calls it, for the message.
    shape : tuple of int, optional
        The shape it must have.

    Raises
    ------
    InputError
        Not numbers, NaN, infinite or masked (first position named), or another shape (both named).
    """
    array = real_array(values, name)
    if shape is not None and array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}", expected=f"shape {shape}")
    if not finite_numbers(array):
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        at = f" at index {list(where)}" if where else ""
        raise InputError(f"{name} is {array[where]}{at}", expected="finite numbers")
    return array
