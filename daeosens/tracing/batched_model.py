"""Traced models at many points: their large matrices multiply all points and rows at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from daeosens.petsc._kernels import FactorPulls, FactorSteps, Sums, call_points
from daeosens.petsc.c_function import Native
from daeosens.petsc.vectors import Array
from daeosens.problem.batched.linearization import Linearization
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.callback_guard import check_output

if TYPE_CHECKING:  # sweeps import this module, and have to do without CasADi
    from daeosens.tracing.matrix_factors import Factored

UNPACKED, PACKED = 10**6, 64
"""Products of three sizes up to the first one are fastest (OpenBLAS 0.3.30 does not pack them); of
larger matrices so many rows at once: what a step works on stays in the cache."""

SMALL = 4096
"""Up to so many entries of all matrices one call for f is faster than its parts."""


class FactoredBatch:
    """A right-hand side in C that was taken apart into products with matrices.

    Parameters
    ----------
    plain : Batch
        The same as a whole.
    parts : Factored
        Its factors.
    ready : mapping of str to Native
        The functions between them.

    Attributes
    ----------
    largest : int
        Entries of the largest matrix.
    """

    at_once = True

    def __init__(self, plain: Batch, parts: Factored, ready: Mapping[str, Native]) -> None:
        self._plain, self._parts = plain, parts
        self._whole = ready["rhs"]
        *self._inner, self._of_y, self._slopes = (
            ready[function.name] for function in parts.functions
        )
        of_u = parts.by_u.runs
        self._of_u = of_u[of_u[:, 0] != 0] if parts.only_u else of_u
        entries = [factor.rows * factor.columns for factor in parts.factors]
        self._small, self.largest = sum(entries) <= SMALL, max(entries)
        # as many rows as one product of that size takes without packing, in multiples of vector
        # registers
        few = UNPACKED // self.largest // 8 * 8
        self.rows_at_once = few if few >= 16 else PACKED
        self.rhs_in_c = self._whole.where if self._small else None

    def rhs(self, t: Array, u: Array, p: Array) -> Array:
        """Return f at every point [K, n]."""
        if self._small:
            return self._plain.rhs(t, u, p)
        out = np.empty(u.shape)
        _fill(self._of_y, "rhs", t, (u, p, self._products(t, u, p)[1]), (out,))
        return out

    def jacobian(self, t: Array, u: Array, p: Array) -> Array:
        """Return f_u at every point [K, n, n]."""
        return self._plain.jacobian(t, u, p)

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m]."""
        pulls = self._pulls(t, u, p)
        pulls.pull_all(np.ascontiguousarray(w.swapaxes(0, 1)))
        mu = np.empty((len(w), p.size))
        pulls.add_to(mu, True)
        return mu

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for any number of rows."""
        del rows
        pulls = self._pulls(t, u, p)
        return Linearization(pulls, pulls.add_to)

    def push_parameters(self, t: Array, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp at every point [D, K, n]."""
        return self._plain.push_parameters(t, u, p, dp)

    def hessian_product(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w [D, K, n] and, summed over the points, f_p^T w."""
        return self._plain.hessian_product(t, u, p, w, du, dp)

    @cached_property
    def steps(self) -> FactorSteps:
        """Adjoint steps of explicit methods by the same parts, for few rows."""
        parts = self._parts
        inner, slopes = [factor.where for factor in self._inner], self._slopes.where
        matrices = [
            factor.start if factor.start is not None else np.ascontiguousarray(factor.constant)
            for factor in parts.factors
        ]
        runs = parts.by_u.runs, parts.by_y.runs, parts.by_p.runs
        return FactorSteps(
            parts.size,
            inner,
            slopes,
            parts.entries,
            parts.table,
            matrices,
            runs,
            parts.used,
        )

    def _products(self, t: Array, u: Array, p: Array) -> tuple[Array, Array]:
        """Return all v [K, columns] and y [K, rows] of the factors, side by side."""
        v = np.empty((len(t), self._parts.sizes[0]))
        y = np.zeros((len(t), self._parts.sizes[1]))
        first, start = 0, 0
        for factor, inner in zip(self._parts.factors, self._inner, strict=True):
            # v of a factor may depend on y of those before it: in the order of the graph
            values = np.empty((len(t), factor.columns))
            call_points(*inner.where, t, (u, p, y), (values,))
            matrix = factor.matrix(p)
            # all points at once: one product of matrices [K, columns] [columns, rows] in the place
            # of K with vectors
            y[:, first : first + factor.rows] = values @ (matrix if factor.transposed else matrix.T)
            v[:, start : start + factor.columns] = values
            first, start = first + factor.rows, start + factor.columns
        return v, y

    def _pulls(self, t: Array, u: Array, p: Array) -> FactorPulls:
        """Return products of rows with f_u at the points, and what they add to those of p."""
        parts = self._parts
        v, y = self._products(t, u, p)
        runs = self._of_u, parts.by_y.runs, parts.by_p.runs, len(parts.used)
        by_u, by_y, by_p = (np.empty((len(t), entries)) for entries in parts.entries)
        _fill(self._slopes, "jacobian", t, (u, p, y), (by_u, by_y, by_p))
        matrices = tuple(factor.matrix(p) for factor in parts.factors)
        sums = Sums(parts.starts, parts.used, parts.outside, parts.disjoint)
        values = by_u, by_y, by_p
        return FactorPulls(u.shape[1], matrices, parts.table, runs, values, v, parts.only_u, sums)


def _fill(
    function: Native, name: str, t: Array, inputs: tuple[Array, ...], outputs: tuple[Array, ...]
) -> None:
    # true where all is finite: only otherwise is it looked for
    if call_points(*function.where, t, inputs, outputs):
        return
    for out in outputs:
        for time, values in zip(t.tolist(), out, strict=True):
            check_output(values, name, values.shape, time)
