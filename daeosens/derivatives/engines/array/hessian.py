"""Second-order sweeps in blocks: one cost along many directions at once, on arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Cost, Densities, Point, Scalar, points_by_step
from daeosens.derivatives.engines.array.adjoint import Observer
from daeosens.derivatives.engines.array.step_blocks import (
    Span,
    block_spans,
    block_steps,
    linear_block,
    running_slopes,
)
from daeosens.derivatives.engines.array.tangent import parameter_part
from daeosens.derivatives.engines.request import Observed
from daeosens.methods.block_steps import BlockSteps, BlockTangent, LinearBlock, Seed
from daeosens.petsc.vectors import Array, read, write
from daeosens.problem.problem import Problem
from daeosens.timestepping.trajectory.trajectory import Trajectory

DIRECTIONS = 64
"""How many directions share a sweep: more would not be faster, and take more memory."""


@dataclass(frozen=True, eq=False)
class FirstOrder:
    """A run that fits into one block with the adjoint of a cost: all directions need it.

    Attributes
    ----------
    linear : LinearBlock
        All steps.
    weights : array [K, 1, n]
        Adjoints of the points.
    lam, mu : array [n], [m]
        The gradient.
    """

    linear: LinearBlock
    weights: Array
    lam: Array
    mu: Array


@dataclass(frozen=True, eq=False)
class SecondSweep:
    """The gradient lam [n], mu [m] and its derivatives lam_dot [D, n], mu_dot [D, m].

    ``first`` serves further sweeps, if the run fits into one block.
    """

    lam: Array
    mu: Array
    lam_dot: Array
    mu_dot: Array
    first: FirstOrder | None


def block_second_sweep(
    trajectory: Trajectory, cost: Cost, du: Array, dp: Array, first: FirstOrder | None = None
) -> SecondSweep:
    """Return the Hessian of a cost times D directions, and its gradient.

    As ``hessian_products`` by steps, of the same numbers in another order of operations.  The
    derivatives of the adjoints obey the recurrences of the adjoints themselves, with second
    derivatives as sources.  Where the run takes several blocks, only the tangents before each are
    kept, and those inside are found again on the way back.

    Parameters
    ----------
    trajectory : Trajectory
        A run that can be swept in blocks (``no_block``).
    cost : Cost
        What is differentiated.
    du, dp : array [D, n], [D, m]
        The directions.
    first : FirstOrder, optional
        From an earlier sweep of the same run and cost.

    Source
    ------
    docs/mathematics.md, section 1.
    """
    observed = points_by_step(trajectory.index, [cost])
    sweeps: list[SecondSweep] = []
    for k in range(0, len(du), DIRECTIONS):
        part = slice(k, k + DIRECTIONS)
        along = du[part], dp[part]
        rows = _no_rows(trajectory.problem, along)
        sweeps.append(_sweep(trajectory, observed, cost.densities, along, rows, first))
        first = sweeps[-1].first
    lam_dot = np.concatenate([sweep.lam_dot for sweep in sweeps])
    mu_dot = np.concatenate([sweep.mu_dot for sweep in sweeps])
    return SecondSweep(sweeps[0].lam, sweeps[0].mu, lam_dot, mu_dot, first)


def carry_window(
    window: Trajectory,
    points: Observed,
    along: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
    first: tuple[PETSc.Vec, PETSc.Vec],
    dots: Sequence[tuple[PETSc.Vec, PETSc.Vec]],
) -> bool:
    """Carry one adjoint and its derivatives back over smooth steps between events, on arrays.

    Parameters and result as for ``carry_piece``, which does it in C.
    """
    du, dp = (np.array([read(vec) for vec in vecs]) for vecs in zip(*along, strict=True))
    lam, mu = (np.array([read(vec)]) for vec in first)
    lam_dot, mu_dot = (np.array([read(vec) for vec in vecs]) for vecs in zip(*dots, strict=True))
    swept = _sweep(window, points, (), (du, dp), (lam, mu, lam_dot, mu_dot), None)
    write(first[0], swept.lam)
    write(first[1], swept.mu)
    for (by_u, by_p), row, row_p in zip(dots, swept.lam_dot, swept.mu_dot, strict=True):
        write(by_u, row)
        write(by_p, row_p)
    return True


SecondRows: TypeAlias = "tuple[Array, Array, Array, Array]"
"""lam [1, n], mu [1, m] and their derivatives along directions lam_dot [D, n], mu_dot [D, m]."""


def _no_rows(problem: Problem, along: tuple[Array, Array]) -> SecondRows:
    du, dp = along
    lam, mu = np.zeros((1, problem.size)), np.zeros((1, problem.n_parameters))
    return lam, mu, np.zeros(du.shape), np.zeros(dp.shape)


def _sweep(
    trajectory: Trajectory,
    observed: Observed,
    densities: Densities,
    directions: tuple[Array, Array],
    rows: SecondRows,
    first: FirstOrder | None,
) -> SecondSweep:
    """Carry ``rows`` back over a run or a window, with what is observed at its states."""
    problem, batch = trajectory.problem, trajectory.problem.batch
    assert batch is not None
    (du, dp), (lam, mu, lam_dot, mu_dot) = directions, rows
    steps = block_steps(trajectory)
    spans = block_spans(trajectory, steps, 6 * len(du) + 2, trajectory.n_steps)
    known = first if len(spans) == 1 else None
    observer = Observer(trajectory, observed if known is None else {})

    def seed(number: int, lam: Array) -> None:
        observer.add(number, lam, mu)

    bend = Bending(trajectory, observed, densities, dp, mu_dot)
    for linear, along in _tangents_back(trajectory, steps, spans, du, dp, known):
        points, start = linear.points, linear.block.first
        at = points.t, points.u, linear.block.p
        if start == spans[-1][0]:
            seed(trajectory.n_steps, lam)
            bend(trajectory.n_steps, along.states[-1], lam_dot)
        if known is None:
            slopes, by_p = running_slopes(problem, points, linear.block.p, [densities])
            weights = steps.carry(linear, lam, slopes, seed)
            mu += batch.pull_parameters(*at, weights.swapaxes(0, 1)) + by_p
        else:
            weights = known.weights
        sources = bend.points(linear, along, weights)
        weights_dot = steps.carry(linear, lam_dot, sources, bend.within(start, along))
        mu_dot += batch.pull_parameters(*at, weights_dot.swapaxes(0, 1))
        seed(start, lam)
        bend(start, along.states[0], lam_dot)
        if len(spans) == 1 and known is None:
            known = FirstOrder(linear, weights, lam[0], mu[0])
    if known is not None:
        lam[0], mu[0] = known.lam, known.mu
    return SecondSweep(lam[0], mu[0], lam_dot, mu_dot, known)


def _tangents_back(
    trajectory: Trajectory,
    steps: BlockSteps,
    spans: Sequence[Span],
    du: Array,
    dp: Array,
    known: FirstOrder | None,
) -> Iterator[tuple[LinearBlock, BlockTangent]]:
    """Push tangents through all blocks; yield these with them, from the last one back."""

    def pushed(span: Span, du: Array) -> tuple[LinearBlock, BlockTangent]:
        linear = linear_block(trajectory, steps, span) if known is None else known.linear
        return linear, steps.push(linear, du, parameter_part(trajectory.problem, linear, dp))

    starts = [du]
    for span in spans[:-1]:
        starts.append(pushed(span, starts[-1])[1].states[-1])
    for span, start in zip(reversed(spans), reversed(starts), strict=True):
        yield pushed(span, start)


class Bending:
    """Adds the second derivatives of a cost along directions dp [D, m] and what goes with them."""

    def __init__(
        self,
        trajectory: Trajectory,
        observed: Observed,
        densities: Densities,
        dp: Array,
        mu_dot: Array,
    ) -> None:
        self._trajectory = trajectory
        self._observed, self._densities = observed, densities
        self._dp, self._mu_dot = dp, mu_dot

    @cached_property
    def _work(self) -> tuple[PETSc.Vec, PETSc.Vec, PETSc.Vec]:
        problem = self._trajectory.problem
        return problem.create_state(), problem.create_state(), problem.create_parameters()

    def __call__(self, number: int, du: Array, lam_dot: Array) -> None:
        """Add what is said about a state, whose tangents are du [D, n], to lam_dot [D, n]."""
        scalars = [(weight, scalar) for _, weight, scalar, _ in self._observed.get(number, ())]
        run = self._trajectory
        self.add(scalars, (float(run.times[number]), run.states[number], run.p), du, lam_dot)

    def within(self, first: int, along: BlockTangent) -> Seed:
        """Return the same for the states of a block, of which ``first`` is the first one."""
        return lambda number, lam_dot: self(number, along.states[number - first], lam_dot)

    def points(self, linear: LinearBlock, along: BlockTangent, weights: Array) -> Array:
        """Return what second derivatives add at the points [K, D, n]; add to mu_dot."""
        points, p, batch = linear.points, linear.block.p, self._trajectory.problem.batch
        assert batch is not None
        directions = along.points.swapaxes(0, 1)
        by_u, by_p = batch.hessian_product(
            points.t, points.u, p, weights[:, 0], directions, self._dp
        )
        self._mu_dot += by_p
        sources = np.ascontiguousarray(by_u.swapaxes(0, 1))
        if not self._densities:
            return sources
        state = self._trajectory.problem.create_state()
        for k, share in enumerate(points.share.tolist()):
            scaled = [(share * weight, density) for weight, density in self._densities]
            write(state, points.u[k])
            point = (float(points.t[k]), state, self._trajectory.p)
            self.add(scaled, point, along.points[k], sources[k])
        return sources

    def add(
        self, scalars: Sequence[tuple[float, Scalar]], point: Point, du: Array, out: Array
    ) -> None:
        """Add weighted Hessians at a point along du [D, n] to ``out`` [D, n] and mu_dot."""
        if not scalars:
            return
        du_vec, by_u, by_p = self._work
        for k, direction in enumerate(zip(du, self._dp, strict=True)):
            write(du_vec, direction[0])
            by_u.zeroEntries()
            by_p.zeroEntries()
            for weight, scalar in scalars:
                scalar.add_hessian(weight, point, (du_vec, direction[1]), (by_u, by_p))
            out[k] += read(by_u)
            self._mu_dot[k] += read(by_p)
