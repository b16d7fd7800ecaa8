"""Votes on terms: searches in random parts of the data, and what most of them find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from daeosens.errors import InputError
from daeosens.inverse.likelihood.measurements import Measurements
from daeosens.petsc.vectors import Array


def shares_of_members(
    search: Callable[[list[dict[str, Array]]], Iterable[str]],
    measured: Sequence[Measurements],
    candidates: Sequence[str],
    members: int,
    part: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Return in which share of the members each candidate was that was in any.

    Each of them searches in a random part of the times of each table.
    """
    counts = dict.fromkeys(candidates, 0)
    for _ in range(members):
        for name in search([_part(table, part, rng) for table in measured]):
            if name in counts:
                counts[name] += 1
    return {name: count / members for name, count in counts.items() if count}


def elected(inclusion: Mapping[str, float], votes: float) -> list[str]:
    """Return the terms whose share is ``votes`` at least.

    Raises
    ------
    InputError
        There is none.
    """
    names = [name for name, share in inclusion.items() if share >= votes]
    if not names:
        name, most = max(inclusion.items(), key=lambda entry: entry[1])
        raise InputError(
            f"votes = {votes:g}, but no term is in so many of the members",
            expected=f'{most:g} or less, the share of "{name}"',
        )
    return names


def _part(measured: Measurements, part: float, rng: np.random.Generator) -> dict[str, Array]:
    """Return a table of a random part of the times, the first one among them."""
    count = len(measured.times)
    rows = rng.choice(count, max(round(part * count), 1), replace=False)
    rows = np.union1d([0], rows)
    columns = zip(measured.names, measured.values[rows].T, strict=True)
    return {measured.clock or "time": measured.times[rows], **dict(columns)}
