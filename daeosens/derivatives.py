"""Missing derivatives of NumPy callbacks, by complex step: exact to rounding, or refused."""

from __future__ import annotations

import dis
import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.arrays import Array
from daeosens.errors import InputError
from daeosens.guards import guarded

STEP = 1e-40
"""Imaginary perturbation; so small that the truncation error of the complex step underflows."""


def differences(
    value: Callable[[float], npt.NDArray[Any]],
) -> Iterator[tuple[npt.NDArray[Any], float, float]]:
    """Yield slopes of ``value`` at 0 by differences, with the size of its values, and the step.

    Central ones first; those from one side are for equations that jump just there, as at the
    breakpoint where a step begins or ends.
    """
    for eps in (6e-6, 1e-7):
        above, below = value(eps), value(-eps)
        with np.errstate(invalid="ignore"):
            yield (above - below) / (2 * eps), float(np.abs(above).max(initial=0.0)), eps
    here = value(0.0)
    for eps in (6e-6, -6e-6):
        near, far = value(eps), value(2 * eps)
        with np.errstate(invalid="ignore"):
            size = float(np.abs(near).max(initial=0.0))
            yield (4.0 * near - far - 3.0 * here) / (2 * eps), 4.0 * size, abs(eps)


def ignores(function: Callable[..., Any], position: int) -> bool:
    """Whether a plain Python function never reads its argument of that number.

    Told from its compiled code, so a derivative is zero for certain, not by accident of a point.
    """
    return inspect.isfunction(function) and _never_names(function.__code__, position)


@cache
def _never_names(code: CodeType, position: int) -> bool:
    if position >= code.co_argcount or _SEES_ALL.intersection(code.co_names):
        return False
    name = code.co_varnames[position]
    if name in code.co_cellvars:
        return False
    read = (instruction.argval for instruction in dis.get_instructions(code))
    return not any(name == each or (isinstance(each, tuple) and name in each) for each in read)


_SEES_ALL = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"})
"""A function with one of these may read its arguments without naming them."""


class ComplexStep:
    """Jacobian of ``function`` in the argument number ``position``, column by column.

    d f / d x_j = Im f(x + i h e_j) / h with h = 1e-40.  The first use is compared with a central
    difference along one direction, because functions such as ``abs`` or ``real`` take complex
    numbers and silently lose the derivative.

    Parameters
    ----------
    function : callable
        ``function(*arguments) -> array [n]`` or a number.
    position : int
        Which argument is perturbed; a number or an array [m].
    name : str
        The callback's name in messages.
    remedy : str
        What the user can supply instead.

    Source
    ------
    Squire and Trapp, SIAM Review 40(1), 1998.

    Examples
    --------
    >>> import numpy as np
    >>> jacobian = ComplexStep(lambda x: np.array([x[0] * x[1]]), 0, "f", "jacobian=")
    >>> jacobian(np.array([2.0, 3.0]))
    array([[3., 2.]])
    """

    def __init__(self, function: Callable[..., Any], position: int, name: str, remedy: str) -> None:
        # its own communicator: one that refuses complex numbers does so on every rank
        self._function = guarded(function, name, PETSc.COMM_SELF)
        self._position = position
        self._name = name
        self._remedy = remedy
        self._trusted = False

    def __call__(self, *arguments: Any) -> Array:
        """Return the Jacobian [n, m] at the arguments; [n, 1] for a scalar argument.

        Raises
        ------
        InputError
            The callback cannot take complex numbers.
        """
        x = np.atleast_1d(np.asarray(arguments[self._position], dtype=float))
        if not self._trusted and x.size:
            self._compare(arguments, x)
            self._trusted = True
        return (
            np.column_stack([self._along(arguments, x, unit) for unit in np.eye(x.size)])
            if x.size
            else np.empty((np.size(self._function(*arguments)), 0))
        )

    def along(self, direction: npt.ArrayLike, *arguments: Any) -> Array:
        """Return the Jacobian times ``direction`` [m] at the cost of one evaluation."""
        x = np.atleast_1d(np.asarray(arguments[self._position], dtype=float))
        if not self._trusted and x.size:
            self._compare(arguments, x)
            self._trusted = True
        return self._along(arguments, x, np.atleast_1d(np.asarray(direction, dtype=float)))

    def _evaluate(self, arguments: tuple[Any, ...], x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        shape = np.shape(arguments[self._position])
        point = x.reshape(shape) if shape else x[0].item()
        changed = (*arguments[: self._position], point, *arguments[self._position + 1 :])
        return np.atleast_1d(np.asarray(self._function(*changed))).ravel()

    def _along(self, arguments: tuple[Any, ...], x: Array, direction: Array) -> Array:
        point = x + 1j * STEP * direction
        try:
            if self._trusted:
                values = self._evaluate(arguments, point)
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", np.exceptions.ComplexWarning)
                    values = self._evaluate(arguments, point)
        except (TypeError, np.exceptions.ComplexWarning) as error:
            self._evaluate(arguments, x)  # what real numbers fail with too is its own error
            raise self._refusal(str(error)) from error
        return np.imag(values) / STEP

    def _compare(self, arguments: tuple[Any, ...], x: Array) -> None:
        """Refuse what no difference confirms, moving components by parts of themselves.

        That is strict, and stays near values far below 1; the second, coarse comparison moves all
        components alike.  Smaller differences are for callbacks with a kink nearby.
        """
        signs = np.cos(1.0 + np.arange(x.size))
        size = float(np.abs(x).max())
        each = np.where(x == 0.0, size or 1.0, np.abs(x)) * signs
        alike = max(1.0, size) * signs
        for direction, tolerance in ((each, 1e-5), (alike, 0.1)):
            exact = self._along(arguments, x, direction)

            def value(eps: float, direction: Array = direction) -> npt.NDArray[Any]:
                return self._evaluate(arguments, x + eps * direction)

            for difference, size, eps in differences(value):
                with np.errstate(invalid="ignore"):
                    noise = 1e-14 * (1e-12 + size) / eps
                    limit = tolerance * (np.abs(exact) + np.abs(difference)) + noise
                    wrong = np.abs(difference - exact) > limit
                if not wrong.any():  # or not finite, which proves nothing
                    return
        raise self._refusal("its complex step disagrees with a central difference")

    def _refusal(self, reason: str) -> InputError:
        return InputError(
            f"callback '{self._name}' cannot take complex numbers: {reason}",
            expected="operations that are analytic (no abs, max with complex comparison, float(), "
            "math.*, nor arrays of floats that are filled in place)",
            remedy=self._remedy,
        )
