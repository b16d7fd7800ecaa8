"""Slopes that record the linear operations which they go through, to be transposed afterwards."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np

from daeosens.petsc.vectors import Array
from daeosens.problem.derivative_arrays.points import PointArray

Transposed: TypeAlias = "Callable[[Array], Array]"
"""Adjoints of a result to those of an operand."""


class RecordError(TypeError):
    """An operation on slopes is not known to a record."""


class Record:
    """The linear operations from slopes of arguments to those of a result, in their order.

    Rules of derivatives are linear in slopes (Griewank and Walther, section 3.2), so that products
    with the transposed Jacobian come from the same rules: each operation transposed, in the
    opposite order, takes a few evaluations however many directions there are.  Where the callback
    was evaluated at many points at once, they go the same way with numbers of their own.

    Attributes
    ----------
    size : int
        How many numbers are kept.
    """

    def __init__(self) -> None:
        self.size = 0
        self._operands: list[tuple[tuple[int, Transposed], ...]] = []
        self._point = 0

    def slopes(
        self,
        shape: tuple[int, ...],
        *operands: tuple[RecordedSlopes, Transposed],
        first: bool = False,
    ) -> RecordedSlopes:
        """Return slopes of a shape, made of operands; without any, zeros or those of arguments."""
        return RecordedSlopes(self, self.note(*operands), shape, first)

    def note(self, *operands: tuple[RecordedSlopes, Transposed]) -> int:
        """Note an operation; return its number."""
        self._operands.append(tuple([(x.number(), back) for x, back in operands]))
        return len(self._operands) - 1

    def keep(self, numbers: Any) -> Callable[[], Any]:
        """Return what returns numbers at the point at work; the callback may write to its own."""
        if type(numbers) is not PointArray:
            alone = np.array(numbers)
            if alone.dtype.kind not in "fiub":
                _refuse(f"{alone.dtype} numbers")
            self.size += alone.size
            return lambda: alone
        if numbers.dtype.kind not in "fiub":
            _refuse(f"{numbers.dtype} numbers")
        self.size += numbers.entries.size
        by_points = np.array(np.moveaxis(numbers.entries, -1, 0), order="C")
        return (lambda: by_points[self._point]) if len(by_points) > 1 else (lambda: by_points[0])

    def pull(
        self, point: int, result: RecordedSlopes, w: Array, wanted: list[RecordedSlopes]
    ) -> list[Array]:
        """Return the adjoints [M, ...] of arguments for rows w [M, ...] of those of the result.

        ``point`` counts those of one evaluation, and ``wanted`` are the arguments as they were
        made.
        """
        self._point = point
        adjoints: dict[int, Any] = {result.number(): np.moveaxis(w, 0, -1)}
        numbers = [argument.made for argument in wanted]
        reached: dict[int, Any] = {}
        # operations read what was made before them, so that going back in numbers the adjoint of
        # each is complete, all that read it done, before it is passed on to its own operands
        for number in range(result.number(), -1, -1):
            adjoint = adjoints.pop(number, None)
            if adjoint is None:
                continue
            if number in numbers:
                reached[number] = adjoint
            for operand, back in self._operands[number]:
                others = adjoints.get(operand)
                part = back(adjoint)
                adjoints[operand] = part if others is None else others + part
        return [
            np.moveaxis(reached[number], -1, 0)
            if number in reached
            else np.zeros((len(w), *argument.shape[:-1]))
            for number, argument in zip(numbers, wanted, strict=True)
        ]


class RecordedSlopes:
    """Slopes [..., 1] of a ``DerivativeArray`` along a direction that is not said.

    Parameters
    ----------
    record : Record
        What is recorded.
    made : int
        Number of the operation that made them.
    shape : tuple of int
        With one direction.
    first : bool
        Whether the axis of directions is the first one, not the last.
    whole, key : RecordedSlopes, index
        What they are a view of, and which; writing to either is seen in both.

    Examples
    --------
    >>> import numpy as np
    >>> record = Record()
    >>> du = record.slopes((2, 1))
    >>> change = np.array([[3.0], [5.0]]) * du[::-1]
    >>> record.pull(0, change, np.array([[1.0, 0.0], [1.0, 1.0]]), [du])[0]
    array([[0., 3.],
           [5., 3.]])
    """

    __slots__ = (
        "_key",
        "_seen",
        "_version",
        "_whole",
        "first",
        "latest",
        "made",
        "record",
        "shape",
    )
    __array_priority__ = 1000.0

    def __init__(
        self,
        record: Record,
        made: int,
        shape: tuple[int, ...],
        first: bool = False,
        whole: RecordedSlopes | None = None,
        key: Any = None,
    ) -> None:
        self.record, self.made, self.shape, self.first = record, made, shape, first
        self.latest = made
        self._whole, self._key, self._version = whole, key, 0
        self._seen = 0 if whole is None else whole.version()

    @property
    def ndim(self) -> int:
        """As of an array."""
        return len(self.shape)

    def version(self) -> int:
        """Return how often the memory was written to."""
        return self._version if self._whole is None else self._whole.version()

    def number(self) -> int:
        """Return the number of the operation that made what they are now."""
        whole = self._whole
        if whole is not None and whole.version() != self._seen:
            if self._key is None:  # another form of what has changed
                _refuse("a view of another shape, written to elsewhere")
            self.latest = whole[self._key].latest
            self._seen = whole.version()
        return self.latest

    # -- what rules do with slopes

    def __getitem__(self, key: Any) -> RecordedSlopes:
        several = key if isinstance(key, tuple) else (key,)
        if self.first and several[0] is not Ellipsis and several[0] != slice(None):
            _refuse("an index of directions")
        shape = np.broadcast_to(_ZERO, self.shape)[key].shape
        plain = _is_plain(several)
        key = key if plain else _kept(key)
        by_mask = any(isinstance(index, np.ndarray) and index.dtype == bool for index in several)

        def back(adjoint: Array) -> Array:
            result = np.zeros(self._with(adjoint, self.first))
            if plain or by_mask:
                result[key] = adjoint
            else:
                np.add.at(result, key, adjoint)  # a place may be there several times
            return result

        made = self.record.note((self, back))
        whole = self if plain else None
        return RecordedSlopes(self.record, made, shape, self.first, whole, key)

    def __setitem__(self, key: Any, assigned: Any) -> None:
        several = key if isinstance(key, tuple) else (key,)
        if self.first or (self._whole is not None and self._key is None):
            _refuse("writing to a view of another shape")
        if not _is_plain(several):
            key = _kept(key)
            places = np.arange(math.prod(self.shape)).reshape(self.shape)[key]
            if np.unique(places).size != places.size:
                _refuse("writing to a place more than once")

        def rest(adjoint: Array) -> Array:
            result = adjoint.copy()
            result[key] = 0.0
            return result

        # what was in these places before is lost, so its adjoint is zero there; the rest stays
        operands: list[tuple[RecordedSlopes, Transposed]] = [(self, rest)]
        if type(assigned) is RecordedSlopes:
            shape = np.broadcast_to(_ZERO, self.shape)[key].shape
            summing = _summing(shape, assigned.shape[max(0, assigned.ndim - len(shape)) :])
            operands.append((assigned, _after(lambda adjoint: adjoint[key], summing)))
            if assigned.ndim > len(shape):
                _refuse("assigning what has more axes")
        else:
            _check_zero(assigned)
        self.latest = self.record.note(*operands)
        if self._whole is None:
            self._version += 1
            return
        # what it is a view of has changed with it
        self._seen = self._whole.version()
        now = RecordedSlopes(self.record, self.latest, self.shape)
        self._whole[self._key] = now
        self._seen = self._whole.version()

    def copy(self) -> RecordedSlopes:
        """Return them with a memory of their own."""
        return RecordedSlopes(self.record, self.number(), self.shape, self.first)

    def reshape(self, *shape: Any) -> RecordedSlopes:
        """As of an array; directions stay last."""
        return _reshape(self, shape[0] if len(shape) == 1 else shape)

    def _with(self, adjoint: Array, first: bool) -> tuple[int, ...]:
        """Return the shape for as many rows as an adjoint has."""
        if first:
            return (adjoint.shape[0], *self.shape[1:])
        return (*self.shape[:-1], adjoint.shape[-1])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        _refuse("an array of floats")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        rule = _UFUNCS.get(ufunc)
        if method != "__call__" or options or rule is None:
            _refuse(f"np.{ufunc.__name__}")
        return rule(*inputs)

    def __array_function__(
        self, function: Any, _types: Any, arguments: Any, options: dict[str, Any]
    ) -> Any:
        rule = _FUNCTIONS.get(function)
        if rule is None:
            _refuse(f"np.{function.__name__}")
        return rule(*arguments, **options)

    def __add__(self, other: Any) -> RecordedSlopes:
        return _add(self, other)

    def __radd__(self, other: Any) -> RecordedSlopes:
        return _add(other, self)

    def __sub__(self, other: Any) -> RecordedSlopes:
        return _add(self, _multiply(-1.0, other))

    def __mul__(self, other: Any) -> RecordedSlopes:
        return _multiply(self, other)

    def __rmul__(self, other: Any) -> RecordedSlopes:
        return _multiply(other, self)

    def __truediv__(self, other: Any) -> RecordedSlopes:
        return _multiply(self, 1.0 / other)

    def __neg__(self) -> RecordedSlopes:
        return _multiply(-1.0, self)


_ZERO = np.float64(0.0)
_PLAIN = (int, slice, np.integer, type(None), type(Ellipsis))


def _refuse(what: str) -> NoReturn:
    raise RecordError(f"slopes that are recorded do not know {what}")


def _is_plain(several: tuple[Any, ...]) -> bool:
    return all(isinstance(index, _PLAIN) for index in several)


def _kept(key: Any) -> Any:
    """Return an index that a callback cannot change later on."""
    if isinstance(key, tuple):
        return tuple([np.array(index) if isinstance(index, np.ndarray) else index for index in key])
    return np.array(key)


def _check_zero(x: Any) -> None:
    if type(x) is RecordedSlopes or np.any(x):
        _refuse("slopes that are numbers")


def _summing(
    larger: tuple[int, ...], shape: tuple[int, ...], first: bool = False
) -> Transposed | None:
    """Return what makes adjoints of what was broadcast from a shape; None if nothing was."""
    extra = len(larger) - len(shape)
    place = 0 if first else len(shape) - 1
    axes = [
        k + extra
        for k, size in enumerate(shape)
        if k != place and size == 1 and larger[k + extra] != 1
    ]
    if not extra and not axes:
        return None
    leading, kept = tuple(range(extra)), tuple(axes)

    def back(adjoint: Array) -> Array:
        if kept:
            adjoint = np.add.reduce(adjoint, axis=kept, keepdims=True)
        return np.add.reduce(adjoint, axis=leading) if leading else adjoint

    return back


def _after(back: Transposed, summing: Transposed | None) -> Transposed:
    return back if summing is None else lambda adjoint: summing(back(adjoint))


def _unchanged(adjoint: Array) -> Array:
    return adjoint


def _multiply(x: Any, y: Any) -> Any:
    """Return slopes times numbers."""
    slopes, factor = (x, y) if type(x) is RecordedSlopes else (y, x)
    if type(slopes) is not RecordedSlopes:
        return slopes * factor
    if type(factor) is RecordedSlopes:
        _refuse("products of slopes")
    shape, first = np.shape(factor), slopes.first
    if shape and (len(shape) > slopes.ndim - (shape[0] != 1) if first else shape[-1] != 1):
        _refuse("factors that differ between directions")
    larger = np.broadcast_shapes(shape, slopes.shape)
    number = slopes.record.keep(factor)
    back = _after(lambda adjoint: number() * adjoint, _summing(larger, slopes.shape, first))
    return slopes.record.slopes(larger, (slopes, back), first=first)


def _add(x: Any, y: Any) -> RecordedSlopes:
    terms = [term for term in (x, y) if type(term) is RecordedSlopes]
    for term in (x, y):
        if type(term) is not RecordedSlopes:
            _check_zero(term)
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    first = terms[0].first
    if any(term.first != first or (first and term.ndim < len(shape)) for term in terms):
        _refuse("sums with other axes of directions")
    operands = [(z, _summing(shape, z.shape, first) or _unchanged) for z in terms]
    return terms[0].record.slopes(shape, *operands, first=first)


def _matmul(x: Any, y: Any) -> RecordedSlopes:
    left = type(x) is RecordedSlopes
    slopes, matrix = (x, y) if left else (y, x)
    if type(matrix) is RecordedSlopes or (not slopes.first and (left or slopes.ndim != 2)):
        _refuse("such products of matrices")
    dummy, other = (np.broadcast_to(_ZERO, np.shape(z)) for z in (slopes, matrix))
    shape = np.matmul(dummy, other).shape if left else np.matmul(other, dummy).shape
    numbers = slopes.record.keep(matrix)
    if not slopes.first and other.ndim == 1:
        return slopes.record.slopes(shape, (slopes, lambda adjoint: numbers()[:, None] * adjoint))
    if slopes.first and (other.ndim < 2 or other.ndim >= slopes.ndim):
        _refuse("such products of stacks of matrices")

    def back(adjoint: Array) -> Array:
        turned = numbers().swapaxes(-1, -2)
        return adjoint @ turned if left else turned @ adjoint

    larger = (*shape[:-2], *slopes.shape[-2:])
    summing = _summing(larger, slopes.shape, slopes.first)
    return slopes.record.slopes(shape, (slopes, _after(back, summing)), first=slopes.first)


def _reshape(x: RecordedSlopes, shape: Any) -> RecordedSlopes:
    several: tuple[Any, ...] = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    if -1 in several:
        known = -math.prod(several)
        size = math.prod(x.shape)
        several = tuple([size // known if k == -1 else k for k in several])
    if x.first or several[-1] != 1:
        _refuse("another shape of directions")

    def back(adjoint: Array) -> Array:
        return adjoint.reshape(*x.shape[:-1], adjoint.shape[-1])

    return RecordedSlopes(x.record, x.record.note((x, back)), several, whole=x)


def _transpose(x: RecordedSlopes, order: Any) -> RecordedSlopes:
    order = tuple([int(k) % x.ndim for k in order])
    place = order.index(0 if x.first else x.ndim - 1)
    if place not in (0, x.ndim - 1):
        _refuse("directions between other axes")
    first = place == 0 and x.ndim > 1
    made = x.record.note((x, lambda adjoint: np.transpose(adjoint, np.argsort(order))))
    return RecordedSlopes(x.record, made, tuple([x.shape[k] for k in order]), first, whole=x)


def _moveaxis(x: RecordedSlopes, source: int, destination: int) -> RecordedSlopes:
    order = [k for k in range(x.ndim) if k != source % x.ndim]
    order.insert(destination % x.ndim, source % x.ndim)
    return _transpose(x, order)


def _sum(x: RecordedSlopes, axis: Any, keepdims: bool = False) -> RecordedSlopes:
    axes = tuple([int(k) % x.ndim for k in (axis if isinstance(axis, tuple) else (axis,))])
    if x.first or x.ndim - 1 in axes:
        _refuse("sums over directions")
    kept = tuple([1 if k in axes else size for k, size in enumerate(x.shape)])
    shape = kept if keepdims else tuple([n for k, n in enumerate(x.shape) if k not in axes])

    def back(adjoint: Array) -> Array:
        wide = adjoint.reshape(*kept[:-1], adjoint.shape[-1])
        return np.broadcast_to(wide, (*x.shape[:-1], adjoint.shape[-1]))

    return x.record.slopes(shape, (x, back))


def _broadcast_to(x: RecordedSlopes, shape: Any, subok: bool = False) -> RecordedSlopes:
    del subok
    if x.first:
        _refuse("directions first")
    return x.record.slopes(tuple(shape), (x, _summing(tuple(shape), x.shape) or _unchanged))


def _concatenate(arrays: Any, axis: int = 0) -> RecordedSlopes:
    parts = list(arrays)
    slopes = next(part for part in parts if type(part) is RecordedSlopes)
    axis = int(axis) % slopes.ndim
    operands: list[tuple[RecordedSlopes, Transposed]] = []
    end = 0
    for part in parts:
        start, end = end, end + part.shape[axis]
        if type(part) is not RecordedSlopes:
            _check_zero(part)
            continue
        if part.first or axis == part.ndim - 1:
            _refuse("directions one after the other")
        key = (slice(None),) * axis + (slice(start, end),)
        operands.append((part, lambda adjoint, key=key: adjoint[key]))
    shape = tuple([end if k == axis else size for k, size in enumerate(slopes.shape)])
    return slopes.record.slopes(shape, *operands)


def stacked_slopes(things: Any) -> RecordedSlopes:
    """Return slopes, or zeros, of one shape as rows of an array."""
    parts = list(things)
    slopes = next(part for part in parts if type(part) is RecordedSlopes)
    operands: list[tuple[RecordedSlopes, Transposed]] = []
    for k, part in enumerate(parts):
        if type(part) is not RecordedSlopes:
            _check_zero(part)
        elif part.first or part.shape != slopes.shape:
            _refuse("lists of several shapes")
        else:
            operands.append((part, lambda adjoint, k=k: adjoint[k]))
    return slopes.record.slopes((len(parts), *slopes.shape), *operands)


def _where(condition: Any, x: Any, y: Any) -> RecordedSlopes:
    choices = [(x, condition), (y, ~condition)]
    slopes = [choice for choice in (x, y) if type(choice) is RecordedSlopes]
    column = np.shape(condition)
    if (column and column[-1] != 1) or any(choice.first for choice in slopes):
        _refuse("choices of directions")
    shape = np.broadcast_shapes(column, np.shape(x), np.shape(y))
    operands: list[tuple[RecordedSlopes, Transposed]] = []
    for choice, where in choices:
        if type(choice) is not RecordedSlopes:
            _check_zero(choice)
            continue
        chosen = choice.record.keep(where)

        def back(adjoint: Array, chosen: Callable[[], Any] = chosen) -> Array:
            return np.where(chosen(), adjoint, 0.0)

        operands.append((choice, _after(back, _summing(shape, choice.shape))))
    return slopes[0].record.slopes(shape, *operands)


def _roll(x: RecordedSlopes, shift: Any, axis: Any) -> RecordedSlopes:
    # NumPy's own, as the rule gives it axes counted from the first
    shifts = tuple([-int(k) for k in (shift if isinstance(shift, tuple) else (shift,))])
    return x.record.slopes(x.shape, (x, lambda adjoint: np.roll(adjoint, shifts, axis)))


def _cumsum(x: RecordedSlopes, axis: int) -> RecordedSlopes:
    def back(adjoint: Array) -> Array:
        return np.flip(np.cumsum(np.flip(adjoint, axis), axis), axis)

    return x.record.slopes(x.shape, (x, back))


def _diff(x: RecordedSlopes, n: int = 1, axis: int = 0) -> RecordedSlopes:
    before = (slice(None),) * axis
    for _ in range(n):
        x = x[(*before, slice(1, None))] - x[(*before, slice(None, -1))]
    return x


def _einsum(subscripts: str, *operands: Any) -> RecordedSlopes:
    inputs, output = subscripts.split("->")
    terms = inputs.split(",")
    place = next(k for k, x in enumerate(operands) if type(x) is RecordedSlopes)
    slopes, term = operands[place], terms[place]
    others = [slopes.record.keep(x) for k, x in enumerate(operands) if k != place]
    named = [name for k, name in enumerate(terms) if k != place]
    known = set(output).union(*named)
    if "." in subscripts or len(set(term)) != len(term) or not known.issuperset(term):
        _refuse("such sums of products")
    shape = np.einsum(subscripts, *[np.broadcast_to(_ZERO, np.shape(x)) for x in operands]).shape
    rule = f"{','.join([output, *named])}->{term}"

    def back(adjoint: Array) -> Array:
        return np.einsum(rule, adjoint, *[other() for other in others])

    return slopes.record.slopes(shape, (slopes, back))


def _same(x: RecordedSlopes) -> RecordedSlopes:
    return x.copy()


_UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: _add,
    np.subtract: lambda x, y: _add(x, _multiply(-1.0, y)),
    np.multiply: _multiply,
    np.divide: lambda x, y: _multiply(x, 1.0 / y),
    np.negative: lambda x: _multiply(-1.0, x),
    np.positive: _same,
    np.matmul: _matmul,
}
"""What is linear in slopes."""

_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.copy: _same,
    np.real: lambda val: val,  # complex factors are refused
    np.sum: _sum,
    np.reshape: _reshape,
    np.transpose: _transpose,
    np.moveaxis: _moveaxis,
    np.broadcast_to: _broadcast_to,
    np.concatenate: _concatenate,
    np.where: _where,
    np.roll: _roll,
    np.cumsum: _cumsum,
    np.diff: _diff,
    np.einsum: _einsum,
}
