"""``method="auto"``: explicit or diagonally implicit steps, by how fast the equations decay."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.errors import ChatterError, SolveError, StiffError
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping
from daeosens.timestepping.stiffness import DENSE, REACH, fastest_decay, outermost_decay
from daeosens.timestepping.trajectory.trajectory import Trajectory

AUTO = "auto"
NONSTIFF, STIFF, IMPLICIT = "rk6vr", "esdirk5", "cn"

STEPS = 2000
"""Steps that an explicit run may take before it is asked whether stability holds them small.

As many as an implicit one takes the time of: each of its steps solves five systems.
"""


PLACES = 7
"""So many states along a run are looked at, at most."""

HELD = 100
"""Explicit steps as long as stability allows, of which derivatives are not right.

The error estimate keeps the state from growing in them, and nothing perturbations of it.
"""


def by_form(problem: Problem, stepping: Stepping) -> Stepping:
    """Return the steps for equations that leave no choice; the same ones for u' = f(t, u, p)."""
    if stepping.method == AUTO and problem.delays is not None:
        return _with(stepping, "rk5ts", "a delay equation")
    if stepping.method != AUTO or problem.form == "rhs":
        return stepping
    if problem.form == "mass":
        if problem.constant_mass:
            return _with(stepping, STIFF, "M u' = f")
        return _with(stepping, IMPLICIT, "M(p) u' = f, slower than u' = np.linalg.solve(M(p), f)")
    return _with(stepping, IMPLICIT, "F(t, u, u', p) = 0")


def run_chosen(
    problem: Problem,
    state: PETSc.Vec,
    p: Any,
    stepping: Stepping,
    take: Callable[[Stepping], Trajectory],
    *,
    of_petsc: bool = False,
) -> Trajectory:
    """Return a run by the method that fits the equations.

    Explicit, unless the Jacobian at the start says that stability would need more than ``STEPS``
    steps, a run that has taken as many says that it holds them small, or a run that has not that it
    holds ``HELD`` of them.  The latter is no reason where PETSc's own trajectory is kept
    (``of_petsc``): its adjoint knows no implicit steps of ours.
    """
    stepping = by_form(problem, stepping)
    if stepping.method != AUTO:
        return take(stepping)
    first, last = stepping.t_span
    # stability needs h times the decay below REACH: the span in such steps is what it would take
    decay = fastest_decay(problem, first, state, p)
    if decay * (last - first) > REACH * STEPS:
        why = f"stiff at the start, where something decays in {1.0 / decay:.2g}"
        return take(_with(stepping, STIFF, why))
    # few unknowns: eigenvalues of f_u tell; otherwise the run itself, by how many steps it takes
    known = problem.size <= DENSE and problem.comm.size == 1
    explicit = _with(stepping, NONSTIFF, "not stiff" if known else f"fewer than {STEPS} steps")
    second = explicit if known else _with(stepping, STIFF, f"more than {STEPS} explicit steps")
    try:
        # tried for as many steps as an implicit run would cost
        run = take(_with(explicit, NONSTIFF, explicit.choice, min(STEPS, stepping.max_steps)))
    except SolveError as error:
        return take(_instead(error, stepping, second))
    held = 0 if of_petsc else held_by_stability(run, HELD)
    if held:
        second = _with(stepping, STIFF, f"stability would hold {held} explicit steps small")
        # where that fails, the state of the explicit run is right, though derivatives may not be
        with suppress(SolveError):
            implicit = take(second)
            run.destroy()
            return implicit
    return run


def _instead(error: SolveError, stepping: Stepping, second: Stepping) -> Stepping:
    """Return the steps to take where an explicit run has failed, or raise its error again."""
    if isinstance(error, StiffError):
        return _with(stepping, STIFF, f"stiff after t = {error.time:.3g}")
    if isinstance(error, ChatterError) and error.ahead > stepping.max_steps:
        raise error  # any method takes minutes to find out
    return second  # not by stability: by the length of the run, or whatever made it fail


def held_by_stability(run: Trajectory, least: int) -> int:
    """Return about how many steps of an explicit run are as long as stability allows.

    From ``PLACES`` states along the run; 0 where they are fewer than ``least``, and of runs with
    checkpoints, whose steps would have to be taken again.
    """
    explicit = run.stepping.resolved_method.explicit
    if not explicit or run.thinned or run.n_steps < least:
        return 0
    held, needed = 0, math.ceil(PLACES * least / run.n_steps)
    for k in range(PLACES):
        n = (k + 1) * run.n_steps // (PLACES + 1)
        h, (problem, p) = float(run.step_sizes[n]), run.equations(n)
        if h:
            limit = REACH / h
            point = float(run.times[n]), run.stored[n], p
            held += int(outermost_decay(problem, *point, limit) >= limit)
        if held + PLACES - 1 - k < needed:
            return 0
    return held * run.n_steps // PLACES


def is_stiff(run: Trajectory, least: int) -> bool:
    """Return whether stability holds explicit steps of a run small, at least so many of them.

    Of a run by implicit steps: whether it would hold more than ``STEPS``, and than were taken.
    """
    if run.stepping.resolved_method.explicit:
        return held_by_stability(run, least) > 0
    if run.thinned:
        return False
    ends = np.linspace(0, run.n_steps, PLACES + 1).astype(int)
    held = 0.0
    for first, last in itertools.pairwise(ends):
        n = (first + last) // 2
        problem, p = run.equations(n)
        decay = fastest_decay(problem, float(run.times[n]), run.stored[n], p)
        held += decay * float(run.times[last] - run.times[first]) / REACH
    return held > max(STEPS, run.n_steps)


def made_stiff(stepping: Stepping) -> Stepping:
    """Return the same steps by the method for stiff equations."""
    return _with(stepping, STIFF, "stiff along the best run")


def replaced(stepping: Stepping, **changes: Any) -> Stepping:
    """Return steps with changes, and with the reason for their method."""
    changed = replace(stepping, **changes)
    object.__setattr__(changed, "choice", stepping.choice)
    return changed


def adopted(requested: Stepping, run: Stepping) -> Stepping:
    """Return the steps given, with the method that a run has chosen."""
    return _with(requested, run.method, run.choice)


def _with(stepping: Stepping, method: str, why: str, max_steps: int | None = None) -> Stepping:
    """Return steps by a method, with the reason; the same object as last time if it can be."""
    # small runs take less time than it takes to look at all fields again
    chosen = stepping.choices.get((method, max_steps))
    if chosen is None or chosen.choice != why:
        most = stepping.max_steps if max_steps is None else max_steps
        chosen = replace(stepping, method=method, max_steps=most)
        object.__setattr__(chosen, "choice", why)
        stepping.choices[method, max_steps] = chosen
    return chosen
