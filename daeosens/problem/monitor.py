"""Monitors: what follows a run and names events that are not known before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from daeosens.errors import SolveError
from daeosens.petsc.vectors import Array
from daeosens.problem.event import Event

START = "start"
"""Name of the event by which a monitor completes the state where a run begins."""


class Suspect(NamedTuple):
    """An event that may happen within a step.

    Attributes
    ----------
    event : Event
        With its function, and what happens.
    start : (float, float)
        The function and its slope along the run where the step begins; the value is 0 where the
        step leaves the surface.
    bracket : (float, float) or None
        Parts of the step between which the function crosses zero upwards, where that is known; it
        need not have a value outside.  Twice the same part: the event happens there.
    ends : ((float, float), (float, float)) or None
        The function at both parts, where that is known, with its derivative by the part.
    """

    event: Event
    start: tuple[float, float]
    bracket: tuple[float, float] | None = None
    ends: tuple[tuple[float, float], tuple[float, float]] | None = None


class Monitor(Protocol):
    """Follows a run; a problem makes one for each of its runs (``Problem.monitor``)."""

    names: Sequence[str]
    """Of the events that it may name."""

    at_once: bool
    """Whether it completes the state before events at the start, which may need what it finds."""

    report: Any
    """What it knows of the run, for users."""

    reached: float
    """Up to when it has looked at the run."""

    def ends(self, t: float, u: Array) -> None:
        """Take note of the state just before an event."""
        ...

    def begins(self, t: float, u: Array, p: Any, mode: str) -> Event | None:
        """Take note of where a smooth piece begins: at the start, and after each event.

        Returns an event at this time that is to happen there and then, or None.
        """
        ...

    def explained(self, t: float, u: Array, p: Any, h: float) -> SolveError | None:
        """Return why a step of about that size cannot be taken, if it knows."""
        ...

    def look(self, times: Array, states: Array, p: Any) -> Iterator[tuple[int, Sequence[Suspect]]]:
        """Look at steps [N+1], [N+1, n] that go on from where the last ones ended.

        Yields numbers of steps, in order, in which events may happen.  Whoever iterates goes on
        where none does, and stops where one does: then the run goes on from there.
        """
        ...
