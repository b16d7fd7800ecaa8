"""Missing second derivatives of NumPy callbacks: products w^T f_xy d, exact to rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import Arguments, Differentiated, seeded
from daeosens.problem.coloring import Directions
from daeosens.problem.derivative_arrays import (
    DerivativeArray,
    as_array,
    primal,
)


class AutomaticHessian:
    """w^T f_xy d for a NumPy callback, from its first derivatives or from the callback itself.

    A first derivative that the user supplied is evaluated with arguments that vary along d.  Where
    it is missing, or has no derivative, the callback is, with arguments whose values and slopes
    vary along d.

    Parameters
    ----------
    function : callable
        ``function(*arguments) -> array [q]`` or a number.
    first : mapping of int to callable, Products or None
        For each argument of interest its position and its first derivative [q, size].
    name, remedy : str
        The callback's name in messages, and what the user can supply instead.

    Source
    ------
    Griewank and Walther, Evaluating Derivatives, SIAM 2008, section 13.2 (truncated Taylor
    polynomials of second order).

    Examples
    --------
    >>> import numpy as np
    >>> product = AutomaticHessian(lambda x: np.array([x[0] ** 3]), {0: None}, "f", "")
    >>> product((np.array([2.0]),), np.array([1.0]), {0: np.array([1.0])})[0]
    array([12.])
    """

    def __init__(
        self,
        function: Callable[..., Any],
        first: Mapping[int, Any],
        name: str,
        remedy: str,
    ) -> None:
        self._evaluate = Differentiated(function, name, remedy, second=True)
        self._first = {
            position: None
            if derivative is None
            else Differentiated(_transposed(derivative), name, remedy)
            for position, derivative in first.items()
        }
        self._directions: dict[int, Directions] = {}

    def __call__(
        self, point: Arguments, w: Array, direction: Mapping[int, Array]
    ) -> dict[int, Array]:
        """Return for each argument the derivative of f_x^T w along ``direction`` [size].

        Raises
        ------
        UnsupportedError
            The callback cannot be differentiated.
        """
        result: dict[int, Array] = {}
        for position, first in list(self._first.items()):
            if first is not None:
                try:
                    # the user's f_x as a function that is differentiated once: cheaper, and exact
                    # where f is not
                    result[position] = self._along(first, point, w, direction)
                except InputError:
                    # its Jacobian cannot be differentiated: from here on the function itself, twice
                    self._first[position] = None
        missing = [position for position in self._first if position not in result]
        if missing:
            result |= self._twice(missing, point, w, direction)
        return {position: result[position] for position in self._first}

    def _along(
        self, first: Differentiated, point: Arguments, w: Array, direction: Mapping[int, Array]
    ) -> Array:
        """Return the derivative of first(*point)^T w along the direction."""
        varying = [
            seeded(x, direction[k].reshape(-1, 1)) if k in direction else x
            for k, x in enumerate(point)
        ]
        slopes: Array = first((*varying, w), (*point, w), (1,)).slopes
        return slopes[..., 0].reshape(-1)

    def _twice(
        self,
        positions: Sequence[int],
        point: Arguments,
        w: Array,
        direction: Mapping[int, Array],
    ) -> dict[int, Array]:
        w = np.reshape(w, -1)
        result: dict[int, Array] = {}
        while not result:
            seeds = self._seeds(positions, point)
            # nested directions: slopes along the seeds, and how they change along d
            first, second = self._slopes(seeds, point, direction)
            start = 0
            for position in sorted(positions):
                columns = slice(start, start := start + seeds[position].shape[1])
                x = np.reshape(point[position], -1).astype(float)
                product = self._directions[position].product(
                    x, first[:, columns], second[:, columns], w
                )
                if product is None:  # an entry is missing: all columns, once
                    result.clear()
                    break
                result[position] = product
        return result

    def _seeds(self, positions: Sequence[int], point: Arguments) -> dict[int, Array]:
        """Return directions [size, K] of each argument by its position."""
        seeds: dict[int, Array] = {}
        for position in positions:
            x = np.reshape(point[position], -1).astype(float)
            known = self._directions.setdefault(position, Directions(x.size))
            seeds[position] = known.seeds(x)
        return seeds

    def _slopes(
        self, seeds: Mapping[int, Array], point: Arguments, direction: Mapping[int, Array]
    ) -> tuple[Array, Array]:
        """Return derivatives [q, K] along all seeds, and their change along a direction."""
        count = sum(along.shape[1] for along in seeds.values())
        varying: list[Any] = list(point)
        start = 0
        for k, x in enumerate(point):
            if k not in seeds and k not in direction:
                continue
            size = np.size(x)
            slopes = np.zeros((size, count))
            if k in seeds:
                end = start + seeds[k].shape[1]
                slopes[:, start:end] = seeds[k]
                start = end
            along = direction[k] if k in direction else np.zeros(size)
            value = seeded(x, np.reshape(along, (-1, 1)))
            slopes = slopes if value.shape else slopes[0]
            varying[k] = DerivativeArray(
                value, DerivativeArray(slopes, np.zeros((*slopes.shape, 1)))
            )
        values = self._evaluate(varying, point, (count, 1)).slopes
        return (
            np.reshape(primal(values), (-1, count)),
            np.reshape(values.slopes[..., 0], (-1, count)),
        )


def _transposed(derivative: Any) -> Callable[..., Any]:
    """Return the product of a first derivative, as the user gave it, with w from the left."""
    apply_transpose = getattr(derivative, "apply_transpose", None)
    if apply_transpose is not None:
        return apply_transpose  # type: ignore[no-any-return]

    def product(*arguments: Any) -> Any:
        *point, w = arguments
        matrix = derivative(*point)
        if not hasattr(matrix, "T"):
            matrix = as_array(matrix)
        return matrix.T @ w

    return product


def in_time(
    function: Callable[..., Any], first: Mapping[int, Any], name: str, remedy: str
) -> AutomaticHessian:
    """Return second derivatives of ``function(t, ...)`` with the time among its arguments.

    ``first`` may hold words for derivatives that are no callbacks.
    """
    known = {
        k: derivative if callable(derivative) or hasattr(derivative, "apply_transpose") else None
        for k, derivative in first.items()
    }
    by_t = known.get(0)
    if by_t is not None:
        known[0] = lambda *point: _column(by_t(*point))
    return AutomaticHessian(function, known, name, remedy)


def _column(values: Any) -> Any:
    return np.reshape(values, (-1, 1))
