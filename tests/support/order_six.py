"""Second derivatives of a program by differences of order six of its first ones."""

from __future__ import annotations

from collections.abc import Callable

from daeosens.petsc.vectors import Array

WEIGHTS = {1: 0.75, 2: -0.15, 3: 1 / 60}


def bend(slope: Callable[[Array, Array], float], x: Array, along: Array, other: Array) -> float:
    """Return the derivative along ``along`` [k] of ``slope(x, other)``, that along ``other``."""
    h = 1e-3
    return (
        sum(
            sign * weight * slope(x + sign * j * h * along, other)
            for j, weight in WEIGHTS.items()
            for sign in (1, -1)
        )
        / h
    )
