"""What no array of symbols can do, and where NumPy's functions find what they do with one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from daeosens.tracing.places import untraceable
from daeosens.tracing.ufuncs import UFUNCS

ARRAY_FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""What NumPy's functions do with symbols; filled by ``numpy_functions``."""

REDUCTIONS: dict[Any, Any] = {}
"""NumPy functions by the ufunc whose ``reduce`` they are."""

_BRANCH = "np.where(condition, first, second), or np.maximum and np.minimum"


class Unknown:
    """Something without a value: what wants one is an error with the line and the remedy."""

    def __bool__(self) -> bool:
        raise untraceable("a branch depends on the data", _BRANCH)

    def __float__(self) -> float:
        raise untraceable(
            "a number is wanted where a symbol stands: math.* and arrays of floats take none",
            "np.* for math.*, np.array([...]) or np.zeros_like(u) for np.zeros(n)",
        )

    __int__ = __complex__ = __float__

    def __index__(self) -> int:
        raise untraceable("an index depends on the data", "np.where instead of an index")

    def __array_function__(self, function: Any, _types: Any, arguments: Any, options: Any) -> Any:
        if function not in ARRAY_FUNCTIONS:
            raise untraceable(
                f"{function.__module__}.{function.__name__} is not known here".replace(
                    "numpy", "np"
                ),
                "the functions listed in docs/tracing.md, or ODE(...) with callbacks",
            )
        return ARRAY_FUNCTIONS[function](*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        """Return a NumPy function as a method, as arrays have many of them."""
        function: Any = getattr(np, name, None)
        if function in ARRAY_FUNCTIONS or function in UFUNCS:
            return partial(function, self)
        raise AttributeError(f"arrays of symbols have no {name!r}")
