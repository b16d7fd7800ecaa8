"""Arrays that stand for as many arrays as there are points, and look like one of them."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.problem.derivative_arrays.callback_at_work import AT_WORK


class PointsError(TypeError):
    """Points go ways that differ, or a function takes no arrays of many points."""


class WaysDifferError(PointsError):
    """Points go ways that differ, but those of which a number is the same do not so far.

    Attributes
    ----------
    ways : array [K]
        This number.
    """

    def __init__(self, ways: npt.NDArray[Any]) -> None:
        super().__init__("numbers that differ between points, where one is wanted")
        self.ways = ways


class PointArray:
    """An array [...] at each of K points, of which callbacks see one: its shape has no K.

    Branches have to be the same at all points, and what would mix points, or is not known to keep
    them apart, raises ``PointsError``.  Values and slopes of a ``DerivativeArray`` may be such
    arrays: its rules go by NumPy's functions, and hold at all points then.

    Parameters
    ----------
    entries : array [..., K]
        The arrays; [..., 1] where all points have the same.

    Examples
    --------
    >>> import numpy as np
    >>> u = PointArray(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    >>> u.shape, np.sum(u * u[0]).entries
    ((2,), array([ 5., 14., 27.]))
    """

    __slots__ = ("entries",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, entries: Any) -> None:
        self.entries = entries

    # -- what an array is asked for

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the array at one point."""
        shape: tuple[int, ...] = self.entries.shape[:-1]
        return shape

    @property
    def ndim(self) -> int:
        """As of the array at one point."""
        return int(self.entries.ndim) - 1

    @property
    def size(self) -> int:
        """As of the array at one point."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """As of an array."""
        dtype: np.dtype[Any] = self.entries.dtype
        return dtype

    @property
    def real(self) -> PointArray:
        """As of an array."""
        return PointArray(self.entries.real)

    @property
    def imag(self) -> PointArray:
        """As of an array."""
        return PointArray(self.entries.imag)

    @property
    def T(self) -> PointArray:  # noqa: N802 (as of an array)
        """As of an array."""
        return _transpose(self)

    def __len__(self) -> int:
        """As of an array."""
        if not self.shape:
            raise TypeError("len() of unsized object")
        return int(self.entries.shape[0])

    def __iter__(self) -> Iterator[PointArray]:
        """As of an array."""
        return iter([self[k] for k in range(len(self))])

    def __getitem__(self, key: Any) -> PointArray:
        """Return entries; a view where it would be one of an array."""
        entries = self.entries[_key(key)]
        # one number stays what it was when the array changes: d[0], d[1] = d[1], d[0]
        return PointArray(entries.copy() if entries.ndim == 1 else entries)

    def __setitem__(self, key: Any, assigned: Any) -> None:
        """Assign at all points."""
        new = _lifted(assigned)
        if np.shape(new)[-1:] > self.entries.shape[-1:]:
            # there is memory for what is the same at all points only, and others may look at it
            raise PointsError("numbers that differ between points in an array of those that do not")
        self.entries[_key(key)] = new

    def copy(self, order: str = "C") -> PointArray:
        """Return a copy, with memory for all points."""
        del order
        count = max(AT_WORK[-1].points if AT_WORK else 1, self.entries.shape[-1])
        return PointArray(np.broadcast_to(self.entries, (*self.shape, count)).copy())

    def astype(self, dtype: Any) -> PointArray:
        """As of an array."""
        return PointArray(self.entries.astype(dtype))

    def reshape(self, *shape: Any, order: Any = "C") -> PointArray:
        """As of an array."""
        return _reshape(self, shape[0] if len(shape) == 1 else shape, order)

    def all(self, axis: Any = None) -> PointArray:
        """As of an array."""
        return _along(np.all)(self, axis)

    def any(self, axis: Any = None) -> PointArray:
        """As of an array."""
        return _along(np.any)(self, axis)

    # -- numbers of Python: where they are the same at all points

    def __bool__(self) -> bool:
        """Return what holds at all points."""
        return bool(self._only(bool))

    def __float__(self) -> float:
        return float(self._only(float))

    def __int__(self) -> int:
        return int(self._only(int))

    def __index__(self) -> int:
        return int(self._only(int))

    def _only(self, kind: type) -> Any:
        if self.shape not in ((), (1,)):
            raise PointsError("an array where one number is wanted")
        values = self.entries.reshape(-1).astype(kind)
        if not (values == values[0]).all():
            raise WaysDifferError(values)
        return values[0].item()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise PointsError("an array of one point")

    # -- NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Evaluate a ufunc at all points."""
        for x in inputs:
            if not isinstance(x, _KNOWN):
                return NotImplemented
        if method != "__call__" or options:
            raise PointsError(f"np.{ufunc.__name__} with {method} {list(options)}")
        if ufunc.signature is not None:
            if ufunc is np.matmul:
                return _matmul(*inputs)
            raise PointsError(f"np.{ufunc.__name__}")
        with np.errstate(all="ignore"):
            results = ufunc(*[_lifted(x) for x in inputs])
        if type(results) is tuple:
            return tuple([PointArray(result) for result in results])
        return PointArray(results)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        """Evaluate one of NumPy's other functions at all points."""
        for kind in types:
            if kind is not PointArray and kind is not np.ndarray:
                return NotImplemented
        rule = _FUNCTIONS.get(function)
        if rule is None:
            raise PointsError(f"np.{function.__name__}")
        return rule(*arguments, **options)


_KNOWN = (PointArray, np.ndarray, np.generic, float, int, complex)


def _lifted(x: Any) -> Any:
    """Return entries [..., K], or [..., 1] of what is the same at all points."""
    if type(x) is PointArray:
        return x.entries
    if isinstance(x, (list, tuple)):
        return stacked(x).entries
    if isinstance(x, np.ndarray):
        if x.dtype == object:
            raise PointsError("an array of objects")
        return x[..., None]
    return x  # a number


def _key(key: Any) -> Any:
    """Return an index that leaves the points whole."""
    several = key if isinstance(key, tuple) else (key,)
    for index in several:
        if type(index) is PointArray:
            raise PointsError("an index that differs between points")
    if any(index is Ellipsis for index in several):
        return (*several, slice(None))
    return key


def at_points(value: Any) -> PointArray:
    """Return an array that is the same at all points at work, and may be written to."""
    return PointArray(np.asarray(_lifted(value))).copy() if np.ndim(value) else value


def stacked(things: Any) -> PointArray:
    """Return a list of numbers, arrays and lists as one array."""
    parts = [_lifted(thing) for thing in things]
    # lists of numbers alone are the same at all points
    shape = np.broadcast_shapes((1,), *[np.shape(part)[-1:] for part in parts])
    inner = {np.shape(part)[:-1] for part in parts}
    if len(inner) > 1:
        raise ValueError("arrays of several shapes")
    whole = np.empty((len(parts), *next(iter(inner)), *shape), np.result_type(*parts))
    for k, part in enumerate(parts):
        whole[k] = part
    return PointArray(whole)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    several = axis if isinstance(axis, tuple) else (axis,)
    return tuple([np.lib.array_utils.normalize_axis_index(int(k), ndim) for k in several])


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction."""

    def rule(a: Any, axis: Any = None, *, keepdims: bool = False) -> PointArray:
        return PointArray(function(a.entries, axis=_axes(axis, a.ndim), keepdims=keepdims))

    return rule


def _along_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function along one axis, whose number is given by name."""

    def rule(a: Any, *arguments: Any, axis: int) -> PointArray:
        return PointArray(function(a.entries, *arguments, axis=_axes(axis, a.ndim)[0]))

    return rule


def _reshape(a: PointArray, shape: Any, order: Any = "C") -> PointArray:
    several = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if order != "C":
        raise PointsError(f"np.reshape with order={order}")
    if -1 in several:
        known = -math.prod(several)
        several = tuple([a.size // known if k == -1 else k for k in several])
    return PointArray(a.entries.reshape(*several, a.entries.shape[-1]))


def _transpose(a: PointArray, axes: Any = None) -> PointArray:
    order = range(a.ndim)[::-1] if axes is None else _axes(tuple(axes), a.ndim)
    return PointArray(np.transpose(a.entries, (*order, a.ndim)))


def _moveaxis(a: PointArray, source: Any, destination: Any) -> PointArray:
    return PointArray(np.moveaxis(a.entries, _axes(source, a.ndim), _axes(destination, a.ndim)))


def _broadcast_to(a: PointArray, shape: Any, subok: bool = False) -> PointArray:
    del subok
    return PointArray(np.broadcast_to(a.entries, (*shape, a.entries.shape[-1])))


def _concatenate(arrays: Any, axis: int = 0) -> PointArray:
    parts = [np.asarray(_lifted(array)) for array in arrays]
    count = max(part.shape[-1] for part in parts)
    whole = [np.broadcast_to(part, (*part.shape[:-1], count)) for part in parts]
    return PointArray(np.concatenate(whole, _axes(axis, parts[0].ndim - 1)[0]))


def _roll(a: PointArray, shift: Any, axis: Any) -> PointArray:
    return PointArray(np.roll(a.entries, shift, _axes(axis, a.ndim)))


def _where(condition: Any, x: Any, y: Any) -> PointArray:
    return PointArray(np.where(_lifted(condition), _lifted(x), _lifted(y)))


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> PointArray:
    if type(x) is not PointArray:
        raise PointsError("np.interp in a table")
    return PointArray(np.interp(x.entries, xp, fp, left, right))  # refuses other tables


def _searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> PointArray:
    if type(a) is not np.ndarray or sorter is not None:
        raise PointsError("np.searchsorted in a table")
    return PointArray(np.searchsorted(a, v.entries, side))


def _matmul(a: Any, b: Any) -> PointArray:
    if type(a) is np.ndarray and a.ndim == 2 and b.ndim <= 2:
        # one matrix for all points: one product for all of them
        right = b.entries
        product = a @ right.reshape(len(right), -1)
        return PointArray(product.reshape(len(a), *right.shape[1:]))
    left, right = _lifted(a), _lifted(b)
    row, column = left.ndim == 2, right.ndim == 2
    left = np.moveaxis(left[None] if row else left, -1, 0)
    right = np.moveaxis(right[:, None] if column else right, -1, 0)
    # points come first, before axes that only one of the two has
    missing = left.ndim - right.ndim
    left = left.reshape(len(left), *(1,) * -missing, *left.shape[1:])
    right = right.reshape(len(right), *(1,) * missing, *right.shape[1:])
    product = np.matmul(left, right)
    product = product[..., 0] if column else product
    product = (product[..., 0] if column else product[..., 0, :]) if row else product
    return PointArray(np.moveaxis(product, 0, -1))


def _norm(x: PointArray, ord: Any = None, axis: Any = None, keepdims: bool = False) -> PointArray:  # noqa: A002
    if ord is not None:
        raise PointsError(f"np.linalg.norm with ord={ord}")
    square = np.real(x.entries * np.conj(x.entries))
    return PointArray(np.sqrt(square.sum(axis=_axes(axis, x.ndim), keepdims=keepdims)))


def _einsum(subscripts: str, *operands: Any) -> PointArray:
    extra = next(letter for letter in string.ascii_letters[::-1] if letter not in subscripts)
    inputs, output = subscripts.split("->")
    named = [
        f"{term}{extra}" if type(x) is PointArray and x.entries.shape[-1] > 1 else term
        for term, x in zip(inputs.split(","), operands, strict=True)
    ]
    whole = any(extra in term for term in named)
    entries = [
        (x.entries if extra in term else x.entries[..., 0]) if type(x) is PointArray else x
        for term, x in zip(named, operands, strict=True)
    ]
    result = np.einsum(f"{','.join(named)}->{output}{extra if whole else ''}", *entries)
    return PointArray(result if whole else np.asarray(result)[..., None])


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.copy: lambda a: a.copy(),
    np.real: lambda val: val.real,
    np.imag: lambda val: val.imag,
    np.sum: _along(np.sum),
    np.all: _along(np.all),
    np.any: _along(np.any),
    np.max: _along(np.max),
    np.min: _along(np.min),
    np.cumsum: _along_one(np.cumsum),
    np.diff: _along_one(np.diff),
    np.concatenate: _concatenate,
    np.stack: stacked,
    np.reshape: _reshape,
    np.transpose: _transpose,
    np.moveaxis: _moveaxis,
    np.broadcast_to: _broadcast_to,
    np.roll: _roll,
    np.where: _where,
    np.interp: _interp,
    np.searchsorted: _searchsorted,
    np.einsum: _einsum,
    np.linalg.norm: _norm,
}
"""NumPy's functions as the rules of derivatives call them."""


def _operator(ufunc: np.ufunc, *, reflected: bool = False) -> Callable[..., Any]:
    def apply(self: PointArray, other: Any) -> Any:
        if not isinstance(other, _KNOWN):
            return NotImplemented
        return ufunc(other, self) if reflected else ufunc(self, other)

    return apply


_OPERATORS: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "matmul": np.matmul,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
for _name, _ufunc in _OPERATORS.items():
    setattr(PointArray, f"__{_name}__", _operator(_ufunc))
    setattr(PointArray, f"__r{_name}__", _operator(_ufunc, reflected=True))
for _name, _ufunc in (
    ("neg", np.negative),
    ("pos", np.positive),
    ("abs", np.absolute),
    ("invert", np.invert),
):
    setattr(PointArray, f"__{_name}__", lambda self, _ufunc=_ufunc: _ufunc(self))
