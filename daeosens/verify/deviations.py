"""Where a derivative deviates from differences, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from petsc4py import PETSc

from daeosens.petsc.vectors import gather
from daeosens.verify.extrapolated_differences import FEW

Words: TypeAlias = "Callable[[int, int, float, float], str]"
"""``(row, column, computed, expected) -> str``."""


def entries(moves: Sequence[PETSc.Vec], first_row: int = 0) -> Words:
    """Describe entries of a matrix, of which this rank has the rows from ``first_row`` on."""
    sizes = _unit_sizes(moves)

    def describe(row: int, column: int, computed: float, expected: float) -> str:
        row += first_row
        if sizes is None:
            return f"row {row}: {computed:.6g} instead of {expected:.6g} (random direction)"
        # A direction is a unit vector times the size of its component: back to the entry that the
        # user has written.
        computed, expected = computed / sizes[column], expected / sizes[column]
        return f"entry [{row}, {column}] is {computed:.6g} instead of {expected:.6g}"

    return describe


def components(moves: Sequence[PETSc.Vec]) -> Words:
    """Describe components of a gradient."""
    sizes = _unit_sizes(moves)

    def describe(_row: int, column: int, computed: float, expected: float) -> str:
        if sizes is None:
            return f"{computed:.6g} instead of {expected:.6g} (random direction)"
        computed, expected = computed / sizes[column], expected / sizes[column]
        return f"component {column} is {computed:.6g} instead of {expected:.6g}"

    return describe


def transposes(_row: int, _column: int, computed: float, expected: float) -> str:
    """Describe products with a transpose."""
    return f"(A^T w, v) = {computed:.6g} but (w, A v) = {expected:.6g}"


def _unit_sizes(moves: Sequence[PETSc.Vec]) -> list[float] | None:
    if moves[0].size > FEW:
        return None
    return [float(np.sum(gather(move))) for move in moves]
