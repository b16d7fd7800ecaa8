"""Explicit Runge-Kutta steps linearised in blocks: many steps, points and vectors at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from daeosens.methods.block_steps import Block, BlockTangent, Factors, LinearBlock, Points, Seed
from daeosens.methods.rk.tableau import Tableau
from daeosens.petsc._kernels import (
    DenseSteps,
    FactorPulls,
    MatrixPulls,
    Pulls,
    carry,
    carry_together,
)
from daeosens.petsc.vectors import Array
from daeosens.problem.batched.linearization import CallPulls
from daeosens.problem.batched.protocol import Batch

Inside = Callable[[float, float, float], float]
"""``inside(time, t, h)``: a stage time as callbacks see it (``Problem.inside``)."""

FEW_STEPS = 100
"""Up to so many steps the calls of a function in C take less time than those from Python."""


def stage_times(c: Array, block: Block, inside: Inside | None) -> Array:
    """Return the times [S, s] of the stages at ``c`` [s] of all steps, as callbacks see them."""
    t = block.times[:, None] + c * block.sizes[:, None]
    if inside is not None:
        for step, at in enumerate(zip(block.times.tolist(), block.sizes.tolist(), strict=True)):
            t[step] = [inside(time, *at) for time in t[step].tolist()]
    return t


class BlockRungeKutta:
    """The linearised steps of an explicit Runge-Kutta method on arrays.

    The states of one stage of all steps come from one evaluation, as every step's start is known.
    Going back, w_i = h (b_i lam + sum_{j>i} a_ji l_j) is the product of one row of coefficients
    with the rows lam, l_s, ..., l_{i+1}, and l_i = w_i J_i a product of matrices.  Going forward,
    dU_i = du + h sum_j a_ij dk_j likewise.

    Parameters
    ----------
    batch : Batch
        The right-hand side.
    tableau : Tableau
        The method, without a last stage that only serves the next step.
    inside : callable or None
        Stage times as callbacks see them; None where they are t + c h.
    breakpoints : sequence of float
        Times at which f may jump.

    Source
    ------
    docs/mathematics.md, section 1.
    """

    def __init__(
        self,
        batch: Batch,
        tableau: Tableau,
        inside: Inside | None,
        breakpoints: Sequence[float] = (),
    ) -> None:
        self._batch = batch
        self._tableau = tableau
        self._inside = inside
        self._breakpoints = breakpoints

    @property
    def points_per_step(self) -> int:
        """Number s of stages."""
        return len(self._tableau.b)

    def points(self, block: Block) -> Points:
        """Return the stages of all steps, those of one step next to each other."""
        tableau, h = self._tableau, block.sizes[:, None]
        t = stage_times(tableau.c, block, self._inside)
        # Starts of all steps are known, so stage i of all of them is one call of f. The cost of
        # that is s calls for a block, however many steps it has.
        stages = self._stages(block, t) if block.stages is None else block.stages
        share = h * tableau.b
        return Points(t.ravel(), stages.reshape(t.size, -1), share.ravel())

    def _stages(self, block: Block, t: Array) -> Array:
        """Return the stage states [S, s, n], computed again."""
        start, h, a = block.states[:-1], block.sizes[:, None], self._tableau.a
        s = len(a)
        stages = np.empty((len(start), s, start.shape[1]))
        state = start
        rates = np.empty((s, *start.shape))
        flat = rates.reshape(s, start.size)
        stages[:, 0] = start
        in_c = self._batch.rhs_in_c if len(start) <= FEW_STEPS else None
        if in_c is not None:
            coefficients = a, self._tableau.b, self._tableau.c, self._tableau.b
            jumps = np.array(self._breakpoints, dtype=float)
            functions = {"rhs": in_c}
            n = start.shape[1]
            steps = DenseSteps(n, coefficients, 0, functions, None, jumps, block.p)
            if steps.fill_stages(block.times, block.sizes, stages):
                return stages
        # stage by stage, so the times of one stage are to be neighbours in memory
        moments = np.ascontiguousarray(t.T)
        for i in range(1, s):
            rates[i - 1] = self._batch.rhs(moments[i - 1], state, block.p)
            state = start + h * (a[i, :i] @ flat[:i]).reshape(start.shape)
            stages[:, i] = state
        return stages

    def factors(self, block: Block, jacobians: Array) -> Factors:
        """Return none: explicit steps solve nothing."""
        return ()

    def push(self, linear: LinearBlock, du: Array, sources: Array | None) -> BlockTangent:
        """Carry ``du`` [D, n] forward over the block; see ``BlockSteps``."""
        sizes, s, (rows, n) = linear.block.sizes, len(self._tableau.b), du.shape
        count = len(sizes)
        # rows are directions, so the product is du J^T
        matrices = linear.jacobians.reshape(count, s, n, n).swapaxes(-1, -2)
        added = None if sources is None else sources.reshape(count, s, rows, n)
        states, stages = np.empty((count + 1, rows, n)), np.empty((count, s, rows, n))
        parts = np.empty((s + 1, rows, n))  # du, and dk_i from the first stage to the last
        flat = parts.reshape(s + 1, rows * n)
        states[0] = du
        row = np.ones(s + 1)
        for k, h in enumerate(sizes.tolist()):
            parts[0] = states[k]
            for i in range(s):
                # row is (1, h a_i1, ..., h a_i,i-1) and flat (du, dk_1, ...): their product is
                # dU_i.
                np.multiply(self._tableau.ahead[i, :i], h, out=row[1 : i + 1])
                np.dot(row[: i + 1], flat[: i + 1], out=stages[k, i].reshape(-1))
                np.dot(stages[k, i], matrices[k, i], out=parts[i + 1])
                if added is not None:
                    parts[i + 1] += added[k, i]
            np.multiply(self._tableau.ahead[s], h, out=row[1:])
            np.dot(row, flat, out=states[k + 1].reshape(-1))
        return BlockTangent(states, stages.reshape(count * s, rows, n))

    def carry(self, linear: LinearBlock, lam: Array, sources: Array | None, seed: Seed) -> Array:
        """Carry ``lam`` [M, n] back over the block; see ``BlockSteps``."""
        matrices = np.ascontiguousarray(linear.jacobians, dtype=float)
        weights = np.empty((len(matrices), *lam.shape))
        pulls = MatrixPulls(matrices)
        self.carry_by(pulls, linear.block, lam, sources, seed, weights)
        return weights

    def carry_by(
        self,
        pulls: Pulls | CallPulls,
        block: Block,
        lam: Array,
        sources: Array | None,
        seed: Seed | None,
        weights: Array | None,
    ) -> None:
        """Carry ``lam`` [M, n] back over the block by products with f_u at the points.

        As ``carry``; ``weights`` [K, M, n] are filled if they are wanted.
        """
        count, s = len(block.sizes), len(self._tableau.b)
        observed = np.full(count, seed is not None, dtype=np.uint8)
        # the state before the block is the end of the one before, whose sweep observes it
        observed[0] = False

        def seed_step(k: int) -> None:
            if seed is not None:
                seed(block.first + k, lam)

        if sources is not None:
            sources = sources.reshape(count, s, *lam.shape)
        if isinstance(pulls, CallPulls):
            self._carry_by_calls(pulls, block, lam, sources, seed_step if seed else None)
            return
        carry(pulls, self._coefficients(block), lam, weights, sources, observed, seed_step)

    def _carry_by_calls(
        self,
        pulls: CallPulls,
        block: Block,
        lam: Array,
        sources: Array | None,
        seed_step: Callable[[int], None] | None,
    ) -> None:
        """Do as ``carry`` where each product is a call: its time is not that of the recurrence."""
        (rows, n), s = lam.shape, len(self._tableau.b)
        coefficients = self._coefficients(block)
        parts = np.zeros((s + 1, rows, n))
        flat = parts.reshape(s + 1, rows * n)
        for k in range(len(block.sizes) - 1, -1, -1):
            parts[0] = lam
            for i in range(s - 1, -1, -1):
                w = (coefficients[k, i, : s - i] @ flat[: s - i]).reshape(rows, n)
                # the last stage of some methods serves the next step only
                parts[s - i] = pulls.pull(k * s + i, w) if w.any() else 0.0
                if sources is not None:
                    parts[s - i] += sources[k, i]
            np.sum(parts, axis=0, out=lam)
            if seed_step is not None and k:
                seed_step(k)

    def carry_together(
        self,
        pulls: Sequence[FactorPulls],
        block: Block,
        sums: tuple[Array, Array],
        at_once: int,
        fresh: bool,
    ) -> None:
        """Carry rows back by several threads, with the derivative in the parameters.

        Parameters
        ----------
        pulls : sequence of FactorPulls
            Products with f_u at the points: twins, one for each thread.
        block : Block
            The steps.
        sums : (array [M, n], array [M, m])
            lam, which is carried back, and mu, to which is added.
        at_once : int
            Rows that a thread carries together, at most.
        fresh : bool
            mu holds nothing yet.
        """
        carry_together(list(pulls), self._coefficients(block), *sums, at_once, fresh)

    def _coefficients(self, block: Block) -> Array:
        """Return those of lam and l_s, ..., l_{i+1} in w_i, for each step [S, s, s+1]."""
        return block.sizes[:, None, None] * self._tableau.behind
