"""The first value that is not finite: which callback gave it, where and when."""

from __future__ import annotations

from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.petsc.vectors import read


def note_fault(faults: list[str], name: str, t: float, vec: PETSc.Vec, dm: PETSc.DM | None) -> None:
    """Note the first value that is not finite; to raise on one rank alone would hang the others.

    Parameters
    ----------
    faults : list of str
        Of this rank; nothing is added to what is there.
    name : str
        Of the callback that filled the vector.
    t : float
        Time [time unit].
    vec : Vec [n]
        What it filled.
    dm : DM or None
        Of the vector; a DMDA's points are named.

    Examples
    --------
    >>> noted = []
    >>> values = PETSc.Vec().createWithArray([1.0, np.inf], comm=PETSc.COMM_SELF)
    >>> note_fault(noted, "rhs", 0.5, values, None)
    >>> noted
    ["callback 'rhs' gave inf in local entry 1 at t = 0.5 (rank 0)"]
    """
    values = read(vec)
    if faults or np.isfinite(values).all():
        return
    entry = int(np.argmin(np.isfinite(values)))
    where = f"in local entry {entry}" if dm is None else _place(dm, entry)
    faults.append(
        f"callback '{name}' gave {values[entry]} {where} at t = {t:.9g} (rank {vec.comm.rank})"
    )


def _place(dm: Any, entry: int) -> str:
    if dm.getType() != PETSc.DM.Type.DA:
        return f"in local entry {entry}"
    corner, points = dm.getCorners()
    # Entries of a DMDA are numbered with the unknown fastest, then x, y, z; coordinates are
    # counted from this rank's corner.
    unknown, *inside = reversed(np.unravel_index(entry, (*reversed(points), dm.getDof())))
    point = [int(first + k) for first, k in zip(corner, inside, strict=True)]
    return f"for unknown {unknown} of point {point}"
