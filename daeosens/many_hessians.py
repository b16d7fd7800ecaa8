"""Products with second derivatives at many points, by callbacks that take them in one call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array
from daeosens.derivatives import STEP
from daeosens.errors import InputError
from daeosens.guards import check_output, check_tuple, guarded
from daeosens.matrices import Products
from daeosens.single_point import SinglePoint

TEMPORARY = 2**24
"""Bytes, at most, of the matrices that are evaluated in one call."""

Judge: TypeAlias = "Callable[[str, Array, Array, str], None]"
"""``(name, at many points, at single points, where)`` raises InputError where they differ."""


class ManyHessians:
    """The derivatives of f_u^T w and f_p^T w along directions.

    By the user's ``hessian_product``, which is compared with single points; where there is none, by
    complex steps of his Jacobians if these agree with single points; else point by point.

    Parameters
    ----------
    single : SinglePoint
        The callbacks.
    given : callable or None
        ``(t [K], u [K, n], p [m], w [K, n], du [K, n], dp [m]) -> (array [K, n], array [m])``, the
        latter summed over the points.
    judge : callable
        Refuses values that differ.
    """

    def __init__(self, single: SinglePoint, given: Callable[..., Any] | None, judge: Judge) -> None:
        self._single = single
        self._judge = judge
        self._given = given and guarded(given, "hessian_product", PETSc.COMM_SELF)
        known = single.given_u is not None and (single.given_p is not None or not single.reads_p)
        self._along = self._by_callback if given else self._stepped if known else None
        self._trusted = False

    def __call__(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return them along (du [D, K, n], dp [D, m]): [D, K, n], and [D, m] summed over points."""
        if not self._trusted:
            self._compare(t, u, p)
            self._trusted = len(t) > 1
        along = self._along
        if along is None:
            return one_by_one(self._single, t, u, p, w, du, dp)
        by_u, by_p = np.empty(du.shape), np.empty(dp.shape)
        for k, direction in enumerate(zip(du, dp, strict=True)):
            by_u[k], by_p[k] = along(t, u, p, w, *direction)
        return by_u, by_p

    def _compare(self, t: Array, u: Array, p: Array) -> None:
        """Refuse a callback that differs from itself at single points; no complex steps then."""
        if self._along is None:
            return
        some = some_of(len(t))
        count = u[some].size
        w, du = (each(1.0 + np.arange(count)).reshape(-1, u.shape[1]) for each in (np.sin, np.cos))
        dp = np.cos(2.0 + np.arange(p.size))
        at = (t[some], u[some], p, w)
        by_u, by_p = one_by_one(self._single, *at, du[None], dp[None])
        name, where = "hessian_product", f"{len(some)} points"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", np.exceptions.ComplexWarning)
                found = self._along(*at, du, dp)
            self._judge(name, found[0], by_u[0], where)
            if p.size:
                self._judge(name, found[1], by_p[0], f"a sum over {where}")
        except (TypeError, InputError, np.exceptions.ComplexWarning):
            if self._given is not None:
                raise
            self._along = None

    def _by_callback(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        assert self._given is not None
        name = "hessian_product"
        found = check_tuple(
            self._given(t, u, p, w, du, dp), name, "array [K, n]", "array [m], summed over K points"
        )
        by_u = check_output(found[0], name, u.shape, t[0])
        return by_u, check_output(found[1], name, p.shape, t[0]) if p.size else np.zeros(0)

    def _stepped(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        single = self._single
        by_u, by_p = np.empty(u.shape), np.zeros(p.size)
        moved, q = u + 1j * STEP * du, p + 1j * STEP * dp
        for part in parts(u, 2 * u.shape[1]):
            shape = (*u[part].shape, u.shape[1])
            matrix = single.by_u(t[part], moved[part], q)
            matrix = check_output(matrix, "jacobian", shape, t[part.start], real=False)
            by_u[part] = (w[part, None] @ np.imag(matrix))[:, 0] / STEP
        if not single.reads_p:
            return by_u, by_p
        if isinstance(single.by_p, Products):
            row = single.by_p.apply_transpose(t, moved, q, w[None])
            name = "jacobian_p.apply_transpose"
            row = check_output(row, name, (1, p.size), t[0], real=False)
            return by_u, np.imag(row[0]) / STEP
        for part in parts(u, 2 * p.size):
            shape = (*u[part].shape, p.size)
            matrix = single.by_p(t[part], moved[part], q)
            matrix = check_output(matrix, "jacobian_p", shape, t[part.start], real=False)
            by_p += w[part].ravel() @ np.imag(matrix).reshape(-1, p.size)
        return by_u, by_p / STEP


def one_by_one(
    single: SinglePoint, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
) -> tuple[Array, Array]:
    """Return what ``ManyHessians`` does by calling back for each point and direction."""
    by_u, by_p = np.empty(du.shape), np.zeros(dp.shape)
    for k, point in enumerate(zip(t.tolist(), u, strict=True)):
        by_u[:, k], row = single.hessian(*point, p, w[k], du[:, k], dp)
        by_p += row
    return by_u, by_p


def some_of(count: int) -> list[int]:
    """Return the numbers of the first, the middle and the last point."""
    return sorted({0, count // 2, count - 1})


def parts(u: Array, columns: int) -> Iterator[slice]:
    """Yield points by parts, so that matrices [k, n, columns] take a bounded memory."""
    several = max(1, TEMPORARY // (8 * u.shape[1] * columns))
    for k in range(0, len(u), several):
        yield slice(k, k + several)
