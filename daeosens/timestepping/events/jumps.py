"""Equations that jump where an event happens: steps that end there have seen both sides."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.errors import DaeosensError, KinkWarning, warn
from daeosens.methods.dae.structure import wave
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.branches import Branches
from daeosens.problem.problem import Problem
from daeosens.problem.time_formulas import changes

NEAR, FAR = 1e-7, 1e-5
"""Parts of the step before and after the event, between which the equations are compared."""

RESOLVED, LARGEST = 1e3 * np.finfo(float).eps, 1e-2
"""Change of the state, beside its size, that the nearer of them is worth, and its largest part."""

JUMP = 1e-6
"""A change that is a smaller part of the rate is none."""

RELATIVE, ROUNDING = 1e-6, 1e-12
"""Change of the state that shows how large terms of the equations are, and what their sums lose."""


def warn_of_jump(problem: Problem, step: Step, name: str, *, resolved: bool = False) -> None:
    """Warn where the equations of a mode jump at the event that ends a step.

    The stages of a step lie beside the solution: near its end some are beyond the surface, or just
    on it, and take the equations from there.  The time of the event then is right to first order
    in the step only, and the derivative of the step is that of a mixture.  Collective.

    Parameters
    ----------
    problem : Problem
        The equations before the event.
    step : Step
        The one that ends there.
    name : str
        Of the event.
    resolved : bool
        Whether the event stays where it is, and the step is as short as its error asks for: then
        what jumps there by the time alone is no more to derivatives than to the state.
    """
    t, h = step.t, step.h
    if any(abs(t + h - time) <= FAR * h for time in problem.breakpoints):
        return  # where each step takes its own side
    # steps that close in on a jump become so short that small parts of them are rounding
    near_part = max(NEAR, min(RESOLVED / _change(problem, step), LARGEST))
    far_part = near_part * (FAR / NEAR)
    before, after = (_equations(problem, step, part) for part in (-near_part, near_part))
    near, sizes = np.abs(after - before), np.maximum(np.abs(before), np.abs(after))
    # smooth equations have hardly changed between these, so that nearly all looks end here
    if not _on_any_rank(problem, _exceeds(near, sizes)):
        return
    far = np.abs(_equations(problem, step, far_part) - _equations(problem, step, -far_part))
    # at rest the terms of the equations are large, and their sum is rounding
    terms = np.abs(_equations(problem, step, 0.0, RELATIVE) - before) / RELATIVE
    jumps = (near > 0.5 * far) & _exceeds(near, np.maximum(sizes, ROUNDING / JUMP * terms))
    if resolved and jumps.any() and _by_the_time_alone(problem, step):
        jumps = np.zeros_like(jumps)
    if not _on_any_rank(problem, jumps):
        return
    warn(
        f'event "{name}": the equations themselves jump where it happens, and the step that ends '
        "there has stages on both sides: its end is right to first order in the step size, and "
        "derivatives are wrong\n"
        "  try: a mode for each side, of equations that go on smoothly beyond it, "
        "daeosens.hybrid({...}, events=[Event(..., mode=...)]); breakpoints= for a jump at a time "
        "that is known",
        KinkWarning,
        problem.comm,
    )


def _exceeds(change: Array, sizes: Array) -> npt.NDArray[np.bool_]:
    """Return where [n] the equations change by more than smooth ones of these sizes."""
    return change > JUMP * (sizes + 1e-6 * sizes.max(initial=0.0))


def _on_any_rank(problem: Problem, where: npt.NDArray[np.bool_]) -> bool:
    """Return whether any unknown of any rank is marked.  Collective."""
    own = bool(where.any())
    return own if problem.comm.size == 1 else problem.comm.tompi4py().allreduce(own, MPI.LOR)


def _by_the_time_alone(problem: Problem, step: Step) -> bool:
    """Return whether what f compares with the time, and no parameter moves, changes at the end."""
    branches, end = problem.branches, step.t + step.h
    if not isinstance(branches, Branches):
        return False
    middle = step.t + 0.5 * step.h  # a callback with an ``if`` goes by the values there
    noted = branches.of_time(middle, read(step.u).copy(), np.asarray(step.p), fixed=True)
    times = changes(noted.switches, step.t, end + step.h)
    return bool(np.any(np.abs(times - end) <= FAR * step.h))


def _change(problem: Problem, step: Step) -> float:
    """Return the largest change of an unknown in a step, beside the unknown's size.  Collective."""
    before, after = read(step.u), read(step.u_next)
    sizes = np.maximum(np.abs(before), np.abs(after))
    changes = np.abs(after - before)
    own = float(np.max(changes / np.where(sizes > 0.0, sizes, 1.0), initial=0.0))
    if problem.comm.size > 1:
        own = problem.comm.tompi4py().allreduce(own, MPI.MAX)
    return max(own, sys.float_info.min)


def _equations(problem: Problem, step: Step, part: float, change: float = 0.0) -> Array:
    """Return f, or F without a rate, [n] on the chord of a step, a part of it after its end.

    ``change`` is a relative one of the state, with a sign of its own for each unknown.
    """
    state, out = step.u_next.copy(), problem.create_state()
    if change:
        write(state, read(state) * (1.0 + change * wave(state)))
    state.axpy(part, step.u_next)
    state.axpy(-part, step.u)
    time = step.t + (1.0 + part) * step.h
    try:
        if problem.form == "rhs":
            problem.rhs(time, state, step.p, out)
        else:
            problem.residual(time, state, problem.create_state(), step.p, out)
        return read(out).copy()
    except DaeosensError:  # beyond the domain of the callbacks
        return np.full(read(out).size, np.nan)
    finally:
        state.destroy()
        out.destroy()
