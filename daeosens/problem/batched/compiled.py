"""C functions evaluated at many points: the loop over the points is in C too."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from daeosens.petsc._kernels import call_points
from daeosens.petsc.diagonal_runs import Runs, diagonal_runs
from daeosens.petsc.vectors import Array
from daeosens.problem.batched.hessians import TEMPORARY
from daeosens.problem.batched.linearization import (
    Linearization,
    by_matrices,
    sparse_pulls,
    with_weights,
)
from daeosens.problem.batched.protocol import Batch
from daeosens.problem.c_callback import Compiled
from daeosens.problem.callback_guard import check_output
from daeosens.problem.matrices import Products


class CompiledBatch:
    """Evaluations of C functions at many points, one call for all of them.

    Parameters
    ----------
    plain : Batch
        The same callbacks, point by point: for what is not in C.
    rhs, jacobian, jacobian_p, hessian_product : callable, Products or None
        As given to ``ODE``.
    """

    at_once = True
    rows_at_once = None

    def __init__(
        self, plain: Batch, rhs: Any, jacobian: Any, jacobian_p: Any, hessian_product: Any
    ) -> None:
        self._plain = plain
        self._rhs, self._by_u, self._by_p = rhs, jacobian, jacobian_p
        self._second = hessian_product
        self._runs: tuple[npt.NDArray[np.intp], Runs] | None = None
        if isinstance(jacobian, Compiled) and jacobian.native.pattern is not None:
            starts, columns = jacobian.native.pattern
            rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            self._runs = diagonal_runs(rows, np.asarray(columns, dtype=int))

    @property
    def rhs_in_c(self) -> tuple[int, int] | None:
        """Return the addresses of f and of its user data, if it is in C."""
        if not isinstance(self._rhs, Compiled):
            return None
        return self._rhs.native.where

    def rhs(self, t: Array, u: Array, p: Array) -> Array:
        """Return f at every point [K, n]."""
        if not isinstance(self._rhs, Compiled):
            return self._plain.rhs(t, u, p)
        return evaluated(self._rhs, "rhs", t, (u, p))

    def jacobian(self, t: Array, u: Array, p: Array) -> Array:
        """Return f_u at every point [K, n, n]."""
        if not isinstance(self._by_u, Compiled):
            return self._plain.jacobian(t, u, p)
        values = evaluated(self._by_u, "jacobian", t, (u, p))
        pattern = self._by_u.native.pattern
        if pattern is None:
            return values
        starts, columns = pattern
        n = u.shape[1]
        matrices = np.zeros((len(t), n, n))
        # sparse values of all points to dense matrices: rows by the counts of entries, columns by
        # the pattern
        matrices[:, np.repeat(np.arange(n), np.diff(starts)), columns] = values
        return matrices

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m]."""
        by_p = self._by_p
        if not p.size:
            return np.zeros((len(w), 0))
        if isinstance(by_p, Products) and isinstance(by_p.apply_transpose, Compiled):
            return self._pull_by_products(by_p.apply_transpose, t, u, p, w)
        if not isinstance(by_p, Compiled):
            return self._plain.pull_parameters(t, u, p, w)
        result = np.zeros((len(w), p.size))
        for part in _parts(len(t), by_p.scratch.size):
            values = evaluated(by_p, "jacobian_p", t[part], (u[part], p))
            # sum_k w_k^T (f_p)_k is one product: the points' rows side by side, their matrices
            # below one another
            rows = w[:, part].reshape(len(w), -1)
            result += rows @ _stacked(by_p, values, p.size)
        return result

    def _pull_by_products(
        self, transposed: Compiled, t: Array, u: Array, p: Array, w: Array
    ) -> Array:
        result = np.zeros((len(w), p.size))
        for part in _parts(len(t), p.size):
            for row, weights in enumerate(np.ascontiguousarray(w[:, part])):
                inputs = u[part], p, weights
                name = "jacobian_p.apply_transpose"
                result[row] += evaluated(transposed, name, t[part], inputs).sum(axis=0)
        return result

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for M rows."""
        pull = partial(self.pull_parameters, t, u, p)
        if self._runs is None:
            return by_matrices(self.jacobian(t, u, p), pull, rows)
        order, runs = self._runs
        # entries in the order of the diagonals, along which products with f_u^T run
        values = evaluated(self._by_u, "jacobian", t, (u, p)).take(order, axis=1)
        return with_weights(sparse_pulls(values, runs, u.shape[1]), pull, rows)

    def push_parameters(self, t: Array, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp at every point [D, K, n]."""
        by_p, shape = self._by_p, (len(dp), *u.shape)
        if not p.size:
            return np.zeros(shape)
        if isinstance(by_p, Products) and isinstance(by_p.apply, Compiled):
            name = "jacobian_p.apply"
            rates = [evaluated(by_p.apply, name, t, (u, p, row)) for row in dp]
            return np.array(rates).reshape(shape)
        if not isinstance(by_p, Compiled):
            return self._plain.push_parameters(t, u, p, dp)
        result = np.empty(shape)
        for part in _parts(len(t), by_p.scratch.size):
            values = evaluated(by_p, "jacobian_p", t[part], (u[part], p))
            # one product for all points and directions
            columns = _stacked(by_p, values, p.size) @ dp.T
            result[:, part] = columns.T.reshape(len(dp), -1, u.shape[1])
        return result

    def hessian_product(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w [D, K, n] and, summed over the points, f_p^T w."""
        second = self._second
        if not isinstance(second, Compiled):
            return self._plain.hessian_product(t, u, p, w, du, dp)
        by_u, by_p = np.empty(du.shape), np.zeros(dp.shape)
        w, name = np.ascontiguousarray(w), "hessian_product"
        for part in _parts(len(t), u.shape[1] + p.size):
            # a direction of the parameters is one for all points: C takes the points of one after
            # the other
            for k, along in enumerate(dp):
                inputs = u[part], p, w[part], np.ascontiguousarray(du[k, part]), along
                by_u[k, part], at_points = evaluated_all(second, name, t[part], inputs)
                by_p[k] += at_points.sum(axis=0)
        return by_u, by_p


def evaluated(function: Compiled, name: str, t: Array, inputs: tuple[Array, ...]) -> Array:
    """Return what a C function fills at every point [K, ...]."""
    out = np.empty((len(t), *function.scratch.shape))
    _fill(function, name, t, inputs, (out,))
    return out


def evaluated_all(
    function: Compiled, name: str, t: Array, inputs: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Return all that a C function of several outputs fills at every point [K, ...]."""
    outputs = tuple(np.empty((len(t), *shape)) for shape in function.shapes)
    _fill(function, name, t, inputs, outputs)
    return outputs


def _fill(
    function: Compiled, name: str, t: Array, inputs: tuple[Array, ...], outputs: tuple[Array, ...]
) -> None:
    if call_points(*function.native.where, t, inputs, outputs):
        return
    for out in outputs:
        # something is not finite: look where, to name the time
        for time, values in zip(t.tolist(), out, strict=True):
            check_output(values, name, values.shape, time)


def _parts(count: int, size: int) -> list[slice]:
    """Cut points into parts with so few values that they stay in the memory given to them."""
    several = max(1, TEMPORARY // (8 * size))
    return [slice(k, k + several) for k in range(0, count, several)]


def _stacked(function: Compiled, values: Array, columns: int) -> Any:
    """Return the matrices of all points below one another."""
    pattern = function.native.pattern
    if pattern is None:
        return values.reshape(-1, columns)
    starts, places = pattern
    count, entries = values.shape
    # CSR of all matrices below one another: starts of rows go on by the entries of one
    first = np.multiply.outer(np.arange(count), entries)[:, None]
    ends = np.append(0, first + starts[1:])
    shape = (ends.size - 1, columns)
    return sparse.csr_array((values.ravel(), np.tile(places, count), ends), shape=shape)
