"""The first adaptive step: shorter where the first rates, or two halves of it, say so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError, SolveError
from daeosens.petsc.vectors import Array, read
from daeosens.problem.problem import Problem

PART = 0.01
"""Part of the state, and of the tolerance, that the first step may be worth."""


def shortened(
    problem: Problem,
    start: tuple[float, PETSc.Vec, Any],
    longest: float,
    order: int,
    rtol: float,
    atol: float,
) -> float:
    """Return the size of a first step of u' = f, at most ``longest``.

    Where f would move the state by more than itself in the longest one, a second evaluation of f
    after a step of Euler's method that moves it by a hundredth tells how long a step of a method of
    the order may be.  Collective.

    Parameters
    ----------
    problem : Problem
        In the form u' = f.
    start : (float, Vec [n], array or Vec [m])
        Time, state and parameters as callbacks see them.
    longest : float
        The result where the rates are small.
    order : int
        Of the method.
    rtol, atol : float
        The tolerances.

    Source
    ------
    Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, section II.4.
    """
    t, u, p = start
    values = read(u)
    weights = atol + rtol * np.abs(values)
    rate = problem.create_state()
    try:
        problem.rhs(problem.inside(t, t, longest), u, p, rate)
        size, first = _largest(problem.comm, values / weights, read(rate) / weights)
        # the usual case: the state hardly moves in such a step
        if size > first * longest or not 0.0 < first < math.inf:
            return longest
        # d0/d1 of the source: a step of Euler's method that changes the state by a hundredth of
        # itself
        step = min(longest, PART * size / first) if size > 0.0 else longest
        return min(longest, _bent(problem, start, rate, step, (first, order), weights))
    except DaeosensError:  # what is wrong at the start is for the run to say
        return longest
    finally:
        rate.destroy()


def judged(
    step: Callable[[float, float, PETSc.Vec, PETSc.Vec], None],
    start: tuple[float, PETSc.Vec],
    size: float,
    least: float,
    order: int,
    rtol: float,
    atol: float,
) -> float:
    """Return the size of a first step whose error two steps of half the size confirm.

    For methods that estimate errors from the steps before: they take the first one as it is.
    Collective.

    Parameters
    ----------
    step : callable
        ``step(t, h, u, out)`` takes a step of size h from u [n] at t.
    start : (float, Vec [n])
        Time and state.
    size, least : float
        The step that is wanted, and one that is short enough without a judge.
    order : int
        Of the method.
    rtol, atol : float
        The tolerances.

    Source
    ------
    Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, section II.4, eq. (4.4).
    """
    t, u = start
    whole, half, halves = (u.duplicate() for _ in range(3))
    try:
        while size > least:
            try:
                step(t, size, u, whole)
                step(t, 0.5 * size, u, half)
                step(t + 0.5 * size, 0.5 * size, half, halves)
            except (SolveError, PETSc.Error):
                # no step of this size could be taken at all: no error tells how far to shorten
                size = max(0.25 * size, least)
                continue
            weights = atol + rtol * np.maximum(np.abs(read(u)), np.abs(read(whole)))
            difference = (read(whole) - read(halves)) / weights
            (error,) = _largest(u.comm, np.where(np.isfinite(difference), difference, np.inf))
            # Richardson: the whole step errs by C h^(q+1), the halves by 2^-q of that, so the
            # difference is (1 - 2^-q) of the error (eq. 4.4).
            error /= 1.0 - 0.5**order
            if error <= 1.0:
                break
            # errors of one step are of order q + 1; 0.9 to be on the safe side
            part = 0.9 * error ** (-1.0 / (order + 1)) if error < math.inf else 0.0
            size = max(size * max(part, 0.1), least)
        return size
    finally:
        for vector in (whole, half, halves):
            vector.destroy()


def _bent(
    problem: Problem,
    start: tuple[float, PETSc.Vec, Any],
    rate: PETSc.Vec,
    step: float,
    known: tuple[float, int],
    weights: Array,
) -> float:
    """Return the step that the change of the rate [n] in a step of Euler's method allows."""
    (t, u, p), (first, order) = start, known
    state, other = problem.create_state(), problem.create_state()
    state.waxpy(step, rate, u)
    try:
        problem.rhs(problem.inside(t + step, t, step), state, p, other)
        (change,) = _largest(problem.comm, (read(other) - read(rate)) / weights)
    finally:
        state.destroy()
        other.destroy()
    # the larger of |f| and |f'|, both weighted: d1 and d2 of the source
    bend = max(first, change / step)
    if not bend < math.inf:
        return PART * step
    # h^(q+1) max(d1, d2) = 0.01, and not more than a hundred times the first guess
    return min(100.0 * step, (PART / bend) ** (1.0 / (order + 1)))


def _largest(comm: PETSc.Comm, *values: Array) -> list[float]:
    """Return the largest size of each of the rank's arrays [n], over all ranks."""
    sizes = np.array([np.abs(value).max(initial=0.0) for value in values])
    if comm.size == 1:
        return sizes.tolist()
    comm.tompi4py().Allreduce(MPI.IN_PLACE, sizes, MPI.MAX)
    return sizes.tolist()
