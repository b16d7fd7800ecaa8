"""Equations that jump where an event happens: steps that end there have seen both sides."""

from __future__ import annotations

import warnings

import numpy as np

from daeosens.errors import DaeosensError, KinkWarning
from daeosens.methods.step import Step
from daeosens.petsc.vectors import Array, read
from daeosens.problem.problem import Problem

NEAR, FAR = 1e-7, 1e-5
"""Parts of the step before and after the event, between which the equations are compared."""

JUMP = 1e-6
"""A change that is a smaller part of the rate is none."""


def warn_of_jump(problem: Problem, step: Step, name: str) -> None:
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
    """
    t, h = step.t, step.h
    if any(abs(t + h - time) <= FAR * h for time in problem.breakpoints):
        return  # where each step takes its own side
    (near, sizes), (far, _) = (_change(problem, step, part) for part in (NEAR, FAR))
    jumps = (near > 0.5 * far) & (near > JUMP * (sizes + 1e-6 * sizes.max(initial=0.0)))
    if not problem.comm.tompi4py().allreduce(int(jumps.any())):
        return
    warnings.warn(
        f'event "{name}": the equations themselves jump where it happens, and the step that ends '
        "there has stages on both sides: its end is right to first order in the step size, and "
        "derivatives are wrong\n"
        "  try: a mode for each side, of equations that go on smoothly beyond it, "
        "daeosens.hybrid({...}, events=[Event(..., mode=...)]); breakpoints= for a jump at a time "
        "that is known",
        KinkWarning,
        stacklevel=2,
    )


def _change(problem: Problem, step: Step, part: float) -> tuple[Array, Array]:
    """Return how far the equations change across the end of a step, and their sizes [n] (local)."""
    before, after = (_equations(problem, step, side * part) for side in (-1.0, 1.0))
    return np.abs(after - before), np.maximum(np.abs(after), np.abs(before))


def _equations(problem: Problem, step: Step, part: float) -> Array:
    """Return f, or F without a rate, [n] on the chord of a step, a part of it after its end."""
    state, out = step.u_next.copy(), problem.create_state()
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
