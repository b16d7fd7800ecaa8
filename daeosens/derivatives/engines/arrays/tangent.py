"""Tangent sweeps in blocks: many steps, stage points and directions at once, on arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daeosens.derivatives.engines.arrays.step_blocks import block_spans, block_steps, linear_block
from daeosens.methods.block_steps import LinearBlock
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory


def push_columns(trajectory: Trajectory, du: Array, dp: Array, last: int) -> Iterator[Array]:
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

    Yields
    ------
    array [S, D, n]
        Tangents of the states after the steps of a block.
    """
    steps = block_steps(trajectory)
    for span in block_spans(trajectory, steps, 3 * len(du), last):
        linear = linear_block(trajectory, steps, span)
        pushed = steps.push(linear, du, parameter_part(trajectory.problem, linear, dp))
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
