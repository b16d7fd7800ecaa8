"""Where a fit without a good guess begins: bi-level estimation, then windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from mpi4py import MPI

from daeosens.costs.least_squares import LeastSquares
from daeosens.costs.observation import paired_unknowns
from daeosens.errors import InputError, SolveError, is_one_of
from daeosens.functional.parameters import Parameters
from daeosens.functional.reduced import Reduced
from daeosens.inverse.bilevel.estimate import Bilevel, bilevel
from daeosens.inverse.bilevel.functional import BilevelFunctional, Point
from daeosens.inverse.bilevel.interpolants import FEWEST
from daeosens.inverse.bilevel.samples import curve, positive_columns
from daeosens.inverse.bilevel.shooting import Shot
from daeosens.inverse.bilevel.windows import Stage, held_windows, refined_by_windows
from daeosens.inverse.likelihood.experiments import Experiment
from daeosens.inverse.likelihood.likelihood import Likelihood
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.inverse.likelihood.noise import Noise, Observation, is_estimated
from daeosens.inverse.search.multistart import Multistart
from daeosens.petsc.vectors import Array, gather, scatter

STARTS = 8
"""Starts of the nonlinear parameters at least."""

DELAYED = 16
"""Those of delay equations: delays have many minima, which no windows lead out of."""

ROUGH = 1e-4
"""Of the gradient of a bi-level estimate: windows move on by far more than the rest is."""

APART = 0.3
"""Bi-level estimates whose scaled parameters differ by less came to the same minimum."""

HELD = 5
"""Samples of windows that are held where they begin: the shorter, the less does what is wrong."""

CANDIDATES = 3
"""So many different bi-level estimates are refined by windows; the best goes on."""

FURTHER = 5
"""So many starts are refined by windows besides, while chi-square rejects what there is."""

HOPELESS = 0.25
"""Held windows that leave so much of the variance of data are nowhere near: not gone on with."""

OTHERS = 7
"""So many other delays windows begin at, while those that were given lead nowhere."""

DELAYS = (1e-2, 0.5)
"""Between these parts of the longest run they lie."""

AS_NOISY = 2.0
"""Chi-square of held windows near the truth is at most so large: they begin at measurements."""

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
        first_estimate, ends = _bilevel(
            problem, experiments, whole, observation, noise, starts, seed, columns, comm
        )
        # f does not tell parameters that only u0 depends on: they are fitted to the curves at the
        # first time
        ends = [_with_starts(runs, first_estimate, end) for end in ends]
    if windows is None:
        return Preparation(first_estimate, (), ends[0])
    shots, guesses = _shots(runs, measured, likelihood, observation, noise)
    variance = sum(_variance(shot) for shot in shots)
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
            _completed(shot, interpolants, end)
            for shot, interpolants in zip(shots, guesses, strict=True)
        ]

    def held_at(end: Array) -> Stage:
        return held_windows(shots, end, min(windows, HELD), guessed(end), **how)

    begun: list[tuple[Array, Stage | None]] = [(end, None) for end in ends]
    if likelihood.limits and first_estimate is None and points is None:
        others = _other_delays(likelihood, shots, ends[0], seed)
        if complete:
            stages = _held_from_delays([*ends, *others], held_at, HOPELESS * variance, known=known)
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


def _other_delays(
    likelihood: Likelihood, shots: Sequence[Shot], x: Array, seed: int
) -> list[Array]:
    """Return x with other delays: parts of the longest run within their bounds, evenly by log."""
    names = likelihood.parameters.free_names
    lasting = max(max(shot.misfit.times) - shot.run.stepping.t_span[0] for shot in shots)
    qmc = scipy.stats.qmc  # imported here: it takes longer than all the rest of SciPy together
    # a sequence, which is even however few of them are tried
    halton = qmc.Halton(len(likelihood.limits), rng=np.random.default_rng(seed))
    points = np.tile(x, (OTHERS, 1))
    for (name, delay), share in zip(
        likelihood.limits.items(), halton.random(OTHERS).T, strict=True
    ):
        low, high = np.clip(np.multiply(DELAYS, lasting), delay.lower, delay.upper)
        if low == high:  # bounds beyond these parts of the longest run
            low = max(delay.lower, 0.1 * high)
            high = min(delay.upper, 10.0 * low)
        values = low * (high / low) ** share
        points[:, names.index(name)] = [delay.scaled(value) for value in values.tolist()]
    return [*points]


def _held_from_delays(
    points: Sequence[Array], held_at: Callable[[Array], Stage], hopeless: float, *, known: bool
) -> list[tuple[Array, Stage]]:
    """Return held windows from several delays and where each began, best first.

    Delays have minima of their own, to each of which rates are found that do best with them.  Held
    windows come there in seconds; where noise levels are known, until one is near the truth.
    """
    stages: list[tuple[Array, Stage]] = []
    for point in points:
        try:
            stage = held_at(point)
        except SolveError:
            continue
        stages.append((point, stage))
        if known and 2.0 * stage.value < AS_NOISY * stage.degrees:
            return [stages[-1]]
    stages.sort(key=lambda attempt: attempt[1].value)
    different: list[tuple[Array, Stage]] = []
    for point, stage in stages:
        if all(np.abs(stage.x - other.x).max() > APART for _, other in different):
            different.append((point, stage))
    # without noise levels nothing tells when to go on to the next
    best = different[: CANDIDATES if known else 1]
    return [attempt for attempt in best if attempt[1].value <= hopeless] or best[:1]


def _variance(shot: Shot) -> float:
    """Return half the sum of squares that constants leave, in units of the noise levels."""
    misfit: Any = shot.misfit
    data: Array = misfit.scaled_data
    seen = np.isfinite(data)
    # of a column of which nothing was measured there is no mean
    means = np.sum(data, axis=0, where=seen) / np.maximum(seen.sum(axis=0), 1)
    return 0.5 * float(np.sum(((data - means) / misfit.sigma) ** 2, where=seen))


def _bilevel(
    problem: Any,
    experiments: Sequence[Experiment],
    whole: Parameters,
    observation: Observation,
    noise: Noise,
    starts: int,
    seed: int,
    columns: Sequence[str] | None,
    comm: MPI.Intracomm | None,
) -> tuple[Bilevel, list[Array]]:
    """Return the bi-level estimate, and x [k] of the fit at it and at the next best."""
    if callable(observation.observe):
        raise InputError(
            'start="bilevel" with a function observe=',
            expected="measurements of the unknowns themselves",
            remedy='windows=5 with start="given", which integrates what was not measured',
        )
    first_estimate = bilevel(
        problem,
        list(experiments),
        whole,
        observe=observation.observe,
        columns=columns,
        starts=max(starts, STARTS if problem.delays is None else DELAYED),
        seed=seed,
        gradient_tolerance=ROUGH,
        comm=comm,
    )
    points = [first_estimate.x]
    if first_estimate.starts is not None:
        for attempt in first_estimate.starts.ranked:
            # starts that came to the same minimum are one candidate
            far = all(np.abs(attempt.x - point).max() > APART for point in points)
            if np.isfinite(attempt.value) and far and len(points) < CANDIDATES:
                points.append(attempt.x)
        if not is_estimated(noise):
            points += _best_starts(first_estimate.functional, first_estimate.starts)
    functional = first_estimate.functional
    ends: list[Array] = []
    for point in points:
        values = dict(first_estimate.estimate)
        values |= _positive(whole, first_estimate.linear, functional.at(point))
        values |= dict(
            zip(first_estimate.nonlinear, functional.unscaled(point).tolist(), strict=True)
        )
        ends.append(np.array([_scaled(whole, name, values[name]) for name in whole.free_names]))
    return first_estimate, ends


def _best_starts(functional: BilevelFunctional, attempts: Multistart) -> list[Array]:
    """Return those starts whose inner problem leaves least: what noise in curves does not bend.

    They are tried where chi-square tells that no minimiser led to the data.
    """
    values: list[tuple[float, int]] = []
    for attempt in attempts.attempts:
        try:
            value = functional.value(functional.vector(attempt.start))
        except SolveError:
            continue
        values.append((value, attempt.index))
    best = sorted(values)[:FURTHER]
    return [attempts.attempts[index].start for _, index in best]


def _positive(whole: Parameters, names: Sequence[str], at: Point) -> dict[str, float]:
    """Return the linear parameters, those on a log scale above zero.

    One that is zero becomes the standard deviation that it had if it were the only unknown: from
    far less a logarithm does not come back, as nothing depends on it there.
    """
    residual, inner = at.residual, at.inner
    degrees = max(len(residual) - len(names) - at.by_others.shape[1], 1)
    deviations = inner.scale * np.sqrt(float(residual @ residual) / degrees)
    # without a residual there is no deviation either
    deviations = np.maximum(deviations, 1e-12 * inner.scale * np.linalg.norm(at.matrix @ inner.p))
    return {
        name: max(value, deviation) if whole.entries[name].scale == "log" else value
        for name, value, deviation in zip(names, inner.p.tolist(), deviations.tolist(), strict=True)
    }


def _scaled(whole: Parameters, name: str, value: float) -> float:
    """Return an estimate within its bounds, as the optimiser sees it."""
    entry = whole.entries[name]
    return entry.scaled(min(max(value, entry.lower), entry.upper))


def _with_starts(
    runs: Sequence[Reduced],
    first_estimate: Bilevel,
    x: Array,
) -> Array:
    """Return x with those parameters that only the initial state depends on fitted to it."""
    names = runs[0].control.free_names if isinstance(runs[0].control, Parameters) else ()
    own = [k for k, name in enumerate(names) if name in first_estimate.unused]
    if not own:
        return x
    for _ in range(5):
        rows: list[Array] = []
        rests: list[Array] = []
        for run, samples in zip(runs, first_estimate.functional.experiments, strict=True):
            vec = scatter(x, run.start())
            u0 = run.problem.admit_state(run.control.unpack(run.problem, vec)[0])
            target = np.array([psi(samples.samples.breaks[0]) for psi in samples.samples.psi])
            weights = samples.samples.weights
            rests.append(weights * (target - gather(u0)))
            columns: list[Array] = []
            for k in own:
                unit = scatter(np.eye(len(x))[k], run.start())
                du0 = run.control.push_forward(run.problem, vec, unit)[0]
                columns.append(weights * (np.zeros(len(weights)) if du0 is None else gather(du0)))
            rows.append(np.array(columns).T)
        # Newton's method for u0(x) = the curves at the start; five steps do for what is nearly
        # linear
        step = np.linalg.lstsq(np.vstack(rows), np.concatenate(rests))[0]
        x = x.copy()
        x[own] += step
    return x


def _shots(
    runs: Sequence[Reduced],
    measured: Sequence[Measurements],
    likelihood: Likelihood,
    observation: Observation,
    noise: Noise,
) -> tuple[list[Shot], list[list[Callable[..., Any] | None]]]:
    """Return experiments for windows, and what was measured of each unknown as functions."""
    shots: list[Shot] = []
    guesses: list[list[Callable[..., Any] | None]] = []
    above = positive_columns(measured)
    for run, data, misfit, prior in zip(
        runs, measured, likelihood.misfits, likelihood.priors, strict=True
    ):
        n = run.problem.size
        spread = np.array([_spread(data, j) for j in range(len(data.names))])
        unequal = is_estimated(noise) and noise.each_column
        level: npt.ArrayLike = 1.0 if is_estimated(noise) else noise.sigma
        level = spread if unequal else level
        levels = np.broadcast_to(np.asarray(level, dtype=float), data.values.shape[-1:])
        u0 = run.problem.admit_state(run.control.unpack(run.problem, run.start())[0])
        sizes = np.maximum(np.abs(gather(u0)), 1e-3 * float(spread.max()))
        # an unknown that was not measured may jump between windows as the noisiest column does,
        # relatively
        own_levels = sizes * float(np.max(levels / spread))
        psi: list[Callable[..., Any] | None] = [None] * n
        positive = np.zeros(n, dtype=bool)
        if not callable(observation.observe) and misfit.scale == "linear":
            unknowns = paired_unknowns(run.problem, observation.observe, data.names)
            for j, unknown in enumerate(unknowns.tolist()):
                seen = data.observed[:, j]
                times, values = data.times[seen], data.values[seen, j]
                positive[unknown] = above[j]
                sizes[unknown], own_levels[unknown] = spread[j], levels[j]
                if len(np.unique(times)) >= FEWEST["cubic"]:
                    psi[unknown] = curve(times, values, "cubic", positive=bool(above[j]))
        weighed: LeastSquares = replace(misfit, sigma=np.array(levels))
        least = 0.0 if is_estimated(noise) else float(np.min(levels / spread))
        shots.append(Shot(run, weighed, prior, sizes, own_levels, positive, least))
        guesses.append(psi)
    return shots, guesses


def _spread(data: Measurements, column: int) -> float:
    """Return the standard deviation of a column, or its size if that is zero."""
    values = data.values[data.observed[:, column], column]
    size = float(np.abs(values).max())
    spread = float(np.std(values))
    return spread if spread > 1e-12 * size else (size or 1.0)


def _completed(
    shot: Shot, psi: Sequence[Callable[..., Any] | None], x: Array
) -> Callable[[Array], Array]:
    """Return a guess of states [w, n] at times: measurements, else the run at x."""
    unseen = [k for k, column in enumerate(psi) if column is None]

    def guess(times: Array) -> Array:
        states = np.zeros((len(times), len(psi)))
        for k, column in enumerate(psi):
            if column is not None:
                states[:, k] = column(times)
        if unseen and len(times):
            run = shot.run.trajectory(x)
            rows = [run.index(float(time)) for time in times]
            states[:, unseen] = np.array([gather(run.stored[row]) for row in rows])[:, unseen]
        return states

    return guess
