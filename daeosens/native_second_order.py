"""Second-order sweeps of C functions: one cost along several directions, without Python."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daeosens._petsc import LinearSteps
from daeosens.arrays import Array
from daeosens.block_adjoint import gradients_by_step, seed_of
from daeosens.block_second_order import Bending
from daeosens.cost import Cost
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
    lam, mu : array [n], [m]
        The gradient.
    """

    steps: LinearSteps
    weights: Array
    lam: Array
    mu: Array


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
    (count, n), m, s, last = du.shape, dp.shape[1], steps.n_stages, trajectory.n_steps
    along = np.empty((last + 1, count, n))
    along[0] = du
    moved = np.empty((fitting(trajectory, count * n), count, s, n))
    if not steps.push(last, dp, along, moved):
        return None
    weights = np.empty((fitting(trajectory, n), s, n)) if first is None else first.weights
    known = first is not None and len(weights) == last
    lam, mu = np.zeros((1, n)), np.zeros((1, m))
    lam_dot, mu_dot = np.zeros(du.shape), np.zeros(dp.shape)
    observed = gradients_by_step(trajectory, [cost])
    seed, bend = seed_of(trajectory, observed, mu), Bending(trajectory, cost, dp, mu_dot)
    for number in sorted({0, *observed}, reverse=True):
        sweep = (number, last, dp, along, moved, weights, known)
        if not steps.bend(*sweep, lam[0], mu[0], lam_dot, mu_dot):
            return None
        last = number
        if not known:
            seed(number, lam)
        bend(number, along[number], lam_dot)
    if not known:
        first = NativeFirst(steps, weights, lam[0], mu[0])
    assert first is not None
    return NativeSecond(lam_dot, mu_dot, first)
