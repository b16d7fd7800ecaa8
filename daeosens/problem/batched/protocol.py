"""Derivatives of a serial problem at many points at once, for the sweeps in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from daeosens.petsc.vectors import Array
from daeosens.problem.batched.linearization import Linearization
from daeosens.problem.batched.pointwise import ArrayProducts, OneByOne, SinglePoint
from daeosens.problem.batched.vectorized import TakesMany
from daeosens.problem.matrices import Products


class Batch(Protocol):
    """The right-hand side of a serial problem at K points (t [K], u [K, n]), for one p [m]."""

    @property
    def at_once(self) -> bool:
        """Whether one call serves all points; otherwise they are evaluated one by one."""
        ...

    @property
    def rows_at_once(self) -> int | None:
        """How many rows of weights a sweep had better carry together; None: all it has."""
        ...

    @property
    def rhs_in_c(self) -> tuple[int, int] | None:
        """Addresses of f at one point and of its user data, where that is quick; None: not in C."""
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
        """Return f_u and f_p at the points, for at most M rows of weights."""
        ...

    def push_parameters(self, t: Array, u: Array, p: Array, dp: Array) -> Array:
        """Return f_p dp at every point [D, K, n], for D rows of directions dp [D, m]."""
        ...

    def hessian_product(
        self, t: Array, u: Array, p: Array, w: Array, du: Array, dp: Array
    ) -> tuple[Array, Array]:
        """Return the derivatives of f_u^T w and f_p^T w along D directions.

        Weights w [K, n], directions du [D, K, n] and dp [D, m].  The first [D, K, n] are at every
        point, the second [D, m] summed over the points.

        Raises
        ------
        UnsupportedError
            Second derivatives that are neither supplied nor to be had; names them.
        """
        ...


def make_batch(
    rhs: Callable[..., Any],
    jacobian: Callable[..., Any] | Products | str | None,
    jacobian_p: Callable[..., Any] | Products | None,
    hessian_product: Callable[..., Any] | None,
    products: ArrayProducts,
    sizes: tuple[int, int],
    *,
    batched: bool,
) -> Batch | None:
    """Return the evaluations of NumPy-style callbacks at many points.

    Parameters
    ----------
    rhs, jacobian, jacobian_p, hessian_product
        As given to ``ODE``; derivatives that are missing are automatic.
    products : callable
        Second derivatives at one point (``array_products``).
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
    >>> def products(t, u, p, w, du, dp):
    ...     return -dp * w, -du * w
    >>> callbacks = lambda t, u, p: -p[0] * u, None, None, None, products
    >>> decay = make_batch(*callbacks, (1, 1), batched=True)
    >>> t, u, p = np.array([0.0, 1.0]), np.array([[3.0], [2.0]]), np.array([0.5])
    >>> decay.jacobian(t, u, p).ravel(), decay.pull_parameters(t, u, p, np.ones((1, 2, 1)))
    (array([-0.5, -0.5]), array([[-5.]]))
    """
    if isinstance(jacobian, (Products, str)):
        return None
    single = SinglePoint(rhs, jacobian, jacobian_p, products, sizes)
    return TakesMany(single, hessian_product) if batched else OneByOne(single)
