"""The modules of tracing that need what may not be installed, and what ranks agree on before."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from daeosens.errors import InputError


def in_order(parameters: int | Sequence[str] | Mapping[str, Any]) -> object:
    """Return what ranks have to agree on: the order of names is that of the vector [m]."""
    return list(parameters.items()) if isinstance(parameters, Mapping) else parameters


def needed(module: str) -> Any:
    """Import a module of tracing: the rest of the package neither needs CasADi nor waits for it."""
    try:
        for name in ("casadi", "filelock", "platformdirs"):
            importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"tracing needs {error.name}, which is not installed",
            remedy='pip install --no-build-isolation "daeosens[trace]", or pip install casadi '
            "filelock platformdirs",
        ) from error
    return importlib.import_module(f"daeosens.tracing.{module}")
