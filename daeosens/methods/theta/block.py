"""Theta steps linearised in blocks: one factorisation a step for all vectors, points together."""

from __future__ import annotations

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
from daeosens.methods.rk.block import Inside
from daeosens.petsc.vectors import Array

INDEX_ONE = "another step size; a DAE must be of index at most one"


class BlockTheta:
    """The linearised steps of a theta method for M u' = f(t, u, p), M constant, on arrays.

    With s = 1/(theta h): endpoint form (s M - f_u(end))^T nu = lam,
    lam0 = s M^T nu + (1-theta)/theta f_u(start)^T nu; one-stage form (s M - f_u)^T nu = lam/theta,
    lam0 = (1 - 1/theta) lam + s M^T nu.  The tangents solve with the same matrices, transposed.

    Parameters
    ----------
    mass : array [n, n] or None
        M, which may be singular; None is the identity.
    theta : float
        Weight of the end of the step, in (0, 1].
    endpoint : bool
        Endpoint form; otherwise one-stage.
    inside : callable or None
        Times as callbacks see them; None where these are the times themselves.

    Source
    ------
    docs/mathematics.md, section 1.
    """

    def __init__(
        self, mass: Array | None, theta: float, inside: Inside | None, *, endpoint: bool
    ) -> None:
        self._mass = mass
        self._theta = theta
        self._inside = inside
        self._endpoint = endpoint
        self._rest = (1.0 - theta) / theta if endpoint else 0.0

    @property
    def points_per_step(self) -> int:
        """Both ends, where the rate is averaged over them; else one."""
        return 2 if self._rest else 1

    def points(self, block: Block) -> Points:
        """Return the implicit stages of the steps, and their starts where these count.

        A state between two steps is one point, unless breakpoints let it be seen at two times.
        """
        theta, h = self._theta, block.sizes
        start, end = block.states[:-1], block.states[1:]
        if not self._endpoint:
            stage = end if theta == 1.0 else start + theta * (end - start)
            return Points(self._seen(block, block.times + theta * h), stage, h)
        ends = self._seen(block, block.times + h)
        if not self._rest:
            return Points(ends, end, h)
        if self._inside is None:
            # S + 1 points instead of 2 S: each inner state serves the step before and the step
            # after.
            t, u = np.concatenate([block.times[:1], ends]), block.states
        else:
            t = np.concatenate([self._seen(block, block.times), ends])
            u = np.concatenate([start, end])
        share = np.zeros(len(t))
        # Shared points get the weights of both steps, hence the sum.
        share[: len(h)] = (1.0 - theta) * h
        share[-len(h) :] += theta * h
        return Points(t, u, share)

    def _seen(self, block: Block, times: Array) -> Array:
        if self._inside is None:
            return times
        steps = zip(times.tolist(), block.times.tolist(), block.sizes.tolist(), strict=True)
        return np.array([self._inside(*step) for step in steps])

    def factors(self, block: Block, jacobians: Array) -> Factors:
        """Return the factors of (M/(theta h) - f_u)^T of each step.

        Raises
        ------
        SolveError
            One is singular.
        """
        mass = np.eye(jacobians.shape[1]) if self._mass is None else self._mass
        steps = zip(block.times.tolist(), block.sizes.tolist(), strict=True)
        # the last S points are ends whether points are shared or not
        ends = jacobians[-len(block.sizes) :]
        return tuple(
            factorised(mass / (self._theta * h) - matrix, t, "M - theta h f_u", INDEX_ONE)
            for (t, h), matrix in zip(steps, ends, strict=True)
        )

    def push(self, linear: LinearBlock, du: Array, sources: Array | None) -> BlockTangent:
        """Carry ``du`` [D, n] forward over the block; see ``BlockSteps``."""
        theta, rest, sizes = self._theta, self._rest, linear.block.sizes
        jacobians, (rows, n) = linear.jacobians, du.shape
        ends = len(jacobians) - len(sizes)  # the point at the end of the first step
        states = np.empty((len(sizes) + 1, rows, n))
        stages = np.empty((len(jacobians), rows, n))
        states[0] = du
        for k, h in enumerate(sizes.tolist()):
            start = states[k]
            right = (start if self._mass is None else start @ self._mass.T) / (theta * h)
            # M u0/(theta h) + (1 - theta)/theta f(u0), the right-hand side of the step,
            # linearised
            if rest:
                stages[k] = start
                rate = start @ jacobians[k].T
                right += rest * (rate if sources is None else rate + sources[k])
            if sources is not None:
                right += sources[ends + k]
            stage = solved(linear.factors[k], right, transposed=True)
            stages[ends + k] = stage
            states[k + 1] = stage if self._endpoint else start + (stage - start) / theta
        return BlockTangent(states, stages)

    def carry(self, linear: LinearBlock, lam: Array, sources: Array | None, seed: Seed) -> Array:
        """Carry ``lam`` [M, n] back over the block; see ``BlockSteps``."""
        theta, rest, block, jacobians = self._theta, self._rest, linear.block, linear.jacobians
        count = len(block.sizes)
        weights = np.zeros((len(jacobians), *lam.shape))
        ends = len(jacobians) - count  # the point at the end of the first step
        for k in reversed(range(count)):
            shift = 1.0 / (theta * float(block.sizes[k]))
            # The right-hand side: lam and what running costs add at the implicit stage.
            right = lam.copy() if self._endpoint else lam / theta
            if sources is not None:
                right += sources[ends + k]
            nu = solved(linear.factors[k], right)
            weights[ends + k] += nu
            by_rate = nu if self._mass is None else nu @ self._mass
            if self._endpoint:
                np.multiply(by_rate, shift, out=lam)
            else:
                lam *= 1.0 - 1.0 / theta
                lam += shift * by_rate
            if rest:
                # f at the start gets (1 - theta)/theta nu; that weight also goes to f_p there,
                # for mu.
                at_start = rest * nu
                weights[k] += at_start
                lam += at_start @ jacobians[k]
                # a point that is the end of the step before as well is added there
                if sources is not None and (k == 0 or ends > 1):
                    lam += sources[k]
            if k:
                seed(block.first + k, lam)
        return weights
