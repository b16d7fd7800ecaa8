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

    Two evaluations of f, at the start and after a step of Euler's method that moves the state by a
    hundredth, tell how long a step of a method of the order may be.  Collective.

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
    time = problem.inside(t, t, longest)
    rate, other, state = (problem.create_state() for _ in range(3))
    try:
        weights = atol + rtol * np.abs(read(u))
        problem.rhs(time, u, p, rate)
        size, first = _largest(problem, read(u) / weights, read(rate) / weights)
        if not 0.0 < first < math.inf:
            return longest
        step = min(longest, PART * size / first) if size > 0.0 else longest
        state.waxpy(step, rate, u)
        problem.rhs(problem.inside(t + step, t, step), state, p, other)
        (change,) = _largest(problem, (read(other) - read(rate)) / weights)
        if not change < math.inf:
            return PART * step
        bend = max(first, change / step)
        return min(longest, 100.0 * step, (PART / bend) ** (1.0 / (order + 1)))
    except DaeosensError:  # what is wrong at the start is for the run to say
        return longest
    finally:
        for vec in (rate, other, state):
            vec.destroy()


def _largest(problem: Problem, *values: Array) -> list[float]:
    """Return the largest size of each of the rank's arrays [n], over all ranks."""
    sizes = np.array([np.abs(each).max(initial=0.0) for each in values])
    problem.comm.tompi4py().Allreduce(MPI.IN_PLACE, sizes, MPI.MAX)
    return [float(size) for size in sizes]
