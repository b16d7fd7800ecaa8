"""The only door between user callbacks and PETSc: what they return and what they raise."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import (
    DaeosensError,
    InputError,
    NotFiniteError,
    SolveError,
    UnsupportedError,
)
from daeosens.petsc._kernels import finite_numbers
from daeosens.petsc.ranks import abort, leave_together
from daeosens.problem.callback_source import (
    LAST_CALLED,
    place_of_error,
    place_of_return,
    reference_to,
    written_to,
)
from daeosens.problem.derivative_arrays import DerivativeArray, as_array, primal

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

QUIET = np.errstate(over="ignore", divide="ignore", invalid="ignore")
"""Decorator: what callbacks return is checked, so NumPy need not warn about it as well."""


def _remedy(name: str) -> str:
    """Return what helps against values of a callback that are not finite."""
    if "hessian" in name:
        return _INFINITE_CURVATURE
    derivative = "jacobian" in name or "gradient" in name or name.endswith(("_u", "_p", "_t"))
    return _INFINITE_SLOPE if derivative else _LEFT_DOMAIN


_LEFT_DOMAIN = "smaller steps, bounds on the parameters, or another starting point"

_INFINITE_SLOPE = (
    "a start and parameters for which no square root, logarithm or power below 1 is taken of 0 "
    "(also where the whole has a slope there: np.sign(z) * np.abs(z)**1.5 in the place of "
    "np.abs(z)**0.5 * z), smaller steps, or bounds on the parameters; of an unknown that "
    "starts at 0, as in an empty tank, a start at 1e-12 of what it becomes, from where steps by "
    "rtol resolve derivatives"
)

_INFINITE_CURVATURE = (
    "a start and parameters for which no square root, logarithm or power below 2 is taken of 0 "
    "(depth**1.5 has a first derivative at 0, but no second one)"
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
    differentiated: bool = False,
    names: Sequence[str] = (),
) -> npt.NDArray[Any]:
    """Check what a NumPy-style callback returned; ``names`` are those of the entries, if any.

    Raises
    ------
    InputError
        The shape is not ``shape``, or the values are not real numbers (which may carry derivatives
        if ``differentiated``).
    NotFiniteError
        Some value is not finite: the solution has left the domain of the callback.
    """
    # called at every stage of every step: one pass in C where all is well
    if (
        type(values) is np.ndarray
        and values.dtype == np.float64
        and values.shape == shape
        and finite_numbers(values)
    ):
        return values
    try:
        array: Any = as_array(values) if differentiated else np.asarray(values)
    except ValueError as error:
        raise InputError(
            f"{kind} '{name}' returned no array {_where(t)}{_returning(name)}: {error}"
        ) from error
    if array.dtype.kind not in "iuf":
        returned = type(values).__name__ if array.dtype.kind == "O" else f"{array.dtype} values"
        raise InputError(
            f"{kind} '{name}' returned {returned} {_where(t)}{_returning(name)}",
            expected=f"real numbers of shape {shape}",
            remedy=INSTEAD_OF_COMPARISON if array.dtype.kind == "b" else "",
        )
    if array.shape != shape:
        raise InputError(
            f"{kind} '{name}' returned shape {array.shape} {_where(t)}{_returning(name)}",
            expected=f"shape {shape}",
            remedy=f"return {f'an array of shape {shape}' if shape else 'a number'} from '{name}'",
        )
    if isinstance(array, DerivativeArray):
        return array  # type: ignore[return-value]
    if not np.isfinite(array).all():
        entry = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        called = f' ("{names[entry[0]]}")' if len(entry) == 1 and names else ""
        raise NotFiniteError(
            f"{kind} '{name}' returned {array[tuple(entry)]} in entry {entry}{called} {_where(t)}",
            expected="finite values",
            remedy=_remedy(name),
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


_NO_INDEX = "only integers, slices"
"""How NumPy begins its IndexError for an array with a name as its index."""

_BY_NAME = (
    "p is an array here, p[0] the first of the parameters; "
    "only functions of a traced model see parameters by name: model.terminal(function), "
    "model.event(event), trace(..., running=density)"
)


_ON_TRIAL: list[None] = []
"""An entry for each block that survives what callbacks raise on all ranks."""


@contextmanager
def on_trial() -> Generator[None]:
    """Let what callbacks raise on all ranks be survived, of any kind: of a run nobody asked for."""
    _ON_TRIAL.append(None)
    try:
        yield
    finally:
        _ON_TRIAL.pop()


def guarded(callback: Callable[..., Any], name: str, comm: PETSc.Comm) -> Callable[..., Any]:
    """Wrap a user callback so that its exceptions carry its name, the time and the rank.

    The first argument of the callback is taken as the time when it is a number.  On a communicator
    of several ranks an exception of one rank would leave the others waiting for ever (PETSc 3.26
    with petsc4py: the failing rank waits in PetscFinalize), so the traceback is printed and the
    job aborted.  ``SolveError``, Ctrl-C and ``sys.exit`` are exempt where they come on every rank,
    and so is what is raised ``on_trial``; where they do not, the job is aborted too.

    Raises
    ------
    InputError
        It cannot be called.
    """
    if callback is not None and not callable(callback):  # type: ignore[redundant-expr]
        raise InputError(f"{name} = {callback!r}", expected="a callback")
    aborts = comm.size > 1
    reference = reference_to(callback)

    def call(*arguments: Any) -> Any:
        # a fault found in what was returned is told with the line that returned it: who was called
        # last
        LAST_CALLED[name] = reference
        try:
            return callback(*arguments)
        except Exception as error:
            time = arguments[0] if arguments and np.isscalar(arguments[0]) else None
            at = "" if time is None else f" at t = {_number(time)}"
            note = f"in callback '{name}'{at} ({_rank()})"
            place = place_of_error(error.__traceback__)
            if isinstance(error, ValueError) and str(error).endswith("is read-only"):
                written = written_to(error.__traceback__)
                error = InputError(
                    f"{written} is read-only, and callback '{name}' writes to it{at} ({_rank()})"
                    f"{', ' + place if place else ''}",
                    expected="a callback that leaves its arguments as they are",
                    remedy=f"work on {written}.copy()",
                )
                if aborts:
                    abort(error)
                raise error from None
            notes = getattr(error, "__notes__", ())
            if not any(line.startswith(note) for line in notes):  # a callback within a callback
                error.add_note(note + (f", {place}" if place else ""))
                attribute = isinstance(error, AttributeError) and isinstance(error.obj, np.ndarray)
                if attribute or str(error).startswith(_NO_INDEX):
                    error.add_note(_BY_NAME)
            if aborts and not (isinstance(error, SolveError) or _ON_TRIAL):
                abort(error)
            if aborts:
                leave_together(comm, error)
            raise
        except BaseException as error:
            if aborts:
                leave_together(comm, error)
            raise

    return call


@contextmanager
def on_every_rank(comm: PETSc.Comm) -> Generator[None]:
    """Raise the errors of a block on all ranks: those without would wait for ever.  Collective.

    For blocks in which ranks do not communicate.
    """
    mine: DaeosensError | None = None
    try:
        yield
    except DaeosensError as error:
        mine = error
    raise_together(comm, mine)


def raise_together(comm: PETSc.Comm, mine: DaeosensError | None) -> None:
    """Raise an error on all ranks if there is one on any: its own, or that of the first.

    Collective.
    """
    # the one collective call of the block, made by all ranks whatever happened
    every = comm.tompi4py().allgather(None if mine is None else (type(mine), str(mine)))
    if mine is not None:
        raise mine
    for failure in every:
        if failure is not None:
            kind, text = failure
            raise kind(text)


_AT_WORK = RLock()
"""Held by the thread that runs or sweeps: PETSc has one database of options for all of them."""

_begin, _end = _AT_WORK.acquire, _AT_WORK.release


def unwrapped(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function that calls PETSc: exceptions of callbacks leave it as they were raised.

    petsc4py 3.26 wraps an exception each time it passes through PETSc: a PETSc.Error caused by it.
    What another thread does at the same time would disturb it, and is refused.
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        # without waiting: the same thread may come in again (callbacks that solve), others may not
        if not _begin(False):
            raise UnsupportedError(
                f"{function.__name__} while another thread runs or sweeps",
                expected="one thread at a time: PETSc's options belong to the process",
                remedy="solve_batch(..., comm=MPI.COMM_WORLD) under mpiexec, or processes",
            )
        try:
            return function(*arguments, **keywords)
        except PETSc.Error as error:
            original: BaseException = error
            # down to what the user's code raised
            while isinstance(original, PETSc.Error) and original.__cause__ is not None:
                original = original.__cause__
        except NotFiniteError as error:
            original = error
        finally:
            _end()
        if isinstance(original, NotFiniteError):
            _add_operations(original)
        try:
            raise original
        finally:
            del original  # its traceback holds this frame: a circle that would keep vectors alive

    return call


def _add_operations(error: NotFiniteError) -> None:
    """Tell what made values that are not finite, now that nobody survives them."""
    made = "" if error.operations is None else error.operations()
    error.operations = None
    if made:
        what, *rest = str(error).split("\n")
        error.args = ("\n".join([f"{what}: {made}", *rest]),)


def _number(t: object) -> str:
    value = float(t) if isinstance(t, (int, float, np.number)) else primal(t)
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _returning(name: str) -> str:
    place = place_of_return(name)
    return f", {place}" if place else ""


def _where(t: object) -> str:
    return f"at t = {_number(t)} ({_rank()})"


def _rank() -> str:
    return f"rank {MPI.COMM_WORLD.rank}"
