"""Minimisations that ended on a plateau, where the gradient vanishes far from any minimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from petsc4py import PETSc

from daeosens.errors import SolveError
from daeosens.functional.functional import Functional, HasTrials
from daeosens.functional.parameters import labels, own_sizes
from daeosens.inverse.uncertainty.hessian_at_estimate import curvature
from daeosens.optimize import Result
from daeosens.petsc.vectors import gather, scatter

FROM_HERE = (1 / 3, 1 / 10, 1 / 30, 1 / 100, 3.0, 10.0, 30.0)
FROM_START = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3)
"""By what a parameter, and its start, are multiplied to look for lower ground."""

LOWER = 1e-3
"""How much lower the negative log-likelihood has to be to count: far below what data can tell."""

ROUNDS = 3

PLATEAU = "on a plateau"
"""In the note that says so."""


def off_plateau(
    functional: Functional, first: Result, minimized: Callable[[Functional, PETSc.Vec], Result]
) -> Result:
    """Go on from lower ground, if a minimisation ended on a plateau.  Collective.

    A saturated rate (exp(-k t) gone at the first observation) leaves no gradient, which meets any
    tolerance on it.  What tells a plateau from a minimum: the model hardly feels a change of the
    parameter by its own size.  Only then is the likelihood looked at elsewhere, at multiples of the
    parameter and at its start, a run for each.

    Parameters
    ----------
    functional : Functional
        The negative log-likelihood.
    first : Result
        Where the minimisation ended.
    minimized : callable
        (functional, x0 [k]) -> Result.

    Returns
    -------
    Result
        The first one, if there is no lower ground; else the lowest, with a note.
    """
    spent, best = [first], first
    notes: tuple[str, ...] = ()
    rounds = 0 if first.reason == "DIVERGED_MAXITS" else ROUNDS
    for _ in range(rounds):
        lower = _lower_ground(functional, best)
        if lower is None:
            break
        name, x = lower
        again = minimized(functional, x)
        spent.append(again)
        # It has come back to the same level: no lower ground after all.
        if again.value > best.value - LOWER:
            break
        best = again
        if again.interrupted:
            break
        notes = (f"it ended {PLATEAU} first, without gradient in {name}, and went on from below",)
    if len(spent) == 1:
        return first
    return replace(
        best,
        iterations=sum(result.iterations for result in spent),
        evaluations=sum(result.evaluations for result in spent),
        failed_solves=sum(result.failed_solves for result in spent),
        restarts=sum(result.restarts for result in spent),
        hessian_products=sum(result.hessian_products for result in spent),
        seconds=sum(result.seconds for result in spent),
        notes=(*best.notes, *notes),
    )


def _lower_ground(functional: Functional, result: Result) -> tuple[str, PETSc.Vec] | None:
    """Return a point lower than the result, and the parameter that leads there; None: no such."""
    x = result.x
    names, scales = labels(functional, x.getSize())
    # Curvature times the square of the own size: below 1 a change by that size is less than a
    # standard error.
    felt = np.diag(curvature(functional, x, "gauss_newton")) * own_sizes(functional, x) ** 2
    flat = np.flatnonzero(felt < 1.0)
    lower: tuple[str, PETSc.Vec] | None = None
    lowest = result.value - LOWER
    if flat.size and isinstance(functional, HasTrials):
        # The run at x sets how many steps are many, far from it models may become stiff.
        functional.value(x)
        functional.limit_steps(limited=True)
    try:
        for i in flat.tolist():
            for point in _elsewhere(functional, x, i, log=scales[i] == "log"):
                try:
                    value = functional.value(point)
                except SolveError:
                    continue
                if math.isfinite(value) and value < lowest:
                    lowest, lower = value, (names[i], point)
                    if isinstance(functional, HasTrials):
                        functional.limit_steps(limited=True)
    finally:
        if isinstance(functional, HasTrials):
            functional.limit_steps(limited=False)
    return lower


def _elsewhere(functional: Functional, x: PETSc.Vec, i: int, *, log: bool) -> Iterator[PETSc.Vec]:
    """Yield points that differ from x in the i-th entry, within the bounds."""
    point, start = gather(x), gather(functional.start())
    bounds = functional.bounds()
    # the start first: lower ground there spares runs that are stiff, where the parameter went
    pairs = [(start[i], factor) for factor in FROM_START]
    pairs += [(point[i], factor) for factor in FROM_HERE]
    for origin, factor in pairs:
        # x is the logarithm, so factors are added.
        value = origin + math.log(factor) if log else origin * factor
        moved = point.copy()
        moved[i] = value
        if bounds is not None:
            moved = np.clip(moved, gather(bounds[0]), gather(bounds[1]))
        if moved[i] != point[i]:
            yield scatter(moved, x.duplicate())
