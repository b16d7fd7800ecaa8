"""Costs that are C functions with their derivatives, as the sweeps in C take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from daeosens.costs.cost import Densities, Scalar
from daeosens.costs.scalar import Callback
from daeosens.problem.problem import Problem

Address: TypeAlias = tuple[int, int]
"""Of a function, and of its user data; both 0 for a gradient that is zero."""

if TYPE_CHECKING:
    from daeosens.petsc._kernels.sweeps.point_costs import RunningCosts


def running_costs(problem: Problem, rows: Sequence[Densities]) -> RunningCosts | None:
    """Return the densities of each row: where they start, weights, functions, values, and room.

    None if one of them, or a gradient, is no C function.  A function is its address and that of its
    user data, both 0 for a gradient that is zero; the values [rows] are to be added to.
    """
    densities = [weighted for row in rows for weighted in row]
    functions = [_functions(density) for _, density in densities]
    if None in functions:
        return None
    return (
        np.cumsum([0, *(len(row) for row in rows)]),
        np.array([weight for weight, _ in densities]),
        np.array(functions, dtype=np.uintp),
        np.zeros(len(rows)),
        np.empty(max(problem.size, problem.n_parameters)),
    )


def first_order(scalar: Scalar) -> tuple[Address, Address, Address] | None:
    """Return where a cost and its gradients in u and p are in C, as ``add_point`` takes them.

    None if one of them is no C function.
    """
    if not isinstance(scalar, Callback):
        return None
    value, by_u, by_p, _ = scalar.in_c
    return None if value is None or by_u is None or by_p is None else (value, by_u, by_p)


def point_functions(scalar: Scalar) -> tuple[tuple[int, int], ...] | None:
    """Return where a cost's gradients in u and p and its Hessian product are in C.

    As ``SecondSweep.add`` takes them; None if one of them is no C function.
    """
    return _all_in_c(scalar, 1, 4)


def _functions(density: Scalar) -> tuple[int, ...] | None:
    functions = _all_in_c(density, 0, 3)
    return (
        None
        if functions is None
        else tuple(number for function in functions for number in function)
    )


def _all_in_c(scalar: Scalar, first: int, last: int) -> tuple[tuple[int, int], ...] | None:
    if not isinstance(scalar, Callback):
        return None
    functions = scalar.in_c[first:last]
    return None if None in functions else functions  # pyright: ignore[reportReturnType]
