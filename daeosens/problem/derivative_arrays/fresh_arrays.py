"""Arrays that a callback makes and fills."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false, reportPrivateUsage=false
from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.arrays import (
    FILL,
    FUNCTIONS,
    DerivativeArray,
    Fillable,
    admitted,
    as_array,
    constant,
    keys,
    put_into,
    refuse_text,
)
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError

_ARRAY = np.array


class FreshArray(Fillable):
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
            # a view is made anew from its origin once that carries derivatives: NumPy's views share
            # memory with an array of floats, which has no room for slopes
            whole = self._origin.now()
            return self._view(whole) if type(whole) is DerivativeArray else self._value
        return self._value if self._slopes is None else self._slopes

    def __getitem__(self, key: Any) -> Any:
        key = keys(key)[0]
        return self._seen(lambda array: array[key])

    def _seen(self, view: Callable[[Any], Any]) -> Any:
        """Return a part or another form; later assignments to either show in both."""
        now = self.now()
        if type(now) is DerivativeArray:
            return view(now)
        value = view(now)
        # what copies (fancy indexing) is on its own, as in NumPy
        if isinstance(value, np.ndarray) and np.may_share_memory(value, now):
            return FreshArray(value, self, view)
        return value

    def __setitem__(self, key: Any, assigned: Any) -> None:
        assigned = admitted(assigned)
        if isinstance(assigned, list):
            assigned = as_array(assigned)
        # the first number that varies: from now on the whole array has slopes, views of it too
        if type(assigned) is DerivativeArray:
            self._vary()
        now = self.now()
        if type(now) is np.ndarray:
            now[keys(key)[0]] = assigned
        else:
            now[key] = assigned

    def _vary(self) -> None:
        origin = self
        while origin._origin is not None:
            origin = origin._origin
        if origin._slopes is not None:
            return
        # someone has kept the plain memory: they would not see what is assigned from here on
        if origin._locked:
            raise DerivativeLostError("an array that was handed on before it was filled", FILL)
        if origin._value.dtype.char not in "dD":
            raise DerivativeLostError(
                f"numbers that vary in an array of {origin._value.dtype}", "dtype=float"
            )
        # slopes of zero until something that varies is assigned
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
        # protocols of Python and NumPy, ``copy.copy`` among them, are asked of the type
        if name.startswith("__"):
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
        if (
            method == "at"
        ):  # np.add.at(out, places, u): an assignment, and ``out`` varies from now on
            target, *operands = inputs
            operands = [admitted(operand) for operand in operands]
            if type(target) is FreshArray and any(
                type(operand) is DerivativeArray for operand in operands
            ):
                target._vary()
            inputs = (target, *operands)
        inputs = tuple([admitted(operand) for operand in inputs])
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
        # a function that may return a view of its argument, or keep it
        if function not in _COPYING:
            for operand in (*arguments, *options.values()):
                if type(operand) is FreshArray:
                    operand._lock()
        result = function(
            *[all_now(argument) for argument in arguments],
            **{name: all_now(option) for name, option in options.items()},
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


def all_now(x: Any) -> Any:
    """Return fresh arrays, in lists too, as they are now."""
    if type(x) is list or type(x) is tuple:
        return type(x)([all_now(element) for element in x])
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
        return function(self.now(), all_now(other))

    def backward(self: FreshArray, other: Any) -> Any:
        return function(all_now(other), self.now())

    def in_place(self: FreshArray, other: Any) -> Any:
        self[...] = function(self.now(), all_now(other))
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
        lambda self, other, _function=_function: _function(self.now(), all_now(other)),
    )
for _name in ("neg", "pos", "abs", "invert"):
    _function = getattr(operator, _name)
    setattr(FreshArray, f"__{_name}__", lambda self, _function=_function: _function(self.now()))
