"""Tests of a package know its modules, and of others what is public."""

import ast
from functools import cache
from importlib import import_module
from inspect import ismodule
from pathlib import Path

TESTS = Path(__file__).parent
SUPPORT = TESTS / "support"  # equipment of all tests

PUBLIC = {
    *("daeosens.problem.grids", "daeosens.problem.event_kinds", "daeosens.tracing.pdes"),
    *("daeosens.cli.study", "daeosens.cli.doctor"),
}
"""Modules of the reference besides the packages themselves."""


@cache
def nodes_of(path):
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports_of(path):
    """Yield the lines on which a file imports from this package, with module and name."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("daeosens."):
            yield from ((node.lineno, str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)


def replaced_in(path):
    """Yield the lines on which a file replaces something of this package, and its name."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
            (target,) = node.args[:1]
            if isinstance(target, ast.Constant) and str(target.value).startswith("daeosens."):
                yield node.lineno, str(target.value)


def is_public(module, name):
    """Whether a name of a module is no module itself, and the module one that users know."""
    if module.count(".") > 1 and module not in PUBLIC:
        return False
    inside = getattr(import_module(module), name, None)
    return not ismodule(inside) or f"{module}.{name}" in PUBLIC


def test_tests_import_from_their_own_package_or_public_names():
    strangers = []
    for path in TESTS.rglob("*.py"):
        own, *_ = path.relative_to(TESTS).parts
        for line, module, name in () if SUPPORT in path.parents else imports_of(path):
            top, package, *_ = [*module.split("."), ""]
            if top == "daeosens" and package not in ("", own) and not is_public(module, name):
                strangers.append(f"{path.relative_to(TESTS)}:{line}: {module} {name}")
        strangers += [
            f"{path.relative_to(TESTS)}:{line}: {name} is replaced"
            for line, name in replaced_in(path)
            if name.split(".")[1] != own
        ]
    assert strangers == []
