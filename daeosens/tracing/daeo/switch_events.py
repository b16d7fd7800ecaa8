"""The jump to another optimiser as an event: where it becomes the lowest, and what happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from daeosens.petsc.c_function import Native
from daeosens.petsc.vectors import Array
from daeosens.problem.c_callback import Compiled
from daeosens.problem.event import Event
from daeosens.problem.monitor import START
from daeosens.tracing import derivative_set as parts
from daeosens.tracing.execution import with_data
from daeosens.tracing.tracer import Tracer

JUMP = "jump"
"""Name of the event at which another optimiser becomes the lowest."""


@dataclass(frozen=True, eq=False)
class Switches:
    """Events by which y becomes another optimiser.

    Attributes
    ----------
    tracer : Tracer
        With the sizes.
    ready : mapping
        The compiled functions of ``inner.switches``, whose data is a point near the optimiser.
    """

    tracer: Tracer
    ready: Mapping[str, Any]

    def start(self, t: float, y: Array) -> Event:
        """Return the event that y becomes the optimiser near a point at a time."""
        return self._traced(Event(t, name=START, reset=_compiled), self._near(y))

    def jump(self, y: Array, exists: Callable[[float, Array, Array], bool] | None = None) -> Event:
        """Return the event that the optimiser near a point becomes the lowest.

        ``exists`` tells of (t, u, p) whether it is there, where that is not certain.
        """
        ready = self._near(y)
        event = self._traced(Event(_compiled, direction=1, name=JUMP, reset=_compiled), ready)
        if exists is None:
            return event
        when: Any = ready["jump_when"]
        if isinstance(when, Native):
            when = Compiled(when, JUMP, (), returns=True)

        def checked(t: float, u: Array, p: Array) -> float:
            return float(when(t, u, p)) if exists(t, u, p) else -1.0

        return replace(event, when=checked)

    def _near(self, y: Array) -> Mapping[str, Any]:
        return with_data(self.ready, y.copy())

    def _traced(self, event: Event, ready: Mapping[str, Any]) -> Event:
        return parts.traced_event(self.tracer, event, JUMP, ready)


def _compiled(t: float, u: Array, p: Array) -> Any:
    """Stand for a function that is compiled."""
    raise NotImplementedError
