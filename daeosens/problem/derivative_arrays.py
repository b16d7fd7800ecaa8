"""Arrays that carry derivatives through NumPy: what missing derivatives of callbacks come from.

A ``DerivativeArray`` is a value [...] with its slopes [..., K] along K directions (forward-mode
automatic differentiation).  Values and slopes may be such arrays themselves, with one direction
more: that gives second derivatives along it.  The rules of NumPy's functions stand in
``derivative_functions``.

It is no subclass of ``ndarray``, so nothing in C can take its value and leave the slopes behind:
what would drop them raises ``DerivativeLostError``, which names the line.
"""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false, reportPrivateUsage=false
from __future__ import annotations

import linecache
import math
import operator
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse, special

from daeosens.petsc._kernels import DerivativeNumber, entry, install, together, value_of_number
from daeosens.petsc._kernels.derivative_numbers import BRANCHES
from daeosens.problem.printed_text import is_printed

Value: TypeAlias = Any
"""An array or a number; within a ``DerivativeArray`` of second order one of first order."""

UFUNCS: dict[str, Callable[..., Any]] = {}
"""By the name of a ufunc: ``rule(ufunc, *inputs)``."""

METHODS: dict[tuple[str, str], Callable[..., Any]] = {}
"""By the name of a ufunc and of its method ("add", "reduce"): the function that does the same."""

FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""By NumPy's function: the one with the same arguments for arrays that carry derivatives."""

FILL = "np.zeros(n) called inside the callback as np.zeros, np.zeros_like(u), or np.array([...])"


class DerivativeLostError(TypeError):
    """Something would have gone on with values and without their derivatives.

    Parameters
    ----------
    what : str
        The operation.
    remedy : str, optional
        Another spelling.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = what
        self.remedy = remedy
        self.line = line_of(users_frame(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]
        super().__init__(f"{what} has no derivative{f', {self.line}' if self.line else ''}")


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
    >>> import daeosens.problem.derivative_functions  # the rules
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
            number = entry(self, key)
            if number is not None:
                return number  # type: ignore[return-value]
            value = self.value[key]
            slopes = self.slopes[key]
            # a number stays what it was when the array changes
            return DerivativeArray(value, slopes if value.shape else slopes.copy())
        key, for_slopes = _keys(key)
        value = self.value[key]
        slopes = self.slopes[for_slopes]
        return DerivativeArray(value, slopes if value.shape else slopes.copy())

    def __setitem__(self, key: Any, given: Any) -> None:
        """Assign values together with their slopes."""
        given = admitted(given)
        key, for_slopes = _keys(key)
        value, slopes = (given.value, given.slopes) if _varies(given) else (given, 0.0)
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
        return [each.tolist() for each in self] if self.shape else self

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
            f"leave float() out, math.* as math.sin(...), and for an array to be filled: {FILL}",
        )

    def __complex__(self) -> complex:
        """Return a value that does not vary."""
        if _nothing(self):
            return complex(primal(self))
        raise DerivativeLostError("complex()", "x + 0j")

    def __int__(self) -> int:
        """Return the whole part, which is constant between jumps."""
        return int(primal(self))

    __trunc__ = __int__

    def __floor__(self) -> int:
        """Return the whole number below, which is constant between jumps."""
        return math.floor(primal(self))

    def __ceil__(self) -> int:
        """Return the whole number above, which is constant between jumps."""
        return math.ceil(primal(self))

    def __round__(self, digits: int | None = None) -> Any:
        """Return the rounded value, which is constant between jumps."""
        refuse_decimals(self, digits)
        return round(primal(self), digits)

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
        inputs = tuple([admitted(each) for each in inputs])
        if method != "__call__":
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
        rule = FUNCTIONS.get(function)
        if rule is None:
            module = function.__module__.replace("numpy", "np", 1)
            raise DerivativeLostError(f"{module}.{function.__name__}")
        out: Any = options.pop("out", None)
        arguments = tuple([admitted(each) for each in arguments])
        options = {name: admitted(each) for name, each in options.items()}
        result = rule(*arguments, **options)
        return result if out is None else put_into(out, result)


def _operate(ufunc: np.ufunc, left: Any, right: Any) -> Any:
    if sparse.issparse(left) or sparse.issparse(right):
        return NotImplemented
    left, right = admitted(left), admitted(right)
    if not isinstance(left, _NUMBERS) or not isinstance(right, _NUMBERS):
        return NotImplemented
    return UFUNCS[ufunc.__name__](ufunc, left, right)


_NUMBERS = (
    DerivativeArray,
    DerivativeNumber,
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


def _keys(key: Any) -> tuple[Any, Any]:
    """Return an index for the value, and for the slopes, whose last axis stays whole."""
    if isinstance(key, tuple):
        key = tuple([_index(each) for each in key])
        return key, ((*key, slice(None)) if any(each is Ellipsis for each in key) else key)
    if key is Ellipsis:
        return key, (Ellipsis, slice(None))
    key = _index(key)
    return key, key


def _index(key: Any) -> Any:
    if isinstance(key, (DerivativeArray, DerivativeNumber, FreshArray)):
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
        flat = sparse_times(matrix, slopes.reshape(slopes.shape[0], -1))
        moved = flat.reshape(matrix.shape[0], *slopes.shape[1:])
        return DerivativeArray(sparse_times(matrix, x.value), moved)
    moved = (matrix @ slopes.reshape(len(slopes), -1)).reshape(matrix.shape[0], *slopes.shape[1:])
    return DerivativeArray(matrix @ x.value, moved)


# -- branches

_BRANCHES: list[list[Any]] = BRANCHES  # entries compare themselves, in C


def note_branch(x: Any, y: Any = 0.0) -> None:
    """Note a comparison of x with y, where somebody asks for them (``branches``)."""
    if _BRANCHES:
        _BRANCHES[-1].append(np.ravel(np.subtract(primal(x), primal(y), dtype=float)))


def branches(function: Callable[..., Any], arguments: Sequence[Any], home: str = "") -> Any:
    """Return the differences [B] whose signs decide how a callback goes on, in the order met.

    Parameters
    ----------
    function : callable
        The callback.
    arguments : sequence
        Of it; those that vary as arrays with slopes along one direction.
    home : str
        As for ``evaluate``.
    """
    _BRANCHES.append([])
    try:
        evaluate(function, arguments, (1,), home)
    finally:
        noted = _BRANCHES.pop()
    return np.concatenate(noted) if noted else np.empty(0)


# -- what is constant, and what varies


def primal(x: Any) -> Any:
    """Return the values without derivatives."""
    if type(x) is DerivativeNumber:
        return np.float64(value_of_number(x))
    if type(x) is FreshArray:
        x = x.now()
    while type(x) is DerivativeArray:
        x = x.value
    return x


def _varies(x: Any) -> bool:
    return type(x) is DerivativeArray


def _nothing(x: DerivativeArray) -> bool:
    """Whether all slopes are zero, of the value's slopes too."""
    if isinstance(x.value, DerivativeArray):
        return _nothing(x.value) and not np.any(primal(x.slopes)) and _nothing(x.slopes)
    return not np.any(x.slopes)


def moving(x: Any) -> Any:
    """Return where [...] a number has any slope that is not zero."""
    x = admitted(x)
    if type(x) is not DerivativeArray:
        return np.zeros(np.shape(x), dtype=bool)
    if isinstance(x.value, DerivativeArray):
        slopes = x.slopes
        return moving(x.value) | (moving(slopes) | (primal(slopes) != 0)).any(axis=-1)
    return (x.slopes != 0).any(axis=-1)


def refuse_text(x: Any, frame: FrameType) -> None:
    """Refuse text of a number that varies: what is read from it, or kept by it, has no slopes.

    What is printed, logged, raised, or made by a library (as by a debugger) is for people.
    """
    if type(x) is not DerivativeArray or not _THREAD or not _users(frame) or _nothing(x):
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
    if kind is FreshArray:
        return x.now()
    if (kind is list or kind is tuple) and _has_derivatives(x):
        return [admitted(each) for each in x]
    if isinstance(x, np.ndarray) and x.dtype == object:
        found = joined(x.tolist()) if x.shape else admitted(x.item())
        return found if type(found) is DerivativeArray else x
    return x


def _has_derivatives(x: Any) -> bool:
    for each in x:
        kind = type(each)
        if kind is DerivativeArray or kind is FreshArray or kind is DerivativeNumber:
            return True
        if (kind is list or kind is tuple) and _has_derivatives(each):
            return True
        if kind is np.ndarray and each.dtype == object:
            return True
    return False


def joined(things: Any) -> DerivativeArray | None:
    """Return a list of numbers, arrays and lists as one array; None if nothing in it varies."""
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
    for each in things:
        kind = type(each)
        if kind is DerivativeNumber:
            each = each.whole()  # noqa: PLW2901
        if type(each) is DerivativeArray:
            varying = each
            parts.append(each)
            continue
        if kind is list or kind is tuple:
            found = joined(each)
            each = each if found is None else found  # noqa: PLW2901
        elif kind is FreshArray or kind is np.ndarray:
            each = admitted(each)  # noqa: PLW2901
        if type(each) is DerivativeArray:
            varying = each
        parts.append(each)
    if varying is None:
        return None
    count = varying.slopes.shape[-1]
    values, slopes = [], []
    nothing = np.zeros(count)
    for each in parts:
        if type(each) is DerivativeArray:
            values.append(each.value)
            slopes.append(each.slopes)
        else:
            values.append(each)
            shape = np.shape(each)
            slopes.append(np.zeros((*shape, count)) if shape else nothing)
    if isinstance(varying.value, DerivativeArray):
        value, slope = joined(values), joined(slopes)
        assert value is not None
        assert slope is not None
        return DerivativeArray(value, slope)
    return DerivativeArray(_ARRAY(values), _ARRAY(slopes))


def as_array(x: Any) -> Any:
    """Return lists as arrays, with derivatives where they have some."""
    if isinstance(x, (list, tuple)):
        found = joined(x)
        return _ARRAY(x) if found is None else found
    x = admitted(x)
    if type(x) is DerivativeArray:
        return x
    if sparse.issparse(x):
        matrix: Any = x
        return as_array(matrix.toarray())
    return _ASARRAY(x)


def put_into(target: Any, result: Any, where: Any = True) -> Any:
    """Assign a result to what was given as ``out=``."""
    if type(target) is FreshArray or type(target) is DerivativeArray:
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


# -- arrays that a callback makes and fills


class FreshArray:
    """An array of constants that a callback made, and may fill with numbers that vary.

    Until then it is what NumPy made; from the first such assignment on it, and all its views,
    carry derivatives.

    Parameters
    ----------
    value : array
        What NumPy made, contiguous.
    origin : FreshArray, optional
        The one that this is a view of.
    view : callable, optional
        What makes this one of that.
    """

    __slots__ = ("_locked", "_origin", "_slopes", "_value", "_view")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000.0

    def __init__(
        self,
        value: Any,
        origin: FreshArray | None = None,
        view: Callable[[Any], Any] | None = None,
    ) -> None:
        self._value = value
        self._origin = origin
        self._view = view
        self._slopes: DerivativeArray | None = None
        self._locked = False

    def now(self) -> Any:
        """Return an array that carries derivatives if it has become one, else NumPy's."""
        if self._origin is not None:
            assert self._view is not None
            whole = self._origin.now()
            return self._view(whole) if type(whole) is DerivativeArray else self._value
        return self._value if self._slopes is None else self._slopes

    def __getitem__(self, key: Any) -> Any:
        key = _keys(key)[0]
        return self._seen(lambda array: array[key])

    def _seen(self, view: Callable[[Any], Any]) -> Any:
        """Return a part or another form; later assignments to either show in both."""
        now = self.now()
        if type(now) is DerivativeArray:
            return view(now)
        value = view(now)
        if isinstance(value, np.ndarray) and np.may_share_memory(value, now):
            return FreshArray(value, self, view)
        return value

    def __setitem__(self, key: Any, given: Any) -> None:
        given = admitted(given)
        if isinstance(given, list):
            given = as_array(given)
        if type(given) is DerivativeArray:
            self._vary()
        now = self.now()
        if type(now) is np.ndarray:
            now[_keys(key)[0]] = given
        else:
            now[key] = given

    def _vary(self) -> None:
        origin = self
        while origin._origin is not None:
            origin = origin._origin
        if origin._slopes is not None:
            return
        if origin._locked:
            raise DerivativeLostError("an array that was handed on before it was filled", FILL)
        if origin._value.dtype.char not in "dD":
            raise DerivativeLostError(
                f"numbers that vary in an array of {origin._value.dtype}", "dtype=float"
            )
        origin._slopes = constant(origin._value)

    def _lock(self) -> None:
        """Note that others have its memory, who would not see derivatives."""
        origin = self
        while origin._origin is not None:
            origin = origin._origin
        origin._locked = True

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        now = self.now()
        if type(now) is DerivativeArray:
            raise DerivativeLostError(
                "an array of floats made of one that carries derivatives", FILL
            )
        self._lock()
        return _ARRAY(now, dtype=dtype) if copy or (dtype and dtype != now.dtype) else now

    def __len__(self) -> int:
        return len(self._value)

    def __iter__(self) -> Iterator[Any]:
        return iter([self[k] for k in range(len(self))])

    def __repr__(self) -> str:
        refuse_text(self.now(), sys._getframe(1))
        return repr(self.now())

    def __format__(self, code: str) -> str:
        refuse_text(self.now(), sys._getframe(1))
        return format(self.now(), code)

    def __bool__(self) -> bool:
        return bool(self.now())

    def __float__(self) -> float:
        return float(self.now())

    def __int__(self) -> int:
        return int(self.now())

    def __index__(self) -> int:
        return operator.index(self.now())

    @property
    def T(self) -> Any:  # noqa: N802 (as of an array)
        """As of an array."""
        return self._seen(lambda array: array.T)

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """Return a view, as of an array."""
        return self._seen(lambda array: array.reshape(*shape, **options))

    def ravel(self, *order: Any) -> Any:
        """Return a view, as of an array."""
        return self._seen(lambda array: array.ravel(*order))

    def __getattr__(self, name: str) -> Any:
        """Let the array answer."""
        if name.startswith("__array_"):
            raise AttributeError(name)
        if name not in _NO_VIEWS:
            self._lock()
        return getattr(self.now(), name)

    def fill(self, number: Any) -> None:
        """As of an array."""
        self[...] = number

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        inputs = tuple([admitted(each) for each in inputs])
        result = getattr(ufunc, method)(*inputs, **options)
        if out is None:
            return result
        return put_into(out[0], result)

    def __array_function__(
        self, function: Callable[..., Any], _types: Any, arguments: Any, options: dict[str, Any]
    ) -> Any:
        mutated = function in _FILLING and bool(arguments)
        if mutated:
            return _FILLING[function](*arguments, **options)
        out = options.pop("out", None)
        if function not in _COPYING:
            for each in (*arguments, *options.values()):
                if type(each) is FreshArray:
                    each._lock()
        result = function(
            *[_all_now(each) for each in arguments],
            **{name: _all_now(each) for name, each in options.items()},
        )
        return result if out is None else put_into(out, result)


_NO_VIEWS = (
    frozenset(
        {"shape", "ndim", "size", "dtype", "itemsize", "nbytes", "copy", "astype", "tolist", "item"}
    )
    | {"sum", "mean", "std", "var", "prod", "cumsum", "cumprod", "max", "min", "argmax", "argmin"}
    | {
        *(
            "any",
            "all",
            "dot",
            "round",
            "clip",
            "nonzero",
            "argsort",
            "repeat",
            "take",
            "flatten",
            "sort",
        ),
    }
)
"""What of an array gives no access to its memory."""

_COPYING: frozenset[Callable[..., Any]] = frozenset(
    {
        *(
            np.sum,
            np.mean,
            np.dot,
            np.concatenate,
            np.stack,
            np.hstack,
            np.vstack,
            np.where,
            np.copy,
        ),
        *(np.shape, np.size, np.ndim, np.max, np.min, np.outer, np.tensordot, np.kron, np.roll),
        *(np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.interp, np.linalg.norm),
        *(np.linalg.solve, np.linalg.inv, np.linalg.det, np.append, np.einsum, np.cross, np.diff),
        *(np.cumsum, np.cumprod, np.prod, np.clip, np.any, np.all, np.allclose, np.column_stack),
    }
)
"""Functions whose results have memory of their own."""


def _all_now(x: Any) -> Any:
    if type(x) is list or type(x) is tuple:
        return type(x)([_all_now(each) for each in x])
    return x.now() if type(x) is FreshArray else x


def _copy_to(target: Any, source: Any, casting: str = "same_kind", where: Any = True) -> None:
    del casting
    put_into(target, as_array(source), where)


def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    if wrap or len(a.shape) != 2:
        raise DerivativeLostError("np.fill_diagonal with wrap=, or of more than two axes")
    places = np.arange(min(a.shape))
    a[places, places] = val


_FILLING: dict[Callable[..., Any], Callable[..., Any]] = {
    np.copyto: _copy_to,
    np.fill_diagonal: _fill_diagonal,
}
FUNCTIONS.update(_FILLING)


def _fresh_operator(name: str) -> Callable[..., Any]:
    function = getattr(operator, name.strip("_"))

    def forward(self: FreshArray, other: Any) -> Any:
        return function(self.now(), _all_now(other))

    def backward(self: FreshArray, other: Any) -> Any:
        return function(_all_now(other), self.now())

    def in_place(self: FreshArray, other: Any) -> Any:
        self[...] = function(self.now(), _all_now(other))
        return self

    setattr(FreshArray, f"__{name.strip('_')}__", forward)
    setattr(FreshArray, f"__r{name.strip('_')}__", backward)
    setattr(FreshArray, f"__i{name.strip('_')}__", in_place)
    return forward


for _name in ("add", "sub", "mul", "truediv", "pow", "mod", "floordiv", "matmul"):
    _fresh_operator(_name)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _function = getattr(operator, _name)
    setattr(
        FreshArray,
        f"__{_name}__",
        lambda self, other, _function=_function: _function(self.now(), _all_now(other)),
    )
for _name in ("neg", "pos", "abs", "invert"):
    _function = getattr(operator, _name)
    setattr(FreshArray, f"__{_name}__", lambda self, _function=_function: _function(self.now()))


# -- a callback at work


_DIRECTIONS: list[tuple[int, ...]] = []
"""Numbers of directions, the outermost level first, of the callbacks at work."""

_THREAD: list[int] = []
_HOME: list[str] = []


def constant(value: Any) -> DerivativeArray:
    """Return an array with slopes of zero, for the callback at work."""
    return held(value, _DIRECTIONS[-1])


def held(value: Any, directions: tuple[int, ...]) -> Any:
    """Return an array with slopes of zero along directions, the outermost level first."""
    if not directions:
        return value
    count, *inner = directions
    slopes = np.zeros((*np.shape(value), count), dtype=complex if np.iscomplexobj(value) else float)
    return DerivativeArray(held(value, tuple(inner)), held(slopes, tuple(inner)))


_ARRAY, _ASARRAY = np.array, np.asarray
_STANDARD = sysconfig.get_paths()["stdlib"]
_IS_USERS: dict[tuple[str, str], bool] = {}


def _users(frame: FrameType) -> bool:
    """Whether a frame is of the callback or its helpers, not of a library."""
    return is_users(frame.f_code.co_filename, frame.f_globals)


def is_users(file: str, names: Mapping[str, Any]) -> bool:
    """Return whether a file with these global names is the callback's, and not of a library."""
    home = _HOME[-1] if _HOME else ""
    key = (file, home)
    known = _IS_USERS.get(key)
    if known is None:
        top = str(names.get("__name__", "")).partition(".")[0]
        library = "site-packages" in file or "dist-packages" in file or file.startswith(_STANDARD)
        known = top not in _LIBRARIES and (not library or (top == home and bool(home)))
        _IS_USERS[key] = known
    return known


_LIBRARIES = frozenset({"daeosens", "numpy", "scipy", "petsc4py", "casadi", "numba"})


def users_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of a callback or its helpers."""
    while frame is not None and not _users(frame):
        frame = frame.f_back
    return frame


def line_of(place: FrameType | None, number: int | None = None) -> str:
    """Return a source line with its file and number."""
    if place is None:
        return ""
    file = place.f_code.co_filename
    line = place.f_lineno if number is None else number
    text = linecache.getline(file, line).strip()
    shown = f": `{text}`" if text else ""
    name = file.replace("\\", "/").rsplit("/")[-1]
    return f"in {place.f_code.co_name}, line {line} of {name}{shown}"


def line_of_error(trace: TracebackType | None) -> str:
    """Return the innermost line of a callback or its helpers that an exception went through."""
    innermost = users_trace(trace)
    return "" if innermost is None else line_of(innermost.tb_frame, innermost.tb_lineno)


def users_trace(trace: TracebackType | None) -> TracebackType | None:
    """Return where an exception went through a callback or its helpers for the last time."""
    found = None
    while trace is not None:
        if _users(trace.tb_frame):
            found = trace
        trace = trace.tb_next
    return found


def _at_work() -> bool:
    """Whether whoever calls the caller is the callback at work, or one of its helpers."""
    return (
        bool(_THREAD) and _THREAD[-1] == threading.get_ident() and _users(sys._getframe(2))  # pyright: ignore[reportPrivateUsage]
    )


def _making(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's function that makes an array, which the callback may fill."""

    def make(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if type(result) is np.ndarray and result.dtype.kind in "fc" and _at_work():
            return FreshArray(result)
        return result

    return make


def _joining(original: Callable[..., Any], *, copies: bool) -> Callable[..., Any]:
    """Return ``np.array`` or one of its like that takes numbers which vary."""

    def make(thing: Any = None, *arguments: Any, **options: Any) -> Any:
        kind = type(thing)
        if not _at_work():
            return original(thing, *arguments, **options)
        if kind is list or kind is tuple:
            found: Any = joined(thing)
        elif kind is FreshArray and not copies:
            return thing
        else:
            found = admitted(thing)
        if type(found) is not DerivativeArray:
            result = original(_all_now(thing), *arguments, **options)
            fillable = result.dtype.kind in "fc" and (copies or result is not thing)
            return FreshArray(result) if fillable else result
        dtype = arguments[0] if arguments else options.get("dtype")
        if dtype is not None and np.dtype(dtype) != found.dtype:
            found = found.astype(dtype)
        elif copies and found is thing:
            found = found.copy()
        while len(found.shape) < options.get("ndmin", 0):
            found = found[None]
        return found

    return make


def _vectorized(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        arrays = [admitted(each) for each in arguments]
        if not any(type(each) is DerivativeArray for each in arrays):
            return original(self, *arguments, **options)
        if self.signature is not None or options:
            raise DerivativeLostError(
                "np.vectorize with a signature or keywords", "positional arguments"
            )
        shape = np.broadcast_shapes(*[np.shape(each) for each in arrays])
        spread = [np.broadcast_to(each, shape).reshape(-1) for each in arrays]
        results = [self.pyfunc(*entry) for entry in zip(*spread, strict=True)]
        return as_array(results).reshape(shape)

    return call


def _mathematical(name: str) -> Callable[..., Any]:
    original = getattr(math, name)
    ufunc = getattr(
        np,
        {"pow": "power", "atan2": "arctan2"}.get(
            name,
            name.replace("a", "arc", 1)
            if name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
            else name,
        ),
        None,
    )

    def call(*arguments: Any) -> Any:
        for each in arguments:
            if type(each) is DerivativeArray or type(each) is DerivativeNumber:
                return _MATH[name](*arguments) if name in _MATH else ufunc(*arguments)  # type: ignore[misc]
        return original(*arguments)

    return call


_MATH: dict[str, Callable[..., Any]] = {
    "fabs": np.abs,
    "log": lambda x, *base: np.log(x) / np.log(base[0]) if base else np.log(x),
    "hypot": lambda *x: np.linalg.norm(as_array(list(x))),
    "dist": lambda x, y: np.linalg.norm(as_array(list(x)) - as_array(list(y))),
    "fsum": sum,
}


for _name, _scipy in {"erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln"}.items():
    _MATH[_name] = getattr(special, _scipy)

_IN_NUMPY: dict[str, Any] = {
    **{
        name: _making(getattr(np, name))
        for name in (
            *("zeros", "ones", "empty", "full", "eye", "identity"),
            *("zeros_like", "ones_like", "empty_like", "full_like"),
        )
    },
    "array": _joining(np.array, copies=True),
    "asarray": _joining(np.asarray, copies=False),
    "asanyarray": _joining(np.asanyarray, copies=False),
    "ascontiguousarray": _joining(np.ascontiguousarray, copies=False),
}
_IN_MATH: dict[str, Any] = {
    name: _mathematical(name)
    for name in (
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh"),
        *("acosh", "atanh", "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt"),
        *("cbrt", "pow", "fabs", "hypot", "dist", "fsum", "copysign", "fmod", "radians"),
        *("degrees", "erf", "erfc", "gamma", "lgamma", "isfinite", "isnan", "isinf"),
    )
    if hasattr(math, name)
}
_NUMPY: dict[str, Any] = np.__dict__
_MATHEMATICS: dict[str, Any] = math.__dict__
_OF_NUMPY = {name: getattr(np, name) for name in _IN_NUMPY}
_OF_MATH = {name: getattr(math, name) for name in _IN_MATH}
_VECTORIZE = np.vectorize.__call__
_VECTORIZED = _vectorized(_VECTORIZE)
_SPARSE: Any = vars(vars(sparse)["_base"])["_spbase"]
_MATMUL: Any = _SPARSE._matmul_dispatch


def _sparse_matmul(self: Any, other: Any, *arguments: Any, **options: Any) -> Any:
    other = other.now() if type(other) is FreshArray else other
    if isinstance(other, np.ndarray) and other.dtype == object:
        other = admitted(other)
    if type(other) is DerivativeArray:
        return sparse_times(self, other)
    return _MATMUL(self, other, *arguments, **options)


def evaluate(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    directions: tuple[int, ...],
    home: str = "",
) -> Any:
    """Return what a callback makes of arguments that carry derivatives.

    Functions that NumPy does not hand on see derivatives meanwhile, if the callback calls them or a
    helper that is in no other library: ``np.zeros(n)`` makes arrays that can be filled,
    ``np.array([...])`` and ``math.sin`` take numbers that vary.

    Parameters
    ----------
    function : callable
        The callback.
    arguments : sequence
        Of the callback.
    directions : tuple of int
        Numbers of directions, the outermost level first.
    home : str
        The callback's package, which its helpers may be in.
    """
    if not _DIRECTIONS:
        _NUMPY.update(_IN_NUMPY)
        _MATHEMATICS.update(_IN_MATH)
        np.vectorize.__call__ = _VECTORIZED  # type: ignore[method-assign]
        _SPARSE._matmul_dispatch = _sparse_matmul
    _DIRECTIONS.append(directions)
    _THREAD.append(threading.get_ident())
    _HOME.append(home)
    try:
        with np.errstate(all="ignore"):
            return as_array(function(*arguments))
    finally:
        _HOME.pop()
        _THREAD.pop()
        _DIRECTIONS.pop()
        if not _DIRECTIONS:
            _NUMPY.update(_OF_NUMPY)
            _MATHEMATICS.update(_OF_MATH)
            np.vectorize.__call__ = _VECTORIZE  # type: ignore[method-assign]
            _SPARSE._matmul_dispatch = _MATMUL
