"""What users give as states and parameters: checked, and brought into vectors and arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.errors import InputError, suggestion, together
from daeosens.petsc._kernels import vec_to_fill
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array, created, finite_array, is_finite, write
from daeosens.problem.callback_guard import on_every_rank


def numbers_by_name(
    values: Mapping[str, Any], names: Sequence[str], what: str, others: float | None = None
) -> Array:
    """Return numbers [m] that are given by name: single ones, or whole blocks as arrays.

    Parameters
    ----------
    values : mapping of str to number or array
        ``{"rate": 0.5}``; "A" stands for all of "A[0,0]", "A[0,1]", ..., row by row.
    names : sequence of str
        All names, in order.
    what : str
        What the user calls it, for the message.
    others : float, optional
        The value of those that are not given; by default all have to be.

    Raises
    ------
    InputError
        All that is unknown, missing, of another shape or not finite, at once.

    Examples
    --------
    >>> numbers_by_name({"A": [[1.0, 2.0]], "rate": 3.0}, ("rate", "A[0,0]", "A[0,1]"), "p")
    array([3., 1., 2.])
    """
    places = {name: [k] for k, name in enumerate(names)}
    for k, name in enumerate(names):
        if name.endswith("]"):
            # "A[0,1]" is an entry of the block "A", which may be given as a whole
            places.setdefault(name.partition("[")[0], []).append(k)
    array = np.full(len(names), math.nan if others is None else others)
    complaints: list[str] = []
    missing = set(range(len(names))) if others is None else set[int]()
    for name, entry in values.items():
        where = places.get(name)
        if where is None:
            complaints.append(f"there is no parameter {name!r}{suggestion(str(name), places)}")
            continue
        missing.difference_update(where)
        last = names[where[-1]]
        # the last entry's index tells the shape: "A[2,3]" is the last of 3 rows and 4 columns
        index = last[len(name) + 1 : -1] if last != name else ""
        shape = tuple(int(index_text) + 1 for index_text in index.split(",")) if index else ()
        try:
            array[where] = finite_array(entry, f'{what}["{name}"]', shape).ravel()
        except InputError as error:
            complaints.append(error.in_one_line())
    complaints += [f"{names[k]} is missing" for k in sorted(missing)]
    if complaints:
        raise together(complaints, heading=f"{what} by name")
    return array


def admit_vec(
    values: npt.ArrayLike | PETSc.Vec, name: str, template: PETSc.Vec, *, ranks: int
) -> PETSc.Vec:
    """Return a copy of a user's vector or numbers, laid out like a template.  Collective.

    Raises
    ------
    InputError
        Another size, or values that are not finite, on every rank.
    """
    vec = vec_to_fill(template)
    if ranks == 1:
        _check_kind(values, name, template, ranks=1)
    else:
        agree(template.comm, "a vector as argument", name=name)
        with on_every_rank(template.comm):
            _check_kind(values, name, template, ranks=ranks)
    if isinstance(values, PETSc.Vec):
        values.copy(vec)
        if not is_finite(vec):
            raise InputError(
                f"{name} contains values that are not finite", expected="finite numbers"
            )
        return vec
    write(vec, finite_array(values, name, (template.size,)))
    return vec


def _check_kind(
    values: npt.ArrayLike | PETSc.Vec, name: str, template: PETSc.Vec, *, ranks: int
) -> None:
    if not isinstance(values, PETSc.Vec):
        if ranks > 1:
            raise InputError(
                f"{name} is {type(values).__name__}", expected="a distributed Vec on several ranks"
            )
    elif created(values, name).getSizes() != template.getSizes():
        raise InputError(
            f"{name} has (local, global) sizes {values.getSizes()}",
            expected=f"{template.getSizes()}",
        )
