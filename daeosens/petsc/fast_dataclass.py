"""Frozen dataclasses that are made with every run."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def quickly_made(kind: type[Kind]) -> type[Kind]:
    """Decorate a frozen dataclass without ``__post_init__``: its constructor takes less time.

    That of ``dataclass`` calls ``object.__setattr__`` for each field: for a trajectory that takes
    longer than ten steps of a small system.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @quickly_made
    ... @dataclass(frozen=True)
    ... class Point:
    ...     x: float
    ...     y: float = 0.0
    >>> Point(1.0)
    Point(x=1.0, y=0.0)
    """
    arguments, lines = ["self"], ["    values = self.__dict__"]
    scope: dict[str, Any] = {"MISSING": MISSING}
    for field in fields(kind):  # type: ignore[arg-type]
        name = value = field.name
        if field.default is not MISSING:
            scope[f"default_{name}"] = field.default
            arguments.append(f"{name}=default_{name}")
        elif field.default_factory is not MISSING:
            scope[f"make_{name}"] = field.default_factory
            arguments.append(f"{name}=MISSING")
            value = f"make_{name}() if {name} is MISSING else {name}"
        else:
            arguments.append(name)
        lines.append(f"    values[{name!r}] = {value}")
    exec(f"def init({', '.join(arguments)}):\n" + "\n".join(lines), scope)  # as dataclasses does
    scope["init"].__qualname__ = f"{kind.__qualname__}.__init__"  # as errors name it
    kind.__init__ = scope["init"]
    return kind
