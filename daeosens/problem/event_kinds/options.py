"""Options of kinds of events: types that say which are names, and what is wrong with the names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeAlias, get_args

from daeosens.errors import InputError
from daeosens.io.config.schema import Constraint, is_array, is_mapping, members, take_apart
from daeosens.problem.event_kinds.state_names import Quantity, System


def _any(_: object) -> bool:
    return True


UNKNOWN = Constraint("that names an unknown", _any)
PARAMETER = Constraint("that names a parameter", _any)
MODE = Constraint("that names a mode", _any)
"""Marks of options that are names: they are looked up once the system is known."""

Component: TypeAlias = Annotated[str | int, UNKNOWN]
"""Type of an option: an unknown by name, or by number from 0."""

Number: TypeAlias = float | Annotated[str, PARAMETER]
"""Type of an option: a number, or the name of a parameter, which is differentiated."""

Mode: TypeAlias = Annotated[str, MODE]
"""Type of an option: the name of a mode."""

Changes: TypeAlias = dict[Component, Number]
"""Type of an option: a table with a number, or a parameter, for some of the unknowns."""


def quantities(system: System, table: Mapping[Any, Any] | None) -> dict[int, Quantity]:
    """Return a table of changes by the numbers of unknowns.

    Raises
    ------
    InputError
        A name that there is not, or an unknown that appears twice.
    """
    by_state: dict[int, Quantity] = {}
    for unknown, value in (table or {}).items():
        index = system.index(unknown)
        if index in by_state:
            raise InputError(f"{system.name(index)} appears twice", expected="each unknown once")
        by_state[index] = system.quantity(value)
    return by_state


def chosen(option: str, value: str, choices: Mapping[str, int]) -> int:
    """Return what one of several words stands for.

    Raises
    ------
    InputError
        It is none of them.
    """
    if value not in choices:
        words = ", ".join(f'"{word}"' for word in choices)
        raise InputError(f"{option} = {value!r}", expected=f"one of {words}")
    return choices[value]


def misnamed(system: System, key: str, annotation: Any, value: Any) -> Iterator[str]:
    """Complain of names in the value of an option that the system does not know.

    Parameters
    ----------
    system : System
        What there is.
    key : str
        What the complaints begin with.
    annotation : type hint
        Of the option.
    value : object
        Right by its type.
    """
    if value is None:
        return
    hint = take_apart(annotation)
    look_up: dict[Constraint, Callable[[Any], Any]] = {
        UNKNOWN: system.index,
        PARAMETER: system.quantity,
        MODE: system.check_mode,
    }
    for mark in hint.constraints:
        if mark in look_up:
            try:
                look_up[mark](value)
            except InputError as error:
                yield f"{key}: {error.in_one_line()}"
    if is_mapping(hint.bare) and isinstance(value, Mapping):
        of_key, of_value = get_args(hint.bare)
        for name, entry in value.items():  # type: ignore[reportUnknownVariableType]
            yield from misnamed(system, f"{key}.{name}", of_key, name)
            yield from misnamed(system, f"{key}.{name}", of_value, entry)
    elif is_array(hint.bare) and isinstance(value, (list, tuple)):
        entries = get_args(hint.bare)
        for k, entry in enumerate(value):  # type: ignore[reportUnknownVariableType]
            of_entry = entries[0] if len(entries) == 1 or entries[1] is ... else entries[k]
            yield from misnamed(system, f"{key}[{k}]", of_entry, entry)
    # a number or a name: only a word is looked up as a name
    elif len(members(hint.bare)) > 1:
        for member in members(hint.bare):
            if take_apart(member).bare is not str or isinstance(value, str):
                yield from misnamed(system, key, member, value)
