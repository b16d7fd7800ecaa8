"""Reading the values of a configuration one by one, strictly, noting every problem on the way."""

from __future__ import annotations

import dataclasses
import math
import sys
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from daeosens.errors import InputError, nearest
from daeosens.io.config.schema import (
    hints,
    is_array,
    is_mapping,
    is_self_reading,
    is_union,
    members,
    noun,
    take_apart,
    toml_text,
)


@dataclass(frozen=True)
class Reading:
    """One pass over a file: where relative paths start, and the problems found so far."""

    folder: Path
    problems: list[str] = field(default_factory=list[str])

    def reject(self, key: str, value: Any, annotation: Any, remedy: str = "") -> None:
        """Note that ``value`` is not what ``annotation`` asks for."""
        line = f"{key} = {toml_text(value)}: expected {noun(annotation)}"
        self.problems.append(f"{line}; {remedy}" if remedy else line)


def _read_value(reading: Reading, key: str, value: Any, annotation: Any) -> Any:
    """Return ``value`` as ``annotation`` says; on a problem note it and return None."""
    hint = take_apart(annotation)
    before = len(reading.problems)
    read = _read_bare(reading, key, value, hint.bare, annotation)
    if len(reading.problems) == before:
        for constraint in hint.constraints:
            complaints = constraint.complaints(read)
            reading.problems.extend(key + complaint for complaint in complaints)
            if complaints:
                return None
            if not constraint.holds(read):
                reading.reject(key, value, annotation, constraint.remedy(read))
                return None
    return read


def _read_bare(reading: Reading, key: str, value: Any, bare: Any, annotation: Any) -> Any:
    if is_union(bare):
        return _read_union(reading, key, value, bare, annotation)
    if typing.get_origin(bare) is Literal:
        return _read_choice(reading, key, value, bare)
    if is_array(bare):
        return _read_array(reading, key, value, bare, annotation)
    if is_mapping(bare) or dataclasses.is_dataclass(bare):
        return _read_section(reading, key, value, bare, annotation)
    return _read_scalar(reading, key, value, bare, annotation)


def _read_section(reading: Reading, key: str, value: Any, bare: Any, annotation: Any) -> Any:
    if not isinstance(value, dict):
        return reading.reject(key, value, annotation, f"write it as a section [{key}]")
    table = typing.cast("dict[str, Any]", value)
    if is_self_reading(bare):
        return bare.read_table(reading, key, table)
    if dataclasses.is_dataclass(bare):
        return read_table(reading, key, table, typing.cast("type[Any]", bare))
    entry = typing.get_args(bare)[1]
    return {name: _read_value(reading, f"{key}.{name}", table[name], entry) for name in table}


def _read_scalar(reading: Reading, key: str, value: Any, bare: Any, annotation: Any) -> Any:
    if isinstance(value, (int, float)) and not abs(value) <= sys.float_info.max:
        return reading.reject(key, value, annotation, "every number must be finite")
    if bare in (object, Any):
        return value
    if bare is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if bare is Path and isinstance(value, str):
        return reading.folder / value
    if isinstance(value, bare) and (bare is bool or not isinstance(value, bool)):
        return value
    return reading.reject(key, value, annotation, _scalar_remedy(value, bare))


def _scalar_remedy(value: Any, bare: Any) -> str:
    if bare in (str, Path) and not isinstance(value, (dict, list)):
        return f'write "{value}"'
    if bare is int and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if bare in (int, float) and isinstance(value, str) and _is_number(value):
        return f"write {value} without quotes"
    if bare is bool:
        return "write true or false"
    return ""


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _read_choice(reading: Reading, key: str, value: Any, bare: Any) -> Any:
    for choice in typing.get_args(bare):
        if type(choice) is type(value) and choice == value:
            return choice
    words = [choice for choice in typing.get_args(bare) if isinstance(choice, str)]
    match = nearest(value, words) if isinstance(value, str) else ""
    return reading.reject(key, value, bare, f"did you mean {match}?" if match else "")


def _read_union(reading: Reading, key: str, value: Any, bare: Any, annotation: Any) -> Any:
    """Take the first member that fits; if none does, speak of the only one of the value's shape."""
    candidates = [m for m in members(bare) if m is not types.NoneType]
    trials = [Reading(reading.folder) for _ in candidates]
    for member, trial in zip(candidates, trials, strict=True):
        read = _read_value(trial, key, value, member)
        if not trial.problems:
            return read
    alike = [
        trial
        for candidate, trial in zip(candidates, trials, strict=True)
        if len(candidates) == 1 or _same_shape(value, take_apart(candidate).bare)
    ]
    if len(alike) == 1:
        reading.problems.extend(alike[0].problems)
        return None
    return reading.reject(key, value, annotation)


def _same_shape(value: Any, bare: Any) -> bool:
    if isinstance(value, dict):
        return is_mapping(bare) or dataclasses.is_dataclass(bare)
    if isinstance(value, list):
        return is_array(bare)
    if isinstance(value, str):
        return bare in (str, Path) or isinstance(next(iter(typing.get_args(bare)), None), str)
    return bare in ((float,) if isinstance(value, float) else (int, float))


def _read_array(reading: Reading, key: str, value: Any, bare: Any, annotation: Any) -> Any:
    if not isinstance(value, list):
        return reading.reject(key, value, annotation, f"write [{toml_text(value)}]")
    entries = typing.cast("list[Any]", value)
    expected = typing.get_args(bare)
    if len(expected) == 1 or expected[1] is ...:
        expected = (expected[0],) * len(entries)
    if len(expected) != len(entries):
        return reading.reject(key, entries, annotation, f"the length is {len(entries)}")
    read = [
        _read_value(reading, f"{key}[{k}]", entry, hint)
        for k, (entry, hint) in enumerate(zip(entries, expected, strict=True))
    ]
    return read if typing.get_origin(bare) is list else tuple(read)


def read_table(reading: Reading, key: str, table: dict[str, Any], config_class: type[Any]) -> Any:
    """Build ``config_class`` from a TOML table; on problems note them and return None.

    Parameters
    ----------
    reading : Reading
        Its ``problems`` are appended to.
    key : str
        Dotted key of the table, empty for the whole file.
    table : dict
        The values as TOML gives them.
    config_class : type
        The dataclass to build.
    """
    before = len(reading.problems)
    keys = hints(config_class)
    prefix = f"{key}." if key else ""
    read = {n: _read_value(reading, prefix + n, table[n], a) for n, a in keys.items() if n in table}
    absent = [name for name in keys if name not in table]
    meant = _note_unknown(
        reading, prefix, [name for name in table if name not in keys], list(keys), absent
    )
    for name in absent:
        entry = next(f for f in dataclasses.fields(config_class) if f.name == name)
        required = (
            entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
        )
        if required and name not in meant:
            bare = take_apart(keys[name]).bare
            section = is_mapping(bare) or dataclasses.is_dataclass(bare)
            remedy = f"a section [{prefix}{name}]" if section else f"{name} = ..."
            reading.problems.append(
                f"{prefix}{name}: missing; expected {noun(keys[name])}; add {remedy}"
            )
    if len(reading.problems) > before:
        return None
    try:
        return config_class(**read)
    except (InputError, ValueError) as error:
        reading.problems.extend(_dotted(key, list(keys), str(error)))
        return None


def _dotted(key: str, names: list[str], message: str) -> list[str]:
    """Split a message of several complaints; one that begins with a key gets its dotted name."""
    head, *complaints = message.split("\n  - ")
    prefix = f"{key}." if key else ""
    return [
        f"{prefix}{line}" if line.split(" ")[0] in names else f"{key}: {line}".removeprefix(": ")
        for line in complaints or [head.replace("\n", "\n  ")]
    ]


def _note_unknown(
    reading: Reading, prefix: str, unknown: list[str], known: list[str], absent: list[str]
) -> set[str]:
    """Note unknown keys; return the absent keys they were meant to be."""
    meant: set[str] = set()
    for name in unknown:
        match = (nearest(name, absent) or nearest(name, known)).strip('"')
        meant.update({match} & set(absent))
        remedy = (
            f'did you mean "{match}"?' if match else f"known keys: {', '.join(known) or 'none'}"
        )
        reading.problems.append(f"{prefix}{name}: unknown key; {remedy}")
    return meant
