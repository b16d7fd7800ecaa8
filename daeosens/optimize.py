"""``minimize``: the minimum of a functional by PETSc TAO, with its history, told in words."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.arrays import Array, guarded, read, scatter
from daeosens.constrained import check_constrained_method, minimize_constrained
from daeosens.constrained_result import CONSTRAINED_METHODS, ConstrainedResult
from daeosens.constraints import Constraint
from daeosens.descent import HEADING, Bounds, Descent, Iterate, Progress
from daeosens.errors import InputError, OptionError, nearest, together
from daeosens.functional import Functional
from daeosens.kkt import KktProgress, kkt_reporter
from daeosens.options import Options, scoped_options, validate_names

Bound: TypeAlias = "PETSc.Vec | npt.ArrayLike | None"
"""One side of the bounds: a vector like x, all n numbers, one number for all, or None."""

METHODS: Mapping[str, str] = {
    "lmvm": "limited-memory BFGS",
    "blmvm": "limited-memory BFGS with bounds",
    "bqnls": "quasi-Newton active set with bounds",
    "bncg": "nonlinear conjugate gradients with bounds",
}
UNBOUNDED = ("lmvm",)
"""PETSc 3.26: TAO types that ignore bounds, with no more than an -info message."""

_Reason = PETSc.TAO.ConvergedReason
REASONS: Mapping[int, tuple[str, str]] = {
    _Reason.CONVERGED_GATOL: ("CONVERGED_GATOL", "gradient norm within gradient_tolerance"),
    _Reason.CONVERGED_GRTOL: ("CONVERGED_GRTOL", "gradient norm within tao_grtol times the value"),
    _Reason.CONVERGED_GTTOL: (
        "CONVERGED_GTTOL",
        "gradient norm within relative_gradient_tolerance times the first one",
    ),
    _Reason.CONVERGED_STEPTOL: ("CONVERGED_STEPTOL", "step shorter than tao_steptol"),
    _Reason.CONVERGED_MINF: ("CONVERGED_MINF", "value below tao_fmin"),
    _Reason.CONVERGED_USER: ("CONVERGED_USER", "value changed by less than value_tolerance"),
    _Reason.DIVERGED_MAXITS: ("DIVERGED_MAXITS", "max_iterations reached"),
    _Reason.DIVERGED_NAN: ("DIVERGED_NAN", "not a number"),
    _Reason.DIVERGED_MAXFCN: ("DIVERGED_MAXFCN", "more than tao_max_funcs evaluations"),
    _Reason.DIVERGED_LS_FAILURE: (
        "DIVERGED_LS_FAILURE",
        "the line search found no lower value (rounding reached, or a wrong gradient)",
    ),
    _Reason.DIVERGED_TR_REDUCTION: ("DIVERGED_TR_REDUCTION", "the trust region shrank to nothing"),
    _Reason.DIVERGED_USER: ("DIVERGED_USER", "stopped by the user"),
}


@dataclass(frozen=True, eq=False)
class History:
    """The accepted iterates, start included.

    Parameters
    ----------
    value, gradient_norm, step : ndarray [N+1]
        As in ``Iterate``.
    evaluations, failed_solves : ndarray of int [N+1]
        Spent to reach each iterate from the one before; a last, vain search is not in it.
    """

    value: Array
    gradient_norm: Array
    step: Array
    evaluations: npt.NDArray[np.int64]
    failed_solves: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What ``minimize`` found; prints itself.

    Parameters
    ----------
    x : Vec [n]
        The last accepted iterate; belongs to the caller.
    value, gradient_norm : float
        There, as in ``Iterate``.
    method : str
        TAO type.
    reason : str
        TAO's name for why it stopped.
    message : str
        The same in words.
    iterations, evaluations, failed_solves, restarts : int
        Totals.  Failed solves are among the evaluations; restarts follow line searches they
        defeated.
    seconds : float
        Wall time.
    history : History
        One entry per accepted iterate.
    """

    x: PETSc.Vec
    value: float
    gradient_norm: float
    method: str
    reason: str
    message: str
    iterations: int
    evaluations: int
    failed_solves: int
    restarts: int
    seconds: float
    history: History

    @property
    def converged(self) -> bool:
        """Whether a tolerance was met."""
        return self.reason.startswith("CONVERGED")

    def __repr__(self) -> str:
        """Return the summary, one fact a line."""
        first = self.history
        failed = f", {self.failed_solves} of them failed solves" if self.failed_solves else ""
        failed += f", restarts: {self.restarts}" if self.restarts else ""
        outcome = "converged" if self.converged else "NOT converged"
        iterations = f"{self.iterations} iteration{'s' if self.iterations != 1 else ''}"
        return "\n".join(
            [
                f"minimize: {outcome} after {iterations}, {self.seconds:.3g} s",
                f"  reason         {self.message} ({self.reason})",
                f"  method         {self.method}: {METHODS[self.method]}",
                f"  value          {first.value[0]:.6e} -> {self.value:.6e}",
                f"  gradient norm  {first.gradient_norm[0]:.3e} -> {self.gradient_norm:.3e}",
                f"  evaluations    {self.evaluations}{failed}",
            ]
        )


@overload
def minimize(
    functional: Functional,
    x0: PETSc.Vec | npt.ArrayLike | None = None,
    *,
    method: str = "lmvm",
    bounds: tuple[Bound, Bound] | None = None,
    constraints: None = None,
    gradient_tolerance: float = 1e-8,
    relative_gradient_tolerance: float = 0.0,
    value_tolerance: float = 0.0,
    max_iterations: int = 1000,
    options: Options | None = None,
    progress: bool | Progress | None = None,
) -> Result: ...
@overload
def minimize(
    functional: Functional,
    x0: PETSc.Vec | npt.ArrayLike | None = None,
    *,
    method: str,
    bounds: tuple[Bound, Bound] | None = None,
    constraints: Constraint | Sequence[Constraint],
    gradient_tolerance: float = 1e-8,
    constraint_tolerance: float = 1e-8,
    max_iterations: int = 1000,
    options: Options | None = None,
    progress: bool | KktProgress | None = None,
) -> ConstrainedResult: ...
def minimize(
    functional: Functional,
    x0: PETSc.Vec | npt.ArrayLike | None = None,
    *,
    method: str = "lmvm",
    bounds: tuple[Bound, Bound] | None = None,
    constraints: Constraint | Sequence[Constraint] | None = None,
    gradient_tolerance: float = 1e-8,
    relative_gradient_tolerance: float = 0.0,
    value_tolerance: float = 0.0,
    constraint_tolerance: float = 1e-8,
    max_iterations: int = 1000,
    options: Options | None = None,
    progress: bool | Any | None = None,
) -> Result | ConstrainedResult:
    """Minimise a functional by TAO.  Collective on ``functional.comm``.

    Everything that can be wrong with the arguments is reported before the first evaluation.  A
    point where the functional raises ``SolveError`` (or gives a value or gradient that is not
    finite) counts as infinitely bad: the line search comes back from it, and it is counted.  At the
    start it is an error.  Other exceptions of the functional come out as they are.

    Parameters
    ----------
    functional : Functional
        J, its gradient, its start, its bounds.
    x0 : Vec or array_like [n], optional
        Where to begin; not changed.  Default ``functional.start()``.
    method : str
        "lmvm"; with bounds "blmvm" (large n), "bqnls" or "bncg" (least memory); with constraints
        "almm" (first derivatives) or "pdipm" (second derivatives, dense).
    bounds : (lower, upper), optional
        Each a Vec or array [n], one number, or None.  Default ``functional.bounds()``.
    constraints : Constraint or sequence of Constraint, optional
        What else the minimum has to satisfy; see ``minimize_constrained`` for tolerances, which are
        relative then, and the result.
    gradient_tolerance : float
        Stop at ``Iterate.gradient_norm`` <= this (option tao_gatol).
    relative_gradient_tolerance : float
        Stop at this fraction of the first gradient norm (tao_gttol); 0 is off.
    value_tolerance : float
        Stop when J changes by less than this fraction of itself in an iteration; 0 is off.
    constraint_tolerance : float
        Largest violation, in the constraints' scales.
    max_iterations : int
        Stop after so many (tao_max_it).
    options : mapping, optional
        PETSc options without the dash: ``{"tao_ls_max_funcs": 50}``.  The command line wins.
    progress : bool or callable, optional
        True: a line per iteration on rank 0.  A callable gets (``Iterate``, x) on every rank;
        x must be copied to be kept.

    Returns
    -------
    Result or, with constraints, ConstrainedResult
        Also when no tolerance was met: see ``Result.converged``.

    Raises
    ------
    InputError
        Unknown method, bounds a method would ignore, a start outside the bounds, NaN, wrong sizes.
    OptionError
        An option that nothing reads, or a value that TAO refuses.
    SolveError
        J does not exist at the start, or the chosen line search cannot come back from a failure.
    """
    if constraints is not None or method in CONSTRAINED_METHODS:
        tolerances = {
            "gradient_tolerance": gradient_tolerance,
            "constraint_tolerance": constraint_tolerance,
        }
        unused = {
            "relative_gradient_tolerance": relative_gradient_tolerance,
            "value_tolerance": value_tolerance,
        }
        complaints = _argument_complaints("lmvm", tolerances, max_iterations, progress)
        complaints += check_constrained_method(method, constraints, METHODS)
        complaints += [f"{name} does nothing with constraints" for name in unused if unused[name]]
        x = _start(functional, x0)
        limits = _limits(functional.bounds() if bounds is None else bounds, x)
        complaints += _point_complaints(x, limits, "start()" if x0 is None else "x0")
        if complaints:
            raise together(complaints, heading="minimize")
        return minimize_constrained(
            functional,
            constraints,
            x,
            method=method,
            limits=limits,
            gradient_tolerance=gradient_tolerance,
            constraint_tolerance=constraint_tolerance,
            max_iterations=max_iterations,
            options=options,
            report=kkt_reporter(progress, functional.comm),
        )
    begin = time.perf_counter()
    tolerances = {
        "gradient_tolerance": gradient_tolerance,
        "relative_gradient_tolerance": relative_gradient_tolerance,
        "value_tolerance": value_tolerance,
    }
    complaints = _argument_complaints(method, tolerances, max_iterations, progress)
    chosen: Options = {} if options is None else options
    validate_names(chosen, "minimize options")
    x = _start(functional, x0)
    limits = _limits(functional.bounds() if bounds is None else bounds, x)
    complaints += _point_complaints(x, limits, "start()" if x0 is None else "x0")
    if limits is not None and method in METHODS:
        complaints += _bounds_complaints(method)
    if complaints:
        raise together(complaints, heading="minimize")

    report = _reporter(progress, functional.comm)
    copy: PETSc.Vec = x.copy()
    descent = Descent(functional, limits, value_tolerance, int(max_iterations), copy, report)
    tao = PETSc.TAO().create(functional.comm)
    try:
        tao.setType(method)
        tao.setTolerances(gradient_tolerance, 0.0, relative_gradient_tolerance)
        # TAO 3.26 gives up after 4000 evaluations with some types, without being asked to
        tao.setMaximumFunctionEvaluations(PETSc.UNLIMITED)
        tao.setSolution(x)
        if limits is not None:
            tao.setVariableBounds(limits)
        views = {name: value for name, value in chosen.items() if "view" in name}
        others = {name: value for name, value in chosen.items() if "view" not in name}
        with scoped_options(code=views), scoped_options(code=others) as scope:
            method = _read_options(tao, limits)
            descent.attach(tao)
            tao.setUp()
            scope.check_used()
            reason = descent.run(tao, x, scope)
        return _result(descent, method, reason, time.perf_counter() - begin)
    except BaseException:
        copy.destroy()
        raise
    finally:
        tao.destroy()
        x.destroy()


def _argument_complaints(
    method: object, tolerances: Mapping[str, object], max_iterations: object, progress: object
) -> list[str]:
    complaints: list[str] = []
    if method not in METHODS:
        near = nearest(str(method), METHODS)
        complaints.append(
            f"unknown method {method!r}; expected: {_listed(METHODS)}"
            + (f"; try: {near}" if near else "")
        )
    for name, value in tolerances.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float, np.number))
            or not (math.isfinite(value) and value >= 0.0)
        ):
            complaints.append(f"{name} = {value!r}; expected: a finite number >= 0")
    if (
        isinstance(max_iterations, bool)
        or not isinstance(max_iterations, (int, np.integer))
        or max_iterations < 0
    ):
        complaints.append(f"max_iterations = {max_iterations!r}; expected: an integer >= 0")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        complaints.append(f"progress = {progress!r}; expected: None, True or a callable")
    return complaints


def _bounds_complaints(method: str) -> list[str]:
    if method not in UNBOUNDED:
        return []
    able = _listed(name for name in METHODS if name not in UNBOUNDED)
    return [f'method "{method}" ignores bounds, and there are bounds; try: {able}']


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)


def _start(functional: Functional, x0: PETSc.Vec | npt.ArrayLike | None) -> PETSc.Vec:
    """Return a new vector with the start."""
    start = functional.start()
    if x0 is None:
        return start
    vec = _vector(x0, start, "x0")
    return vec.copy() if vec is x0 else vec


def _limits(bounds: object, x: PETSc.Vec) -> Bounds | None:
    """Return lower and upper bounds as vectors like ``x``, or None where no entry is finite."""
    if bounds is None:
        return None
    if not (isinstance(bounds, tuple) and len(cast("tuple[Any, ...]", bounds)) == 2):
        raise InputError(f"bounds = {bounds!r}", expected="(lower, upper), None for no bound")
    below, above = cast("tuple[Bound, Bound]", bounds)
    lower = _vector(-np.inf if below is None else below, x, "the lower bound")
    upper = _vector(np.inf if above is None else above, x, "the upper bound")
    infinite = np.all(read(lower) == -np.inf) and np.all(read(upper) == np.inf)
    return None if x.comm.tompi4py().allreduce(bool(infinite), op=MPI.LAND) else (lower, upper)


def _vector(given: PETSc.Vec | npt.ArrayLike, like: PETSc.Vec, name: str) -> PETSc.Vec:
    """Return ``given`` if it is a vector laid out like another, or a new one with its numbers."""
    if isinstance(given, PETSc.Vec):
        _check_layout(given, like, name)
        return given
    size = like.getSize()
    try:
        array = np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} is not an array of real numbers ({error})", expected="real numbers"
        ) from error
    if array.shape not in ((), (size,)):
        raise InputError(f"{name} has shape {array.shape}", expected=f"shape ({size},)")
    return scatter(np.broadcast_to(array, (size,)), like.duplicate())


def _check_layout(given: PETSc.Vec, like: PETSc.Vec, name: str) -> None:
    """Refuse, on every rank, a vector with another layout on any of them."""
    pairs = like.comm.tompi4py().allgather(
        tuple((vec.comm.size, vec.getSize(), vec.getLocalSize()) for vec in (given, like))
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


def _point_complaints(x: PETSc.Vec, limits: Bounds | None, name: str) -> list[str]:
    """Say what is wrong with a start and its bounds, naming the first bad entry of each kind."""
    complaints: list[str] = []
    point = read(x)
    bad = _first(x, ~np.isfinite(point), point)
    if bad is not None:
        complaints.append(f"{name} is {bad[1]} at index {bad[0]}; expected: finite numbers")
    if limits is None:
        return complaints
    lower, upper = read(limits[0]), read(limits[1])
    bad = _first(x, ~(lower <= upper), lower, upper)
    if bad is not None:
        complaints.append(
            f"bounds [{bad[1]:g}, {bad[2]:g}] at index {bad[0]}; expected: lower <= upper"
        )
    bad = _first(x, (point < lower) | (point > upper), point, lower, upper)
    if bad is not None:
        index, value, low, high = bad
        complaints.append(
            f"{name} = {value:.9g} at index {index} lies outside its bounds [{low:g}, {high:g}]"
        )
    return complaints


def _first(x: PETSc.Vec, bad: npt.NDArray[np.bool_], *values: Array) -> tuple[Any, ...] | None:
    """Return, on every rank, the first bad global index and the values there."""
    mine: tuple[Any, ...] | None = None
    if bad.any():
        index = int(np.argmax(bad))
        mine = (x.getOwnershipRange()[0] + index, *(float(value[index]) for value in values))
    found = [each for each in x.comm.tompi4py().allgather(mine) if each is not None]
    return min(found) if found else None


def _reporter(progress: bool | Progress | None, comm: PETSc.Comm) -> Progress | None:
    if callable(progress):
        return guarded(progress, "progress", comm)
    if not progress or comm.rank > 0:
        return None

    def write(iterate: Iterate, _x: PETSc.Vec) -> None:
        heading = f"{HEADING}\n" if iterate.iteration == 0 else ""
        sys.stdout.write(f"{heading}{iterate}\n")
        sys.stdout.flush()

    return write


def _read_options(tao: PETSc.TAO, limits: Bounds | None) -> str:
    """Let TAO read its options, and return the TAO type that they leave if it is one of ours."""
    try:
        tao.setFromOptions()
    except PETSc.Error as error:
        cause = str(error).splitlines()[-1].partition("] ")[2]
        raise OptionError(f"TAO refuses an option: {cause}") from error
    method = tao.getType()
    complaints = _argument_complaints(method, {}, 0, None)
    if not complaints and limits is not None:
        complaints = _bounds_complaints(method)
    if complaints:
        raise together(complaints, heading="option tao_type")
    return method


def _result(descent: Descent, method: str, reason: int, seconds: float) -> Result:
    """Sum up."""
    iterates = descent.iterates
    last = iterates[-1]
    name, message = REASONS[reason]
    if reason == _Reason.DIVERGED_LS_FAILURE and descent.failed_in_search:
        message = "the line search found no lower value before solves failed"
    history = History(
        np.array([each.value for each in iterates]),
        np.array([each.gradient_norm for each in iterates]),
        np.array([each.step for each in iterates]),
        np.diff([each.evaluations for each in iterates], prepend=0),
        np.diff([each.failed_solves for each in iterates], prepend=0),
    )
    return Result(
        x=descent.x,
        value=last.value,
        gradient_norm=last.gradient_norm,
        method=method,
        reason=name,
        message=message,
        iterations=last.iteration,
        evaluations=descent.evaluations,
        failed_solves=descent.failed_solves,
        restarts=descent.restarts,
        seconds=seconds,
        history=history,
    )
