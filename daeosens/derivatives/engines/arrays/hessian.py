"""Second-order sweeps in blocks: one cost along many directions at once, on arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from petsc4py import PETSc

from daeosens.costs.cost import Densities, Point, Scalar, at_many_points
from daeosens.derivatives.engines.arrays.adjoint import Observer
from daeosens.derivatives.engines.arrays.step_blocks import (
    PushedBlock,
    Span,
    block_spans,
    block_steps,
    linear_block,
    parameter_part,
    running_slopes,
)
from daeosens.derivatives.engines.request import Observed, SecondRows, no_rows
from daeosens.methods.block_steps import BlockSteps, BlockTangent, LinearBlock, Seed
from daeosens.petsc.vectors import Array, read, write
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


def carry_second(
    window: Trajectory,
    observed: Observed,
    densities: Densities,
    along: tuple[Array, Array],
    rows: SecondRows | None,
    known: FirstOrder | None = None,
    pushed: Sequence[PushedBlock] = (),
) -> tuple[SecondRows, FirstOrder | None]:
    """Carry one adjoint and its derivatives along D directions back over smooth steps.

    The derivatives of the adjoints obey the recurrences of the adjoints themselves, with second
    derivatives as sources.  Where the steps take several blocks, only the tangents before each are
    kept, and those inside are found again on the way back.

    Parameters
    ----------
    window : Trajectory
        A run, or a window of one, that can be swept in blocks (``no_arrays``).
    observed, densities
        Of the cost, by the number of the state in the window: see ``AdjointRequest``.
    along : (array [D, n], array [D, m])
        The tangents of the first state, and the directions of the parameters.
    rows : SecondRows or None
        At the last state; None is zero.
    known : FirstOrder, optional
        From an earlier sweep of the same window and cost.
    pushed : sequence
        The blocks of the window with the tangents of all directions, if they are there.

    Returns
    -------
    SecondRows, FirstOrder or None
        At the first state; what serves further directions, if the steps fit into one block.

    Source
    ------
    docs/mathematics.md, section 1.
    """
    du, dp = along
    rows = no_rows(du, dp) if rows is None else rows
    parts: list[SecondRows] = []
    # lam and mu start anew with each part of the directions, unless the first part has left them
    # in ``known``.
    for k in range(0, len(du), DIRECTIONS):
        part = slice(k, k + DIRECTIONS)
        copies = SecondRows(
            rows.lam.copy(), rows.mu.copy(), rows.lam_dot[part].copy(), rows.mu_dot[part].copy()
        )
        pushed = pushed if len(du) <= DIRECTIONS else ()
        swept, known = _sweep(
            window, observed, densities, (du[part], dp[part]), copies, known, pushed
        )
        parts.append(swept)
    lam_dot = np.concatenate([swept.lam_dot for swept in parts])
    mu_dot = np.concatenate([swept.mu_dot for swept in parts])
    return SecondRows(parts[0].lam, parts[0].mu, lam_dot, mu_dot), known


def _sweep(
    trajectory: Trajectory,
    observed: Observed,
    densities: Densities,
    directions: tuple[Array, Array],
    rows: SecondRows,
    first: FirstOrder | None,
    pushed: Sequence[PushedBlock],
) -> tuple[SecondRows, FirstOrder | None]:
    """Carry ``rows`` in place over a run or a window, with what is observed at its states."""
    problem, batch = trajectory.problem, trajectory.problem.batch
    assert batch is not None
    (du, dp), lam_dot, mu_dot = directions, rows.lam_dot, rows.mu_dot
    lam, mu = rows.lam[np.newaxis], rows.mu[np.newaxis]
    steps = block_steps(trajectory)
    spans = block_spans(trajectory, steps, 6 * len(du) + 2, trajectory.n_steps)
    # Weights are kept for one block only: with several, the first order is swept again.
    known = first if len(spans) == 1 else None
    observer = Observer(trajectory, observed if known is None else {})

    def seed(number: int, lam: Array) -> None:
        observer.add(number, lam, mu)

    bend = CurvatureTerms(trajectory, observed, densities, dp, mu_dot)
    for linear, along in _tangents_back(trajectory, steps, spans, du, dp, known, pushed):
        points, start = linear.points, linear.block.first
        at = points.t, points.u, linear.block.p
        # the last block: the sweep starts at the final state with what is observed there
        if start == spans[-1][0]:
            seed(trajectory.n_steps, lam)
            bend(trajectory.n_steps, along.states[-1], lam_dot)
        if known is None:
            slopes, by_p = running_slopes(problem, points, linear.block.p, [densities])
            # First order: w at all points. mu is the sum of f_p^T w over the points, in one call.
            weights = steps.carry(linear, lam, slopes, seed)
            mu += batch.pull_parameters(*at, weights.swapaxes(0, 1)) + by_p
        else:
            weights = known.weights
        # (w^T f_uu) dU + (w^T f_up) dp at each point, and running costs likewise: sources in the
        # same recurrence, which carries lam_dot with the same Jacobians.
        sources = bend.points(linear, along, weights)
        weights_dot = steps.carry(linear, lam_dot, sources, bend.within(start, along))
        # the terms w^T f_pu, w^T f_pp are in mu_dot already: ``bend.points`` has added them
        mu_dot += batch.pull_parameters(*at, weights_dot.swapaxes(0, 1))
        seed(start, lam)
        bend(start, along.states[0], lam_dot)
        if len(spans) == 1 and known is None:
            known = FirstOrder(linear, weights, lam[0], mu[0])
    if known is not None:
        lam[0], mu[0] = known.lam, known.mu
    return SecondRows(lam[0], mu[0], lam_dot, mu_dot), known


def _tangents_back(
    trajectory: Trajectory,
    steps: BlockSteps,
    spans: Sequence[Span],
    du: Array,
    dp: Array,
    known: FirstOrder | None,
    pushed: Sequence[PushedBlock],
) -> Iterator[PushedBlock]:
    """Push tangents through all blocks; yield these with them, from the last one back."""
    if known is None and len(spans) == len(pushed) == 1:
        yield from reversed(pushed)
        return

    def pushed_again(span: Span, du: Array) -> tuple[LinearBlock, BlockTangent]:
        linear = linear_block(trajectory, steps, span) if known is None else known.linear
        return linear, steps.push(linear, du, parameter_part(trajectory.problem, linear, dp))

    # Forward through all blocks but the last, keeping one tangent each; then backward, each block
    # pushed once more. Twice the work of a tangent for the memory of one block.
    starts = [du]
    for span in spans[:-1]:
        starts.append(pushed_again(span, starts[-1])[1].states[-1])
    for span, start in zip(reversed(spans), reversed(starts), strict=True):
        yield pushed_again(span, start)


class CurvatureTerms:
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
        scalars = [(weight, scalar) for _, weight, scalar, *_ in self._observed.get(number, ())]
        run = self._trajectory
        self.add(scalars, (float(run.times[number]), run.stored[number], run.p), du, lam_dot)

    def within(self, first: int, along: BlockTangent) -> Seed:
        """Return the same for the states of a block, of which ``first`` is the first one."""
        return lambda number, lam_dot: self(number, along.states[number - first], lam_dot)

    def points(self, linear: LinearBlock, along: BlockTangent, weights: Array) -> Array:
        """Return what second derivatives add at the points [K, D, n]; add to mu_dot."""
        points, p, batch = linear.points, linear.block.p, self._trajectory.problem.batch
        assert batch is not None
        # callbacks take all points of a direction together
        directions = along.points.swapaxes(0, 1)
        by_u, by_p = batch.hessian_product(
            points.t, points.u, p, weights[:, 0], directions, self._dp
        )
        self._mu_dot += by_p
        sources = np.ascontiguousarray(by_u.swapaxes(0, 1))
        if not self._densities:
            return sources
        left: list[tuple[float, Scalar]] = []  # those that take one point after the other
        for weight, density in self._densities:
            many, at = at_many_points(density), (points.t, points.u, self._trajectory.p)
            products = None if many is None else many.hessian_products(*at, directions, self._dp)
            if products is None:
                left.append((weight, density))
            else:
                shares = weight * points.share
                sources += (shares[:, None] * products[0]).swapaxes(0, 1)
                self._mu_dot += shares @ products[1]
        if not left:
            return sources
        state = self._trajectory.problem.create_state()
        for k, share in enumerate(points.share.tolist()):
            scaled = [(share * weight, density) for weight, density in left]
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
