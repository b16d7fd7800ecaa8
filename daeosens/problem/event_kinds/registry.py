"""Kinds of events by name: those of this package, and those of others by their entry points."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from daeosens.errors import InputError, nearest, require
from daeosens.io.config.schema import noun
from daeosens.problem.event_kinds.fault import fault
from daeosens.problem.event_kinds.hysteresis import hysteresis
from daeosens.problem.event_kinds.impact import impact
from daeosens.problem.event_kinds.impulse import impulse
from daeosens.problem.event_kinds.saturation import saturation
from daeosens.problem.event_kinds.threshold import threshold

GROUP = "daeosens.events"
"""The group of entry points under which packages register kinds of events."""

BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "fault": fault,
    "hysteresis": hysteresis,
    "impact": impact,
    "impulse": impulse,
    "saturation": saturation,
    "threshold": threshold,
}
"""Registered in pyproject.toml too; here so that they do not depend on how this was installed."""


@dataclass(frozen=True)
class Kind:
    """A kind of event.

    Parameters
    ----------
    name : str
        What configurations call it.
    factory : callable
        ``factory(system, **options)``: see docs/events.md.
    options : type
        A dataclass of its options.
    source : str
        Where it comes from.
    """

    name: str
    factory: Callable[..., Any]
    options: type[Any]
    source: str

    @property
    def summary(self) -> str:
        """The first line of the factory's docstring."""
        return (inspect.getdoc(self.factory) or "").partition("\n")[0]


def known_kinds() -> list[str]:
    """Return the names of all kinds that are registered, sorted; nothing is loaded.

    Examples
    --------
    >>> "impact" in known_kinds()
    True
    """
    return sorted({*BUILT_IN, *(point.name for point in _foreign())})


def find_kind(name: str) -> Kind:
    """Return the kind of a name, loaded.

    Raises
    ------
    InputError
        There is none, there are several, or its package is broken; names package and entry point.

    Examples
    --------
    >>> find_kind("impact").source
    'daeosens'
    """
    require(name, str, "kind of event", "impulse")
    points = [point for point in _foreign() if point.name == name]
    sources = [*(["daeosens"] if name in BUILT_IN else []), *map(describe, points)]
    if not sources:
        known = known_kinds()
        raise InputError(
            f'there is no kind of event "{name}"',
            expected=", ".join(f'"{kind}"' for kind in known),
            remedy=nearest(name, known) or "daeosens doctor, which lists where kinds come from",
        )
    # by chance of the installation one or the other would be taken
    if len(sources) > 1:
        raise InputError(
            f'the kind of event "{name}" is registered by {" and by ".join(sources)}',
            expected="one package that registers it",
            remedy="uninstall one of them",
        )
    if not points:
        return Kind(name, BUILT_IN[name], options_of(BUILT_IN[name]), "daeosens")
    try:
        factory = points[0].load()
        return Kind(name, factory, options_of(factory), sources[0])
    except Exception as error:
        raise broken(name, sources[0], f"cannot be used: {said(error)}") from error


def broken(name: str, source: str, what: str) -> InputError:
    """Return the error of a kind whose factory does not do what it should."""
    return InputError(
        f'the kind of event "{name}" of {source} {what}',
        expected=f"factory(system, **options) -> event or events, in the entry points of {GROUP}",
        remedy="another version of that package, or its authors",
    )


def said(error: BaseException) -> str:
    """Return an exception of other people's code in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def describe(point: EntryPoint) -> str:
    """Name the package of an entry point and what it points to."""
    package = "" if point.dist is None else f"{point.dist.name} {point.dist.version} "
    return f"{package}({point.value})"


def options_of(factory: Callable[..., Any]) -> type[Any]:
    """Return the options of a factory, its parameters after the first, as a dataclass.

    Parameters
    ----------
    factory : callable
        A function, or a class; its parameters have type hints that a configuration can hold.

    Raises
    ------
    TypeError
        Not callable, or parameters that cannot be options.

    Examples
    --------
    >>> def hiccup(system, *, strength: float = 1.0): ...
    >>> options_of(hiccup)()
    hiccup_options(strength=1.0)
    """
    if not callable(factory):
        raise TypeError(f"{factory!r} is not callable")
    called: Any = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    hints = typing.get_type_hints(called, include_extras=True)
    system, *parameters = inspect.signature(factory).parameters.values() or (None,)
    if system is None or system.kind in (system.KEYWORD_ONLY, system.VAR_KEYWORD):
        raise TypeError("its factory takes no system as its first argument")
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            raise TypeError(f'parameter "{parameter}" of its factory is no keyword')
        if parameter.name not in hints or parameter.name == "kind":
            raise TypeError(
                f'parameter "{parameter.name}" of its factory has no type hint, or is "kind"'
            )
        try:
            noun(hints[parameter.name])
        except KeyError as error:
            raise TypeError(
                f'no configuration can hold parameter "{parameter}" of its factory'
            ) from error
        fields.append((parameter.name, hints[parameter.name], *_default(parameter)))
    name = getattr(factory, "__name__", type(factory).__name__)
    return dataclasses.make_dataclass(f"{name}_options", fields, frozen=True, kw_only=True)


def _default(parameter: inspect.Parameter) -> tuple[Any, ...]:
    default: Any = parameter.default
    if default is parameter.empty:
        return ()
    return (dataclasses.field(default_factory=lambda: default),)


def _foreign() -> list[EntryPoint]:
    """Return the entry points of other packages."""
    points = entry_points(group=GROUP)
    return [point for point in points if point.module.partition(".")[0] != "daeosens"]
