"""The interpolants of SciPy, which are objects of the user's and no functions of NumPy.

What is called with arrays of this package has to know them.  So while a callback is at work the
calls of SciPy's classes are others, here and nowhere else; each kind of array brings its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Call: TypeAlias = Callable[..., Any]
"""``call(interpolant, x, ...)``."""

PIECEWISE: tuple[str, ...] = ("PPoly", "BSpline", "UnivariateSpline")
"""Classes that are called with a point and the order of a derivative; others inherit from these."""

OTHERS: tuple[str, ...] = (
    "interp1d",
    "RegularGridInterpolator",
    "BarycentricInterpolator",
    "KroghInterpolator",
)


_CLASSES: dict[str, tuple[Any, Call]] = {}
"""SciPy's classes, and their own calls, once somebody has imported them."""


class InterpolantCalls:
    """A block in which the interpolants of SciPy take other numbers, if anybody has imported them.

    Parameters
    ----------
    rules : mapping of str to callable
        By the name of a class: ``rule(call) -> call``, what takes the place of its calls.
    """

    def __init__(self, rules: Mapping[str, Callable[[Call], Call]]) -> None:
        self._rules = rules
        self._calls: list[tuple[Any, Call]] = []
        self._replaced: list[tuple[Any, Call]] = []
        self._depth = 0

    def __enter__(self) -> None:
        """Replace the calls."""
        self._depth += 1
        module = sys.modules.get("scipy.interpolate")
        if self._depth > 1 or module is None:
            return
        if not self._calls:
            for name in (*PIECEWISE, *OTHERS):
                kind = getattr(module, name)
                _CLASSES.setdefault(name, (kind, kind.__call__))
            known = [(*_CLASSES[name], rule) for name, rule in self._rules.items()]
            self._calls = [(kind, rule(call)) for kind, call, rule in known]
        # those of a block around this one, perhaps
        self._replaced = [(kind, kind.__call__) for kind, _ in self._calls]
        for kind, call in self._calls:
            kind.__call__ = call

    def __exit__(self, *_error: object) -> None:
        """Put them back."""
        self._depth -= 1
        if not self._depth:
            for kind, call in self._replaced:
                kind.__call__ = call
