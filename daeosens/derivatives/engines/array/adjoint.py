"""Adjoint sweeps in blocks: many steps, stage points and costs at once, on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Cost, Densities, Point, Scalar, points_by_step
from daeosens.derivatives.engines.array.step_blocks import (
    Span,
    block_of,
    block_spans,
    block_steps,
    linear_block,
    running_slopes,
)
from daeosens.methods.block_steps import BlockSteps, Seed
from daeosens.methods.rk.block import BlockRungeKutta
from daeosens.petsc._kernels import FactorPulls, wake
from daeosens.petsc.threads import one_blas_thread, thread_count
from daeosens.petsc.vectors import Array, read
from daeosens.problem.batched.linearization import add_part
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory

Adder: TypeAlias = "Callable[[Point, tuple[PETSc.Vec, PETSc.Vec], bool], float]"
"""Adds what a cost says about a state, at (t, u, p), to its adjoint [n] and to that of p [m].

Returns what it says about the time, if that moves."""

CACHED, FEWEST = 2**20, 8
"""Bytes that rows may keep at all points, beside which what a sweep works on stays in the cache;
but not fewer rows than the latter."""

WORTH = 10**6
"""Multiplications that take longer than to wake a thread."""


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
    weight: float, scalar: Scalar, point: Point, out: tuple[PETSc.Vec, PETSc.Vec], moves: bool
) -> float:
    scalar.add_u(weight, *point, out[0])
    scalar.add_p(weight, *point, out[1])
    return weight * scalar.value_t(*point) if moves else 0.0


def _no_time(_row: int, _slope: float) -> None:
    """Add nothing: the times of smooth runs are fixed."""


def seed_of(
    trajectory: Trajectory,
    observed: Mapping[int, Sequence[tuple[int, Adder]]],
    mu: Array,
    add_time: Callable[[int, float], None] = _no_time,
) -> Seed:
    """Return what adds to the adjoints lam [M, n] of a state, to ``mu`` [M, m], and to the time's.

    ``add_time(row, slope)`` is called for states whose times are those of implicit events.
    """
    problem, moving = trajectory.problem, trajectory.moving
    out = problem.create_state(), problem.create_parameters()

    def seed(number: int, lam: Array) -> None:
        found = observed.get(number, ())
        if not found:
            return
        p = trajectory.parameters(number)
        point = (float(trajectory.times[number]), trajectory.states[number], p)
        for k, add in found:
            for vec in out:
                vec.zeroEntries()
            slope = add(point, out, number in moving)
            lam[k] += read(out[0])
            mu[k] += read(out[1])
            if number in moving:
                add_time(k, slope)

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
    problem, steps = trajectory.problem, block_steps(trajectory)
    # fresh memory takes longer to fill with zeros than with the first block's sums
    mu = (np.empty if last else np.zeros)((len(lam), problem.n_parameters))
    assert problem.batch is not None
    together = None if seed or any(densities) else problem.batch.rows_at_once
    threads = _threads(problem, len(lam), last * steps.points_per_step) if together else 1
    at_once = min(threads * (together or len(lam)), len(lam))
    with one_blas_thread() if threads > 1 else nullcontext():
        for span in reversed(block_spans(trajectory, steps, 2 * at_once, last)):
            given, fresh = (span, (lam, mu)), span[1] == last
            if not isinstance(steps, BlockRungeKutta):
                by_p = _carry_implicit(trajectory, steps, *given, seed, densities, fresh=fresh)
            elif together is None:
                by_p = _carry_explicit(trajectory, steps, *given, seed, densities, fresh=fresh)
            else:
                _carry_together(trajectory, steps, *given, together, threads, fresh=fresh)
                continue
            if any(densities):
                mu += by_p
            if seed is not None:
                seed(span[0], lam)
    return mu


def _threads(problem: Problem, rows: int, points: int) -> int:
    """Return how many threads carry rows: one where more would wait for work."""
    few = rows * points * problem.size**2 < WORTH
    return 1 if few else min(thread_count(), max(rows // FEWEST, 1))


def _rows_of_a_thread(rows: int, memory: int, together: int, threads: int) -> int:
    """Return how many rows a thread carries together: as many times for each of them.

    Parameters
    ----------
    rows : int
    memory : int
        Bytes that all of them keep at all points.
    together : int
        How many are carried together at most.
    threads : int
    """
    parts = max(-(-rows // together), min(memory // CACHED, rows // FEWEST), 1)
    return -(-rows // (-(-parts // threads) * threads))


def _carry_together(
    trajectory: Trajectory,
    steps: BlockRungeKutta,
    span: Span,
    sums: tuple[Array, Array],
    together: int,
    threads: int,
    *,
    fresh: bool,
) -> None:
    """Carry ``sums`` (lam, mu) over a block by factors of f_u, which threads share by rows.

    Each carries at most ``together`` at a time.  ``fresh``: mu holds nothing yet.
    """
    if threads > 1:
        wake(threads - 1)  # they are there once the points are evaluated
    problem, rows = trajectory.problem, len(sums[0])
    assert problem.batch is not None
    block = block_of(trajectory, steps, span)
    points = steps.points(block)
    pulls = problem.batch.linearize(points.t, points.u, block.p, rows).pulls
    assert isinstance(pulls, FactorPulls)
    several = [pulls, *(pulls.twin() for _ in range(1, threads))]
    memory = 8 * rows * len(points.t) * problem.size
    at_once = _rows_of_a_thread(rows, memory, together, threads)
    steps.carry_together(several, block, sums, at_once, fresh)


def _carry_explicit(
    trajectory: Trajectory,
    steps: BlockRungeKutta,
    span: Span,
    sums: tuple[Array, Array],
    seed: Seed | None,
    densities: Sequence[Densities],
    *,
    fresh: bool,
) -> Array:
    """Carry ``sums`` (lam, mu) over a block by products with f_u, which need not be a matrix.

    ``fresh``: mu holds nothing yet.  Returns what running costs add to mu.
    """
    problem, (lam, mu) = trajectory.problem, sums
    assert problem.batch is not None
    block = block_of(trajectory, steps, span)
    points = steps.points(block)
    linear = problem.batch.linearize(points.t, points.u, block.p, len(lam))
    sources, by_p = running_slopes(problem, points, block.p, densities)
    steps.carry_by(linear.pulls, block, lam, sources, seed, linear.weights)
    if problem.n_parameters:
        linear.collect(mu, fresh)
    return by_p


def _carry_implicit(
    trajectory: Trajectory,
    steps: BlockSteps,
    span: Span,
    sums: tuple[Array, Array],
    seed: Seed | None,
    densities: Sequence[Densities],
    *,
    fresh: bool,
) -> Array:
    """Carry ``sums`` (lam, mu) over a block by the factors of its matrices.

    Returns what running costs add to mu.
    """
    problem, (lam, mu) = trajectory.problem, sums
    assert problem.batch is not None
    linear = linear_block(trajectory, steps, span)
    points, p = linear.points, linear.block.p
    sources, by_p = running_slopes(problem, points, p, densities)
    weights = steps.carry(linear, lam, sources, seed or _nothing).swapaxes(0, 1)
    if problem.n_parameters:
        add_part(mu, problem.batch.pull_parameters(points.t, points.u, p, weights), fresh=fresh)
    return by_p


def _nothing(_number: int, _lam: Array) -> None:
    """Add nothing."""
