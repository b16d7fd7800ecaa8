"""ESDIRK steps linearised in blocks: one factorisation a stage for all vectors, points together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from daeosens.methods.block_steps import (
    Block,
    BlockTangent,
    Factors,
    LinearBlock,
    Points,
    Seed,
    factorised,
    solved,
)
from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.methods.rk.block import Inside, stage_times
from daeosens.petsc.vectors import Array


class BlockDirk:
    """The linearised steps of an ESDIRK method for u' = f(t, u, p), on arrays.

    With nu_i the adjoint of the equation of stage i and y_i = sum_{l>i} a_li nu_l, the weight
    w_i = gamma nu_i + y_i of h f_i solves (1 - h gamma f_u)^T w_i = y_i + gamma (lam [last stage]);
    w_1 = y_1, and lam becomes sum_{i>1} nu_i + h f_u^T w_1.  Tangents solve with the same matrices.

    Parameters
    ----------
    scheme : Esdirk
        Coefficients.
    inside : callable or None
        Stage times as callbacks see them; None where they are t + c h.
    find : callable
        ``find(block) -> array [S, s, n]``: the stages of steps that did not keep theirs.

    Source
    ------
    docs/mathematics.md, section 1.
    """

    def __init__(
        self, scheme: Esdirk, inside: Inside | None, find: Callable[[Block], Array]
    ) -> None:
        self._scheme = scheme
        self._inside = inside
        self._find = find

    @property
    def points_per_step(self) -> int:
        """Number s of stages."""
        return len(self._scheme.c)

    def points(self, block: Block) -> Points:
        """Return the stages of all steps, those of one step next to each other."""
        h = block.sizes[:, None]
        t = stage_times(self._scheme.c, block, self._inside)
        stages = self._find(block) if block.stages is None else block.stages
        share = h * self._scheme.b
        return Points(t.ravel(), stages.reshape(t.size, -1), share.ravel())

    def factors(self, block: Block, jacobians: Array) -> Factors:
        """Return the factors of (1 - h gamma f_u)^T at each implicit stage of each step.

        Raises
        ------
        SolveError
            One is singular.
        """
        s, n = self.points_per_step, jacobians.shape[1]
        scale = self._scheme.gamma * np.repeat(block.sizes, s)
        matrices = np.eye(n) - scale[:, None, None] * jacobians
        # the first stage is explicit: it is the state before the step, and nothing is solved there
        return tuple(
            factorised(matrix, float(block.times[k // s]), "1 - h gamma f_u", "another step size")
            if k % s
            else (None, None)
            for k, matrix in enumerate(matrices)
        )

    def push(self, linear: LinearBlock, du: Array, sources: Array | None) -> BlockTangent:
        """Carry ``du`` [D, n] forward over the block; see ``BlockSteps``."""
        a, s, gamma = self._scheme.a, self.points_per_step, self._scheme.gamma
        sizes, (rows, n) = linear.block.sizes, du.shape
        states = np.empty((len(sizes) + 1, rows, n))
        stages = np.empty((len(sizes) * s, rows, n))
        rates = np.empty((s, rows * n))
        states[0] = du
        for k, h in enumerate(sizes.tolist()):
            start, first = states[k], k * s
            stages[first] = start
            rate = start @ linear.jacobians[first].T
            rates[0] = (rate if sources is None else rate + sources[first]).ravel()
            for i in range(1, s):
                known = start + h * (a[i, :i] @ rates[:i]).reshape(rows, n)
                # (1 - h gamma f_u) dU_i = du + h sum_{j<i} a_ij dk_j + h gamma f_p dp
                right = known if sources is None else known + h * gamma * sources[first + i]
                stage = solved(linear.factors[first + i], right, transposed=True)
                stages[first + i] = stage
                # from the equation of the stage, without a product with f_u
                rates[i] = (stage - known).ravel() / (h * gamma)
            # stiffly accurate: the last stage is the end of the step
            states[k + 1] = stages[first + s - 1]
        return BlockTangent(states, stages)

    def carry(self, linear: LinearBlock, lam: Array, sources: Array | None, seed: Seed) -> Array:
        """Carry ``lam`` [M, n] back over the block; see ``BlockSteps``."""
        a, s, gamma = self._scheme.a, self.points_per_step, self._scheme.gamma
        block, (rows, n) = linear.block, lam.shape
        weights = np.empty((len(linear.jacobians), rows, n))
        adjoints = np.zeros((s, rows * n))
        for k in reversed(range(len(block.sizes))):
            h, first = float(block.sizes[k]), k * s
            for i in range(s - 1, 0, -1):
                # y_i: what later stages take from the rate of this one
                later = (a[i + 1 :, i] @ adjoints[i + 1 :]).reshape(rows, n)
                # the adjoint of the end enters at the last stage, which is the end
                right = later + gamma * lam if i == s - 1 else later
                if sources is not None:
                    right = right + gamma * sources[first + i]
                weight = solved(linear.factors[first + i], right)
                weights[first + i] = h * weight
                adjoints[i] = (weight - later).ravel() / gamma  # nu_i from w_i = gamma nu_i + y_i
            at_start = h * (a[1:, 0] @ adjoints[1:]).reshape(rows, n)
            weights[first] = at_start
            lam[...] = (
                adjoints[1:].sum(axis=0).reshape(rows, n) + at_start @ linear.jacobians[first]
            )
            if sources is not None:
                lam += sources[first]
            if k:
                seed(block.first + k, lam)
        return weights
