"""Derivatives of a serial problem at many points at once, for the sweeps in blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import Array, check_output, guarded
from daeosens.derivatives import STEP, ComplexStep, ignores
from daeosens.errors import InputError
from daeosens.linearization import Linearization, by_matrices
from daeosens.matrices import Products

TEMPORARY = 2**24
"""Bytes, at most, of the Jacobians in the parameters that are evaluated in one call."""

AGREES = 1e-9
"""Relative difference that rounding may make between one call for many points and one for each."""


class Batch(Protocol):
    """The right-hand side of a serial problem at K points (t [K], u [K, n]), for one p [m]."""

    @property
    def at_once(self) -> bool:
        """Whether one call serves all points; otherwise they are evaluated one by one."""
        ...

    def rhs(self, t: Array, u: Array, p: Array) -> Array:
        """Return f at every point [K, n]."""
        ...

    def jacobian(self, t: Array, u: Array, p: Array) -> Array:
        """Return f_u at every point [K, n, n]."""
        ...

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m], for M rows of weights w [M, K, n]."""
        ...

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for M rows."""
        ...


def make_batch(
    rhs: Callable[..., Any],
    jacobian: Callable[..., Any] | Products | str | None,
    jacobian_p: Callable[..., Any] | Products | None,
    sizes: tuple[int, int],
    *,
    batched: bool,
) -> Batch | None:
    """Return the evaluations of NumPy-style callbacks at many points.

    Parameters
    ----------
    rhs, jacobian, jacobian_p
        As given to ``ODE``; derivatives that are missing are found by complex step.
    sizes : (int, int)
        Numbers n of unknowns and m of parameters.
    batched : bool
        The callbacks take many points in one call.

    Returns
    -------
    Batch or None
        None where ``jacobian`` is given by products: there is no matrix.

    Examples
    --------
    >>> import numpy as np
    >>> decay = make_batch(lambda t, u, p: -p[0] * u, None, None, (1, 1), batched=True)
    >>> t, u, p = np.array([0.0, 1.0]), np.array([[3.0], [2.0]]), np.array([0.5])
    >>> decay.jacobian(t, u, p).ravel(), decay.pull_parameters(t, u, p, np.ones((1, 2, 1)))
    (array([-0.5, -0.5]), array([[-5.]]))
    """
    if isinstance(jacobian, (Products, str)):
        return None
    single = SinglePoint(rhs, jacobian, jacobian_p, sizes)
    return TakesMany(single) if batched else OneByOne(single)


class SinglePoint:
    """The callbacks at one point, checked; complex step fills what is missing."""

    def __init__(
        self,
        rhs: Callable[..., Any],
        jacobian: Callable[..., Any] | None,
        jacobian_p: Callable[..., Any] | Products | None,
        sizes: tuple[int, int],
    ) -> None:
        comm = PETSc.COMM_SELF
        self.sizes = sizes
        self.rhs = guarded(rhs, "rhs", comm)
        self.given_u, self.given_p = jacobian, jacobian_p
        self.by_u = (
            ComplexStep(rhs, 1, "rhs", "jacobian=callback")
            if jacobian is None
            else guarded(jacobian, "jacobian", comm)
        )
        self.reads_p = jacobian_p is not None or not ignores(rhs, 2)
        self.reads_p = self.reads_p and sizes[1] > 0
        self.by_p: Callable[..., Any] | Products
        if isinstance(jacobian_p, Products):
            self.by_p = Products(
                guarded(jacobian_p.apply, "jacobian_p.apply", comm),
                guarded(jacobian_p.apply_transpose, "jacobian_p.apply_transpose", comm),
            )
        elif jacobian_p is None:
            self.by_p = ComplexStep(rhs, 2, "rhs", "jacobian_p=callback")
        else:
            self.by_p = guarded(jacobian_p, "jacobian_p", comm)

    def rate(self, t: float, u: Array, p: Array) -> Array:
        """Return f [n]."""
        return check_output(self.rhs(t, u, p), "rhs", self.sizes[:1], t)

    def jacobian(self, t: float, u: Array, p: Array) -> Array:
        """Return f_u [n, n]."""
        n = self.sizes[0]
        return check_output(_full(self.by_u(t, u, p)), "jacobian", (n, n), t)

    def pull(self, t: float, u: Array, p: Array, w: Array) -> Array:
        """Return f_p^T w [M, m] for rows of weights w [M, n]."""
        if isinstance(self.by_p, Products):
            name, m = "jacobian_p.apply_transpose", self.sizes[1]
            rows = [self.by_p.apply_transpose(t, u, p, row) for row in w]
            return np.array([check_output(row, name, (m,), t) for row in rows])
        return w @ check_output(_full(self.by_p(t, u, p)), "jacobian_p", self.sizes, t)

    def push(self, t: float, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp [n]."""
        if isinstance(self.by_p, Products):
            return np.asarray(self.by_p.apply(t, u, p, dp))
        if isinstance(self.by_p, ComplexStep):
            return self.by_p.along(dp, t, u, p)
        return np.asarray(self.by_p(t, u, p) @ dp)


class OneByOne:
    """Evaluations at many points by calling back for each of them."""

    at_once = False

    def __init__(self, single: SinglePoint) -> None:
        self._single = single

    def rhs(self, t: Array, u: Array, p: Array) -> Array:
        """Return f at every point [K, n]."""
        return np.array([self._single.rate(*point, p) for point in zip(t.tolist(), u, strict=True)])

    def jacobian(self, t: Array, u: Array, p: Array) -> Array:
        """Return f_u at every point [K, n, n]."""
        points = zip(t.tolist(), u, strict=True)
        return np.array([self._single.jacobian(*point, p) for point in points])

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m]."""
        result = np.zeros((len(w), self._single.sizes[1]))
        if self._single.reads_p:
            for k, point in enumerate(zip(t.tolist(), u, strict=True)):
                result += self._single.pull(*point, p, w[:, k])
        return result

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for M rows."""
        pull = partial(self.pull_parameters, t, u, p)
        return by_matrices(self.jacobian(t, u, p), pull, rows)


class TakesMany:
    """Evaluations by callbacks that take many points in one call.

    Each is compared with evaluations at single points the first time that it sees several.
    """

    at_once = True

    def __init__(self, single: SinglePoint) -> None:
        self._single = single
        self._trusted: set[str] = set()

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
            moved = np.repeat(u, n, axis=0) + 1j * STEP * np.tile(np.eye(n), (count, 1))
            rates = self._complex_rates(np.repeat(t, n), moved, p)
            values = np.ascontiguousarray(rates.reshape(count, n, n).transpose(0, 2, 1))
        self._compare("jacobian", values, single.jacobian, t, u, p)
        return values

    def pull_parameters(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        """Return the sum over the points of f_p^T w [M, m]."""
        if not self._single.reads_p:
            return np.zeros((len(w), self._single.sizes[1]))
        if "jacobian_p" not in self._trusted:
            self._compare_sum(t, u, p)
        return self._pull(t, u, p, w)

    def linearize(self, t: Array, u: Array, p: Array, rows: int) -> Linearization:
        """Return f_u and f_p at the points, for M rows."""
        pull = partial(self.pull_parameters, t, u, p)
        return by_matrices(self.jacobian(t, u, p), pull, rows)

    def _pull(self, t: Array, u: Array, p: Array, w: Array) -> Array:
        single, (count, n), rows = self._single, u.shape, len(w)
        m = single.sizes[1]
        if isinstance(single.by_p, Products):
            values = single.by_p.apply_transpose(t, u, p, w)
            return check_output(values, "jacobian_p.apply_transpose", (rows, m), t[0])
        if single.given_p is None:
            flat = w.reshape(rows, -1)
            moves = 1j * STEP * np.eye(m)
            columns = [flat @ self._complex_rates(t, u, p + move).ravel() for move in moves]
            return np.stack(columns, axis=1)
        result = np.zeros((rows, m))
        several = max(1, TEMPORARY // (8 * n * m))
        for k in range(0, count, several):
            part = slice(k, k + several)
            matrix = single.by_p(t[part], u[part], p)
            expected = (len(u[part]), n, m)
            matrix = check_output(matrix, "jacobian_p", expected, t[k]).reshape(-1, m)
            result += w[:, part].reshape(rows, -1) @ matrix
        return result

    def _complex_rates(self, t: Array, u: npt.NDArray[Any], p: npt.NDArray[Any]) -> Array:
        values = check_output(self._single.rhs(t, u, p), "rhs", u.shape, t[0], real=False)
        return np.imag(values) / STEP

    def _compare(
        self, name: str, values: Array, one: Callable[..., Array], t: Array, u: Array, p: Array
    ) -> None:
        """Refuse values at many points that are not those at single points."""
        if name in self._trusted:
            return
        for k in _some(len(t)):
            self._judge(name, values[k], one(float(t[k]), u[k], p), f"point {k} of {len(t)}")
        if len(t) > 1:
            self._trusted.add(name)

    def _compare_sum(self, t: Array, u: Array, p: Array) -> None:
        """Refuse a sum over points that does not agree along a direction in the parameters."""
        some, single = _some(len(t)), self._single
        dp = np.cos(1.0 + np.arange(p.size))
        w = np.sin(1.0 + np.arange(2.0 * len(some) * u.shape[1])).reshape(2, len(some), -1)
        rates = np.array([single.push(float(t[k]), u[k], p, dp) for k in some])
        given = self._pull(t[some], u[some], p, w) @ dp
        by_products = isinstance(single.given_p, Products)
        name = "jacobian_p.apply_transpose" if by_products else "jacobian_p"
        scale = float(np.abs(w * rates).sum())
        self._judge(name, given, (w * rates).sum((1, 2)), f"a sum over {len(some)} points", scale)
        if len(t) > 1:
            self._trusted.add("jacobian_p")

    def _judge(self, name: str, many: Array, one: Array, where: str, scale: float = 0.0) -> None:
        scale = max(scale, *(float(np.abs(each).max(initial=0.0)) for each in (many, one)))
        worst = np.unravel_index(int(np.abs(many - one).argmax()), one.shape) if one.size else ()
        if one.size and not abs(many[worst] - one[worst]) <= AGREES * scale:
            entry = [int(i) for i in worst]
            raise InputError(
                f"callback '{name}' gives {many[worst]:.9g} in entry {entry} of {where}, "
                f"and {one[worst]:.9g} at single points",
                expected="the same, as batched=True promises",
                remedy="u[..., i] for components, t[..., None] times vectors; or batched=False",
            )


def _some(count: int) -> list[int]:
    """Return the numbers of the first, the middle and the last point."""
    return sorted({0, count // 2, count - 1})


def _full(values: Any) -> Any:
    toarray = getattr(values, "toarray", None)  # SciPy's sparse arrays and matrices
    return values if toarray is None else toarray()
