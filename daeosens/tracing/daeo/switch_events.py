"""Events of a DAEO: jumps to another optimiser, and changes of the active set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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

CHANGE = "active set"
"""Name of the event at which the active set of the lowest optimiser changes."""


@dataclass(frozen=True, eq=False)
class Switches:
    """Events by which y becomes another optimiser, or its active set changes.

    Attributes
    ----------
    tracer : Tracer
        With the sizes.
    ready : mapping
        The compiled functions of ``inner.jumps``, whose data is a place near the optimiser, and of
        ``inner.changes``, whose data chooses a constraint.
    n_c : int
        How many constraints there are.
    """

    tracer: Tracer
    ready: Mapping[str, Any]
    n_c: int

    def start(self, t: float, place: Array) -> Event:
        """Return the event that y becomes the optimiser near a place at a time."""
        return self._traced(Event(t, name=START, reset=_compiled), JUMP, place)

    def change(self, turning: Sequence[int]) -> Event:
        """Return the event that a constraint becomes active or inactive, and others with it."""
        event = Event(_compiled, direction=1, name=CHANGE, reset=_compiled)
        # the first constraint's distance is the event function; the reset turns all of them
        units = np.eye(self.n_c)[list(turning)]
        return self._traced(event, "change", np.concatenate([units[0], units.sum(axis=0)]))

    def jump(
        self, place: Array, exists: Callable[[float, Array, Array], bool] | None = None
    ) -> Event:
        """Return the event that the optimiser near a place becomes the lowest.

        ``exists`` tells of (t, u, p) whether it is there, where that is not certain.
        """
        # direction 1: h(lowest) - h(other) grows through 0 where the other becomes lower
        event = Event(_compiled, direction=1, name=JUMP, reset=_compiled)
        event = self._traced(event, JUMP, place)
        if exists is None:
            return event
        when: Any = event.when
        if isinstance(when, Native):
            when = Compiled(when, JUMP, (), returns=True)

        def checked(t: float, u: Array, p: Array) -> float:
            # an optimiser that is not there is never lower
            return float(when(t, u, p)) if exists(t, u, p) else -1.0

        return replace(event, when=checked)

    def _traced(self, event: Event, name: str, data: Array) -> Event:
        own = {key: function for key, function in self.ready.items() if key.startswith(name)}
        return parts.traced_event(self.tracer, event, name, with_data(own, data.copy()))


def _compiled(t: float, u: Array, p: Array) -> Any:
    """Stand for a function that is compiled."""
    raise NotImplementedError
