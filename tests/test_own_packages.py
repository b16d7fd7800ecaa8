"""Tests of a package know its modules, and of others what is public."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent
SUPPORT = TESTS / "support"  # equipment of all tests

PUBLIC = {"daeosens.problem.grids", "daeosens.problem.event_kinds", "daeosens.cli.study"}
"""Modules of the reference besides the packages themselves."""


def imported_modules(path):
    """Yield the modules of this package that a file imports from, and the lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module), node.lineno
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)


def test_tests_import_from_their_own_package_or_public_names():
    strangers = []
    for path in TESTS.rglob("*.py"):
        if SUPPORT in path.parents:
            continue
        own, *_ = path.relative_to(TESTS).parts
        for module, line in imported_modules(path):
            parts = module.split(".")
            inside = parts[0] == "daeosens" and len(parts) > 2
            if inside and parts[1] != own and module not in PUBLIC:
                strangers.append(f"{path.relative_to(TESTS)}:{line}: {module}")
    assert strangers == []
