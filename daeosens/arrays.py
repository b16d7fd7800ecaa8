"""The only door between NumPy arrays and PETSc vectors, and between user callbacks and PETSc."""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeGuard, TypeVar, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc
from scipy.linalg import blas

from daeosens.errors import InputError, SolveError

Array: TypeAlias = npt.NDArray[np.float64]
Parameters: TypeAlias = "Array | PETSc.Vec"
"""Parameter values as callbacks see them: a few numbers [m], or one distributed field."""

_DOT: Any = blas.ddot

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

QUIET = np.errstate(over="ignore", divide="ignore", invalid="ignore")
"""Decorator: what callbacks return is checked, so NumPy need not warn about it as well."""


def read(vec: PETSc.Vec) -> Array:
    """Return the local values [n_local] without marking the vector as changed.

    PETSc 3.26 restarts a step whenever the state counter of the solution vector moves, so reading
    must never go through the writable accessor.
    """
    values: Any = vec.getArray(readonly=True)
    return values


def write(vec: PETSc.Vec, values: npt.ArrayLike) -> None:
    """Overwrite the local values [n_local]."""
    vec.getArray()[...] = values


def gather(vec: PETSc.Vec) -> Array:
    """Return all values [n] on every rank.  Collective on ``vec.comm``; for small vectors."""
    if vec.comm.size == 1:
        return read(vec).copy()
    return np.concatenate(vec.comm.tompi4py().allgather(read(vec)))


def scatter(values: npt.ArrayLike, vec: PETSc.Vec) -> PETSc.Vec:
    """Write each rank's part of the replicated ``values`` [n] into ``vec``, and return it."""
    start, end = vec.getOwnershipRange()
    write(vec, np.asarray(values, dtype=float)[start:end])
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
    local = math.inf if math.isnan(local) else local
    return local if vec.comm.size == 1 else vec.comm.tompi4py().allreduce(local, MPI.MAX)


def is_finite(vec: PETSc.Vec) -> bool:
    """Return whether all values are finite.  Collective."""
    local = _all_finite(read(vec))
    return local if vec.comm.size == 1 else vec.comm.tompi4py().allreduce(local, MPI.LAND)


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


def dot(x: PETSc.Vec, y: PETSc.Vec) -> float:
    """Return the inner product.  Collective."""
    value: Any = x.dot(y)
    return float(value)


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
        Not numbers, NaN or infinite (first position named), or another shape (both named).
    """
    try:
        array = np.array(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} is not an array of real numbers ({error})", expected="real numbers"
        ) from error
    if shape is not None and array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}", expected=f"shape {shape}")
    if not _all_finite(array):
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        at = f" at index {list(where)}" if where else ""
        raise InputError(f"{name} is {array[where]}{at}", expected="finite numbers")
    return array


def _all_finite(array: Array) -> bool:
    flat = array.ravel()
    if flat.size and math.isfinite(_DOT(flat, flat)):  # without a warning where it is too large
        return True
    return bool(np.isfinite(array).all())


def _is_sound(values: object, shape: tuple[int, ...]) -> TypeGuard[Array]:
    """Whether there is nothing to find fault with: the quick test of what is nearly always so."""
    return (
        type(values) is np.ndarray
        and values.dtype == np.float64
        and values.shape == shape
        and _all_finite(values)
    )


INSTEAD_OF_COMPARISON = (
    "the difference a - b for an event at a = b, np.where(a > b, 1.0, 0.0) for a value"
)


def check_output(
    values: object,
    name: str,
    shape: tuple[int, ...],
    t: object,
    kind: str = "callback",
    *,
    real: bool = True,
) -> npt.NDArray[Any]:
    """Check what a NumPy-style callback returned.

    Raises
    ------
    InputError
        The shape is not ``shape``, or the values are not numbers (real ones, unless ``real`` is
        false, for complex steps).
    SolveError
        Some value is not finite: the solution has left the domain of the callback.
    """
    if _is_sound(values, shape):
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{kind} '{name}' returned no array {_where(t)}: {error}") from error
    if array.dtype.kind not in ("iuf" if real else "iufc"):
        returned = type(values).__name__ if array.dtype.kind == "O" else f"{array.dtype} values"
        raise InputError(
            f"{kind} '{name}' returned {returned} {_where(t)}",
            expected=f"{'real numbers' if real else 'numbers'} of shape {shape}",
            remedy=INSTEAD_OF_COMPARISON if array.dtype.kind == "b" else "",
        )
    if array.shape != shape:
        raise InputError(
            f"{kind} '{name}' returned shape {array.shape} {_where(t)}",
            expected=f"shape {shape}",
            remedy=f"return {f'an array of shape {shape}' if shape else 'a number'} from '{name}'",
        )
    if not np.isfinite(array).all():
        entry = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        raise SolveError(
            f"{kind} '{name}' returned {array[tuple(entry)]} in entry {entry} {_where(t)}",
            expected="finite values",
            remedy="smaller steps, bounds on the parameters, or another starting point",
        )
    return array


def check_tuple(values: object, name: str, *parts: str) -> tuple[Any, ...]:
    """Check that a callback returned as many values as it has to; ``parts`` says which.

    Raises
    ------
    InputError
        Another number of values, or no tuple.
    """
    several: tuple[Any, ...] | None = None
    if isinstance(values, (tuple, list)):
        several = tuple(cast("Sequence[Any]", values))
    if several is not None and len(several) == len(parts):
        return several
    returned = type(values).__name__ if several is None else f"{len(several)} values"
    raise InputError(
        f"callback '{name}' returned {returned}", expected=f"a tuple ({', '.join(parts)})"
    )


def guarded(callback: Callable[..., Any], name: str, comm: PETSc.Comm) -> Callable[..., Any]:
    """Wrap a user callback so that its exceptions carry its name, the time and the rank.

    The first argument of the callback is taken as the time when it is a number.  On a communicator
    of several ranks an exception of one rank would leave the others waiting for ever (PETSc 3.26
    with petsc4py: the failing rank waits in PetscFinalize), so the traceback is printed and the
    job aborted.  ``SolveError`` is exempt: whoever raises it promises to do so on every rank.

    Raises
    ------
    InputError
        It cannot be called.
    """
    if callback is not None and not callable(callback):  # type: ignore[redundant-expr]
        raise InputError(f"{name} = {callback!r}", expected="a callback")
    aborts = comm.size > 1

    def call(*arguments: Any) -> Any:
        try:
            return callback(*arguments)
        except Exception as error:
            time = arguments[0] if arguments and np.isscalar(arguments[0]) else None
            at = "" if time is None else f" at t = {_number(time)}"
            note = f"in callback '{name}'{at} ({_rank()})"
            if note not in getattr(error, "__notes__", ()):  # as of a callback within a callback
                error.add_note(note)
            if aborts and not isinstance(error, SolveError):
                abort(error)
            raise

    return call


_ANCHORS: dict[int, PETSc.Vec] = {}


def anchor(comm: Any) -> None:
    """Keep one vector on a communicator (petsc4py's or mpi4py's) of several ranks.  Collective.

    PETSc frees its duplicate of a communicator with the last object on it, and makes a new one with
    the next object, which all ranks have to do together.  Python may drop the last object on some
    ranks earlier than on others: then those wait in MPI_Comm_dup for ever (PETSc 3.26).
    """
    if comm.size == 1:
        return
    ranks = comm.tompi4py() if isinstance(comm, PETSc.Comm) else comm
    handle = MPI._handleof(ranks)  # type: ignore[attr-defined]
    if handle not in _ANCHORS:
        _ANCHORS[handle] = PETSc.Vec().createMPI((0, 0), comm=comm)


def unwrapped(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function that calls PETSc: exceptions of callbacks leave it as they were raised.

    petsc4py 3.26 wraps an exception each time it passes through PETSc: a PETSc.Error caused by it.
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        try:
            return function(*arguments, **keywords)
        except PETSc.Error as error:
            original: BaseException = error
            while isinstance(original, PETSc.Error) and original.__cause__ is not None:
                original = original.__cause__
        try:
            raise original
        finally:
            del original  # its traceback holds this frame: a circle that would keep vectors alive

    return call


def abort(error: BaseException) -> None:
    """Print the traceback with this rank's number and end the whole job with exit code 1."""
    text = "".join(traceback.format_exception(error))
    sys.stdout.flush()
    sys.stderr.write(f"[rank {MPI.COMM_WORLD.rank}] {text}")
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)
    os._exit(1)  # pragma: no cover (Abort does not return)


def install_abort_hook() -> None:
    """Make an uncaught exception on any rank end the whole job (once, only with several ranks)."""
    if MPI.COMM_WORLD.size == 1 or getattr(sys.excepthook, "ends_the_job", False):
        return

    def hook(_kind: type[BaseException], error: BaseException, _where: object) -> None:
        abort(error)

    hook.ends_the_job = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _number(t: object) -> str:
    value = complex(t).real if isinstance(t, (int, float, complex, np.number)) else t
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _where(t: object) -> str:
    return f"at t = {_number(t)} ({_rank()})"


def _rank() -> str:
    return f"rank {MPI.COMM_WORLD.rank}"
