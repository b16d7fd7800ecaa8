"""Where a fit without a good guess begins: bi-level estimation, then windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from daeosens.errors import InputError, SolveError, is_one_of
from daeosens.inverse.bilevel.bilevel_starts import estimated_starts
from daeosens.inverse.bilevel.delay_starts import held_from_delays, other_delays
from daeosens.inverse.bilevel.estimate import Bilevel
from daeosens.inverse.bilevel.shots import completed, shots_of, variance_of_data
from daeosens.inverse.bilevel.windows import Stage, held_windows, refined_by_windows
from daeosens.inverse.likelihood.experiments import Experiment
from daeosens.inverse.likelihood.likelihood import Likelihood
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.inverse.likelihood.noise import Noise, Observation, is_estimated
from daeosens.petsc.agreement import on_every_rank
from daeosens.petsc.vectors import Array, gather

HELD = 5
"""Samples of windows that are held where they begin: the shorter, the less does what is wrong."""

HOPELESS = 0.25
"""Held windows that leave so much of the variance of data are nowhere near: not gone on with."""

TWICE = 2
"""After so many starts without hope there is none for those that are left, which seemed worse."""


@dataclass(frozen=True, eq=False, repr=False)
class Preparation:
    """What came before a fit; prints itself.

    Attributes
    ----------
    bilevel : Bilevel or None
        The bi-level estimate, of ``start="bilevel"``.
    stages : tuple of Stage
        Of windows: held where they begin, where all unknowns were measured, then with ever smaller
        jumps, then of whole runs.
    x : array [k]
        Where the fit began.
    """

    bilevel: Bilevel | None
    stages: tuple[Stage, ...]
    x: Array

    def __repr__(self) -> str:
        """Return a line for each stage."""
        lines = ["stage                      jumps  half the sum of squares  iterations"]
        if self.bilevel is not None:
            lines.append(f"bi-level                          {self.bilevel.value:23.5g}")
        lines += [
            f"{_label(stage):20s}{stage.level:12.4g}  {stage.value:23.5g}{stage.iterations:12d}"
            for stage in self.stages
        ]
        return "\n".join(lines)


def _label(stage: Stage) -> str:
    """Return what a stage has integrated, in words."""
    windows = f"{stage.windows} windows" if stage.samples else "whole runs"
    return windows + ", held" * stage.held


def prepared(
    problem: Any,
    experiments: Sequence[Experiment],
    measured: Sequence[Measurements],
    likelihood: Likelihood,
    observation: Observation,
    noise: Noise,
    *,
    start: str,
    windows: int | None,
    starts: int,
    seed: int,
    columns: Sequence[str] | None,
    comm: MPI.Intracomm | None = None,
    points: Array | None = None,
) -> Preparation:
    """Return where to begin, from bi-level estimation (``start="bilevel"``) and windows.

    ``points`` [s, k] are the starts of windows where there is no bi-level estimate; by default the
    one that was given.

    Raises
    ------
    InputError
        Another word; what ``bilevel`` refuses.
    SolveError
        Windows that cannot be integrated from any of the estimates.
    """
    if not is_one_of(start, "given", "bilevel"):
        raise InputError(f"start = {start!r}", expected='"given" or "bilevel"')
    whole = likelihood.parameters
    runs = likelihood.functional.experiments
    first: Array = gather(runs[0].start())
    # where a fit would begin without all this
    ends, first_estimate = [first] if points is None else list(points), None
    if start == "bilevel":
        first_estimate, ends = estimated_starts(
            problem, experiments, whole, runs, observation, noise, starts, seed, columns, comm
        )
    if windows is None:
        return Preparation(first_estimate, (), ends[0])
    # each rank has its own copy of the problem, which may fail on one of them
    return on_every_rank(
        MPI.COMM_SELF if comm is None else comm,
        partial(
            _by_windows,
            measured,
            likelihood,
            observation,
            noise,
            windows,
            seed,
            points,
            ends,
            first_estimate,
        ),
    )


def _by_windows(
    measured: Sequence[Measurements],
    likelihood: Likelihood,
    observation: Observation,
    noise: Noise,
    windows: int,
    seed: int,
    points: Array | None,
    ends: list[Array],
    first_estimate: Bilevel | None,
) -> Preparation:
    """Return what windows that begin at each of some points come to."""
    runs = likelihood.functional.experiments
    shots, guesses = shots_of(runs, measured, likelihood, observation, noise)
    variance = sum(variance_of_data(shot) for shot in shots)
    lost: list[float] = []
    tried: list[tuple[list[Stage], Array, list[Stage]]] = []
    failure: SolveError | None = None
    known = not is_estimated(noise)
    # delays are kept where data tell of them, as in the fit
    limits = likelihood.search_bounds()
    how: dict[str, Any] = {"known": known, "limits": limits}
    if limits is not None:
        ends = [np.clip(end, *limits) for end in ends]
    complete = all(psi is not None for part in guesses for psi in part)

    def guessed(end: Array) -> list[Callable[[Array], Array]]:
        return [
            completed(shot, interpolants, end)
            for shot, interpolants in zip(shots, guesses, strict=True)
        ]

    def held_at(end: Array) -> Stage:
        return held_windows(shots, end, min(windows, HELD), guessed(end), **how)

    begun: list[tuple[Array, Stage | None]] = [(end, None) for end in ends]
    if likelihood.limits and first_estimate is None and points is None:
        others = other_delays(likelihood, shots, ends[0], seed)
        if complete:
            stages = held_from_delays([*ends, *others], held_at, HOPELESS * variance, known=known)
            begun = [*stages] or begun
        elif known:  # one after the other, while chi-square rejects what there is
            begun += [(other, None) for other in others]
    for end, stage in begun:
        try:
            held = [held_at(end) if stage is None else stage] if complete else []
            share = max((stage.value / variance for stage in held), default=0.0)
            if known and share > HOPELESS and not held[0].explained and len(begun) > 1:
                lost.append(share)
                if len(lost) == TWICE and not tried and first_estimate is not None:
                    break
                continue
            begin = held[0].x if held else end
            stages = refined_by_windows(shots, begin, windows, guessed(end), single=True, **how)
            # where noise levels are known, chi-square tells which candidate is worth going on with
            explained = known and stages[0].explained
            if explained or len(begun) == 1:
                stages = refined_by_windows(shots, begin, windows, [], begun=stages[0], **how)
        except SolveError as error:
            failure = error
            continue
        tried.append((held, begin, stages))
        if explained and stages[-1].explained:
            break  # the others can come to no less
    if not tried and lost:
        kind = "starts" if first_estimate is None else "bi-level estimates"
        raise SolveError(
            f"windows from {len(lost)} {kind} leave {min(lost):.0%} of the variance of the data "
            "unexplained",
            expected=f"{HOPELESS:.0%} or less, from which fits come to the rest",
            remedy="starts nearer to the truth, bounds, or more measurements of what is fast",
        )
    if not tried:
        raise SolveError(
            f"no window could be integrated: {failure}",
            remedy="an implicit method, looser tolerances, or bounds on the parameters",
        ) from failure
    # those that have become one run are compared as such; otherwise the best first stage goes on
    whole_runs = [attempt for attempt in tried if len(attempt[2]) > 1 or not attempt[2][0].jumps]
    held, begin, best = min(whole_runs or tried, key=lambda attempt: attempt[2][-1].value)
    if not whole_runs:
        best = refined_by_windows(shots, begin, windows, [], begun=best[0], **how)
    return Preparation(first_estimate, (*held, *best), best[-1].x)
