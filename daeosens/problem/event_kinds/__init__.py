"""Kinds of events, found by name: those of this package and those of plug-ins.

In come the names of a system (``System``) and options; out come ``Event``s, or a function from a
problem to one with more modes.  ``registry`` finds a kind by its name, ``named`` reads tables of a
configuration, ``affine`` has resets and event functions with all their derivatives.

Read first: ``threshold`` and ``impulse``, the shortest; then ``registry``.
"""

from daeosens.problem.event_kinds.fault import fault
from daeosens.problem.event_kinds.hysteresis import hysteresis
from daeosens.problem.event_kinds.impact import impact
from daeosens.problem.event_kinds.impulse import impulse
from daeosens.problem.event_kinds.named import NamedEvent, events_named, fits, with_events
from daeosens.problem.event_kinds.options import Changes, Component, Mode, Number
from daeosens.problem.event_kinds.saturation import saturated, saturation
from daeosens.problem.event_kinds.state_names import System, system_of
from daeosens.problem.event_kinds.threshold import threshold

__all__ = [
    "Changes",
    "Component",
    "Mode",
    "NamedEvent",
    "Number",
    "System",
    "events_named",
    "fault",
    "fits",
    "hysteresis",
    "impact",
    "impulse",
    "saturated",
    "saturation",
    "system_of",
    "threshold",
    "with_events",
]
