"""Active sets as numbers: bit 2 i is the lower bound of y[i], bit 2 i + 1 the upper one.

The bits after those of bounds are of constraints g.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array

STATE = "active_set"
"""Name of the state that carries the number."""

MOST = 50
"""So many constraints, at most, are told apart by a number."""


def number_of(active: npt.ArrayLike, n_y: int) -> Array:
    """Return the numbers [...] of active sets [..., n_y + m].

    -1, 0 or 1 for each y, then 1 for each g that is active, or 0.

    Examples
    --------
    >>> number_of([[0, 0, 0], [-1, 1, 0], [0, 0, 1]], 2)
    array([ 0.,  9., 16.])
    """
    sides, limits = np.split(np.asarray(active), [n_y], axis=-1)
    weights: Array = 4.0 ** np.arange(n_y, dtype=float)
    of_limits: Array = 4.0**n_y * 2.0 ** np.arange(limits.shape[-1], dtype=float)
    of_bounds = (sides < 0) @ weights + 2.0 * ((sides > 0) @ weights)
    return np.asarray(of_bounds + (limits > 0) @ of_limits)


def members(number: float) -> list[int]:
    """Return the constraints in an active set.

    Examples
    --------
    >>> members(9.0)
    [0, 3]
    """
    whole = int(number)
    return [k for k in range(whole.bit_length()) if whole >> k & 1]


def turned(number: float, constraints: Sequence[int]) -> float:
    """Return an active set with some constraints the other way.

    Examples
    --------
    >>> turned(9.0, [0, 1])
    10.0
    """
    return float(int(number) ^ sum(1 << k for k in constraints))


def turns(number: float, k: int, n_y: int) -> list[list[int]]:
    """Return the constraints that may turn where one does: one of n_y active ones leaves for it.

    Examples
    --------
    >>> turns(9.0, 4, 2), turns(9.0, 0, 2)
    ([[4, 0], [4, 3]], [[0]])
    """
    active = members(number)
    full = k not in active and len(active) >= n_y
    return [[k, j] for j in active] if full else [[k]]


def constraint(k: int, names: Sequence[str]) -> str:
    """Return a constraint in words.

    Examples
    --------
    >>> constraint(3, ["y[0]", "y[1]"])
    'y[1] at its upper bound'
    """
    if k >= 2 * len(names):
        return f"constraint {k - 2 * len(names)}"
    return f"{names[k // 2]} at its {('lower', 'upper')[k % 2]} bound"


def words(number: float, names: Sequence[str]) -> str:
    """Return an active set in words.

    Examples
    --------
    >>> words(0.0, ["y"]), words(1.0, ["y"])
    ('free', 'y at its lower bound')
    """
    return ", ".join(constraint(k, names) for k in members(number)) or "free"
