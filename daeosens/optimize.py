"""``minimize``: a functional's minimum by PETSc TAO, with history, words and failed solves survived."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.arrays import Array, guarded, read, scatter
from daeosens.errors import InputError, SolveError, nearest, together
from daeosens.functional import Functional
from daeosens.options import Scope, scoped_options, validate_names

Bound: TypeAlias = "PETSc.Vec | npt.ArrayLike | None"
"""One side of the bounds: a vector like x, all n numbers, one number for all, or None."""

Bounds: TypeAlias = tuple[PETSc.Vec, PETSc.Vec]

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

MORE_THUENTE, ARMIJO = "more-thuente", "armijo"
CURVATURE = "tao_ls_gtol"


@dataclass(frozen=True)
class Iterate:
    """One accepted iterate; number 0 is the start.

    Parameters
    ----------
    iteration : int
        Its number.
    value : float
        J.
    gradient_norm : float
        2-norm of x - P(x - dJ/dx), P the projection onto the bounds; without bounds that of dJ/dx.
    step : float
        2-norm of the change of x since the iterate before.
    evaluations, failed_solves : int
        Evaluations of J so far, and how many of them failed.
    """

    iteration: int
    value: float
    gradient_norm: float
    step: float
    evaluations: int
    failed_solves: int

    def __str__(self) -> str:
        """Return the progress line."""
        return (
            f"{self.iteration:6d} {self.value: .10e}  {self.gradient_norm:.3e}  {self.step:.3e} "
            f"{self.evaluations:6d} {self.failed_solves:7d}"
        )


HEADING = "  iter             value   gradient       step  evals  failed"

Progress: TypeAlias = Callable[[Iterate, PETSc.Vec], object]


@dataclass(frozen=True, eq=False)
class History:
    """The accepted iterates, start included.

    Parameters
    ----------
    value, gradient_norm, step : ndarray [N+1]
        As in ``Iterate``.
    evaluations, failed_solves : ndarray of int [N+1]
        Spent to reach each iterate from the one before; a last search without success is not in it.
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
        Totals; failed solves are among the evaluations, restarts follow a line search they defeated.
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
        failed += f", {self.restarts} restarts" if self.restarts else ""
        return "\n".join(
            [
                f"minimize: {'converged' if self.converged else 'NOT converged'} "
                f"after {self.iterations} iterations, {self.seconds:.3g} s",
                f"  reason         {self.message} ({self.reason})",
                f"  method         {self.method}: {METHODS[self.method]}",
                f"  value          {first.value[0]:.6e} -> {self.value:.6e}",
                f"  gradient norm  {first.gradient_norm[0]:.3e} -> {self.gradient_norm:.3e}",
                f"  evaluations    {self.evaluations}{failed}",
            ]
        )


def minimize(
    functional: Functional,
    x0: PETSc.Vec | npt.ArrayLike | None = None,
    *,
    method: str = "lmvm",
    bounds: tuple[Bound, Bound] | None = None,
    gradient_tolerance: float = 1e-8,
    relative_gradient_tolerance: float = 0.0,
    value_tolerance: float = 0.0,
    max_iterations: int = 1000,
    options: Mapping[str, Any] | None = None,
    progress: bool | Progress | None = None,
) -> Result:
    """Minimise a functional by TAO.  Collective on ``functional.comm``.

    Everything that can be wrong with the arguments is reported before the first evaluation.  A point
    where the functional raises ``SolveError`` (or gives a value or gradient that is not finite)
    counts as infinitely bad: the line search comes back from it, and it is counted.  At the start it
    is an error.  Other exceptions of the functional come out as they are.

    Parameters
    ----------
    functional : Functional
        J, its gradient, its start, its bounds.
    x0 : Vec or array_like [n], optional
        Where to begin; not changed.  Default ``functional.start()``.
    method : str
        "lmvm"; with bounds "blmvm" (large n), "bqnls" or "bncg" (least memory).
    bounds : (lower, upper), optional
        Each a Vec or array [n], one number, or None.  Default ``functional.bounds()``.
    gradient_tolerance : float
        Stop at ``Iterate.gradient_norm`` <= this (option tao_gatol).
    relative_gradient_tolerance : float
        Stop at this fraction of the first gradient norm (tao_gttol); 0 is off.
    value_tolerance : float
        Stop when J changes by less than this fraction of itself in an iteration; 0 is off.
    max_iterations : int
        Stop after so many (tao_max_it).
    options : mapping, optional
        PETSc options without the leading dash: ``{"tao_ls_max_funcs": 50}``.  The command line wins.
    progress : bool or callable, optional
        True: a line per iteration on rank 0.  A callable gets (``Iterate``, x) on every rank;
        x must be copied to be kept.

    Returns
    -------
    Result
        Also when no tolerance was met: see ``Result.converged``.

    Raises
    ------
    InputError
        Unknown method, bounds a method would ignore, a start outside the bounds, NaN, wrong sizes.
    OptionError
        An option nothing reads.
    SolveError
        J does not exist at the start, or the chosen line search cannot come back from a failure.
    """
    begin = time.perf_counter()
    chosen = dict(options or {})
    tolerances = {
        "gradient_tolerance": gradient_tolerance,
        "relative_gradient_tolerance": relative_gradient_tolerance,
        "value_tolerance": value_tolerance,
    }
    complaints = _argument_complaints(method, tolerances, max_iterations, progress)
    x = _start(functional, x0)
    limits = _limits(functional.bounds() if bounds is None else bounds, x)
    complaints += _point_complaints(x, limits, "start()" if x0 is None else "x0")
    if limits is not None and method in METHODS:
        complaints += _bounds_complaints(method)
    if complaints:
        raise together(complaints, heading="minimize")
    validate_names(chosen, "minimize options")

    report = _reporter(progress, functional.comm)
    run = _Run(functional, limits, value_tolerance, int(max_iterations), x.copy(), report)
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
            tao.setFromOptions()
            method = _final_method(tao, limits)
            run.attach(tao)
            tao.setUp()
            scope.check_used()
            run.scope = scope
            reason = _search(tao, run, x)
        return run.result(method, reason, time.perf_counter() - begin)
    except BaseException:
        run.x.destroy()
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


def _listed(words: Any) -> str:
    return ", ".join(f'"{word}"' for word in words)


def _start(functional: Functional, x0: PETSc.Vec | npt.ArrayLike | None) -> PETSc.Vec:
    """Return a new vector with the start."""
    start = functional.start()
    if x0 is None:
        return start
    _fill(start, x0, "x0")
    return start


def _fill(vec: PETSc.Vec, given: PETSc.Vec | npt.ArrayLike, name: str) -> None:
    """Overwrite ``vec`` with what the user gave, or say what does not fit, on every rank."""
    size, comm = vec.getSize(), vec.comm.tompi4py()
    if isinstance(given, PETSc.Vec):
        if given.getSize() != size:
            raise InputError(f"{name} has size {given.getSize()}", expected=f"size {size}")
        if comm.allreduce(given.getLocalSize() != vec.getLocalSize(), op=MPI.LOR):
            layouts = comm.allgather((given.getLocalSize(), vec.getLocalSize()))
            raise InputError(
                f"{name} is distributed as {[mine for mine, _ in layouts]} over the ranks",
                expected=str([theirs for _, theirs in layouts]),
                remedy="fill a vector made by functional.start()",
            )
        given.copy(vec)
    else:
        array = _numbers(given, name)
        if array.shape not in ((), (size,)):
            raise InputError(f"{name} has shape {array.shape}", expected=f"shape ({size},)")
        scatter(np.broadcast_to(array, (size,)), vec)


def _numbers(given: npt.ArrayLike, name: str) -> Array:
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} is not an array of real numbers ({error})", expected="real numbers"
        ) from error


def _limits(bounds: object, x: PETSc.Vec) -> Bounds | None:
    """Return lower and upper bounds as vectors like ``x``, or None where no entry is finite."""
    if bounds is None:
        return None
    if not (isinstance(bounds, tuple) and len(bounds) == 2):
        raise InputError(f"bounds = {bounds!r}", expected="(lower, upper), None for no bound")
    lower, upper = x.duplicate(), x.duplicate()
    lower.set(-np.inf)
    upper.set(np.inf)
    for vec, given, name in zip((lower, upper), bounds, ("lower", "upper"), strict=True):
        if given is not None:
            _fill(vec, given, f"the {name} bound")
    infinite = np.all(read(lower) == -np.inf) and np.all(read(upper) == np.inf)
    return None if x.comm.tompi4py().allreduce(bool(infinite), op=MPI.LAND) else (lower, upper)


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


def _final_method(tao: PETSc.TAO, limits: Bounds | None) -> str:
    """Return the TAO type that the options left, if it is one of ours."""
    method = tao.getType()
    complaints = _argument_complaints(method, {}, 0, None)
    if not complaints and limits is not None:
        complaints = _bounds_complaints(method)
    if complaints:
        raise together(complaints, heading="option tao_type")
    return method


def _search(tao: PETSc.TAO, run: _Run, x: PETSc.Vec) -> int:
    """Run TAO; where failed solves defeat its line search, once more from the last iterate.

    The second run begins with the gradient direction, as TAO itself means to do.  PETSc 3.26: LMVM's
    own second search goes along the first direction reversed (the result of its MatSolve lands in
    the gradient), BNCG's third one begins from a rejected point.
    """
    while True:
        _solve(tao)
        reason = tao.getConvergedReason()
        if reason != _Reason.DIVERGED_LS_FAILURE or not run.failed_in_search or run.stuck:
            return reason
        run.resume(x)


def _solve(tao: PETSc.TAO) -> None:
    """Run TAO, and let an exception of a callback out as it was raised.

    petsc4py 3.26 wraps it: a PETSc.Error with code 101 caused by it.
    """
    try:
        tao.solve()
    except PETSc.Error as error:
        original = error.__cause__
        if original is None:
            raise
    else:
        return
    raise original


@dataclass
class _Run:
    """What happened so far: TAO's callbacks and their memory.

    ``x`` and ``gradient`` belong to the last accepted iterate (x is copied because PETSc 3.26 does
    not keep it when a line search fails), ``trial`` to the last successful evaluation.
    """

    functional: Functional
    limits: Bounds | None
    value_tolerance: float
    max_iterations: int
    x: PETSc.Vec
    report: Progress | None
    evaluations: int = 0
    failed_solves: int = 0
    iterates: list[Iterate] = field(default_factory=list[Iterate])
    trial: tuple[float, PETSc.Vec] | None = None
    gradient: PETSc.Vec | None = None
    tolerances: tuple[float, float, float] = (0.0, 0.0, 0.0)
    descending: tuple[str, ...] = (MORE_THUENTE,)
    scope: Scope | None = None
    relaxed: bool = False
    resumed_at: int = -1
    restarts: int = 0
    resuming: bool = False

    def attach(self, tao: PETSc.TAO) -> None:
        """Become the callbacks of ``tao``, and take its stopping rules over.

        PETSc 3.26: BQNLS and BNCG test the norm of the Fischer-Burmeister residual, BLMVM that of a
        projected gradient, BNCG counts an iteration late, and none looks at the change of the value.
        Testing here makes the rules the same for all.
        """
        self.tolerances = tao.getTolerances()
        given = PETSc.Options()
        if not given.hasName("tao_ls_armijo_memory_size"):
            self.descending = (MORE_THUENTE, ARMIJO)
        if given.hasName("tao_max_it"):
            self.max_iterations = tao.getMaximumIterations()
        tao.setTolerances(0.0, 0.0, 0.0)
        tao.setMaximumIterations(PETSc.UNLIMITED)
        tao.setObjectiveGradient(self.evaluate)
        tao.setMonitor(self.accept)

    @property
    def failed_in_search(self) -> bool:
        """Whether a solve has failed since the last accepted iterate."""
        return self.failed_solves > self.iterates[-1].failed_solves

    @property
    def stuck(self) -> bool:
        """Whether nothing was gained since the last restart."""
        return self.resumed_at == len(self.iterates)

    def evaluate(self, tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec) -> float:
        """Evaluate J and fill ``gradient`` [n], for TAO."""
        if not self.resuming:
            self.evaluations += 1
            try:
                self.trial = _finite(*self.functional.value_and_gradient(x))
            except SolveError as error:
                return self._failed(tao, x, gradient, error)
        assert self.trial is not None
        value, computed = self.trial
        computed.copy(gradient)
        return value

    def resume(self, x: PETSc.Vec) -> None:
        """Prepare another run of TAO from the last accepted iterate, without evaluating it again."""
        assert self.gradient is not None
        self.x.copy(x)  # PETSc 3.26: BLMVM and BNCG leave the last trial point in x
        self.trial = (self.iterates[-1].value, self.gradient)
        self.resumed_at = len(self.iterates)
        self.restarts += 1
        self.resuming = True

    def _failed(
        self, tao: PETSc.TAO, x: PETSc.Vec, gradient: PETSc.Vec, error: SolveError
    ) -> float:
        """Count a failed solve, and give TAO what makes its line search come back.

        ``gradient`` is left as it is where the line search knows infinity.
        """
        self.failed_solves += 1
        if not self.iterates:
            raise SolveError(
                f"the functional cannot be evaluated at the start: {error}",
                remedy="another x0, or smaller steps",
            ) from error
        line_search = tao.getLineSearch().getType()
        if line_search == MORE_THUENTE:
            if not self.relaxed:
                _relax(tao, relaxed=True)
                self.relaxed = True
            return self._wall(x, gradient)
        if line_search == ARMIJO:
            return math.inf
        raise SolveError(
            f'a forward solve failed, from which the line search "{line_search}" cannot come back: '
            f"{error}",
            expected=f'tao_ls_type "{MORE_THUENTE}" or "{ARMIJO}"',
        ) from error

    def _wall(self, x: PETSc.Vec, gradient: PETSc.Vec) -> float:
        """Return a value, and fill ``gradient`` [n], that turn a More-Thuente search back.

        Infinity would end it (PETSc 3.26: the cubic through an infinite value is not a number, the
        step becomes 0 and the search fails).  A steep rise from the last iterate x_k is as good: with
        J_k + r and slope (1 + 6 r/d) d, d = |dJ_k (x - x_k)|, the cubic has its minimum halfway, so
        that the next trial lies at 1/4 to 1/2 of the failed step.  r > 1e-9 |J_k| exceeds the
        relative 1e-10 by which PETSc tolerates an increase: the point is never accepted.
        """
        assert self.gradient is not None
        x.copy(gradient)
        gradient.axpy(-1.0, self.x)
        descent = max(abs(gradient.dot(self.gradient)), sys.float_info.min)
        value = self.iterates[-1].value
        rise = max(descent, 1e-9 * abs(value))
        self.gradient.copy(gradient)
        gradient.scale(-1.0 - 6.0 * min(rise / descent, 1e9))
        return value + rise

    def accept(self, tao: PETSc.TAO) -> None:
        """Record an iterate, report it and decide whether to stop; TAO's monitor."""
        if tao.getConvergedReason() != _Reason.CONTINUE_ITERATING:
            return  # PETSc 3.26: LMVM and BQNLS show the old iterate again after a failed search
        if self.relaxed:
            _relax(tao, relaxed=False)
            self.relaxed = False
        if self.resuming:
            self.resuming = False
            return
        assert self.trial is not None
        value, gradient = self.trial
        x = tao.getSolution()
        norm = _projected_norm(x, gradient, self.limits)
        if self._worthless(tao, value, norm):
            tao.setConvergedReason(_Reason.DIVERGED_LS_FAILURE)
            return
        self.gradient = gradient
        self.x.axpy(-1.0, x)
        step = self.x.norm()
        x.copy(self.x)
        iterate = Iterate(
            len(self.iterates), value, norm, step, self.evaluations, self.failed_solves
        )
        self.iterates.append(iterate)
        if iterate.iteration == 1 and self.scope is not None:
            self.scope.check_used(final=True)
        if self.report is not None:
            self.report(iterate, self.x)
        tao.setConvergedReason(self._reason(iterate))

    def _worthless(self, tao: PETSc.TAO, value: float, norm: float) -> bool:
        """Say whether the new iterate is one that its line search should not have accepted.

        PETSc 3.26: when two searches in a row fail, BNCG starts the third one from the last trial
        point, or with its value, instead of the last iterate: the value rises.  And More-Thuente
        lets it stay or rise by a relative 1e-10, beside failed solves for ever.
        """
        if not self.iterates or tao.getLineSearch().getType() not in self.descending:
            return False
        last = self.iterates[-1]
        if self.failed_in_search and value >= last.value:
            return norm > 0.9 * last.gradient_norm
        return value > last.value + 1e-9 * abs(last.value)

    def _reason(self, iterate: Iterate) -> int:
        absolute, by_value, by_first = self.tolerances
        norm, value = iterate.gradient_norm, iterate.value
        if norm <= absolute:
            return _Reason.CONVERGED_GATOL
        if norm <= by_value * abs(value):
            return _Reason.CONVERGED_GRTOL
        if norm <= by_first * self.iterates[0].gradient_norm:
            return _Reason.CONVERGED_GTTOL
        if self.value_tolerance > 0.0 and iterate.iteration > 0:
            before = self.iterates[-2].value
            if abs(before - value) <= self.value_tolerance * max(abs(before), abs(value)):
                return _Reason.CONVERGED_USER
        if iterate.iteration >= self.max_iterations:
            return _Reason.DIVERGED_MAXITS
        return _Reason.CONTINUE_ITERATING

    def result(self, method: str, reason: int, seconds: float) -> Result:
        """Sum up."""
        last = self.iterates[-1]
        columns = np.array(
            [
                (each.value, each.gradient_norm, each.step, each.evaluations, each.failed_solves)
                for each in self.iterates
            ]
        ).T
        counts = np.diff(columns[3:].astype(np.int64), prepend=0)
        name, message = REASONS[reason]
        if reason == _Reason.DIVERGED_LS_FAILURE and self.failed_in_search:
            message = "the line search found no lower value before solves failed"
        return Result(
            self.x,
            last.value,
            last.gradient_norm,
            method,
            name,
            message,
            last.iteration,
            self.evaluations,
            self.failed_solves,
            self.restarts,
            seconds,
            History(columns[0], columns[1], columns[2], counts[0], counts[1]),
        )


def _relax(tao: PETSc.TAO, relaxed: bool) -> None:
    """Make the line search, even a running one, take any point where J has fallen enough, or undo it.

    More-Thuente wants J to have fallen *and* flattened.  Beside a region without solutions there may
    be no such point, and the search closes in on the edge until it fails.  petsc4py 3.26 has only an
    option for that factor, read whenever the line search is told to; the command line's stays.
    """
    code = {CURVATURE: 1e10} if relaxed else {}
    with scoped_options(defaults={CURVATURE: 0.9}, code=code):
        tao.getLineSearch().setFromOptions()


def _finite(value: float, gradient: PETSc.Vec) -> tuple[float, PETSc.Vec]:
    """Return both, or raise ``SolveError`` on every rank."""
    norm = gradient.norm()
    if not (math.isfinite(value) and math.isfinite(norm)):
        raise SolveError(f"value {value:g} with a gradient of norm {norm:g}")
    return value, gradient


def _projected_norm(x: PETSc.Vec, gradient: PETSc.Vec, limits: Bounds | None) -> float:
    """Return the 2-norm of x - P(x - gradient), P the projection onto the bounds."""
    if limits is None:
        return gradient.norm()
    point = read(x)
    projected = np.clip(point - read(gradient), read(limits[0]), read(limits[1]))
    local = float(np.sum((point - projected) ** 2))
    return math.sqrt(x.comm.tompi4py().allreduce(local))
