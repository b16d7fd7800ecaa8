"""Directions in (u0, p) as users give them: one, or several as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.derivatives.engines.compiled.tangent import Direction
from daeosens.errors import InputError
from daeosens.petsc.vectors import real_array
from daeosens.problem.problem import PossiblyNamed, Problem

Vector: TypeAlias = "npt.ArrayLike | PETSc.Vec"
Rows: TypeAlias = "Sequence[Sequence[float]] | Sequence[npt.NDArray[Any]] | Sequence[PETSc.Vec]"
"""Several directions; an array [D, n] is taken for them as well."""


def pairs_of(du0: Any, dp: Any) -> tuple[list[Direction], bool]:
    """Return directions as pairs (du0, dp), and whether several were given.

    Parameters
    ----------
    du0, dp : array [n] and [m], or Vec, or None
        One direction; ``dp`` may be a mapping of names.
    du0, dp : array [D, n] and [D, m], or sequences of Vec, or None
        Several as rows.

    Raises
    ------
    InputError
        Numbers of rows that do not match; rows of different lengths.
    """
    # one row in brackets is a list of one: then a list is returned
    rows_of_u, rows_of_p = _has_rows(du0, "du0"), _has_rows(dp, "dp")
    several = rows_of_u or rows_of_p
    by_u, by_p = _listed(du0, rows=rows_of_u), _listed(dp, rows=rows_of_p)
    if by_u and by_p and len(by_u) != len(by_p):
        raise InputError(
            f"du0 has {len(by_u)} rows, dp has {len(by_p)}", expected="as many of each"
        )
    count = len(by_u or by_p) if several else 1
    return list(zip(by_u or [None] * count, by_p or [None] * count, strict=True)), several


def admit_direction(
    problem: Problem, du0: npt.ArrayLike | PETSc.Vec | None, dp: PossiblyNamed
) -> tuple[PETSc.Vec, PETSc.Vec | None]:
    """Return the user's direction as vectors [n] and [m]: copies, checked."""
    du = problem.create_state() if du0 is None else problem.admit_state(du0, "du0")
    return du, None if dp is None else problem.admit_parameter_direction(dp)


def refuse_rows(values: Any, name: str) -> None:
    """Refuse several directions where one is meant.

    Raises
    ------
    InputError
        Names the argument.
    """
    if _has_rows(values, name):
        raise InputError(
            f"{name} has rows", expected="one direction", remedy="a call for each direction"
        )


def _has_rows(values: Any, name: str) -> bool:
    """Whether values are several directions, as rows or vectors."""
    if values is None or isinstance(values, (PETSc.Vec, Mapping)):
        return False
    listed = isinstance(values, (list, tuple))  # rows of different lengths have no dimension
    if listed and any(isinstance(entry, PETSc.Vec) for entry in cast("list[Any]", values)):
        return True
    if listed and values and isinstance(values[0], float):  # as nearly always
        return False
    return np.ndim(real_array(cast("Any", values), name) if listed else values) == 2


def _listed(values: Any, *, rows: bool) -> list[Any]:
    """Return the rows, or what is one direction alone; nothing of None."""
    if values is None:
        return []
    return list(values) if rows else [values]
