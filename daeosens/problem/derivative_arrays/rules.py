"""What the rules of NumPy's functions are written with."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daeosens.petsc._kernels import DerivativeNumber
from daeosens.problem.derivative_arrays.arrays import (
    DerivativeArray,
    as_array,
    moving,
    note_whole,
    primal,
)
from daeosens.problem.derivative_arrays.callback_at_work import DerivativeLostError

Partial = Callable[..., Any] | float | None
"""``(*inputs, result) -> derivative``; None where nobody knows it."""


def varies(x: Any) -> bool:
    """Whether x carries derivatives."""
    return type(x) is DerivativeArray or type(x) is DerivativeNumber


def value_of(x: Any) -> Any:
    """Return the value."""
    return x.value if varies(x) else x


def weighted(weight: Any, slopes: Any) -> Any:
    """Return a derivative [...] times slopes [..., K]."""
    return weight[..., None] * slopes if getattr(weight, "shape", ()) else weight * slopes


def spread(slopes: Any, shape: tuple[int, ...]) -> Any:
    """Return slopes [..., K] of a value that was broadcast to a shape, and may be written to."""
    if slopes.shape[:-1] == shape:
        return slopes
    return np.broadcast_to(slopes, (*shape, slopes.shape[-1])).copy()


def guarded_weight(weight: Any, slopes: Any) -> Any:
    """Return the same as ``weighted``, and 0 where an infinite derivative meets a slope of 0."""
    size = primal(weight)
    # nearly always: the product of infinity and 0 is looked for only where there is infinity
    if np.isfinite(size).all():
        return weighted(weight, slopes)
    # sqrt at 0 along a direction that does not move it: 0, not infinity times 0
    product = weighted(weight, slopes)
    return np.where((primal(slopes) != 0) | moving(slopes), product, 0.0)


def apart(result: Any, terms: Sequence[tuple[Any, Any]], combine: Callable[..., Any]) -> Any:
    """Return a result with the sum of its derivatives times slopes."""
    total: Any = None
    for weight, slopes in terms:
        term = combine(weight, slopes)
        total = term if total is None else total + term
    return DerivativeArray(result, spread(total, result.shape))


def elementwise(*partials: Partial, combine: Callable[..., Any] = weighted) -> Callable[..., Any]:
    """Return the rule of a ufunc with these derivatives in its arguments."""

    def rule(ufunc: np.ufunc, *inputs: Any) -> Any:
        inputs = tuple([as_array(x) if isinstance(x, list) else x for x in inputs])
        values = [value_of(x) for x in inputs]
        result = ufunc(*values)
        # chain rule: the sum over the arguments that vary
        terms: list[tuple[Any, Any]] = []
        for x, partial in zip(inputs, partials, strict=True):
            if not varies(x):
                continue
            if partial is None:
                raise DerivativeLostError(
                    f"'{ufunc.__name__}' in that argument", "a constant in its place"
                )
            # values may carry derivatives themselves (second order): then the partial derivative
            # does as well
            weight = partial(*values, result) if callable(partial) else partial
            terms.append((weight, x.slopes))
        return apart(result, terms, combine)

    return rule


def singular(*partials: Partial) -> Callable[..., Any]:
    """Return the same where derivatives may be infinite."""
    return elementwise(*partials, combine=guarded_weight)


def on_values(ufunc: Any, *inputs: Any, **options: Any) -> Any:
    """Return what is constant between jumps."""
    return ufunc(
        *[values_of(x) for x in inputs], **{name: values_of(x) for name, x in options.items()}
    )


def values_of(x: Any) -> Any:
    """Return the values of an array, or of those in a list."""
    if isinstance(x, (list, tuple)):
        return type(x)([values_of(element) for element in x])
    return primal(x)


def refuse_derivatives(function: Callable[..., Any], things: Sequence[Any]) -> None:
    """Refuse arguments that vary where no derivative is known."""
    for thing in things:
        if varies(thing) or (isinstance(thing, list) and varies(as_array(thing))):
            raise DerivativeLostError(
                f"np.{function.__name__} in that argument", "a constant there"
            )


def axis_number(axis: int, ndim: int) -> int:
    """Return the number of an axis, counted from the first."""
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis % ndim


def axis_numbers(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the numbers of axes; of all for None."""
    if axis is None:
        return tuple(range(ndim))
    several = axis if isinstance(axis, tuple) else (axis,)
    return tuple([axis_number(int(number), ndim) for number in several])


def into(out: Any, result: Any) -> Any:
    """Write a result to what was given as ``out=``, if anything was."""
    if out is None:
        return result
    out[...] = result
    return out


def by_places(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of a function whose result are whole numbers, constant between jumps."""

    def rule(*arguments: Any, **options: Any) -> Any:
        return note_whole(on_values(function, *arguments, **options))

    return rule


def by_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of a function that is constant between jumps."""

    def rule(*arguments: Any, **options: Any) -> Any:
        return on_values(function, *arguments, **options)

    return rule
