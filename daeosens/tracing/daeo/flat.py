"""Parts of the box in which h does not change: each y there is as low as its neighbours."""

from __future__ import annotations

import numpy as np

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.intervals import IntervalFunction

CELLS = 512
"""Into so many parts, at most, the box is divided: they are enclosed in a part of a millisecond."""

MOST = 4
"""Of more y than this a grid of so few cells says little."""


def refuse_flat(function: IntervalFunction, box: Array, t: float, x: Array, p: Array) -> None:
    """Refuse an h that is constant in a cell of a grid over the box, at a start.

    All points there would be minimisers, and a search divides them until its budget is used up.

    Raises
    ------
    InputError
        Names the cell.
    """
    n_y = len(box)
    if n_y > MOST or function.low is None:
        return
    each_way = int(CELLS ** (1.0 / n_y) + 1e-9)
    edges: Array = np.linspace(box[:, 0], box[:, 1], each_way + 1)
    places = np.indices((each_way,) * n_y).reshape(n_y, -1).T
    columns = np.arange(n_y)
    cells = np.stack([edges[places, columns], edges[places + 1, columns]], axis=2)
    inputs = function.inputs(t, x, p)
    rows = np.empty((len(cells), *inputs.shape))
    rows[:] = inputs
    start = 1 + function.n_x
    rows[:, start : start + n_y] = cells
    values, flags = function.enclose(1, rows)
    # enclosed by 0 alone, which is proof: a gradient that only vanishes somewhere has a width
    flat = (flags == 0).all(axis=1) & (values[:, 1:] == 0.0).all(axis=(1, 2))
    if flat.any():
        cell = cells[int(np.argmax(flat))]
        between = ", ".join(f"[{low:.6g}, {high:.6g}]" for low, high in cell)
        raise InputError(
            f"h is constant for y in {between} at t = {t:.9g}, x = {x}: each y there is as low as "
            "those beside it",
            expected="an h that has single minimisers",
            remedy="h with a small term that decides, 1e-6 * y[0] ** 2, or a smaller box",
        )
