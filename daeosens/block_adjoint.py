"""Adjoint sweeps in blocks: many steps, stage points and costs at once, on arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from daeosens.arrays import Array, read, write
from daeosens.cost import Cost, Densities, points_by_step
from daeosens.linearization import added
from daeosens.problem import Problem
from daeosens.steps import tableau
from daeosens.steps.block import Block, BlockSteps, Points, Seed
from daeosens.steps.block_rk import BlockRungeKutta
from daeosens.steps.block_theta import BlockTheta
from daeosens.trajectory import Trajectory

BLOCK_MEMORY = 2**27
"""Bytes that the Jacobians and weights of a block of steps may take, unless one step needs more."""


def block_sweep(trajectory: Trajectory, costs: Sequence[Cost]) -> tuple[Array, Array]:
    """Return the adjoints lam_0 [M, n] and mu [M, m] of M costs.

    As ``adjoint`` by steps, of the same numbers in another order of operations.
    """
    problem = trajectory.problem
    lam = np.zeros((len(costs), problem.size))
    mu = np.zeros((len(costs), problem.n_parameters))
    observed = points_by_step(trajectory.index, costs)
    by_u, by_p = problem.create_state(), problem.create_parameters()

    def seed(number: int, lam: Array) -> None:
        for k, weight, scalar in observed.get(number, ()):
            point = (float(trajectory.times[number]), trajectory.states[number], trajectory.p)
            for vec in (by_u, by_p):
                vec.zeroEntries()
            scalar.add_u(weight, *point, by_u)
            scalar.add_p(weight, *point, by_p)
            lam[k] += read(by_u)
            mu[k] += read(by_p)

    densities = [cost.densities for cost in costs]
    seed(trajectory.n_steps, lam)
    mu += sweep_rows(trajectory, lam, trajectory.n_steps, seed, densities)
    return lam, mu


def sweep_rows(
    trajectory: Trajectory,
    lam: Array,
    last: int,
    seed: Seed | None = None,
    densities: Sequence[Densities] = (),
) -> Array:
    """Carry rows ``lam`` [M, n] in place from state number ``last`` to the first one.

    Parameters
    ----------
    trajectory : Trajectory
        A run that can be swept in blocks (``no_block``).
    lam : array [M, n]
        Adjoints of the state number ``last``; overwritten by those of the first state.
    last : int
        Where the sweep begins.
    seed : callable, optional
        ``seed(number, lam)`` adds what costs say about the earlier states.
    densities : sequence of sequences of (float, Scalar)
        Running costs with their weights, for each row; empty without any.

    Returns
    -------
    array [M, m]
        Adjoints of the parameters.
    """
    problem = trajectory.problem
    batch = problem.batch
    assert batch is not None
    steps = block_steps(trajectory)
    mu: Array | None = None
    for block in _blocks(trajectory, steps, len(lam), last):
        points = steps.points(block)
        points.u.flags.writeable = False
        slopes = by_p = None
        if any(densities):
            slopes, by_p = _slopes(problem, points, block.p, densities)
        at = points.t, points.u, block.p
        if isinstance(steps, BlockRungeKutta):
            linear = batch.linearize(*at, len(lam))
            steps.carry_by(linear.pulls, block, lam, slopes, seed, linear.weights)
            collect = linear.collect
        else:
            weights = steps.carry(block, batch.jacobian(*at), lam, slopes, seed or _nothing)
            collect = partial(_added, partial(batch.pull_parameters, *at), weights)
        if seed is not None:
            seed(block.first, lam)
        if problem.n_parameters:
            mu = collect(mu)
        if by_p is not None and mu is not None:
            mu += by_p
    return np.zeros((len(lam), problem.n_parameters)) if mu is None else mu


def _added(pull: Callable[[Array], Array], weights: Array, mu: Array | None) -> Array:
    return added(pull(weights.swapaxes(0, 1)), mu)


def block_steps(trajectory: Trajectory) -> BlockSteps:
    """Return the transposed steps of a trajectory's method."""
    problem, method = trajectory.problem, trajectory.stepping.resolved_method
    inside = problem.inside if problem.breakpoints else None
    if method.explicit:
        assert problem.batch is not None
        return BlockRungeKutta(problem.batch, tableau(method.runge_kutta).of_step(), inside)
    return BlockTheta(_mass(problem), method.theta, inside, endpoint=method.endpoint)


def _mass(problem: Problem) -> Array | None:
    if problem.residual_udot is None:
        return None
    zero = problem.create_state()
    matrix = problem.residual_udot.create(0.0, zero, zero, np.zeros(problem.n_parameters))
    mass: Any = matrix.convert("dense").getDenseArray()
    return mass.copy()


def _blocks(trajectory: Trajectory, steps: BlockSteps, rows: int, last: int) -> Iterator[Block]:
    """Yield blocks of steps from the last one back, of as many steps as fit into the memory."""
    n = trajectory.problem.size
    each = 8 * steps.points_per_step * n * (n + 2 * rows + 4)
    several = max(1, BLOCK_MEMORY // each)
    for end in range(last, 0, -several):
        first = max(0, end - several)
        part = slice(first, end)
        yield Block(
            first,
            trajectory.times[part],
            trajectory.step_sizes[part],
            trajectory.u[first : end + 1],
            trajectory.p,
            _kept(trajectory, steps.points_per_step, range(first, end)),
        )


def _kept(trajectory: Trajectory, count: int, steps: Collection[int]) -> Array | None:
    """Return the stages [S, s, n] that the run kept, where that is cheaper than evaluations."""
    batch = trajectory.problem.batch
    if batch is None or batch.at_once or not trajectory.stages:
        return None
    keys = ((trajectory.states[k].handle, float(trajectory.step_sizes[k])) for k in steps)
    found = [trajectory.stages.get(key) for key in keys]
    if any(stages is None for stages in found):
        return None
    return np.array([[read(vec) for vec in stages[:count]] for stages in found if stages])


def _slopes(
    problem: Problem, points: Points, p: Array, densities: Sequence[Densities]
) -> tuple[Array, Array]:
    """Return the gradients of the running costs at the points, and their part of mu [M, m].

    The first [K, M, n] are those in the state, without the weights of the quadrature.
    """
    state, by_u, by_p = problem.create_state(), problem.create_state(), problem.create_parameters()
    slopes = np.zeros((len(points.t), len(densities), problem.size))
    mu = np.zeros((len(densities), problem.n_parameters))
    for point, (t, u) in enumerate(zip(points.t.tolist(), points.u, strict=True)):
        write(state, u)
        for k, running in enumerate(densities):
            if not running:
                continue
            by_u.zeroEntries()
            by_p.zeroEntries()
            for weight, density in running:
                density.add_u(weight, t, state, p, by_u)
                density.add_p(weight, t, state, p, by_p)
            slopes[point, k] = read(by_u)
            mu[k] += points.share[point] * read(by_p)
    return slopes, mu


def _nothing(_number: int, _lam: Array) -> None:
    """Add nothing."""
