"""Delays that are estimated: bounds that keep them where data tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from daeosens.errors import InputError, SolveError
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.petsc.vectors import Array
from daeosens.problem.delays import Delays

SHORTEST = 1e-3
"""Of the longest run: no step is longer than a delay, so that shorter ones take that many steps."""


def delays_in_reach(
    delays: Delays,
    names: Sequence[str],
    parts: Sequence[Parameters],
    begins: Sequence[float],
    lengths: Sequence[float],
) -> dict[str, Parameter]:
    """Return the free parameters that are delays, with bounds within which data tell of them.

    From below by a thousandth of the longest run, unless a bound or the start says less: towards
    zero runs take ever more steps.  From above by the longest run, unless history changes in time:
    a delay that is as long as all runs sees nothing but history, so that data tell nothing of it.

    Parameters
    ----------
    delays : Delays
    names : sequence of str
        Of the problem's parameters.
    parts : sequence of Parameters
        Those of each experiment.
    begins, lengths : sequence of float
        Where each run begins, and how long data last after that.

    Raises
    ------
    InputError
        A delay that is not positive, or as long as all runs, where it begins; a bound below zero.
    """
    longest = max(lengths)
    points = [
        np.array([part.entries[part.entry_of(name)].value for name in names], dtype=float)
        for part in parts
    ]
    try:
        starts = np.array([delays.values(p) for p in points])
    except SolveError as error:
        raise InputError(f"at the start: {error}") from error
    steady = all(
        _is_steady(delays, p, begin, longest) for p, begin in zip(points, begins, strict=True)
    )
    beyond: list[bool] = np.all(starts >= np.array(lengths)[:, None], axis=0).tolist()
    bounded: dict[str, Parameter] = {}
    for k, called in enumerate(delays.names):
        moved = [_moving(delays, k, part, names, p) for part, p in zip(parts, points, strict=True)]
        if not any(moved):
            continue
        if steady and beyond[k]:
            raise InputError(
                f"delay {called} begins at {starts[:, k].min():g}, but data end {longest:g} after "
                "the start of a run, so that it sees nothing but history",
                expected=f"a delay shorter than {longest:g}",
                remedy="a shorter one, data of a longer time, or Parameter(..., free=False)",
            )
        name = called.strip('"')
        if name in names:  # a delay that is a parameter itself
            for part in parts:
                label = part.entry_of(name)
                if part.entries[label].free:
                    bounded[label] = _bounded(
                        label, part.entries[label], longest, longest if steady else np.inf
                    )
    return bounded


def _bounded(name: str, delay: Parameter, longest: float, upper: float) -> Parameter:
    """Return a delay within what data can tell of it."""
    if np.isfinite(delay.lower) and delay.lower < 0.0:
        raise InputError(
            f'delay "{name}" has the lower bound {delay.lower:g}',
            expected="a bound that is not negative",
            remedy="lower=0.0, or none",
        )
    shortest = SHORTEST * longest
    if delay.value < shortest:
        shortest = SHORTEST * delay.value  # the start knows better
    return replace(
        delay,
        lower=delay.lower if delay.lower > 0.0 else min(shortest, delay.upper),
        upper=min(delay.upper, max(upper, delay.value)),
    )


def _is_steady(delays: Delays, p: Array, begin: float, longest: float) -> bool:
    """Whether history is the same at all times that delays may look back to."""
    times = begin - longest * np.array([0.0, 0.1, 0.3, 1.0, 3.0])
    try:
        with np.errstate(all="ignore"):
            past = np.array([delays.history(time, p) for time in times.tolist()])
    except SolveError:
        return False  # a logarithm, say, that ends on the way back
    return bool((past == past[0]).all())


def _moving(delays: Delays, k: int, part: Parameters, names: Sequence[str], p: Array) -> bool:
    """Whether a delay depends on what is free in an experiment."""
    row = np.zeros((1, 1, delays.count))
    row[0, 0, k] = 1.0
    slopes = delays.lags.pull_parameters(np.zeros(1), np.zeros((1, delays.count)), p, row)[0]
    free = [part.entries[part.entry_of(name)].free for name in names]
    return bool(np.any(slopes[np.array(free, dtype=bool)] != 0.0))
