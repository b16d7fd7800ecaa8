"""Derivatives at many points by callbacks that take them in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import Differentiated
from daeosens.problem.batched.hessians import ManyHessians, parts, some_of
from daeosens.problem.batched.linearization import Linearization, by_matrices
from daeosens.problem.batched.pointwise import SinglePoint
from daeosens.problem.callback_guard import check_output
from daeosens.problem.derivative_arrays import DerivativeArray, primal
from daeosens.problem.matrices import Products

AGREES = 1e-9
"""Relative difference that rounding may make between one call for many points and one for each."""


class TakesMany:
    """Evaluations by callbacks that take many points in one call.

    Each is compared with evaluations at single points the first time that it sees several.
    """

    at_once = True
    rows_at_once = None
    rhs_in_c = None

    def __init__(self, single: SinglePoint, hessian_product: Callable[..., Any] | None) -> None:
        self._single = single
        self._trusted: set[str] = set()
        self._hessian = ManyHessians(single, hessian_product, self._judge)
        self._rhs = Differentiated(
            single.rhs, "rhs", 'jacobian=callback or "differences", jacobian_p= likewise'
        )

    def rhs(self, t: Array, u: Array, p: Array) -> Array:
        """Return f at every point [K, n]."""
        values = check_output(self._single.rhs(t, u, p), "rhs", u.shape, t[0])
        self._compare("rhs", values, self._single.rate, t, u, p)
        return values

    def jacobian(self, t: Array, u: Array, p: Array) -> Array:
        """Return f_u at every point [K, n, n]."""
        single, (count, n) = self._single, u.shape
        if single.given_u is not None:
            values = check_output(single.by_u(t, u, p), "jacobian", (count, n, n), t[0])
        else:
            values = np.empty((count, n, n))
            for part in parts(u, n):
                points = u[part]
                # unit vectors at each point: the slopes of f there are its Jacobian
                seeds = np.repeat(np.eye(n)[None], len(points), axis=0)
                values[part] = self._slopes(part, t, DerivativeArray(points.copy(), seeds), p)
        self._compare("jacobian", values, single.jacobian, t, u, p)
        return values

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m]."""
        if not self._single.reads_p:
            return np.zeros((len(w), self._single.sizes[1]))
        # what is compared is a sum, so it is compared along a direction
        if "jacobian_p" not in self._trusted:
            self._compare_sum(t, u, p)
        return self._pull(t, u, p, w)

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for M rows."""
        pull = partial(self.pull_parameters, t, u, p)
        return by_matrices(self.jacobian(t, u, p), pull, rows)

    def push_parameters(self, t: Array, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp at every point [D, K, n]."""
        if not self._single.reads_p:
            return np.zeros((len(dp), *u.shape))
        if "push" not in self._trusted:
            some, along = some_of(len(t)), np.cos(1.0 + np.arange(p.size))[None]
            # a callback that mixes its points gives other numbers than for one point: looked at
            # once
            supplied = self._push(t[some], u[some], p, along)[0]
            rates = [self._single.push(float(t[k]), u[k], p, along)[0] for k in some]
            by_products = isinstance(self._single.given_p, Products)
            name = "jacobian_p.apply" if by_products else "jacobian_p"
            self._judge(name, supplied, np.array(rates), f"{len(some)} points")
            if len(t) > 1:
                self._trusted.add("push")
        return self._push(t, u, p, dp)

    def hessian_product(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w [D, K, n] and, summed over the points, f_p^T w."""
        return self._hessian(t, u, p, w, du, dp)

    def _push(self, t: Array, u: Array, p: Array, dp: Array) -> Array:
        single, (count, n) = self._single, u.shape
        if isinstance(single.by_p, Products):
            rows = [np.array(single.by_p.apply(t, u, p, row)) for row in dp]
            name = "jacobian_p.apply"
            return np.array([check_output(row, name, (count, n), t[0]) for row in rows])
        if single.given_p is None:
            # slopes of p are the directions [m, D] themselves: D derivatives instead of m
            along = DerivativeArray(p.copy(), np.ascontiguousarray(dp.T))
            slopes = [self._slopes(part, t, u[part], along) for part in parts(u, len(dp))]
            return np.moveaxis(np.concatenate(slopes), -1, 0)
        result = np.empty((len(dp), count, n))
        for part, matrix in self._matrices_p(t, u, p):
            result[:, part] = np.moveaxis(matrix @ dp.T, -1, 0)
        return result

    def _pull(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        single, rows, m = self._single, len(w), self._single.sizes[1]
        if isinstance(single.by_p, Products):
            values = single.by_p.apply_transpose(t, u, p, w)
            return check_output(values, "jacobian_p.apply_transpose", (rows, m), t[0])
        if single.given_p is None:
            result = np.zeros((rows, m))
            varying = DerivativeArray(p.copy(), np.eye(m))
            for part in parts(u, m):
                slopes = self._slopes(part, t, u[part], varying)
                # parts of the points, so that slopes [k, n, m] stay within a cache
                result += w[:, part].reshape(rows, -1) @ slopes.reshape(-1, m)
            return result
        result = np.zeros((rows, m))
        for part, matrix in self._matrices_p(t, u, p):
            result += w[:, part].reshape(rows, -1) @ matrix.reshape(-1, m)
        return result

    def _matrices_p(self, t: Array, u: Array, p: Array) -> Iterator[tuple[slice, Array]]:
        """Yield f_p [k, n, m] of some points at a time."""
        assert not isinstance(self._single.by_p, Products)
        for part in parts(u, self._single.sizes[1]):
            expected = (len(u[part]), *self._single.sizes)
            matrix = self._single.by_p(t[part], u[part], p)
            yield part, check_output(matrix, "jacobian_p", expected, t[part.start])

    def _slopes(self, part: slice, t: Array, u: Any, p: Any) -> Array:
        """Return the derivatives [k, n, K] of f at some points, where u or p carries slopes."""
        times, plain = t[part], (primal(u), primal(p))
        count = u.slopes.shape[-1] if isinstance(u, DerivativeArray) else p.slopes.shape[-1]
        slopes = self._rhs((times, u, p), (times, *plain), (count,)).slopes
        return check_output(slopes, "rhs", (*plain[0].shape, count), times[0])

    def _compare(
        self, name: str, values: Array, single: Callable[..., Array], t: Array, u: Array, p: Array
    ) -> None:
        """Refuse values at many points that are not those at single points."""
        if name in self._trusted:
            return
        for k in some_of(len(t)):
            self._judge(name, values[k], single(float(t[k]), u[k], p), f"point {k} of {len(t)}")
        if len(t) > 1:
            self._trusted.add(name)

    def _compare_sum(self, t: Array, u: Array, p: Array) -> None:
        """Refuse a sum over points that does not agree along a direction in the parameters."""
        some, single = some_of(len(t)), self._single
        dp = np.cos(1.0 + np.arange(p.size))
        w = np.sin(1.0 + np.arange(2.0 * len(some) * u.shape[1])).reshape(2, len(some), -1)
        rates = np.array([single.push(float(t[k]), u[k], p, dp[None])[0] for k in some])
        supplied = self._pull(t[some], u[some], p, w) @ dp
        by_products = isinstance(single.given_p, Products)
        name = "jacobian_p.apply_transpose" if by_products else "jacobian_p"
        # a sum may cancel: it is judged beside the sizes of its terms
        scale = float(np.abs(w * rates).sum())
        self._judge(
            name, supplied, (w * rates).sum((1, 2)), f"a sum over {len(some)} points", scale
        )
        if len(t) > 1:
            self._trusted.add("jacobian_p")

    def _judge(self, name: str, many: Array, single: Array, where: str, scale: float = 0.0) -> None:
        scale = max(scale, *(float(np.abs(values).max(initial=0.0)) for values in (many, single)))
        worst = (
            np.unravel_index(int(np.abs(many - single).argmax()), single.shape)
            if single.size
            else ()
        )
        if single.size and not abs(many[worst] - single[worst]) <= AGREES * scale:
            entry = [int(i) for i in worst]
            raise InputError(
                f"callback '{name}' gives {many[worst]:.9g} in entry {entry} of {where}, "
                f"and {single[worst]:.9g} at single points",
                expected="the same, as batched=True promises",
                remedy="u[..., i] for components, t[..., None] times vectors; or batched=False",
            )
