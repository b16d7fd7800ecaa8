"""What a configuration may hold, said with type hints: ranges, lengths, help texts.

A driver declares its configuration as a frozen dataclass; hints say what each key may be::

    @dataclass(frozen=True)
    class Config:
        data: Annotated[Path, existing_file(), "observations, CSV"]
        sigma: Annotated[float, positive(), "noise level [log units]"] = 0.25
        method: Literal["lmvm", "blmvm"] = "lmvm"
        weights: Annotated[tuple[float, ...], length(1)] = (1.0,)

Hints understood: bool, int, float, str, Path, Literal, ``X | None``, unions, ``tuple[X, ...]``,
``tuple[X, Y]``, ``dict[str, X]``, nested dataclasses, ``object`` for anything.  A string in
``Annotated`` is the key's help text.  A dataclass whose keys follow from their values has functions
``read_table(reading, key, table)`` and ``help_lines(prefix)`` of its own (``SelfReading``).
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeGuard

from daeosens.errors import InputError, is_real, is_whole
from daeosens.io.files import file_hint
from daeosens.petsc.vectors import as_float


@dataclass(frozen=True)
class Constraint:
    """A condition on one value; make your own as easily as the ones below.

    Parameters
    ----------
    words : str
        The condition so that it reads well after a noun: "> 0", "in [0, 1]".
    holds : callable
        ``holds(value) -> bool``; the value is already of the right type.
    remedy : callable, optional
        ``remedy(value) -> str``: what to try, for a value that does not meet the condition.
    complaints : callable, optional
        ``complaints(value) -> sequence of str``: for a value that is made of many, what is wrong
        one by one, each beginning with the rest of its key: ``[0].start = 3: expected ...``.
    """

    words: str
    holds: Callable[[Any], bool]
    remedy: Callable[[Any], str] = lambda _: ""
    complaints: Callable[[Any], Sequence[str]] = lambda _: ()


def positive() -> Constraint:
    """Ask for ``value > 0``."""
    return Constraint("> 0", lambda value: value > 0)


def between(least: float = -math.inf, most: float = math.inf) -> Constraint:
    """Ask for ``least <= value <= most``; an end that is left out does not bound."""
    for name, end in (("least", least), ("most", most)):
        if not is_real(end) or math.isnan(as_float(end)):
            raise InputError(f"{name} = {end!r}", expected="a number")
    least, most = as_float(least), as_float(most)
    words = f"in [{least:g}, {most:g}]"
    if most == math.inf:
        words = f">= {least:g}"
    elif least == -math.inf:
        words = f"<= {most:g}"
    return Constraint(words, lambda value: least <= value <= most)


def increasing() -> Constraint:
    """Ask for an array whose every entry is larger than the one before."""

    def steps_back(values: Sequence[float]) -> list[int]:
        return [k for k in range(1, len(values)) if values[k] <= values[k - 1]]

    def remedy(values: Sequence[float]) -> str:
        k = steps_back(values)[0]
        return f"entry {k} is {values[k]:g}, the one before it {values[k - 1]:g}"

    return Constraint("strictly increasing", lambda values: not steps_back(values), remedy)


def length(least: int, most: float = math.inf) -> Constraint:
    """Ask for an array (or string) of at least ``least`` and at most ``most`` entries."""
    for name, end in (("least", least), ("most", most)):
        if not (is_whole(end) or (is_real(end) and end == math.inf)):
            raise InputError(f"{name} = {end!r}", expected="an integer")
    words = f"of length {least}" + (f" to {most}" if most != least else "")
    if most == math.inf:
        words = f"of length >= {least}"
    return Constraint(
        words,
        lambda value: least <= len(value) <= most,
        lambda value: f"the length is {len(value)}",
    )


def existing_file() -> Constraint:
    """Ask for a path at which there is a file."""
    return Constraint("of an existing file", lambda path: path.is_file(), file_hint)


@dataclass(frozen=True)
class Hint:
    """A type hint taken apart: the bare type, its constraints, its help text."""

    bare: Any
    constraints: tuple[Constraint, ...]
    text: str


def take_apart(annotation: Any) -> Hint:
    """Split ``Annotated[X, ...]`` into X, its constraints and its help text."""
    if typing.get_origin(annotation) is not Annotated:
        return Hint(annotation, (), "")
    bare, *notes = typing.get_args(annotation)
    constraints = tuple(note for note in notes if isinstance(note, Constraint))
    return Hint(bare, constraints, " ".join(note for note in notes if isinstance(note, str)))


def hints(config_class: type[Any]) -> dict[str, Any]:
    """Return the annotations of the keys a configuration class takes, in order."""
    resolved = typing.get_type_hints(config_class, include_extras=True)
    return {f.name: resolved[f.name] for f in dataclasses.fields(config_class) if f.init}


def is_union(bare: Any) -> bool:
    """Tell whether a bare type is ``X | Y`` or ``Optional[X]``."""
    return typing.get_origin(bare) in (typing.Union, types.UnionType)


def members(bare: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return typing.get_args(bare) if is_union(bare) else (bare,)


def is_array(bare: Any) -> bool:
    """Tell whether a bare type is read from a TOML array."""
    return typing.get_origin(bare) in (tuple, list, Sequence)


def is_mapping(bare: Any) -> bool:
    """Tell whether a bare type is read from a TOML table with free keys."""
    return typing.get_origin(bare) in (dict, Mapping)


_NOUNS: dict[Any, str] = {
    float: "a number",
    int: "an integer",
    bool: "true or false",
    str: "a string",
    Path: "a path",
    object: "anything",
    Any: "anything",
    types.NoneType: "nothing",
}


class SelfReading(Protocol):
    """A dataclass that is read from a table by a function of its own."""

    @classmethod
    def read_table(cls, reading: Any, key: str, table: dict[str, Any]) -> Any:
        """Return the value, or None after having noted what is wrong with the table."""
        ...

    @classmethod
    def help_lines(cls, prefix: str) -> list[str]:
        """Return one line for each key, or set of keys, that the table may have."""
        ...


def is_self_reading(bare: Any) -> TypeGuard[type[SelfReading]]:
    """Tell whether a bare type has a reader of its own."""
    return isinstance(bare, type) and hasattr(bare, "read_table")


def noun(annotation: Any) -> str:
    """Say in words what a type hint accepts.

    Examples
    --------
    >>> noun(Annotated[float, positive()])
    'a number > 0'
    >>> noun(tuple[float, float] | None)
    'an array [number, number]'
    """
    hint = take_apart(annotation)
    head, *tail = _bare_noun(hint.bare)
    words = " and ".join(constraint.words for constraint in hint.constraints)
    return f"{head} {words}".rstrip() + "".join(tail)


def _bare_noun(bare: Any) -> tuple[str, ...]:
    """Return the noun, and what follows it after the constraints."""
    arguments = typing.get_args(bare)
    if typing.get_origin(bare) is Literal:
        choices = ", ".join(toml_text(choice) for choice in arguments)
        return (f"one of {choices}" if len(arguments) > 1 else choices,)
    if is_union(bare):
        return (" or ".join(noun(a) for a in arguments if a is not types.NoneType),)
    if is_mapping(bare):
        return "a table", f", each value {noun(arguments[1])}"
    if is_array(bare):
        if len(arguments) == 1 or arguments[1] is ...:
            return "an array", f", each entry {noun(arguments[0])}"
        return f"an array [{', '.join(noun(a).split(' ', 1)[1] for a in arguments)}]", ""
    return ("a table" if dataclasses.is_dataclass(bare) else _NOUNS[bare],)


def toml_text(value: Any) -> str:
    """Write a value as TOML does, cut after 60 characters."""
    try:
        text = _toml_text(value)
    except RecursionError:  # a list that holds itself
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _toml_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml_text, typing.cast("Sequence[Any]", value))) + "]"
    if isinstance(value, dict):
        table = typing.cast("dict[str, Any]", value)
        return "{" + ", ".join(f"{key} = {_toml_text(entry)}" for key, entry in table.items()) + "}"
    return str(value)
