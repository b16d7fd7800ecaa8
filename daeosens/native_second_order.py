"""Second-order sweeps of C functions: one cost along several directions, without Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens._petsc import LinearSteps
from daeosens.arrays import Array
from daeosens.block_second_order import Bending
from daeosens.cost import Cost, points_by_step
from daeosens.native_tangent import fitting, linear_steps
from daeosens.trajectory import Trajectory


@dataclass(frozen=True, eq=False)
class NativeFirst:
    """A run that was linearised, and the adjoint of a cost: all directions need it.

    Attributes
    ----------
    steps : LinearSteps
        Stages and factors.
    weights : array [N, s, n] or [1, s, n]
        Adjoints of the stages of all steps, or of one only where memory does not suffice.
    lam, mu : Vec [n], Vec [m]
        The gradient.
    """

    steps: LinearSteps
    weights: Array
    lam: PETSc.Vec
    mu: PETSc.Vec


@dataclass(frozen=True, eq=False)
class NativeSecond:
    """The derivatives lam_dot [D, n], mu_dot [D, m] of a gradient; ``first`` serves other ones."""

    lam_dot: Array
    mu_dot: Array
    first: NativeFirst


def native_second_sweep(
    trajectory: Trajectory, cost: Cost, du: Array, dp: Array, first: NativeFirst | None = None
) -> NativeSecond | None:
    """Return the Hessian of a cost times D directions, and its gradient, or None.

    The numbers of the sweep by steps, to rounding.  For costs without densities, and the runs that
    ``linear_steps`` takes.  Stages, factors and adjoints of all stages are kept for later products.
    Values that are not finite give None too: the sweep in Python finds them again, and names the
    function.

    Parameters
    ----------
    trajectory : Trajectory
        From ``solve``.
    cost : Cost
        What is differentiated.
    du, dp : array [D, n], [D, m]
        The directions.
    first : NativeFirst, optional
        From an earlier sweep of the same run and cost.

    Source
    ------
    docs/mathematics.md, section 1.
    """
    if cost.densities:
        return None
    steps = linear_steps(trajectory, keep=True) if first is None else first.steps
    if steps is None:
        return None
    problem, (count, n), s, last = trajectory.problem, du.shape, steps.n_stages, trajectory.n_steps
    along = np.empty((last + 1, count, n))
    along[0] = du
    moved = np.empty((fitting(trajectory, count * n), count, s, n))
    if not steps.push(last, dp, along, moved):
        return None
    weights = np.empty((fitting(trajectory, n), s, n)) if first is None else first.weights
    known = first is not None and len(weights) == last
    lam, mu = problem.create_state(), problem.create_parameters()
    dots = lam_dot, mu_dot = np.zeros(du.shape), np.zeros(dp.shape)
    adjoints: tuple[Any, ...] = (lam.getArray(), mu.getArray(), *dots)
    points, bend = points_by_step(trajectory.index, [cost]), Bending(trajectory, cost, dp, mu_dot)
    for number in sorted({0, *points}, reverse=True):
        sweep = (number, last, dp, along, moved, weights, known)
        if number < last and not steps.bend(*sweep, *adjoints):
            return None
        last = number
        scalars = [(weight, scalar) for _, weight, scalar in points.get(number, ())]
        point = (float(trajectory.times[number]), trajectory.states[number], trajectory.p)
        for weight, scalar in () if known else scalars:
            scalar.add_u(weight, *point, lam)
            scalar.add_p(weight, *point, mu)
        bend.add(scalars, point, along[number], lam_dot)
    if not known:
        first = NativeFirst(steps, weights, lam, mu)
    assert first is not None
    return NativeSecond(*dots, first)
