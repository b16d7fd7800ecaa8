"""Functions that are constant between jumps: places, shapes, comparisons, rounding, text."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.arrays import (
    FUNCTIONS,
    as_array,
    moving,
    note_branch,
    note_whole,
    refuse_decimals,
    refuse_text,
)
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError, users_frame
from daeosens.problem.derivative_arrays.rules import by_places, by_values, on_values


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a comparison that holds at one point only where it holds between numbers that vary."""

    def rule(x: Any, y: Any, *arguments: Any, **options: Any) -> Any:
        result = on_values(function, x, y, *arguments, **options)
        if np.any(result):
            x, y = as_array(x), as_array(y)
            # equal numbers that move apart: what is kept for one is not right for the other's
            # derivative
            if np.any(result & (moving(x) | moving(y)) & moving(x - y)):
                raise DerivativeLostError(
                    f"np.{function.__name__} of numbers that vary, whose branch holds at one point "
                    "(and around it for the numbers, not for their derivatives),",
                    "what is computed anew in the place of what is kept; >= or <= for a side; "
                    "np.sinc, np.expm1, np.log1p in the place of a limit",
                )
        return result

    return rule


def _isin(x: Any, y: Any, **options: Any) -> Any:
    result = on_values(np.isin, x, y, **options)
    if np.any(result) and (moving(as_array(x)).any() or moving(as_array(y)).any()):
        raise DerivativeLostError(
            "np.isin of numbers that vary, which holds at one point only,",
            "what is computed anew in the place of what is kept; np.rint for a flag",
        )
    return result


def _histogram(x: Any, *arguments: Any, **options: Any) -> Any:
    inputs = [x, *arguments, *options.values()]
    if any(moving(as_array(value)).any() for value in inputs):
        raise DerivativeLostError(
            "np.histogram", "np.bincount(np.digitize(x, edges) - 1, weights, minlength)"
        )
    return on_values(np.histogram, x, *arguments, **options)


def _rounded(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(x: Any, decimals: Any = 0) -> Any:
        refuse_decimals(x, decimals)
        return note_whole(on_values(function, x, decimals))

    return rule


def _not_zero(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(x: Any, *arguments: Any, **options: Any) -> Any:
        note_branch(x)
        return on_values(function, x, *arguments, **options)

    return rule


def _text(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(x: Any, *arguments: Any, **options: Any) -> Any:
        frame = users_frame(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        if frame is not None:
            refuse_text(x, frame)
        return on_values(function, x, *arguments, **options)

    return rule


FUNCTIONS[np.histogram] = _histogram
FUNCTIONS[np.isin] = _isin
for _function in (np.array_equal, np.array_equiv, np.allclose, np.isclose):
    FUNCTIONS[_function] = _same(_function)
for _function in (np.round, np.around):
    FUNCTIONS[_function] = _rounded(_function)
for _function in (np.array_repr, np.array_str, np.array2string):
    FUNCTIONS[_function] = _text(_function)

# what is a number of places, a shape or a step is constant between jumps
for _function in (
    *(np.shape, np.size, np.ndim, np.any, np.all, np.iscomplexobj),
    *(np.isrealobj, np.isreal, np.iscomplex),
    *(np.isposinf, np.isneginf, np.result_type),
    *(np.may_share_memory, np.shares_memory),
    *(np.linalg.matrix_rank, np.common_type),
):
    FUNCTIONS[_function] = by_values(_function)
for _function in (
    *(np.argmax, np.argmin, np.argsort, np.searchsorted, np.digitize, np.lexsort, np.fix),
    *(np.nanargmax, np.nanargmin, np.argpartition),
):
    FUNCTIONS[_function] = by_places(_function)
for _function in (np.argwhere, np.nonzero, np.flatnonzero, np.count_nonzero):
    FUNCTIONS[_function] = _not_zero(_function)
