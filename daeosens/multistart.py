"""Many starts for one minimisation, on groups of ranks; what is finished is not done again."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from petsc4py import PETSc
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from daeosens.arrays import Array, finite_array, gather, scatter
from daeosens.curvature import HessianKind
from daeosens.errors import DaeosensError, InputError, SolveError, together
from daeosens.functional import Functional
from daeosens.io.agreement import on_every_rank, on_first_rank
from daeosens.io.json_values import plain, write_json
from daeosens.optimize import minimize
from daeosens.options import Options

Sampling: TypeAlias = Literal["sobol", "latin_hypercube"]


@dataclass(frozen=True, eq=False)
class Attempt:
    """What came of one start.

    Attributes
    ----------
    index : int
        Number of the start.
    start, x : array [n]
        Where it began and ended; the start itself if the solve failed there.
    value, gradient_norm : float
        At x; infinite if the solve failed at the start.
    converged : bool
        Whether a tolerance was met.
    message : str
        Why it ended.
    iterations, evaluations : int
    seconds : float
    """

    index: int
    start: Array
    x: Array
    value: float
    gradient_norm: float
    converged: bool
    message: str
    iterations: int
    evaluations: int
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class Multistart:
    """All attempts; prints itself.

    Attributes
    ----------
    attempts : tuple of Attempt
        In the order of the starts.
    resumed : int
        How many were read from the folder.
    """

    attempts: tuple[Attempt, ...]
    resumed: int = 0

    @property
    def ranked(self) -> tuple[Attempt, ...]:
        """The attempts, best value first; failed ones last."""
        return tuple(sorted(self.attempts, key=lambda each: (each.value, each.index)))

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
        return sum(each.value <= self.best.value + tolerance for each in self.attempts)

    def __repr__(self) -> str:
        """Return the best ten and the counts."""
        failed = sum(not math.isfinite(each.value) for each in self.attempts)
        unfinished = sum(not each.converged for each in self.attempts) - failed
        lines = [" rank  start          value  iterations  why it ended"]
        for rank, each in enumerate(self.ranked[:10], 1):
            lines.append(
                f"{rank:5d}  {each.index:5d}  {each.value:13.7g}  {each.iterations:10d}  "
                f"{each.message.splitlines()[0]}"
            )
        if len(self.attempts) > 10:
            lines.append(f"  ... {len(self.attempts) - 10} more")
        count = f"{len(self.attempts)} starts"
        if failed < len(self.attempts):
            count += f", {self.n_at_best()} within 0.01 of the best value"
        count += f", {failed} failed, {unfinished} not converged"
        lines.append(count + (f", {self.resumed} read from before" if self.resumed else ""))
        return "\n".join(lines)


def starting_points(
    functional: Functional,
    count: int,
    *,
    names: Sequence[str] = (),
    normal: Mapping[int, tuple[float, float]] | None = None,
    sampling: Sampling = "sobol",
    seed: int = 0,
) -> Array:
    """Return starts [count, n] spread over the bounds, or over priors; the first is the usual one.

    In the optimiser's scale: uniform in the logarithm for ``scale="log"``.  Collective.

    Parameters
    ----------
    functional : Functional
        Its start and its bounds.
    count : int
        Number of starts.
    names : sequence of str [n], optional
        For messages.
    normal : mapping of int to (mean, sigma), optional
        Components that have a normal prior: spread as it is, within the bounds.
    sampling : "sobol" or "latin_hypercube"
        Low-discrepancy points, or one point in each of ``count`` slices of every component.
    seed : int
        The same seed gives the same starts.

    Raises
    ------
    InputError
        A component has neither a prior nor two finite bounds.
    """
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise InputError(f"number of starts = {count!r}", expected="an integer >= 1")
    if sampling not in ("sobol", "latin_hypercube"):
        raise InputError(f"sampling = {sampling!r}", expected='"sobol" or "latin_hypercube"')
    start = gather(functional.start())
    size = len(start)
    bounds = functional.bounds()
    lower = np.full(size, -math.inf) if bounds is None else gather(bounds[0])
    upper = np.full(size, math.inf) if bounds is None else gather(bounds[1])
    laws: Mapping[int, tuple[float, float]] = {} if normal is None else normal
    labels = tuple(names) or tuple(f"x[{i}]" for i in range(size))
    complaints = [
        f'"{labels[i]}" lies in [{lower[i]:g}, {upper[i]:g}] in the optimiser\'s scale; expected: '
        "two finite bounds (positive ones on a log scale), or a prior"
        for i in range(size)
        if i not in laws and not math.isfinite(upper[i] - lower[i])
    ]
    if count > 1 and complaints:
        raise together(complaints, heading="starts")
    if count == 1:
        return start[None, :]
    shares = _unit_points(int(count) - 1, size, sampling, seed)
    points = np.empty_like(shares)
    for i in range(size):
        if i in laws:
            mean, sigma = laws[i]
            ends = ndtr((np.array([lower[i], upper[i]]) - mean) / sigma)
            share = np.clip(ends[0] + shares[:, i] * (ends[1] - ends[0]), 1e-12, 1.0 - 1e-12)
            points[:, i] = np.clip(mean + sigma * ndtri(share), lower[i], upper[i])
        else:
            points[:, i] = lower[i] + shares[:, i] * (upper[i] - lower[i])
    return np.vstack([start, points])


def _unit_points(count: int, size: int, sampling: Sampling, seed: int) -> Array:
    """Return points [count, size] in the unit cube."""
    if sampling == "latin_hypercube":
        return np.asarray(qmc.LatinHypercube(size, rng=seed).random(count), dtype=float)
    # Sobol points are balanced in powers of two only
    powers = max(0, math.ceil(math.log2(count)))
    return np.asarray(qmc.Sobol(size, rng=seed).random_base2(powers)[:count], dtype=float)


def multistart(
    build: Callable[[MPI.Intracomm], Functional],
    starts: npt.ArrayLike,
    *,
    comm: MPI.Intracomm | None = None,
    ranks_per_start: int = 1,
    folder: str | Path | None = None,
    method: str = "lmvm",
    hessian: HessianKind = "exact",
    gradient_tolerance: float = 1e-8,
    relative_gradient_tolerance: float = 0.0,
    value_tolerance: float = 0.0,
    max_iterations: int = 1000,
    options: Options | None = None,
) -> Multistart:
    """Minimise from each start, on groups of ranks.  Collective on ``comm``.

    The ranks are cut into groups of ``ranks_per_start``; group g of G takes starts g, g + G, and so
    on.  An attempt depends on its start and on the size of its group alone.

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
        Each finished start is written there at once; a rerun takes it from there.
    method, hessian, gradient_tolerance, relative_gradient_tolerance, value_tolerance
        As for ``minimize``.
    max_iterations, options
        Likewise.

    Returns
    -------
    Multistart
        The same on every rank.

    Raises
    ------
    InputError
        Bad numbers of ranks or starts; a folder with attempts from other starts or settings.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    points = finite_array(starts, "starts")
    if points.ndim != 2 or not points.size:
        raise InputError(f"starts have shape {points.shape}", expected="shape (count, n)")
    if ranks_per_start < 1 or comm.size % ranks_per_start:
        raise InputError(
            f"ranks_per_start = {ranks_per_start} on {comm.size} ranks",
            expected="a divisor of the number of ranks",
        )
    settings = {
        "method": method,
        "hessian": hessian,
        "gradient_tolerance": gradient_tolerance,
        "relative_gradient_tolerance": relative_gradient_tolerance,
        "value_tolerance": value_tolerance,
        "max_iterations": max_iterations,
        "options": dict(options or {}),
    }
    place = None if folder is None else Path(folder)
    done = on_first_rank(comm, lambda: _finished(place, points, settings))
    group = cast("MPI.Intracomm", comm.Split(comm.rank // ranks_per_start, comm.rank))
    first, step = comm.rank // ranks_per_start, comm.size // ranks_per_start
    todo = [index for index in range(first, len(points), step) if index not in done]
    mine: list[Attempt] = []
    failure: Exception | None = None
    try:
        functional = build(group) if todo else None
        for index in todo:
            assert functional is not None
            attempt = _attempt(
                index,
                functional,
                points[index],
                method=method,
                hessian=hessian,
                gradient_tolerance=gradient_tolerance,
                relative_gradient_tolerance=relative_gradient_tolerance,
                value_tolerance=value_tolerance,
                max_iterations=max_iterations,
                options=options,
            )
            mine += [attempt] if group.rank == 0 else []
            if place is not None:
                on_first_rank(group, partial(_write, place, attempt, settings))
    except Exception as error:  # noqa: BLE001 (raised on all ranks)
        failure = error

    def own() -> None:
        if failure is not None:
            raise failure

    on_every_rank(comm, own)
    found = [*done.values(), *(each for part in comm.allgather(mine) for each in part)]
    group.Free()
    return Multistart(tuple(sorted(found, key=lambda each: each.index)), len(done))


def _attempt(
    index: int,
    functional: Functional,
    start: Array,
    *,
    method: str,
    hessian: HessianKind,
    gradient_tolerance: float,
    relative_gradient_tolerance: float,
    value_tolerance: float,
    max_iterations: int,
    options: Options | None,
) -> Attempt:
    begin = time.perf_counter()
    x0 = functional.start()
    if x0.getSize() != start.size:
        raise InputError(f"starts have {start.size} components", expected=str(x0.getSize()))
    scatter(start, x0)
    try:
        result = minimize(
            functional,
            x0,
            method=method,
            hessian=hessian,
            gradient_tolerance=gradient_tolerance,
            relative_gradient_tolerance=relative_gradient_tolerance,
            value_tolerance=value_tolerance,
            max_iterations=max_iterations,
            options=options,
        )
    except (SolveError, PETSc.Error) as error:
        message = " ".join(str(error).split())
        seconds = time.perf_counter() - begin
        return Attempt(index, start, start, math.inf, math.inf, False, message, 0, 0, seconds)
    x = gather(result.x)
    result.x.destroy()
    return Attempt(
        index,
        start,
        x,
        result.value,
        result.gradient_norm,
        result.converged,
        result.message,
        result.iterations,
        result.evaluations,
        time.perf_counter() - begin,
    )


def _path(folder: Path, index: int) -> Path:
    return folder / f"start_{index:05d}.json"


def _write(folder: Path, attempt: Attempt, settings: Mapping[str, Any]) -> None:
    path = _path(folder, attempt.index)
    try:
        write_json(path, {"settings": settings, "attempt": attempt})
    except OSError as error:
        raise DaeosensError(
            f"{path}: cannot be written ({error.strerror})", expected="a writable folder"
        ) from error


def _finished(
    folder: Path | None, points: Array, settings: Mapping[str, Any]
) -> dict[int, Attempt]:
    """Return the attempts that the folder holds, checked against the starts; make the folder."""
    if folder is None:
        return {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be made ({error.strerror})", expected="a folder for the attempts"
        ) from error
    found: dict[int, Attempt] = {}
    for index, start in enumerate(points):
        path = _path(folder, index)
        if path.is_file():
            found[index] = _read(path, start, settings)
    return found


def _read(path: Path, start: Array, settings: Mapping[str, Any]) -> Attempt:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entry = content["attempt"]
        attempt = Attempt(
            int(entry["index"]),
            np.array(entry["start"], dtype=float),
            np.array(entry["x"], dtype=float),
            float(entry["value"]),
            float(entry["gradient_norm"]),
            bool(entry["converged"]),
            str(entry["message"]),
            int(entry["iterations"]),
            int(entry["evaluations"]),
            float(entry["seconds"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not an attempt of a multistart ({type(error).__name__}: {error})",
            expected="a file that multistart wrote",
            remedy=f"rm {path}",
        ) from error
    if not np.array_equal(attempt.start, start) or content["settings"] != plain(settings):
        raise InputError(
            f"{path} belongs to a multistart with other starts or settings",
            expected="the same ones, to go on with it",
            remedy="another folder, or remove this one",
        )
    return attempt
