"""The states of a run that C has logged as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from petsc4py import PETSc

from daeosens.arrays import Array, read, write


class States(Sequence[PETSc.Vec]):
    """Rows [N+1, n] as vectors, which are made where they are asked for, and then kept.

    For small serial systems, for which making a vector takes longer than a step.

    Parameters
    ----------
    rows : array [N+1, n]
        The states.
    first : Vec [n]
        The first one, which is there already.

    Examples
    --------
    >>> first = PETSc.Vec().createWithArray([1.0, 2.0], comm=PETSc.COMM_SELF)
    >>> states = States(np.array([[1.0, 2.0], [3.0, 4.0]]), first)
    >>> states[-1].array, states[0] is first, len(states)
    (array([3., 4.]), True, 2)
    """

    def __init__(self, rows: Array, first: PETSc.Vec) -> None:
        self.rows = rows
        self._made = {0: first}

    def __len__(self) -> int:
        """Return N+1."""
        return len(self.rows)

    @overload
    def __getitem__(self, number: int) -> PETSc.Vec: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[PETSc.Vec]: ...
    def __getitem__(self, number: int | slice) -> PETSc.Vec | Sequence[PETSc.Vec]:
        """Return the same vector [n] each time."""
        places = range(len(self.rows))[number]
        if isinstance(places, range):
            return [self[k] for k in places]
        vec = self._made.get(places)
        if vec is None:
            vec = self._made[places] = self._made[0].duplicate()
            write(vec, self.rows[places])
        return vec

    @property
    def made(self) -> list[PETSc.Vec]:
        """The vectors that are there."""
        return list(self._made.values())


def rows_of(states: Sequence[PETSc.Vec]) -> Array:
    """Return states as an array [N+1, n_local], which is not to be changed."""
    if isinstance(states, States):
        return states.rows
    return np.array([read(state) for state in states])
