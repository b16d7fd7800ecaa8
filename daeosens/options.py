"""PETSc options with scopes: library default < config < code < command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from petsc4py import PETSc


class OptionScope:
    """Placeholder scope."""

    def check_used(self, *, final: bool = False) -> None:
        """Check."""


def validate_names(options: Mapping[str, Any], where: str) -> None:
    """Check names."""


@contextmanager
def scoped_options(
    *,
    defaults: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    code: Mapping[str, Any] | None = None,
) -> Iterator[OptionScope]:
    """Insert options for a block."""
    merged = {**(defaults or {}), **(config or {}), **(code or {})}
    database = PETSc.Options()
    added = [key for key in merged if not database.hasName(key)]
    for key in added:
        database.setValue(key, merged[key])
    try:
        yield OptionScope()
    finally:
        for key in added:
            database.delValue(key)
