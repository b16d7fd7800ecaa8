"""Controls as functions of time: bases whose coefficients are parameters.

A control is a sum of B-splines: piecewise constant (degree 0), piecewise linear (degree 1), or
smooth.  What is optimised are its coefficients, not one number a time step, so the answer does not
depend on the steps::

    speed = PiecewiseConstant(np.linspace(0.0, 1.0, 11))
    problem = ODE(
        lambda t, u, p: np.array([speed(t, p)]),
        size=1,
        parameters=speed.names("v"),
        breakpoints=speed.breakpoints,
    )
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from daeosens.errors import InputError, is_real, warn, whole_number
from daeosens.petsc.vectors import MOST, Array, as_float, finite_array
from daeosens.problem.clock import Clock, Knots
from daeosens.problem.derivative_arrays import PointArray, as_array, note_whole, primal
from daeosens.problem.time_formulas import Switch

FARTHEST = 1e100
"""Polynomials overflow at later times."""


@dataclass(frozen=True)
class Spline:
    """A control made of B-splines: ``control(t, coefficients)``.

    Degree 0 is right-continuous, and at the last knot has the value to the left of it.  Beyond the
    first and the last knot the outer pieces are continued, which warns unless they are constant,
    though not in functions that are traced.

    Parameters
    ----------
    knots : array_like [K + 1]
        Increasing times between which the control is a polynomial [time unit].
    degree : int
        Of the pieces; K + degree coefficients a component.  Degree d has d - 1 continuous
        derivatives at the knots inside.
    components : int
        Controls at once; the coefficients of the first one come first.

    Raises
    ------
    InputError
        Knots that are not increasing, fewer than two of them, a negative degree, no component.

    Source
    ------
    de Boor, A Practical Guide to Splines, 2001, chapter IX (recurrence relation).

    Examples
    --------
    >>> ramp = Spline([0.0, 1.0, 2.0], degree=1)
    >>> ramp.size, float(ramp(0.5, [0.0, 4.0, 3.0]))
    (3, 2.0)
    """

    knots: Any
    degree: int = 3
    components: int = 1

    def __post_init__(self) -> None:
        knots = finite_array(self.knots, "knots")
        if knots.ndim != 1 or knots.size < 2:
            raise InputError(f"knots have shape {knots.shape}", expected="shape (K + 1,), K >= 1")
        if (np.diff(knots) <= 0).any():
            k = int(np.argmax(np.diff(knots) <= 0))
            raise InputError(
                f"knots are not increasing: {knots[k]:g} is followed by {knots[k + 1]:g}",
                expected="strictly increasing times",
            )
        for name, least in (("degree", 0), ("components", 1)):
            number: Any = getattr(self, name)
            object.__setattr__(self, name, whole_number(number, name, least=least, most=MOST))
        object.__setattr__(self, "knots", tuple(knots.tolist()))

    @property
    def size(self) -> int:
        """Number of coefficients of all components."""
        return self._count * self.components

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Knots inside, where some derivative jumps: for ``ODE(breakpoints=...)``."""
        return self.knots[1:-1]

    def names(self, *controls: str) -> tuple[str, ...]:
        """Return names for the coefficients as parameters: ``names("v")`` is ("v0", "v1", ...).

        Raises
        ------
        InputError
            Not one name for each component.
        """
        if len(controls) != self.components:
            raise InputError(
                f"{len(controls)} names for {self.components} components",
                expected="one name for each component",
            )
        return tuple(f"{name}{k}" for name in controls for k in range(self._count))

    def __call__(self, t: Any, coefficients: npt.ArrayLike) -> Any:
        """Return the control at ``t``: a number, or an array [components] if there are several.

        Both may carry derivatives, and functions that call it can be traced.

        Raises
        ------
        InputError
            Coefficients of another number.
        """
        # a symbol of trace, which lies in a higher layer, or the times of many points
        if isinstance(t, NDArrayOperatorsMixin) or type(t) is PointArray:
            return self._recorded(t, coefficients)
        try:
            values: Any = as_array(coefficients)
        except (ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"coefficients = {coefficients!r}", expected="numbers") from error
        if type(values) is np.ndarray and values.dtype.kind not in "biufc":
            raise InputError(f"coefficients = {coefficients!r}", expected="numbers")
        self._check(values.shape)
        first, weights = self._weights(t)
        used = values.reshape(self.components, -1)[:, first : first + len(weights)]
        used = used @ as_array(weights)
        return used[0] if self.components == 1 else used

    def gradient(self, t: float) -> Array:
        """Return the derivative in the coefficients: [size], or [components, size] for several.

        Examples
        --------
        >>> Spline([0.0, 1.0, 2.0], degree=1).gradient(0.25)
        array([0.75, 0.25, 0.  ])
        """
        if not is_real(t):
            raise InputError(f"t = {t!r}", expected="a time, one finite number")
        first, weights = self._weights(t)
        component = np.zeros(self._count)
        component[first : first + len(weights)] = weights
        if self.components == 1:
            return component
        several: Any = np.kron(np.eye(self.components), component)
        return several

    @property
    def _count(self) -> int:
        return len(self.knots) - 1 + self.degree

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """The times that it is meant for, but for rounding and differences in time."""
        # differences in time go a little beyond the end of a run
        near = 1e-4 * (self.knots[-1] - self.knots[0])
        return self.knots[0] - near, self.knots[-1] + near

    @cached_property
    def _repeated(self) -> tuple[float, ...]:
        """The knots with both ends repeated ``degree`` times more."""
        return self.degree * self.knots[:1] + self.knots + self.degree * self.knots[-1:]

    def _weights(self, t: Any) -> tuple[int, list[Any]]:
        """Return the number of the first B-spline that is not zero at ``t``, and their values."""
        time: Any = primal(t)
        time = time if type(time) is float else _one_number(time)
        if not abs(time) < FARTHEST:
            raise InputError(f"t = {t!r}", expected="a time, one finite number")
        first, last = self._ends
        if not first <= time <= last and self.degree:
            warn(
                f"a control is asked for beyond its knots, {self.knots[0]:g} to "
                f"{self.knots[-1]:g}, where it goes on as the polynomial of its last piece\n"
                "  try: knots over the whole time span",
                UserWarning,
            )
        # by the value of t: the piece is constant between knots, and derivatives in t are those
        # inside it
        piece = min(max(bisect_right(self.knots, time) - 1, 0), len(self.knots) - 2)
        if time is not t and self.degree < 2:  # a time that varies passes jumps and kinks
            note_whole(piece)
        if isinstance(t, Clock) and t.formula is not None:
            t.noted.knots.append(Knots(Switch(t.formula, np.array(self.breakpoints)), self.size))
            if self.degree == 1:  # one of many rows of data is a table
                np.interp(t, self.knots, np.arange(len(self.knots)) % 2)
        return piece, self._recurrence(t, self._repeated[piece + 1 : piece + 1 + 2 * self.degree])

    def _recurrence(self, t: Any, near: Any) -> list[Any]:
        """Return the B-splines that are not zero at ``t`` from the 2 degree knots around it."""
        weights: list[Any] = [1.0]
        for degree in range(1, self.degree + 1):
            raised: list[Any] = [0.0] * (degree + 1)
            for k, weight in enumerate(weights):
                # B_k,d = (t - t_k)/(t_k+d - t_k) B_k,d-1 + (t_k+d+1 - t)/(t_k+d+1 - t_k+1)
                # B_k+1,d-1: what one spline of lower degree gives to its two neighbours
                left, right = near[self.degree - degree + k], near[self.degree + k]
                share = weight / (right - left)
                raised[k] += (right - t) * share
                raised[k + 1] += (t - left) * share
            weights = raised
        return weights

    def _recorded(self, t: Any, coefficients: Any) -> Any:
        """Return the control at a time that is not known yet, or at those of many points.

        The piece is chosen by comparisons.

        ``here`` [K] is 1 for the piece that t is in, and 0 for the others.
        """
        flat: Any = coefficients[:]  # of parameters by name their vector
        if isinstance(flat, (list, tuple)):
            flat = np.asarray(coefficients)
        self._check(np.shape(flat))
        passed = np.where(t >= np.array(self.breakpoints), 1.0, 0.0)
        # knots passed so far, minus those shifted by one: only the last one passed is left
        here: Any = np.concatenate([[1.0], passed]) - np.concatenate([passed, [0.0]])
        pieces = np.arange(len(self.knots) - 1)[:, None]
        around = np.array(self._repeated)[pieces + 1 + np.arange(2 * self.degree)]
        weights: Any = np.ones(1)
        if self.degree:
            weights = np.stack(self._recurrence(t, here @ around))
        places = pieces + np.arange(self.degree + 1)
        used = [(here @ flat[k * self._count + places]) @ weights for k in range(self.components)]
        return used[0] if self.components == 1 else np.stack(used)

    def _check(self, shape: tuple[int, ...]) -> None:
        if shape != (self.size,):
            raise InputError(f"coefficients have shape {shape}", expected=f"({self.size},)")


def _one_number(time: Any) -> float:
    """Return the real part of a time; NaN of what is none."""
    value: Any = time
    if time is np.ma.masked:
        return math.nan
    if getattr(time, "shape", None) == () and hasattr(time, "item"):
        value = time.item()
    if isinstance(value, complex):
        return value.real
    return as_float(value) if is_real(value) else math.nan


def PiecewiseConstant(breaks: npt.ArrayLike, components: int = 1) -> Spline:  # noqa: N802
    """Return a control that is constant on K intervals: coefficient k holds on [b_k, b_k+1).

    Parameters
    ----------
    breaks : array_like [K + 1]
        Ends of the intervals [time unit].
    components : int
        Controls at once.

    Examples
    --------
    >>> heading = PiecewiseConstant([0.0, 0.5, 1.0])
    >>> [float(heading(t, [3.0, 7.0])) for t in (0.0, 0.4, 0.5, 1.0)]
    [3.0, 3.0, 7.0, 7.0]
    """
    return Spline(breaks, 0, components)


def PiecewiseLinear(knots: npt.ArrayLike, components: int = 1) -> Spline:  # noqa: N802
    """Return a continuous control that is linear between knots: coefficient k is the value at k.

    Parameters
    ----------
    knots : array_like [K + 1]
        Times of the values [time unit].
    components : int
        Controls at once.

    Examples
    --------
    >>> heading = PiecewiseLinear([0.0, 1.0], components=2)
    >>> heading(0.5, [0.0, 1.0, 5.0, 7.0])
    array([0.5, 6. ])
    """
    return Spline(knots, 1, components)
