"""Second-order sweeps in blocks: one cost along many directions at once, on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from daeosens.arrays import Array, read, write
from daeosens.block_adjoint import gradients_by_step, seed_of
from daeosens.block_tangent import parameter_part
from daeosens.blocks import block_spans, block_steps, linear_block, running_slopes
from daeosens.cost import Cost, Scalar, points_by_step
from daeosens.steps.block import BlockTangent, LinearBlock
from daeosens.trajectory import Trajectory

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
    pieces: list[SecondSweep] = []
    for k in range(0, len(du), DIRECTIONS):
        part = slice(k, k + DIRECTIONS)
        pieces.append(_sweep(trajectory, cost, du[part], dp[part], first))
        first = pieces[-1].first
    lam_dot = np.concatenate([each.lam_dot for each in pieces])
    mu_dot = np.concatenate([each.mu_dot for each in pieces])
    return SecondSweep(pieces[0].lam, pieces[0].mu, lam_dot, mu_dot, first)


def _sweep(
    trajectory: Trajectory, cost: Cost, du: Array, dp: Array, first: FirstOrder | None
) -> SecondSweep:
    problem, batch = trajectory.problem, trajectory.problem.batch
    assert batch is not None
    steps = block_steps(trajectory)
    spans = block_spans(trajectory, steps, 6 * len(du) + 2, trajectory.n_steps)
    known = first if len(spans) == 1 else None
    lam, mu = np.zeros((1, problem.size)), np.zeros((1, problem.n_parameters))
    lam_dot, mu_dot = np.zeros(du.shape), np.zeros(dp.shape)

    def pushed(span: tuple[int, int], du: Array) -> tuple[LinearBlock, BlockTangent]:
        linear = linear_block(trajectory, steps, span) if known is None else known.linear
        return linear, steps.push(linear, du, parameter_part(problem, linear, dp))

    starts: list[Array] = []
    ahead: tuple[LinearBlock, BlockTangent] | None = None
    for span in spans:
        starts.append(du)
        ahead = pushed(span, du)
        du = ahead[1].states[-1]
    seed = seed_of(trajectory, gradients_by_step(trajectory, [cost]), mu)
    bend = _Bending(trajectory, cost, dp, mu_dot)
    if known is None:
        seed(trajectory.n_steps, lam)
    bend(trajectory.n_steps, du, lam_dot)
    for span, start in zip(reversed(spans), reversed(starts), strict=True):
        linear, along = pushed(span, start) if ahead is None else ahead
        ahead = None
        points, p = linear.points, linear.block.p
        if known is None:
            slopes, by_p = running_slopes(problem, points, p, [cost.densities])
            weights = steps.carry(linear, lam, slopes, seed)
            seed(span[0], lam)
            mu += batch.pull_parameters(points.t, points.u, p, weights.swapaxes(0, 1)) + by_p
        else:
            weights = known.weights
        by_u, by_p = batch.hessian_product(
            points.t, points.u, p, weights[:, 0], along.points.swapaxes(0, 1), dp
        )
        sources = np.ascontiguousarray(by_u.swapaxes(0, 1))
        mu_dot += by_p
        for k, share in enumerate(points.share.tolist()):
            scaled = [(share * weight, density) for weight, density in cost.densities]
            bend.add(scaled, float(points.t[k]), points.u[k], along.points[k], sources[k])
        weights_dot = steps.carry(linear, lam_dot, sources, bend.within(span[0], along.states))
        bend(span[0], along.states[0], lam_dot)
        mu_dot += batch.pull_parameters(points.t, points.u, p, weights_dot.swapaxes(0, 1))
        if known is None and len(spans) == 1:
            known = FirstOrder(linear, weights, lam[0], mu[0])
    if known is not None:
        return SecondSweep(known.lam, known.mu, lam_dot, mu_dot, known)
    return SecondSweep(lam[0], mu[0], lam_dot, mu_dot, None)


class _Bending:
    """Adds the second derivatives of a cost along directions dp [D, m] and what goes with them."""

    def __init__(self, trajectory: Trajectory, cost: Cost, dp: Array, mu_dot: Array) -> None:
        problem = trajectory.problem
        self._trajectory = trajectory
        self._observed = points_by_step(trajectory.index, [cost])
        self._dp, self._mu_dot = dp, mu_dot
        self._state, self._du = problem.create_state(), problem.create_state()
        self._by_u, self._by_p = problem.create_state(), problem.create_parameters()

    def __call__(self, number: int, du: Array, lam_dot: Array) -> None:
        """Add what is said about a state, whose tangents are du [D, n], to lam_dot [D, n]."""
        scalars = [(weight, scalar) for _, weight, scalar in self._observed.get(number, ())]
        run = self._trajectory
        self.add(scalars, float(run.times[number]), run.u[number], du, lam_dot)

    def within(self, first: int, du: Array) -> Callable[[int, Array], None]:
        """Return the same for the states of a block, whose tangents are du [S+1, D, n]."""
        return lambda number, lam_dot: self(number, du[number - first], lam_dot)

    def add(
        self, scalars: Sequence[tuple[float, Scalar]], t: float, u: Array, du: Array, out: Array
    ) -> None:
        """Add weighted Hessians at the state u [n] along du [D, n] to ``out`` [D, n] and mu_dot."""
        if not scalars:
            return
        write(self._state, u)
        point = (t, self._state, self._trajectory.p)
        for k, direction in enumerate(zip(du, self._dp, strict=True)):
            write(self._du, direction[0])
            self._by_u.zeroEntries()
            self._by_p.zeroEntries()
            for weight, scalar in scalars:
                along = (self._du, direction[1])
                scalar.add_hessian(weight, point, along, (self._by_u, self._by_p))
            out[k] += read(self._by_u)
            self._mu_dot[k] += read(self._by_p)
