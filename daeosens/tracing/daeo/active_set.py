"""Active sets as numbers: bit 2 i is the lower bound of y[i], bit 2 i + 1 the upper one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array

STATE = "active_set"
"""Name of the state that carries the number."""

MOST = 50
"""So many constraints, at most, are told apart by a number."""


def number_of(sides: npt.ArrayLike) -> Array:
    """Return the numbers [...] of active sets: -1, 0 or 1 for each y [..., n_y].

    Examples
    --------
    >>> number_of([[0, 0], [-1, 1]])
    array([0., 9.])
    """
    active = np.asarray(sides)
    weights: Array = 4.0 ** np.arange(active.shape[-1], dtype=float)
    return np.asarray((active < 0) @ weights + 2.0 * ((active > 0) @ weights))


def members(number: float) -> list[int]:
    """Return the constraints in an active set.

    Examples
    --------
    >>> members(9.0)
    [0, 3]
    """
    whole = int(number)
    return [k for k in range(whole.bit_length()) if whole >> k & 1]


def constraint(k: int, names: Sequence[str]) -> str:
    """Return a constraint in words.

    Examples
    --------
    >>> constraint(3, ["y[0]", "y[1]"])
    'y[1] at its upper bound'
    """
    return f"{names[k // 2]} at its {('lower', 'upper')[k % 2]} bound"


def words(number: float, names: Sequence[str]) -> str:
    """Return an active set in words.

    Examples
    --------
    >>> words(0.0, ["y"]), words(1.0, ["y"])
    ('free', 'y at its lower bound')
    """
    return ", ".join(constraint(k, names) for k in members(number)) or "free"
