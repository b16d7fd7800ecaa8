"""Arrays that carry derivatives through NumPy, and what is made of one."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false, reportPrivateUsage=false
from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from daeosens.petsc._kernels import DerivativeNumber, entry, install, together, value_of_number
from daeosens.petsc._kernels.derivative_numbers import BRANCHES
from daeosens.problem.derivative_arrays.callback_at_work import (
    AT_WORK,
    DerivativeLostError,
    of_users,
)
from daeosens.problem.derivative_arrays.points import PointArray, at_points, stacked
from daeosens.problem.derivative_arrays.recorded_slopes import RecordedSlopes, stacked_slopes
from daeosens.problem.printed_text import is_printed

Value: TypeAlias = Any
"""An array or a number; within a ``DerivativeArray`` of second order one of first order."""

UFUNCS: dict[str, Callable[..., Any]] = {}
"""By the name of a ufunc: ``rule(ufunc, *inputs)``."""

METHODS: dict[tuple[str, str], Callable[..., Any]] = {}
"""By the name of a ufunc and of its method ("add", "reduce"): the function that does the same."""

FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""By NumPy's function: the one with the same arguments for arrays that carry derivatives."""

FILL = "np.zeros(n) called inside the callback, np.zeros_like(u), or np.array([...])"


_ARRAY, _ASARRAY = np.array, np.asarray


class Fillable:
    """An array that a callback made, and may fill (``fresh_arrays``)."""

    __slots__ = ()

    def now(self) -> Any:
        """Return an array that carries derivatives if it has become one, else NumPy's."""
        raise NotImplementedError

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError


class DerivativeArray:
    """An array [...] with its derivatives [..., K] along K directions.

    Parameters
    ----------
    value : array or number [...]
        Its value.
    slopes : array [..., K]
        Its derivatives; the same kind of array as the value.

    Source
    ------
    Griewank and Walther, Evaluating Derivatives, SIAM 2008, sections 3.1 and 13.2.

    Examples
    --------
    >>> import numpy as np
    >>> x = DerivativeArray(np.array([3.0, 4.0]), np.eye(2))
    >>> np.hypot(x[0], x[1]).slopes
    array([0.6, 0.8])
    """

    __slots__ = ("slopes", "value")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000.0

    def __init__(self, value: Value, slopes: Value) -> None:
        self.value = value
        self.slopes = slopes

    # -- what an array is asked for

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        shape: tuple[int, ...] = self.value.shape
        return shape

    @property
    def ndim(self) -> int:
        """As of an array."""
        return len(self.value.shape)

    @property
    def size(self) -> int:
        """As of an array."""
        return math.prod(self.value.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its values."""
        dtype: np.dtype[Any] = primal(self).dtype
        return dtype

    @property
    def T(self) -> DerivativeArray:  # noqa: N802 (as of an array)
        """As of an array."""
        return np.transpose(self)  # type: ignore[call-overload, no-any-return]

    @property
    def real(self) -> DerivativeArray:
        """The real part, with its derivatives."""
        return DerivativeArray(self.value.real, self.slopes.real)

    @property
    def imag(self) -> DerivativeArray:
        """The imaginary part, with its derivatives."""
        return DerivativeArray(self.value.imag, self.slopes.imag)

    @property
    def flat(self) -> DerivativeArray:
        """The entries one after the other."""
        return self.reshape(-1)

    def __len__(self) -> int:
        """As of an array."""
        if not self.value.shape:
            raise TypeError("len() of unsized object")
        return int(self.value.shape[0])

    def __iter__(self) -> Iterator[Any]:
        """As of an array."""
        return iter([self[k] for k in range(len(self))])

    def __repr__(self) -> str:
        """Return the values, as what they are; for people only."""
        refuse_text(self, sys._getframe(1))
        return f"DerivativeArray({primal(self)})"

    def __format__(self, code: str) -> str:
        """Return the value as text, for people only."""
        refuse_text(self, sys._getframe(1))
        value = primal(self)
        return format(value if np.ndim(value) else value[()], code)

    def __getitem__(self, key: Any) -> DerivativeArray:
        """Return entries; a view where it would be one of an array."""
        if type(key) is int:
            # numbers of one direction's worth are Python objects, which are quicker than arrays of
            # no axes
            number = entry(self, key)
            if number is not None:
                return number  # type: ignore[return-value]
            value = self.value[key]
            slopes = self.slopes[key]
            # a number stays what it was when the array changes
            return DerivativeArray(value, slopes if value.shape else slopes.copy())
        key, for_slopes = keys(key)
        value = self.value[key]
        slopes = self.slopes[for_slopes]
        return DerivativeArray(value, slopes if value.shape else slopes.copy())

    def __setitem__(self, key: Any, assigned: Any) -> None:
        """Assign values together with their slopes."""
        assigned = admitted(assigned)
        if (
            type(key) is int
            and type(assigned) is DerivativeArray
            and type(assigned.value) is _DOUBLE
        ):
            self.value[key] = assigned.value
            self.slopes[key] = assigned.slopes
            return
        key, for_slopes = keys(key)
        value, slopes = (assigned.value, assigned.slopes) if _varies(assigned) else (assigned, 0.0)
        if np.iscomplexobj(primal(value)) and not np.iscomplexobj(primal(self)):
            raise DerivativeLostError(
                "assigning complex numbers to an array of real ones",
                "dtype=complex where it is made",
            )
        if not self.value.shape:  # a number: there is no memory to write to
            self.value, self.slopes = value + 0.0 * self.value, slopes + 0.0 * self.slopes
            return
        self.value[key] = value
        self.slopes[for_slopes] = slopes

    def __getattr__(self, name: str) -> Any:
        """Refuse what is not known; NumPy looks for its protocols here."""
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(f"'DerivativeArray' object has no attribute '{name}'")
        raise DerivativeLostError(f"the attribute '.{name}' of an array")

    def copy(self, order: str = "C") -> DerivativeArray:
        """As of an array."""
        del order
        return DerivativeArray(self.value.copy(), self.slopes.copy())

    def __copy__(self) -> DerivativeArray:
        return self.copy()

    def __deepcopy__(self, _memo: Any) -> DerivativeArray:
        return self.copy()

    def astype(self, dtype: Any, *_arguments: Any, **_options: Any) -> Any:
        """As of an array; whole numbers are constant between jumps and have no slopes."""
        kind = np.dtype(dtype)
        if kind.kind in "iub":
            return primal(self).astype(kind)
        if kind == np.float64 and self.dtype.kind == "c":
            raise DerivativeLostError("a complex number as a real one", "its .real")
        if kind.kind not in "fc" or kind.itemsize < 8:
            raise DerivativeLostError(f"astype({kind})", "astype(float)")
        return DerivativeArray(self.value.astype(kind), self.slopes.astype(kind))

    def reshape(self, *shape: Any, order: Any = "C") -> DerivativeArray:
        """As of an array."""
        target: Any = shape[0] if len(shape) == 1 else shape
        return np.reshape(self, target, order=order)  # type: ignore[call-overload, no-any-return]

    def transpose(self, *axes: Any) -> DerivativeArray:
        """As of an array."""
        order: Any = (axes[0] if len(axes) == 1 else axes) or None
        return np.transpose(self, order)  # type: ignore[call-overload, no-any-return]

    def flatten(self, order: Any = "C") -> DerivativeArray:
        """As of an array."""
        return self.reshape(-1, order=order).copy()

    def tolist(self) -> Any:
        """Return the entries, which keep their derivatives."""
        return [element.tolist() for element in self] if self.shape else self

    def item(self, *place: Any) -> DerivativeArray:
        """Return one entry, which keeps its derivatives."""
        if not place:
            if self.size != 1:
                raise ValueError("can only convert an array of size 1 to a Python scalar")
            return self.reshape(-1)[0]
        if len(place) == 1 and not isinstance(place[0], tuple):
            return self.reshape(-1)[place[0]]
        return self[place[0] if len(place) == 1 else place]

    def fill(self, number: Any) -> None:
        """As of an array."""
        self[...] = number

    # -- numbers of Python: whole ones are constant between jumps, others would lose the slopes

    def __float__(self) -> float:
        """Return a value that does not vary."""
        if _nothing(self):
            return float(primal(self))
        raise DerivativeLostError(
            "a float made of a number that carries derivatives (float(), an entry of an array of "
            "floats, or a function that is not NumPy's)",
            f"leave float() out, and for an array to be filled: {FILL}",
        )

    def __complex__(self) -> complex:
        """Return a value that does not vary."""
        if _nothing(self):
            return complex(primal(self))
        raise DerivativeLostError("complex()", "x + 0j")

    def __int__(self) -> int:
        """Return the whole part, which is constant between jumps."""
        return note_whole(int(primal(self)))  # type: ignore[no-any-return]

    __trunc__ = __int__

    def __floor__(self) -> int:
        """Return the whole number below, which is constant between jumps."""
        return note_whole(math.floor(primal(self)))  # type: ignore[no-any-return]

    def __ceil__(self) -> int:
        """Return the whole number above, which is constant between jumps."""
        return note_whole(math.ceil(primal(self)))  # type: ignore[no-any-return]

    def __round__(self, digits: int | None = None) -> Any:
        """Return the rounded value, which is constant between jumps."""
        refuse_decimals(self, digits)
        return note_whole(round(primal(self), digits))

    def __bool__(self) -> bool:
        """Return whether it is not zero."""
        return bool(self != 0)

    # -- comparisons: branches go by the values

    def __lt__(self, other: Any) -> Any:
        note_branch(self, other)
        return primal(self) < primal(other)

    def __le__(self, other: Any) -> Any:
        note_branch(self, other)
        return primal(self) <= primal(other)

    def __gt__(self, other: Any) -> Any:
        note_branch(self, other)
        return primal(self) > primal(other)

    def __ge__(self, other: Any) -> Any:
        note_branch(self, other)
        return primal(self) >= primal(other)

    def __eq__(self, other: object) -> Any:
        return equal(self, other)

    def __ne__(self, other: object) -> Any:
        return ~np.asarray(equal(self, other))[()]

    def __contains__(self, number: Any) -> bool:
        return bool(np.any(self == number))

    # -- arithmetic, for numbers and arrays of one shape at once; the rest goes through the ufuncs

    def __add__(self, other: Any) -> Any:
        kind = type(other)
        if kind is DerivativeArray:
            if self.value.shape == other.value.shape:
                return DerivativeArray(self.value + other.value, self.slopes + other.slopes)
        elif kind is float or kind is int or kind is _DOUBLE:
            slopes = self.slopes
            return DerivativeArray(
                self.value + other, slopes.copy() if self.value.shape else slopes
            )
        return _operate(np.add, self, other)

    def __radd__(self, other: Any) -> Any:
        if type(other) in _SCALARS:
            return self + other
        return _operate(np.add, other, self)

    def __sub__(self, other: Any) -> Any:
        kind = type(other)
        if kind is DerivativeArray:
            if self.value.shape == other.value.shape:
                return DerivativeArray(self.value - other.value, self.slopes - other.slopes)
        elif kind is float or kind is int or kind is _DOUBLE:
            slopes = self.slopes
            return DerivativeArray(
                self.value - other, slopes.copy() if self.value.shape else slopes
            )
        return _operate(np.subtract, self, other)

    def __rsub__(self, other: Any) -> Any:
        if type(other) in _SCALARS:
            return DerivativeArray(other - self.value, -self.slopes)
        return _operate(np.subtract, other, self)

    def __mul__(self, other: Any) -> Any:
        kind = type(other)
        value = self.value
        if kind is DerivativeArray:
            factor = other.value
            if value.shape == factor.shape:
                if value.shape:
                    # product rule: (x y)' = x y' + y x', with one axis more for the directions
                    slopes = value[..., None] * other.slopes + factor[..., None] * self.slopes
                else:
                    slopes = value * other.slopes + factor * self.slopes
                return DerivativeArray(value * factor, slopes)
        elif kind is float or kind is int or kind is _DOUBLE:
            return DerivativeArray(value * other, self.slopes * other)
        return _operate(np.multiply, self, other)

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and other == 2:
            value = self.value
            weight = 2.0 * value
            slopes = self.slopes * (weight[..., None] if value.shape else weight)
            return DerivativeArray(value * value, slopes)
        return _operate(np.power, self, other)

    def __rmul__(self, other: Any) -> Any:
        if type(other) in _SCALARS:
            return DerivativeArray(self.value * other, self.slopes * other)
        return _operate(np.multiply, other, self)

    def __truediv__(self, other: Any) -> Any:
        if type(other) in _SCALARS:
            return DerivativeArray(np.true_divide(self.value, other), self.slopes / other)
        return _operate(np.divide, self, other)

    def __neg__(self) -> DerivativeArray:
        return DerivativeArray(-self.value, -self.slopes)

    def __pos__(self) -> DerivativeArray:
        return self.copy()

    # -- NumPy's protocols

    def __array_ufunc__(
        self,
        ufunc: np.ufunc,
        method: str,
        *inputs: Any,
        out: tuple[Any, ...] | None = None,
        where: Any = True,
        **options: Any,
    ) -> Any:
        """Evaluate a ufunc by its rule."""
        if method == "__call__" and out is None and not options and where is True:
            # numbers of NumPy on the left come here: p[0] * u[0]
            if len(inputs) == 2 and type(inputs[0]) is _DOUBLE and ufunc in _REFLECTED:
                return _REFLECTED[ufunc](inputs[1], inputs[0])
            if len(inputs) == 1:
                rule = UFUNCS.get(ufunc.__name__)
                if rule is not None:
                    return rule(ufunc, *inputs)
        inputs = tuple([admitted(operand) for operand in inputs])
        if method != "__call__":
            # np.add.reduce is np.sum, np.add.accumulate np.cumsum, and so on
            function = METHODS.get((ufunc.__name__, method))
            if function is None:
                raise DerivativeLostError(f"np.{ufunc.__name__}.{method}")
            if out is not None:
                (options["out"],) = out
            if where is not True:
                options["where"] = where
            return function(*inputs, **options)
        rule = UFUNCS.get(ufunc.__name__)
        if rule is None:
            raise DerivativeLostError(f"'{ufunc.__name__}' (a function of arrays)")
        # less than double precision would round slopes away
        dtype = options.get("dtype")
        if dtype is not None and np.dtype(dtype).char not in "dD":
            raise DerivativeLostError(f"np.{ufunc.__name__} with dtype={dtype}", "dtype=float")
        if out is None and where is True:
            return rule(ufunc, *inputs)
        if out is None:
            raise DerivativeLostError(
                f"np.{ufunc.__name__} with where= and no out=", "out=np.zeros_like(u)"
            )
        results = rule(ufunc, *inputs)
        target, *others = out
        if others:
            raise DerivativeLostError(f"np.{ufunc.__name__} with several out=")
        return put_into(target, results, where)

    def __array_function__(
        self,
        function: Callable[..., Any],
        _types: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        """Evaluate one of NumPy's other functions by its rule."""
        # no rule, no derivative: NumPy's own function would go on with values alone
        rule = FUNCTIONS.get(function)
        if rule is None:
            module = function.__module__.replace("numpy", "np", 1)
            raise DerivativeLostError(f"{module}.{function.__name__}")
        out: Any = options.pop("out", None)
        arguments = tuple([admitted(argument) for argument in arguments])
        options = {name: admitted(option) for name, option in options.items()}
        result = rule(*arguments, **options)
        return result if out is None else put_into(out, result)


def _operate(ufunc: np.ufunc, left: Any, right: Any) -> Any:
    # SciPy's matrices have their own operators, which Python asks next
    if sparse.issparse(left) or sparse.issparse(right):
        return NotImplemented
    left, right = admitted(left), admitted(right)
    if not isinstance(left, _NUMBERS) or not isinstance(right, _NUMBERS):
        return NotImplemented
    return UFUNCS[ufunc.__name__](ufunc, left, right)


_NUMBERS = (
    DerivativeArray,
    DerivativeNumber,
    PointArray,
    np.ndarray,
    np.generic,
    float,
    int,
    complex,
    list,
    tuple,
)


_DOUBLE = np.float64
_SCALARS = frozenset({float, int, _DOUBLE})
_REFLECTED: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.add: DerivativeArray.__radd__,
    np.subtract: DerivativeArray.__rsub__,
    np.multiply: DerivativeArray.__rmul__,
}


def _whole(value: float, slopes: Any, change: float, mixed: Any) -> DerivativeArray:
    """Return a number as an array of no axes."""
    if mixed is None:
        return DerivativeArray(_DOUBLE(value), slopes)
    inner = DerivativeArray(_DOUBLE(value), np.array([change]))
    return DerivativeArray(inner, DerivativeArray(slopes, mixed[:, None]))


install(
    _whole,
    _operate,
    DerivativeArray.__array_ufunc__,
    DerivativeArray.__array_function__,
)


def keys(key: Any) -> tuple[Any, Any]:
    """Return an index for the value, and for the slopes, whose last axis stays whole."""
    if isinstance(key, tuple):
        # an Ellipsis takes the rest of all axes, so the slopes' own axis has to be named after it
        key = tuple([_index(index) for index in key])
        return key, ((*key, slice(None)) if any(index is Ellipsis for index in key) else key)
    if key is Ellipsis:
        return key, (Ellipsis, slice(None))
    key = _index(key)
    return key, key


def _index(key: Any) -> Any:
    if isinstance(key, (DerivativeArray, DerivativeNumber, Fillable)):
        key = admitted(key)
        if isinstance(key, DerivativeArray):
            raise DerivativeLostError("an index that varies", "int(...), np.rint(...).astype(int)")
    if isinstance(key, np.ndarray) and key.dtype == object:
        raise DerivativeLostError("an index that varies", "int(...), np.rint(...).astype(int)")
    return key


def _binary(ufunc: np.ufunc) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    def forward(self: Any, other: Any) -> Any:
        return _operate(ufunc, self, other)

    def backward(self: Any, other: Any) -> Any:
        return _operate(ufunc, other, self)

    def in_place(self: Any, other: Any) -> Any:
        result = _operate(ufunc, self, other)
        if result is NotImplemented or not self.shape:
            return result
        self[...] = result
        return self

    return forward, backward, in_place


for _name, _ufunc in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "pow": np.power,
    "mod": np.remainder,
    "floordiv": np.floor_divide,
    "matmul": np.matmul,
}.items():
    for _prefix, _method in zip(("", "r", "i"), _binary(_ufunc), strict=True):
        _dunder = f"__{_prefix}{_name}__"
        if _dunder not in vars(DerivativeArray):
            setattr(DerivativeArray, _dunder, _method)

_ABS = np.absolute
DerivativeArray.__abs__ = lambda self: UFUNCS["absolute"](_ABS, self)  # type: ignore[attr-defined]
DerivativeArray.__divmod__ = lambda self, other: (self // other, self % other)  # type: ignore[attr-defined]


def _matmul_with_sparse(ufunc_method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: DerivativeArray, other: Any) -> Any:
        if sparse.issparse(other):  # x @ A = A^T @ x
            matrix: Any = other
            return sparse_times(matrix.T, self)
        return ufunc_method(self, other)

    return call


DerivativeArray.__matmul__ = _matmul_with_sparse(DerivativeArray.__matmul__)  # type: ignore[attr-defined]


def sparse_times(matrix: Any, x: DerivativeArray) -> DerivativeArray:
    """Return a constant SciPy matrix times x [n] or [n, q]."""
    slopes = x.slopes
    if isinstance(slopes, DerivativeArray):
        # slopes of slopes: SciPy multiplies two axes at most, so directions become columns
        flat = sparse_times(matrix, slopes.reshape(slopes.shape[0], -1))
        moved = flat.reshape(matrix.shape[0], *slopes.shape[1:])
        return DerivativeArray(sparse_times(matrix, x.value), moved)
    moved = (matrix @ slopes.reshape(len(slopes), -1)).reshape(matrix.shape[0], *slopes.shape[1:])
    return DerivativeArray(matrix @ x.value, moved)


# -- branches


def note_branch(x: Any, y: Any = 0.0) -> None:
    """Note a comparison of x with y, where somebody asks for them (``branches``)."""
    if BRANCHES:
        # the difference, not the comparison's result: how far from the kink a point is, is known
        # then
        x, y = primal(x), primal(y)
        if type(x) is PointArray or type(y) is PointArray:
            BRANCHES[-1].append(np.subtract(x, y).reshape(-1))
        else:
            BRANCHES[-1].append(np.ravel(np.subtract(x, y, dtype=float)))


DENOMINATORS: list[list[Any]] = []
"""What is divided by at the points of evaluations, for each that asks."""


def note_denominator(y: Any) -> None:
    """Note what is divided by, where somebody asks for it (``denominators``)."""
    if DENOMINATORS:
        DENOMINATORS[-1].append(primal(y))


class Whole(NamedTuple):
    """Whole numbers [B] that decide themselves: a place in a table, or what floor returns."""

    numbers: Any


def note_whole(numbers: Any) -> Any:
    """Note whole numbers made of what varies, where somebody asks for them; return them."""
    if BRANCHES:
        several = type(numbers) is PointArray
        flat = numbers.reshape(-1) if several else np.ravel(np.asarray(numbers, dtype=float))
        BRANCHES[-1].append(Whole(flat))
    return numbers


# -- what is constant, and what varies


def primal(x: Any) -> Any:
    """Return the values without derivatives."""
    if type(x) is DerivativeNumber:
        return np.float64(value_of_number(x))
    if isinstance(x, Fillable):
        x = x.now()
    while type(x) is DerivativeArray:
        x = x.value
    return x


def _varies(x: Any) -> bool:
    return type(x) is DerivativeArray


def _is_nested(x: DerivativeArray) -> bool:
    """Whether a value has slopes itself: an array, or a number as entries of arrays have it."""
    return isinstance(x.value, (DerivativeArray, DerivativeNumber))


def _nothing(x: DerivativeArray) -> bool:
    """Whether all slopes are zero, of the value's slopes too."""
    if _is_nested(x):
        return _nothing(x.value) and not np.any(primal(x.slopes)) and _nothing(x.slopes)
    return not np.any(x.slopes)


def moving(x: Any) -> Any:
    """Return where [...] a number has any slope that is not zero."""
    x = admitted(x)
    if type(x) is not DerivativeArray:
        return np.zeros(np.shape(x), dtype=bool)
    if _is_nested(x):
        slopes = x.slopes
        return moving(x.value) | (moving(slopes) | (primal(slopes) != 0)).any(axis=-1)
    return (x.slopes != 0).any(axis=-1)


def refuse_text(x: Any, frame: FrameType) -> None:
    """Refuse text of a number that varies: what is read from it, or kept by it, has no slopes.

    What is printed, logged, raised, or made by a library (as by a debugger) is for people.
    """
    if type(x) is not DerivativeArray or not AT_WORK or not of_users(frame) or _nothing(x):
        return
    if is_printed(frame):
        return
    raise DerivativeLostError(
        "text of a number that carries derivatives, outside of print, a logger, warn or raise,",
        "the number itself in the place of its text; text in the call that prints it",
    )


def refuse_decimals(x: Any, decimals: Any) -> None:
    """Refuse rounding to decimals, which is to tidy a number, and makes it constant."""
    if decimals and decimals > 0 and not _nothing(x):
        raise DerivativeLostError(
            f"rounding to {decimals} decimals", "the number itself, or np.rint for steps"
        )


def equal(x: Any, y: Any) -> Any:
    """Return where x == y; refuse that of numbers that vary.

    The branch of one point says nothing of the derivative there: ``1.0 if x == 0 else sin(x) / x``.
    """
    # values may be equal by accident, and slopes differ: then the branch taken has another
    # derivative
    same = np.equal(primal(x), primal(y))
    if np.any(same) and np.any(same & (moving(x) | moving(y)) & _apart(x, y)):
        raise DerivativeLostError(
            "== between numbers that vary and are equal (or a number as a truth value, at zero), "
            "whose branch holds at one point only,",
            ">= or <= for a side, np.rint(u[0]) == 1 for a flag",
        )
    return same


def _apart(x: Any, y: Any) -> Any:
    """Return where x - y has a slope that is not zero."""
    return moving(x - y)


def admitted(x: Any) -> Any:
    """Return what a function is given as arrays: fresh ones as they are now, lists joined."""
    kind = type(x)
    if kind is DerivativeArray or kind is float or kind is int or kind is _DOUBLE:
        return x
    if kind is DerivativeNumber:
        return x.whole()
    if isinstance(x, Fillable):
        return x.now()
    if (kind is list or kind is tuple) and _has_derivatives(x):
        return [admitted(element) for element in x]
    if isinstance(x, np.ndarray) and x.dtype == object:
        # NumPy puts what it does not know into arrays of objects: taken apart, and joined again
        whole = joined(x.tolist()) if x.shape else admitted(x.item())
        return whole if type(whole) is DerivativeArray else x
    return x


def _has_derivatives(x: Any) -> bool:
    for element in x:
        kind = type(element)
        if kind is DerivativeArray or isinstance(element, Fillable) or kind is DerivativeNumber:
            return True
        if (kind is list or kind is tuple) and _has_derivatives(element):
            return True
        if kind is np.ndarray and element.dtype == object:
            return True
    return False


def joined(things: Any) -> DerivativeArray | None:
    """Return a list of numbers, arrays and lists as one array; None if nothing in it varies."""
    # np.array([a, b, c]) of single numbers is what most callbacks return: joined in one pass
    numbers = together(things) if type(things) is list else None
    if numbers is not None:
        value, slope, changes, mixed = numbers
        if changes is None:
            return DerivativeArray(value, slope)
        return DerivativeArray(DerivativeArray(value, changes), DerivativeArray(slope, mixed))
    parts: list[Any] = []
    values: Any
    slopes: Any
    varying: DerivativeArray | None = None
    for thing in things:
        kind = type(thing)
        if kind is DerivativeNumber:
            thing = thing.whole()  # noqa: PLW2901
        if type(thing) is DerivativeArray:
            varying = thing
            parts.append(thing)
            continue
        if kind is list or kind is tuple:
            whole = joined(thing)
            thing = thing if whole is None else whole  # noqa: PLW2901
        elif isinstance(thing, Fillable) or kind is np.ndarray:
            thing = admitted(thing)  # noqa: PLW2901
        if type(thing) is DerivativeArray:
            varying = thing
        parts.append(thing)
    if varying is None:
        # times of all points: such arrays can be filled with numbers that vary, as NumPy's can
        differ = any(type(part) is PointArray for part in parts)
        return constant(stacked(parts)) if differ else None
    # constants between numbers that vary have slopes of zero
    count = varying.slopes.shape[-1]
    values, slopes = [], []
    nothing = np.zeros(count)
    for part in parts:
        if type(part) is DerivativeArray:
            values.append(part.value)
            slopes.append(part.slopes)
        else:
            values.append(part)
            shape = np.shape(part)
            slopes.append(np.zeros((*shape, count)) if shape else nothing)
    if _is_nested(varying):
        value, slope = joined(values), joined(slopes)
        assert value is not None
        assert slope is not None
        return DerivativeArray(value, slope)
    if type(varying.slopes) is PointArray:
        return DerivativeArray(stacked(values), stacked(slopes))
    if type(varying.slopes) is RecordedSlopes:
        whole = stacked(values) if AT_WORK[-1].points else _ARRAY(values)
        return DerivativeArray(whole, stacked_slopes(slopes))
    return DerivativeArray(_ARRAY(values), _ARRAY(slopes))


def as_array(x: Any) -> Any:
    """Return lists as arrays, with derivatives where they have some."""
    if isinstance(x, (list, tuple)):
        whole = joined(x)
        return _ARRAY(x) if whole is None else whole
    x = admitted(x)
    if type(x) is DerivativeArray or type(x) is PointArray:
        return x
    if sparse.issparse(x):
        matrix: Any = x
        return as_array(matrix.toarray())
    return _ASARRAY(x)


def put_into(target: Any, result: Any, where: Any = True) -> Any:
    """Assign a result to what was given as ``out=``."""
    if isinstance(target, Fillable) or type(target) is DerivativeArray:
        if where is True:
            target[...] = result
        else:
            target[...] = FUNCTIONS[np.where](where, result, admitted(target))
        return target
    if type(admitted(result)) is DerivativeArray:
        raise DerivativeLostError(
            "writing into an array of floats (out=, or an operation in place)", FILL
        )
    np.copyto(target, result, where=where)
    return target


def constant(value: Any) -> DerivativeArray:
    """Return an array with slopes of zero, for the callback at work."""
    record = AT_WORK[-1].record
    if record is not None:
        return DerivativeArray(held(value, ()), record.slopes((*np.shape(value), 1)))
    return held(value, AT_WORK[-1].directions)


def held(value: Any, directions: tuple[int, ...]) -> Any:
    """Return an array with slopes of zero along directions, the outermost level first."""
    if not directions:
        return at_points(value) if AT_WORK and AT_WORK[-1].points else value
    count, *inner = directions
    slopes = np.zeros((*np.shape(value), count), dtype=complex if np.iscomplexobj(value) else float)
    return DerivativeArray(held(value, tuple(inner)), held(slopes, tuple(inner)))


# -- methods that are functions of NumPy


def _array_method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def call(self: DerivativeArray, *arguments: Any, **options: Any) -> Any:
        return FUNCTIONS[function](self, *arguments, **options)

    return call


for _name in (
    *("sum", "mean", "var", "std", "prod", "cumsum", "cumprod", "max", "min", "ptp", "argmax"),
    *("argmin", "argsort", "nonzero", "any", "all", "round", "clip", "dot", "ravel", "squeeze"),
    *("swapaxes", "repeat", "take", "diagonal", "trace", "compress", "searchsorted"),
):
    setattr(DerivativeArray, _name, _array_method(_name))
