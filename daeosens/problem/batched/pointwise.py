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
    ignores,
    seeded,
)
from daeosens.problem.batched.linearization import Linearization, by_matrices
from daeosens.problem.callback_guard import check_output, guarded
from daeosens.problem.derivative_arrays import DerivativeArray
from daeosens.problem.matrices import Products

ArrayProducts: TypeAlias = "Callable[..., tuple[Array, ...]]"
"""``(t, u [n], p [m], w [n], du [n], dp [m]) -> (array [n], array [m])``: the derivatives of
f_u^T w and f_p^T w along (du, dp)."""

SMALL = 2000
"""Up to so many entries of f_u and f_p a second evaluation costs more than its columns do in one.

Of 28 unknowns and 7 parameters (n-body) 0.6 of the time, of 50 and 51 (Kuramoto) 1.3 times.
"""


FEW_POINTS = 6
"""Of so many points or fewer one after the other is as quick as all at once, and a look at that."""

SAME = 1e-10
"""Part of the largest rate of an unknown by which one from all points at once may be rounded."""


class SinglePoint:
    """The callbacks at one point, checked; what is missing is automatic.

    Results are copies: a callback may fill the same array at every point.

    Attributes
    ----------
    in_one : bool
        Whether f_u and f_p are had quicker together.
    at_all : bool
        Whether f may take unknowns of all points, [n, K], for those of one.
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
        automatic = jacobian is None and jacobian_p is None and self.reads_p
        self.in_one = automatic and sizes[0] * sum(sizes) <= SMALL
        self.at_all = self.in_one
        self._seeds = np.eye(sum(sizes) if self.in_one else 0)
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
        # a callback may hand out the same array at every point
        return check_output(self.rhs(t, u, p), "rhs", self.sizes[:1], t).copy()

    def jacobian(self, t: float, u: Array, p: Array) -> Array:
        """Return f_u [n, n]."""
        n = self.sizes[0]
        return check_output(full(self.by_u(t, u, p)), "jacobian", (n, n), t).copy()

    def both(self, t: float, u: Array, p: Array) -> Array:
        """Return f_u and f_p side by side [n, n + m], from one evaluation (``in_one``)."""
        n, count = self.sizes[0], sum(self.sizes)
        seeds = self._seeds.copy()  # a callback may write to them
        varying = seeded(u, seeds[:n]), seeded(p, seeds[n:])
        slopes = self._both((t, *varying), (t, u, p), (count,)).slopes
        return check_output(slopes.reshape(-1, count), "jacobian", (n, count), t)

    def all_at_once(self, t: Array, u: Array, p: Array) -> Array | None:
        """Return f_u and f_p side by side [K, n, n + m] from one evaluation for all points.

        Most callbacks go by entries, ``p[0] * u[0] - u[1]``, and do the same with those of all
        points.  Of others (sums, sizes, branches, products) shapes or values differ: values are
        compared at every point, and derivatives at three.  None where it cannot be so.
        """
        (count, n), width = u.shape, sum(self.sizes)
        seeds = self._seeds.copy()
        varying_u = DerivativeArray(
            u.T.copy(), np.broadcast_to(seeds[:n, None], (n, count, width)).copy()
        )
        result = self._both.tried((t.copy(), varying_u, seeded(p, seeds[n:])), (width,))
        if result is None or result.shape != (n, count):
            return None
        values, slopes = np.asarray(result.value), np.asarray(result.slopes)
        if values.dtype != float or slopes.dtype != float or not np.isfinite(slopes).all():
            return None
        rates = np.array([self.rate(*point, p) for point in zip(t.tolist(), u, strict=True)]).T
        sizes = np.abs(rates).max(axis=1, keepdims=True)
        if not (np.abs(values - rates) <= SAME * sizes).all():
            return None
        matrices = slopes.swapaxes(0, 1)
        for k in (0, count // 2, count - 1):  # each of which may be looked at by differences
            matrix = self.both(float(t[k]), u[k], p)
            limits = SAME * np.abs(matrices).max(axis=0)
            if not (np.abs(matrices[k] - matrix) <= limits).all():
                return None
        return matrices

    def pull(self, t: float, u: Array, p: Array, w: Array) -> Array:
        """Return f_p^T w [M, m] for rows of weights w [M, n]."""
        if isinstance(self.by_p, Products):
            name, m = "jacobian_p.apply_transpose", self.sizes[1]
            rows = [np.array(self.by_p.apply_transpose(t, u, p, row)) for row in w]
            return np.array([check_output(row, name, (m,), t) for row in rows])
        return w @ check_output(full(self.by_p(t, u, p)), "jacobian_p", self.sizes, t)

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
        return dp @ check_output(full(self.by_p(t, u, p)), "jacobian_p", self.sizes, t).T

    def hessian(
        self, t: float, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w [D, n] and f_p^T w [D, m] along D directions."""
        products = [
            tuple(map(np.array, self.products(t, u, p, w, *direction)))
            for direction in zip(du, dp, strict=True)
        ]
        by_u, by_p = zip(*products, strict=True)
        return np.array(by_u), np.array(by_p)


class OneByOne:
    """Evaluations at many points by calling back for each of them."""

    at_once = False
    rows_at_once = None
    rhs_in_c = None

    def __init__(self, single: SinglePoint) -> None:
        self._single = single

    def rhs(self, t: Array, u: Array, p: Array) -> Array:
        """Return f at every point [K, n]."""
        return np.array([self._single.rate(*point, p) for point in zip(t.tolist(), u, strict=True)])

    def jacobian(self, t: Array, u: Array, p: Array) -> Array:
        """Return f_u at every point [K, n, n]."""
        matrices = np.empty((*u.shape, u.shape[1]))  # a list of arrays would take as much again
        for k, point in enumerate(zip(t.tolist(), u, strict=True)):
            matrices[k] = self._single.jacobian(*point, p)
        return matrices

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m]."""
        result = np.zeros((len(w), self._single.sizes[1]))
        if self._single.reads_p:
            for k, point in enumerate(zip(t.tolist(), u, strict=True)):
                # points add up, since all of them have the same p: mu = sum of f_p^T w
                result += self._single.pull(*point, p, w[:, k])
        return result

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for M rows."""
        single, n = self._single, u.shape[1]
        if not single.in_one:
            pull = partial(self.pull_parameters, t, u, p)
            return by_matrices(self.jacobian(t, u, p), pull, rows)
        both = None
        # as many points as unknowns or parameters could be taken for these
        if single.at_all and len(t) > FEW_POINTS and len(t) not in single.sizes:
            both = single.all_at_once(t, u, p)
            single.at_all = both is not None
        if both is not None:
            by_u, by_p = both[:, :, :n], both[:, :, n:]
        else:
            by_u, by_p = np.empty((*u.shape, n)), np.empty((*u.shape, single.sizes[1]))
            for k, point in enumerate(zip(t.tolist(), u, strict=True)):
                of_point = single.both(*point, p)
                by_u[k], by_p[k] = of_point[:, :n], of_point[:, n:]
        along = by_p.reshape(u.size, -1)
        # all rows and points at once: w [M, K n] times f_p [K n, m]
        return by_matrices(by_u, lambda w: w.reshape(len(w), -1) @ along, rows)

    def push_parameters(self, t: Array, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp at every point [D, K, n]."""
        result = np.zeros((len(dp), *u.shape))
        if self._single.reads_p:
            for k, point in enumerate(zip(t.tolist(), u, strict=True)):
                result[:, k] = self._single.push(*point, p, dp)
        return result

    def hessian_product(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w [D, K, n] and, summed over the points, f_p^T w."""
        return one_by_one(self._single, t, u, p, w, du, dp)


def one_by_one(
    single: SinglePoint, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
) -> tuple[Array, Array]:
    """Return what ``ManyHessians`` does by calling back for each point and direction."""
    by_u, by_p = np.empty(du.shape), np.zeros(dp.shape)
    for k, point in enumerate(zip(t.tolist(), u, strict=True)):
        by_u[:, k], row = single.hessian(*point, p, w[k], du[:, k], dp)
        by_p += row
    return by_u, by_p


def full(values: Any) -> Any:
    """Return a dense array where a callback gave a sparse matrix."""
    toarray = getattr(values, "toarray", None)  # SciPy's sparse arrays and matrices
    return values if toarray is None else toarray()
