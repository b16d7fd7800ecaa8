"""Adjoint sweeps of C functions: no Python between the states that costs look at."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from petsc4py import PETSc

from daeosens._petsc import carry_back
from daeosens.arrays import Array
from daeosens.blocks import dense_mass
from daeosens.cost import Cost, points_by_step
from daeosens.methods import Method
from daeosens.problem import Problem
from daeosens.steps import tableau
from daeosens.trajectory import Trajectory

FEW = 2
"""Up to so many costs are swept one beside the other; blocks do more at once."""

SMALL = 30
"""Up to how many unknowns it is quicker than blocks of functions that take many points."""


def pays(problem: Problem, engine: str) -> bool:
    """Whether ``native_sweep`` is to be tried: asked for, or the quickest where it can be.

    Examples
    --------
    >>> from daeosens import ODE
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> pays(decay, "steps"), pays(decay, "block")
    (True, False)
    """
    quick = problem.size <= SMALL or problem.batch is None or not problem.batch.at_once
    return engine == "steps" or (engine == "auto" and quick)


def native_sweep(
    trajectory: Trajectory, costs: Sequence[Cost]
) -> tuple[list[PETSc.Vec], list[PETSc.Vec]] | None:
    """Return the adjoints lam_0 [n] and mu [m] of each cost, or None.

    The numbers of the sweep by steps, by the same operations.  For few costs without densities, and
    explicit or theta steps without events or breakpoints of a problem whose functions are in C: f
    and its derivatives without patterns, or the products of traced models.  Values that are not
    finite give None too: the sweep in Python finds them again, and names the function.

    Source
    ------
    docs/mathematics.md, section 1.
    """
    problem, p, states = trajectory.problem, trajectory.p, trajectory.states
    method = trajectory.stepping.resolved_method
    functions = _functions(problem, method)
    smooth = not (trajectory.crossings or problem.modes or problem.breakpoints)
    few = len(costs) <= FEW and not any(cost.densities for cost in costs)
    if not (functions and smooth and few):
        return None
    lam = [problem.create_state() for _ in costs]
    mu = [problem.create_parameters() for _ in costs]
    points = points_by_step(trajectory.index, costs)
    model = (functions, _coefficients(problem, method), p)
    steps = (trajectory.times, trajectory.step_sizes, states, trajectory.stages)
    last = trajectory.n_steps
    for number in sorted({0, *points}, reverse=True):
        if not carry_back(*model, *steps, number, last, lam, mu):
            return None
        last = number
        for k, weight, scalar in points.get(number, ()):
            point = (float(trajectory.times[number]), states[number], p)
            scalar.add_u(weight, *point, lam[k])
            scalar.add_p(weight, *point, mu[k])
    return lam, mu


def _functions(problem: Problem, method: Method) -> dict[str, tuple[int, int]]:
    """Return addresses and user data of what the sweep calls; nothing if one is not in C."""
    native = problem.native
    needed = {"rhs"} if method.explicit else {"rhs", "jacobian"}
    if "pull" in native:
        needed.add("pull")
    else:
        needed |= {"jacobian", "jacobian_p"} if problem.n_parameters else {"jacobian"}
    found = {name: native[name] for name in needed if name in native}
    patterns = any(each.pattern is not None for each in found.values())
    if len(found) < len(needed) or patterns or method.esdirk or not problem.constant_mass:
        return {}
    return {name: (each.address, each.user_data) for name, each in found.items()}


def _coefficients(
    problem: Problem, method: Method
) -> tuple[Array, Array, Array] | tuple[float, bool, Array | None]:
    """Return what ``carry_back`` wants to know of a method."""
    if not method.explicit:
        return method.theta, method.endpoint, dense_mass(problem)
    return _contiguous(method.runge_kutta)


@cache
def _contiguous(runge_kutta: str) -> tuple[Array, Array, Array]:
    of_step = tableau(runge_kutta).of_step()
    a, b, c = (np.ascontiguousarray(each) for each in (of_step.a, of_step.b, of_step.c))
    return a, b, c
