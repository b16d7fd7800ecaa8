"""The steps of a run in blocks that fit into a bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities, Scalar, at_many_points
from daeosens.methods.block_steps import (
    Block,
    BlockSteps,
    BlockTangent,
    LinearBlock,
    Points,
    linearised,
)
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory

BLOCK_MEMORY = 2**27
"""Bytes that a block of steps may take in a sweep, unless one step needs more."""

CALLED_BACK, FEWEST_STEPS = 2**22, 64
"""Bytes that it takes where Python is called at its points, which do not become quicker by more of
them; but not fewer steps than the latter, as far as ``BLOCK_MEMORY`` goes.

One cost of 10 unknowns in NumPy, 100 000 steps of rk4: the sweep takes 3 MB, in blocks of
``BLOCK_MEMORY`` 270 MB at its most, and the same time.
"""

Span: TypeAlias = "tuple[int, int]"
"""Numbers of the states before the first and after the last step of a block."""

PushedBlock: TypeAlias = "tuple[LinearBlock, BlockTangent]"
"""Steps of a block, linearised, and the tangents that were carried over them."""


def block_steps(trajectory: Trajectory) -> BlockSteps:
    """Return the linearised steps of a trajectory's method."""
    problem, method = trajectory.problem, trajectory.stepping.resolved_method
    inside = problem.inside if problem.breakpoints else None
    return method.block_steps(problem, inside, dense_mass(problem))


def dense_mass(problem: Problem) -> Array | None:
    """Return M [n, n] of M u' = f, constant and serial; None is the identity."""
    if problem.residual_udot is None:
        return None
    zero = problem.create_state()
    matrix = problem.residual_udot.create(0.0, zero, zero, np.zeros(problem.n_parameters))
    mass: Any = matrix.convert(PETSc.Mat.Type.DENSE, PETSc.Mat()).getDenseArray()
    return mass.copy()


def block_spans(
    trajectory: Trajectory, steps: BlockSteps, rows: int, last: int, memory: int | None = None
) -> list[Span]:
    """Return the blocks of the steps before state number ``last``, as many steps as fit in each.

    ``rows`` is how many vectors [n] there are for each point at once.  ``memory`` is what a block
    of at least ``FEWEST_STEPS`` may take, where that is less than ``BLOCK_MEMORY``.
    """
    size = bytes_of_a_step(trajectory, steps, rows)
    several = BLOCK_MEMORY // size
    if memory is not None:
        several = min(several, max(memory // size, FEWEST_STEPS))
    several = max(1, several)
    # from the end, so that only the first block is shorter: the sweep back begins with a full one
    ends = range(last, 0, -several)
    return [(max(0, end - several), end) for end in ends][::-1]


def bytes_of_a_step(trajectory: Trajectory, steps: BlockSteps, rows: int) -> int:
    """Return what a step takes in a block: states, Jacobians and factors, and the vectors."""
    n = trajectory.problem.size
    # Jacobians [n, n] at each point, and factors of as many entries for implicit steps
    matrices = n if trajectory.stepping.resolved_method.explicit else 2 * n
    return 8 * steps.points_per_step * n * (matrices + rows + 4)


def linear_block(trajectory: Trajectory, steps: BlockSteps, span: Span) -> LinearBlock:
    """Return the steps of a block with the equations linearised."""
    batch = trajectory.problem.batch
    assert batch is not None
    return linearised(steps, block_of(trajectory, steps, span), batch)


def block_of(trajectory: Trajectory, steps: BlockSteps, span: Span) -> Block:
    """Return the steps of a block."""
    first, end = span
    return Block(
        first,
        trajectory.times[first:end],
        trajectory.step_sizes[first:end],
        trajectory.u[first : end + 1],
        trajectory.p,
        kept_stages(trajectory, steps.points_per_step, first, end),
    )


def kept_stages(trajectory: Trajectory, count: int, first: int, end: int) -> Array | None:
    """Return the first s = ``count`` stages [S, s, n] of steps that the run kept, or None."""
    kept = trajectory.kept
    if isinstance(kept, np.ndarray):
        if len(kept) < end:
            return None
        # The first stage is the start of the step and is not kept.
        later = kept[first:end, : count - 1]
        return np.concatenate([trajectory.u[first:end, None], later], axis=1)
    if not kept:
        return None
    stored = [kept.get(n) for n in range(first, end)]
    if any(stages is None for stages in stored):
        return None
    return np.array([[read(vec) for vec in stages[:count]] for stages in stored if stages])


def running_slopes(
    problem: Problem, points: Points, p: Array, densities: Sequence[Densities]
) -> tuple[Array | None, Array]:
    """Return the gradients of M running costs with the shares of the points.

    In the state [K, M, n], None if there are none, and in the parameters, summed [M, m].
    """
    mu = np.zeros((len(densities), problem.n_parameters))
    if not any(densities):
        return None, mu
    slopes = np.zeros((len(points.t), len(densities), problem.size))
    for k, running in enumerate(densities):
        for weight, density in running:
            shares = weight * points.share
            many = at_many_points(density)
            gradients = None if many is None else many.gradients(points.t, points.u, p)
            if gradients is None:
                _add_one_by_one(density, points, p, shares, (slopes[:, k], mu[k]), problem)
            else:
                slopes[:, k] += shares[:, None] * gradients[0]
                mu[k] += shares @ gradients[1]
    return slopes, mu


def _add_one_by_one(
    density: Scalar,
    points: Points,
    p: Array,
    shares: Array,
    out: tuple[Array, Array],
    problem: Problem,
) -> None:
    """Add the gradients of a running cost to ``out`` ([K, n], [m]), a point after the other."""
    state, by_u, by_p = problem.create_state(), problem.create_state(), problem.create_parameters()
    for point, (t, u, share) in enumerate(
        zip(points.t.tolist(), points.u, shares.tolist(), strict=True)
    ):
        write(state, u)
        by_u.zeroEntries()
        density.add_u(share, t, state, p, by_u)
        density.add_p(share, t, state, p, by_p)
        out[0][point] += read(by_u)
    out[1][...] += read(by_p)


def push_columns(
    trajectory: Trajectory,
    du: Array,
    dp: Array,
    last: int,
    pushed_blocks: list[PushedBlock] | None = None,
) -> Iterator[Array]:
    """Carry directions forward; yield the tangents of the states, block by block.

    Parameters
    ----------
    trajectory : Trajectory
        A run that can be swept in blocks (``no_arrays``).
    du : array [D, n]
        Directions in the initial state.
    dp : array [D, m]
        Directions in the parameters.
    last : int
        Number of the state where the sweep ends.
    pushed_blocks : list, optional
        Gets the blocks with their tangents, for those who need them once more.

    Yields
    ------
    array [S, D, n]
        Tangents of the states after the steps of a block.
    """
    steps = block_steps(trajectory)
    for span in block_spans(trajectory, steps, 3 * len(du), last):
        linear = linear_block(trajectory, steps, span)
        pushed = steps.push(linear, du, parameter_part(trajectory.problem, linear, dp))
        if pushed_blocks is not None:
            pushed_blocks.append((linear, pushed))
        du = pushed.states[-1]
        yield pushed.states[1:]


def parameter_part(problem: Problem, linear: LinearBlock, dp: Array) -> Array | None:
    """Return f_p dp at the points of a block [K, D, n]; None where it vanishes."""
    batch, points = problem.batch, linear.points
    assert batch is not None
    moving = np.flatnonzero(dp.any(axis=1))
    if not moving.size:
        return None
    result = np.zeros((len(points.t), len(dp), problem.size))
    rates = batch.push_parameters(points.t, points.u, linear.block.p, dp[moving])
    result[:, moving] = rates.swapaxes(0, 1)
    return result
