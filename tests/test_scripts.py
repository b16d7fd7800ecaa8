"""What scripts and drivers import is there: they run too long to be tried as a whole each time."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import daeosens

ROOT = Path(__file__).parents[1]
PYTHON = b"#!/usr/bin/env python3"
PROGRAMS = [
    path
    for folder in ("scripts", "drivers")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix == ".py" or (path.is_file() and path.read_bytes().startswith(PYTHON))
]


def missing(path):
    """Yield the names of this package that a program takes, and that are not there."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "daeosens":
            module = import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    try:
                        import_module(f"{node.module}.{alias.name}")
                    except ImportError:
                        yield f"{node.module}.{alias.name}"
        ours = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if ours and node.value.id == "ds" and not hasattr(daeosens, node.attr):
            yield f"ds.{node.attr}"


def test_programs_are_found():
    names = {path.name for path in PROGRAMS}
    assert {"reproduce", "zoo", "run.py", "flash.py"} <= names


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_program_imports_is_there(path):
    assert list(missing(path)) == []
