"""Adjoint sweeps in blocks: many steps, stage points and costs at once, on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array, read
from daeosens.blocks import block_spans, block_steps, linear_block, running_slopes
from daeosens.cost import Cost, Densities, Point, Scalar, points_by_step
from daeosens.steps.block import Seed
from daeosens.trajectory import Trajectory

Adder: TypeAlias = "Callable[[Point, tuple[PETSc.Vec, PETSc.Vec]], None]"
"""Adds what a cost says about a state, at (t, u, p), to its adjoint [n] and to that of p [m]."""


def block_sweep(trajectory: Trajectory, costs: Sequence[Cost]) -> tuple[Array, Array]:
    """Return the adjoints lam_0 [M, n] and mu [M, m] of M costs.

    As ``adjoint`` by steps, of the same numbers in another order of operations.
    """
    densities = [cost.densities for cost in costs]
    return sweep_points(trajectory, gradients_by_step(trajectory, costs), densities)


def sweep_points(
    trajectory: Trajectory,
    observed: Mapping[int, Sequence[tuple[int, Adder]]],
    densities: Sequence[Densities],
) -> tuple[Array, Array]:
    """Return the adjoints lam_0 [M, n] and mu [M, m] of what is said about states and points.

    Parameters
    ----------
    trajectory : Trajectory
        A run that can be swept in blocks (``no_block``).
    observed : mapping of int to sequence of (int, callable)
        By the number of the state, for which row something is added.
    densities : sequence of sequences of (float, Scalar)
        Running costs with their weights, for each of the M rows.
    """
    problem = trajectory.problem
    lam = np.zeros((len(densities), problem.size))
    mu = np.zeros((len(densities), problem.n_parameters))
    seed = seed_of(trajectory, observed, mu)
    seed(trajectory.n_steps, lam)
    mu += sweep_rows(trajectory, lam, trajectory.n_steps, seed, densities)
    return lam, mu


def gradients_by_step(
    trajectory: Trajectory, costs: Sequence[Cost]
) -> dict[int, list[tuple[int, Adder]]]:
    """Sort the gradients of costs at single states by the number of the state."""
    points = points_by_step(trajectory.index, costs)
    return {
        number: [(k, partial(_add_gradient, weight, scalar)) for k, weight, scalar in found]
        for number, found in points.items()
    }


def _add_gradient(
    weight: float, scalar: Scalar, point: Point, out: tuple[PETSc.Vec, PETSc.Vec]
) -> None:
    scalar.add_u(weight, *point, out[0])
    scalar.add_p(weight, *point, out[1])


def seed_of(
    trajectory: Trajectory, observed: Mapping[int, Sequence[tuple[int, Adder]]], mu: Array
) -> Seed:
    """Return what adds to the adjoints lam [M, n] of a state, and to ``mu`` [M, m]."""
    problem = trajectory.problem
    out = problem.create_state(), problem.create_parameters()

    def seed(number: int, lam: Array) -> None:
        for k, add in observed.get(number, ()):
            for vec in out:
                vec.zeroEntries()
            add((float(trajectory.times[number]), trajectory.states[number], trajectory.p), out)
            lam[k] += read(out[0])
            mu[k] += read(out[1])

    return seed


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
    for span in reversed(block_spans(trajectory, steps, 2 * len(lam), last)):
        linear = linear_block(trajectory, steps, span)
        points, p = linear.points, linear.block.p
        slopes, by_p = running_slopes(problem, points, p, densities)
        weights = steps.carry(linear, lam, slopes, seed or _nothing)
        if seed is not None:
            seed(span[0], lam)
        if problem.n_parameters == 0:
            continue
        part = batch.pull_parameters(points.t, points.u, p, weights.swapaxes(0, 1))
        if slopes is not None:
            part = part + by_p
        mu = part if mu is None else np.add(mu, part, out=mu)
    return np.zeros((len(lam), problem.n_parameters)) if mu is None else mu


def _nothing(_number: int, _lam: Array) -> None:
    """Add nothing."""
