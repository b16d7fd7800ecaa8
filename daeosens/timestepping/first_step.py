"""The first adaptive step, where the first rates say that it has to be shorter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError
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
        size, first = _largest(problem, values / weights, read(rate) / weights)
        # the usual case: the state hardly moves in such a step
        if size > first * longest or not 0.0 < first < math.inf:
            return longest
        step = min(longest, PART * size / first) if size > 0.0 else longest
        return min(longest, _bent(problem, start, rate, step, (first, order), weights))
    except DaeosensError:  # what is wrong at the start is for the run to say
        return longest
    finally:
        rate.destroy()


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
        (change,) = _largest(problem, (read(other) - read(rate)) / weights)
    finally:
        state.destroy()
        other.destroy()
    bend = max(first, change / step)
    if not bend < math.inf:
        return PART * step
    return min(100.0 * step, (PART / bend) ** (1.0 / (order + 1)))


def _largest(problem: Problem, *values: Array) -> list[float]:
    """Return the largest size of each of the rank's arrays [n], over all ranks."""
    sizes = np.array([np.abs(value).max(initial=0.0) for value in values])
    if problem.comm.size == 1:
        return sizes.tolist()
    problem.comm.tompi4py().Allreduce(MPI.IN_PLACE, sizes, MPI.MAX)
    return sizes.tolist()
