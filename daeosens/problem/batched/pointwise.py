"""The callbacks of a right-hand side at one point after the other, for the sweeps in blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import (
    AutomaticJacobian,
    Differentiated,
    RecordedPoints,
    ignores,
    seeded,
)
from daeosens.problem.batched.linearization import (
    CallPulls,
    Linearization,
    add_part,
    by_matrices,
)
from daeosens.problem.batched.many_points import (
    FEW_POINTS,
    SMALL,
    TEMPORARY,
    TOGETHER,
    hessians_at_points,
    products_at_points,
    slopes_at_points,
)
from daeosens.problem.callback_guard import check_output, guarded
from daeosens.problem.coloring import MANY_COLUMNS
from daeosens.problem.matrices import Products

ArrayProducts: TypeAlias = "Callable[..., tuple[Array, ...]]"
"""``(t, u [n], p [m], w [n], du [n], dp [m]) -> (array [n], array [m])``: the derivatives of
f_u^T w and f_p^T w along (du, dp)."""

FIRST_RECORDED, RECORDED, RECORDED_ROWS = 8, 2**18, 8
"""Points that are recorded at first, numbers that later ones may keep, and how many directions
there are at least for each row of weights: of 50 coupled unknowns with 51 parameters (Kuramoto) one
row takes 3.8 evaluations of f, all directions 12."""

TRANSPOSED = 1e-12
"""Part of its terms by which a product may differ that is taken with the transposed Jacobian."""


class SinglePoint:
    """The callbacks at one point, checked; what is missing is automatic.

    Results may be one array that a callback fills at every point.

    Attributes
    ----------
    in_one : bool
        Whether f_u and f_p are had quicker together.
    records : bool
        Whether products with transposed derivatives are to come from records of evaluations.
    at_all : bool
        Whether f may be evaluated at all points at once.
    """

    def __init__(
        self,
        rhs: Callable[..., Any],
        jacobian: Callable[..., Any] | None,
        jacobian_p: Callable[..., Any] | Products | None,
        products: ArrayProducts,
        sizes: tuple[int, int],
    ) -> None:
        comm = PETSc.COMM_SELF
        self.sizes = sizes
        self.products = products
        self.rhs = guarded(rhs, "rhs", comm)
        self.given_u, self.given_p = jacobian, jacobian_p
        self.by_u = (
            AutomaticJacobian(rhs, 1, "rhs", 'jacobian=callback or "differences"', colored=True)
            if jacobian is None
            else guarded(jacobian, "jacobian", comm)
        )
        # a function that does not read its third argument has no f_p: nothing is evaluated for it
        self.reads_p = jacobian_p is not None or not ignores(rhs, 2)
        self.reads_p = self.reads_p and sizes[1] > 0
        # f_u and f_p from one pass of derivative arrays where both are automatic and few
        automatic = jacobian is None and jacobian_p is None
        self.in_one = automatic and self.reads_p and sizes[0] * sum(sizes) <= SMALL
        # where f_u and f_p are given nothing is evaluated at all points
        self.at_all = jacobian is None or jacobian_p is None
        self.second_at_all = jacobian is None and jacobian_p is None
        self._seeds = np.eye(sum(sizes) if self.in_one else 0)
        # products with transposed derivatives where these have many entries
        self.records = automatic and not self.in_one
        self._both = Differentiated(
            rhs, "rhs", 'jacobian=callback or "differences", jacobian_p= likewise'
        )
        self.by_p: Callable[..., Any] | Products
        if isinstance(jacobian_p, Products):
            self.by_p = Products(
                guarded(jacobian_p.apply, "jacobian_p.apply", comm),
                guarded(jacobian_p.apply_transpose, "jacobian_p.apply_transpose", comm),
            )
        elif jacobian_p is None:
            self.by_p = AutomaticJacobian(rhs, 2, "rhs", 'jacobian_p=callback or "differences"')
        else:
            self.by_p = guarded(jacobian_p, "jacobian_p", comm)

    def rate(self, t: float, u: Array, p: Array) -> Array:
        """Return f [n]."""
        return check_output(self.rhs(t, u, p), "rhs", self.sizes[:1], t)

    def jacobian(self, t: float, u: Array, p: Array) -> Array:
        """Return f_u [n, n]."""
        n = self.sizes[0]
        return check_output(full(self.by_u(t, u, p)), "jacobian", (n, n), t)

    def both(self, t: float, u: Array, p: Array) -> Array:
        """Return f_u and f_p side by side [n, n + m], from one evaluation (``in_one``)."""
        n, count = self.sizes[0], sum(self.sizes)
        seeds = self._seeds.copy()  # a callback may write to them
        varying = seeded(u, seeds[:n]), seeded(p, seeds[n:])
        slopes = self._both((t, *varying), (t, u, p), (count,)).slopes
        return check_output(slopes.reshape(-1, count), "jacobian", (n, count), t)

    def at_points(
        self, t: Array, u: Array, p: Array, columns: range, at_one: Callable[[int], Array]
    ) -> Array | None:
        """Return columns of f_u and f_p side by side [K, n, columns], from few evaluations.

        Points are an axis of all arrays that the callback does not see (``PointArray``).  None
        where nearly each of them goes a way of its own, or it calls what knows no such axis.

        Parameters
        ----------
        t, u, p
            The points.
        columns : range
            Which of the n + m.
        at_one : callable
            ``at_one(k)`` returns the same [n, columns] from an evaluation at one point.
        """
        n, width = u.shape[1], len(columns)
        if not self.at_all or len(u) < FEW_POINTS or n * width > SMALL:
            return None
        matrices = slopes_at_points(self._both, (n,), (t, u, p), columns, at_one)
        self.at_all = matrices is not None
        return matrices

    def pushed_at_points(self, t: Array, u: Array, p: Array, dp: Array) -> Array | None:
        """Return f_p dp [D, K, n] for rows of directions dp [D, m], as ``at_points``."""
        (n, m), count = self.sizes, len(dp)
        if count >= m:
            matrices = self.at_points(
                t, u, p, range(n, n + m), lambda k: self.by_parameters(float(t[k]), u[k], p)
            )
            return None if matrices is None else np.moveaxis(matrices @ dp.T, -1, 0)
        if not self.at_all or len(u) < FEW_POINTS or n * count > SMALL:
            return None
        # directions themselves as seeds: D slopes instead of m
        nothing = np.zeros((n, count, 1))
        products = products_at_points(
            self._both,
            (n,),
            (t, u, p),
            (lambda _: nothing, dp.T),
            min(TOGETHER, TEMPORARY // (8 * n * max(count, 1))),
            lambda k: self.push(float(t[k]), u[k], p, dp).T,
        )
        self.at_all = products is not None
        return None if products is None else np.moveaxis(products, -1, 0)

    def hessians_at_points(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> Array | None:
        """Return the derivatives of f_u^T w and f_p^T w [D, K, n + m] along D directions.

        Arguments as of ``one_by_one``; from few evaluations, or None, as of ``at_points``.
        """
        n, m = u.shape[1], p.size
        if not self.second_at_all or len(u) < FEW_POINTS or n * (n + m) > SMALL:
            return None

        def at_one(k: int) -> Array:
            return np.hstack(self.hessian(float(t[k]), u[k], p, w[k], du[:, k], dp))

        products = hessians_at_points(self._both, (n,), (t, u, p), w, (du, dp), at_one)
        self.second_at_all = products is not None
        return products

    def recorded(self, t: Array, u: Array, p: Array) -> RecordedPoints | None:
        """Return f recorded at points; None where that cannot be, or digits are lost by it.

        Terms that cancel in slopes, exactly, may be large in what is transposed: a product of the
        transposed Jacobian is compared with one of the Jacobian at one of the points.
        """
        result = self._both.recorded(t, u, p)
        if result is not None:
            n, k = self.sizes[0], len(t) // 2
            direction, w = np.cos(1.0 + np.arange(sum(self.sizes))), np.sin(1.0 + np.arange(n))
            seeds = direction[:n, None], direction[n:, None]
            varying = seeded(u[k], seeds[0]), seeded(p, seeds[1])
            along = self._both((float(t[k]), *varying), (float(t[k]), u[k], p), (1,)).slopes
            terms = w * np.reshape(along, n)
            pulled = np.concatenate(result.pull(k, w[None]), axis=1)[0]
            apart = abs(float(pulled @ direction - terms.sum()))
            if not apart <= TRANSPOSED * max(np.abs(terms).sum(), np.abs(pulled * direction).sum()):
                result = None
        self.records = result is not None
        return result

    def by_parameters(self, t: float, u: Array, p: Array) -> Array:
        """Return f_p [n, m], where it is a matrix."""
        assert not isinstance(self.by_p, Products)
        return check_output(full(self.by_p(t, u, p)), "jacobian_p", self.sizes, t)

    def pull(self, t: float, u: Array, p: Array, w: Array) -> Array:
        """Return f_p^T w [M, m] for rows of weights w [M, n]."""
        if isinstance(self.by_p, Products):
            name, m = "jacobian_p.apply_transpose", self.sizes[1]
            rows = [np.array(self.by_p.apply_transpose(t, u, p, row)) for row in w]
            return np.array([check_output(row, name, (m,), t) for row in rows])
        return w @ self.by_parameters(t, u, p)

    def push(self, t: float, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp [D, n] for rows of directions dp [D, m]."""
        if isinstance(self.by_p, Products):
            name, n = "jacobian_p.apply", self.sizes[0]
            rows = [np.array(self.by_p.apply(t, u, p, row)) for row in dp]
            return np.array([check_output(row, name, (n,), t) for row in rows])
        # directions themselves as seeds: D slopes instead of m
        if isinstance(self.by_p, AutomaticJacobian) and len(dp) < self.sizes[1]:
            along = self.by_p.along
            return np.array([along(row, t, u, p) for row in dp]).reshape(-1, self.sizes[0])
        return dp @ self.by_parameters(t, u, p).T

    def hessian(
        self, t: float, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w [D, n] and f_p^T w [D, m] along D directions."""
        by_u, by_p = np.empty(du.shape), np.empty(dp.shape)
        for k, direction in enumerate(zip(du, dp, strict=True)):
            by_u[k], by_p[k] = self.products(t, u, p, w, *direction)
        return by_u, by_p


class RecordedPulls:
    """Products of rows with f_u and f_p, transposed from what an evaluation did to slopes.

    They take a few evaluations of f whatever the numbers of unknowns and parameters are.  Some
    points are evaluated at a time, the last ones first.

    Parameters
    ----------
    single : SinglePoint
        The callbacks.
    t, u, p
        The points.
    rows : int
        Number M of rows of weights.
    """

    def __init__(self, single: SinglePoint, t: Array, u: Array, p: Array, rows: int) -> None:
        self._single, self._at, self._p = single, (t, u), p
        self.by_p = np.zeros((rows, single.sizes[1]))
        self._first, self._end, self._several = len(t), len(t), FIRST_RECORDED
        self._recorded: RecordedPoints | None = None
        self._record(len(t) - 1)

    def pull(self, k: int, w: Array) -> Array:
        """Return w f_u [M, n] at point k; add w f_p to ``by_p``."""
        if not self._first <= k < self._end:
            self._record(k)
        if self._recorded is None:
            at = float(self._at[0][k]), self._at[1][k], self._p
            if self._single.reads_p:
                self.by_p += self._single.pull(*at, w)
            return w @ self._single.jacobian(*at)
        by_u, by_p = self._recorded.pull(k - self._first, w)
        self.by_p += by_p
        return by_u

    def _record(self, last: int) -> None:
        """Evaluate f at some points up to number ``last``."""
        self._end = last + 1
        self._first = max(0, self._end - self._several)
        part = slice(self._first, self._end)
        self._recorded = None
        if self._single.records:
            t, u = self._at
            self._recorded = self._single.recorded(t[part], u[part], self._p)
        if self._recorded is not None:
            size = self._recorded.record.size // (self._end - self._first) + 1
            self._several = min(max(RECORDED // size, 1), TOGETHER // 8)


class OneByOne:
    """Evaluations at many points by calling back for each of them."""

    at_once = False
    rows_at_once = None
    rhs_in_c = None

    def __init__(self, single: SinglePoint) -> None:
        self._single = single

    def rhs(self, t: Array, u: Array, p: Array) -> Array:
        """Return f at every point [K, n]."""
        return _at_each(self._single.rate, t, u, p, u.shape[1:])

    def jacobian(self, t: Array, u: Array, p: Array) -> Array:
        """Return f_u at every point [K, n, n]."""
        single, n = self._single, u.shape[1]
        if single.given_u is None and n < MANY_COLUMNS:
            at_one = partial(self._of_point, single.jacobian, t, u, p)
            at_once = single.at_points(t, u, p, range(n), at_one)
            if at_once is not None:
                return at_once
        return _at_each(single.jacobian, t, u, p, (n, n))

    @staticmethod
    def _of_point(function: Callable[..., Array], t: Array, u: Array, p: Array, k: int) -> Array:
        return function(float(t[k]), u[k], p)

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m]."""
        single, (n, m) = self._single, self._single.sizes
        result = np.zeros((len(w), m))
        if not single.reads_p:
            return result
        if single.given_p is None:
            at_one = partial(self._of_point, single.by_parameters, t, u, p)
            at_once = single.at_points(t, u, p, range(n, n + m), at_one)
            if at_once is not None:
                return _all_at_once(w, at_once)
        if single.records and RECORDED_ROWS * len(w) <= m and n * m > SMALL:
            recorded = RecordedPulls(single, t, u, p, len(w))
            if single.records:
                for k in range(len(t) - 1, -1, -1):
                    recorded.pull(k, w[:, k])
                return recorded.by_p
        if n * m <= SMALL and not isinstance(single.by_p, Products):
            return _all_at_once(w, _at_each(single.by_parameters, t, u, p, (n, m)))
        for k, point in enumerate(zip(t.tolist(), u, strict=True)):
            # points add up, since all of them have the same p: mu = sum of f_p^T w
            result += single.pull(*point, p, w[:, k])
        return result

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for M rows."""
        single, n = self._single, u.shape[1]
        if single.records and RECORDED_ROWS * rows <= sum(single.sizes):
            recorded = RecordedPulls(single, t, u, p, rows)
            if single.records:
                return Linearization(
                    CallPulls(recorded.pull),
                    lambda mu, fresh: add_part(mu, recorded.by_p, fresh=fresh),
                )
        if not single.in_one:
            pull = partial(self.pull_parameters, t, u, p)
            return by_matrices(self.jacobian(t, u, p), pull, rows)
        at_one = partial(self._of_point, single.both, t, u, p)
        both = single.at_points(t, u, p, range(sum(single.sizes)), at_one)
        if both is None:
            both = np.array([at_one(k) for k in range(len(t))])
        by_p = both[:, :, n:]
        return by_matrices(both[:, :, :n], lambda w: _all_at_once(w, by_p), rows)

    def push_parameters(self, t: Array, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp at every point [D, K, n]."""
        result = np.zeros((len(dp), *u.shape))
        if self._single.reads_p:
            single = self._single
            if single.given_p is None:
                at_once = single.pushed_at_points(t, u, p, dp)
                if at_once is not None:
                    return at_once
            for k, point in enumerate(zip(t.tolist(), u, strict=True)):
                result[:, k] = single.push(*point, p, dp)
        return result

    def hessian_product(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w [D, K, n] and, summed over the points, f_p^T w."""
        together = self._single.hessians_at_points(t, u, p, w, du, dp)
        if together is None:
            return one_by_one(self._single, t, u, p, w, du, dp)
        n = u.shape[1]
        return together[..., :n], together[..., n:].sum(axis=1)


def one_by_one(
    single: SinglePoint, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
) -> tuple[Array, Array]:
    """Return what ``ManyHessians`` does by calling back for each point and direction."""
    by_u, by_p = np.empty(du.shape), np.zeros(dp.shape)
    for k, point in enumerate(zip(t.tolist(), u, strict=True)):
        by_u[:, k], row = single.hessian(*point, p, w[k], du[:, k], dp)
        by_p += row
    return by_u, by_p


def _at_each(
    function: Callable[..., Array], t: Array, u: Array, p: Array, shape: tuple[int, ...]
) -> Array:
    """Return what a function of one point gives [...], at K points [K, ...]."""
    values = np.empty((len(t), *shape))  # a list of arrays would take as much again
    for k, (time, state) in enumerate(zip(t.tolist(), u, strict=True)):
        values[k] = function(time, state, p)
    return values


def _all_at_once(w: Array, by_p: Array) -> Array:
    """Return the sum over K points of f_p^T w [M, m]: w [M, K, n], f_p [K, n, m]."""
    return w.reshape(len(w), -1) @ by_p.reshape(-1, by_p.shape[-1])


def full(values: Any) -> Any:
    """Return a dense array where a callback gave a sparse matrix."""
    toarray = getattr(values, "toarray", None)  # SciPy's sparse arrays and matrices
    return values if toarray is None else toarray()
