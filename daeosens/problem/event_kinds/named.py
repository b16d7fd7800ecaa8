"""Events by name: tables of a configuration, such as ``[[events]] kind = "impact" ...``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, cast

from daeosens.errors import InputError, is_iterable, name_list, require, suggestion, together
from daeosens.io.config.schema import Constraint, hints
from daeosens.io.config.values import Reading, read_table
from daeosens.problem.event import Event, admit_event
from daeosens.problem.event_kinds.options import misnamed
from daeosens.problem.event_kinds.registry import Kind, broken, find_kind, known_kinds, said
from daeosens.problem.event_kinds.state_names import System, system_of
from daeosens.problem.modes import add_events
from daeosens.problem.problem import Problem


@dataclass(frozen=True)
class NamedEvent:
    """An event as a configuration describes it: the name of its kind, and options.

    The type of entries of a driver's configuration: ``events: tuple[NamedEvent, ...] = ()``.

    Parameters
    ----------
    kind : str
        The name of a kind of event.
    options : mapping
        Its options, right by their types.

    Examples
    --------
    >>> ball = System(["height", "speed"])
    >>> landing = NamedEvent("threshold", {"component": "height", "level": 0.0, "terminal": True})
    >>> [event.terminal for event in events_named([landing], ball)]
    [True]
    """

    kind: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        require(self.kind, str, "kind", 'NamedEvent("impulse", {"at": 0.5, "add": {"v": 1.0}})')
        require(self.options, Mapping, "options", '{"at": 0.5, "add": {"v": 1.0}}')
        name_list(self.options, "names of options")

    @classmethod
    def read_table(cls, reading: Reading, key: str, table: dict[str, Any]) -> NamedEvent | None:
        """Return the event that a table describes, or note what is wrong with it."""
        known = ", ".join(f'"{kind_name}"' for kind_name in known_kinds())
        name = table.get("kind")
        if not isinstance(name, str):
            complaint = "missing" if name is None else f"{name!r} is no name"
            reading.problems.append(f"{key}.kind: {complaint}; expected one of {known}")
            return None
        try:
            kind = find_kind(name)
        except InputError as error:
            reading.problems.append(f"{key}.kind: {error.in_one_line()}")
            return None
        rest = {option: value for option, value in table.items() if option != "kind"}
        options = read_table(reading, key, rest, kind.options)
        return None if options is None else cls(name, dict(vars(options)))

    @classmethod
    def help_lines(cls, prefix: str) -> list[str]:
        """Return a line for each kind: its options, those that may be left out in brackets."""
        return [f"{prefix}kind = {_help_of(name)}" for name in known_kinds()]


def fits(system: System) -> Constraint:
    """Ask for events whose names a system knows.

    For ``events: Annotated[tuple[NamedEvent, ...], fits(SYSTEM), "..."] = ()``: then names that are
    wrong are reported together with all else that is wrong in a configuration.
    """
    words = f"for {system.size} unknowns"
    if not isinstance(system.unknowns, int):
        words = f"for the unknowns {', '.join(system.unknowns)}"
    if system.parameters:
        words += f" and the parameters {', '.join(system.parameters)}"
    return Constraint(words, lambda _: True, complaints=lambda events: list(_wrong(events, system)))


def events_named(
    entries: Iterable[NamedEvent | Mapping[str, Any]], system: System
) -> tuple[Event, ...]:
    """Return the events that entries of a configuration describe.

    Parameters
    ----------
    entries : iterable of NamedEvent or mapping
        ``{"kind": "impact", "position": "height", ...}``.
    system : System
        What the names in it mean.

    Returns
    -------
    tuple of Event

    Raises
    ------
    InputError
        All that is wrong with the entries, together: unknown kinds, options and names; broken
        plug-ins.  A kind that brings modes of its own: then ``with_events`` is needed.

    Examples
    --------
    >>> ball = System(["height", "speed"], ["restitution"])
    >>> entry = {"kind": "impact", "position": "height", "speed": "speed", "restitution": 0.8}
    >>> [event.name for event in events_named([entry], ball)]
    ['impact']
    """
    events, additions = _built(entries, system)
    if additions:
        raise InputError(
            "a kind of event that brings modes of its own (such as saturation)",
            expected="kinds that are events alone",
            remedy="with_events(problem, entries, system)",
        )
    return events


def with_events(
    problem: Problem,
    entries: Iterable[NamedEvent | Mapping[str, Any]],
    system: System | None = None,
) -> Problem:
    """Return a problem with the events that entries of a configuration describe.

    Parameters
    ----------
    problem : Problem
        From ``ODE``, ``DAE`` or ``hybrid``, with or without events.
    entries : iterable of NamedEvent or mapping
        As for ``events_named``.
    system : System, optional
        What the names in it mean; by default the problem's own names.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        As ``events_named``; a system that is not that of the problem; unknown modes.

    Examples
    --------
    >>> from daeosens import ODE
    >>> fall = ODE(lambda t, u, p: [u[1], -9.81], size=["height", "speed"])
    >>> entry = {"kind": "impact", "position": "height", "speed": "speed"}
    >>> with_events(fall, [entry]).events[0].direction
    -1
    """
    require(problem, Problem, "problem", "ODE(f, size, parameters, ...)")
    system = system_of(problem) if system is None else system
    require(system, System, "system", 'System(["height", "speed"], ["gravity"])')
    theirs = (problem.size, problem.parameter_names, problem.style, problem.field_parameter)
    ours = (system.size, tuple(system.parameters), system.style, system.field_parameter)
    if ours != theirs:
        raise InputError(
            f"the system has (size, parameters, style, field_parameter) {ours}",
            expected=f"those of the problem, {theirs}",
            remedy="system_of(problem, unknowns)",
        )
    events, additions = _built(entries, system)
    problem = add_events(problem, events)
    for add in additions:
        problem = add(problem)
    return problem


def _built(
    entries: Iterable[NamedEvent | Mapping[str, Any]], system: System
) -> tuple[tuple[Event, ...], list[Callable[[Problem], Problem]]]:
    """Return events, and what adds modes with theirs to a problem."""
    if not is_iterable(entries):
        raise InputError(f"events is {type(entries).__name__}", expected="a sequence of tables")
    listed: list[Any] = [entries] if isinstance(entries, (str, Mapping)) else list(entries)
    for entry in listed:
        if not isinstance(entry, (NamedEvent, Mapping)):
            raise InputError(
                f"events holds {entry!r}", expected='tables: [{"kind": "threshold", ...}, ...]'
            )
    require(system, System, "system", 'System(["height", "speed"], ["gravity"])')
    reading = Reading(Path())
    named = [
        entry
        if isinstance(entry, NamedEvent)
        else NamedEvent.read_table(reading, f"events[{k}]", _as_read(entry))
        for k, entry in enumerate(listed)
    ]
    if not reading.problems:
        # tables that could be read: all that is wrong with their names and values, in one error
        right = [entry for entry in named if entry is not None]
        reading.problems.extend(f"events{complaint}" for complaint in _wrong(right, system))
    if reading.problems:
        raise together(reading.problems, heading="events")
    events: list[Event] = []
    additions: list[Callable[[Problem], Problem]] = []
    for entry in named:
        assert entry is not None
        made = _made(find_kind(entry.kind), entry.options, system)
        if callable(made):
            # saturation has modes of its own: it changes a problem, rather than being an event of
            # one
            additions.append(made)
        else:
            events += made
    return tuple(events), additions


def _wrong(entries: Sequence[NamedEvent], system: System) -> Iterator[str]:
    """Complain of names, and of what factories refuse; each begins with the rest of its key."""
    for k, entry in enumerate(entries):
        kind = find_kind(entry.kind)
        types = hints(kind.options)
        complaints = [
            f"[{k}].{option}: there is no such option{suggestion(option, types)}"
            for option in entry.options.keys() - types
        ]
        for option, value in entry.options.items():
            if option in types:
                complaints += misnamed(system, f"[{k}].{option}", types[option], value)
        yield from complaints
        if not complaints:
            try:
                _made(kind, entry.options, system)
            except InputError as error:
                yield f"[{k}]: {error.in_one_line()}"


def _made(
    kind: Kind, options: Mapping[str, Any], system: System
) -> list[Event] | Callable[[Problem], Problem]:
    """Return the events of one kind, or what adds modes with theirs to a problem.

    Raises
    ------
    InputError
        The factory refuses the options, fails, or returns something else.
    """
    try:
        made: Any = kind.factory(system, **options)
    except InputError:
        raise
    except Exception as error:
        raise broken(kind.name, kind.source, f"failed: {said(error)}") from error
    if hasattr(made, "when"):
        made = [made]
    if callable(made):
        return cast("Callable[[Problem], Problem]", made)
    if not isinstance(made, Sequence) or not made or isinstance(made, str):
        raise broken(kind.name, kind.source, f"returned {made!r}, which is no event")
    try:
        return [admit_event(event) for event in cast("Sequence[Any]", made)]
    except InputError as error:
        raise broken(kind.name, kind.source, f"returned no event: {error.in_one_line()}") from error


def _as_read(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table written in Python as a configuration would give it."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in entry.items()}  # type: ignore[reportUnknownVariableType]


def _help_of(name: str) -> str:
    try:
        kind = find_kind(name)
    except InputError as error:
        return f'"{name}": {error.in_one_line()}'
    required = [
        entry.default is MISSING and entry.default_factory is MISSING
        for entry in fields(kind.options)
    ]
    options = [
        entry.name if needed else f"[{entry.name}]"
        for entry, needed in zip(fields(kind.options), required, strict=True)
    ]
    return f'"{name}": {", ".join(options)}; {kind.summary}'
