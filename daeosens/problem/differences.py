"""Derivatives by differences, for who asks for them by name: ``jacobian="differences"``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import ignores

DIFFERENCES = "differences"
"""In the place of a callback for a first derivative: central differences of the function."""

STEP = float(np.finfo(float).eps ** (1.0 / 3.0))
"""Relative to each variable: rounding and the third derivative weigh the same."""


class DifferencedJacobian:
    """Central differences of ``function`` in the argument number ``position``.

    Each variable is moved by ``STEP`` of its own size, or, where it is zero, of the largest of its
    argument.  Where the function is not finite on one side, the derivative is that of a parabola on
    the other.  Errors are about 1e-10 of what the function is made of.

    Parameters
    ----------
    function : callable
        ``function(*arguments) -> array [n]``.
    position : int
        Which argument is varied; a number or an array [m].

    Source
    ------
    Nocedal and Wright, Numerical Optimization, Springer 2006, section 8.1.

    Examples
    --------
    >>> import numpy as np
    >>> jacobian = DifferencedJacobian(lambda x: np.array([x[0] ** 2, x[0] * x[1]]), 0)
    >>> jacobian(np.array([2.0, 3.0])).round(8)
    array([[4., 0.],
           [3., 2.]])
    """

    def __init__(self, function: Callable[..., Any], position: int) -> None:
        self._function, self._position = function, position

    def __call__(self, *arguments: Any) -> Array:
        """Return the derivative [n, m] at the arguments; [n] in a number."""
        x = np.asarray(arguments[self._position], dtype=float)
        flat = x.reshape(-1)
        steps = STEP * (np.abs(flat) if flat.all() else _sizes(flat))
        columns: list[Array] = []
        for j, h in enumerate(steps.tolist()):
            columns.append(self._column(arguments, x, j, h))
        if not x.shape:
            return columns[0]
        return np.array(columns).T if columns else np.empty((self._value(arguments, x).size, 0))

    def _column(self, arguments: tuple[Any, ...], x: Array, j: int, h: float) -> Array:
        def moved(steps: float) -> Array:
            shifted = x.copy()
            shifted.reshape(-1)[j] += steps * h
            return self._value(arguments, shifted)

        with np.errstate(all="ignore"):
            ahead, behind = moved(1.0), moved(-1.0)
            # what was added is h but for rounding
            place = x.reshape(-1)[j]
            column = (ahead - behind) / ((place + h) - (place - h))
            if np.isfinite(column).all():
                return column
            middle = moved(0.0)
            for side, near in ((1.0, ahead), (-1.0, behind)):
                parabola = (4.0 * near - 3.0 * middle - moved(2.0 * side)) / (2.0 * side * h)
                column = np.where(np.isfinite(column), column, parabola)
        return column

    def _value(self, arguments: tuple[Any, ...], x: Array) -> Array:
        point: list[Any] = [y.copy() if isinstance(y, np.ndarray) else y for y in arguments]
        point[self._position] = x if x.shape else float(x)
        # a callback may fill the same array at every point
        return np.array(self._function(*point), dtype=float).reshape(-1)


def _sizes(x: Array) -> Array:
    """Return the sizes of numbers; for zeros that of the largest, or 1."""
    return np.where(x == 0.0, float(np.abs(x).max(initial=0.0)) or 1.0, np.abs(x))


def is_by_differences(derivative: Any) -> bool:
    """Return whether a derivative is one by differences."""
    return isinstance(derivative, DifferencedJacobian)


def admit_differences(
    style: str, function: Callable[..., Any], first: Mapping[str, tuple[int, Any]]
) -> dict[str, Any]:
    """Return first derivatives with differences for those that ask for them by name.

    If that in the state does, those that are missing are differences too: a callback that cannot be
    differentiated in one argument cannot be in another.

    Parameters
    ----------
    style : "numpy" or "petsc"
        Of the callback.
    function : callable
        What is differentiated.
    first : mapping of str to (int, callable or str or None)
        By their keywords: the position of the argument, and what was given.

    Raises
    ------
    InputError
        PETSc style.
    """
    asked = [
        word
        for word, (_, derivative) in first.items()
        if isinstance(derivative, str) and derivative == DIFFERENCES
    ]
    if asked and style != "numpy":
        raise InputError(
            f'{asked[0]} = "{DIFFERENCES}" for a callback of PETSc style',
            expected="a callback that returns arrays (size=n in place of state=)",
            remedy=f"{asked[0]}=callback",
        )
    whole = "jacobian" in asked
    return {
        word: DifferencedJacobian(function, position)
        if word in asked or (whole and derivative is None and not ignores(function, position))
        else derivative
        for word, (position, derivative) in first.items()
    }
