"""Derivatives of a scalar of (t, u, p) at many points at once, from few evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens.costs.scalar_derivatives import ScalarDerivatives
from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import Differentiated
from daeosens.problem.batched.many_points import (
    FEW_POINTS,
    SMALL,
    hessians_at_points,
    slopes_at_points,
)
from daeosens.problem.problem import INDEPENDENT


class ScalarAtPoints:
    """A NumPy function (t, u, p) -> number whose derivatives are automatic, at K points.

    Parameters
    ----------
    function : Differentiated
    first : pair of callables
        Gradients in u and p at a single point; None for one that is zero.
    second : callable or None
        Derivatives of both along (du, dp) there; None where the user supplied them.
    sizes : tuple of int
        n and m.
    """

    def __init__(
        self,
        function: Differentiated,
        first: tuple[Callable[..., Any] | None, Callable[..., Any] | None],
        second: Callable[..., Any] | None,
        sizes: tuple[int, int],
    ) -> None:
        # None once it turns out that points go one after the other
        self._function: Differentiated | None = function
        self._first = first
        self._second = second
        self._sizes = sizes

    def gradients(self, t: Array, u: Array, p: Any) -> tuple[Array, Array] | None:
        """Return the gradients in u [K, n] and p [K, m] at t [K], u [K, n] and p [m].

        None where they are quicker one after the other, or cannot be had in another way.
        """
        n, m = self._sizes
        by_u, by_p = self._first
        columns = range(n if by_u is None else 0, n if by_p is None else n + m)
        function = self._of_many(u, p)
        if function is None:
            return None

        def at_one(k: int) -> Array:
            point = float(t[k]), u[k], p
            parts = [np.ravel(slope(*point)) for slope in (by_u, by_p) if slope is not None]
            return np.concatenate(parts)[None]

        slopes = slopes_at_points(function, (), (t, u, p), columns, at_one)
        if slopes is None:
            self._function = None
            return None
        gradients = np.zeros((len(u), n + m))
        gradients[:, columns] = slopes[:, 0]
        return gradients[:, :n], gradients[:, n:]

    def hessian_products(
        self, t: Array, u: Array, p: Any, du: Array, dp: Array
    ) -> tuple[Array, Array] | None:
        """Return the derivatives of the gradients along directions: [D, K, n] and [D, K, m].

        From few evaluations, or None, as of ``gradients``; du [D, K, n], dp [D, m].
        """
        function, second = self._of_many(u, p), self._second
        if function is None or second is None:
            return None

        def at_one(k: int) -> Array:
            point = float(t[k]), u[k], p
            along = zip(du[:, k], dp, strict=True)
            return np.array([np.concatenate(second(*point, *direction)) for direction in along])

        ones, directions = np.ones((len(u), 1)), (du, dp)
        products = hessians_at_points(function, (), (t, u, p), ones, directions, at_one)
        if products is None:
            self._function = None
            return None
        n, _ = self._sizes
        return products[..., :n], products[..., n:]

    def _of_many(self, u: Array, p: Any) -> Differentiated | None:
        """Return the function if points u [K, n] are to be evaluated together."""
        n, m = self._sizes
        many = len(u) >= FEW_POINTS and n * (n + m) <= SMALL and type(p) is np.ndarray
        return self._function if many else None


def scalar_at_points(
    derivatives: ScalarDerivatives,
    first: tuple[Callable[..., Any] | None, Callable[..., Any] | None],
    second: Callable[..., Any] | None,
) -> ScalarAtPoints | None:
    """Return what evaluates a scalar at many points at once, where its gradients are automatic.

    ``first`` are its gradients in u and p at a single point, ``second`` their derivatives.
    """
    supplied, problem = derivatives.supplied, derivatives.problem
    written = [slope for slope in (supplied.u, supplied.p) if slope not in (None, INDEPENDENT)]
    if not derivatives.automatic or written or first == (None, None):
        return None
    remedy = f"{derivatives.keywords.u}=callback"
    function = Differentiated(derivatives.function, derivatives.name, remedy)
    automatic = second if supplied.hessian is None else None
    return ScalarAtPoints(function, first, automatic, (problem.size, problem.n_parameters))
