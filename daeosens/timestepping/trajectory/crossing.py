"""One event of a run, and the table of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from petsc4py import PETSc

from daeosens.petsc.vectors import read
from daeosens.problem.problem import Problem

SHOWN = 4
"""States of so many unknowns, at most, are printed with each event."""


@dataclass(frozen=True, eq=False)
class Crossing:
    """One event of a run.

    Attributes
    ----------
    name : str
        Of the event.
    t : float
        When it happened.
    step : int
        Number of the state before it; the one after it is the next.
    before, after : Vec [n]
        The states; can be read only (``copy`` is the caller's own).
    mode, mode_before : str
        Afterwards, and before.
    p : array or Vec [m]
        The parameters afterwards, as callbacks see them.
    """

    name: str
    t: float
    step: int
    before: PETSc.Vec
    after: PETSc.Vec
    mode: str = ""
    p: Any = None
    mode_before: str = ""

    def __str__(self) -> str:
        mode = f", mode {self.mode}" if self.mode else ""
        return f"{self.name} at t = {self.t:.9g} (step {self.step}{mode})"


def table_of(crossings: Sequence[Crossing], problem: Problem) -> str:
    """Return a table of events; with the states if they are few numbers on one rank.

    Of more unknowns, if they have names, what changed is told, or the first part of that.
    """
    rows = [["", "event", "t", "step"]]
    modes, names = bool(problem.modes), problem.state_names
    alone = problem.comm.size == 1
    states = alone and problem.size <= SHOWN
    listed = f" ({', '.join(names)})" if names else ""
    named = alone and bool(names) and not states
    changes = [_changes(crossing, names) if named else "" for crossing in crossings]
    rows[0] += ["mode"] * modes
    rows[0] += [f"state before{listed}", f"state after{listed}"] * states
    rows[0] += ["changes"] * any(changes)
    for number, event in enumerate(crossings, start=1):
        row = [str(number), event.name, f"{event.t:.9g}", str(event.step)]
        if modes:
            same = event.mode == event.mode_before
            row.append(event.mode if same else f"{event.mode_before} -> {event.mode}")
        if states:
            row += [_numbers(event.before), _numbers(event.after)]
        if any(changes):
            row.append(changes[number - 1])
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _numbers(vec: PETSc.Vec) -> str:
    return " ".join(f"{value:.6g}" for value in read(vec))


def _changes(crossing: Crossing, names: Sequence[str]) -> str:
    """Return the unknowns that changed: "depot 0 -> 70"."""
    pairs = zip(names, read(crossing.before), read(crossing.after), strict=True)
    told = [
        f"{name} {before:.6g} -> {after:.6g}" for name, before, after in pairs if before != after
    ]
    more = f", and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return ", ".join(told[:SHOWN]) + more
