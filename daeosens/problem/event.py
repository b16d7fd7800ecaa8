"""Events: what may happen to a state along a run, as descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, TypeGuard

import numpy as np

from daeosens.errors import (
    InputError,
    is_iterable,
    is_one_of,
    is_real,
    require,
    suggestion,
    together,
)
from daeosens.petsc.c_function import admit_native
from daeosens.petsc.vectors import as_float


class EventLike(Protocol):
    """An event to the package: any object with the attribute ``when``.

    All other attributes of ``Event`` may be there too, as values or as methods; a missing one
    means the default of ``Event``.  So a plug-in needs no class of this package.

    Examples
    --------
    >>> class Bounce:
    ...     direction, name = -1, "bounce"
    ...
    ...     def when(self, t, u, p):
    ...         return u[0]
    ...
    ...     def reset(self, t, u, p):
    ...         return u * [1.0, -p[0]]
    >>> admit_event(Bounce()).direction
    -1
    """

    @property
    def when(self) -> Any:
        """The function (t, u, p) -> float whose zero is the event, or its time."""
        ...


_OF_CROSSINGS = frozenset(
    {"direction", "twice", "when_u", "when_p", "when_t", "when_hessian", "when_hessian_t"}
)
_OF_RESETS = frozenset({"reset_u", "reset_p", "reset_t", "reset_hessian", "reset_hessian_t"})


@dataclass(frozen=True, eq=False)
class Event:
    """Something that happens where a function of (t, u, p) crosses zero, or at a given time.

    Parameters
    ----------
    when : callable, float or str
        ``when(t, u, p) -> float``, the same on every rank, whose zero the run finds; or a time; or
        the name of a parameter that is the time; or a pair (time, name of a parameter), so much
        later than the time.
    reset : callable, optional
        ``reset(t, u, p) -> array [n]``, PETSc style ``(t, u, p, out)``: the state afterwards.
    changes : mapping of str to callable
        Parameters that have another value afterwards: ``{name: (t, u, p) -> float}``, functions of
        time, state and parameters before the event.  A ``Terminal`` in place of a function carries
        its derivatives.  Costs see the parameters of their time, a ``Prior`` those of the start.
    direction : -1, 0 or 1
        Only falling, all, or only rising crossings.
    terminal : bool
        The run ends there.
    mode : str or callable, optional
        The mode that the equations go on in, see ``hybrid``; ``mode(t, u, p) -> str``, the same on
        every rank, where the state after the event decides.
    within : sequence of str
        The modes in which it can happen; in all of them where empty.
    name : str
        For tables and messages.
    when_u, when_p, when_t, when_hessian, when_hessian_t : callable, optional
        Derivatives of ``when``, as those of ``Terminal``; automatic where missing, if NumPy
        style.  ``when_t`` may be "autonomous".
    reset_u, reset_p, reset_t, reset_hessian, reset_hessian_t : callable, optional
        Derivatives of ``reset``, as those of the rhs of an ``ODE``.
    twice : "resolve" or "refuse"
        What to do where the surface is crossed more than once within one step: find the first
        crossing that counts, like any other, or end with an error.
    late : "refuse" or "ignore"
        What to do with a given time behind the end of the run.

    Raises
    ------
    InputError
        A direction that is none, a time that is not finite, a callback that cannot be called,
        another word for ``twice``.  At a given time, which no function crosses: a direction,
        ``twice``, a derivative of ``when``.  Derivatives of a ``reset`` that there is not.

    Examples
    --------
    >>> bounce = Event(lambda t, u, p: u[0], lambda t, u, p: u * [1.0, -0.8], direction=-1)
    >>> bounce.explicit
    False
    """

    when: Callable[..., Any] | float | str | tuple[float, str]
    reset: Callable[..., Any] | None = None
    direction: int = 0
    terminal: bool = False
    mode: str | Callable[..., str] | None = None
    within: Sequence[str] = ()
    name: str = "event"
    when_u: Callable[..., Any] | None = None
    when_p: Callable[..., Any] | str | None = None
    when_t: Callable[..., Any] | str | None = None
    reset_u: Any = None
    reset_p: Any = None
    reset_t: Callable[..., Any] | str | None = None
    when_hessian: Callable[..., Any] | None = None
    when_hessian_t: Callable[..., Any] | str | None = None
    reset_hessian: Callable[..., Any] | None = None
    reset_hessian_t: Callable[..., Any] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    twice: Literal["resolve", "refuse"] = "resolve"
    late: Literal["refuse", "ignore"] = "refuse"

    def __post_init__(self) -> None:
        # the first argument that is not sound is named, before anything is made of it
        for name, sound, expected in self._expectations():
            if not sound:
                raise InputError(
                    f'event "{self.name}": {name} = {getattr(self, name)!r}', expected=expected
                )
        if not _is_function(self.when):
            self._refuse(
                _OF_CROSSINGS, f"with the time when = {self.when!r}", "when=lambda t, u, p: ..."
            )
        if self.reset is None:
            self._refuse(_OF_RESETS, "without reset", "reset=lambda t, u, p: ...")

    def _expectations(self) -> Iterator[tuple[str, bool, str]]:
        """Yield names of arguments, whether each is sound, and what it should be."""
        yield "name", isinstance(self.name, str), "a str"
        time = _is_number(self.when) and math.isfinite(as_float(self.when))
        yield (
            "when",
            time or self.delay is not None or _is_function(self.when),
            "a function (t, u, p) -> float, a finite time, a parameter's name, or both: (2, name)",
        )
        known = _is_number(self.direction) and self.direction in (-1, 0, 1)
        yield "direction", known, "-1 (falling), 0 (both) or 1 (rising)"
        yield "late", is_one_of(self.late, "refuse", "ignore"), '"refuse" or "ignore"'
        yield "twice", is_one_of(self.twice, "resolve", "refuse"), '"resolve" or "refuse"'
        is_map = self.reset is None or _is_function(self.reset)
        yield "reset", is_map, "a function (t, u, p) -> array [n]"
        yield "terminal", isinstance(self.terminal, (bool, np.bool_)), "True or False"
        mode = self.mode is None or isinstance(self.mode, str) or callable(self.mode)
        yield "mode", mode, "the name of a mode, or a function (t, u, p) -> name"
        # a word would be a sequence of letters
        several = isinstance(self.within, Collection) and not isinstance(self.within, str)
        several = (
            several and is_iterable(self.within) and all(isinstance(m, str) for m in self.within)
        )
        yield "within", several, 'a sequence of names of modes: within=["on"]'
        mapping = isinstance(self.changes, Mapping) and all(
            isinstance(k, str) for k in self.changes
        )
        yield "changes", mapping, 'a mapping: {"rate": lambda t, u, p: 2.0}'

    def _refuse(self, names: Collection[str], beside: str, remedy: str) -> None:
        """Refuse arguments that nothing would read: a time is passed once, and forwards."""
        for argument in fields(self):
            value = getattr(self, argument.name)
            # what has no meaning beside the others would be dropped in silence
            if argument.name not in names:
                continue
            if value is not None if argument.default is None else value != argument.default:
                raise InputError(
                    f'event "{self.name}": {argument.name} = {value!r} {beside}',
                    expected="arguments that have a meaning together",
                    remedy=f"no {argument.name}, or {remedy}",
                )

    def active(self, mode: str) -> bool:
        """Whether it can happen in a mode."""
        require(mode, str, "mode", '"on"')
        return not len(self.within) or mode in self.within

    @property
    def delay(self) -> tuple[float, str] | None:
        """The time that a parameter adds to, and its name; None where no parameter is the time."""
        when: Any = self.when
        if isinstance(when, str):
            return 0.0, when
        if isinstance(when, tuple) and len(when) == 2 and isinstance(when[1], str):
            return (as_float(when[0]), when[1]) if _is_number(when[0]) else None
        return None

    @property
    def explicit(self) -> bool:
        """Whether it happens at a time that does not depend on the parameters."""
        return _is_number(self.when)


def _is_number(value: object) -> TypeGuard[float]:
    return is_real(value)


def _is_function(callback: object) -> bool:
    return callable(callback) or admit_native(callback) is not None


def admit_event(thing: EventLike) -> Event:
    """Return an object with the attributes of an event as an ``Event``.

    Raises
    ------
    InputError
        It is a class, has no attribute ``when``, or one that cannot be right.
    """
    if isinstance(thing, Event):
        return thing
    if isinstance(thing, type):
        raise InputError(
            f"the class {thing.__name__} is given as an event",
            expected="an object",
            remedy=f"{thing.__name__}(...)",
        )
    if not hasattr(thing, "when"):
        raise InputError(
            f"{thing!r} is given as an event, but has no attribute 'when'",
            expected="a function when(t, u, p) -> float, or a time, as attribute 'when'",
            remedy="Event(when, reset, ...), or an object with the same attributes",
        )
    names = [field.name for field in fields(Event)]
    return Event(**{name: getattr(thing, name) for name in names if hasattr(thing, name)})


def admit_events(things: Iterable[EventLike]) -> tuple[Event, ...]:
    """Return objects with the attributes of events as a tuple of ``Event``.

    Raises
    ------
    InputError
        No sequence, or as :func:`admit_event`.
    """
    if not is_iterable(things):
        raise InputError(
            f"events is {type(things).__name__}", expected="a sequence", remedy="events=[event]"
        )
    return tuple(admit_event(thing) for thing in things)


def unknown_modes(events: Iterable[Event], modes: Collection[str]) -> list[str]:
    """Complain of modes that events name and that there are not; each complaint is one line."""
    complaints: list[str] = []
    for event in events:
        named = [*([event.mode] if isinstance(event.mode, str) else []), *event.within]
        for name in dict.fromkeys(named):
            if name in modes:
                continue
            there = f"expected: {', '.join(modes)}{suggestion(name, modes)}"
            if not modes:
                there = "there are none; try: hybrid({...}, start, events)"
            complaints.append(f'event "{event.name}" names the unknown mode "{name}"; {there}')
    return complaints


def admit_known_events(things: Iterable[EventLike], modes: Collection[str]) -> tuple[Event, ...]:
    """Return objects with the attributes of events as a tuple of ``Event`` of a problem's modes.

    Raises
    ------
    InputError
        A mode that there is not, or as :func:`admit_events`.
    """
    events = admit_events(things)
    complaints = unknown_modes(events, modes)
    if complaints:
        raise together(complaints, heading="events")
    return events
