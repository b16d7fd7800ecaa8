"""Forward-mode numbers: the gradient of a NumPy callback, carried through its arithmetic.

They are scalars, put into arrays of objects, whose entries NumPy's functions and operators call.
Value and slopes may be complex, so that a complex step through them gives mixed second derivatives
to rounding.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]


def _of_numbers(operation: Callable[[Jet, Any], Jet]) -> Callable[[Jet, Any], Any]:
    """Leave arrays to NumPy, which takes them entry by entry: ``p[0] * u``."""

    @wraps(operation)
    def call(self: Jet, other: Any) -> Any:
        return NotImplemented if isinstance(other, np.ndarray) else operation(self, other)

    return call


class Jet:
    """A number with its derivatives [k] along k directions; analytic operations only.

    Parameters
    ----------
    value : number
        Its value, real or complex.
    slopes : array [k]
        Its derivatives.

    Source
    ------
    Griewank and Walther, Evaluating Derivatives, SIAM 2008, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> x = Jet(2.0, np.array([1.0]))
    >>> (x * np.exp(x)).slopes.round(6)
    array([22.167168])
    """

    __slots__ = ("slopes", "value")

    def __init__(self, value: Any, slopes: Values) -> None:
        self.value = value
        self.slopes = slopes

    @_of_numbers
    def __add__(self, other: Any) -> Jet:
        if isinstance(other, Jet):
            return Jet(self.value + other.value, self.slopes + other.slopes)
        return Jet(self.value + other, self.slopes)

    __radd__ = __add__

    @_of_numbers
    def __sub__(self, other: Any) -> Jet:
        if isinstance(other, Jet):
            return Jet(self.value - other.value, self.slopes - other.slopes)
        return Jet(self.value - other, self.slopes)

    @_of_numbers
    def __rsub__(self, other: Any) -> Jet:
        return Jet(other - self.value, -self.slopes)

    @_of_numbers
    def __mul__(self, other: Any) -> Jet:
        if isinstance(other, Jet):
            slopes = self.value * other.slopes + other.value * self.slopes
            return Jet(self.value * other.value, slopes)
        return Jet(self.value * other, other * self.slopes)

    __rmul__ = __mul__

    @_of_numbers
    def __truediv__(self, other: Any) -> Jet:
        if isinstance(other, Jet):
            ratio = self.value / other.value
            return Jet(ratio, (self.slopes - ratio * other.slopes) / other.value)
        return Jet(self.value / other, self.slopes / other)

    @_of_numbers
    def __rtruediv__(self, other: Any) -> Jet:
        ratio = other / self.value
        return Jet(ratio, -ratio / self.value * self.slopes)

    @_of_numbers
    def __pow__(self, other: Any) -> Jet:
        if isinstance(other, Jet):
            return (self.log() * other).exp()
        if other == 0:
            return Jet(self.value**0, 0 * self.slopes)
        return Jet(self.value**other, other * self.value ** (other - 1) * self.slopes)

    @_of_numbers
    def __rpow__(self, other: Any) -> Jet:
        return (self * np.log(other)).exp()

    def __neg__(self) -> Jet:
        return Jet(-self.value, -self.slopes)

    def __pos__(self) -> Jet:
        return self

    def __abs__(self) -> Jet:
        raise TypeError("abs is not analytic")

    def __float__(self) -> float:
        raise TypeError(
            "float(), math.* or an entry of an array of a number that carries derivatives; "
            'np.array([...]) in place of assignments, daeosens.trace or hessian="gauss_newton" help'
        )

    # Comparisons decide branches, as for the values themselves.

    def __lt__(self, other: Any) -> bool:
        return _compare(operator.lt, self, other)

    def __le__(self, other: Any) -> bool:
        return _compare(operator.le, self, other)

    def __gt__(self, other: Any) -> bool:
        return _compare(operator.gt, self, other)

    def __ge__(self, other: Any) -> bool:
        return _compare(operator.ge, self, other)

    # Equal are numbers whose complex steps are: ``x == 0`` is no branch of a removable singularity.

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Jet) else other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return bool(self.value != 0)

    __hash__ = None  # type: ignore[assignment]

    @property
    def real(self) -> float:
        """The value as a plain number: what decides branches, as in ``t.real < 0.5``."""
        return float(np.real(self.value))

    # NumPy's functions call the methods of their name.

    def log(self) -> Jet:
        """Return the natural logarithm."""
        return Jet(np.log(self.value), self.slopes / self.value)

    def exp(self) -> Jet:
        """Return the exponential."""
        value = np.exp(self.value)
        return Jet(value, value * self.slopes)

    def __getattr__(self, name: str) -> Any:
        if name not in _SLOPES:
            raise AttributeError(f"no derivative of '{name}' is known")
        return lambda: Jet(getattr(np, name)(self.value), _SLOPES[name](self.value) * self.slopes)


def variables(values: Values, first: int, count: int) -> Values:
    """Return independent variables [n]: entry j has slope 1 in direction ``first`` + j.

    Parameters
    ----------
    values : array [n]
        Their values.
    first, count : int
        Number of the first one's direction, and of all directions.

    Returns
    -------
    array of Jet [n]
    """
    result = np.empty(len(values), dtype=object)
    for j, value in enumerate(values):
        slopes = np.zeros(count, dtype=complex)
        slopes[first + j] = 1.0
        result[j] = Jet(value, slopes)
    return result


def slopes_of(values: Any, count: int) -> Values:
    """Return the slopes [q, count] of what a callback made of variables; constants have none."""
    entries: Any = np.asarray(values, dtype=object).ravel()
    nothing = np.zeros(count, dtype=complex)
    rows = [each.slopes if isinstance(each, Jet) else nothing for each in entries]
    return np.array(rows, dtype=complex).reshape(len(rows), count)


def _compare(relation: Callable[[Any, Any], bool], jet: Jet, other: Any) -> bool:
    value = other.value if isinstance(other, Jet) else other
    return bool(relation(np.real(jet.value), np.real(value)))


_SLOPES: dict[str, Callable[[Any], Any]] = {
    "sin": np.cos,
    "cos": lambda x: -np.sin(x),
    "tan": lambda x: 1 / np.cos(x) ** 2,
    "sinh": np.cosh,
    "cosh": np.sinh,
    "tanh": lambda x: 1 / np.cosh(x) ** 2,
    "arcsin": lambda x: 1 / np.sqrt(1 - x * x),
    "arccos": lambda x: -1 / np.sqrt(1 - x * x),
    "arctan": lambda x: 1 / (1 + x * x),
    "arcsinh": lambda x: 1 / np.sqrt(1 + x * x),
    "arccosh": lambda x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    "arctanh": lambda x: 1 / (1 - x * x),
    "expm1": np.exp,
    "exp2": lambda x: np.log(2) * np.exp2(x),
    "log1p": lambda x: 1 / (1 + x),
    "log2": lambda x: 1 / (np.log(2) * x),
    "log10": lambda x: 1 / (np.log(10) * x),
    "sqrt": lambda x: 0.5 / np.sqrt(x),
}
