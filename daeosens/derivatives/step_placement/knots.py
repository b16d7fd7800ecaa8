"""Knots of controls, at which the equations may jump: breakpoints that nobody has to name.

A step that goes across a knot of a piecewise constant control is of first order in its
coefficients.  Where these are equal, as where an optimisation begins, the state has no kink that
would tell an error estimate.  The times of the knots are known before the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.derivatives.branches.switch_times import changes_inside
from daeosens.petsc.vectors import Array, read
from daeosens.problem.branches import Branches
from daeosens.problem.breakpoints import admit_breakpoints
from daeosens.problem.problem import Problem, ProblemCache
from daeosens.problem.time_formulas import Switch
from daeosens.timestepping.step_times import apart_from
from daeosens.timestepping.stepping import Stepping

MOST = 100
"""Problems, at most, that are kept."""

BEYOND, ROUNDING = 1e-6, 1e-3
"""Part of the span that is looked at beyond its ends, and of that what may be rounding."""


_Key: TypeAlias = "tuple[tuple[float, float], frozenset[tuple[Any, ...]]]"

_COMPLETED: ProblemCache[dict[_Key, Problem]] = ProblemCache(dict)
"""Problems with the knots of their controls, by the span and by what passes these knots."""


def with_knots(problem: Problem, state: PETSc.Vec, p: Array, stepping: Stepping) -> Problem:
    """Return a problem with the knots of its controls among its breakpoints.

    The same one for the same span and controls.  Those of controls with more coefficients than the
    problem has parameters are data, of which steps need not see each row.

    Parameters
    ----------
    problem : Problem
        Of one rank, no grid and one mode: of others nothing is known.
    state : Vec [n]
        At the start.
    p : array [m]
        Parameters.
    stepping : Stepping
        Of the run.
    """
    alone = problem.comm.size == 1 and problem.stencil is None and not problem.field_parameter
    one_mode = not problem.modes and problem.monitor is None and problem.parts is None
    # sizes of steps that are given are those of a run that has seen the knots
    if stepping.shares or not (alone and one_mode and problem.branches_known):
        return problem
    # asked at each run: which controls a callback calls may go by the parameters
    # the equations may jump at the start: they are asked on the side of the run
    first, last = stepping.t_span
    following = min((time for time in problem.breakpoints if first < time < last), default=last)
    start = problem.inside(first, first, following - first)
    passed = _passed(problem, start, read(state), p)
    if not passed:
        return problem
    known, span = _COMPLETED.of(problem), stepping.t_span
    key = span, frozenset(switch.key for switch in passed)
    if key not in known:
        if len(known) >= MOST:
            known.clear()
        known[key] = _completed(problem, span, passed)
    return known[key]


def _passed(problem: Problem, t: float, u: Array, p: Array) -> Sequence[Switch]:
    """Return where controls pass their knots."""
    branches, delays, rate = problem.branches, problem.delays, None
    if delays is not None:
        branches, u = delays.branches, np.tile(u, 1 + delays.count)
    if problem.form == "residual":
        rate = np.zeros(problem.size)
    if not isinstance(branches, Branches) or not branches.follows_time:
        return ()
    noted = branches.of_time(t, u, p, rate, fixed=True)
    switches = [k.passed for k in noted.knots if k.coefficients <= problem.n_parameters]
    return list({switch.key: switch for switch in switches}.values())


def _completed(problem: Problem, span: tuple[float, float], passed: Sequence[Switch]) -> Problem:
    first, last = span
    # one at an end, where a day begins anew, is on the other side of all steps
    room = BEYOND * (last - first)
    knots: list[Array] = []
    for switch in passed:
        if switch.formula.function is None and switch.levels is not None:  # as they are written
            knots.append(switch.levels)
        else:
            knots.append(changes_inside(problem, (first - room, last + room), [switch]))
    times = np.unique(np.concatenate(knots))
    times = times[(times >= first - ROUNDING * room) & (times <= last + ROUNDING * room)]
    more = apart_from(times, np.array(problem.breakpoints))
    if not more.size:
        return problem
    times = np.union1d(problem.breakpoints, more)
    return replace(problem, breakpoints=admit_breakpoints(times))
