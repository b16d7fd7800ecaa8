"""Drivers as modules, so that tests use what they define."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from daeosens.cli import drive


def driver(name: str) -> Any:
    """Return drivers/NAME.py as a module."""
    path = Path(__file__).parents[2] / "drivers" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_driver", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def driven(name: str, *words: str | Path) -> int:
    """Run a driver on all ranks of this program, as its last lines do; return its exit code."""
    module = driver(name)
    argv = [f"drivers/{name}.py", *map(str, words)]
    return drive(module.__doc__, module.Config, module.study, module.check, argv=argv)
