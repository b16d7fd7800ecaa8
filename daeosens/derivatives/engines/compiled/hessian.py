"""Second-order sweeps of C functions: one cost along several directions, without Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from petsc4py import PETSc

from daeosens.costs.compiled import point_functions
from daeosens.costs.cost import Cost, Point, Scalar, points_by_step
from daeosens.derivatives.engines.array.hessian import Bending
from daeosens.derivatives.engines.compiled.tangent import (
    Direction,
    admit_rows,
    fitting,
    linear_steps,
)
from daeosens.derivatives.engines.request import Observed
from daeosens.petsc._kernels import LinearSteps, SecondSweep
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory


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


def native_second_sweep(
    trajectory: Trajectory,
    cost: Cost,
    directions: Sequence[Direction],
    first: NativeFirst | None = None,
) -> tuple[SecondSweep, NativeFirst] | None:
    """Return the Hessian of a cost times D directions, and its gradient, or None.

    They are the rows of the sweep after the first one; what comes with it serves other directions.
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
    directions : sequence of (du [n], dp [m])
        The user's: what ``admit_rows`` takes.
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
    du, dp = admit_rows(trajectory.problem, directions)
    s, (count, n), last = steps.n_stages, du.shape, trajectory.n_steps
    weights = np.empty((fitting(trajectory, n), s, n)) if first is None else first.weights
    known = first is not None and len(weights) == last
    keep = fitting(trajectory, count * n) == last
    sweep = SecondSweep(steps, du, dp, weights, known, keep)
    by_u, by_p = sweep.by_u, sweep.by_p
    if not sweep.push():
        return None
    points, bend = (
        points_by_step(trajectory.index, [cost]),
        Bending(trajectory, {}, (), dp, by_p[1:]),
    )
    for number in sorted({0, *points}, reverse=True):
        if not sweep.bend(number):
            return None
        for _, weight, scalar, _ in points.get(number, ()):
            functions = point_functions(scalar)
            if functions is not None:
                sweep.add(weight, functions)
                continue
            point = (float(trajectory.times[number]), trajectory.states[number], trajectory.p)
            if not known:
                _add_gradient(trajectory.problem, weight, scalar, point, by_u[0], by_p[0])
            bend.add([(weight, scalar)], point, sweep.along[number], by_u[1:])
    if not sweep.finite:
        return None
    if first is None or not known:
        problem = trajectory.problem
        first = NativeFirst(steps, weights, *sweep.vectors(0, problem.state, problem.parameter))
    return sweep, first


def carry_piece(
    piece: Trajectory,
    points: Observed,
    along: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
    first: tuple[PETSc.Vec, PETSc.Vec],
    dots: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
) -> bool:
    """Carry one adjoint and its derivatives back over smooth steps between events, in C.

    Parameters
    ----------
    piece : Trajectory
        The steps as a run of their own (``window_of``).
    points : mapping of int to sequence of Observation
        Of the cost at the states inside, by the number of the state in the piece.
    along : sequence of (du [n], dp [m])
        The tangents of the first state, and the directions of the parameters.
    first, dots : (lam [n], mu [m]) and a sequence of them
        The adjoint after the last step and its derivative along each direction; overwritten with
        those before the first step.

    Returns
    -------
    bool
        Whether that was done; otherwise nothing was.
    """
    steps = linear_steps(piece, keep=False)
    if steps is None:
        return False
    du, dp = (np.array([read(vec) for vec in vecs]) for vecs in zip(*along, strict=True))
    weights = np.empty((1, steps.n_stages, piece.problem.size))
    sweep = SecondSweep(steps, du, dp, weights, False, True)
    both = [*zip([first, *dots], sweep.by_u, sweep.by_p, strict=True)]
    for (lam, mu), by_u, by_p in both:
        by_u[:], by_p[:] = read(lam), read(mu)
    if not sweep.push():
        return False
    bend = Bending(piece, {}, (), dp, sweep.by_p[1:])
    for number in sorted({0, *points}, reverse=True):
        if not sweep.bend(number):
            return False
        point = (float(piece.times[number]), piece.states[number], piece.p)
        for _, weight, scalar, _ in points.get(number, ()):
            _add_gradient(piece.problem, weight, scalar, point, sweep.by_u[0], sweep.by_p[0])
            bend.add([(weight, scalar)], point, sweep.along[number], sweep.by_u[1:])
    if not sweep.finite:
        return False
    for (lam, mu), by_u, by_p in both:
        write(lam, by_u)
        write(mu, by_p)
    return True


def _add_gradient(
    problem: Problem, weight: float, scalar: Scalar, point: Point, lam: Array, mu: Array
) -> None:
    by_u, by_p = problem.create_state(), problem.create_parameters()
    scalar.add_u(weight, *point, by_u)
    scalar.add_p(weight, *point, by_p)
    lam += read(by_u)
    mu += read(by_p)
