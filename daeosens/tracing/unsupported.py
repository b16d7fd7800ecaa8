"""What no array of symbols can do, and where NumPy's functions find what they do with one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from daeosens.errors import InputError
from daeosens.tracing.source_location import SymbolLostError, called_within, untraceable
from daeosens.tracing.ufuncs import UFUNCS

ARRAY_FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""What NumPy's functions do with symbols; filled by ``numpy_functions`` and ``formulas``."""

REDUCTIONS: dict[Any, Any] = {}
"""NumPy functions by the ufunc whose ``reduce`` they are."""

_LISTED = "the functions listed in docs/tracing.md, or ODE(...) with callbacks"
_ORDER = "np.maximum, np.minimum and np.where: an order depends on the data"
_SOLVE = "inverses of constants, made outside; a singular mass, to solve in each step"
_ROUNDING = ("round", "around", "rint")
_INSTEAD = {
    **dict.fromkeys(("tensordot", "kron"), "np.einsum, @ and np.outer"),
    **dict.fromkeys(("det", "lstsq", "pinv"), _SOLVE),
    **dict.fromkeys(("sort", "argsort", "argmax", "argmin", "median"), _ORDER),
    **dict.fromkeys(_ROUNDING, "np.floor(x + 0.5)"),
    **dict.fromkeys(("any", "all"), "np.max or np.min of 1.0 * condition; | and & of two of them"),
    **dict.fromkeys(("gradient", "convolve", "split", "insert"), "slices and np.concatenate"),
    "piecewise": "np.where, or np.select",
    "nan_to_num": "np.where(np.isnan(x), 0.0, x)",
}


def unknown(function: str, name: str) -> InputError:
    """Make the error for a function that has no graph, with what to write in its place."""
    instead = _INSTEAD.get(name, _LISTED)
    more = "" if instead == _LISTED or name in _ROUNDING else "; or ODE, which takes it"
    return untraceable(f"{function} is not known here", instead + more)


_BRANCH = (
    "np.where(condition, first, second), or np.maximum and np.minimum; or ODE, which goes by values"
)


BASIS = (
    "splines are linear in their values: basis = CubicSpline(knots, np.eye(len(knots))), made once "
    "outside, and basis(x) @ values"
)


class Unknown:
    """Something without a value: what wants one is an error with the line and the remedy."""

    def __bool__(self) -> bool:
        raise untraceable("a branch depends on the data", _BRANCH)

    def __float__(self) -> float:
        if called_within("scipy.interpolate"):
            raise untraceable(
                "an interpolant is made of values that are symbols", BASIS, SymbolLostError
            )
        raise untraceable(
            "a number is wanted where a symbol stands: math.* and arrays of floats take none",
            "np.* for math.*, np.array([...]) or np.zeros_like(u) for np.zeros(n), and no "
            "float(); or ODE, which knows more of NumPy and SciPy",
            SymbolLostError,
        )

    __complex__ = __float__

    def __int__(self) -> int:
        raise untraceable(
            "a whole number is wanted where a symbol stands: int() and arrays of whole numbers "
            "take none",
            "np.floor for int(); where it is the place in a table read by the time, "
            "problem.PiecewiseConstant with breakpoints=; or ODE, which takes int(t)",
            SymbolLostError,
        )

    def __index__(self) -> int:
        raise untraceable("an index depends on the data", "np.where instead of an index; or ODE")

    def __array_function__(self, function: Any, _types: Any, arguments: Any, options: Any) -> Any:
        if function not in ARRAY_FUNCTIONS:
            module = function.__module__.replace("numpy", "np")
            raise unknown(f"{module}.{function.__name__}", function.__name__)
        return ARRAY_FUNCTIONS[function](*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        """Return a NumPy function as a method, as arrays have many of them."""
        function: Any = getattr(np, name, None)
        # u.sum() is np.sum(u), and so on
        if function in ARRAY_FUNCTIONS or function in UFUNCS:
            return partial(function, self)
        raise AttributeError(f"arrays of symbols have no {name!r}")
