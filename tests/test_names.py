"""Variables are called by nouns of the field."""

import ast
from pathlib import Path

import daeosens

PACKAGE = Path(daeosens.__file__).parent
NO_NOUNS = {"each", "found", "given", "one"}


def names_in(tree):
    """Yield the names that a module gives, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def test_nothing_is_called_each_or_given():
    assert [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name, line in names_in(ast.parse(path.read_text(encoding="utf-8")))
        if name.strip("_") in NO_NOUNS
    ] == []
