"""Running costs that are C functions with their gradients, as the sweeps in C take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from daeosens.compiled import Compiled
from daeosens.cost import INDEPENDENT, Cost, Scalar
from daeosens.problem import Problem
from daeosens.scalars import Callback

if TYPE_CHECKING:
    from daeosens._petsc.sweeps import RunningCosts


def running_costs(problem: Problem, costs: Sequence[Cost]) -> RunningCosts | None:
    """Return the densities of each cost: where they start, weights, functions, values, and room.

    None if one of them, or a gradient, is no C function.  A function is its address and that of its
    user data, both 0 for a gradient that is zero; the values [costs] are to be added to.
    """
    densities = [each for cost in costs for each in cost.densities]
    functions = [_functions(density) for _, density in densities]
    if None in functions:
        return None
    return (
        np.cumsum([0, *(len(cost.densities) for cost in costs)]),
        np.array([weight for weight, _ in densities]),
        np.array(functions, dtype=np.uintp),
        np.zeros(len(costs)),
        np.empty(max(problem.size, problem.n_parameters)),
    )


def _functions(density: Scalar) -> tuple[int, ...] | None:
    if not isinstance(density, Callback) or not isinstance(density.function, Compiled):
        return None
    addresses: list[int] = []
    for each in (density.function, density.given.u, density.given.p):
        if isinstance(each, Compiled):
            addresses += each.native.address, each.native.user_data
        elif each == INDEPENDENT:
            addresses += 0, 0
        else:
            return None
    return tuple(addresses)
