"""Continuous extensions of explicit Runge-Kutta methods: states inside steps, from rates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from daeosens.methods.rk.tableau import Tableau, tableau
from daeosens.petsc.vectors import Array

NODES = {4: (0.82,), 5: (0.1, 0.9), 6: (0.08, 0.76, 0.92), 7: (0.16, 0.24, 0.76, 0.84)}
"""Where an interpolant of this degree needs rates beside those at both ends.

Of those on a grid the ones whose interpolant makes the least of errors in the rates.  (One in the
middle would make a quartic that does not exist: s (s - 1) (s - 1/2) has the integral 0.)
"""

ROUNDING = 1e-12
"""Of sums of coefficients."""


@dataclass(frozen=True)
class ContinuousTableau:
    """A Butcher tableau with further stages, and weights that are polynomials.

    ``u(t_n + s h) = u_n + h sum_i b_i(s) k_i`` with ``b_i(s) = sum_j weights[i, j] s^j``.

    Attributes
    ----------
    a, b, c : array [S, S], [S], [S]
        The tableau; the further stages have b = 0.
    b_error : array [S] or None
        Weights of the error estimate; None where there is none.
    weights : array [S, q+1]
        Coefficients of the b_i(s), of degree q; b_i(0) = 0 and b_i(1) = b_i.
    end : int
        The stage at the end of the step.
    """

    a: Array
    b: Array
    c: Array
    b_error: Array | None
    weights: Array
    end: int

    def at(self, s: Array, derivative: int = 0) -> Array:
        """Return the b_i(s) [..., S], or their derivatives of that order.

        Examples
        --------
        >>> rk4 = continuous("4", 4, estimated=False)
        >>> rk4.at(np.array([0.0, 0.5, 1.0])).round(4).tolist()[1]
        [0.2083, 0.1667, 0.1667, 0.0833, -0.125]
        """
        coefficients: Array = self.weights
        for _ in range(derivative):
            # d/ds of sum_j w_j s^j
            degrees = np.arange(1, coefficients.shape[1], dtype=float)
            coefficients = np.multiply(coefficients[:, 1:], degrees)
        powers = np.power.outer(np.asarray(s, dtype=float), np.arange(coefficients.shape[1]))
        return np.matmul(powers, coefficients.T)


@cache
def continuous(kind: str, order: int, *, estimated: bool) -> ContinuousTableau:
    """Return the continuous extension of a TSRK type whose error is O(h^order).

    A step of order p gives states with errors O(h^p); interpolants of degree q = p - 1 (3 at least)
    keep that.  The cubic one takes states and rates at both ends.  Each degree more takes one more
    rate inside than the one before, at points that the one before is evaluated at: their errors
    O(h^q) enter the next one times h.

    Parameters
    ----------
    kind : str
        PETSc's name of the type.
    order : int
        Its order.
    estimated : bool
        With the stages that only the error estimate reads.

    Source
    ------
    Enright, Jackson, Norsett, Thomsen, Interpolants for Runge-Kutta formulas, ACM Transactions on
    Mathematical Software 12, 1986.

    Examples
    --------
    >>> [len(continuous(kind, p, estimated=True).b) for kind, p in (("4", 4), ("5ts", 5))]
    [5, 8]
    """
    whole = tableau(kind)
    base = whole if estimated else whole.of_step
    steps = _with_end(base)
    end = int(_ends(steps)[-1])
    inside: list[int] = []
    weights = _interpolant(steps, end, inside)
    for degree in range(4, max(3, order - 1) + 1):
        first = len(steps.b)
        for node in NODES[degree]:
            steps = _with_stage(steps, weights @ node ** np.arange(weights.shape[1]), node)
        inside = list(range(first, len(steps.b)))
        weights = _interpolant(steps, end, inside)
    error = None
    if estimated and whole.b_embedded is not None:
        error = np.zeros(len(steps.b))
        error[: len(whole.b)] = whole.b - whole.b_embedded
    return ContinuousTableau(steps.a, steps.b, steps.c, error, weights, end)


def _with_end(steps: Tableau) -> Tableau:
    """Return a tableau one of whose stages is the end of the step."""
    if len(_ends(steps)):
        return steps  # the first same as the last
    return _with_stage(steps, steps.b, 1.0)


def _ends(steps: Tableau) -> npt.NDArray[np.intp]:
    """Return the numbers of the stages at the end of the step; PETSc's c are sums with rounding."""
    return np.flatnonzero((steps.a == steps.b).all(axis=1) & (np.abs(steps.c - 1.0) < ROUNDING))


def _with_stage(steps: Tableau, row: Array, node: float) -> Tableau:
    """Return a tableau with one more stage, of weight 0."""
    a = np.zeros((len(steps.b) + 1, len(steps.b) + 1))
    a[:-1, :-1], a[-1, : len(row)] = steps.a, row
    return Tableau(a, np.append(steps.b, 0.0), np.append(steps.c, node))


def _interpolant(steps: Tableau, end: int, inside: list[int]) -> Array:
    """Return the weights [S, q+1] of the polynomial with the rates of some stages, and both states.

    Its derivative, a polynomial of degree q - 1, has these rates and the integral of the step.
    """
    stages = [0, end, *inside]
    powers = np.arange(len(stages) + 1)
    # unknown is u'(s), of degree q - 1: its values at the nodes, and its integral over the step
    conditions = np.vstack([steps.c[stages][:, None] ** powers, 1.0 / (powers + 1.0)])
    coefficients = np.linalg.inv(conditions) / (powers[:, None] + 1.0)  # of the integral
    weights = np.zeros((len(steps.b), len(powers) + 1))
    np.add.at(weights, np.array(stages), np.pad(coefficients[:, :-1].T, ((0, 0), (1, 0))))
    # what the condition on the integral says comes from the step's own weights
    weights[:, 1:] += np.outer(steps.b, coefficients[:, -1])
    return weights
