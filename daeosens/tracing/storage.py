"""How arrays are stored in CasADi's graphs: as the transpose.

CasADi stores columns and NumPy rows: so the order of entries is the same, reshaping costs nothing,
and broadcasting aligns in both.  Arrays of more dimensions are matrices whose rows are those of
their first index.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.tracing.casadi import casadi


def stored(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the shape of the graph's matrix for an array of that shape.

    Examples
    --------
    >>> stored(()), stored((3,)), stored((2, 3)), stored((2, 3, 5))
    ((1, 1), (3, 1), (3, 2), (15, 2))
    """
    if len(shape) < 2:
        return (int(shape[0]) if shape else 1), 1
    return math.prod(map(int, shape[1:])), int(shape[0])


def flat(graph: Any) -> Any:
    """Return a graph's matrix as one column, in the row-major order of the array."""
    return casadi.vec(casadi.densify(graph))


def pick(graph: Any, positions: npt.NDArray[np.intp]) -> Any:
    """Return the stored form of an array of chosen entries, by slices where they are regular."""
    shape = stored(positions.shape)
    chosen = positions.ravel() - 1
    count = graph.numel()
    if chosen.size == count and (chosen == np.arange(count)).all():
        return casadi.reshape(casadi.densify(graph), *shape)
    if chosen.size == count and positions.shape == graph.shape:
        rows, columns = positions.shape
        if np.array_equal(positions, np.arange(1, count + 1).reshape(columns, rows).T):
            return casadi.densify(graph).T
    entries = flat(graph)
    if (chosen < 0).any():  # zeros among them
        entries, chosen = casadi.vertcat(entries, 0.0), np.where(chosen < 0, count, chosen)
    steps = np.unique(np.diff(chosen))
    if chosen.size > 1 and steps.size == 1 and steps[0] > 0:
        picked = entries[slice(int(chosen[0]), int(chosen[-1]) + 1, int(steps[0]))]
    else:
        picked = entries[chosen.tolist()]
    return casadi.reshape(picked, *shape)
