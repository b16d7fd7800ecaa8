"""What a function of a point sees, and what it returns, as numbers in the order of the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from daeosens.errors import InputError


class Point:
    """What a function of a point sees of the fields: values, derivatives, coordinates, normal.

    Attributes
    ----------
    value : array [F]
        The fields.
    x, normal : array [d]
        Coordinates; on a boundary the unit normal outwards.
    """

    def __init__(self, z: Any, count: int, x: Any, normal: Any) -> None:
        self.value, *self._derivatives = (z[k : k + count] for k in range(0, z.shape[0], count))
        self.x, self.normal = x, normal

    def gradient(self) -> list[Any]:
        """Return the derivatives [F] along x, y, z."""
        return self._derivatives


def of_domain(rhs: Callable[..., Any]) -> Callable[..., Any]:
    """Return source and flux of ``rhs`` in the order of the test functions."""

    def density(t: Any, u: Point, p: Any) -> list[Any]:
        source, flux = _two_parts(rhs(t, u, p))
        count, directions = len(u.value), len(u.gradient())
        if np.ndim(flux) == 0:
            flux = [flux] * directions
        if len(flux) != directions:
            raise InputError(
                f"rhs returns {len(flux)} fluxes", expected=f"{directions}, one for each direction"
            )
        parts = [_entries(source, count, "source"), *(_entries(q, count, "flux") for q in flux)]
        return [entry for part in parts for entry in part]

    return density


def _two_parts(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(cast("tuple[Any, ...]", result)) != 2:
        raise InputError(
            f"rhs returns {type(cast('object', result)).__name__}",
            expected="source, flux",
            remedy="return 0.0, [-p.rate * slope for slope in u.gradient()]",
        )
    return cast("tuple[Any, Any]", result)


def of_boundary(outflow: Callable[..., Any]) -> Callable[..., Any]:
    """Return what flows out, taken from the equation of each field."""

    def density(t: Any, u: Point, p: Any) -> list[Any]:
        return [-entry for entry in _entries(outflow(t, u, p), len(u.value), "outflow")]

    return density


def of_scalar(value: Callable[..., Any]) -> Callable[..., Any]:
    """Return a scalar as the first of what a function returns."""

    def density(t: Any, u: Point, p: Any) -> list[Any]:
        return [value(t, u, p)]

    return density


def _entries(values: Any, count: int, name: str) -> list[Any]:
    """Return a number for each field of an array, a sequence or one number."""
    entries = [values] * count if np.ndim(values) == 0 else list(values)
    if len(entries) != count:
        raise InputError(
            f"{name} has {len(entries)} entries", expected=f"{count}, as many as fields"
        )
    return entries
