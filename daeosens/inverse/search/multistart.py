"""Many starts for one minimisation, on groups of ranks; what is finished is not done again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy.typing as npt
from mpi4py import MPI

from daeosens.errors import InputError, SolveError, real_number, require, whole_number
from daeosens.functional.functional import Functional, require_functional
from daeosens.inverse.search.start_records import Attempt, file_name, finished, write_attempt
from daeosens.inverse.uncertainty.hessian_at_estimate import HessianKind
from daeosens.io.files import admit_path
from daeosens.io.saved import ANOTHER_FOLDER, check_same
from daeosens.io.tasks import Helped, claimed, helping
from daeosens.optimize import Constraint, Result, minimize
from daeosens.optimize.constrained.constraints import named
from daeosens.optimize.constrained.result import ConstrainedResult
from daeosens.optimize.interruption import INTERRUPTED, keep_what_is_there
from daeosens.optimize.start import GivenBounds
from daeosens.petsc.agreement import on_every_rank, on_first_rank
from daeosens.petsc.options import Options
from daeosens.petsc.ranks import admit_comm, agree
from daeosens.petsc.vectors import Array, finite_array, gather, scatter

VIOLATION = 1e-6
"""Constraints that are violated by more, in their scales, are not satisfied."""


@dataclass(frozen=True, eq=False, repr=False)
class Multistart:
    """All attempts; prints itself.

    Attributes
    ----------
    attempts : tuple of Attempt
        In the order of the starts.
    resumed : int
        How many were read from the folder.
    interrupted : bool
        Whether Ctrl-C kept starts from being tried, or ended the last attempt.

    Examples
    --------
    >>> from daeosens import ODE, Parameter, Parameters, Stepping, fit
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> rates = Parameters({"rate": Parameter(1.0, lower=0.1, upper=3.0)}, initial_state=[1.0])
    >>> data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    >>> fitted = fit(decay, data, rates, Stepping((0.0, 3.0), "rk4", dt=0.1), starts=2)
    >>> fitted.starts.best.x.round(3), fitted.starts.n_at_best()
    (array([0.5]), 2)
    """

    attempts: tuple[Attempt, ...]
    resumed: int = 0
    interrupted: bool = False

    @property
    def ranked(self) -> tuple[Attempt, ...]:
        """The attempts, best value first; failed ones last."""
        return tuple(sorted(self.attempts, key=lambda attempt: (attempt.value, attempt.index)))

    @property
    def best(self) -> Attempt:
        """The attempt with the lowest value.

        Raises
        ------
        SolveError
            Every start failed.
        """
        first = self.ranked[0]
        if not math.isfinite(first.value):
            raise SolveError(
                f"all {len(self.attempts)} starts failed; the first: {first.message}",
                remedy="starts nearer to a sensible value, smaller steps, or narrower bounds",
            )
        return first

    def n_at_best(self, tolerance: float = 1e-2) -> int:
        """Return how many attempts came within ``tolerance`` of the best value."""
        tolerance = real_number(tolerance, "tolerance", least=0.0)
        return sum(attempt.value <= self.best.value + tolerance for attempt in self.attempts)

    def __repr__(self) -> str:
        """Return the best ten and the counts."""
        failed = sum(not math.isfinite(attempt.value) for attempt in self.attempts)
        unfinished = sum(not attempt.converged for attempt in self.attempts) - failed
        lines = [" rank  start          value  iterations  why it ended"]
        for rank, start in enumerate(self.ranked[:10], 1):
            lines.append(
                f"{rank:5d}  {start.index:5d}  {start.value:13.7g}  {start.iterations:10d}  "
                f"{start.message.splitlines()[0]}"
            )
        if len(self.attempts) > 10:
            lines.append(f"  ... {len(self.attempts) - 10} more")
        count = f"{len(self.attempts)} starts"
        if failed < len(self.attempts):
            count += f", {self.n_at_best()} within 0.01 of the best value"
        count += f", {failed} failed, {unfinished} not converged"
        lines.append(count + (f", {self.resumed} read from before" if self.resumed else ""))
        return "\n".join(lines)


def multistart(
    build: Callable[[MPI.Intracomm], Functional],
    starts: npt.ArrayLike,
    *,
    comm: MPI.Intracomm | None = None,
    ranks_per_start: int = 1,
    folder: str | Path | None = None,
    method: str | None = None,
    bounds: GivenBounds = None,
    constraints: Constraint | Sequence[Constraint] | None = None,
    hessian: HessianKind = "exact",
    preconditioner: Literal["auto", "dense", "lmvm", "none"] = "auto",
    gradient_tolerance: float = 1e-8,
    relative_gradient_tolerance: float = 0.0,
    value_tolerance: float = 0.0,
    max_iterations: int = 1000,
    options: Options | None = None,
) -> Multistart:
    """Minimise from each start, on groups of ranks.  Collective on ``comm``.

    The ranks are cut into groups of ``ranks_per_start``; group g of G takes starts g, g + G, and so
    on.  With a folder each takes the next that nobody has done or is at, neither another group nor
    another program with the same folder.  An attempt depends on its start and on the size of its
    group alone.

    Parameters
    ----------
    build : callable
        ``build(comm) -> Functional``, called once on each group with its communicator.
    starts : array_like [count, n]
        From ``starting_points``, say; the same on every rank.
    comm : MPI.Intracomm, optional
        All ranks by default.
    ranks_per_start : int
        Size of a group; divides the number of ranks.
    folder : str or Path, optional
        Each finished start is written there at once; a rerun takes it from there, once the value
        of the best of them has been found again.  Programs that run at the same time share the
        starts by it: one that dies loses the start that it is at, which another one does again.
    method, bounds, hessian, preconditioner, gradient_tolerance, relative_gradient_tolerance
        As for ``minimize``; preconditioners by name.
    constraints
        As for ``minimize``; an attempt that ends where they are violated has failed.
    value_tolerance, max_iterations, options
        Likewise.

    Returns
    -------
    Multistart
        The same on every rank.

    Raises
    ------
    InputError
        Bad numbers of ranks or starts; a folder with attempts from other starts, settings or data.

    Examples
    --------
    >>> from daeosens import ODE, LeastSquares, Parameter, Parameters, Reduced, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> misfit = LeastSquares([1.0, 2.0], [0.6, 0.36], sigma=0.1)
    >>> rates = Parameters({"rate": Parameter(0.5, lower=0.1, upper=2.0)}, initial_state=[1.0])
    >>> functional = Reduced(decay, misfit, Stepping((0.0, 2.0), "rk4", dt=0.1), rates)
    >>> from daeosens.inverse import starting_points
    >>> starts = starting_points(functional, 3)
    >>> optima = multistart(lambda comm: functional, starts, method="bnls")
    >>> optima.best.x.round(4).tolist(), optima.n_at_best()
    ([0.5108], 3)
    """
    comm = MPI.COMM_WORLD if comm is None else admit_comm(comm)
    if options is not None:
        require(options, Mapping, "options", 'options={"tao_max_funcs": 100}')
    settings: dict[str, Any] = {
        "method": method,
        "hessian": hessian,
        "preconditioner": preconditioner,
        "gradient_tolerance": gradient_tolerance,
        "relative_gradient_tolerance": relative_gradient_tolerance,
        "value_tolerance": value_tolerance,
        "max_iterations": max_iterations,
        "options": dict(options or {}),
    }
    agree(
        comm,
        "multistart",
        starts=starts,
        ranks_per_start=ranks_per_start,
        folder=folder is not None,
        bounds=bounds,
        constraints=constraints,
        **settings,
    )
    if not callable(build):
        raise InputError(
            f"build is {type(build).__name__}",
            expected="a function comm -> functional",
            remedy="lambda comm: functional",
        )
    points = finite_array(starts, "starts")
    if points.ndim != 2 or not points.size:
        raise InputError(f"starts have shape {points.shape}", expected="shape (count, n)")
    if whole_number(ranks_per_start, "ranks_per_start", least=1) and comm.size % ranks_per_start:
        raise InputError(
            f"ranks_per_start = {ranks_per_start} on {comm.size} ranks",
            expected="a divisor of the number of ranks",
        )
    place = None if folder is None else admit_path(folder, "folder")
    # Read by one rank, so that all of them know the same attempts.
    saved = settings if constraints is None else settings | {"constraints": _words(constraints)}
    done = on_first_rank(comm, lambda: finished(place, points, saved))
    # Neighbouring ranks form a group, in the same order.
    group = cast("MPI.Intracomm", comm.Split(comm.rank // ranks_per_start, comm.rank))
    first, step = comm.rank // ranks_per_start, comm.size // ranks_per_start
    todo = _todo(place, len(points), group, first, step)
    to_be_done = first < len(points) if place is None else len(done) < len(points)
    mine: list[Attempt] = []
    failure: Exception | None = None
    stopped = False
    try:
        # One group asks whether the files belong to this functional.
        checks = bool(done) and first == 0
        functional = _built(build, group) if to_be_done or checks else None
        if checks:
            assert functional is not None
            _check_same(functional, done.values(), place)
        for index in todo:
            assert functional is not None
            try:
                attempt = _attempt(
                    index,
                    functional,
                    points[index],
                    settings | {"bounds": bounds, "constraints": constraints},
                )
            except KeyboardInterrupt:  # before its first iterate
                keep_what_is_there()
                stopped = True
                break
            # Once for each group, whose ranks all have it.
            mine += [attempt] if group.rank == 0 else []
            if attempt.message == INTERRUPTED[1]:
                stopped = True
                break
            if place is not None:
                on_first_rank(group, partial(write_attempt, place, attempt, saved))
    except Exception as error:  # noqa: BLE001 (raised on all ranks)
        failure = error
    finally:
        todo.close()  # others may be waiting for the start that has failed here

    def own() -> None:
        if failure is not None:
            raise failure

    # A group that fails must not leave the others in the next collective call.
    on_every_rank(comm, own)
    attempts = {attempt.index: attempt for part in comm.allgather(mine) for attempt in part}
    group.Free()
    stopped = bool(comm.allreduce(stopped, op=MPI.LOR))
    if helping() and place is not None:
        raise Helped
    # those that other programs have done meanwhile
    attempts |= on_first_rank(comm, lambda: finished(place, points, saved))
    if stopped and not attempts:
        raise KeyboardInterrupt
    return Multistart(tuple(attempts[index] for index in sorted(attempts)), len(done), stopped)


def _todo(
    folder: Path | None, count: int, group: MPI.Intracomm, first: int, step: int
) -> Generator[int]:
    """Return which starts a group does: each ``step``-th, or what others leave in the folder."""
    if folder is None:
        return (index for index in range(first, count, step))
    names = [file_name(index) for index in range(count)]
    return claimed(folder, names, group, first * -(-count // step))


def _words(constraints: Constraint | Sequence[Constraint]) -> list[str]:
    return [str(item) for item in named(constraints)]


def _check_same(functional: Functional, done: Iterable[Attempt], folder: Path | None) -> None:
    """Refuse attempts of another functional: data and models are not in the files."""
    known = min(done, key=lambda attempt: attempt.value)
    if not math.isfinite(known.value):
        return
    x = scatter(known.x, functional.start())
    try:
        value = functional.value(x)
    except SolveError:
        value = math.inf
    x.destroy()
    assert folder is not None  # where they are from
    told = f"its value where start {known.index} ended is {known.value:.7g}, {value:.7g} here"
    off, size = abs(value - known.value), max(1.0, abs(known.value))
    check_same(off, size, folder, "multistart", told, ANOTHER_FOLDER)


def _built(build: Callable[[MPI.Intracomm], Functional], comm: MPI.Intracomm) -> Functional:
    try:
        functional = build(comm)
    except Exception as error:
        error.add_note("in callback 'build'")
        raise
    require_functional(functional)
    return functional


def _attempt(index: int, functional: Functional, start: Array, settings: dict[str, Any]) -> Attempt:
    begin = time.perf_counter()
    x0 = functional.start()
    if x0.getSize() != start.size:
        raise InputError(f"starts have {start.size} components", expected=str(x0.getSize()))
    scatter(start, x0)
    try:
        minimum = cast("Callable[..., Result | ConstrainedResult]", minimize)
        result = minimum(functional, x0, **settings)
    except SolveError as error:
        message = " ".join(str(error).split())
        seconds = time.perf_counter() - begin
        return Attempt(index, start, start, math.inf, math.inf, False, message, 0, 0, seconds)
    # Attempts are arrays: vectors live on the communicator of their group, which ends here.
    x = gather(result.x)
    result.x.destroy()
    infeasible = isinstance(result, ConstrainedResult) and result.violation > VIOLATION
    return Attempt(
        index,
        start,
        x,
        math.inf if infeasible else result.value,
        result.gradient_norm,
        result.converged,
        result.message,
        result.iterations,
        result.evaluations,
        time.perf_counter() - begin,
    )
