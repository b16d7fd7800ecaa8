"""Changes of the active set that may happen within a step of a run, and what turns with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array
from daeosens.problem.monitor import Suspect
from daeosens.tracing.daeo.active_set import constraint, turned, turns
from daeosens.tracing.daeo.courses import Optimisers
from daeosens.tracing.daeo.followed import Follower
from daeosens.tracing.daeo.piece import Piece
from daeosens.tracing.daeo.switch_events import Switches

SAME = 1e-6
"""Distances whose ratio changes by less over a step fall to zero together."""


def changes(
    piece: Piece, n: int, follower: Follower, switches: Switches, names: Sequence[str]
) -> list[Suspect]:
    """Return the changes of the active set of the lowest optimiser that may happen within a step.

    Raises
    ------
    SolveError
        Constraints that would be active together depend on each other.
    """
    suspects: list[Suspect] = []
    # an optimiser that vanishes within the step is followed for this part of it
    part = float(piece.reached[piece.active]) - n
    closing: list[int] = np.flatnonzero(piece.closing[n]).tolist()
    end = piece.inside(piece.active, n, min(part, 1.0))
    together = _together(piece.apart[n : n + 2], closing)
    if len(together) > 1 and not follower.sound(_after(piece, n, end, together, follower)):
        told = " and ".join(constraint(c, names) for c in together)
        raise SolveError(
            f"{told} become active together near t = {piece.times[n + 1]:.9g}, and one of them "
            "says what the other does",
            expected="active constraints whose gradients are independent",
            remedy="no constraint twice: bounds of the box are constraints too",
        )
    for c in closing:
        start = float(piece.apart[n, c]), float(piece.parting[n, c])
        bracket = (0.0, part) if part < 1.0 else None
        turning = _turning(piece, n, c, end, follower, names)
        suspects.append(Suspect(switches.change(turning), start, bracket))
    return suspects


def _after(
    piece: Piece, n: int, end: Optimisers, turning: Sequence[int], follower: Follower
) -> Optimisers:
    """Return the optimiser with another active set where a step ends."""
    place = end.place.copy()
    place[-1] = turned(float(place[-1]), turning)
    return follower.near(piece.times[n + 1], piece.x[n + 1], place, piece.p)


def _together(apart: Array, closing: Sequence[int]) -> list[int]:
    """Return the constraints that come to zero together with the first one."""
    crossed = [c for c in closing if apart[0, c] < 0.0 < apart[1, c]]
    # linear in a step: equal ratios cross zero at the same time
    ratios = [apart[1, c] / apart[0, c] for c in crossed]
    return [
        c
        for c, ratio in zip(crossed, ratios, strict=True)
        if abs(ratio - ratios[0]) <= SAME * abs(ratios[0])
    ]


def _turning(
    piece: Piece, n: int, c: int, end: Optimisers, follower: Follower, names: Sequence[str]
) -> list[int]:
    """Return the constraints that turn where one does, by what is optimal where a step ends."""
    choices = turns(float(piece.optimisers[piece.active, n].active), c, follower.layout.n_y)
    if len(choices) == 1:
        return choices[0]
    # at a vertex of the constraints another one has to leave for this one: the set whose
    # multipliers and distances are all right after the step is taken
    for turning in choices:
        if follower.optimal(_after(piece, n, end, turning, follower)):
            return turning
    if piece.apart[n + 1, c] > 0.0:
        raise SolveError(
            f"{constraint(c, names)} cannot become active near t = {piece.times[n + 1]:.9g}: as "
            "many are as there are y, and none leaves",
            expected="constraints that some y satisfies, at most as many active as there are y",
            remedy="constraints that do not meet in one point; smaller steps",
        )
    return choices[0]
