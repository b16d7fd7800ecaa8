"""Where a fit begins by bi-level estimation: at the estimate, and at those nearly as good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from daeosens.errors import InputError, SolveError
from daeosens.functional.parameters import Parameters
from daeosens.functional.reduced import Reduced
from daeosens.inverse.bilevel.estimate import Bilevel, bilevel
from daeosens.inverse.bilevel.functional import BilevelFunctional, Point
from daeosens.inverse.likelihood.experiments import Experiment
from daeosens.inverse.likelihood.noise import Noise, Observation, is_estimated
from daeosens.inverse.search.multistart import Multistart
from daeosens.petsc.agreement import on_first_rank
from daeosens.petsc.vectors import Array, gather, scatter

STARTS = 8
"""Starts of the nonlinear parameters at least."""

DELAYED = 16
"""Those of delay equations: delays have many minima, which no windows lead out of."""

ROUGH = 1e-4
"""Of the gradient of a bi-level estimate: windows move on by far more than the rest is."""

APART = 0.3
"""Bi-level estimates whose scaled parameters differ by less came to the same minimum."""

CANDIDATES = 3
"""So many different bi-level estimates are refined by windows; the best goes on."""

FURTHER = 5
"""So many starts are refined by windows besides, while chi-square rejects what there is."""


def estimated_starts(
    problem: Any,
    experiments: Sequence[Experiment],
    whole: Parameters,
    runs: Sequence[Reduced],
    observation: Observation,
    noise: Noise,
    starts: int,
    seed: int,
    columns: Sequence[str] | None,
    comm: MPI.Intracomm | None,
) -> tuple[Bilevel, list[Array]]:
    """Return the bi-level estimate, and x [k] of the fit at it and at the next best.

    ``runs`` are those of the fit.  Collective on ``comm``.
    """
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
    # of one rank for all: models that differ, or fail, lead to no other starts elsewhere
    ends = on_first_rank(
        MPI.COMM_SELF if comm is None else comm,
        lambda: _ends(first_estimate, whole, runs, noise),
    )
    return first_estimate, ends


def _ends(
    first_estimate: Bilevel, whole: Parameters, runs: Sequence[Reduced], noise: Noise
) -> list[Array]:
    """Return x [k] of the fit at the bi-level estimate and at the next best."""
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
        end = np.array([_scaled(whole, name, values[name]) for name in whole.free_names])
        # f does not tell parameters that only u0 depends on: they are fitted to the curves at the
        # first time
        ends.append(_with_starts(runs, first_estimate, end))
    return ends


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


def _with_starts(runs: Sequence[Reduced], first_estimate: Bilevel, x: Array) -> Array:
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
