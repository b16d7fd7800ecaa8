"""Products with second derivatives at many points, by callbacks that take them in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import Differentiated
from daeosens.problem.batched.pointwise import SinglePoint, one_by_one
from daeosens.problem.callback_guard import check_output, check_tuple, guarded
from daeosens.problem.derivative_arrays import DerivativeArray, primal
from daeosens.problem.matrices import Products

TEMPORARY = 2**20
"""Bytes, at most, of the matrices that are evaluated in one call, which are to stay in a cache.

A Hessian product by 6 steps of beuler with 67 unknowns and 4556 parameters takes 14 ms, with 2**24
Bytes 35 ms; with 23 unknowns and 22 steps of rk4 16 ms and 32 ms.
"""

Judge: TypeAlias = "Callable[[str, Array, Array, str], None]"
"""``(name, at many points, at single points, where)`` raises InputError where they differ."""


class ManyHessians:
    """The derivatives of f_u^T w and f_p^T w along directions.

    By the user's ``hessian_product``, which is compared with single points; where there is none,
    from his Jacobians, or from ``rhs``, if these agree with single points; else point by point.

    Parameters
    ----------
    single : SinglePoint
        The callbacks.
    callback : callable or None
        ``(t [K], u [K, n], p [m], w [K, n], du [K, n], dp [m]) -> (array [K, n], array [m])``, the
        latter summed over the points.
    judge : callable
        Refuses values that differ.
    """

    def __init__(
        self, single: SinglePoint, callback: Callable[..., Any] | None, judge: Judge
    ) -> None:
        self._single = single
        self._judge = judge
        self._callback = callback and guarded(callback, "hessian_product", PETSc.COMM_SELF)
        known = single.given_u is not None and (single.given_p is not None or not single.reads_p)
        self._rhs = Differentiated(single.rhs, "rhs", "hessian_product=callback")
        # kept from call to call, as ``_rhs`` is: what differentiates a callback for the first time
        # compares it with differences, which take longer than its derivative does
        remedy = "hessian_product=callback"
        self._by_u = Differentiated(single.by_u, "jacobian", remedy)
        self._by_p = (
            Differentiated(single.by_p.apply_transpose, "jacobian_p.apply_transpose", remedy)
            if isinstance(single.by_p, Products)
            else Differentiated(single.by_p, "jacobian_p", remedy)
        )
        # The first way that agrees with single points is taken: the user's products, his
        # Jacobians differentiated, f differentiated twice.
        self._ways = [self._by_callback] if callback else [self._from_jacobians] * known
        self._ways += [self._from_rhs] * (callback is None)
        self._trusted = False

    def __call__(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return them along (du [D, K, n], dp [D, m]): [D, K, n], and [D, m] summed over points."""
        if not self._trusted:
            self._compare(t, u, p)
            # one point alone does not show whether points are mixed up
            self._trusted = len(t) > 1
        along = next(iter(self._ways), None)
        if along is None:
            return one_by_one(self._single, t, u, p, w, du, dp)
        by_u, by_p = np.empty(du.shape), np.empty(dp.shape)
        for k, direction in enumerate(zip(du, dp, strict=True)):
            by_u[k], by_p[k] = along(t, u, p, w, *direction)
        return by_u, by_p

    def _compare(self, t: Array, u: Array, p: Array) -> None:
        """Refuse a callback that differs from itself at single points; drop ways that do."""
        some = some_of(len(t))
        count = u[some].size
        # vectors without symmetry, the same each time
        w, du = (
            function(1.0 + np.arange(count)).reshape(-1, u.shape[1])
            for function in (np.sin, np.cos)
        )
        dp = np.cos(2.0 + np.arange(p.size))
        at = (t[some], u[some], p, w)
        by_u, by_p = one_by_one(self._single, *at, du[None], dp[None])
        name, where = "hessian_product", f"{len(some)} points"
        for along in list(self._ways):
            try:
                product = along(*at, du, dp)
                self._judge(name, product[0], by_u[0], where)
                if p.size:
                    self._judge(name, product[1], by_p[0], f"a sum over {where}")
            except InputError:
                if self._callback is not None:
                    raise
                self._ways.remove(along)
            else:
                return

    def _by_callback(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        assert self._callback is not None
        name = "hessian_product"
        product = check_tuple(
            self._callback(t, u, p, w, du, dp),
            name,
            "array [K, n]",
            "array [m], summed over K points",
        )
        by_u = check_output(product[0], name, u.shape, t[0])
        return by_u, check_output(product[1], name, p.shape, t[0]) if p.size else np.zeros(0)

    def _from_jacobians(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        single = self._single
        by_u, by_p = np.empty(u.shape), np.zeros(p.size)
        # The Jacobian with (u, p) moved along (du, dp) has the derivative of f_u along it as its
        # slope; w^T of that is the product.
        moved, q = DerivativeArray(u.copy(), du[..., None]), DerivativeArray(p.copy(), dp[:, None])
        for part in parts(u, 4 * u.shape[1]):
            shape = (*u[part].shape, u.shape[1])
            matrix = _change(self._by_u, (t[part], moved[part], q), shape)
            by_u[part] = (w[part, None] @ matrix)[:, 0]
        if not single.reads_p:
            return by_u, by_p
        if isinstance(single.by_p, Products):
            return by_u, _change(self._by_p, (t, moved, q, w[None]), (1, p.size))[0]
        for part in parts(u, 4 * p.size):
            shape = (*u[part].shape, p.size)
            matrix = _change(self._by_p, (t[part], moved[part], q), shape)
            # summed over points at once: sum_k w_k^T (f_p)_k is one product
            by_p += w[part].ravel() @ matrix.reshape(-1, p.size)
        return by_u, by_p

    def _from_rhs(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        n, m = u.shape[1], p.size
        count = n + m
        by_u, by_p = np.empty(u.shape), np.zeros(m)
        of_p = np.eye(m, count, n)
        # Derivatives of derivatives: inner ones by all n + m arguments (unit vectors), outer ones
        # along the direction. The slopes of slopes are the change of (f_u, f_p) along it.
        q = DerivativeArray(
            DerivativeArray(p.copy(), dp[:, None]), DerivativeArray(of_p, np.zeros((m, count, 1)))
        )
        for part in parts(u, 8 * count):
            points = u[part]
            of_u = np.repeat(np.eye(n, count)[None], len(points), axis=0)
            moved = DerivativeArray(
                DerivativeArray(points.copy(), du[part, :, None]),
                DerivativeArray(of_u, np.zeros((*of_u.shape, 1))),
            )
            slopes = self._rhs((t[part], moved, q), (t[part], points, p), (count, 1)).slopes
            matrix = slopes.slopes[..., 0]
            check_output(matrix, "rhs", (*points.shape, count), t[part.start])
            products = (w[part, None] @ matrix)[:, 0]
            by_u[part] = products[:, :n]
            # columns: the n of u first, then the m of p
            by_p += products[:, n:].sum(axis=0)
        return by_u, by_p


def _change(function: Differentiated, point: Any, shape: tuple[int, ...]) -> Array:
    """Return the derivative of what a callback gives along the one direction its arguments have."""
    plain = tuple(primal(argument) for argument in point)
    slopes = function(point, plain, (1,)).slopes[..., 0]
    return check_output(slopes, function.name, shape, point[0][0])


def some_of(count: int) -> list[int]:
    """Return the numbers of the first, the middle and the last point."""
    return sorted({0, count // 2, count - 1})


def parts(u: Array, columns: int) -> Iterator[slice]:
    """Yield points by parts, so that matrices [k, n, columns] take a bounded memory."""
    several = max(1, TEMPORARY // (8 * u.shape[1] * columns))
    for k in range(0, len(u), several):
        yield slice(k, k + several)
