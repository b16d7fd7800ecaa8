"""Adjoint sweeps in blocks: many steps, stage points and costs at once, on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities, Point
from daeosens.derivatives.engines.arrays.step_blocks import (
    CALLED_BACK,
    Span,
    block_of,
    block_spans,
    block_steps,
    linear_block,
    running_slopes,
)
from daeosens.derivatives.engines.request import AdjointRequest, Observed, Rows, window_of
from daeosens.derivatives.engines.vectors.adjoint import VectorSweep
from daeosens.methods.block_steps import BlockSteps, Seed
from daeosens.methods.rk.block import BlockRungeKutta
from daeosens.methods.step import StepMap
from daeosens.petsc._kernels import FactorPulls, wake
from daeosens.petsc.threads import one_blas_thread, thread_count
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.batched.linearization import add_part
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory

CACHED, FEWEST = 2**20, 8
"""Bytes that rows may keep at all points, beside which what a sweep works on stays in the cache;
but not fewer rows than the latter."""

WORTH = 10**6
"""Multiplications that take longer than to wake a thread."""


class Observer:
    """Adds what is observed at states to rows that are arrays."""

    def __init__(self, trajectory: Trajectory, observed: Observed) -> None:
        problem = trajectory.problem
        self._trajectory, self._observed = trajectory, observed
        self._out = problem.create_state(), problem.create_parameters()

    def sees_parameters(self, number: int) -> bool:
        """Whether what is observed at a state may depend on the parameters."""
        return any(seen.sees_parameters for seen in self._observed.get(number, ()))

    def add(self, number: int, lam: Array, mu: Array | None) -> None:
        """Add the gradients at a state to ``lam`` [M, n] and ``mu`` [M, m], if it is needed."""
        for seen in self._observed.get(number, ()):
            out_u, out_p = self._out
            out_u.zeroEntries()
            if mu is not None:  # of a million parameters it is not touched in vain
                out_p.zeroEntries()
            # one row at a time through vectors, as costs are written for these; few states are
            # observed
            seen.add(self._point(number), self._out)
            lam[seen.row] += read(out_u)
            if mu is not None:
                mu[seen.row] += read(out_p)

    def slopes(self, number: int) -> list[tuple[int, float]]:
        """Return the rows that look at a state, with the derivatives in its time."""
        observations = self._observed.get(number, ())
        return [(seen.row, seen.slope(self._point(number))) for seen in observations]

    def _point(self, number: int) -> Point:
        run = self._trajectory
        return float(run.times[number]), run.stored[number], run.parameters(number)


class ArraySweep:
    """M adjoint rows as arrays, with derivatives at all points of many steps at once.

    Steps of fixed size that are not at events make up windows, each a run of its own; over what is
    between them the rows go as vectors.

    Parameters
    ----------
    trajectory : Trajectory
        A run that can be swept by arrays (``no_arrays``).
    request : AdjointRequest
        The rows.
    """

    name, why = "arrays", ""

    def __init__(self, trajectory: Trajectory, request: AdjointRequest) -> None:
        problem = trajectory.problem
        self._trajectory = trajectory
        self._request = request
        shape = (request.rows, problem.size)
        self._lam = np.zeros(shape) if request.start is None else request.start
        self._mu: Array | None = None

    @cached_property
    def _vectors(self) -> VectorSweep:
        """What carries the rows over events."""
        return VectorSweep(self._trajectory, self._request)

    @property
    def steps(self) -> StepMap:
        """The step map of what is between the windows."""
        return self._vectors.steps

    @cached_property
    def _observer(self) -> Observer:
        return Observer(self._trajectory, self._request.observed)

    @property
    def _sums(self) -> Array:
        """Mu [M, m], made where something is added to it."""
        if self._mu is None:
            self._mu = np.zeros((self._request.rows, self._trajectory.problem.n_parameters))
        return self._mu

    def observe(self, number: int) -> None:
        """Add what is observed at a state."""
        self._observe(number, self._lam)

    def _observe(self, number: int, lam: Array) -> None:
        if number not in self._request.observed:
            return
        by_p = self._sums if self._observer.sees_parameters(number) else None
        self._observer.add(number, lam, by_p)
        if number in self._trajectory.moving:
            for row, slope in self._observer.slopes(number):
                self.steps.add_time(row, slope)

    def back(self, first: int, last: int) -> None:
        """Carry the rows over a window, from state number ``last`` to ``first``."""

        def seed(number: int, lam: Array) -> None:
            self._observe(first + number, lam)

        request = self._request
        earlier = seed if request.looks_between(first, last) else None
        # In the window states count from 0 and the rows pass no event.
        window = window_of(self._trajectory, first, last)
        densities = request.densities if request.continuous else ()
        by_p = sweep_rows(window, self._lam, last - first, earlier, densities)
        if self._mu is None:
            self._mu = by_p
        else:
            self._mu += by_p

    def between(self, number: int) -> None:
        """Carry the rows over one step, or jump, that is in no window."""
        vectors = self._vectors
        pairs = [
            *zip(vectors.lam, self._lam, strict=True),
            *zip(vectors.mu, self._sums, strict=True),
        ]
        # there and back: what is between windows is rare, so the copies do not matter
        for vec, row in pairs:
            write(vec, row)
        vectors.back(number, number + 1)
        for vec, row in pairs:
            row[...] = read(vec)

    def values(self) -> None:
        """Return nothing: the values of costs are no part of the sweep."""

    def rows(self) -> Rows:
        """Return the rows as vectors."""
        problem = self._trajectory.problem
        lam, mu = self.matrices()
        # vectors of parameters, of which there may be many, are in the memory of the rows
        return (
            [_filled(problem.create_state(), row) for row in lam],
            [PETSc.Vec().createWithArray(row, comm=problem.comm) for row in mu],
        )

    def matrices(self) -> tuple[Array, Array]:
        """Return the rows as arrays [M, n] and [M, m]."""
        return self._lam, self._sums


def _filled(vec: PETSc.Vec, row: Array) -> PETSc.Vec:
    write(vec, row)
    return vec


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
        A run that can be swept by arrays (``no_arrays``).
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
    # Threads share rows where nothing is added on the way: a seed is Python and would hold the
    # interpreter.
    together = None if seed or any(densities) else problem.batch.rows_at_once
    threads = _threads(problem, len(lam), last * steps.points_per_step) if together else 1
    at_once = min(threads * (together or len(lam)), len(lam))
    with one_blas_thread() if threads > 1 else nullcontext():
        memory = CALLED_BACK if together is None else None
        for span in reversed(block_spans(trajectory, steps, 2 * at_once, last, memory)):
            part, fresh = (span, (lam, mu)), span[1] == last
            if not isinstance(steps, BlockRungeKutta):
                by_p = _carry_implicit(trajectory, steps, *part, seed, densities, fresh=fresh)
            elif together is None:
                by_p = _carry_explicit(trajectory, steps, *part, seed, densities, fresh=fresh)
            else:
                _carry_together(trajectory, steps, *part, together, threads, fresh=fresh)
                continue
            if any(densities):
                mu += by_p
            # the first state of this block is the last one of the block before it
            if seed is not None:
                seed(span[0], lam)
    return mu


def _threads(problem: Problem, rows: int, points: int) -> int:
    """Return how many threads carry rows: one where more would wait for work."""
    # n^2 multiplications for each row and point, as for a full Jacobian
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
    # -(-a // b) rounds up. A multiple of the threads, so that none of them waits for the last
    # part.
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
