"""Theta steps transposed in blocks: one factorisation a step for all costs, points together."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack

from daeosens.arrays import Array
from daeosens.errors import SolveError
from daeosens.steps.block import Block, Points, Seed
from daeosens.steps.block_rk import Inside

_LAPACK: Any = lapack  # its stubs leave the routines untyped


class BlockTheta:
    """The transposed steps of a theta method for M u' = f(t, u, p), M constant, on arrays.

    With s = 1/(theta h): endpoint form (s M - f_u(end))^T nu = lam,
    lam0 = s M^T nu + (1-theta)/theta f_u(start)^T nu; one-stage form (s M - f_u)^T nu = lam/theta,
    lam0 = (1 - 1/theta) lam + s M^T nu.

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
            t, u = np.concatenate([block.times[:1], ends]), block.states
        else:
            t = np.concatenate([self._seen(block, block.times), ends])
            u = np.concatenate([start, end])
        share = np.zeros(len(t))
        share[: len(h)] = (1.0 - theta) * h
        share[-len(h) :] += theta * h
        return Points(t, u, share)

    def _seen(self, block: Block, times: Array) -> Array:
        if self._inside is None:
            return times
        steps = zip(times.tolist(), block.times.tolist(), block.sizes.tolist(), strict=True)
        return np.array([self._inside(*step) for step in steps])

    def carry(
        self, block: Block, jacobians: Array, lam: Array, slopes: Array | None, seed: Seed
    ) -> Array:
        """Carry ``lam`` [M, n] back over the block; see ``BlockSteps``.

        Raises
        ------
        SolveError
            The matrix of a step is singular.
        """
        theta, rest, count, (rows, n) = self._theta, self._rest, len(block.sizes), lam.shape
        weights = np.zeros((len(jacobians), rows, n))
        ends = len(jacobians) - count  # the point at the end of the first step
        mass = np.eye(n) if self._mass is None else self._mass
        share = theta if self._endpoint else 1.0
        for k in reversed(range(count)):
            h = float(block.sizes[k])
            shift = 1.0 / (theta * h)
            right = lam.copy() if self._endpoint else lam / theta
            if slopes is not None:
                right += share * h * slopes[ends + k]
            nu = _solved(shift * mass - jacobians[ends + k], right, float(block.times[k]))
            weights[ends + k] += nu
            by_rate = nu if self._mass is None else nu @ mass
            if self._endpoint:
                np.multiply(by_rate, shift, out=lam)
            else:
                lam *= 1.0 - 1.0 / theta
                lam += shift * by_rate
            if rest:
                at_start = rest * nu
                weights[k] += at_start
                lam += at_start @ jacobians[k]
                if slopes is not None:
                    lam += (1.0 - theta) * h * slopes[k]
            if k:
                seed(block.first + k, lam)
        return weights


def _solved(matrix: Array, right: Array, t: float) -> Array:
    """Return the rows nu [M, n] with nu A = right."""
    # A in row order is A^T in LAPACK's order, and the rows of the right-hand side are its columns
    factors, pivots, fault = _LAPACK.dgetrf(matrix.T, overwrite_a=1)
    if fault:
        raise SolveError(
            f"the matrix of the step from t = {t:.9g} is singular",
            expected="a regular matrix M - theta h f_u",
            remedy="another step size; a DAE must be of index at most one",
        )
    solution: Array = _LAPACK.dgetrs(factors, pivots, right.T, overwrite_b=1)[0].T
    return solution
