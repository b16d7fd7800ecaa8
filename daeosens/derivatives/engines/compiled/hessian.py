"""Second-order sweeps of C functions: one cost along several directions, without Python."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daeosens.costs.cost import Point, Scalar
from daeosens.costs.scalar import in_c
from daeosens.derivatives.engines.arrays.hessian import CurvatureTerms
from daeosens.derivatives.engines.compiled.tangent import fitting, linear_steps
from daeosens.derivatives.engines.request import Observed, SecondRows
from daeosens.petsc._kernels import LinearSteps, SecondSweep
from daeosens.petsc.vectors import Array, read
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory


@dataclass(frozen=True, eq=False)
class CompiledFirst:
    """Steps that were linearised, and the adjoint of a cost: all directions need it.

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


def carry_second(
    window: Trajectory,
    observed: Observed,
    along: tuple[Array, Array],
    rows: SecondRows | None,
    known: CompiledFirst | None = None,
) -> tuple[SecondRows, CompiledFirst] | None:
    """Carry one adjoint and its derivatives along D directions back over smooth steps, in C.

    The numbers of the sweep by steps, to rounding.  For costs without densities, and the steps that
    ``linear_steps`` takes.  Stages, factors and adjoints of all stages are kept for later products.

    Parameters
    ----------
    window : Trajectory
        A run, or a window of one.
    observed, along, rows
        As for the sweep on arrays.
    known : CompiledFirst, optional
        From an earlier sweep of the same window and cost.

    Returns
    -------
    (SecondRows, CompiledFirst) or None
        At the first state; what serves further directions.  None where it cannot be, or a value is
        not finite: the sweep by steps finds that again, and names the function.

    Source
    ------
    docs/mathematics.md, section 1.
    """
    steps = linear_steps(window, keep=True) if known is None else known.steps
    if steps is None:
        return None
    (du, dp), last = along, window.n_steps
    s, (count, n) = steps.n_stages, du.shape
    # Adjoints of all stages are kept for later products if they fit, else of one step only.
    weights = np.empty((fitting(window, n), s, n)) if known is None else known.weights
    # the first order is not swept again where all its weights are there
    again = known is not None and len(weights) == last
    sweep = SecondSweep(steps, du, dp, weights, again, fitting(window, count * n) == last)
    by_u, by_p = sweep.by_u, sweep.by_p
    if rows is not None:
        by_u[0], by_p[0], by_u[1:], by_p[1:] = rows
    # forward: tangents of all directions
    if not sweep.push():
        return None
    bend = CurvatureTerms(window, {}, (), dp, by_p[1:])
    # back from one observed state to the one before, and at last to the start
    for number in sorted({0, *observed}, reverse=True):
        if not sweep.bend(number):
            return None
        for _, weight, scalar, *_ in observed.get(number, ()):
            functions = in_c(scalar, 1, 4)
            if functions is not None:
                sweep.add(weight, functions)
                continue
            point = (float(window.times[number]), window.stored[number], window.p)
            if not again:
                _add_gradient(window.problem, weight, scalar, point, by_u[0], by_p[0])
            # costs that are not in C: gradient and Hessian through vectors
            bend.add([(weight, scalar)], point, sweep.along[number], by_u[1:])
    if not sweep.finite:
        return None
    if known is None or not again:
        known = CompiledFirst(steps, weights, by_u[0], by_p[0])
    return SecondRows(known.lam, known.mu, by_u[1:], by_p[1:]), known


def _add_gradient(
    problem: Problem, weight: float, scalar: Scalar, point: Point, lam: Array, mu: Array
) -> None:
    by_u, by_p = problem.create_state(), problem.create_parameters()
    scalar.add_u(weight, *point, by_u)
    scalar.add_p(weight, *point, by_p)
    lam += read(by_u)
    mu += read(by_p)
