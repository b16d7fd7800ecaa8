"""Which engine sweeps back over a trajectory."""

from __future__ import annotations

from typing import Literal

from daeosens.errors import InputError, UnsupportedError
from daeosens.trajectory import Trajectory

Engine = Literal["auto", "steps", "block", "tsadjoint"]

Sweep = Literal["auto", "steps", "block"]
"""Of tangents and second-order sweeps, in which PETSc 3.26 is wrong."""

SMALL, LARGE = 100, 1000
"""Up to how many unknowns "auto" sweeps in blocks; the latter with batched callbacks."""


def check_engine(engine: str) -> None:
    """Refuse an unknown engine.

    Raises
    ------
    InputError
        Names the known ones.
    """
    if engine not in ("auto", "steps", "block", "tsadjoint"):
        raise InputError(f"engine = {engine!r}", expected='"auto", "steps", "block" or "tsadjoint"')


def choose_engine(trajectory: Trajectory, engine: Engine) -> Engine:
    """Return the engine for a trajectory: the one asked for, or for "auto" the faster one.

    Blocks need dense Jacobians, one processor and no events; they pay for small problems, above
    all for many costs and for batched callbacks.

    Raises
    ------
    InputError
        An unknown engine.
    UnsupportedError
        "block" where it cannot be; names the reason.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> choose_engine(solve(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1)), "auto")
    'block'
    """
    check_engine(engine)
    if engine in ("steps", "tsadjoint"):
        return engine
    reason = no_block(trajectory)
    if engine == "block" and reason:
        raise UnsupportedError(
            f'engine = "block" for {reason}',
            expected="M u' = f(t, u, p) with NumPy-style callbacks, M constant, and no events",
            remedy='engine="steps"',
        )
    batch = trajectory.problem.batch
    if reason or batch is None:
        return "steps"
    limit = LARGE if batch.at_once else SMALL
    return "block" if engine == "block" or trajectory.problem.size <= limit else "steps"


def choose_sweep(trajectory: Trajectory, engine: Sweep) -> Sweep:
    """Return the engine for tangents and second order, like ``choose_engine``.

    Raises
    ------
    InputError
        An unknown engine, or "tsadjoint".
    UnsupportedError
        "block" where it cannot be; names the reason.
    """
    if engine not in ("auto", "steps", "block"):
        raise InputError(f"engine = {engine!r}", expected='"auto", "steps" or "block"')
    return "block" if choose_engine(trajectory, engine) == "block" else "steps"


def no_block(trajectory: Trajectory) -> str:
    """Return why a trajectory cannot be swept in blocks; empty if it can."""
    problem = trajectory.problem
    reasons = {
        "an ESDIRK method": trajectory.stepping.resolved_method.esdirk,
        "a run through events": bool(trajectory.crossings),
        "equations with modes": bool(problem.modes),
        "PETSc-style callbacks": problem.style == "petsc",
        "F(t, u, u', p) = 0": problem.form == "residual",
        "a mass that depends on the parameters": not problem.constant_mass,
        "a jacobian that is given by products": problem.batch is None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
