"""Steps that end where equations bend by the time alone: at the rows of a table, at ends of ramps.

A step across a row of ``np.interp(t, times, values)`` is of second order, whatever its method: the
error estimate refuses steps there until they are short.  The times of the rows are known before the
run, and steps that end there keep their order.  A table of more rows than steps is the exception:
what it bends at a row is less than what is tolerated.  So where there are many rows, the first few
are passed by a run of its own, which tells.  Rows that a parameter moves are no such times: there
f_p jumps, and steps pass them as other kinks (``kink_cuts``).

Source
------
Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, section II.6, who advise it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.branches.switch_times import changes_inside
from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array, read
from daeosens.problem.branches import Branches
from daeosens.problem.problem import Problem
from daeosens.problem.time_formulas import bends
from daeosens.timestepping.method_choice import replaced
from daeosens.timestepping.step_times import apart_from
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.trajectory.trajectory import Trajectory

FEW = 32
"""So many rows are hit in any case."""


def with_bends_in_time(
    pinned: Array,
    problem: Problem,
    state: PETSc.Vec,
    p: Array,
    stepping: Stepping,
    take: Callable[[Stepping], Trajectory],
) -> Array:
    """Return the times [K] that steps hit, with those at which the equations bend.

    Parameters
    ----------
    pinned : array [K]
        Those that they hit in any case.
    problem : Problem
        Of one rank, and no grid: of others nothing is known.
    state : Vec [n]
        At the start.
    p : array [m]
        Parameters.
    stepping : Stepping
        Adaptive steps, by a method.
    take : callable
        ``take(stepping)`` is a run with these steps from the same state.
    """
    known = problem.branches_known and problem.stencil is None and problem.comm.size == 1
    if not known or not stepping.adaptive or problem.delays is not None:
        return pinned
    first, last = stepping.t_span
    start = problem.inside(first, first, last - first)
    rate = np.zeros(problem.size) if problem.form == "residual" else None
    formulas = [
        formula
        for mode in (problem, *problem.modes.values())
        if isinstance(mode.branches, Branches) and mode.branches.follows_time
        for formula in mode.branches.of_time(start, read(state), p, rate, fixed=True).formulas
    ]
    times = apart_from(changes_inside(problem, (first, last), bends(formulas)), pinned)
    if not times.size:
        return pinned
    all_of_them = np.union1d(pinned, times)
    if times.size <= FEW:
        return all_of_them
    span = first, float(times[FEW])
    try:
        run = take(replaced(stepping, t_span=span, t_eval=(), dt=None))
    except SolveError:
        return all_of_them
    rows = np.searchsorted(times, run.times, side="right")
    run.destroy()
    # steps of a transient at the start lie between the same rows
    return all_of_them if np.unique(rows).size > FEW // 2 else pinned
