"""The first adaptive step: as long as the first rates, or two halves of it, allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError, SolveError
from daeosens.petsc._kernels import starting_step
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem


def starting(
    problem: Problem,
    start: tuple[float, PETSc.Vec, Any],
    bounds: tuple[float, float],
    order: int,
    rtol: float,
    atol: float,
) -> float:
    """Return the size of a first step of u' = f, the same on every rank.

    The source's estimate, from f at the start and after a step of Euler's method that moves the
    state by a hundredth of itself; a tenth of it where an unknown leaves zero, a usual place of
    kinks.  Derivatives pass through modes that the state may not excite:
    where the fastest one, from two products with f_u by differences, is not resolved by such a step
    it is shorter, down to the lower bound.  Collective.

    Parameters
    ----------
    problem : Problem
        In the form u' = f.
    start : (float, Vec [n], array or Vec [m])
        Time, state and parameters as callbacks see them.
    bounds : (float, float)
        The step where rates tell nothing; and the largest one.  Shorter than both where the first
        rates are large.
    order : int
        Of the method.
    rtol, atol : float
        The tolerances.

    Source
    ------
    Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, section II.4.
    """
    t, u, p = start
    known = (*bounds, order, rtol, atol)
    native = problem.native.get("rhs")
    simple = problem.comm.size == 1 and not (problem.breakpoints or problem.field_parameter)
    if native is not None and simple:
        return starting_step(native.where, t, read(u), p, *known)
    state, out = problem.create_state(), problem.create_state()

    def rate(seen: float, values: Array, room: Array) -> None:
        write(state, values)
        try:
            problem.rhs(problem.inside(seen, t, bounds[1]), state, p, out)
            room[:] = read(out)
        except DaeosensError:  # what is wrong at the start is for the run to say
            room.fill(math.nan)

    try:
        first_number = u.getOwnershipRange()[0]
        return starting_step(rate, t, read(u), None, *known, first_number, _agreed(problem.comm))
    finally:
        state.destroy()
        out.destroy()


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


def _agreed(comm: PETSc.Comm) -> Callable[[float], float] | None:
    """Return what tells the largest number of all ranks; None on one rank."""
    if comm.size == 1:
        return None
    ranks = comm.tompi4py()
    return lambda size: ranks.allreduce(size, MPI.MAX)


def _largest(comm: PETSc.Comm, *values: Array) -> list[float]:
    """Return the largest size of each of the rank's arrays [n], over all ranks."""
    sizes = np.array([np.abs(value).max(initial=0.0) for value in values])
    if comm.size == 1:
        return sizes.tolist()
    comm.tompi4py().Allreduce(MPI.IN_PLACE, sizes, MPI.MAX)
    return sizes.tolist()
