"""Evaluation of callbacks with arrays that carry derivatives."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false, reportPrivateUsage=false
from __future__ import annotations

import inspect
import math
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.fft
from scipy import sparse, special

from daeosens.petsc._kernels import DerivativeNumber
from daeosens.problem.clock import Clock
from daeosens.problem.derivative_arrays.arrays import (
    BRANCHES,
    DENOMINATORS,
    DerivativeArray,
    Whole,
    admitted,
    as_array,
    joined,
    sparse_times,
)
from daeosens.problem.derivative_arrays.callback_at_work import (
    AT_WORK,
    AtWork,
    DerivativeLostError,
    of_users,
)
from daeosens.problem.derivative_arrays.fresh_arrays import FreshArray, all_now
from daeosens.problem.derivative_arrays.imported_names import Place, Replacements, put_back
from daeosens.problem.derivative_arrays.points import PointArray
from daeosens.problem.derivative_arrays.recorded_slopes import Record
from daeosens.problem.derivative_arrays.special_functions import logarithm_of_sum
from daeosens.problem.derivative_arrays.splines import OF_CLOCKS, WITH_DERIVATIVES


def _at_work() -> bool:
    """Whether whoever calls the caller is the callback at work, or one of its helpers."""
    # asked by every function of NumPy that callbacks call, in loops over runs where none is at work
    if not AT_WORK:
        return False
    return AT_WORK[-1].thread == threading.get_ident() and of_users(sys._getframe(2))


def _making(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's function that makes an array, which the callback may fill."""

    def make(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        # np.zeros(n) is filled by most callbacks, with numbers that vary: it has to be able to take
        # them
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
            # NumPy's own would ask each number for a float, and lose its slopes
            array: Any = joined(thing)
        elif kind is FreshArray and not copies:
            return thing
        else:
            array = admitted(thing)
        if type(array) is not DerivativeArray:
            result = original(all_now(thing), *arguments, **options)
            fillable = result.dtype.kind in "fc" and (copies or result is not thing)
            return FreshArray(result) if fillable else result
        dtype = arguments[0] if arguments else options.get("dtype")
        if dtype is not None and np.dtype(dtype) != array.dtype:
            array = array.astype(dtype)
        elif copies and array is thing:
            array = array.copy()
        while len(array.shape) < options.get("ndmin", 0):
            array = array[None]
        return array

    return make


def _concatenating(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``np.concatenate`` or one of its like that takes lists of numbers which vary."""

    def join(arrays: Any, *arguments: Any, **options: Any) -> Any:
        if type(arrays) in (list, tuple) and _at_work():
            # NumPy hands on what is an array itself, and does not look into lists beside it
            parts = [joined(part) if type(part) in (list, tuple) else part for part in arrays]
            pairs = zip(parts, arrays, strict=True)
            arrays = [part if type(part) is DerivativeArray else kept for part, kept in pairs]
        return original(arrays, *arguments, **options)

    return join


def _taking_lists(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy that takes lists of numbers which vary, ``[0.0, p[0], p[0]]``."""

    def call(*arguments: Any, **options: Any) -> Any:
        if _at_work():
            # NumPy looks for arrays among the arguments themselves, and not into lists
            arguments = tuple([_with_slopes(argument) for argument in arguments])
            options = {name: _with_slopes(option) for name, option in options.items()}
        return original(*arguments, **options)

    return call


def _with_slopes(argument: Any) -> Any:
    if type(argument) not in (list, tuple):
        return argument
    array = joined(argument)
    return array if type(array) is DerivativeArray else argument


def _varying(original: Callable[..., Any], rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of SciPy that is another one where its first argument varies."""

    def call(x: Any, *arguments: Any, **options: Any) -> Any:
        array = admitted(joined(x) if type(x) in (list, tuple) and _at_work() else x)
        if type(array) is DerivativeArray:
            return rule(array, *arguments, **options)
        return original(all_now(x), *arguments, **options)

    return call


def _transforming(original: Callable[..., Any], of_numpy: Callable[..., Any]) -> Callable[..., Any]:
    """Return a transform of ``scipy.fft`` that is NumPy's where its argument varies."""

    def transform(x: Any, *arguments: Any, **options: Any) -> Any:
        # NumPy has no choice of threads and memory
        for name in ("overwrite_x", "workers", "plan"):
            options.pop(name, None)
        return of_numpy(x, *arguments[:3], **options)

    return _varying(original, transform)


def _along_one_axis(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a linear transform along an axis that takes arrays which vary."""
    signature = inspect.signature(original)

    def transform(x: Any, *arguments: Any, **options: Any) -> Any:
        bound = signature.bind(x, *arguments, **options)
        bound.arguments["axis"] = bound.arguments.get("axis", -1) % x.ndim
        _, *rest = bound.args
        parts = [call(part, *rest, **bound.kwargs) for part in (x.value, x.slopes)]
        return DerivativeArray(*parts)

    call = _varying(original, transform)
    return call


def _vectorized(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        arrays = [admitted(argument) for argument in arguments]
        if not any(type(array) is DerivativeArray for array in arrays):
            return original(self, *arguments, **options)
        if self.signature is not None or options:
            raise DerivativeLostError(
                "np.vectorize with a signature or keywords", "positional arguments"
            )
        # np.vectorize hands plain numbers on: done here entry by entry, as it says it does
        shape = np.broadcast_shapes(*[np.shape(array) for array in arrays])
        spread = [np.broadcast_to(array, shape).reshape(-1) for array in arrays]
        results = [self.pyfunc(*entry) for entry in zip(*spread, strict=True)]
        return as_array(results).reshape(shape)

    return call


def _mathematical(name: str) -> Callable[..., Any]:
    original, of_numpy = getattr(math, name), numpy_of_math(name)

    def call(*arguments: Any) -> Any:
        for argument in arguments:
            if type(argument) in (DerivativeArray, DerivativeNumber, Clock, PointArray):
                # math.sin takes floats alone: numbers that vary go to NumPy's function of that name
                return of_numpy(*arguments)
        return original(*arguments)

    return call


def numpy_of_math(name: str) -> Callable[..., Any]:
    """Return what does with arrays what a function of ``math`` does with numbers."""
    if name in _MATH:
        return _MATH[name]
    inverse = name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
    others = {"pow": "power", "atan2": "arctan2"}
    return getattr(np, others.get(name, name.replace("a", "arc", 1) if inverse else name))


_MATH: dict[str, Callable[..., Any]] = {
    "fabs": np.abs,
    "log": lambda x, *base: np.log(x) / np.log(base[0]) if base else np.log(x),
    "hypot": lambda *x: np.linalg.norm(as_array(list(x))),
    "dist": lambda x, y: np.linalg.norm(as_array(list(x)) - as_array(list(y))),
    "fsum": sum,
    **{name: getattr(special, name) for name in ("erf", "erfc", "gamma")},
    "lgamma": special.gammaln,
}
"""Functions of ``math`` that NumPy has not by that name, or not for all arguments."""

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
    "concatenate": _concatenating(np.concatenate),
    "hstack": _concatenating(np.hstack),
    **{
        name: _taking_lists(getattr(np, name))
        for name in ("interp", "mean", "average", "median", "std", "var")
    },
}
_IN_LINALG: dict[str, Any] = {
    name: _taking_lists(getattr(np.linalg, name))
    for name in ("solve", "inv", "det", "eigvalsh", "lstsq", "pinv")
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
MATHEMATICAL = tuple(_IN_MATH)
"""Functions of ``math`` that take numbers which vary."""

_IN_FFT: dict[str, Any] = {
    **{
        name: _transforming(getattr(scipy.fft, name), getattr(np.fft, name))
        for kind in ("fft", "ifft", "rfft", "irfft")
        for name in (kind, f"{kind}2", f"{kind}n")
    },
    **{name: _along_one_axis(getattr(scipy.fft, name)) for name in ("dct", "idct", "dst", "idst")},
}
_IN_SPECIAL: dict[str, Any] = {"logsumexp": _varying(special.logsumexp, logarithm_of_sum)}
_REPLACED = Replacements(
    (np.__dict__, _IN_NUMPY),
    (np.linalg.__dict__, _IN_LINALG),
    (math.__dict__, _IN_MATH),
    (scipy.fft.__dict__, _IN_FFT),
    (special.__dict__, _IN_SPECIAL),
)
_OF_CLOCKS = Replacements((math.__dict__, _IN_MATH))
_VECTORIZE = np.vectorize.__call__
_VECTORIZED = _vectorized(_VECTORIZE)
_SPARSE: Any = vars(vars(sparse)["_base"])["_spbase"]
_MATMUL: Any = _SPARSE._matmul_dispatch


class _Libraries:
    """Libraries some of whose functions are replaced while callbacks are at work."""

    def __init__(self) -> None:
        self.replaced = False
        self.loops = 0

    def replace(self) -> None:
        """Replace them, if that is not done already."""
        if self.replaced:
            return
        self.replaced = True
        _REPLACED.in_libraries()
        np.vectorize.__call__ = _VECTORIZED  # type: ignore[method-assign]
        _SPARSE._matmul_dispatch = _sparse_matmul

    def take_back(self) -> None:
        """Put them back, if no callback is at work and no loop over many calls goes on."""
        if not self.replaced or AT_WORK or self.loops:
            return
        self.replaced = False
        _REPLACED.take_back()
        np.vectorize.__call__ = _VECTORIZE  # type: ignore[method-assign]
        _SPARSE._matmul_dispatch = _MATMUL


_LIBRARIES = _Libraries()


@contextmanager
def many_evaluations() -> Generator[None]:
    """Let functions of libraries be replaced once for all evaluations in a loop.

    To replace them and put them back takes a third of the evaluation of a small callback.  What is
    called beside the callbacks meanwhile meets them too: they do as the functions themselves.
    """
    _LIBRARIES.loops += 1
    try:
        yield
    finally:
        _LIBRARIES.loops -= 1
        _LIBRARIES.take_back()


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
    points: int = 0,
    record: Record | None = None,
) -> Any:
    """Return what a callback makes of arguments that carry derivatives.

    Functions that NumPy does not hand on see derivatives meanwhile, if the callback calls them or a
    helper that is in no other library: ``np.zeros(n)`` makes arrays that can be filled,
    ``np.array([...])``, ``np.interp(t, [...], [...])`` and ``math.sin`` take numbers that vary; so
    do these where the callback's module has them by name, ``from math import sin``.

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
    points : int
        How many points arguments are of (``PointArray``); 0 for arrays of one point.
    record : Record, optional
        What records the operations on slopes, where these are not numbers.
    """
    # NumPy's namespace is changed while callbacks are at work, and only for them (``_at_work``):
    # nested evaluations, of a callback that solves for something, change it once
    _LIBRARIES.replace()
    AT_WORK.append(AtWork(directions, threading.get_ident(), home, points, record))
    replaced: Sequence[Place] = ()
    try:
        replaced = _REPLACED.in_names_of(function)
        # warnings of 0/0 inside of np.where are for values, which were warned of without
        # derivatives
        with np.errstate(all="ignore"), WITH_DERIVATIVES:
            return as_array(function(*arguments))
    finally:
        put_back(replaced)
        AT_WORK.pop()
        _LIBRARIES.take_back()


def call_at(function: Callable[..., Any], clock: Clock, arguments: Sequence[Any]) -> Any:
    """Return what a callback makes of a clock and numbers.

    ``math`` and the interpolants of SciPy take clocks meanwhile.
    """
    if AT_WORK:  # which knows both already
        with np.errstate(all="ignore"):
            return function(clock, *arguments)
    if not _LIBRARIES.replaced:
        _OF_CLOCKS.in_libraries()
    replaced = _OF_CLOCKS.in_names_of(function)
    try:
        with np.errstate(all="ignore"), OF_CLOCKS:
            return function(clock, *arguments)
    finally:
        put_back(replaced)
        if not _LIBRARIES.replaced:
            _OF_CLOCKS.take_back()


def denominators(
    function: Callable[..., Any], arguments: Sequence[Any], home: str, points: int
) -> Any:
    """Return what [K, D] a callback divides by at K points, of what varies.

    Arguments as of ``branches``.
    """
    DENOMINATORS.append([])
    try:
        evaluate(function, arguments, (1,), home, points)
    finally:
        noted = DENOMINATORS.pop()
    rows = [part.entries.reshape(-1, part.entries.shape[-1]) for part in noted]
    flat = [np.broadcast_to(row, (len(row), points)) for row in rows]
    return np.concatenate(flat).T if flat else np.empty((points, 0))


def branches(
    function: Callable[..., Any], arguments: Sequence[Any], home: str = "", points: int = 0
) -> Any:
    """Return what [B] decides how a callback goes on, and whether [B] as a whole number.

    In the order met; of others, differences, the sign decides.  At K ``points`` it is [K, B].

    Parameters
    ----------
    function : callable
        The callback.
    arguments : sequence
        Of it; those that vary as arrays with slopes along one direction.
    home : str
        As for ``evaluate``.
    """
    # one direction is enough: what decides are the values
    BRANCHES.append([])
    try:
        evaluate(function, arguments, (1,), home, points)
    finally:
        noted = BRANCHES.pop()
    parts = [part.numbers if isinstance(part, Whole) else part for part in noted]
    whole = np.repeat([isinstance(part, Whole) for part in noted], [len(part) for part in parts])
    if points:
        values = np.empty((points, len(whole)))
        ends = np.cumsum([0, *map(len, parts)])
        for part, first, last in zip(parts, ends, ends[1:], strict=False):
            # what is the same at all points has no axis for them
            several = type(part) is PointArray
            values[:, first:last] = part.entries.T if several else part
        return values, whole.astype(bool)
    if not parts:
        return np.empty(0), np.empty(0, dtype=bool)
    return np.concatenate([np.asarray(part) for part in parts]), whole
