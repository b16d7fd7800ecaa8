"""Events that users add to a DAEO: functions of (t, x, y, p), with the optimiser y."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from daeosens.errors import InputError
from daeosens.problem.event import Event, EventLike, admit_known_events
from daeosens.problem.monitor import START
from daeosens.tracing import derivative_set as parts
from daeosens.tracing.casadi import casadi
from daeosens.tracing.daeo.inner import Inner, scalar, vector
from daeosens.tracing.daeo.switch_events import CHANGE, JUMP
from daeosens.tracing.derivatives import Generated
from daeosens.tracing.tracer import Tracer


def admit_own_events(things: Iterable[EventLike]) -> tuple[Event, ...]:
    """Return what users give as a tuple of ``Event``.

    Raises
    ------
    InputError
        A mode, derivatives, or a name that the events of every DAEO have.
    """
    events = admit_known_events(things, ())
    for event in events:
        parts.refuse_derivatives(event)
        if event.name in (JUMP, CHANGE, START):
            raise InputError(
                f'an event of a DAEO is named "{event.name}"',
                expected=f'another name: at "{START}" y is found, at "{JUMP}" it jumps, and at '
                f'"{CHANGE}" it comes to a bound',
            )
        if event.mode is not None or event.within:
            raise InputError(
                f'event "{event.name}" of a DAEO names a mode',
                expected="one set of equations",
                remedy="changes={name: function} of a parameter that the equations take",
            )
    return events


def event_functions(inner: Inner, event: Event, name: str, tracer: Tracer) -> list[Generated]:
    """Return the functions of an event with all derivatives; ``name`` begins the names of all.

    The reset leaves what the state carries along of y: the tracker finds y afterwards.

    Raises
    ------
    InputError
        One of them cannot be traced.
    """
    functions: list[Generated] = []
    if callable(event.when):
        functions += scalar(inner, f"{name}_when", event.when, tracer)
    if event.reset is not None:

        def whole(x: Any) -> Any:
            # resets change x; y is found anew from there
            return casadi.vertcat(x, inner.u[inner.n_x :])

        functions += vector(inner, f"{name}_reset", event.reset, tracer, whole)
    for k, change in enumerate(event.changes.values()):
        functions += scalar(inner, f"{name}_change{k}", change, tracer)
    return functions
