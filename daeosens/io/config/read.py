"""Configuration files: TOML into a nested frozen dataclass, every problem reported at once.

The reader is our own: msgspec stops at the first problem; cattrs turns ``true`` into 1, passes NaN
and does not name the nearest key; pydantic in strict mode refuses tables for dataclasses and arrays
for tuples.  TOML has so few types that reading them strictly takes one short function each
(:mod:`daeosens.io.config.values`).

What may be declared is told in :mod:`daeosens.io.config.schema`.
Three conventions hold everywhere: the
top-level key ``driver`` names the driver and is not passed on; a ``Path`` starts at the folder of
the configuration; no number may be NaN or infinite.
"""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from pathlib import Path
from typing import Any, TypeVar

from daeosens.errors import InputError, together
from daeosens.io.config.schema import (
    hints,
    is_array,
    is_self_reading,
    members,
    noun,
    take_apart,
    toml_text,
)
from daeosens.io.config.values import Reading, read_table
from daeosens.io.files import read_text

C = TypeVar("C")


def read_config(path: str | Path, config_class: type[C]) -> C:
    """Read a TOML file into ``config_class``.  Not collective: each caller reads the file.

    Parameters
    ----------
    path : str or Path
        The configuration file.
    config_class : type
        A dataclass whose hints say what each key may be (:mod:`daeosens.io.config.schema`); its
        ``__post_init__`` may raise ``InputError`` or ``ValueError`` for conditions between keys.

    Returns
    -------
    config_class

    Raises
    ------
    InputError
        All problems of the file together, each with its dotted key.
    """
    path = Path(path)
    return build_config(parse_toml(path, read_text(path, "configuration")), config_class, path)


def build_config(table: dict[str, Any], config_class: type[C], path: Path, reader: str = "") -> C:
    """Build ``config_class`` from a parsed table; ``path`` heads errors and anchors relative paths.

    Where the table names another driver than ``reader``, the one it is built for, errors say so.

    Raises
    ------
    InputError
        As :func:`read_config`.
    """
    keys = hints(config_class)
    entries = {key: value for key, value in table.items() if key != "driver" or "driver" in keys}
    # all problems of a file are noted before one error tells them
    reading = Reading(path.parent)
    config = read_table(reading, "", entries, config_class)
    if reading.problems:
        named = Path(str(table.get("driver", reader))).stem
        other = bool(reader) and named != reader
        remedy = f'"{named}", the driver it names, in the place of "{reader}"' if other else ""
        raise together(reading.problems, heading=str(path), remedy=remedy)
    return config


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """Parse TOML text; ``path`` is named in the error.

    Raises
    ------
    InputError
        Syntax error, with its line; tables or arrays nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{path}: not TOML: {error}",
            expected='lines such as dt = 0.1, method = "cn", [section]',
            remedy="mend that line (strings need quotes, each key stands once)",
        ) from error
    except RecursionError as error:
        raise InputError(
            f"{path}: arrays or tables are nested too deeply",
            expected='lines such as dt = 0.1, method = "cn", [section]',
        ) from error


def config_help(config_class: type[Any], prefix: str = "") -> str:
    """List the keys of a configuration class: what each accepts, its default, its help text.

    A line reads ``dt: a number > 0 (default 0.1); time step [years]``.
    """
    lines: list[str] = []
    fields = {f.name: f for f in dataclasses.fields(config_class)}
    for name, annotation in hints(config_class).items():
        hint = take_apart(annotation)
        texts = [hint.text, *(take_apart(member).text for member in members(hint.bare))]
        text = "".join(f"; {part}" for part in texts if part)
        default = _default_text(fields[name])
        lines.append(f"{prefix}{name}: {noun(annotation)}{default}{text}")
        for member in members(hint.bare):
            lines.extend(_table_help(member, f"{prefix}{name}"))
    return "\n".join(lines)


def _table_help(bare: Any, key: str) -> list[str]:
    """List the keys of a table, or of the tables of an array; nothing for other types."""
    if is_array(bare):
        return _table_help(take_apart(typing.get_args(bare)[0]).bare, f"{key}[]")
    if is_self_reading(bare):
        return bare.help_lines(f"{key}.")
    if dataclasses.is_dataclass(bare):
        return [config_help(typing.cast("type[Any]", bare), f"{key}.")]
    return []


def _default_text(entry: dataclasses.Field[Any]) -> str:
    if entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
        return ""
    default: Any = entry.default
    if default == "":
        return " (may be left out)"
    if isinstance(default, (bool, int, float, str, tuple)):
        return f" (default {toml_text(default)})"
    return " (may be left out)"
